"""The way in: no arguments open the window, any argument goes to the command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from PySide6.QtWidgets import QApplication

from app import places
from app.mistakes import Mistakes
from app.theme import theme
from app.window import MainWindow


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the app or one command; the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments:
        from engine.cli import main as command_line  # loads MLX, which the window never does

        return int(command_line(arguments))
    app, window = open_window()
    return int(app.exec()) if window.isVisible() else 0


def open_window() -> tuple[QApplication, MainWindow]:
    """The application and its window, dressed and shown."""
    app = QApplication(sys.argv[:1])
    app.setApplicationName("Tunesmith")
    app.setApplicationDisplayName("Tunesmith")
    places.start_log()
    theme().install(app)
    window = MainWindow(places.settings())
    Mistakes(window).happened.connect(window.show_mistake)
    window.show()
    return app, window


if __name__ == "__main__":
    sys.exit(main())
