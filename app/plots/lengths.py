"""How long the rows are: prompt, response and both, with the line where rows are cut."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent

from app import words
from app.lengths import Lengths
from app.plots.chart import Chart, translucent
from app.theme import colors, font
from app.widgets.basics import button
from engine.config import SETTINGS

_BINS = 60
# Rows this much longer than most would press all others into the first bars: the axis is then logarithmic at first.
_LONG_TAIL = 8
# The axis goes on to a line that is beyond all rows, as far as this many times the longest.
_BEYOND = 1.3
# A key moves the line by this part of the axis, with Shift by ten times as much.
_KEY_STEP = 0.005
_DIRECTIONS = {Qt.Key.Key_Left: -1, Qt.Key.Key_Down: -1, Qt.Key.Key_Right: 1, Qt.Key.Key_Up: 1}
_SERIES = {"prompt": "forward", "response": "backward"}


class LengthChart(Chart):
    """A histogram of Lengths with a line to drag or to move by the arrow keys.

    Signals:
        moved(int): the line stands there now; it may still be under way.
        chosen(int): the person let go of it.
    """

    moved = Signal(int)
    chosen = Signal(int)

    def __init__(self) -> None:
        self.max_length = 1
        self._key_down = False
        self._lengths = Lengths(np.zeros(0, np.int32), np.zeros(0, np.int32))
        self._edges: npt.NDArray[np.float64] = np.zeros(0)
        self._counts: dict[str, npt.NDArray[np.int64]] = {}
        self._total = pg.BarGraphItem(x=[], height=[], width=1)
        self._curves = {name: pg.PlotDataItem(stepMode="center", connect="finite") for name in _SERIES}
        self._cut = pg.LinearRegionItem(movable=False, pen=pg.mkPen(None))
        self.line = pg.InfiniteLine(angle=90, movable=True)
        self._name = pg.TextItem(anchor=(0, 0))
        self._name.setFont(font(11, bold=True))
        super().__init__(
            "Row lengths",
            "How many tokens the rows have, and where Longest row cuts them.\n"
            "It is drawn once the data has been checked.",
        )
        for item in (self._total, *self._curves.values(), self._cut, self.line, self._name):
            self.plot.addItem(item, ignoreBounds=True)
        self.plot.setMouseEnabled(x=False, y=False)
        self.plot.setLabel("bottom", "tokens")
        self.plot.setLabel("left", "rows")
        self.plot.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.plot.installEventFilter(self)
        self.line.sigDragged.connect(lambda *_: self._move(self._tokens(self.line.value())))
        self.line.sigPositionChangeFinished.connect(lambda *_: self.chosen.emit(self.max_length))
        self.log = button("Log scale", role="toggle", help="Makes room for short rows beside very long ones")
        self.log.toggled.connect(self.redraw)
        self.tools.insertWidget(0, self.log)
        self.legend.show_entries([
            ("all of a row", "line", "square"),
            *((name, color, "line") for name, color in _SERIES.items()),
            ("cut off", "red", "square"),
        ])  # fmt: skip

    @property
    def held(self) -> bool:
        """Whether the person is moving the line now."""
        return self._key_down or bool(self.line.moving)

    def show_lengths(self, lengths: Lengths, max_length: int) -> None:
        """Draws these rows, with the line at `max_length`."""
        self._lengths, self.max_length = lengths, max_length
        if len(lengths.prompt):
            common = max(1.0, float(np.percentile(lengths.total, 95)))
            self.log.blockSignals(True)
            self.log.setChecked(lengths.longest > _LONG_TAIL * common)
            self.log.blockSignals(False)
        self.redraw()

    def show_max_length(self, tokens: int) -> None:
        """Puts the line there, without a word to anybody."""
        self.max_length = tokens
        self._draw_line()

    def redraw(self) -> None:
        total = self._lengths.total
        if len(total):
            low, high = self._span()
            edges = np.linspace(low, high, _BINS + 1)
            if not self.log.isChecked():  # whole tokens, or bars would stand between them
                edges = np.arange(_BINS + 1) * np.ceil(high / _BINS)
            self._edges = edges
            inside = {"all": total, "prompt": self._lengths.prompt, "response": self._lengths.response}
            self._counts = {name: np.histogram(self._at(values), edges)[0] for name, values in inside.items()}
            widths = np.diff(edges)
            self._total.setOpts(x0=edges[:-1], width=widths, height=self._counts["all"])
            for name, curve in self._curves.items():
                curve.setData(edges, _without_gaps(self._counts[name]))
            self.plot.getAxis("bottom").setLogMode(x=self.log.isChecked(), y=False)
            self.plot.setXRange(edges[0], edges[-1], padding=0.01)
            top = max(int(counts.max(initial=0)) for counts in self._counts.values())
            self.plot.setYRange(0, 1.12 * max(1, top), padding=0)
            self.value.setText(f"{words.count(int(np.median(total)))} tokens")
            self.note.setText(f"in the middle, {words.count(self._lengths.longest)} in the longest row")
            self._draw_line()
        self.show_data(bool(len(total)))
        self._arrange()

    def contents(self) -> tuple[list[str], Sequence[Sequence[object]]]:
        edges = [round(float(edge)) for edge in self._tokens_of(self._edges)]
        columns = [self._counts.get(name, np.zeros(0, np.int64)).tolist() for name in ("all", *_SERIES)]
        rows = list(zip(edges[:-1], (edge - 1 for edge in edges[1:]), *columns, strict=True)) if columns[0] else []
        return ["from, tokens", "to, tokens", "rows", *(f"rows by {name}" for name in _SERIES)], rows

    def describe(self, x: float) -> tuple[float, str] | None:
        place = int(np.searchsorted(self._edges, x, side="right")) - 1
        if not 0 <= place < len(self._edges) - 1:
            return None
        low, high = (round(float(edge)) for edge in self._tokens_of(self._edges[place : place + 2]))
        span = f"{words.count(low)} to {words.count(max(low, high - 1))} tokens"
        lines = [f"<b>{span}</b>", words.plural(int(self._counts["all"][place]), "row")]
        lines += [f"{words.plural(int(self._counts[name][place]), name)} so long" for name in _SERIES]
        return float((self._edges[place] + self._edges[place + 1]) / 2), "<br>".join(lines)

    def dress(self) -> None:
        super().dress()
        c = colors()
        self._total.setOpts(brush=c.line, pen=pg.mkPen(c.card, width=1))
        for name, curve in self._curves.items():
            curve.setPen(pg.mkPen(getattr(c, _SERIES[name]), width=2))
        self._cut.setBrush(translucent(c.red, 28))
        self._cut.setHoverBrush(translucent(c.red, 28))
        focused = self.plot.hasFocus()
        self.line.setPen(pg.mkPen(c.accent if focused else c.text, width=3 if focused else 2))
        self.line.setHoverPen(pg.mkPen(c.accent, width=4))
        self._name.setColor(c.text)
        self._name.fill = pg.mkBrush(translucent(c.card, 200))

    def follow_now(self) -> None:
        self.redraw()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.plot:
            if isinstance(event, QKeyEvent) and event.key() in _DIRECTIONS and self.has_data:
                self._take_key(event)
                return True
            if event.type() in (QEvent.Type.FocusIn, QEvent.Type.FocusOut):
                self._key_down = False
                self.dress()
        return super().eventFilter(watched, event)

    def _take_key(self, event: QKeyEvent) -> None:
        """A key moves the line while it is held, and chooses when it is let go."""
        if event.type() == QEvent.Type.KeyPress:
            self._key_down = True
            low, high = self._edges[0], self._edges[-1]
            by = _DIRECTIONS[Qt.Key(event.key())] * (high - low) * _KEY_STEP
            by *= 10 if event.modifiers() & Qt.KeyboardModifier.ShiftModifier else 1
            target = self._tokens(float(self._at(np.array(self.max_length))) + by)
            if target == self.max_length:
                target += 1 if by > 0 else -1
            self._move(target)
        elif event.type() == QEvent.Type.KeyRelease and not event.isAutoRepeat():
            self._key_down = False
            self.chosen.emit(self.max_length)

    def _move(self, tokens: int) -> None:
        setting = SETTINGS["max_length"]
        self.max_length = int(min(max(tokens, setting.low or 1), setting.high or tokens))
        self._draw_line()
        self.moved.emit(self.max_length)

    def _draw_line(self) -> None:
        if not len(self._edges):
            return
        place = float(self._at(np.array(self.max_length)))
        beyond = place > self._edges[-1]
        shown = min(place, float(self._edges[-1]))  # a line out of sight could not be taken hold of
        self.line.setValue(shown)
        self._cut.setRegion((shown, float(self._edges[-1])))
        self._cut.setVisible(not beyond)
        arrow = " \N{RIGHTWARDS ARROW}" if beyond else ""
        self._name.setText(f"longest row {words.count(self.max_length)}{arrow}")
        right = shown > (self._edges[0] + self._edges[-1]) / 2
        self._name.setAnchor((1.04 if right else -0.04, 0))
        self._name.setPos(shown, self.plot.getViewBox().viewRange()[1][1])
        told = f"{self.title}, plot; the line at {words.plural(self.max_length, 'token')} moves by the arrow keys"
        self.plot.setAccessibleName(told)

    def _span(self) -> tuple[float, float]:
        """The ends of the axis: all rows, and the line where it is not far beyond them."""
        total = self._lengths.total
        longest = max(self._lengths.longest, 1)
        high = max(longest, min(self.max_length, _BEYOND * longest)) * 1.02
        if not self.log.isChecked():
            return 0.0, high
        return float(self._at(np.array(max(1, int(total.min()) // 2)))), float(self._at(np.array(high)))

    def _at(self, tokens: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
        """Where so many tokens stand on the axis."""
        found = tokens.astype(np.float64)
        return np.log10(np.maximum(found, 1)) if self.log.isChecked() else found

    def _tokens_of(self, places: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.power(10.0, places) if self.log.isChecked() else places

    def _tokens(self, place: float) -> int:
        return round(float(self._tokens_of(np.array(place))))


def _without_gaps(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Counts to draw as steps: NaN where there is nothing to either side, so that no line runs along the axis."""
    around = np.convolve(counts, [1, 1, 1], mode="same")
    return np.where(around > 0, counts, np.nan)
