"""The window driven without a hand, as the demo and the self-test do: wait for what it does, and close it."""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import QEventLoop, QTimer
from PySide6.QtWidgets import QApplication

from app.window import MainWindow

_LOOK_MS = 100


class DrivingError(Exception):
    """A sentence for the terminal: what keeps the window from going on."""


def wait(window: MainWindow, done: Callable[[], bool], seconds: float = float("inf")) -> None:
    """Lets the window live until `done`. DrivingError when a notice says that something failed, or after `seconds`."""
    loop, failed, end = QEventLoop(), list[str](), time.monotonic() + seconds

    def look() -> None:
        failed.extend(_failures(window))
        if failed or done():
            loop.quit()
        elif time.monotonic() > end:
            blocker = window.session.blocker()
            failed.append(f"It took longer than {seconds:.0f} s. {blocker.reason if blocker else ''}".rstrip())

    timer = QTimer(interval=_LOOK_MS)
    timer.timeout.connect(look)
    timer.start()
    loop.exec()
    timer.stop()
    if failed:
        raise DrivingError(failed[0])


def close(app: QApplication, window: MainWindow) -> None:
    """Closes the window; a run that is still under way is stopped and saved, not asked about."""
    training = window.session.training
    if training.phase.active:
        loop = QEventLoop()
        training.ended.connect(loop.quit)
        training.stop()
        loop.exec()
    window.close()
    app.processEvents()


def _failures(window: MainWindow) -> list[str]:
    notices = [notice for page in window.pages for notice in page.notices.shown if notice.is_failure]
    return [f"{notice.message} {notice.hint}" for notice in notices]
