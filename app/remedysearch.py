"""The search for what would help where nothing fits: many predictions, made beside the window's thread."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QObject, QThread, QTimer, Signal

from engine.architecture import Architecture
from engine.calibration import Correction
from engine.config import TrainConfig
from engine.remedies import Remedy, remedies

# A slider on its way should not start a search for every tenth of a GB.
_SETTLE_MS = 100


@dataclass(frozen=True)
class Question:
    """What remedies are looked for: the arguments of `engine.remedies.remedies`."""

    shape: Architecture
    config: TrainConfig
    longest: int
    budget_bytes: int
    correction: Correction


class RemedySearch(QObject):
    """Answers the last question once it rests; earlier ones are forgotten.

    Signals:
        found(list): its remedies, the best first.
    """

    found = Signal(list)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._question: Question | None = None
        self._thread: _Thread | None = None
        self._settling = QTimer(self, singleShot=True, interval=_SETTLE_MS)
        self._settling.timeout.connect(self._start)

    def ask(self, question: Question | None) -> None:
        """Looks for remedies soon. None: there is nothing to look for any more."""
        self._question = question
        self._settling.stop()
        if question:
            self._settling.start()

    def close(self) -> None:
        """Forgets the question and waits for a search under way, a fraction of a second."""
        self.ask(None)
        if self._thread:
            self._thread.wait()

    def _start(self) -> None:
        if self._question and self._thread is None:  # else its end starts the next one
            self._thread = _Thread(self._question, self)
            self._thread.finished.connect(self._take)
            self._thread.start()

    def _take(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.deleteLater()
        if thread.question is self._question:
            self.found.emit(thread.remedies)
        elif not self._settling.isActive():
            self._start()


class _Thread(QThread):
    def __init__(self, question: Question, parent: QObject) -> None:
        super().__init__(parent)
        self.question = question
        self.remedies: list[Remedy] = []

    def run(self) -> None:
        asked = self.question
        self.remedies = remedies(asked.shape, asked.config, asked.longest, asked.budget_bytes, asked.correction)
