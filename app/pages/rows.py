"""A page of rows at a time, as the model sees them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QScrollArea, QWidget

from app import words
from app.answers import Row
from app.calls import Call
from app.pages.finding import Finding
from app.pages.rowview import RowView
from app.widgets.basics import button, clear, column, label, row
from app.widgets.legend import Legend
from engine.events import Failed

_PAGE = 8
# Seconds that rows are laid out at a time: long pairs take a while to compare.
_SLICE = 0.02
_ALWAYS = [("special token", "well", "square"), ("only read", "text", "plain"), ("cut off", "secondary", "struck")]
_ANSWERS = [("learned", "trained", "square"), *_ALWAYS]
_PAIRS = [("trained", "trained", "square"), *_ALWAYS, ("differs from the other answer", "accent", "underlined")]


class RowsView(QWidget):
    """Asks `preview` for rows in a child process. What stands in `above` scrolls with them.

    Signals:
        began(): rows are asked for.
        shown(): a page of rows stands there.
        failed(Failed): there are none to show.
        told(str): which rows these are, in words.
    """

    began = Signal()
    shown = Signal()
    failed = Signal(Failed)
    told = Signal(str)

    def __init__(self, *above: QWidget) -> None:
        super().__init__()
        self._call: Call | None = None
        self.asked: list[str] = []
        self._last = ("", 0)  # what was searched for last, and from which row on
        self._order, self._sought = "", ""
        self._first = 1
        self.rows_total = 0
        self.views: list[RowView] = []
        self._waiting: deque[Row] = deque()
        self._timer = QTimer(self, interval=0)
        self._timer.timeout.connect(self._lay_out)
        self.finding = Finding()
        self.finding.ordered.connect(self.show_order)
        self.finding.sought.connect(self.seek)
        self.finding.numbered.connect(self.go_to)
        self.none = label(secondary=True, wrap=True)
        self.none.hide()
        self._rows = column(spacing=8)
        self.previous = button("Previous", lambda: self._go(self._first - _PAGE), help="The rows before these")
        self.next = button("Next", lambda: self._go(self._first + _PAGE), help="The rows after these")
        self._legend = Legend(_ANSWERS)
        self.scroll_area = QScrollArea()
        self.scroll_area.setWidgetResizable(True)
        self.scroll_area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.scroll_area.setAccessibleName("Rows as the model sees them")
        content = QWidget()
        content.setProperty("role", "ground")
        content.setLayout(column(*above, self.none, self._rows, None, spacing=16))
        self.scroll_area.setWidget(content)
        tools = row(self.finding, self.previous, self.next)
        tools.setStretch(0, 1)
        self._under = row(self._legend)
        self._under.setStretch(0, 1)
        self._under.setAlignment(self._legend, Qt.AlignmentFlag.AlignVCenter)
        self.setLayout(column(tools, self._under, self.scroll_area, spacing=12))
        self._say()

    def offer(self, tool: QWidget) -> None:
        """Puts one more tool beside the legend."""
        self._under.addWidget(tool, 0, Qt.AlignmentFlag.AlignVCenter)

    @property
    def span(self) -> str:
        """Which rows stand there, in words."""
        last = min(self.rows_total, self._first + _PAGE - 1)
        rows = words.plural(self.rows_total, "row")
        return f"{words.count(self._first)} to {words.count(last)} of {rows}" if self.rows_total else ""

    def show_rows(self, asked: Sequence[str]) -> None:
        """Shows the rows of `check_arguments`, from where the person is."""
        self.asked = list(asked)
        self._ask()

    def again(self) -> None:
        """Asks once more for what was asked last."""
        find, start = self._last
        self._ask(find=find, start=start)

    def show_order(self, order: str) -> None:
        """Shows the rows in one of finding.ORDERS, from its first on."""
        self._order = order
        self.finding.show_order(order)
        self._go(1)

    def seek(self, text: str) -> None:
        """Shows the rows from the next one on that holds `text`, in the file's order; the page in sight is looked
        through from its top, and after the last row comes the first.
        """
        in_sight = self.views[0].number if self.views else 1
        self._ask(find=text, start=in_sight + (text == self._sought))

    def go_to(self, number: int) -> None:
        """Shows the rows from this one on."""
        self._order = ""
        self.finding.show_order("")
        self._go(min(number, max(1, self.rows_total)))

    def forget(self) -> None:
        """Shows nothing."""
        self.close_call()
        clear(self._rows)
        self.none.hide()
        self.views, self.asked, self.rows_total, self._first = [], [], 0, 1
        self._order, self._sought = "", ""
        self.finding.show_order("")
        self._say()

    def close_call(self) -> None:
        """Ends a preview under way."""
        self._timer.stop()
        if self._call:
            self._call.cancel()
            self._call = None

    def _go(self, first: int) -> None:
        self._first, self._sought = max(1, first), ""
        self._ask()
        self._say()

    def _ask(self, *, find: str = "", start: int = 0) -> None:
        if not self.asked:
            return
        self.close_call()
        self._last = find, start
        self.began.emit()
        arguments = ["--row", str(start or self._first), "--count", str(_PAGE), "--json"]
        arguments += [f"--find={find}"] if find else []  # alone, a text like "--- a" would be taken for a flag
        arguments += ["--jump", self._order] if self._order and not find else []
        self._call = Call(self, "preview", *self.asked, *arguments)
        self._call.answered.connect(lambda answer: self._show(answer, find))
        self._call.failed.connect(self._fail)

    def _show(self, answer: dict[str, object], sought: str) -> None:
        self._call = None
        rows = answer.get("rows")
        found = [Row.read(item) for item in rows] if isinstance(rows, list) else []
        if sought and not found:
            self.none.setText(f"No row holds “{words.shortened(sought, 60)}”.")
            self.none.show()
            return
        if sought:
            self._first, self._sought, self._order = found[0].row, sought, ""
            self.finding.show_order("")
        self.rows_total = int(str(answer.get("rows_total") or 0))
        wrapped = bool(answer.get("wrapped"))
        self.none.setText("The search went on from the first row." if wrapped else "There is no such row.")
        # Of a file without rows the check says so.
        self.none.setVisible(wrapped or bool(self._order and not found))
        clear(self._rows)
        self.views = []
        self._waiting = deque(found)
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

    def _fail(self, failure: Failed) -> None:
        self._call = None
        self.failed.emit(failure)

    def _say(self) -> None:
        there_are_any = self.rows_total > 0 or bool(self._order)
        for part in (self.finding, self._legend, self.previous, self.next):
            part.setVisible(there_are_any)  # before there are rows they would explain and turn nothing
        self.previous.setEnabled(self._first > 1)
        self.next.setEnabled(self._first + _PAGE <= self.rows_total)
        self.told.emit(self.span)
