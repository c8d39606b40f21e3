"""The Data page: rows as the model sees them, problems with their cures, and checks that fail."""

import pytest
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QApplication, QLabel, QPushButton

from app.answers import Row, Token
from app.pages.pairview import PairView, differences, sides
from app.pages.rowview import RowView
from app.pages.tokentext import TokenText
from app.states import State
from app.theme import colors


def formats(text):
    """Each run of text with its format."""
    found, block = [], text.document().begin()
    while block.isValid():
        iterator = block.begin()
        while not iterator.atEnd():
            fragment = iterator.fragment()
            found.append((fragment.text().strip(), fragment.charFormat()))
            iterator += 1
        block = block.next()
    return found


def press(notice, text):
    next(found for found in notice.findChildren(QPushButton) if found.text() == text).click()


def test_rows_show_what_is_learned_and_what_is_cut(window, data, qtbot):
    with qtbot.waitSignal(window.data_page.rows.shown, timeout=10_000):
        window.open_data(data("letters.jsonl"))
    second = formats(window.data_page.rows.views[1].texts[0])
    plain = next(form for text, form in second if text.startswith("For Friday"))
    learned = next(form for text, form in second if text.startswith('{"name"'))
    cut = next(form for text, form in second if text == "cut off")
    assert plain.background() != learned.background()
    assert cut.fontStrikeOut()
    assert not learned.fontStrikeOut()


def test_pages_turn(window, data, qtbot):
    page = window.data_page
    with qtbot.waitSignal(page.rows.shown, timeout=10_000):
        window.open_data(data("letters.jsonl"))
    assert page.side.text() == "1 to 8 of 20 rows"
    assert not page.rows.previous.isEnabled()
    for _ in range(2):
        with qtbot.waitSignal(page.rows.shown, timeout=10_000):
            page.rows.next.click()
    assert page.side.text() == "17 to 20 of 20 rows"
    assert not page.rows.next.isEnabled()
    with qtbot.waitSignal(page.rows.shown, timeout=10_000):
        page.rows.previous.click()
    assert page.side.text() == "9 to 16 of 20 rows"


def numbers(rows):
    return [view.number for view in rows.views]


@pytest.fixture
def rows(window, data, qtbot):
    """The rows of a file of twenty."""
    with qtbot.waitSignal(window.data_page.rows.shown, timeout=10_000):
        window.open_data(data("letters.jsonl"))
    return window.data_page.rows


def test_orders_show_their_own_rows(window, rows, qtbot):
    order = rows.finding.order
    for key, first, side in (("longest", 20, "1 to 8 of 20 rows"), ("cut", 2, "1 to 1 of 1 row"), ("", 1, "1 to 8 of")):
        with qtbot.waitSignal(rows.shown, timeout=10_000):
            order.setCurrentIndex(order.findData(key))
            order.activated.emit(order.currentIndex())
        assert numbers(rows)[0] == first
        assert window.data_page.side.text().startswith(side)


def test_an_order_without_rows_says_so_and_can_be_left(rows, qtbot):
    with qtbot.waitSignal(rows.shown, timeout=10_000):
        rows.show_order("problem")
    assert rows.views == []
    assert rows.none.isVisible()
    assert rows.finding.isVisible()
    with qtbot.waitSignal(rows.shown, timeout=10_000):
        rows.show_order("")
    assert rows.none.isHidden()


def test_search_goes_from_one_row_to_the_next(rows, qtbot):
    rows.finding.text.setText("Friday")
    found = []
    for _ in range(2):
        with qtbot.waitSignal(rows.shown, timeout=10_000):
            rows.finding.find_next.click()
        found.append(numbers(rows)[0])
        assert "Friday" in rows.views[0].texts[0].toPlainText()
    assert found[0] < found[1]


