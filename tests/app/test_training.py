"""Training from the window: the real Start button, a real child process, and every way it can end."""

import csv
from dataclasses import replace

import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt, QTimer
from PySide6.QtGui import QContextMenuEvent, QMouseEvent
from PySide6.QtWidgets import QApplication, QLabel, QMessageBox, QPushButton

from app.history import History
from app.plots.memory import MemoryChart
from app.plots.segments import SegmentChart
from app.theme import theme
from app.training import Phase
from engine import events
from engine.config import GB
from engine.events import Started, Step


@pytest.fixture
def trained(window, data, ready, qtbot):
    """A window after a short run."""
    window.open_data(data("letters.jsonl"))
    ready(window)
    with qtbot.waitSignal(window.session.training.ended, timeout=10_000):
        window.bar.start.click()
    window.training_page.redraw()
    return window


@pytest.fixture
def preferred(window, pairs, ready, qtbot):
    """A window after a short run over pairs."""
    window.open_data(pairs())
    qtbot.waitUntil(lambda: window.session.config.objective == "orpo", timeout=10_000)
    ready(window)
    with qtbot.waitSignal(window.session.training.ended, timeout=10_000):
        window.bar.start.click()
    return window


def start(window, path, ready):
    window.open_data(path)
    window.session.change(steps=100_000 if "slow" in path.stem else 40)
    ready(window)
    window.bar.start.click()


def pressable(notice, text):
    return next(found for found in notice.findChildren(QPushButton) if found.text() == text)


def test_start_trains_and_says_how_it_went(trained):
    history = trained.session.training.history
    assert len(history["loss"]) == 40
    assert trained.stack.currentWidget() is trained.training_page
    (notice,) = trained.training_page.notices.shown
    assert notice.message.startswith("Done: step 40 of 40")
    assert trained.bar.start.isEnabled()
    assert not trained.bar.stop.isEnabled()
    pressable(notice, "Try it").click()
    assert trained.stack.currentWidget() is trained.talk_page


def test_stop_ends_early_and_saves(window, data, ready, qtbot):
    start(window, data("slow.jsonl"), ready)
    training = window.session.training
    qtbot.waitUntil(lambda: len(training.history["step"]) > 3)
    assert not window.bar.start.isEnabled()
    with qtbot.waitSignal(training.ended, timeout=10_000):
        window.bar.stop.click()
        assert training.phase is Phase.STOPPING
    (notice,) = window.training_page.notices.shown
    assert notice.message.startswith("Stopped early and saved")


def test_a_killed_child_is_a_card_and_start_works_again(window, data, ready, qtbot):
    start(window, data("killed.jsonl"), ready)
    qtbot.waitUntil(lambda: bool(window.training_page.notices.shown), timeout=10_000)
    (notice,) = window.training_page.notices.shown
    assert "ended from outside" in notice.message
    assert notice.hint
    qtbot.waitUntil(lambda: not window.session.training.phase.active)
    window.open_data(data("letters.jsonl"))
    ready(window)
    with qtbot.waitSignal(window.session.training.finished, timeout=10_000):
        window.bar.start.click()
    qtbot.waitUntil(lambda: not window.session.training.phase.active)
    assert window.training_page.notices.shown[0].message.startswith("Done")


def test_a_child_killed_from_outside(window, data, ready, child_at, qtbot):
    start(window, data("slow.jsonl"), ready)
    qtbot.waitUntil(lambda: len(window.session.training.history["step"]) > 1)
    child_at("train").kill()
    qtbot.waitUntil(lambda: not window.session.training.phase.active, timeout=10_000)
    assert window.training_page.notices.shown[0].is_failure
    assert window.bar.start.isEnabled()


