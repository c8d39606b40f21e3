"""Row lengths: what cutting costs by counting row by row, and the chart with its line."""

import math
from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QEvent, QPoint, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.answers import Check
from app.lengths import Lengths
from app.plots.lengths import LengthChart
from app.states import State
from engine.config import TrainConfig
from engine.errors import EngineError

ROWS = [(0, 5), (3, 0), (10, 10), (20, 1), (40, 80), (7, 3)]


@pytest.fixture
def lengths():
    prompt, response = np.array(ROWS, np.int32).T
    return Lengths(prompt, response)


@pytest.mark.parametrize("max_length", [8, 10, 11, 20, 21, 119, 120, 500])
def test_costs_are_those_of_cutting_row_by_row(lengths, max_length):
    cost = lengths.cost(max_length, TrainConfig(max_length=500), Check(split={"train": 5}))
    kept = [(min(p, max_length), max(0, min(r, max_length - p))) for p, r in ROWS]
    assert cost.rows_cut == sum(p + r > max_length for p, r in ROWS)
    assert cost.rows_untrained == sum(response == 0 for _, response in kept)
    assert cost.tokens_lost == sum(p + r - sum(left) for (p, r), left in zip(ROWS, kept, strict=True))


@pytest.mark.parametrize(
    ("settings", "max_length", "steps"),
    [
        ({"epochs": 3, "batch_size": 2, "accumulate": 1}, 500, math.ceil(15 / 2)),
        ({"epochs": 3, "batch_size": 2, "accumulate": 1}, 20, math.ceil(9 / 2)),  # rows of 20 and 40 train nothing
        ({"epochs": 1, "batch_size": 1, "accumulate": 4}, 500, 2),
        ({"steps": 7}, 20, 7),
    ],
)
def test_steps_are_those_of_the_rows_that_are_left(lengths, settings, max_length, steps):
    config = TrainConfig(max_length=500).updated(settings)
    assert lengths.cost(max_length, config, Check(split={"train": 5})).steps == steps


@pytest.mark.parametrize(
    ("settings", "max_length", "largest"),
    [
        ({}, 500, 120),
        ({}, 100, 100),
        ({"objective": "orpo"}, 500, 40 + 2 * 80),
        ({"objective": "orpo"}, 50, 40 + 2 * 10),
        ({"objective": "dpo", "prefix_shared": False}, 50, 2 * 50),
    ],
)
def test_the_largest_row_is_cut_and_a_pair_counts_both_answers(lengths, settings, max_length, largest):
    assert lengths.largest(max_length, TrainConfig().updated(settings)) == largest


@pytest.mark.parametrize("content", [b"", b"no array", None])
def test_lengths_that_cannot_be_read_are_told_in_words(tmp_path, content):
    path = tmp_path / "lengths.npy"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(EngineError, match="lengths"):
        Lengths.load(str(path))


def test_an_array_of_another_shape_is_refused(tmp_path):
    np.save(tmp_path / "lengths.npy", np.zeros(5))
    with pytest.raises(EngineError, match="lengths"):
        Lengths.load(str(tmp_path / "lengths.npy"))


# -- the chart


@pytest.fixture
def chart(qtbot, lengths):
    found = LengthChart()
    qtbot.addWidget(found)
    found.resize(800, 400)
    found.show_lengths(lengths, 30)
    found.show()
    return found


@pytest.mark.parametrize("log", [False, True])
def test_every_row_stands_in_the_table_once(chart, log):
    chart.log.setChecked(log)
    names, rows = chart.contents()
    assert names[2] == "rows"
    assert sum(row[2] for row in rows) == len(ROWS)
    low = 10 ** chart.plot.getViewBox().viewRange()[0][0] if log else 0
    for column, counts in ((3, [p for p, _ in ROWS]), (4, [r for _, r in ROWS])):
        shown = [count for count in counts if max(count, log) >= low]  # what is shorter than all rows stands left
        assert sum(row[column] for row in rows) == len(shown)


def test_before_there_are_rows_it_says_what_it_will_show(qtbot):
    chart = LengthChart()
    qtbot.addWidget(chart)
    assert chart.stack.currentWidget() is chart.promise
    chart.show_lengths(Lengths(np.zeros(0, np.int32), np.zeros(0, np.int32)), 30)
    assert chart.stack.currentWidget() is chart.promise


def test_a_long_tail_begins_on_a_logarithmic_axis(qtbot):
    chart = LengthChart()
    qtbot.addWidget(chart)
    response = np.full(100, 10, np.int32)
    chart.show_lengths(Lengths(response, response), 30)
    assert not chart.log.isChecked()
    response[0] = 5000
    chart.show_lengths(Lengths(response, response), 30)
    assert chart.log.isChecked()


def test_hover_tells_the_rows_of_a_bar(chart):
    place, text = chart.describe(5.0)
    assert 0 < place < 10
    assert "rows" in text
    assert chart.describe(-50.0) is None


@pytest.mark.parametrize("log", [False, True])
def test_keys_move_the_line_and_choose_when_let_go(chart, qtbot, log):
    chart.log.setChecked(log)
    moved, chosen = [], []
    chart.moved.connect(moved.append)
    chart.chosen.connect(chosen.append)
    QTest.keyPress(chart.plot, Qt.Key.Key_Right)
    assert len(moved) == 1
    assert moved[0] > 30
    assert chosen == []
    QTest.keyRelease(chart.plot, Qt.Key.Key_Right)
    assert chosen == moved
    QTest.keyClick(chart.plot, Qt.Key.Key_Left, Qt.KeyboardModifier.ShiftModifier)
    assert chosen[-1] < 30


