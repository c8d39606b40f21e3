"""Predicted memory of a run, from the model's config and safetensors headers alone, and the segment size that fits.

Plain Python: the window moves its bars with it, without MLX and without loading a weight. All sizes are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from engine.architecture import Architecture, architecture_of
from engine.calibration import NO_CORRECTION, Correction, correction_for
from engine.config import GB, TrainConfig
from engine.errors import EngineError
from engine.events import Predicted
from engine.machine import budget_bytes, machine
from engine.models.folder import ModelFolder
from engine.peaks import Sizes, phases
from engine.plans import Variant, cost, row_limit, segment_sizes, variants


@dataclass(frozen=True)
class Case:
    """What plans are made for: a model, settings, rows of up to `longest` tokens, a budget, and what was measured."""

    shape: Architecture
    config: TrainConfig
    longest: int
    budget_bytes: int
    correction: Correction = NO_CORRECTION


@dataclass(frozen=True)
class Plan:
    """A way to walk a step, its `cost` in time against other plans, and what its phases take before any correction."""

    variant: Variant
    cost: float
    phases: tuple[Predicted, ...]
    correction: Correction = NO_CORRECTION
    ahead_bytes: int = 0  # by how much MLX ends above its limit

    @property
    def segment_size(self) -> int:
        return self.variant.segment_size

    @property
    def kind(self) -> str:
        """How it walks: see Variant."""
        return self.variant.kind

    @property
    def predicted(self) -> list[Predicted]:
        """What each phase is predicted to take."""
        return [replace(phase, parts=self.correction.applied(self.kind, phase.parts)) for phase in self.phases]

    @cached_property
    def parts(self) -> dict[str, int]:
        """What the phase that takes most is made of."""
        # A correction grows with what comes and goes, so the worst phase stays the worst.
        worst = max((phase.parts for phase in self.phases), key=lambda parts: sum(parts.values()))
        return self.correction.applied(self.kind, worst)

    @cached_property
    def peak_bytes(self) -> int:
        """The predicted footprint of the process at its highest."""
        return sum(self.parts.values())

    @property
    def limit_bytes(self) -> int:
        """What to hold MLX and the program to, so that the peak is what is predicted.

        MLX runs ahead until it is above its limit.
        """
        return self.peak_bytes - self.ahead_bytes


@dataclass(frozen=True)
class Suggestion:
    """The fastest segment size that fits, or None, with the reason in words."""

    segment_size: int | None
    reason: str


def plan(
    shape: Architecture,
    config: TrainConfig,
    longest: int,
    variant: Variant,
    correction: Correction = NO_CORRECTION,
    sizes: Sizes | None = None,
) -> Plan:
    """The prediction for one variant, for rows of up to `longest` tokens; `sizes` where they are known already."""
    sizes = sizes or Sizes.of(shape, config, longest)
    return Plan(
        variant,
        cost(shape, config, longest, variant),
        tuple(phases(sizes, variant)),
        correction,
        sizes.ahead[bool(variant.kept)],
    )


def plans(case: Case) -> list[Plan]:
    """A plan for each segment size: the fastest that fits the budget, or the leanest. The whole model comes last."""
    shape, config, longest = case.shape, case.config, case.longest
    known = Sizes.of(shape, config, longest)

    def best(size: int) -> Plan:
        weighed = [plan(shape, config, longest, one, case.correction, known) for one in variants(shape, config, size)]
        fitting = [one for one in weighed if one.peak_bytes <= case.budget_bytes]
        return min(fitting, key=lambda one: one.cost) if fitting else min(weighed, key=lambda one: one.peak_bytes)

    return [best(size) for size in segment_sizes(shape, config)]


def suggest(plans: list[Plan], budget_bytes: int) -> Suggestion:
    """The fastest of `plans` that fits."""
    fitting = [plan for plan in plans if plan.peak_bytes <= budget_bytes]
    budget = f"{_gb(budget_bytes)} GB"
    if not fitting:
        least = min(plans, key=lambda plan: plan.peak_bytes)
        return Suggestion(
            None,
            f"Nothing fits: even {least.variant} would need {_gb(least.peak_bytes)} of {budget}.",
        )
    best = min(fitting, key=lambda plan: (plan.cost, plan.peak_bytes))
    reason = f"{str(best.variant).capitalize()}: {_gb(best.peak_bytes)} of {budget}, predicted."
    faster = [plan for plan in plans if plan.cost < best.cost]
    if faster:
        nearest = min(faster, key=lambda plan: plan.peak_bytes)
        reason += f" Faster would be {nearest.variant}, which would need {_gb(nearest.peak_bytes)} GB."
    else:
        reason += " No other is faster, by prediction."
    return Suggestion(best.segment_size, reason)


def plan_of_size(case: Case) -> Plan:
    """The plan for the segment size that is set; for "auto" the suggested one, or the leanest where nothing fits."""
    all_plans, wanted = plans(case), case.config.segment_size
    if isinstance(wanted, str):
        size = suggest(all_plans, case.budget_bytes).segment_size
        leanest = min(all_plans, key=lambda one: one.peak_bytes)
        return next((one for one in all_plans if one.segment_size == size), leanest)
    size = wanted if wanted < case.shape.layers else 0
    return next(one for one in all_plans if one.segment_size == size)


def choose(case: Case) -> Plan:
    """The plan a run takes. EngineError where it would not fit the budget, with what would."""
    chosen = plan_of_size(case)
    if chosen.peak_bytes <= case.budget_bytes:
        return chosen
    raise EngineError(
        f"Training would need {_gb(chosen.peak_bytes)} GB, by prediction, and the budget is "
        f"{_gb(case.budget_bytes)} GB ({chosen.variant}).",
        _cure(case),
        kind="memory",
    )


def _cure(case: Case) -> str:
    """What makes a run fit that does not: each is held against the budget before it is named."""
    from engine.remedies import remedies  # it predicts by this module

    if suggest(plans(case), case.budget_bytes).segment_size is not None:
        return "Set the segment size (segment_size) to auto, which fits, or raise the memory budget."
    best = next((one for one in remedies(case) if one.fits), None)
    if best is None:
        return "No one setting would be enough: take a smaller model, or raise the memory budget."
    return f"{best.sentence} Or raise the memory budget."


def longest_that_fits(case: Case) -> int | None:
    """The largest max_length up to the present one that some plan fits the budget with; None where none does."""

    def fits(length: int) -> bool:
        shorter = replace(case, config=replace(case.config, max_length=length))
        return any(one.peak_bytes <= case.budget_bytes for one in plans(shorter))

    low, high = 0, min(case.longest, case.config.max_length)
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low if low >= 8 else None


def report(config: TrainConfig, model: ModelFolder, longest: int) -> dict[str, Any]:
    """What `estimate --json` prints, for rows that bring up to `longest` tokens."""
    from engine.remedies import remedies  # it predicts by this module

    shape = architecture_of(model)
    case = Case(shape, config, longest, budget_bytes(config, machine()), correction_for(shape, config))
    all_plans, limit = plans(case), row_limit(config)
    suggestion = suggest(all_plans, case.budget_bytes)
    # What rows as long as the settings allow would take, where the data has none: its next file may.
    at_limit = plans(replace(case, longest=limit)) if longest < limit else []
    helpful = remedies(case) if suggestion.segment_size is None else []
    return {
        "budget_bytes": case.budget_bytes,
        "length": min(longest, limit),
        "calibrated": case.correction != NO_CORRECTION,
        "plans": [described(one) for one in all_plans],
        "at_max_length": {"length": limit, "plans": [described(one) for one in at_limit]} if at_limit else None,
        "suggested": {"segment_size": suggestion.segment_size, "reason": suggestion.reason},
        "remedies": [
            {
                "setting": one.setting,
                "value": one.value,
                "peak_bytes": one.peak_bytes,
                "fits": one.fits,
                "sentence": one.sentence,
            }
            for one in helpful
        ],
    }


def described(plan: Plan) -> dict[str, Any]:
    """A plan as `estimate --json` and `probe --json` tell of it."""
    return {
        "segment_size": plan.segment_size,
        "kind": plan.kind,
        "peak_bytes": plan.peak_bytes,
        "parts": plan.parts,
    }


def _gb(size: int) -> str:
    """GB to two digits after the point: with one, what does not fit can read like what does."""
    return f"{size / GB:.2f}"
