"""The window's start: the first one opens it, a later one goes to the first; and what the system asks to open."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QEvent, QEventLoop, QTimer, Signal
from PySide6.QtGui import QFileOpenEvent, QIcon
from PySide6.QtWidgets import QApplication, QMessageBox

from app import places, product
from app.crashes import CrashTrace
from app.instance import Instance, hand_over
from app.mistakes import Mistakes
from app.theme import theme
from app.window import MainWindow
from engine.errors import EngineError

log = logging.getLogger(__name__)

# macOS tells a program what to open once it runs, not in its arguments.
_TOLD_MS = 300


class Application(QApplication):
    """The application with its names and its icon.

    Signals:
        open_requested(Path): the system asks to open a file or a folder, as when it is dropped on the icon.
    """

    open_requested = Signal(Path)

    def __init__(self) -> None:
        super().__init__(sys.argv[:1])
        self.setApplicationName(product.NAME)
        self.setApplicationDisplayName(product.NAME)
        self.setApplicationVersion(product.version())
        if sys.platform != "darwin":  # where the bundle has it, for every size
            self.setWindowIcon(QIcon(str(places.ICON)))
            self.setDesktopFileName(product.IDENTIFIER)

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QFileOpenEvent) and event.file():
            self.open_requested.emit(Path(event.file()))
            return True
        return super().event(event)


def start(paths: Sequence[Path]) -> int:
    """Opens the window and in it `paths`, and lives until it is closed; the exit status."""
    app = Application()
    instance = Instance()
    if not instance.is_first:
        return _go_to_first(app, paths)
    places.start_log()
    trace = CrashTrace(places.crash_file())
    window = open_window(app)
    instance.asked.connect(window.come_forward)
    app.open_requested.connect(lambda path: window.come_forward([path]))
    log.info("started: %s", product.versions())
    if trace.last:
        window.tell_crash(trace.last)
    for path in paths:
        window.open_data(path)
    status = app.exec()
    trace.close()
    instance.close()
    return int(status)


def open_window(app: QApplication) -> MainWindow:
    """The window, dressed and shown."""
    theme().install(app)
    window = MainWindow(places.settings())
    Mistakes(window).happened.connect(window.show_mistake)
    window.show()
    return window


def _go_to_first(app: Application, paths: Sequence[Path]) -> int:
    wanted = list(paths)
    if sys.platform == "darwin":
        app.open_requested.connect(wanted.append)
        loop = QEventLoop()
        QTimer.singleShot(_TOLD_MS, loop.quit)
        loop.exec()
    try:
        hand_over(wanted)
    except EngineError as error:
        QMessageBox.warning(None, error.message, f"{error.message}\n\n{error.hint}")
        return 1
    return 0