def test_a_key_that_is_held_chooses_once(chart):
    chosen = []
    chart.chosen.connect(chosen.append)
    for kind, repeats in (
        (QEvent.Type.KeyPress, False),
        (QEvent.Type.KeyRelease, True),
        (QEvent.Type.KeyPress, True),
        (QEvent.Type.KeyRelease, False),
    ):
        event = QKeyEvent(kind, Qt.Key.Key_Right, Qt.KeyboardModifier.NoModifier, "", repeats)
        QApplication.sendEvent(chart.plot, event)
    assert chosen == [chart.max_length]


def test_the_line_never_leaves_what_the_setting_allows(chart):
    for _ in range(30):
        QTest.keyClick(chart.plot, Qt.Key.Key_Left, Qt.KeyboardModifier.ShiftModifier)
    assert chart.max_length == 8


# -- on the page


@pytest.fixture
def page(window, data, ready):
    """The page of 100 rows of which every tenth is longer than 300 tokens."""
    window.open_data(data("short.jsonl", rows=100))
    ready(window)
    window.data_page.tabs.tab(1).click()
    for _ in range(3):  # layouts settle from the outside in
        QApplication.processEvents()
    return window.data_page.lengths


def drag(chart, tokens):
    """Takes hold of the line with the mouse and lets go of it at `tokens`."""
    plot, box = chart.plot, chart.plot.getViewBox()

    def point(x):
        place = box.mapViewToScene(box.viewRect().center())
        place.setX(box.mapViewToScene(QPoint(round(x), 0)).x())
        return plot.mapFromScene(place)

    start, end = point(chart.line.value()), point(tokens)
    viewport, left = plot.viewport(), Qt.MouseButton.LeftButton
    QTest.mousePress(viewport, left, pos=start)
    for share in (0.25, 0.5, 0.75, 1.0):
        QTest.mouseMove(viewport, start + (end - start) * share)
        QApplication.processEvents()
    QTest.mouseRelease(viewport, left, pos=end)
    QApplication.processEvents()


def test_dragging_tells_at_once_and_letting_go_sets(window, page, qtbot):
    session, seen = window.session, []
    page.chart.moved.connect(lambda tokens: seen.append((session.config.max_length, page.values["rows cut"].text())))
    drag(page.chart, 200)
    assert len(seen) > 1
    assert {before for before, _ in seen} == {2048}  # only letting go sets it
    assert seen[-1][1] == "10 (10 %)"
    assert page.values["rows train nothing"].text().endswith("10")
    assert abs(session.config.max_length - 200) <= 2  # a pixel or so of the axis
    assert session.check.busy
    qtbot.waitUntil(lambda: not session.check.busy, timeout=10_000)
    assert window.sidebar.dataset.state.state is State.WRONG
    assert not window.bar.start.isEnabled()


def test_news_do_not_take_the_line_out_of_a_persons_hand(window, page):
    chart = page.chart
    QTest.keyPress(chart.plot, Qt.Key.Key_Left, Qt.KeyboardModifier.ShiftModifier)
    held = chart.max_length
    assert held < window.session.config.max_length
    window.session.changed.emit()
    assert chart.max_length == held
    QTest.keyRelease(chart.plot, Qt.Key.Key_Left, Qt.KeyboardModifier.ShiftModifier)
    assert window.session.config.max_length == held


def test_typing_moves_the_line(window, page):
    line = page.field.editor.line
    line.setText("250")
    line.editingFinished.emit()
    assert window.session.config.max_length == 250
    assert page.chart.max_length == 250
    assert window.sidebar.dataset.form.fields["max_length"].editor.line.text() == "250"


def test_a_move_counts_no_row_anew_and_asks_nothing(window, page):
    chart, session, news = page.chart, window.session, []
    bars, values = chart._counts, page.values["rows cut"].text()
    session.changed.connect(lambda: news.append(session.config.max_length))
    chart.show_max_length(chart._lengths.longest)
    for _ in range(5):
        QTest.keyPress(chart.plot, Qt.Key.Key_Left, Qt.KeyboardModifier.ShiftModifier)
    assert page.values["rows cut"].text() != values
    assert (chart._counts is bars, news, session.check.busy) == (True, [], False)
    QTest.keyRelease(chart.plot, Qt.Key.Key_Left, Qt.KeyboardModifier.ShiftModifier)
    assert news[0] == chart.max_length


def test_flawed_rows_may_be_left_out_knowingly(window, page, qtbot):
    window.session.change(max_length=200)
    qtbot.waitUntil(lambda: not window.session.check.busy, timeout=10_000)
    panel = window.sidebar.dataset
    assert panel.skip.isVisible()
    assert "would train nothing" in window.bar.text.text()
    panel.skip.editor.box.click()
    assert window.session.config.skip_flawed
    assert window.bar.start.isEnabled()
    assert "10 left out" in panel.figures.text()


def test_lengths_that_are_gone_are_a_notice_and_no_traceback(window, page, home, qtbot):
    result = window.session.check.result
    window.session.check.result = replace(result, lengths=str(home / "gone.npy"))
    window.session.changed.emit()
    (notice,) = window.data_page.notices.shown
    assert "can't be read" in notice.message
    assert page.chart.stack.currentWidget() is page.chart.promise
    window.session.check.again()
    qtbot.waitUntil(lambda: page.chart.has_data, timeout=10_000)
    assert window.data_page.notices.shown == []
