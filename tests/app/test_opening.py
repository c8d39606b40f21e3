"""Opening files and folders: progress with Stop, and which column is which."""

import json

import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QTimer, QUrl
from PySide6.QtGui import QAccessible, QDropEvent
from PySide6.QtWidgets import QFileDialog

from app import progress as progress_module
from app import words
from app.answers import Columns
from app.pages.columns import KINDS, ColumnsCard
from app.progress import Progress
from app.states import State
from engine.data.columns import SHAPES, parse_columns
from engine.events import Stage


@pytest.mark.parametrize(
    ("number", "told"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (38_400_000, "38 MB"), (2_000_000_000, "2.0 GB")],
)
def test_sizes_of_files_are_told_as_the_system_tells_them(number, told):
    assert words.size(number) == told


@pytest.mark.parametrize(
    ("passed", "done", "left"),
    [(0.5, 10, None), (2.0, 10, 18.0), (2.0, 90, None), (30.0, 90, 30.0 / 9), (2.0, 0, None), (2.0, 120, None)],
)
def test_time_left_is_told_once_it_is_known_and_worth_it(monkeypatch, passed, done, left):
    now = [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    progress = Progress()
    progress.take(Stage("data", "Reading", done, 100))
    now[0] += passed
    assert progress.seconds_left == (None if left is None else pytest.approx(left))


def test_a_large_file_opens_with_progress_and_can_be_stopped(window, data, ready, qtbot):
    window.open_data(data("opening.jsonl"))
    card = window.data_page.opening
    assert card.isHidden()
    qtbot.waitUntil(card.isVisible, timeout=10_000)
    qtbot.waitUntil(lambda: card.bar.maximum() > 0 and card.bar.value() > 0, timeout=10_000)
    assert "of 1.0 GB" in card.left.text()
    card.stop.click()
    qtbot.waitUntil(lambda: not window.session.check.busy, timeout=10_000)
    assert card.isHidden()
    (notice,) = window.data_page.notices.shown
    assert "stopped" in notice.message
    assert not notice.is_failure  # the person wanted it
    assert window.sidebar.dataset.state.state is State.NEEDS_YOU
    assert window.data_page.side.text() == ""  # the card has said it
    window.open_data(data("letters.jsonl"))
    ready(window)
    assert window.data_page.notices.shown == []


def test_a_small_file_flashes_nothing(window, data, ready):
    seen = []
    card = window.data_page.opening
    window.session.changed.connect(lambda: seen.append(card.isVisible()))
    window.open_data(data("letters.jsonl"))
    window.session.check.stop()  # before the child is there
    assert not window.session.check.busy
    assert not any(seen)


def test_data_that_is_closed_at_once_is_not_looked_at(window, data):
    window.open_data(data("letters.jsonl"))
    window.session.close_data()
    assert not window.session.check.busy
    assert not any(timer.isActive() for timer in window.session.check.findChildren(QTimer))


def test_a_folder_that_is_dropped_opens(window, tmp_path):
    folder = tmp_path / "bookings"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"prompt": "Hi", "completion": "Ho"}\n', encoding="utf-8")
    mime = QMimeData()
    mime.setUrls([QUrl.fromLocalFile(str(folder))])
    buttons, keys = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    window.dropEvent(QDropEvent(QPointF(QPoint(5, 5)), Qt.DropAction.CopyAction, mime, buttons, keys))
    assert window.session.config.data == str(folder)


@pytest.mark.parametrize("way", ["menu", "page"])
def test_a_folder_can_be_chosen(window, tmp_path, qtbot, way):
    folder = tmp_path / "bookings"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"prompt": "Hi", "completion": "Ho"}\n', encoding="utf-8")

    def choose():
        (dialog,) = window.findChildren(QFileDialog)
        dialog.selectFile(str(folder))
        dialog.accept()

    QTimer.singleShot(0, window, choose)
    if way == "menu":
        assert window.menus.open_folder.shortcut().toString() == "Ctrl+Shift+O"
        window.menus.open_folder.trigger()
    else:
        window.data_page.welcome.open_folder.click()
    assert window.session.config.data == str(folder)


