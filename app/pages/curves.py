"""The upper half of the Training page: the loss, and with pairs how the model takes them."""

from __future__ import annotations

from PySide6.QtWidgets import QStackedWidget

from app.history import History
from app.plots.chart import side_by_side
from app.plots.curves import CurveChart
from app.plots.loss import LossChart
from app.plots.preference import MARGIN_UNITS, AccuracyChart, AnswersChart, MarginChart
from app.widgets.segmented import Segmented


class Curves(QStackedWidget):
    """One subject at a time; `tabs` choose it and are hidden while there is only the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.loss = LossChart()
        self.accuracy, self.margin = AccuracyChart(), MarginChart()
        self.answers = AnswersChart()
        self.charts: list[CurveChart] = [self.loss, self.accuracy, self.margin, self.answers]
        self._history = History()
        self._objective = ""
        for page in (self.loss, side_by_side(self.accuracy, self.margin), self.answers):
            self.addWidget(page)
        self.tabs = Segmented("What the chart shows", ["Loss", "Preference", "Both answers"], size=11)
        self.tabs.chosen.connect(self.setCurrentIndex)
        self.currentChanged.connect(self._draw)
        self.show_objective("sft")

    def show_objective(self, objective: str) -> None:
        """Offers what this objective tells."""
        if objective == self._objective:
            return
        self._objective = objective
        pairs = objective in MARGIN_UNITS
        self.tabs.setVisible(pairs)
        self.loss.promise_pairs(pairs)
        if pairs:
            self.margin.measure_in(MARGIN_UNITS[objective])
        else:
            self.tabs.show_choice(0)
            self.setCurrentIndex(0)

    def show_history(self, history: History) -> None:
        """Draws the charts in sight; the others when they come into sight."""
        self._history = history
        self._draw()

    def _draw(self) -> None:
        for chart in self.charts:
            if chart.isVisibleTo(self):
                chart.show_history(self._history)
