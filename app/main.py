"""The way in: nothing, or absolute paths to open, is the window's; any other argument the command line's.

Qt is imported by what opens a window: the engine's child processes are this program too, and need none.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PySide6.QtWidgets import QApplication

    from app.window import MainWindow

SELF_TEST = "--self-test"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the app, its self-test or one command; the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == [SELF_TEST]:
        from app.selftest import main as self_test

        return self_test(arguments[1:])
    paths = [Path(argument) for argument in arguments]
    if not all(path.is_absolute() for path in paths):
        from engine.cli import main as command_line  # loads MLX, which the window never does

        return int(command_line(arguments))
    from app.start import start

    return start(paths)


def open_window() -> tuple[QApplication, MainWindow]:
    """The application and its window, dressed and shown, beside any other start."""
    from app import places, start

    app = start.Application()
    places.start_log()
    return app, start.open_window(app)


if __name__ == "__main__":
    sys.exit(main())