@pytest.mark.parametrize(("answer", "active"), [("Cancel", True), ("Keep training", True), ("Stop and save", False)])
def test_closing_while_training_asks_once(window, data, ready, qtbot, answer, active):
    start(window, data("slow.jsonl"), ready)
    training = window.session.training
    qtbot.waitUntil(lambda: len(training.history["step"]) > 1)
    asked = []

    def press():
        question = QApplication.activeModalWidget()
        if isinstance(question, QMessageBox):
            asked.append(question)
            next(found for found in question.buttons() if found.text() == answer).click()

    QTimer.singleShot(100, window, press)
    window.close()
    assert len(asked) == 1
    if active:
        assert training.phase is Phase.RUNNING
        assert window.isMinimized() == (answer == "Keep training")
    else:
        qtbot.waitUntil(lambda: not window.isVisible(), timeout=10_000)
        assert training.history.finished.stopped


def test_plots_say_what_they_will_show(window):
    page = window.training_page
    for chart in (*page.curves.charts, page.segments, page.memory):
        assert chart.stack.currentWidget() is chart.promise
        assert len(chart.promise.text()) > 40


def test_loss_chart_has_value_table_and_hover(trained):
    chart = trained.training_page.curves.loss
    assert chart.value.text() == f"{trained.session.training.history['loss'][-1]:.3f}"
    chart.table_button.click()
    assert chart.table.rowCount() == 40
    assert chart.table.item(4, 3).text() != ""
    at, told = chart.describe(7.2)
    assert at == 7
    assert told.startswith("step 7\ntrain ")
    chart.log.click()
    chart.smooth.click()
    chart.table_button.click()
    assert chart.stack.currentWidget() is chart.plot


def test_segments_stand_in_step_order_and_name_the_worst(trained):
    chart = trained.training_page.segments
    names, rows = chart.contents()
    assert names == ["part", "segment", "measured, GB", "predicted, GB"]
    parts = [(row[0], row[1]) for row in rows]
    assert parts[:2] == [("forward", 1), ("forward", 2)]
    assert parts[6] == ("head", "")
    assert parts[7] == ("backward", 6)
    # Bytes are whole: a GB is off by less than one of them.
    assert rows[7][2:] == pytest.approx((1.3 + 0.2, 0.2 + 0.5 + 1.0), abs=1e-8)
    assert "backward 6" in chart.note.text()
    assert chart.value.text() == "1.5 GB"
    assert chart.value.accessibleName() == "Memory by segment: 1.5 GB, peak in backward 6 of the last step"
    assert chart.describe(99) is None


def test_a_bar_tells_what_was_predicted_part_by_part(trained):
    chart = trained.training_page.segments
    at, told = chart.describe(6.2)
    heading, measured, predicted, *parts = told.split("<br>")
    assert (at, heading) == (6, "<b>head</b>")
    assert measured == "measured 1.1 GB at step 40"
    assert predicted == "predicted 1.7 GB, 48 % higher:"
    assert [part.rpartition("</span> ")[2] for part in parts] == ["program 0.2 GB", "model 0.5 GB", "head 1.0 GB"]


def test_memory_over_time_tells_process_arrays_and_swap(trained):
    chart = trained.training_page.memory
    assert chart.value.text() == "2.0 GB"
    assert chart.note.text() == "highest 2.0 GB; the machine's swap grew by 0.4 GB"
    names, rows = chart.contents()
    assert names == ["step", "time, s", "process, GB", "peak, GB", "active, GB", "cache, GB", "swap in use, GB"]
    assert [row[0] for row in rows] == list(range(1, 41))
    assert rows[9][1:] == pytest.approx((0.5, 2.0, 1.3, 1.0, 0.0, 0.1), abs=1e-8)
    at, told = chart.describe(0.52)
    assert at == pytest.approx(0.5)
    assert told.splitlines()[0] == "step 10, after 0 s"
    assert "peak 1.3 GB: arrays at the peak of the step" in told
    assert told.endswith("swap in use 102 MB: on the whole machine")
    assert chart.legend.accessibleName() == "Legend: process, peak, active, cache, predicted 1.7 GB"
    chart.table_button.click()
    assert chart.table.rowCount() == 40


