"""What the Help menu does: About, the log, and a report of what went wrong."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from PySide6.QtCore import QObject, QStandardPaths, Signal
from PySide6.QtWidgets import QFileDialog, QMainWindow

from app import places, report, viewing
from app.about import About
from app.states import State
from app.widgets.notice import Notice
from engine.errors import EngineError
from engine.events import Failed

_ASKED_FOR = "Nothing in particular: the report was asked for."


class Help(QObject):
    """Shows what this program is, and gathers what explains a mistake.

    Signals:
        refused(EngineError): the log or the report can't be had.
    """

    refused = Signal(EngineError)

    def __init__(self, window: QMainWindow) -> None:
        super().__init__(window)
        self._window = window
        self.about: About | None = None

    def show_about(self) -> None:
        """Opens the About window, or brings it forward."""
        if self.about is None:
            self.about = About(self._window)
            self.about.log_requested.connect(self.show_log)
            self.about.report_requested.connect(self.ask_for_report)
        self.about.open_again()

    def show_log(self) -> None:
        """Opens the log in the system's viewer."""
        log = places.log_file()
        try:
            if not log.is_file():
                raise EngineError(f"There is no log at {log}.", "Make room on the disk and start Tunesmith again.")
            viewing.show(log)
        except EngineError as error:
            self.refused.emit(error)

    def ask_for_report(self, what: str = _ASKED_FOR, details: str = "") -> None:
        """Asks where to save a report of `what` happened, and saves it."""
        folder = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DesktopLocation)
        name = f"Tunesmith report {datetime.now().astimezone():%Y-%m-%d %H.%M}.txt"
        chosen, _ = QFileDialog.getSaveFileName(self._window, "Save report", str(Path(folder) / name))
        if chosen:
            self.save_report(Path(chosen), what, details)

    def save_report(self, path: Path, what: str = _ASKED_FOR, details: str = "") -> None:
        """Saves a report where the person chose."""
        try:
            report.save(report.report(what, details), path)
        except EngineError as error:
            self.refused.emit(error)

    def mistake(self, failure: Failed) -> Notice:
        """The card for a mistake of ours, with a report of it a button away."""
        return Notice(
            failure.message,
            failure.hint,
            details=failure.details,
            action=("Save Report…", lambda: self.ask_for_report(failure.message, failure.details)),
        )

    def crash(self, trace: str) -> Notice:
        """The card that tells of a crash of the last start."""
        message = "Tunesmith ended unexpectedly the last time."
        return Notice(
            message,
            "Your data and your runs are safe; a run that was under way has stopped and saved. "
            "A report helps us find out why.",
            details=trace,
            state=State.NEEDS_YOU,
            action=("Save Report…", lambda: self.ask_for_report(message, trace)),
        )
