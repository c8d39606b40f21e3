"""Whether training fits this machine's memory, by prediction and by measurement."""

from __future__ import annotations

from app import words
from app.answers import Measured
from app.outlook import Outlook
from app.probing import Probing
from app.states import Standing, State
from engine.config import SETTINGS, TrainConfig
from engine.estimate import Plan


def fits(plan: Plan, measured: Measured | None, budget_bytes: int) -> bool:
    """Whether a plan is predicted to stay within the budget and no measurement says otherwise."""
    return plan.peak_bytes <= budget_bytes and (measured is None or _stays(measured, budget_bytes))


def memory_standing(config: TrainConfig, outlook: Outlook, probing: Probing) -> Standing:
    """How the Memory panel stands. What can't be predicted has to be measured before Start."""
    if outlook.unknown:
        return _measured_standing(config, outlook, probing)
    plan, budget = outlook.plan(config), outlook.budget_bytes
    if not outlook.plans:
        return Standing(State.NEEDS_YOU, "Predicted once there is a model.")
    if plan is not None and plan.peak_bytes <= budget:
        measured = probing.of_plan(config, plan)
        if fits(plan, measured, budget):
            return Standing(State.FITS)
        return Standing(State.TOO_BIG, "Measured, it takes more than there is: choose another Segment size.")
    if outlook.suggestion and outlook.suggestion.segment_size is not None:
        return Standing(State.TOO_BIG, "More than the budget: set Segment size to Auto, which fits.")
    least = min(one.peak_bytes for one in outlook.plans)
    cures = ["raise the budget"] if least <= outlook.machine.total_bytes else []
    # The first that is known to be enough by itself.
    cures += [f"change {SETTINGS[one.setting].label}" for one in outlook.remedies if one.fits][:1]
    cure = ", or ".join(cures or ["take a smaller model"])
    return Standing(State.TOO_BIG, f"Needs {words.memory_beyond(least, budget)} or more: {cure}.")


def _measured_standing(config: TrainConfig, outlook: Outlook, probing: Probing) -> Standing:
    size = config.segment_size
    answers = [one for one in probing.answers(config) if size in ("auto", one.segment_size)]
    if not answers:
        reason = "This model's memory can't be predicted: Start needs a measurement that fits. Press Measure."
        return Standing(State.NEEDS_YOU, reason)
    if any(_stays(one, outlook.budget_bytes) for one in answers):
        return Standing(State.FITS)
    setting = SETTINGS["batch_size" if config.batch_size > 1 else "max_length"].label
    return Standing(State.TOO_BIG, f"Measured, it takes more than the budget: raise it, or lower {setting}.")


def _stays(measured: Measured, budget_bytes: int) -> bool:
    return not measured.died and measured.measured_bytes <= budget_bytes
