"""Panel 4: what training may take of this machine's memory, and what it would take."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QCheckBox, QSlider

from app import words
from app.forms import Form
from app.panels.panel import Panel
from app.session import Session
from app.states import Standing
from app.theme import font
from app.widgets.basics import label, row
from app.widgets.legend import Legend
from app.widgets.planbars import PlanBars, part_named
from engine.config import GB, PAIR_OBJECTIVES
from engine.errors import EngineError
from engine.estimate import Plan

_BARS = 4
_TENTHS = 10  # the slider goes in tenths of a GB


class MemoryPanel(Panel):
    """The budget, a predicted bar for several segment sizes, and the suggestion with its reason."""

    def __init__(self, session: Session) -> None:
        super().__init__(session, 4, "Memory budget")
        self.machine = label(size=11, secondary=True, wrap=True)
        self.value = label(size=17, bold=True)
        self.auto = QCheckBox("Auto")
        self.auto.setFont(font())
        self.auto.setToolTip("Takes what is free on this machine now, with a margin")
        self.auto.setAccessibleName("Budget chosen by itself")
        self.auto.clicked.connect(self._set_auto)
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setAccessibleName("Memory budget in GB")
        self.slider.setRange(1, max(2, session.outlook.machine.total_bytes * _TENTHS // GB))
        self.slider.setPageStep(_TENTHS)
        self.slider.valueChanged.connect(self._set_budget)
        self.heading = label(size=11, secondary=True, wrap=True)
        self.bars = PlanBars()
        self.bars.chosen.connect(lambda size: self._change(segment_size=size))
        self.legend = Legend()
        self.suggestion = label(size=11, wrap=True)
        self.form = Form(session, "memory", leave_out=("memory_budget_gb",))
        self.body.addLayout(row(self.value, None, self.auto))
        for item in (
            self.slider,
            self.machine,
            self.heading,
            self.bars,
            self.legend,
            self.suggestion,
            self.form,
        ):
            self.body.addWidget(item)
        session.changed.connect(self.refresh)
        self.refresh()

    def standing(self) -> Standing:
        return self.session.memory()

    def refresh(self) -> None:
        super().refresh()
        outlook, config = self.session.outlook, self.session.config
        machine = outlook.machine
        total, free = words.memory(machine.total_bytes), words.memory(machine.available_bytes)
        self.machine.setText(f"{machine.name}: {total}, {free} free now.")
        self.value.setText(words.memory(outlook.budget_bytes))
        self.auto.setChecked(config.memory_budget_gb == "auto")
        self.slider.blockSignals(True)  # showing a value is not the person's wish for it
        self.slider.setValue(round(outlook.budget_bytes * _TENTHS / GB))
        self.slider.blockSignals(False)
        taken = outlook.plan(config)
        suggested = outlook.suggestion.segment_size if outlook.suggestion else None
        plans = _some(outlook.plans, {suggested, taken.segment_size if taken else None})
        self.bars.show_plans(plans, outlook.budget_bytes, suggested, taken.segment_size if taken else None)
        parts = [part_named(name) for name in dict.fromkeys(name for plan in plans for name in plan.parts)]
        self.legend.show_entries([(part.word, part.color, "square") for part in parts])
        self.legend.setToolTip("\n".join(f"{part.word}: {part.meaning}" for part in parts))
        self.legend.setAccessibleDescription(self.legend.toolTip())
        self.legend.setVisible(bool(parts))
        self._say(suggested)

    def _say(self, suggested: int | None) -> None:
        outlook = self.session.outlook
        if not outlook.plans:
            self.heading.setText(outlook.problem.message if outlook.problem else self.standing().reason)
            self.suggestion.hide()
            return
        tokens = words.plural(outlook.longest, "token")
        pairs = self.session.config.objective in PAIR_OBJECTIVES
        rows = f"pairs of up to {tokens}, both answers together" if pairs else f"rows of up to {tokens}"
        self.heading.setText(f"Prediction by segment size, for {rows}:")
        reason = outlook.suggestion.reason if outlook.suggestion else ""
        mark = "\N{CHECK MARK} Suggested. " if suggested is not None else ""
        self.suggestion.setText(mark + reason)
        self.suggestion.setVisible(bool(mark or reason))

    def _set_auto(self, wanted: bool) -> None:
        self._change(memory_budget_gb="auto" if wanted else self.slider.value() / _TENTHS)

    def _set_budget(self, tenths: int) -> None:
        self._change(memory_budget_gb=tenths / _TENTHS)

    def _change(self, **values: object) -> None:
        try:
            self.session.change(**values)
        except EngineError as error:
            self.session.refused.emit(error)


def _some(plans: list[Plan], wanted: set[int | None]) -> list[Plan]:
    """A few of the plans, largest segments first: the wanted ones, the leanest, and others spread evenly between."""
    ordered = plans[::-1]
    if len(ordered) <= _BARS:
        return ordered
    spread = {round(index * (len(ordered) - 1) / (_BARS - 1)) for index in range(_BARS)}
    leanest = min(ordered, key=lambda plan: plan.peak_bytes)
    wanted = {*wanted, leanest.segment_size}
    return [plan for index, plan in enumerate(ordered) if index in spread or plan.segment_size in wanted]
