"""Training from the window: the real Start button, a real child process, and every way it can end."""

import csv

import psutil
import pytest
from PySide6.QtCore import QPoint, QTimer
from PySide6.QtGui import QContextMenuEvent
from PySide6.QtWidgets import QApplication, QMessageBox, QPushButton

from app.training import Phase


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
    window.session.change(steps=100_000 if path.stem == "slow" else 40)
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


def test_a_child_killed_from_outside(window, data, ready, qtbot):
    start(window, data("slow.jsonl"), ready)
    qtbot.waitUntil(lambda: len(window.session.training.history["step"]) > 1)
    (child,) = [found for found in psutil.Process().children() if "train" in found.cmdline()]
    child.kill()
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
    for chart in (*window.training_page.curves.charts, window.training_page.segments):
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
    assert names[:2] == ["part", "segment"]
    parts = [(row[0], row[1]) for row in rows]
    assert parts[:2] == [("forward", 1), ("forward", 2)]
    assert parts[6] == ("head", "")
    assert parts[7] == ("backward", 6)
    assert "backward 6" in chart.note.text()
    assert chart.value.text() == "1.3 GB"
    assert chart.describe(6)[1].startswith("head\n")
    assert chart.describe(99) is None


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
