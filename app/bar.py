"""The bar at the bottom: Start, Stop, how far it is, and how long it takes."""

from __future__ import annotations

from PySide6.QtWidgets import QFrame, QProgressBar

from app import words
from app.session import Session
from app.training import Phase
from app.widgets.basics import button, fill, label, row

# Time left is told for what takes longer than this.
_WORTH_TELLING = 5


class BottomBar(QFrame):
    """Always in sight. Start says why it is off; progress and time left follow the run."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.setProperty("role", "bar")
        self.setAccessibleName("Training controls")
        self._session = session
        self.start = button("Start", session.start, role="primary")
        self.stop = button("Stop", session.training.stop, help="Ends after this step, with everything saved")
        self.progress = QProgressBar(textVisible=False)
        self.progress.setAccessibleName("Progress of training")
        self.text = label(secondary=True)
        self.left = label(secondary=True)
        layout = row(spacing=12)
        fill(layout, self.start, self.stop, 4, self.text, self.progress, self.left, spacing=12)
        layout.setContentsMargins(24, 12, 24, 12)
        layout.setStretch(4, 1)
        self.setLayout(layout)
        session.changed.connect(self.refresh)
        session.training.advanced.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        training, blocker = self._session.training, self._session.blocker()
        active = training.phase.active
        self.start.setEnabled(blocker is None)
        self.start.setToolTip(blocker.reason if blocker else "Trains the model on your data")
        self.start.setAccessibleDescription(self.start.toolTip())
        self.stop.setEnabled(active and training.phase is not Phase.STOPPING)
        self._show_progress()
        if training.phase is Phase.STOPPING:
            self.text.setText("Stopping after this step…")
        elif training.stage:
            self.text.setText(training.stage.message)
        elif active and training.history.last:
            last = training.history.last
            self.text.setText(f"Step {words.count(last.step)} of {words.count(last.steps)}")
        elif active:
            self.text.setText("Getting ready…")
        elif blocker:
            self.text.setText(blocker.reason)
        else:
            self.text.setText(self._outcome() + "Ready to start" + (" again." if training.history.last else "."))

    def _outcome(self) -> str:
        history = self._session.training.history
        if history.finished and not history.finished.stopped:
            return "Done. "
        return f"Ended at step {words.count(history.last.step)}. " if history.last else ""

    def _show_progress(self) -> None:
        training = self._session.training
        last, stage = training.history.last, training.stage
        seconds_left = training.history.seconds_left
        self.left.setText("")
        if last is not None:
            self.progress.setRange(0, last.steps)
            self.progress.setValue(last.step)
            percent = f"{100 * last.step // max(1, last.steps)} %"
            tell = training.phase is Phase.RUNNING and seconds_left is not None and seconds_left > _WORTH_TELLING
            self.left.setText(f"{percent}   {words.duration(seconds_left or 0)} left" if tell else percent)
        elif training.phase.active:
            self.progress.setRange(0, stage.total if stage else 0)  # nothing to count: it runs to and fro
            self.progress.setValue(stage.done if stage else 0)
