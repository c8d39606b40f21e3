"""The budget in a plot of memory: a dashed line with its name."""

from __future__ import annotations

import pyqtgraph as pg
from PySide6.QtCore import Qt

from app import words
from app.plots.chart import translucent
from app.theme import colors, font
from engine.config import GB

# The budget is drawn to scale up to this many times the highest value; beyond it would flatten the others.
_REACH = 2.5
# Pixels over what is highest: a line of text stands there.
_HEADROOM = 20


class BudgetLine:
    """Drawn to scale where that leaves the values room; beyond, its name alone points up. A plot takes its `items`."""

    def __init__(self) -> None:
        self.line = pg.InfiniteLine(angle=0, movable=False)
        self.name = pg.TextItem()
        self.name.setFont(font(11))
        self.items = (self.line, self.name)

    def draw(self, plot: pg.PlotWidget, budget: float, highest: float, edge: float, side: float = 1.0) -> None:
        """Scales the plot to `budget` and `highest`, bytes.

        The name ends at `edge` of the other axis; with `side` 0 it begins there.
        """
        in_sight = 0 < budget <= _REACH * highest
        room = max(plot.getViewBox().height(), 2 * _HEADROOM)
        top = (max(budget, highest) if in_sight else highest) / GB * room / (room - _HEADROOM)
        plot.setYRange(0, top, padding=0)
        self.line.setVisible(in_sight)
        self.line.setValue(budget / GB)
        self.name.setVisible(budget > 0)
        self.name.setText(f"budget {words.memory(budget)}" + ("" if in_sight else " \N{UPWARDS ARROW}"))
        self.name.setAnchor((side, 1.0 if in_sight else 0.0))
        self.name.setPos(edge, budget / GB if in_sight else top)

    def dress(self) -> None:
        """Takes the colours in force."""
        self.line.setPen(pg.mkPen(colors().text, width=1, style=Qt.PenStyle.DashLine))
        self.name.setColor(colors().secondary)
        self.name.fill = pg.mkBrush(translucent(colors().card, 200))  # where it stands before bars or curves