def test_a_search_goes_on_from_the_first_row_after_the_last_and_says_so(rows, qtbot):
    def seek(text):
        with qtbot.waitSignal(rows.shown, timeout=10_000):
            rows.seek(text)
        return numbers(rows)[0], rows.none.text() if rows.none.isVisible() else ""

    with qtbot.waitSignal(rows.shown, timeout=10_000):
        rows.show_order("longest")
    assert numbers(rows)[0] == 20
    first, said = seek("Friday")  # from the row in sight on, in the file's order
    assert first < 20
    assert said == "The search went on from the first row."
    assert seek("Friday") > (first, "")
    assert rows.none.isHidden()
    with qtbot.waitSignal(rows.shown, timeout=10_000):
        rows.go_to(20)
    assert seek("Friday") == (first, said)
    with qtbot.waitSignal(rows.shown, timeout=10_000):
        rows.next.click()
    assert rows.none.isHidden()


@pytest.mark.parametrize("text", ["a word that is not there", "---", "--json"])
def test_a_search_that_finds_nothing_says_so_and_leaves_the_rows(rows, qtbot, text):
    rows.finding.text.setText(text)
    rows.finding.text.returnPressed.emit()
    qtbot.waitUntil(rows.none.isVisible, timeout=10_000)
    assert text in rows.none.text()
    assert numbers(rows) == list(range(1, 9))


def test_a_search_in_vain_leaves_the_order_as_it_was(rows, qtbot):
    with qtbot.waitSignal(rows.shown, timeout=10_000):
        rows.show_order("longest")
    rows.seek("a word that is not there")
    qtbot.waitUntil(rows.none.isVisible, timeout=10_000)
    assert rows.finding.order.currentData() == "longest"
    with qtbot.waitSignal(rows.shown, timeout=10_000):
        rows.next.click()
    assert numbers(rows)[0] == 12


@pytest.mark.parametrize(("typed", "first"), [("12", 12), ("500", 20)])
def test_a_number_leads_to_its_row(rows, qtbot, typed, first):
    rows.finding.number.setText(typed)
    with qtbot.waitSignal(rows.shown, timeout=10_000):
        rows.finding.number.returnPressed.emit()
    assert numbers(rows)[0] == first


def test_a_preview_that_failed_is_asked_for_again_when_a_person_asks(window, data, tmp_path, qtbot):
    page, asked = window.data_page, []
    with qtbot.waitSignal(page.rows.failed, timeout=10_000):
        window.open_data(data("unseen.jsonl"))
    (notice,) = page.notices.shown
    page.rows.began.connect(lambda: asked.append(True))
    window.session.changed.emit()  # as each stage of a run does
    assert (page.notices.shown, asked) == ([notice], [])
    (tmp_path / "seen").touch()
    with qtbot.waitSignal(page.rows.shown, timeout=10_000):
        press(notice, "Try again")
    assert (page.notices.shown, asked) == ([], [True])
    assert len(page.rows.views) == 8


def test_rows_are_asked_for_again_when_the_file_is_checked_again(window, data, qtbot):
    page = window.data_page
    with qtbot.waitSignal(page.rows.shown, timeout=10_000):
        window.open_data(data("chat.jsonl"))
    asked = []
    page.rows.began.connect(lambda: asked.append(True))
    with qtbot.waitSignal(page.rows.shown, timeout=10_000):
        window.session.check.again()
    assert asked == [True]


def test_a_failed_check_stays_as_the_person_left_it(window, data, qtbot):
    page = window.data_page
    window.open_data(data("broken.jsonl"))
    qtbot.waitUntil(lambda: bool(page.notices.shown), timeout=10_000)
    (notice,) = page.notices.shown
    notice.details.head.click()
    window.session.changed.emit()
    assert page.notices.shown == [notice]
    notice.dismiss.click()
    window.session.changed.emit()
    assert page.notices.shown == []
    window.session.check.again()
    qtbot.waitUntil(lambda: bool(page.notices.shown), timeout=10_000)


def test_rows_of_one_file_never_stand_under_another(window, data, qtbot):
    page = window.data_page
    with qtbot.waitSignal(page.rows.shown, timeout=10_000):
        window.open_data(data("letters.jsonl"))
    with qtbot.waitSignal(page.rows.shown, timeout=10_000):
        page.rows.next.click()
    window.open_data(data("others.jsonl"))
    assert page.rows.views == []
    with qtbot.waitSignal(page.rows.shown, timeout=10_000):
        pass
    assert page.side.text() == "1 to 8 of 20 rows"


