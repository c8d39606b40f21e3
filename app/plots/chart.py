"""A chart's card: title, present value, legend, the plot, the table behind it, and what can be exported."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import pyqtgraph as pg
from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, Qt, Signal
from PySide6.QtGui import QAction, QColor, QContextMenuEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFileDialog,
    QFrame,
    QLabel,
    QMenu,
    QSizePolicy,
    QStackedWidget,
    QTableWidget,
    QTableWidgetItem,
    QWidget,
)

from app.theme import colors, font, theme
from app.widgets.basics import Card, button, column, label, row
from app.widgets.legend import Legend
from engine.errors import EngineError

# A table of more rows than this helps nobody; the CSV holds them all.
_TABLE_ROWS = 500
_EMPTY, _PLOT, _TABLE = range(3)


class Chart(Card):
    """The frame of a live plot. A subclass draws in `redraw`, and answers `contents` and `describe`.

    A `compact` one shares its line with another: its legend stands below the title instead of beside it.

    Signals:
        refused(EngineError): an export that the disk did not take.
    """

    refused = Signal(EngineError)

    def __init__(self, title: str, promise: str, *, compact: bool = False) -> None:
        super().__init__(spacing=4)
        self.title = title
        self.setAccessibleName(title)
        self.value = label(size=17 if compact else 28, bold=True)
        self.note = label(size=11, secondary=True, wrap=True)
        self.note.hide()
        self.legend = Legend()
        self.plot = pg.PlotWidget(enableMenu=False)  # we have one of our own
        self.plot.setFrameShape(QFrame.Shape.NoFrame)
        self.plot.showGrid(x=False, y=True, alpha=1.0)
        self.plot.hideButtons()
        for side in ("left", "bottom"):
            # Before there are values: where they are below one, pyqtgraph scales by a thousand while it turns this off.
            self.plot.getAxis(side).enableAutoSIPrefix(False)
        self.plot.setAccessibleName(f"{title}, plot; the table button shows the same values")
        self.table = QTableWidget()
        self.table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.table.setFont(font(11))
        self.table.verticalHeader().hide()
        self.table.setShowGrid(False)
        self.table.setTabKeyNavigation(False)  # Tab leaves it again; the arrow keys go from cell to cell
        self.table.horizontalHeader().setFont(font(11))
        self.table.horizontalHeader().setDefaultAlignment(Qt.AlignmentFlag.AlignLeft)
        self.table.verticalHeader().setDefaultSectionSize(22)
        self.table.setAccessibleName(f"{title}, table")
        self.promise = label(promise, secondary=True, wrap=True)
        self.promise.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.stack = QStackedWidget()
        for page in (self.promise, self.plot, self.table):
            self.stack.addWidget(page)
        self.follow = button("Follow", self._follow_end, role="small", help="Show the newest values again")
        self.table_button = button("Table", role="toggle", help="The same values as a table")
        self.table_button.toggled.connect(self._arrange)
        self.tools = row(self.follow, self.table_button, spacing=4)
        self.value.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Preferred)
        words = column(None, self.note, self.legend, None, spacing=0)
        beside = column() if compact else words
        head = row(label(title, bold=True), 4, self.value, 4, beside, self.tools)
        head.setStretch(4, 1)
        self.body.addLayout(head)
        if compact:
            self.body.addLayout(words)
        self.body.addWidget(self.stack, 1)
        self._hover = QLabel(self)
        self._hover.setProperty("role", "hover")
        self._hover.setFont(font(11))
        self._hover.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self._hover.hide()
        self._cursor = pg.InfiniteLine(angle=90, movable=False)
        self._cursor.hide()
        self.plot.addItem(self._cursor, ignoreBounds=True)
        self.plot.scene().sigMouseMoved.connect(self._hovered)
        self.plot.viewport().installEventFilter(self)
        self.plot.getViewBox().sigRangeChangedManually.connect(lambda *_: self.follow.show())
        self.follow.hide()
        self.has_data = False
        theme().changed.connect(self.dress)
        self.dress()
        self._arrange()

    # -- what a subclass answers

    def redraw(self) -> None:
        """Draws the newest values."""
        raise NotImplementedError

    def contents(self) -> tuple[list[str], Sequence[Sequence[object]]]:
        """The values behind the plot: the names of the columns, and the rows."""
        raise NotImplementedError

    def describe(self, x: float) -> tuple[float, str] | None:
        """What to say while the pointer is at `x`, and the x it is true for."""
        raise NotImplementedError

    def dress(self) -> None:
        """Takes the colours in force; a subclass adds its own pens."""
        c = colors()
        self.plot.setBackground(c.card)
        for side in ("left", "bottom"):
            axis = self.plot.getAxis(side)
            axis.setPen(pg.mkPen(None))
            axis.setTickPen(pg.mkPen(c.grid))
            axis.setTextPen(pg.mkPen(c.secondary))
            axis.label.setFont(font(11))
            axis.setTickFont(font(11))
            axis.setStyle(tickLength=0, tickTextOffset=6)
            axis.setZValue(-1000)  # the grid lies under what is drawn
        self._cursor.setPen(pg.mkPen(c.secondary, width=1))

    # -- what every chart does

    def show_data(self, there_is_any: bool) -> None:
        """Whether to show the plot, or what it will show."""
        if there_is_any != self.has_data:
            self.has_data = there_is_any
            self._arrange()
        self.note.setVisible(there_is_any and bool(self.note.text()))
        if there_is_any and self.stack.currentIndex() == _TABLE:
            self._fill_table()

    def save_csv(self, path: Path) -> None:
        """Writes every value behind the plot."""
        names, rows = self.contents()
        try:
            with path.open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([names, *rows])
        except OSError as error:
            self._refuse(path, error.strerror or str(error))

    def save_png(self, path: Path) -> None:
        """Writes the whole card as it stands there."""
        if not self.grab().save(str(path), "PNG"):
            self._refuse(path, "the picture can't be written there")

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        self.menu().popup(event.globalPos())

    def menu(self) -> QMenu:
        """What the right mouse button offers."""
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for text, kind, save in (("PNG", "png", self.save_png), ("CSV", "csv", self.save_csv)):
            action = QAction(f"Export as {text}…", menu)
            action.triggered.connect(lambda _=False, kind=kind, save=save: self._export(kind, save))
            action.setEnabled(self.has_data)
            menu.addAction(action)
        menu.addSeparator()
        table = menu.addAction("Show as a table", self.table_button.toggle)
        table.setCheckable(True)
        table.setChecked(self.table_button.isChecked())
        menu.addAction("Follow the newest values", self._follow_end)
        return menu

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.Leave, QEvent.Type.Hide):
            self._hover.hide()
            self._cursor.hide()
        return super().eventFilter(watched, event)

    def follow_now(self) -> None:
        """Lets the axes follow the values; a subclass with a range of its own overrides this."""
        self.plot.enableAutoRange()

    def _follow_end(self) -> None:
        self.follow.hide()
        self.follow_now()
        self.redraw()

    def _arrange(self) -> None:
        table = self.table_button.isChecked()
        self.stack.setCurrentIndex((_TABLE if table else _PLOT) if self.has_data else _EMPTY)
        self.value.setVisible(self.has_data and bool(self.value.text()))
        self.legend.setVisible(self.has_data)
        if self.has_data and table:
            self._fill_table()

    def _fill_table(self) -> None:
        names, rows = self.contents()
        shown = rows[-_TABLE_ROWS:]
        self.table.setColumnCount(len(names))
        self.table.setHorizontalHeaderLabels(names)
        self.table.setRowCount(len(shown))
        for i, values in enumerate(shown):
            for j, value in enumerate(values):
                self.table.setItem(i, j, QTableWidgetItem(_cell(value)))

    def _hovered(self, place: QPointF) -> None:
        box = self.plot.getViewBox()
        told = self.describe(box.mapSceneToView(place).x()) if box.sceneBoundingRect().contains(place) else None
        self._cursor.setVisible(told is not None)
        if told is None:
            self._hover.hide()
            return
        window = self.window()
        self._hover.setParent(window)  # it may say more than there is room for on the card
        self._cursor.setValue(told[0])
        self._hover.setText(told[1])
        self._hover.adjustSize()
        at = self.plot.mapTo(window, self.plot.mapFromScene(place)) + QPoint(14, -self._hover.height() - 6)
        x = min(at.x(), window.width() - self._hover.width() - 4)
        self._hover.move(x, max(0, at.y()))
        self._hover.show()
        self._hover.raise_()

    def _export(self, kind: str, save: Callable[[Path], None]) -> None:
        name, _ = QFileDialog.getSaveFileName(self, f"Export {self.title}", f"{self.title}.{kind}")
        if name:
            save(Path(name))

    def _refuse(self, path: Path, why: str) -> None:
        self.refused.emit(
            EngineError(f"{path} could not be written: {why}.", "Choose another place and export again.", kind="disk")
        )


def side_by_side(*charts: Chart) -> QWidget:
    """The charts on one line, equally wide."""
    result, line = QWidget(), row(*charts, spacing=16)
    for index in range(len(charts)):
        line.setStretch(index, 1)
    result.setLayout(line)
    return result


def translucent(color: str, alpha: int) -> QColor:
    """A colour that lets the ground through; `alpha` from 0 to 255."""
    result = QColor(color)
    result.setAlpha(alpha)
    return result


def _cell(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
