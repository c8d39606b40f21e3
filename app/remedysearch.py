"""The search for what would help where nothing fits: many predictions, made beside the window's thread."""

from __future__ import annotations

from PySide6.QtCore import QObject, QThread, QTimer, Signal

from engine.estimate import Case
from engine.remedies import Remedy, remedies

# A slider on its way should not start a search for every tenth of a GB.
_SETTLE_MS = 100


class RemedySearch(QObject):
    """Finds them for the last case once it rests; earlier ones are forgotten.

    Signals:
        found(list): its remedies, the best first.
    """

    found = Signal(list)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._case: Case | None = None
        self._thread: _Thread | None = None
        self._settling = QTimer(self, singleShot=True, interval=_SETTLE_MS)
        self._settling.timeout.connect(self._start)

    def ask(self, case: Case | None) -> None:
        """Looks for remedies soon. None: there is nothing to look for any more."""
        self._case = case
        self._settling.stop()
        if case:
            self._settling.start()

    def close(self) -> None:
        """Forgets the case and waits for a search under way, a fraction of a second."""
        self.ask(None)
        if self._thread:
            self._thread.wait()

    def _start(self) -> None:
        if self._case and self._thread is None:  # else its end starts the next one
            self._thread = _Thread(self._case, self)
            self._thread.finished.connect(self._take)
            self._thread.start()

    def _take(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.deleteLater()
        if thread.case is self._case:
            self.found.emit(thread.remedies)
        elif not self._settling.isActive():
            self._start()


class _Thread(QThread):
    def __init__(self, case: Case, parent: QObject) -> None:
        super().__init__(parent)
        self.case = case
        self.remedies: list[Remedy] = []

    def run(self) -> None:
        self.remedies = remedies(self.case)
