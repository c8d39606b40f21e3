"""How long the rows are, with a line to drag that says what cutting them there would cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from PySide6.QtCore import Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QWidget

from app import words
from app.forms import Field
from app.lengths import Cost, Lengths
from app.plots.lengths import LengthChart
from app.session import Session
from app.widgets.basics import Card, column, label, row
from engine.errors import EngineError
from engine.estimate import Plan

_NONE = Lengths(np.zeros(0, np.int32), np.zeros(0, np.int32))
_FIELD_WIDTH = 240
_WRONG = "\N{BLACK UP-POINTING TRIANGLE} "


class LengthsView(QWidget):
    """The chart, and below it what the line takes away where it stands now. Letting go of it sets `max_length`.

    Signals:
        failed(EngineError): the check's lengths can't be read.
    """

    failed = Signal(EngineError)

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._lengths = _NONE
        self._shown: object = None
        self.chart = LengthChart()
        self.chart.moved.connect(self._foretell)
        self.chart.chosen.connect(lambda tokens: session.change(max_length=tokens))
        self.chart.refused.connect(session.refused)
        self.field = Field(session, "max_length")
        self.field.setFixedWidth(_FIELD_WIDTH)
        self.values = {name: label("–", size=17, bold=True) for name in _FACTS}
        self.names = {name: label(name, size=11, secondary=True) for name in _FACTS}
        facts = row(spacing=16)
        for name, value in self.values.items():
            facts.addLayout(column(value, self.names[name], spacing=0), 1)
        self.facts = Card(row(self.field, None), facts, spacing=12)
        layout = column(self.chart, self.facts, spacing=16)
        layout.setStretch(0, 1)
        self.setLayout(layout)
        session.changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Shows the lengths of the last check and what the setting in force takes away."""
        check, limit = self._session.check.result, self._session.config.max_length
        if check is not self._shown:
            self._shown = check
            self._lengths = self._loaded(check.lengths) if check else _NONE
            self.chart.show_lengths(self._lengths, limit)
        elif limit != self.chart.max_length and not self.chart.held:
            self.chart.show_max_length(limit)
        if self.isVisible():  # else when it comes into sight
            self._foretell(self.chart.max_length)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._foretell(self.chart.max_length)

    def _loaded(self, path: str) -> Lengths:
        try:
            return Lengths.load(path) if path else _NONE
        except EngineError as error:
            self.failed.emit(error)
            return _NONE

    def _foretell(self, max_length: int) -> None:
        """What a longest row of so many tokens would take away."""
        session, check = self._session, self._session.check.result
        self.facts.setVisible(self.chart.has_data)
        if check is None or not self.chart.has_data:
            return
        self.field.editor.show_value(max_length)
        cost = self._lengths.cost(max_length, session.config, check)
        config = replace(session.config, max_length=max_length)
        plan = session.outlook.foresee(config, self._lengths.largest(max_length, config))
        texts = _texts(cost, len(self._lengths.prompt), self._lengths.tokens, plan, session.outlook.budget_bytes)
        for name, text in texts.items():
            self.values[name].setText(text)
            self.values[name].setAccessibleName(f"{self.names[name].text()}: {text}")
        self.names["peak"].setText(f"predicted of {words.memory(session.outlook.budget_bytes)}")


_FACTS = ("rows cut", "rows train nothing", "tokens lost", "steps", "peak")


def _texts(cost: Cost, rows: int, tokens: int, plan: Plan | None, budget: int) -> dict[str, str]:
    untrained = f"{_WRONG}{words.count(cost.rows_untrained)}" if cost.rows_untrained else "0"
    peak = "–"
    if plan:
        too_big = _WRONG if plan.peak_bytes > budget else ""
        peak = too_big + words.memory_beyond(plan.peak_bytes, budget)
    return {
        "rows cut": f"{words.count(cost.rows_cut)}{_share(cost.rows_cut, rows)}",
        "rows train nothing": untrained,
        "tokens lost": f"{words.count(cost.tokens_lost)}{_share(cost.tokens_lost, tokens)}",
        "steps": words.count(cost.steps),
        "peak": peak,
    }


def _share(part: int, whole: int) -> str:
    """A share in brackets, where there is one to speak of."""
    if not part:
        return ""
    return f" ({words.percent(part / whole)})" if part >= 0.005 * whole else " (under 1 %)"
