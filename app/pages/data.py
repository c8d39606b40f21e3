"""The Data page: the rows as the model sees them, and what is wrong with any."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QScrollArea, QStackedWidget, QWidget

from app import words
from app.answers import Row
from app.calls import Call
from app.checking import check_arguments
from app.fitting import MISFIT_CODES, misfit, misfit_notice, objective_for
from app.pages.page import Page
from app.pages.problems import Problems
from app.pages.rowview import RowView
from app.pages.welcome import Welcome
from app.session import Session
from app.widgets.basics import button, clear, column, row
from app.widgets.legend import Legend
from engine.errors import EngineError
from engine.events import Failed

_PAGE = 8
# Seconds that rows are laid out at a time: long pairs take a while to compare.
_SLICE = 0.02
_ALWAYS = [("special token", "well", "square"), ("only read", "text", "plain"), ("cut off", "secondary", "struck")]
_ANSWERS = [("learned", "trained", "square"), *_ALWAYS]
_PAIRS = [("trained", "trained", "square"), *_ALWAYS, ("differs from the other answer", "accent", "underlined")]


class DataPage(Page):
    """Shows a page of rows at a time; asks `preview` for them in a child process.

    Signals:
        open_requested(): a file is to be chosen.
        shown(): a page of rows stands there.
    """

    open_requested = Signal()
    shown = Signal()

    def __init__(self, session: Session) -> None:
        super().__init__("Data")
        self._session = session
        self._call: Call | None = None
        self._asked: list[str] = []
        self._first = 1
        self._misfit = ("", "")
        self.rows_total = 0
        self._waiting: deque[Row] = deque()
        self._timer = QTimer(self, interval=0)
        self._timer.timeout.connect(self._lay_out)
        self.welcome = Welcome()
        self.welcome.open_requested.connect(self.open_requested)
        self.welcome.sample_requested.connect(session.try_sample)
        self.problems = Problems()
        self.views: list[RowView] = []
        self._rows = column(spacing=8)
        self.previous = button("Previous", lambda: self._turn(-_PAGE), help="The rows before these")
        self.next = button("Next", lambda: self._turn(_PAGE), help="The rows after these")
        self._legend = Legend(_ANSWERS)
        self.scroll_area = QScrollArea()
        self.scroll_area.setWidgetResizable(True)
        self.scroll_area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.scroll_area.setAccessibleName("Rows as the model sees them")
        content = QWidget()
        content.setProperty("role", "ground")
        content.setLayout(column(self.problems, self._rows, None, spacing=16))
        self.scroll_area.setWidget(content)
        filled = QWidget()
        legend_row = row(self._legend, self.previous, self.next)
        legend_row.setStretch(0, 1)
        legend_row.setAlignment(self._legend, Qt.AlignmentFlag.AlignVCenter)
        filled.setLayout(column(legend_row, self.scroll_area, spacing=12))
        self.stack = QStackedWidget()
        self.stack.addWidget(self.welcome)
        self.stack.addWidget(filled)
        self.body.addWidget(self.stack, 1)
        session.changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Shows what the session knows now, and asks for rows where those shown are of other settings."""
        config, check = self._session.config, self._session.check
        self.stack.setCurrentIndex(1 if config.data else 0)
        self.heading.setText("Data as the model sees it" if config.data else "Data")
        self._show_problems()
        if check.failure:
            self.notices.show_failure(check.failure, subject="check", action=("Check again", check.again))
        else:
            self.notices.clear("check")
        shelf = self._session.shelf
        if shelf.failure:
            retry = shelf.fetch_sample if shelf.listed else shelf.refresh
            self.notices.show_failure(shelf.failure, subject="models", action=("Try again", retry))
        else:
            self.notices.clear("models")
        if self._asked and self._asked[0] != config.data:
            self._forget()  # rows of another file
        if check.result is not None and not check.busy and config.data:
            asked = check_arguments(config)
            if asked != self._asked:
                self._asked = asked
                self._ask()
        elif not config.data or check.failure:
            self._forget()
        self._say()

    def _show_problems(self) -> None:
        """What the check found; where the objective does not fit, that alone: each row would say the same."""
        check, objective = self._session.check.result, self._session.config.objective
        reason = misfit(check.format, objective) if check else ""
        if check and reason:
            others = [problem for problem in check.problems if problem.code not in MISFIT_CODES]
            self.problems.show_check(replace(check, problems=others))
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

    def close_call(self) -> None:
        """Ends a preview under way."""
        self._timer.stop()
        if self._call:
            self._call.cancel()
            self._call = None

    def _ask(self) -> None:
        self.close_call()
        arguments = ["--row", str(self._first), "--count", str(_PAGE), "--json"]
        self._call = Call(self, "preview", *self._asked, *arguments)
        self._call.answered.connect(self._show)
        self._call.failed.connect(self._failed)

    def _show(self, answer: dict[str, object]) -> None:
        self._call = None
        self.notices.clear("preview")
        rows = answer.get("rows")
        self.rows_total = int(str(answer.get("rows_total") or 0))
        clear(self._rows)
        self.views = []
        self._waiting = deque(Row.read(item) for item in rows) if isinstance(rows, list) else deque()
        self.scroll_area.verticalScrollBar().setValue(0)
        self._say()
        self._timer.start()

    def _lay_out(self) -> None:
        """Some of the rows that wait; the others after what the window has to do."""
        end = time.monotonic() + _SLICE
        while self._waiting and time.monotonic() < end:
            found = self._waiting.popleft()
            view = RowView(found, found.row or self._first + len(self.views))
            self.views.append(view)
            self._rows.addWidget(view)
        if not self._waiting:
            self._timer.stop()
            self._legend.show_entries(_PAIRS if any(view.pair for view in self.views) else _ANSWERS)
            self.shown.emit()

    def _failed(self, failure: Failed) -> None:
        self._call = None
        self._asked = []
        self.notices.show_failure(failure, subject="preview", action=("Try again", self.refresh))

    def _forget(self) -> None:
        self.close_call()
        clear(self._rows)
        self.views, self._asked, self.rows_total, self._first = [], [], 0, 1
        self.notices.clear("preview")

    def _turn(self, by: int) -> None:
        self._first = max(1, self._first + by)
        self._ask()
        self._say()

    def _say(self) -> None:
        last = min(self.rows_total, self._first + _PAGE - 1)
        for part in (self._legend, self.previous, self.next):
            part.setVisible(self.rows_total > 0)  # before there are rows they would explain and turn nothing
        self.previous.setEnabled(self._first > 1)
        self.next.setEnabled(last < self.rows_total)
        if self.rows_total:
            span = f"{words.count(self._first)} to {words.count(last)} of {words.plural(self.rows_total, 'row')}"
            self.side.setText(span)
        else:
            self.side.setText(self._session.dataset().reason if self._session.config.data else "")