def test_a_long_row_opens_in_slices(window, data, qtbot):
    with qtbot.waitSignal(window.data_page.rows.shown, timeout=10_000):
        window.open_data(data("long.jsonl", rows=1))
    (view,) = window.data_page.rows.views
    (text,) = view.texts
    folded = text.height()
    assert not view.more.isHidden()
    view.more.click()
    qtbot.waitUntil(lambda: text.height() > 3 * folded)
    qtbot.waitUntil(lambda: view.complete)
    assert '"time": "18:15"' in text.toPlainText()


def test_a_pairs_long_prompt_leaves_its_answers_in_sight(window, pairs, qtbot):
    page = window.data_page
    window.resize(1280, 800)
    with qtbot.waitSignal(page.rows.shown, timeout=10_000):
        window.open_data(pairs("long.jsonl", rows=1))
    (view,) = page.rows.views
    qtbot.waitUntil(lambda: view.complete)
    QApplication.processEvents()
    assert view.pair.prompt.folded
    bottom = view.pair.better.mapTo(page.rows.scroll_area.viewport(), view.pair.better.rect().bottomLeft())
    assert bottom.y() <= page.rows.scroll_area.viewport().height()
    view.more.click()
    qtbot.waitUntil(lambda: view.complete)
    assert not view.pair.prompt.folded


def test_a_row_that_cannot_be_used_is_shown_as_it_stands_in_the_file(qtbot):
    view = RowView(Row(line=3, text='{"prompt": 3}', problem="Line 3 has no answer."), 3)
    qtbot.addWidget(view)
    ((text, form),) = formats(view.texts[0])
    assert text == '{"prompt": 3}'
    assert not form.fontStrikeOut()  # that is what a cut tail is shown by
    assert form.foreground().color() == QColor(colors().secondary)


@pytest.mark.parametrize(("file", "side"), [("", "line 1 200"), ("train-1.jsonl", "train-1.jsonl, line 1 200")])
def test_a_row_says_where_it_stands(qtbot, file, side):
    view = RowView(Row(file=file, line=1200, text="{"), 3)
    qtbot.addWidget(view)
    shown = [found.text().replace("\N{NARROW NO-BREAK SPACE}", " ") for found in view.findChildren(QLabel)]
    assert shown[:2] == ["Row 3", side]


def test_before_there_are_rows_nothing_explains_or_turns_them(window, data, qtbot):
    page = window.data_page
    window.open_data(data("letters.jsonl"))
    assert page.rows.next.isHidden()
    with qtbot.waitSignal(page.rows.shown, timeout=10_000):
        pass
    assert not page.rows.next.isHidden()


def test_problems_come_with_line_and_cure_and_keep_start_off(window, data, qtbot):
    window.open_data(data("errors.jsonl"))
    qtbot.waitUntil(window.data_page.problems.isVisible, timeout=10_000)
    assert window.sidebar.dataset.state.state is State.WRONG
    assert not window.bar.start.isEnabled()
    assert "mend" in window.bar.text.text()


def test_a_check_that_dies_is_a_card_with_details(window, data, qtbot):
    window.open_data(data("broken.jsonl"))
    qtbot.waitUntil(lambda: bool(window.data_page.notices.shown), timeout=10_000)
    (notice,) = window.data_page.notices.shown
    assert "Traceback" not in notice.message + notice.hint
    assert "a mistake of the engine's" in notice.details.content.toPlainText()
    with qtbot.waitSignal(window.data_page.rows.shown, timeout=10_000):
        window.open_data(data("letters.jsonl"))
    assert window.data_page.notices.shown == []


def test_another_length_checks_again(window, data, ready, qtbot):
    window.open_data(data("letters.jsonl"))
    ready(window)
    line = window.sidebar.dataset.form.fields["max_length"].editor.line
    line.setText("64")
    line.editingFinished.emit()
    assert window.session.config.max_length == 64
    assert window.session.check.busy
    ready(window)