@pytest.mark.parametrize(("files", "named"), [(1, "train-1.jsonl"), (3, "train-1.jsonl and "), (4, "4 files")])
def test_the_files_of_a_folder_are_named(window, data, tmp_path, ready, files, named):
    folder = tmp_path / "bookings"
    folder.mkdir()
    for number in range(1, files + 1):
        data("rows.jsonl").rename(folder / f"train-{number}.jsonl")
    window.open_data(folder)
    ready(window)
    panel = window.sidebar.dataset
    assert f"rows of prompt and answer in {named}" in panel.figures.text()
    assert panel.name.toolTip().splitlines()[1:] == [f"train-{number}.jsonl" for number in range(1, files + 1)]
    window.open_data(data("rows.jsonl"))
    ready(window)
    assert " in " not in panel.figures.text()


# -- the keyboard and screen readers


def in_focus_order(window):
    """What Tab goes through, once around."""
    found, widget = [], window
    while (widget := widget.nextInFocusChain()) is not window:
        if widget.isVisible() and widget.isEnabled() and widget.focusPolicy() & Qt.FocusPolicy.TabFocus:
            found.append(widget)
    return found


def spoken(widget):
    """What a screen reader says: its label's text, its own name, what it is for."""
    found = QAccessible.queryAccessibleInterface(widget)
    labels = [other.text(QAccessible.Text.Name) for other, _ in found.relations(QAccessible.RelationFlag.Label)]
    return ". ".join([*labels, found.text(QAccessible.Text.Name), found.text(QAccessible.Text.Description)])


def test_all_that_decides_how_data_is_read_is_reached_by_tab_and_has_a_name(window, questions, data, ready, qtbot):
    page, panel = window.data_page, window.sidebar.dataset
    window.open_data(questions)
    qtbot.waitUntil(page.columns.isVisible, timeout=10_000)
    panel.form.advanced.head.click()
    fields = panel.form.fields
    wanted = {
        fields["trained_turns"].editor.box: "Learned turns",
        fields["columns"].editor.line: "Columns",
        fields["max_length"].editor.line: "Longest row",
        page.columns.kind: "A row is",
        page.columns.boxes["prompt"]: "Prompt",
        page.columns.boxes["completion"]: "Answer",
    }
    reached = in_focus_order(window)
    assert [name for widget, name in wanted.items() if name not in spoken(widget)] == []
    assert set(wanted) <= set(reached)
    choose(page.columns, "prompt", "question")
    choose(page.columns, "completion", "reply")
    assert page.columns.use in in_focus_order(window)
    assert all(spoken(widget).strip(". ") for widget in in_focus_order(window))


def test_leaving_out_flawed_rows_and_mending_them_are_reached_by_tab(window, data, qtbot):
    window.open_data(data("flawed.jsonl"))
    page = window.data_page
    qtbot.waitUntil(page.problems.isVisible, timeout=10_000)
    qtbot.waitUntil(lambda: bool(page.rows.views), timeout=10_000)
    reached = in_focus_order(window)
    pressed = [kind.press for kind in page.problems.kinds if not kind.press.isHidden()]
    finding = page.rows.finding
    wanted = [window.sidebar.dataset.skip.editor.box, page.problems.all, page.problems.more, *pressed]
    wanted += [finding.order, finding.text, finding.find_next, finding.number, page.columns.ask, page.rows.next]
    assert pressed
    assert set(wanted) <= set(reached)
    assert all(spoken(widget).strip(". ") for widget in reached)


# -- columns


@pytest.fixture
def card(qtbot):
    found = ColumnsCard()
    qtbot.addWidget(found)
    return found


