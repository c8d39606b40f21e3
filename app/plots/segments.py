"""Memory by segment: one bar for each part of a step, in the order the parts run."""

from __future__ import annotations

from collections.abc import Sequence

import pyqtgraph as pg
from PySide6.QtCore import Qt

from app import words
from app.history import History
from app.plots.chart import Chart
from app.theme import colors, font
from engine.config import GB
from engine.events import Phase

_WIDTH = 0.72
# The budget is drawn to scale up to this many times the worst peak; beyond it would flatten the bars.
_REACH = 2.5
_LABELS = 24


class SegmentChart(Chart):
    """Draws the phases of a History's last step and its budget."""

    def __init__(self) -> None:
        self._history = History()
        self._bars = {name: pg.BarGraphItem(x=[], height=[], width=_WIDTH) for name in _PHASES}
        self._budget = pg.InfiniteLine(angle=0, movable=False)
        self._resting = pg.InfiniteLine(angle=0, movable=False)
        self._worst = pg.TextItem(anchor=(0.5, 1.0))
        self._budget_name = pg.TextItem(anchor=(1.0, 1.0))
        super().__init__(
            "Memory by segment",
            "The peak memory of every part of a step: each segment of layers forward,\n"
            "the head, and each segment backward, against your budget.",
        )
        for item in (*self._bars.values(), self._budget, self._resting, self._worst, self._budget_name):
            self.plot.addItem(item, ignoreBounds=True)
        self.plot.setMouseEnabled(x=False, y=False)
        self.plot.setLabel("left", "GB")
        self._worst.setFont(font(11, bold=True))
        self._budget_name.setFont(font(11))

    def show_history(self, history: History) -> None:
        self._history = history
        self.redraw()

    def redraw(self) -> None:
        phases = self._history.phases
        if not phases:
            self.show_data(False)
            return
        for name, bars in self._bars.items():
            places = [index for index, phase in enumerate(phases) if phase.name == name]
            bars.setOpts(x=places, height=[phases[index].peak_bytes / GB for index in places], width=_WIDTH)
        worst = max(range(len(phases)), key=lambda index: phases[index].peak_bytes)
        peak = phases[worst].peak_bytes
        self.value.setText(words.memory(peak))
        self.note.setText(f"peak in {phase_name(phases[worst])} of the last step")
        present = {phase.name for phase in phases}
        entries = [(name, name, "square") for name in _PHASES if name in present]
        self.legend.show_entries([*entries, ("model at rest", "secondary", "dash")])
        self._name_bars(phases)
        self._scale(len(phases), worst, peak)
        self.show_data(True)

    def contents(self) -> tuple[list[str], Sequence[Sequence[object]]]:
        return ["part", "segment", "peak_bytes", "peak"], [
            (phase.name, "" if phase.name == "head" else phase.segment + 1, phase.peak_bytes,
             words.memory(phase.peak_bytes))
            for phase in self._history.phases
        ]  # fmt: skip

    def describe(self, x: float) -> tuple[float, str] | None:
        phases, index = self._history.phases, round(x)
        if not 0 <= index < len(phases):
            return None
        step = self._history.last.step if self._history.last else 0
        phase = phases[index]
        return float(index), f"{phase_name(phase)}\n{words.memory(phase.peak_bytes)} at step {step}"

    def dress(self) -> None:
        super().dress()
        c = colors()
        for name, bars in self._bars.items():
            bars.setOpts(brush=getattr(c, name), pen=pg.mkPen(None))
        self._budget.setPen(pg.mkPen(c.text, width=1, style=Qt.PenStyle.DashLine))
        self._resting.setPen(pg.mkPen(c.secondary, width=1, style=Qt.PenStyle.DotLine))
        self._worst.setColor(c.text)
        self._budget_name.setColor(c.secondary)

    def follow_now(self) -> None:
        self.redraw()

    def _name_bars(self, phases: list[Phase]) -> None:
        every = max(1, -(-len(phases) // _LABELS))
        ticks = [
            (index, _PHASES[phase.name] if phase.name == "head" else str(phase.segment + 1))
            for index, phase in enumerate(phases)
            if phase.name == "head" or phase.segment % every == 0
        ]
        self.plot.getAxis("bottom").setTicks([ticks])

    def _scale(self, bars: int, worst: int, peak: int) -> None:
        started = self._history.started
        budget = started.budget_bytes if started else 0
        in_sight = 0 < budget <= _REACH * peak
        top = (budget if in_sight and budget > peak else peak) / GB * 1.22
        self.plot.setXRange(-0.6, bars - 0.4, padding=0.01)
        self.plot.setYRange(0, top, padding=0)
        self._worst.setText(f"worst {words.memory(peak)}")
        self._worst.setAnchor((min(0.9, max(0.1, worst / max(1, bars - 1))), 1.0))
        self._worst.setPos(worst, peak / GB)
        self._budget.setVisible(in_sight)
        self._budget.setValue(budget / GB)
        self._budget_name.setVisible(budget > 0)
        self._budget_name.setText(f"budget {words.memory(budget)}" + ("" if in_sight else " \N{UPWARDS ARROW}"))
        self._budget_name.setAnchor((1.0, 1.0 if in_sight else 0.0))
        self._budget_name.setPos(bars - 0.4, budget / GB if in_sight else top)
        resting = started.resting_bytes if started else 0
        self._resting.setVisible(0 < resting < peak)
        self._resting.setValue(resting / GB)


# In step order, each with its word on the axis.
_PHASES = {"forward": "forward", "head": "head", "backward": "backward"}


def phase_name(phase: Phase) -> str:
    """ "forward 3" or "head"; segments count from one, as people do."""
    return phase.name if phase.name == "head" else f"{phase.name} {phase.segment + 1}"
