"""The Data page: the rows as the model sees them, how long they are, and what is wrong with any."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QStackedWidget, QWidget

from app import words
from app.answers import Check, Columns, Fixed
from app.checking import check_arguments
from app.fitting import MISFIT_CODES, misfit, misfit_notice, objective_for
from app.pages.columns import ColumnsCard
from app.pages.lengths import LengthsView
from app.pages.page import Page
from app.pages.problems import Problems
from app.pages.rows import RowsView
from app.pages.welcome import Welcome
from app.session import Session
from app.states import State
from app.widgets.basics import column
from app.widgets.notice import Notice
from app.widgets.segmented import Segmented
from app.widgets.working import Working
from engine.errors import EngineError
from engine.events import Failed


class DataPage(Page):
    """Shows rows or their lengths, under what the check and a mending have to say.

    Signals:
        open_requested(): a file is to be chosen.
        folder_requested(): a folder is to be chosen.
    """

    open_requested = Signal()
    folder_requested = Signal()

    def __init__(self, session: Session) -> None:
        super().__init__("Data")
        self._session = session
        self._misfit = ("", "")
        self._mended_in = ""  # the data that was open when a mending was told of
        self.welcome = Welcome()
        self.welcome.open_requested.connect(self.open_requested)
        self.welcome.folder_requested.connect(self.folder_requested)
        self.welcome.sample_requested.connect(session.try_sample)
        self.opening = Working("Reading the data", session.check.stop)
        self.mending = Working("Writing a new file", session.mending.stop)
        self.problems = Problems()
        self.problems.cure_requested.connect(self._mend)
        self.columns = ColumnsCard()
        self.columns.chosen.connect(lambda chosen: session.change(columns=chosen))
        self.rows = RowsView(self.columns, self.problems)
        self.rows.offer(self.columns.ask)
        self.rows.began.connect(lambda: self.notices.clear("preview"))
        self.rows.failed.connect(self._preview_failed)
        self.rows.told.connect(self._say)
        self.lengths = LengthsView(session)
        self.lengths.failed.connect(self._lengths_failed)
        self.tabs = Segmented("What is shown of the data", ["Rows", "Lengths"], size=11)
        self.subjects = QStackedWidget()
        self.subjects.addWidget(self.rows)
        self.subjects.addWidget(self.lengths)
        self.tabs.chosen.connect(self._show_subject)
        self.top.insertSpacing(1, 16)
        self.top.insertWidget(2, self.tabs)
        filled = QWidget()
        filled.setLayout(column(self.opening, self.mending, self.subjects, spacing=12))
        self.stack = QStackedWidget()
        self.stack.addWidget(self.welcome)
        self.stack.addWidget(filled)
        self.body.addWidget(self.stack, 1)
        self._rows_of: Check | None = None  # what the check said when rows were last asked for
        session.changed.connect(self.refresh)
        session.check.advanced.connect(self._show_work)
        session.mending.advanced.connect(self._show_work)
        session.mending.mended.connect(self._mended)
        session.mending.failed.connect(self._mending_failed)
        self.refresh()

    def refresh(self) -> None:
        """Shows what the session knows now, and asks for rows where those shown are of other settings."""
        config, check = self._session.config, self._session.check
        self.stack.setCurrentIndex(1 if config.data else 0)
        self.heading.setText("Data as the model sees it" if config.data else "Data")
        self.tabs.setVisible(bool(config.data))
        self._show_work()
        self._show_problems()
        self.columns.show_columns(check.result.columns if check.result else Columns(), config.columns)
        if check.failure:
            self.notices.show_failure(check.failure, subject="check", action=("Check again", check.again))
        else:
            self.notices.clear("check")
        if check.busy:
            self.notices.clear("lengths")
        shelf = self._session.shelf
        if shelf.failure:
            retry = shelf.fetch_sample if shelf.listed else shelf.refresh
            self.notices.show_failure(shelf.failure, subject="models", action=("Try again", retry))
        else:
            self.notices.clear("models")
        if config.data != self._mended_in:
            self.notices.clear("mended")
        if self.rows.asked and self.rows.asked[0] != config.data:
            self._forget()  # rows of another file
        if check.result is not None and not check.busy and config.data:
            asked = check_arguments(config)
            if asked != self.rows.asked:
                self.rows.show_rows(asked)
            elif check.result is not self._rows_of:
                self.rows.again()  # the file may hold others now
            self._rows_of = check.result
        elif not config.data or check.failure:
            self._forget()
        self._say(self.rows.span)

    def close_call(self) -> None:
        """Ends a preview under way."""
        self.rows.close_call()
        self.opening.close_timer()
        self.mending.close_timer()

    def _show_subject(self, index: int) -> None:
        self.subjects.setCurrentIndex(index)
        self._say(self.rows.span)

    def _show_work(self) -> None:
        check, mending = self._session.check, self._session.mending
        self.opening.follow(check.busy, check.progress)
        self.mending.follow(mending.busy, mending.progress, stopping=mending.stopping)
        self.problems.allow(mending.busy)

    def _show_problems(self) -> None:
        """What the check found; where the objective does not fit, that alone: each row would say the same."""
        check, objective = self._session.check.result, self._session.config.objective
        reason = misfit(check.format, objective) if check else ""
        if check and reason:
            others = [problem for problem in check.problems if problem.code not in MISFIT_CODES]
            self.problems.show_check(replace(check, problems=others, cures=[]))
        else:
            self.problems.show_check(check)
        if self._misfit == (reason, objective):
            return  # it may have been dismissed
        self._misfit = reason, objective
        self.notices.clear("misfit")
        if check and reason:
            fitting = objective_for(check.format, objective)
            action = (f"Choose {fitting.upper()}", lambda: self._session.change(objective=fitting))
            told = EngineError(*misfit_notice(check.format, objective))
            self.notices.show_failure(told, subject="misfit", action=action)

    def _mend(self, cures: list[str]) -> None:
        self.notices.clear("mended")
        self._session.mending.start(self._session.config, cures)

    def _mended(self, source: Path, fixed: Fixed) -> None:
        """Opens the new file, with the way back; while it was written another may have been chosen."""
        new = Path(fixed.path)
        stayed = self._session.config.data == str(source)
        if stayed:
            self._session.open_data(new)
        done = [f"{words.plural(fixed.left_out, 'row')} left out"] if fixed.left_out else []
        done += [f"{words.plural(fixed.changed, 'row')} changed"] if fixed.changed else []
        named = " Its fields have Tunesmith's names." if fixed.is_renamed else ""
        if fixed.copied:
            were = "was copied as it was" if fixed.copied == 1 else "were copied as they were"
            named += f" {words.plural(fixed.copied, 'other file')} of the folder {were}."
        notice = Notice(
            f"“{new.name}” is {'open' if stayed else 'written'}: {', '.join(done) or 'nothing had to change'}.",
            f"It holds {words.plural(fixed.rows, 'row')} and stands beside “{source.name}”, which is as it was.{named}",
            state=State.READY,
            action=(f"Back to {words.shortened(source.name, 24)}", lambda: self._session.open_data(source))
            if stayed
            else (f"Open {words.shortened(new.name, 24)}", lambda: self._session.open_data(new)),
        )
        self._mended_in = self._session.config.data
        self.notices.show_notice(notice, "mended")

    def _mending_failed(self, failure: Failed) -> None:
        """Says why, and where rows can't be kept offers to leave them out."""
        session = self._session
        self._mended_in = session.config.data
        check, action = session.check.result, None
        if failure.kind == "request" and check and check.flawed and "skip" not in session.mending.cures:
            cures = [*session.mending.cures, "skip"]
            action = ("Leave them out", lambda: self._mend(cures))
        self.notices.show_failure(failure, subject="mended", action=action)

    def _preview_failed(self, failure: Failed) -> None:
        self.notices.show_failure(failure, subject="preview", action=("Try again", self.rows.again))

    def _lengths_failed(self, error: EngineError) -> None:
        self.notices.show_failure(error, subject="lengths", action=("Check again", self._session.check.again))

    def _forget(self) -> None:
        self.rows.forget()
        self.notices.clear("preview")

    def _say(self, span: str) -> None:
        check = self._session.check.result
        if span and check and self.subjects.currentWidget() is self.lengths:
            span = words.plural(check.rows, "row")
        silent = not self._session.config.data or self._session.check.failure  # there is a card that says it
        self.side.setText(span or ("" if silent else self._session.dataset().reason))
