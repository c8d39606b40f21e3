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
    for chart in (window.training_page.loss, window.training_page.segments):
        assert chart.stack.currentWidget() is chart.promise
        assert len(chart.promise.text()) > 40


def test_loss_chart_has_value_table_and_hover(trained):
    chart = trained.training_page.loss
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
    chart = trained.training_page.loss
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
    chart = trained.training_page.loss
    viewport = chart.plot.viewport()
    reason, at = QContextMenuEvent.Reason.Mouse, QPoint(200, 60)
    QApplication.sendEvent(viewport, QContextMenuEvent(reason, at, viewport.mapToGlobal(at)))
    menu = QApplication.activePopupWidget()
    assert [item.text() for item in menu.actions()][:2] == ["Export as PNG…", "Export as CSV…"]
    menu.close()


def test_moving_a_plot_by_hand_stops_following_until_asked(trained):
    chart = trained.training_page.loss
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