@pytest.fixture
def questions(tmp_path):
    """A file with names of its own."""
    path = tmp_path / "columns.jsonl"
    rows = [{"question": f"What is {number}?", "reply": f"It is {number}.", "topic": "x"} for number in range(12)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def choose(card, field, name):
    box = card.boxes[field]
    box.setCurrentText(name)
    box.activated.emit(box.currentIndex())


@pytest.mark.parametrize(
    ("columns", "setting", "shown", "chosen_here"),
    [
        (Columns(), "", False, False),
        (Columns(["prompt", "completion"], {"prompt": "prompt", "completion": "completion"}), "", False, False),
        (Columns(["q", "a"], {"prompt": "q", "completion": "a"}), "", True, False),
        (Columns(["q", "a"], {"prompt": "q"}), "", True, True),
        (Columns(["q", "a"], {}), "", True, True),
        (Columns(["text"], {"text": "text"}), "text=text", True, False),
        (Columns(["chosen", "rejected"], {"chosen": "chosen", "rejected": "rejected"}), "", False, False),
    ],
)
def test_the_card_is_there_where_the_guess_is_to_be_seen_or_made(card, columns, setting, shown, chosen_here):
    card.show_columns(columns, setting)
    assert card.isHidden() != shown
    if shown:
        assert card.use.isVisibleTo(card) == chosen_here
    card.ask.click()
    assert card.isHidden() == (not columns.names)


def test_each_kind_of_row_has_its_boxes(card):
    card.show_columns(Columns(["a", "b", "c", "d"], {}), "")
    for kind, (needed, optional) in KINDS.items():
        card.kind.setCurrentText(kind)
        card.kind.activated.emit(card.kind.currentIndex())
        assert set(card.boxes) == {*needed, *optional}
        assert not card.use.isEnabled()
        for field, name in zip(needed, "abc", strict=False):
            choose(card, field, name)
        assert card.use.isEnabled()


def test_the_boxes_are_those_of_the_shapes_that_the_engine_reads():
    shapes = [{*needed, *more} for needed, more in SHAPES]
    kinds = [{*needed, *more} for needed, more in KINDS.values()]
    assert [kind for kind in kinds if not any(kind <= shape for shape in shapes)] == []
    assert [shape for shape in shapes if shape not in kinds] == []


def test_a_change_of_nothing_chooses_what_was_found(card, qtbot):
    found = {"messages": "conversations", "tools": "functions", "system": "system_prompt"}
    card.show_columns(Columns(list(found.values()), found), "")
    card.change.click()
    with qtbot.waitSignal(card.chosen) as told:
        card.use.click()
    assert parse_columns(told.args[0], found.values(), "The file") == found


def test_a_field_that_is_taken_off_stays_off(card, qtbot):
    names = ["prompt", "completion", "system"]
    card.show_columns(Columns(names, {name: name for name in names}), "")
    card.ask.click()
    choose(card, "system", "None")
    for _ in range(2):
        with qtbot.waitSignal(card.chosen) as told:
            card.use.click()
        used = parse_columns(told.args[0], names, "The file")
        assert used == {"prompt": "prompt", "completion": "completion"}
        card.show_columns(Columns(names, used), told.args[0])


def test_one_column_cannot_be_two_fields(card):
    card.show_columns(Columns(["a", "b"], {}), "")
    choose(card, "prompt", "a")
    choose(card, "completion", "a")
    assert not card.use.isEnabled()


@pytest.mark.parametrize(
    ("names", "setting"),
    [
        (("q", "a"), "prompt=q,completion=a"),
        (("what, exactly", "a=b"), '"prompt=what, exactly",completion=a=b'),
        (("None", "a"), "prompt=None,completion=a"),
    ],
)
def test_the_setting_is_written_as_the_engine_reads_it(card, qtbot, names, setting):
    card.show_columns(Columns(list(names), {}), "")
    choose(card, "prompt", names[0])
    choose(card, "completion", names[1])
    with qtbot.waitSignal(card.chosen) as told:
        card.use.click()
    assert told.args == [setting]


def test_columns_chosen_by_hand_are_read_and_forgotten_with_the_file(window, questions, data, ready, qtbot):
    page = window.data_page
    window.open_data(questions)
    qtbot.waitUntil(page.columns.isVisible, timeout=10_000)
    assert not window.bar.start.isEnabled()
    choose(page.columns, "prompt", "question")
    choose(page.columns, "completion", "reply")
    page.columns.use.click()
    assert window.session.config.columns == "prompt=question,completion=reply"
    ready(window)
    assert "prompt is “question”, answer is “reply”" in page.columns.sentence.text()
    qtbot.waitUntil(lambda: bool(page.rows.views), timeout=10_000)
    assert "What is 0?" in page.rows.views[0].texts[0].toPlainText()
    window.open_data(data("letters.jsonl"))
    assert window.session.config.columns == ""
    ready(window)
    assert page.columns.isHidden()
