"""Panel 4: what training may take of this machine's memory, what it would take, and what it was measured to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QCheckBox, QSlider

from app import words
from app.forms import Form
from app.panels.cures import Cures
from app.panels.measuring import Measuring
from app.panels.panel import Panel
from app.session import Session
from app.states import Standing
from app.theme import font
from app.widgets.basics import button, label, row
from app.widgets.choices import Choices
from app.widgets.legend import Legend
from app.widgets.planbars import PlanBars, part_named
from app.widgets.plantable import PlanTable
from engine.calibration import NO_CORRECTION
from engine.config import GB, PAIR_OBJECTIVES
from engine.errors import EngineError
from engine.estimate import Plan
from engine.machine import Machine

_BARS = 4
_TENTHS = 10  # the slider goes in tenths of a GB
_MEASURE = "Takes two real steps on your longest rows, to see what they need. Nothing is kept of what is learned"


class MemoryPanel(Panel):
    """The budget, the machine, a predicted bar for several segment sizes, the suggestion, and measuring."""

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
        self.bars, self.table = PlanBars(), PlanTable()
        for picture in (self.bars, self.table):
            picture.chosen.connect(lambda size: self._change(segment_size=size))
        self.legend = Legend()
        self.suggestion = label(size=11, wrap=True)
        self.use = button(
            "Use suggestion",
            lambda: self._change(segment_size="auto"),
            help="Sets Segment size back to Auto: the suggested one, also when it changes with other settings",
        )
        self.measure = button("Measure", session.measure)
        self.table_button = button("Table", role="toggle", help="All segment sizes and their parts as a table")
        self.table_button.toggled.connect(lambda: self.refresh())
        self.measuring = Measuring(session)
        self.cures = Cures()
        self.cures.applied.connect(lambda remedy: self._change(**{remedy.setting: remedy.value}))
        self.form = Form(session, "memory", leave_out=("memory_budget_gb",))
        self.body.addLayout(row(self.value, None, self.auto))
        self.body.addWidget(self.slider)
        self.body.addWidget(self.machine)
        head = row(self.heading, self.table_button)
        head.setStretch(0, 1)
        head.setAlignment(self.table_button, Qt.AlignmentFlag.AlignTop)
        self.body.addLayout(head)
        for item in (self.bars, self.table, self.legend, self.suggestion):
            self.body.addWidget(item)
        self.body.addLayout(row(self.measure, self.use, None))
        for below in (self.measuring, self.cures, self.form):
            self.body.addWidget(below)
        session.changed.connect(self.refresh)
        self.refresh()

    def standing(self) -> Standing:
        return self.session.memory()

    def refresh(self) -> None:
        super().refresh()
        outlook, config = self.session.outlook, self.session.config
        self.machine.setText(machine_words(outlook.machine, outlook.budget_bytes))
        self.value.setText(words.memory(outlook.budget_bytes))
        self.auto.setChecked(config.memory_budget_gb == "auto")
        self.slider.blockSignals(True)  # showing a value is not the person's wish for it
        self.slider.setValue(round(outlook.budget_bytes * _TENTHS / GB))
        self.slider.blockSignals(False)
        choices = self._choices()
        self._show_plans(choices)
        self._say(choices.suggested)
        self.use.setVisible(choices.suggested is not None and choices.taken != choices.suggested)
        self.cures.show_remedies(outlook.remedies)
        self._show_measuring()

    def _choices(self) -> Choices:
        outlook, config, probing = self.session.outlook, self.session.config, self.session.probing
        taken = outlook.plan(config)
        found = {plan.segment_size: probing.of_plan(config, plan) for plan in outlook.plans}
        return Choices(
            plans=outlook.plans[::-1],
            budget_bytes=outlook.budget_bytes,
            suggested=outlook.suggestion.segment_size if outlook.suggestion else None,
            taken=taken.segment_size if taken else None,
            measured={size: one for size, one in found.items() if one},
        )

    def _show_plans(self, choices: Choices) -> None:
        bars = replace(choices, plans=_some(choices))
        as_table = self.table_button.isChecked()
        self.bars.show_choices(bars)
        if as_table:  # it makes its lines anew
            self.table.show_choices(choices)
        self.bars.setVisible(bool(bars.plans) and not as_table)
        self.table.setVisible(bool(bars.plans) and as_table)
        self.table_button.setVisible(bool(bars.plans))
        parts = [part_named(name) for name in dict.fromkeys(name for plan in bars.plans for name in plan.parts)]
        marks = [("budget", "text", "dash")]
        marks += [("\N{BLACK DOWN-POINTING SMALL TRIANGLE} measured", "text", "plain")] * any(
            one.measured_bytes for one in bars.measured.values()
        )
        self.legend.show_entries([*((part.word, part.color, "square") for part in parts), *marks])
        self.legend.setToolTip("\n".join(f"{part.word}: {part.meaning}" for part in parts))
        self.legend.setAccessibleDescription(self.legend.toolTip())
        self.legend.setVisible(bool(parts) and not as_table)

    def _show_measuring(self) -> None:
        blocker = self.session.measure_blocker()
        self.measure.setEnabled(blocker is None)
        self.measure.setToolTip(blocker.reason if blocker else _MEASURE)
        self.measure.setAccessibleDescription(self.measure.toolTip())
        self.measuring.refresh()

    def _say(self, suggested: int | None) -> None:
        outlook = self.session.outlook
        if not outlook.plans:
            standing = self.standing()
            self.heading.setText(str(outlook.problem) if outlook.problem else standing.reason)
            start = "" if standing.state.good else "Start needs a measurement that fits."
            self.suggestion.setText(start if outlook.unknown else "")
            self.suggestion.setVisible(bool(self.suggestion.text()))
            return
        tokens = words.plural(outlook.longest, "token")
        pairs = self.session.config.objective in PAIR_OBJECTIVES
        rows = f"pairs of up to {tokens}, both answers together" if pairs else f"rows of up to {tokens}"
        corrected = "" if outlook.correction == NO_CORRECTION else ", corrected by a measurement here"
        self.heading.setText(f"Prediction by segment size, for {rows}{corrected}:")
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


def machine_words(machine: Machine, budget_bytes: int = 0) -> str:
    """This machine's memory now, in a sentence or two, and where the budget is more than there is of it."""
    total, free = words.memory(machine.total_bytes), words.memory(machine.available_bytes)
    held = words.memory(machine.total_bytes - machine.available_bytes)
    sentences = [f"{machine.name}: {total}, {held} in use, {free} free now."]
    if machine.working_set_bytes < machine.total_bytes:
        sentences.append(f"Its GPU should hold {words.memory(machine.working_set_bytes)} at most.")
    if machine.swap_bytes:
        sentences.append(f"{words.memory(machine.swap_bytes)} swapped to disk.")
    if budget_bytes > machine.total_bytes:
        sentences.append("\N{BLACK UP-POINTING TRIANGLE} The budget is more than there is.")
    return " ".join(sentences)


def _some(choices: Choices) -> Sequence[Plan]:
    """A few of the plans: the wanted ones, the measured, the leanest, and others spread evenly between."""
    plans = choices.plans
    if len(plans) <= _BARS:
        return plans
    spread = {round(index * (len(plans) - 1) / (_BARS - 1)) for index in range(_BARS)}
    leanest = min(plans, key=lambda plan: plan.peak_bytes)
    wanted = {choices.suggested, choices.taken, leanest.segment_size, *choices.measured}
    return [plan for index, plan in enumerate(plans) if index in spread or plan.segment_size in wanted]
