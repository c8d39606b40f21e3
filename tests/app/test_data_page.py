"""The Data page: rows as the model sees them, problems with their cures, and checks that fail."""

from app.answers import Token
from app.pages.rowview import is_special
from app.states import State


def formats(view):
    """Each run of text of a row with its format."""
    found, block = [], view.text.document().begin()
    while block.isValid():
        iterator = block.begin()
        while not iterator.atEnd():
            fragment = iterator.fragment()
            found.append((fragment.text().strip(), fragment.charFormat()))
            iterator += 1
        block = block.next()
    return found


def test_rows_show_what_is_learned_and_what_is_cut(window, data, qtbot):
    with qtbot.waitSignal(window.data_page.shown, timeout=10_000):
        window.open_data(data("letters.jsonl"))
    second = formats(window.data_page.views[1])
    plain = next(form for text, form in second if text.startswith("For Friday"))
    learned = next(form for text, form in second if text.startswith('{"name"'))
    cut = next(form for text, form in second if text == "cut off")
    assert plain.background() != learned.background()
    assert cut.fontStrikeOut()
    assert not learned.fontStrikeOut()


def test_pages_turn(window, data, qtbot):
    page = window.data_page
    with qtbot.waitSignal(page.shown, timeout=10_000):
        window.open_data(data("letters.jsonl"))
    assert page.side.text() == "1 to 8 of 20 rows"
    assert not page.previous.isEnabled()
    for _ in range(2):
        with qtbot.waitSignal(page.shown, timeout=10_000):
            page.next.click()
    assert page.side.text() == "17 to 20 of 20 rows"
    assert not page.next.isEnabled()
    with qtbot.waitSignal(page.shown, timeout=10_000):
        page.previous.click()
    assert page.side.text() == "9 to 16 of 20 rows"


def test_a_long_row_opens_in_slices(window, data, qtbot):
    with qtbot.waitSignal(window.data_page.shown, timeout=10_000):
        window.open_data(data("long.jsonl", rows=1))
    (view,) = window.data_page.views
    folded = view.text.height()
    assert not view.more.isHidden()
    view.more.click()
    qtbot.waitUntil(lambda: view.text.height() > 3 * folded)
    qtbot.waitUntil(lambda: view.complete)
    assert '"time": "18:15"' in view.text.toPlainText()


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
    with qtbot.waitSignal(window.data_page.shown, timeout=10_000):
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


def test_special_tokens_are_told_from_text():
    assert is_special(Token(text="<|im_start|>"))
    assert is_special(Token(text="</s>"))
    assert not is_special(Token(text="<p>"))
    assert not is_special(Token(text="a < b"))
