"""One long request to our own command line at a time: it can be stopped, and ends in an answer or a failure."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QObject, Signal

from app.calls import Call
from engine.events import Failed, Stage


class Job(QObject):
    """The state of such a request. A subclass says what an answer, a failure and word of progress mean to it.

    Signals:
        changed(): it began, was asked to stop, or ended.
    """

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.busy = False
        self.stopping = False
        self._call: Call | None = None

    def stop(self) -> None:
        """Asks the child to end without an answer."""
        if self._call and not self.stopping:
            self.stopping = True
            self._call.stop()
            self.changed.emit()

    def close(self) -> None:
        """Ends the child and waits until it is gone."""
        if self._call:
            self._call.cancel()
            self._let_go()

    def _begin(self, *arguments: str) -> None:
        self.busy, self.stopping = True, False
        self._call = Call(self, *arguments)
        self._call.progressed.connect(self._progressed)
        self._call.answered.connect(self._answered)
        self._call.failed.connect(self._failed)
        self._call.stopped.connect(self._end)
        self.changed.emit()

    def _progressed(self, stage: Stage) -> None:
        raise NotImplementedError

    def _answered(self, answer: dict[str, Any]) -> None:
        raise NotImplementedError

    def _failed(self, failure: Failed) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        self._let_go()
        self.changed.emit()

    def _let_go(self) -> None:
        self._call, self.busy, self.stopping = None, False, False