def test_a_pair_shows_its_prompt_once_and_marks_where_the_answers_differ(window, pairs, qtbot):
    with qtbot.waitSignal(window.data_page.rows.shown, timeout=10_000):
        window.open_data(pairs())
    pair = window.data_page.rows.views[2].pair
    prompt, better, worse = (text.toPlainText() for text in pair.texts)
    assert "Which number follows 2?" in prompt
    assert "Which" not in better + worse
    assert [[text for text, form in formats(side) if form.fontUnderline()] for side in (pair.better, pair.worse)] == [
        ["3", "2."],
        ["1", "2, as everybody knows."],
    ]
    trained = formats(pair.better)[0][1].background()
    assert formats(pair.worse)[0][1].background() == trained
    assert formats(pair.prompt)[0][1].background() != trained


def test_answers_stand_side_by_side_or_one_above_the_other(qtbot):
    view = PairView([Token(1, "a", part=part) for part in ("prompt", "chosen", "rejected")], "Row 1")
    qtbot.addWidget(view)
    view.show()
    for width, stacked in ((900, False), (500, True), (900, False)):
        view.resize(width, 300)
        qtbot.waitUntil(lambda stacked=stacked: (view.worse.y() > view.better.y()) == stacked)
        assert (view.worse.x() == view.better.x()) == stacked


def test_prompts_that_are_not_the_same_tokens_stand_before_their_own_answers(window, pairs, qtbot):
    with qtbot.waitSignal(window.data_page.rows.shown, timeout=10_000):
        window.open_data(pairs("own.jsonl"))
    pair = window.data_page.rows.views[0].pair
    assert pair.prompt.isHidden()
    assert all("Which number" in side.toPlainText() for side in (pair.better, pair.worse))


def tokens(text, part):
    return [Token(id=ord(letter), text=letter, part=part) for letter in text]


@pytest.mark.parametrize(
    ("better", "worse", "marks"),
    [
        ("abcd", "abcd", (set(), set())),
        ("abcd", "abxd", ({2}, {2})),
        ("abcd", "abcdef", (set(), {4, 5})),
        ("abcdefgh", "stuvwxyz", None),
        ("", "", (set(), set())),
    ],
)
def test_differences_are_told_by_token_unless_all_is_different(better, worse, marks):
    assert differences(tokens(better, "chosen"), tokens(worse, "rejected")) == marks


def test_sides_of_a_pair_are_all_of_its_tokens():
    prompt, better, worse = (tokens("ab", part) for part in ("prompt", "chosen", "rejected"))
    assert sides(prompt + better + worse) == (prompt, better, worse)
    assert sides(prompt + better + prompt + worse) == ([], prompt + better, prompt + worse)


def test_equal_answers_and_quite_different_ones_say_so(qtbot):
    for worse, said in (("abc", "both are the same"), ("xyz", "differ throughout"), ("abx", "")):
        view = PairView(tokens("p", "prompt") + tokens("abc", "chosen") + tokens(worse, "rejected"), "Row 1")
        qtbot.addWidget(view)
        assert view.worse.accessibleDescription() == ", ".join(filter(None, ("3 tokens", said)))


def test_what_is_copied_is_the_text_alone(qtbot):
    text = TokenText([Token(text="<|im_start|>", special=True), Token(text="user\n"), Token(text="Hi")], "Row 1")
    qtbot.addWidget(text)
    text.selectAll()
    assert text.createMimeDataFromSelection().text() == "<|im_start|>user\nHi"
    assert text.toPlainText() != "<|im_start|>user\nHi"  # it is dressed on the page


def test_a_folded_text_ends_in_dots_until_it_is_opened(qtbot):
    text = TokenText([Token(text=f"{index} ") for index in range(1000)], "Row 1")
    qtbot.addWidget(text)
    qtbot.waitUntil(lambda: text.complete)
    assert text.toPlainText().endswith("799  …")
    text.unfold()
    qtbot.waitUntil(lambda: text.complete)
    assert text.toPlainText().endswith("999 ")
    assert "…" not in text.toPlainText()
