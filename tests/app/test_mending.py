"""Problems by kind, and what can be pressed: a new file beside the old one, with the way back."""

import pytest
from PySide6.QtWidgets import QLabel, QPushButton

from app.answers import Check, Cure, Fixed, Problem
from app.pages.problems import Problems, by_kind, place
from app.pages.problemwords import kind_in_words
from app.states import State


def press(widget, text):
    next(found for found in widget.findChildren(QPushButton) if found.text().startswith(text)).click()


def problem(severity, code, line=1, cure="", column=0, lines=()):
    return Problem(line=line, severity=severity, code=code, message="It is so.", cure=cure, column=column, lines=lines)


def test_kinds_stand_by_severity_and_then_as_they_came():
    found = [problem(*pair.split()) for pair in ("note a", "warning b", "error c", "warning d", "error e", "error c")]
    assert [[one.code for one in kind] for kind in by_kind(found)] == [["c", "c"], ["e"], ["b"], ["d"], ["a"]]


@pytest.mark.parametrize(
    ("code", "rows", "told"),
    [("cut", 412, "412 rows are cut off"), ("broken_json", 2, "2 rows are"), ("odd_thing", 3, "3 rows: odd thing")],
)
def test_many_of_a_kind_are_told_by_their_number(code, rows, told):
    assert kind_in_words(problem("error", code), rows).startswith(told)


def test_what_helps_many_rows_names_no_number_of_one_of_them(list_of):
    def said(rows):
        found = [Problem(line=line, code="cut", fix="Set it to 300.") for line in range(rows)]
        return [one.text() for kind in list_of(found).kinds for one in kind.findChildren(QLabel)]

    assert "Set it to 300." in said(1)
    assert not any("300" in text for text in said(2))


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (problem("error", "a", line=1200), "Line 1 200: "),
        (problem("error", "a", line=3, column=17), "Line 3, column 17: "),
        (problem("error", "a", line=0), ""),
        (problem("error", "a", line=3, lines=[[3, 9]]), ""),
        (Problem(line=3, message="Line 3 is odd."), ""),
        (Problem(line=3, message="a.jsonl: Line 3 is odd.", file="a.jsonl"), ""),
    ],
)
def test_the_place_is_said_once(found, told):
    assert place(found).replace("\N{NARROW NO-BREAK SPACE}", " ") == told


@pytest.fixture
def list_of(qtbot):
    def show(problems, cures=()):
        card = Problems()
        qtbot.addWidget(card)
        card.show_check(Check(problems=problems, cures=list(cures)))
        return card

    return show


def test_lines_are_folded_and_the_first_hundred_are_there(list_of):
    (kind,) = list_of([problem("warning", "cut", line=line) for line in range(1, 251)]).kinds
    assert kind.lines.content.isHidden()
    assert len(kind.lines.content.findChildren(QLabel)) == 100


def test_only_a_kind_with_a_cure_can_be_pressed(list_of):
    cures = [Cure("skip", "Leave out 3 rows", 3)]
    card = list_of(
        [problem("error", "a", cure="skip"), problem("warning", "b"), problem("error", "c", cure="x")], cures
    )
    assert [kind.press.isHidden() for kind in card.kinds] == [False, True, True]
    assert card.all.isHidden()  # one cure needs no button for all


def test_mend_all_asks_for_every_cure(list_of, qtbot):
    card = list_of([problem("error", "a")], [Cure("skip", "Leave out", 1), Cure("dedupe", "Remove", 2)])
    with qtbot.waitSignal(card.cure_requested) as asked:
        card.all.click()
    assert asked.args == [["skip", "dedupe"]]


def test_no_problem_takes_no_room(list_of):
    assert list_of([]).isHidden()


