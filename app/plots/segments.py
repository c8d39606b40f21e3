"""Memory by segment: one bar for each part of a step, in the order the parts run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import Qt

from app import words
from app.history import History
from app.plots.budget import BudgetLine
from app.plots.chart import Chart
from app.theme import colors, font
from app.widgets.planbars import part_named
from engine.config import GB
from engine.events import Phase

_WIDTH = 0.72
_LABELS = 24
# The head's name takes this part of the axis to either side of its bar.
_WORD = 15
# A name on top of a bar would run into a budget that is less than this share of the bar above it.
_NEAR = 0.2


class SegmentChart(Chart):
    """Draws the phases of a History's last step and its budget."""

    def __init__(self) -> None:
        self._history = History()
        self._bars = {name: pg.BarGraphItem(x=[], height=[], width=_WIDTH) for name in _PHASES}
        self._predicted = pg.PlotDataItem(connect="pairs")
        self.budget = BudgetLine()
        self._resting = pg.InfiniteLine(angle=0, movable=False)
        self._worst = pg.TextItem(anchor=(0.5, 1.0))
        super().__init__(
            "Memory by segment",
            "The peak memory of every part of a step: each segment of layers forward, "
            "the head, and each segment backward, against your budget and the prediction.",
            compact=True,
        )
        for item in (*self._bars.values(), self._predicted, self._resting, self._worst, *self.budget.items):
            self.plot.addItem(item, ignoreBounds=True)
        self.plot.setMouseEnabled(x=False, y=False)
        self.plot.setLabel("left", "GB")
        self.plot.getViewBox().sigResized.connect(lambda *_: self.redraw())  # the names over the bars need their room
        self._worst.setFont(font(11, bold=True))

    def show_history(self, history: History) -> None:
        self._history = history
        self.redraw()

    def redraw(self) -> None:
        phases = self._history.phases
        if not phases:
            self.show_data(False)
            return
        peaks = [self._history.measured_bytes(phase) for phase in phases]
        predicted = [sum(self._history.predicted_parts(phase).values()) for phase in phases]
        for name, bars in self._bars.items():
            places = [index for index, phase in enumerate(phases) if phase.name == name]
            bars.setOpts(x=places, height=[peaks[index] / GB for index in places], width=_WIDTH)
        worst = max(range(len(phases)), key=lambda index: peaks[index])
        self.value.setText(words.memory(peaks[worst]))
        place = f"peak in {phase_name(phases[worst])} of the last step"
        self.value.setAccessibleName(f"{self.title}: {words.memory(peaks[worst])}, {place}")
        self.note.setText(place)
        present = {phase.name for phase in phases}
        entries = [(name, name, "square") for name in _PHASES if name in present]
        entries += [("predicted", "text", "line")] * any(predicted)
        self.legend.show_entries([*entries, ("at rest", "secondary", "dash")])
        self._name_bars(phases)
        self._mark_predicted(predicted)
        self._scale(peaks, max(predicted), worst)
        self._name_worst(worst, peaks, predicted[worst])
        self.show_data(True)

    def contents(self) -> tuple[list[str], Sequence[Sequence[object]]]:
        history = self._history
        return ["part", "segment", "measured, GB", "predicted, GB"], [
            (
                phase.name,
                "" if phase.name == "head" else phase.segment + 1,
                history.measured_bytes(phase) / GB,
                sum(history.predicted_parts(phase).values()) / GB or "",
            )
            for phase in history.phases
        ]

    def describe(self, x: float) -> tuple[float, str] | None:
        phases, index = self._history.phases, round(x)
        if not 0 <= index < len(phases):
            return None
        step = self._history.last.step if self._history.last else 0
        phase = phases[index]
        measured = self._history.measured_bytes(phase)
        lines = [f"<b>{phase_name(phase)}</b>", f"measured {words.memory(measured)} at step {words.count(step)}"]
        if parts := self._history.predicted_parts(phase):
            lines.append(_prediction(sum(parts.values()), measured))
            lines += [_part_line(name, size) for name, size in parts.items() if size]
        return float(index), "<br>".join(lines)

    def dress(self) -> None:
        super().dress()
        c = colors()
        for name, bars in self._bars.items():
            bars.setOpts(brush=getattr(c, name), pen=pg.mkPen(None))
        self._predicted.setPen(pg.mkPen(c.text, width=2))
        self._resting.setPen(pg.mkPen(c.secondary, width=1, style=Qt.PenStyle.DotLine))
        self._worst.setColor(c.text)
        self.budget.dress()

    def follow_now(self) -> None:
        self.redraw()

    def _name_bars(self, phases: list[Phase]) -> None:
        every = max(1, -(-len(phases) // _LABELS))
        # The word needs the room of so many bars to either side.
        room = len(phases) // _WORD
        heads = [index for index, phase in enumerate(phases) if phase.name == "head"]
        ticks = [
            (index, _PHASES[phase.name] if index in heads else str(phase.segment + 1))
            for index, phase in enumerate(phases)
            if index in heads or (phase.segment % every == 0 and all(abs(index - head) > room for head in heads))
        ]
        self.plot.getAxis("bottom").setTicks([ticks])

    def _mark_predicted(self, predicted: list[int]) -> None:
        """A line across each bar, as high as the bar should be."""
        marked = np.array([index for index, size in enumerate(predicted) if size], dtype=np.float64)
        heights = np.array([size / GB for size in predicted if size])
        ends = np.stack([marked - _WIDTH / 2, marked + _WIDTH / 2], axis=1)
        self._predicted.setData(ends.ravel(), np.repeat(heights, 2))

    def _scale(self, peaks: list[int], predicted: int, worst: int) -> None:
        history, edges = self._history, (-0.4, len(peaks) - 0.6)
        self.plot.setXRange(-0.6, len(peaks) - 0.4, padding=0.01)
        side = 0 if worst > (len(peaks) - 1) / 2 else 1  # where the worst bar's name is not
        self.budget.draw(self.plot, history.budget_bytes, max(*peaks, predicted), edges[side], side)
        self._resting.setVisible(0 < history.resting_bytes < max(peaks))
        self._resting.setValue(history.resting_bytes / GB)

    def _name_worst(self, worst: int, peaks: list[int], predicted: int) -> None:
        """Writes the worst bar's name on top of it."""
        top, budget = max(peaks[worst], predicted), self._history.budget_bytes
        self._worst.setText(f"worst {words.memory(peaks[worst])}")
        self._worst.setAnchor((min(0.9, max(0.1, worst / max(1, len(peaks) - 1))), 1.0))
        self._worst.setPos(worst, (budget if top < budget < (1 + _NEAR) * top else top) / GB)


# In step order, each with its word on the axis.
_PHASES = {"forward": "forward", "head": "head", "backward": "backward"}


def phase_name(phase: Phase) -> str:
    """ "forward 3" or "head"; segments count from one, as people do."""
    return phase.name if phase.name == "head" else f"{phase.name} {phase.segment + 1}"


def _prediction(predicted: int, measured: int) -> str:
    """A prediction, and by how much it was off where that shows."""
    off = round(100 * (predicted / measured - 1)) if measured else 0
    note = f", {abs(off)} % {'higher' if off > 0 else 'lower'}" if off else ""
    return f"predicted {words.memory(predicted)}{note}:"


def _part_line(name: str, size: int) -> str:
    """A part of the prediction: its colour, its word and its size, as a line of rich text."""
    part = part_named(name)
    return f'<span style="color:{part.color}">\N{BLACK SQUARE}</span> {part.word} {words.memory(size)}'
