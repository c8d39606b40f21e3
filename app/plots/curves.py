"""Values over the steps: as trained, smoothed, and on the rows set aside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import Qt

from app.history import History
from app.plots.chart import Chart, translucent
from app.theme import colors
from app.widgets.basics import button

# The axis shows the whole run from the start; a run shorter than this would have fractions of steps on it.
_FEW = 10

# A word, a colour and a shape, as Legend takes them.
Entry = tuple[str, str, str]


@dataclass(frozen=True)
class Curve:
    """A value of History and its colours, fields of Colors. `words` name it as trained, smoothed, measured."""

    name: str
    color: str = "train"
    measured_color: str = "valid"
    words: tuple[str, str, str] = ("train", "smoothed", "validation")


class CurveChart(Chart):
    """Draws curves of a History against the steps.

    `scale` leads from a stored value to the one on the axis, in `unit`; `write` says a stored value in words.
    `level` is a stored value that means something, such as the accuracy of a guess, with its word.
    """

    def __init__(
        self,
        title: str,
        promise: str,
        *curves: Curve,
        write: Callable[[float], str],
        scale: float = 1.0,
        unit: str = "",
        level: tuple[float, str] | None = None,
        compact: bool = False,
    ) -> None:
        self.history = History()
        self.curves = curves
        self.write = write
        self._scale, self._level = scale, level
        self._raw = [pg.PlotDataItem(connect="finite", symbolSize=6, symbolPen=None) for _ in curves]
        self._smooth = [pg.PlotDataItem(connect="finite") for _ in curves]
        self._measured = [pg.PlotDataItem(symbol="o", symbolSize=6) for _ in curves]
        self._level_line = pg.InfiniteLine(angle=0, movable=False)
        super().__init__(title, promise, compact=compact)
        for item in (*self._raw, *self._smooth, *self._measured):
            self.plot.addItem(item)
        if level is not None:
            self._level_line.setValue(level[0] * scale)
            self.plot.addItem(self._level_line)  # within the bounds: it is always in sight
        self.plot.setDownsampling(auto=True, mode="peak")
        self.plot.setClipToView(True)
        self.plot.enableAutoRange(axis="y")
        self.plot.setLabel("bottom", "step")
        self.measure_in(unit)
        self.smooth = button("Smooth", role="toggle", help="Adds the mean of about the last ten steps")
        self.smooth.setChecked(True)
        self.smooth.toggled.connect(self.redraw)
        self.tools.insertWidget(0, self.smooth)

    def measure_in(self, unit: str) -> None:
        """Names the unit on the axis and in the table."""
        self._unit = unit
        if unit:
            self.plot.setLabel("left", unit)

    def show_history(self, history: History) -> None:
        self.history = history
        self.redraw()

    def redraw(self) -> None:
        history = self.history
        steps, measured_steps = history["step"], history.measured("step")
        there_is_any = bool(len(history[self.curves[0].name]))
        if there_is_any:
            for curve, raw, smooth, measured in zip(self.curves, self._raw, self._smooth, self._measured, strict=True):
                raw.setData(steps, history[curve.name] * self._scale)
                raw.setSymbol("o" if len(steps) == 1 else None)  # one point makes no line
                raw.setPen(self._raw_pen(curve))
                smooth.setData(steps, history.smoothed(curve.name) * self._scale)
                smooth.setVisible(self.smooth.isChecked())
                measured.setData(measured_steps, history.measured(curve.name) * self._scale)
            self.value.setText(self.headline())
            self.value.setAccessibleName(f"{self.title} {self.headline()} at step {int(steps[-1])}")
            entries = self.entries() + ([(self._level[1], "secondary", "dash")] if self._level else [])
            self.legend.show_entries(entries)
        if not self.follow.isVisible():
            self.plot.setXRange(0, max(_FEW, history.steps, len(steps)), padding=0.01)
        self.show_data(there_is_any)

    def headline(self) -> str:
        """The present value, large beside the title."""
        return self.write(self.history[self.curves[0].name][-1])

    def entries(self) -> list[Entry]:
        """The legend: the raw line steps back where there is a smoothed one."""
        (curve,) = self.curves
        train, smoothed, validation = curve.words
        found = [(train, curve.color, "line")]
        if self.smooth.isChecked():
            found = [(train, curve.color, "thin"), (smoothed, curve.color, "line")]
        if len(measured := self.history.measured(curve.name)):
            found.append((f"{validation} {self.write(measured[-1])}", curve.measured_color, "line"))
        return found

    def contents(self) -> tuple[list[str], Sequence[Sequence[object]]]:
        history = self.history
        steps, measured_steps = history["step"].tolist(), history.measured("step").tolist()
        names, columns = ["step"], []
        for curve in self.curves:
            values = (history[curve.name], history.smoothed(curve.name), history.measured(curve.name))
            for word, found, at in zip(curve.words, values, (steps, steps, measured_steps), strict=True):
                names.append(f"{word}, {self._unit}" if self._unit else word)
                columns.append(dict(zip(at, (found * self._scale).tolist(), strict=True)))
        return names, [
            (int(step), *(column.get(step, "") for column in columns)) for step in sorted({*steps, *measured_steps})
        ]

    def describe(self, x: float) -> tuple[float, str] | None:
        history = self.history
        steps, measured = history["step"], history.measured("step")
        if not len(steps):
            return None
        at = int(np.abs(steps - x).argmin())
        lines = [f"step {int(steps[at])}"]
        for curve in self.curves:
            train, smoothed, validation = curve.words
            lines.append(f"{train} {self.write(history[curve.name][at])}")
            lines.append(f"{smoothed} {self.write(history.smoothed(curve.name)[at])}")
            if len(measured):
                near = int(np.abs(measured - steps[at]).argmin())
                value = self.write(history.measured(curve.name)[near])
                lines.append(f"{validation} {value} at step {int(measured[near])}")
        return float(steps[at]), "\n".join(lines)

    def follow_now(self) -> None:
        self.plot.enableAutoRange(axis="y")

    def dress(self) -> None:
        super().dress()
        c = colors()
        self._level_line.setPen(pg.mkPen(c.secondary, width=1, style=Qt.PenStyle.DotLine))
        for curve, raw, smooth, measured in zip(self.curves, self._raw, self._smooth, self._measured, strict=True):
            raw.setPen(self._raw_pen(curve))
            raw.setSymbolBrush(getattr(c, curve.color))
            smooth.setPen(pg.mkPen(getattr(c, curve.color), width=2))
            # Points alone where a line between them would look like the trained one.
            own_color = curve.measured_color != curve.color
            measured.setPen(pg.mkPen(getattr(c, curve.measured_color), width=2) if own_color else None)
            measured.setSymbolBrush(getattr(c, curve.measured_color))
            measured.setSymbolPen(None)

    def _raw_pen(self, curve: Curve) -> object:
        smoothed = hasattr(self, "smooth") and self.smooth.isChecked()
        return pg.mkPen(translucent(getattr(colors(), curve.color), 110 if smoothed else 255), width=1)