def test_all_kinds_are_shown_when_asked_for(window, data, qtbot):
    window.open_data(data("flawed.jsonl"))
    card = window.data_page.problems
    qtbot.waitUntil(card.isVisible, timeout=10_000)
    assert len(card.kinds) == 4
    card.more.click()
    assert len(card.kinds) == 6
    assert card.more.isHidden()
    window.session.changed.emit()  # news of other things fold nothing
    assert len(card.kinds) == 6


def test_a_cure_opens_a_new_file_and_leads_back(window, data, ready, qtbot):
    path = data("errors.jsonl")
    before = path.read_bytes()
    window.open_data(path)
    qtbot.waitUntil(window.data_page.problems.isVisible, timeout=10_000)
    assert window.sidebar.dataset.state.state is State.WRONG
    press(window.data_page.problems, "Leave out 1 row")
    ready(window)
    assert window.session.config.data == str(path.with_name("mended (fixed).jsonl"))
    assert path.read_bytes() == before
    (notice,) = window.data_page.notices.shown
    assert "1 row left out" in notice.message
    assert "errors.jsonl" in notice.hint
    assert "Tunesmith's names" not in notice.hint
    press(notice, "Back to")
    assert window.session.config.data == str(path)
    assert window.data_page.notices.shown == []


def test_a_mending_can_be_stopped_and_leaves_nothing_behind(window, data, qtbot):
    path = data("stuck errors.jsonl")
    window.open_data(path)
    page = window.data_page
    qtbot.waitUntil(page.problems.isVisible, timeout=10_000)
    press(page.problems, "Leave out 1 row")
    qtbot.waitUntil(page.mending.isVisible, timeout=10_000)
    assert not page.problems.kinds[0].press.isEnabled()
    page.mending.stop.click()
    qtbot.waitUntil(lambda: not window.session.mending.busy, timeout=10_000)
    assert page.mending.isHidden()
    assert page.problems.kinds[0].press.isEnabled()
    assert window.session.config.data == str(path)
    assert [file.name for file in path.parent.glob("*.jsonl")] == [path.name]


def test_a_mending_that_fails_says_why(window, data, qtbot):
    window.open_data(data("unfit errors.jsonl"))
    page = window.data_page
    qtbot.waitUntil(page.problems.isVisible, timeout=10_000)
    press(page.problems, "Leave out 1 row")
    qtbot.waitUntil(lambda: bool(page.notices.shown), timeout=10_000)
    assert page.notices.shown[0].message == "The disk is full."
    assert page.problems.kinds[0].press.isEnabled()


def test_rows_that_cannot_be_kept_are_offered_to_be_left_out(window, data, qtbot):
    window.open_data(data("unfit flawed.jsonl"))
    page = window.data_page
    qtbot.waitUntil(page.problems.isVisible, timeout=10_000)
    press(page.problems, "Remove 2 duplicates")
    qtbot.waitUntil(lambda: bool(page.notices.shown), timeout=10_000)
    press(page.notices.shown[0], "Leave them out")
    assert window.session.mending.cures == ("dedupe", "skip")
    qtbot.waitUntil(lambda: bool(page.notices.shown), timeout=10_000)
    assert "Leave them out" not in [found.text() for found in page.notices.shown[0].findChildren(QPushButton)]


def test_closing_the_window_ends_a_mending(window, data, qtbot):
    window.open_data(data("stuck errors.jsonl"))
    qtbot.waitUntil(window.data_page.problems.isVisible, timeout=10_000)
    press(window.data_page.problems, "Leave out 1 row")
    assert window.session.mending.busy
    window.close()
    assert not window.session.mending.busy


def test_fields_that_have_other_names_in_the_new_file_are_told_of(window, data):
    source, new = data("a.jsonl"), data("a (fixed).jsonl")
    window.open_data(source)
    window.session.mending.mended.emit(source, Fixed(str(new), rows=20, left_out=1, is_renamed=True))
    (notice,) = window.data_page.notices.shown
    assert notice.hint.endswith("Its fields have Tunesmith's names.")
