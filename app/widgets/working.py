"""A card that tells how far a child is with a file: words, bar, time left, and Stop."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QProgressBar

from app import words
from app.progress import Progress
from app.widgets.basics import Card, button, label, row

# What is done sooner needs no card: it would only flash.
_WORTH_SHOWING_MS = 500


class Working(Card):
    """Shows itself once the work has taken a while; `stop` is what its button does."""

    def __init__(self, name: str, stop: Callable[[], object]) -> None:
        super().__init__(spacing=8, margin=14)
        self.setAccessibleName(name)
        self.text = label(name, bold=True)
        self.left = label(size=11, secondary=True)
        self.bar = QProgressBar(textVisible=False)
        self.bar.setAccessibleName(f"Progress: {name}")
        self.stop = button("Stop", stop)
        self.stop.setAccessibleName(f"Stop: {name}")
        self.body.addLayout(row(self.text, None, self.left))
        line = row(self.bar, self.stop, spacing=12)
        line.setStretch(0, 1)
        self.body.addLayout(line)
        self._wait = QTimer(self, singleShot=True, interval=_WORTH_SHOWING_MS)
        self._wait.timeout.connect(self.show)
        self.hide()

    def follow(self, busy: bool, progress: Progress, *, stopping: bool = False) -> None:
        """Shows how the work stands; nothing once it has ended."""
        if not busy:
            self.close_timer()
            self.hide()
            return
        if self.isHidden() and not self._wait.isActive():
            self._wait.start()
        stage = progress.stage
        # While there is nothing to count the bar runs to and fro; thousandths, as bytes can be more than an int holds.
        counted = stage is not None and stage.total > 0
        self.bar.setRange(0, 1000 if counted else 0)
        if stage and counted:
            self.bar.setValue(1000 * stage.done // stage.total)
        self.text.setText("Stopping…" if stopping else f"{stage.message}…" if stage else f"{self.accessibleName()}…")
        self.stop.setEnabled(not stopping)
        self.left.setText(_left(progress))

    def close_timer(self) -> None:
        """It is not to appear any more."""
        self._wait.stop()


def _left(progress: Progress) -> str:
    stage, seconds = progress.stage, progress.seconds_left
    parts = []
    if stage and stage.total:
        parts.append(f"{words.size(stage.done)} of {words.size(stage.total)}")
    if seconds is not None:
        parts.append(f"{words.duration(seconds)} left")
    return ", ".join(parts)