def test_both_memory_plots_stand_side_by_side(trained):
    segments, memory = trained.training_page.segments, trained.training_page.memory
    assert segments.mapTo(trained, QPoint()).y() == memory.mapTo(trained, QPoint()).y()
    assert segments.width() == pytest.approx(memory.width(), abs=1)


def history_of(steps, seconds, budget):
    """A run whose process holds 2 GB; each step takes `seconds`."""
    history = History()
    history.begin(Started("", steps, 6, 5, int(budget * GB), GB, int(1.5 * GB), 9, 1, "", 100, program_bytes=GB // 4))
    for number in range(1, steps + 1):
        history.add(Step(number, steps, 1.0, 1e-4, 0.5, 10, 5, 1.0, seconds, GB, GB // 2, GB // 2, 2 * GB))
    return history


@pytest.mark.parametrize(
    ("seconds", "unit", "end", "after"),
    [(1.0, "seconds", 20, "20 s"), (60.0, "minutes", 20, "20 min"), (1800.0, "hours", 10, "10 h")],
)
def test_memory_over_time_has_the_unit_that_suits(qtbot, seconds, unit, end, after):
    chart = MemoryChart()
    qtbot.addWidget(chart)
    chart.show_history(history_of(20, seconds, 6))
    assert chart.plot.getAxis("bottom").labelText == f"{unit} of training"
    at, told = chart.describe(end * 2)
    assert at == pytest.approx(end)
    assert told.startswith(f"step 20, after {after}\n")


def test_values_below_one_stay_what_they_are_in_light_and_dark(qtbot):
    chart = MemoryChart()
    qtbot.addWidget(chart)
    chart.show()
    chart.show_history(history_of(2, 0.1, 0))
    axes = [chart.plot.getAxis(side) for side in ("left", "bottom")]
    for axis in axes:
        axis.setRange(0, 0.8)
    for scheme in (Qt.ColorScheme.Dark, Qt.ColorScheme.Light, Qt.ColorScheme.Unknown):  # the system's
        theme().prefer(scheme)
        assert [axis.tickStrings([0.4], axis.autoSIPrefixScale * axis.scale, 0.2) for axis in axes] == [["0.4"]] * 2


@pytest.mark.parametrize(("segments", "beside"), [(6, "6"), (9, "8"), (30, "25")])
def test_the_word_for_the_head_has_room_among_the_numbers(qtbot, segments, beside):
    forward = [events.Phase("forward", index, GB) for index in range(segments)]
    backward = [events.Phase("backward", one.segment, GB) for one in reversed(forward)]
    history = history_of(1, 1.0, 2)
    history.add(replace(history.last, phases=[*forward, events.Phase("head", segments, GB), *backward]))
    chart = SegmentChart()
    qtbot.addWidget(chart)
    chart.show_history(history)
    (ticks,) = chart.plot.getAxis("bottom")._tickLevels
    names = [name for _, name in ticks]
    at = names.index("head")
    assert names[at - 1 : at + 2] == [beside, "head", beside]


@pytest.mark.parametrize(("budget", "in_sight"), [(1.5, True), (4, True), (24, False)])
def test_a_budget_far_beyond_does_not_flatten_the_curves(qtbot, budget, in_sight):
    chart = MemoryChart()
    qtbot.addWidget(chart)
    chart.show_history(history_of(3, 1.0, budget))
    assert chart.budget.line.isVisible() == in_sight
    low, high = chart.plot.viewRange()[1]
    highest = max(2, budget) if in_sight else 2
    assert low == 0
    assert highest < high <= 2 * highest  # room for a line of text, at most half of the smallest plot
    assert f"budget {budget:.1f} GB" in chart.budget.name.toPlainText()


def test_hovering_shows_a_step_until_the_page_is_left(trained, qtbot):
    chart = trained.training_page.memory
    place = QPointF(chart.plot.mapFromScene(chart.plot.getViewBox().mapViewToScene(QPointF(1.0, 1.0))))
    viewport, none = chart.plot.viewport(), Qt.MouseButton.NoButton
    moved = QMouseEvent(
        QEvent.Type.MouseMove, place, viewport.mapToGlobal(place), none, none, Qt.KeyboardModifier.NoModifier
    )
    QApplication.sendEvent(viewport, moved)

    def shown():
        return [found for found in trained.findChildren(QLabel) if found.text().startswith("step 20, after 1 s")]

    qtbot.waitUntil(lambda: bool(shown()))
    (label,) = shown()
    assert label.isVisible()
    assert trained.rect().contains(label.geometry())
    trained.show_page(0)
    assert not label.isVisible()


def test_a_warning_stands_by_while_training_goes_on(window, data, ready, qtbot):
    start(window, data("slow-warned.jsonl"), ready)
    training = window.session.training
    qtbot.waitUntil(lambda: len(training.history["step"]) > 8)
    (notice,) = window.training_page.notices.shown  # the second in the place of the first
    assert (notice.message, notice.hint) == ("Memory is short at step 6.", "Close other programs.")
    assert not notice.is_failure
    assert training.phase is Phase.RUNNING
    assert "Step" in window.bar.text.text()
    notice.dismiss.click()
    assert window.training_page.notices.shown == []
    assert training.phase is Phase.RUNNING


@pytest.mark.parametrize("page", [0, 1, 2])
def test_a_warning_comes_where_the_person_is_and_goes_with_the_run(window, data, ready, qtbot, page):
    with qtbot.waitSignal(window.session.training.warned, timeout=10_000):
        start(window, data("slow-warned.jsonl"), ready)
        window.show_page(page)
    qtbot.waitUntil(lambda: len(window.session.training.history["step"]) > 8)
    assert [len(found.notices.shown) for found in window.pages] == [page == index for index in range(3)]
    with qtbot.waitSignal(window.session.training.ended, timeout=10_000):
        window.bar.stop.click()
    messages = [notice.message for found in window.pages for notice in found.notices.shown]
    assert len(messages) == 1
    assert messages[0].startswith("Stopped early and saved")


def test_charts_export(trained, tmp_path):
    chart = trained.training_page.curves.loss
    chart.save_csv(tmp_path / "loss.csv")
    with (tmp_path / "loss.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["step", "train", "smoothed", "validation"]
    assert len(rows) == 41
    chart.save_png(tmp_path / "loss.png")
    assert (tmp_path / "loss.png").stat().st_size > 1000
    chart.save_csv(tmp_path / "no such folder" / "loss.csv")
    assert "could not be written" in trained.training_page.notices.shown[-1].message


def test_the_right_mouse_button_offers_the_export(trained):
    chart = trained.training_page.curves.loss
    viewport = chart.plot.viewport()
    reason, at = QContextMenuEvent.Reason.Mouse, QPoint(200, 60)
    QApplication.sendEvent(viewport, QContextMenuEvent(reason, at, viewport.mapToGlobal(at)))
    menu = QApplication.activePopupWidget()
    assert [item.text() for item in menu.actions()][:2] == ["Export as PNG…", "Export as CSV…"]
    menu.close()


def test_moving_a_plot_by_hand_stops_following_until_asked(trained):
    chart = trained.training_page.curves.loss
    box = chart.plot.getViewBox()
    assert not chart.follow.isVisible()
    box.setXRange(5, 10, padding=0)
    box.sigRangeChangedManually.emit(box.state["mouseEnabled"])
    trained.session.training.advanced.emit()
    chart.redraw()
    assert box.viewRange()[0] == pytest.approx([5, 10])
    chart.follow.click()
    assert box.viewRange()[0][1] > 39
    assert not chart.follow.isVisible()


def test_time_left_follows_the_pace(trained):
    history = trained.session.training.history
    assert history.seconds_left == 0
    assert history.seconds_a_step == pytest.approx(0.05)


def test_answers_have_no_preference_to_show(trained):
    curves = trained.training_page.curves
    assert curves.tabs.isHidden()
    assert curves.currentWidget() is curves.loss
    assert "prefers" not in trained.training_page.notices.shown[0].hint


def test_pairs_show_accuracy_and_margin(preferred):
    page = preferred.training_page
    assert "prefers the better answer in 90 % of the validation pairs" in page.notices.shown[0].hint
    assert page.curves.tabs.isVisible()
    page.curves.tabs.tab(1).click()
    accuracy, margin = page.curves.accuracy, page.curves.margin
    assert (accuracy.value.text(), margin.value.text()) == ("90 %", "1.800")
    assert accuracy.value.accessibleName() == "Accuracy 90 % at step 40"
    names, rows = accuracy.contents()
    assert names == ["step", "train, %", "smoothed, %", "validation, %"]
    assert [row[0] for row in rows] == list(range(1, 41))
    assert rows[4][1] == pytest.approx(55)
    assert [row[3] for row in rows if row[3] != ""] == pytest.approx([50 + step for step in range(5, 41, 5)])
    assert accuracy.plot.viewRange()[1][0] <= 0 <= 100 <= accuracy.plot.viewRange()[1][1]
    assert margin.contents()[0][1] == "train, log odds"
    assert margin.describe(2.1) == (
        2, "step 2\ntrain \N{MINUS SIGN}0.100\nsmoothed \N{MINUS SIGN}0.124\nvalidation 0.050 at step 5",
    )  # fmt: skip
    low, high = margin.plot.viewRange()[1]
    assert low < 0 < high  # no preference is in sight
    assert accuracy.width() == pytest.approx(margin.width(), abs=1)


def test_pairs_show_both_answers(preferred):
    curves = preferred.training_page.curves
    curves.tabs.tab(2).click()
    names, rows = curves.answers.contents()
    unit = "log-probability"
    assert names[1] == f"better answer, {unit}"
    assert names[4] == f"worse answer, {unit}"
    assert rows[9][1] == pytest.approx(-0.95)
    assert rows[9][4:] == pytest.approx((-1.2, rows[9][5], -1.2))
    words = [word for word, _, _ in curves.answers.entries()]
    assert words == ["better answer \N{MINUS SIGN}0.800", "worse answer \N{MINUS SIGN}1.500", "validation"]


def test_the_margin_has_the_objectives_own_unit(preferred, ready, qtbot):
    preferred.session.change(objective="dpo")
    margin = preferred.training_page.curves.margin
    assert margin.contents()[0][1] == "train, log odds"  # of the last run still
    ready(preferred)
    with qtbot.waitSignal(preferred.session.training.ended, timeout=10_000):
        preferred.bar.start.click()
    assert margin.contents()[0][1] == "train, reward difference"


def test_a_run_over_answers_puts_the_preference_away(preferred, data, ready, qtbot):
    curves = preferred.training_page.curves
    curves.tabs.tab(1).click()
    preferred.open_data(data("letters.jsonl"))
    qtbot.waitUntil(lambda: preferred.session.config.objective == "sft", timeout=10_000)
    assert not curves.tabs.isHidden()  # the run that stands there is still the last one
    ready(preferred)
    with qtbot.waitSignal(preferred.session.training.ended, timeout=10_000):
        preferred.bar.start.click()
    assert curves.tabs.isHidden()
    assert curves.currentWidget() is curves.loss
    assert len(curves.loss.contents()[1]) == 40


def test_tabs_are_there_before_a_run_over_pairs(window, pairs, qtbot):
    assert window.training_page.curves.tabs.isHidden()
    window.open_data(pairs())
    qtbot.waitUntil(lambda: window.session.config.objective == "orpo", timeout=10_000)
    window.show_page(1)
    assert window.training_page.curves.tabs.isVisible()
    assert "pairs" in window.training_page.curves.loss.promise.text()
