"""The Training page: the loss and the memory as they are measured, and the facts of the pace in one line."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QSplitter

from app import words
from app.history import History
from app.pages.curves import Curves
from app.pages.page import Page
from app.plots.chart import side_by_side
from app.plots.memory import MemoryChart
from app.plots.segments import SegmentChart
from app.session import Session
from app.states import State
from app.training import Phase, Training
from app.widgets.basics import Card, column, label, row
from app.widgets.notice import Notice
from engine.events import Failed, Finished

# Ten times a second is what an eye can follow; events may come far more often.
_REDRAW_MS = 100
# The least that shows a curve; two of them fit into the smallest window.
_CHART_HEIGHT = 160


class TrainingPage(Page):
    """Follows a Training.

    Signals:
        try_requested(): the person wants to talk to the result.
        reveal_requested(): the person wants to see the run's folder.
    """

    try_requested = Signal()
    reveal_requested = Signal()

    def __init__(self, session: Session) -> None:
        super().__init__("Training")
        self._training: Training = session.training
        self._session = session
        self._drawn = -1
        self.curves = Curves()
        self.segments, self.memory = SegmentChart(), MemoryChart()
        self.facts = Facts()
        self.splitter = QSplitter(Qt.Orientation.Vertical)
        self.splitter.setChildrenCollapsible(False)
        self.splitter.setHandleWidth(16)
        self.splitter.addWidget(self.curves)
        self.splitter.addWidget(side_by_side(self.segments, self.memory))
        self.splitter.setStretchFactor(0, 1)
        self.splitter.setStretchFactor(1, 1)
        self.body.addWidget(self.splitter, 1)
        self.body.addWidget(self.facts)
        self.top.insertSpacing(1, 16)
        self.top.insertWidget(2, self.curves.tabs)
        for chart in (*self.curves.charts, self.segments, self.memory):
            chart.setMinimumHeight(_CHART_HEIGHT)
            chart.refused.connect(self._refused)
        self._timer = QTimer(self, interval=_REDRAW_MS)
        self._timer.timeout.connect(self.redraw)
        self._training.changed.connect(self._changed)
        session.changed.connect(self._say)
        self._training.finished.connect(self._finished)
        self._training.failed.connect(self._failed)
        self._changed()

    def redraw(self) -> None:
        """Draws what has come since the last time, if anything has."""
        history = self._training.history
        if history.version == self._drawn:
            return
        self._drawn = history.version
        self.curves.show_history(history)
        self.segments.show_history(history)
        self.memory.show_history(history)
        self.facts.show_history(history)
        self._say()

    def _changed(self) -> None:
        if self._training.phase is Phase.PREPARING and self._training.stage is None:
            self.notices.clear("end")
            self._drawn = -1
        if self._training.phase.active:
            self._timer.start()
        else:
            self._timer.stop()
            self.redraw()
        self._say()

    def _say(self) -> None:
        training, history = self._training, self._training.history
        begun = training.phase.active or history.last is not None
        self.curves.show_objective((training.config if begun else self._session.config).objective)
        if training.stage:
            self.side.setText(training.stage.message)
        elif history.last:
            self.side.setText(f"step {words.count(history.last.step)} of {words.count(history.last.steps)}")
        elif training.phase.active:
            self.side.setText("Getting ready…")
        else:
            blocker = self._session.blocker()
            self.side.setText(blocker.reason if blocker else "Press Start to begin.")

    def _finished(self, event: Finished) -> None:
        how = "Stopped early and saved" if event.stopped else "Done"
        took, peak = words.duration(event.seconds), words.memory(self._training.history.peak_bytes)
        change = f"{words.loss(event.first_loss)} at the first step, {words.loss(event.last_loss)} at the last"
        preferred = ""
        if len(accuracy := self._training.history.measured("accuracy")):
            preferred = f" It prefers the better answer in {words.percent(accuracy[-1])} of the validation pairs."
        notice = Notice(
            f"{how}: step {words.count(event.step)} of {words.count(event.steps)} after {took}.",
            f"Loss {change}.{preferred} Peak memory {peak}. The adapter is saved.",
            state=State.READY,
            action=("Try it", self.try_requested.emit),
        )
        notice.add_button("Show in folder", self.reveal_requested.emit)
        self.notices.show_notice(notice, "end")

    def _failed(self, event: Failed) -> None:
        notice = Notice(event.message, event.hint, details=event.details, action=("Start again", self._session.start))
        if self._training.saved:
            notice.add_line(f"The last saved adapter, of step {self._training.saved.step}, is kept.")
        self.notices.show_notice(notice, "end")

    def _refused(self, error: Exception) -> None:
        self._session.refused.emit(error)


class Facts(Card):
    """Pace, learning rate, gradient, and the measured peak, each with its unit, in one line."""

    def __init__(self) -> None:
        super().__init__()
        self.body.setContentsMargins(16, 12, 16, 12)
        names = ("tokens a second", "learning rate", "gradient", "a step", "peak measured", "peak predicted")
        self.values = {name: label("–", size=17, bold=True) for name in names}
        line = row(spacing=16)
        for name, value in self.values.items():
            line.addLayout(column(value, label(name, size=11, secondary=True), spacing=0), 1)
        self.body.addLayout(line)

    def show_history(self, history: History) -> None:
        last = history.last
        texts = dict.fromkeys(self.values, "–")
        if last:
            texts["tokens a second"] = words.count(round(last.tokens_per_second))
            texts["learning rate"] = words.number(last.learning_rate)
            texts["gradient"] = words.number(last.grad_norm)
            texts["a step"] = words.seconds(history.seconds_a_step)
            texts["peak measured"] = words.memory(history.peak_bytes)
        if history.predicted_peak_bytes:
            texts["peak predicted"] = words.memory(history.predicted_peak_bytes)
        for name, text in texts.items():
            self.values[name].setText(text)
            self.values[name].setAccessibleName(f"{name}: {text}")
