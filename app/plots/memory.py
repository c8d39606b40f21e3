"""Memory over time: what training takes as it goes, against the budget and the prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import Qt

from app import words
from app.history import History
from app.plots.budget import BudgetLine
from app.plots.chart import Chart
from app.theme import colors
from engine.config import GB

# Swap comes and goes by itself in amounts smaller than this.
_SWAP_GROWTH = 0.1 * GB


class _Value(NamedTuple):
    """A value of Step, the word and the longer words for it, and how it is drawn."""

    name: str
    word: str
    meaning: str
    color: str
    width: int


_VALUES = (
    _Value("process_bytes", "process", "all that training takes", "train", 2),
    _Value("peak_bytes", "peak", "arrays at the peak of the step", "backward", 1),
    _Value("active_bytes", "active", "arrays after the step", "valid", 1),
    _Value("cache_bytes", "cache", "kept for the next arrays", "secondary", 1),
)


class MemoryChart(Chart):
    """Draws what the steps of a History took, over the time they took."""

    def __init__(self) -> None:
        self._history = History()
        self._lines = {value.name: pg.PlotDataItem(symbolSize=6, symbolPen=None) for value in _VALUES}
        self._predicted = pg.InfiniteLine(angle=0, movable=False)
        self.budget = BudgetLine()
        super().__init__(
            "Memory over time",
            "What training takes as it goes: the whole process, its arrays at the peak of each step and after it, "
            "and what is kept for the next ones, against your budget and the prediction.",
            compact=True,
        )
        for line in reversed(self._lines.values()):  # the process last, over the others
            self.plot.addItem(line)
        for item in (self._predicted, *self.budget.items):
            self.plot.addItem(item, ignoreBounds=True)
        self.plot.setDownsampling(auto=True, mode="peak")
        self.plot.setClipToView(True)
        self.plot.setLabel("left", "GB")
        self.plot.getViewBox().sigResized.connect(lambda *_: self.redraw())  # the name of the budget needs its room

    def show_history(self, history: History) -> None:
        self._history = history
        self.redraw()

    def redraw(self) -> None:
        history = self._history
        seconds = history.elapsed
        if not len(seconds):
            self.show_data(False)
            return
        unit, name = _unit(seconds[-1])
        for value in _VALUES:
            line = self._lines[value.name]
            line.setSymbol("o" if len(seconds) == 1 else None)  # one point makes no line
            line.setData(seconds / unit, history[value.name] / GB)
        self.plot.setLabel("bottom", f"{name} of training")
        now = words.memory(history["process_bytes"][-1])
        self.value.setText(now)
        self.value.setAccessibleName(f"{self.title}: the process holds {now} at step {int(history['step'][-1])}")
        self.note.setText(self._note())
        self.legend.show_entries(self._entries())
        if self.follow.isHidden():
            self._follow_values(seconds[-1] / unit)
        self.show_data(True)

    def contents(self) -> tuple[list[str], Sequence[Sequence[object]]]:
        history = self._history
        stored = [history[value.name] / GB for value in _VALUES] + [history["swap_bytes"] / GB]
        columns = [values.tolist() for values in (history.elapsed, *stored)]
        names = ["step", "time, s", *(f"{value.word}, GB" for value in _VALUES), "swap in use, GB"]
        return names, list(zip(history["step"].astype(int).tolist(), *columns, strict=True))

    def describe(self, x: float) -> tuple[float, str] | None:
        history = self._history
        seconds = history.elapsed
        if not len(seconds):
            return None
        unit, _ = _unit(seconds[-1])
        at = int(np.abs(seconds - x * unit).argmin())
        lines = [f"step {words.count(int(history['step'][at]))}, after {words.duration(seconds[at])}"]
        lines += [f"{value.word} {words.memory(history[value.name][at])}: {value.meaning}" for value in _VALUES]
        lines.append(f"swap in use {words.memory(history['swap_bytes'][at])}: on the whole machine")
        return float(seconds[at] / unit), "\n".join(lines)

    def dress(self) -> None:
        super().dress()
        c = colors()
        for value in _VALUES:
            line = self._lines[value.name]
            line.setPen(pg.mkPen(getattr(c, value.color), width=value.width))
            line.setSymbolBrush(getattr(c, value.color))
        self._predicted.setPen(pg.mkPen(c.text, width=1, style=Qt.PenStyle.DotLine))
        self.budget.dress()

    def follow_now(self) -> None:
        self.redraw()

    def _follow_values(self, end: float) -> None:
        highest = max(float(self._history[name].max()) for name in ("process_bytes", "peak_bytes"))
        self.plot.setXRange(0, end, padding=0.01)
        predicted = self._history.predicted_peak_bytes
        self.budget.draw(self.plot, self._history.budget_bytes, max(highest, predicted), end)
        self._predicted.setVisible(predicted > 0)
        self._predicted.setValue(predicted / GB)

    def _note(self) -> str:
        process, swap = self._history["process_bytes"], self._history["swap_bytes"]
        highest = int(process.argmax())
        note = f"highest {words.memory(process[highest])}"
        if swap[-1] - swap[0] >= _SWAP_GROWTH:
            return f"{note}; the machine's swap grew by {words.memory(swap[-1] - swap[0])}"
        return f"{note} at step {words.count(int(self._history['step'][highest]))}"

    def _entries(self) -> list[tuple[str, str, str]]:
        entries = [(value.word, value.color, "line") for value in _VALUES]
        predicted = self._history.predicted_peak_bytes
        return entries + [(f"predicted {words.memory(predicted)}", "text", "dash")] * (predicted > 0)


def _unit(seconds: float) -> tuple[int, str]:
    """The unit of time that suits so many seconds: its length in seconds, and its name."""
    if seconds < 3 * 60:
        return 1, "seconds"
    return (60, "minutes") if seconds < 3 * 3600 else (3600, "hours")
