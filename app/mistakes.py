"""The one place that catches what nobody else caught: it logs it and shows a card, and the window goes on."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from types import TracebackType

from PySide6.QtCore import QObject, Signal

from engine.events import Failed

log = logging.getLogger(__name__)


class Mistakes(QObject):
    """Takes over sys.excepthook and threading.excepthook until `release`.

    Signals:
        happened(Failed): an exception nobody caught, as a sentence; emitted on its own thread, so connect to
            a slot of an object that lives in the window's.
    """

    happened = Signal(Failed)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._former = sys.excepthook, threading.excepthook
        sys.excepthook = self._take
        threading.excepthook = self._take_from_thread

    def release(self) -> None:
        """Gives the hooks back."""
        sys.excepthook, threading.excepthook = self._former

    def _take(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            self._former[0](kind, error, trace)
            return
        log.critical("uncaught", exc_info=(kind, error, trace))
        self.happened.emit(
            Failed(
                "internal",
                "Something went wrong inside Tunesmith.",
                "Your data and your runs are safe. If it comes again, save a report and send it to us.",
                "".join(traceback.format_exception(kind, error, trace)),
            )
        )

    def _take_from_thread(self, arguments: threading.ExceptHookArgs) -> None:
        if arguments.exc_value is not None:
            self._take(arguments.exc_type, arguments.exc_value, arguments.exc_traceback)
