"""Measures instead of predicting: each plan takes two real steps in a child process, which may die of it.

Loads no MLX: what is measured should find the memory that training would find.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from engine import estimate, isolated
from engine.architecture import Architecture, architecture_of
from engine.calibration import Correction, Measured, correction_for, keep
from engine.config import GB, TrainConfig
from engine.data import load_tokenizer
from engine.data.largest import largest_rows, rows_at_once, tokens_a_row
from engine.data.rows import Rows, usable_rows
from engine.errors import EngineError
from engine.events import Stage
from engine.machine import budget_bytes, machine
from engine.models.find import find_model
from engine.models.folder import ModelFolder
from engine.plans import Variant, leanest

Tell = Callable[[Stage], None]
Stop = Callable[[], bool]


@dataclass(frozen=True)
class Taken:
    """What two steps took, in bytes, and the second one's time in seconds.

    `footprint_bytes` is the highest, `peak_bytes` MLX's own count of its arrays at their most, `resting_bytes`
    between the steps. Of a process that memory ended only `died` is known, a sentence.
    """

    footprint_bytes: int = 0
    peak_bytes: int = 0
    resting_bytes: int = 0
    seconds: float = 0.0
    died: str = ""

    def told(self) -> dict[str, Any]:
        """What the answer says of it."""
        if self.died:
            return {"died": self.died}
        return {
            "measured_bytes": self.footprint_bytes,
            "measured_peak_bytes": self.peak_bytes,
            "seconds": self.seconds,
        }


def probe(
    config: TrainConfig,
    sizes: Sequence[int] = (),
    tell: Tell = lambda stage: None,
    stop: Stop = lambda: False,
) -> dict[str, Any]:
    """What `probe --json` prints, for plans of segment `sizes`; if none are given, of the suggested and the chosen one.

    `tell` hears of each plan before it is measured. A plan that dies of memory is part of the answer; EngineError is
    for what would keep a run from starting. What was learned is kept for this machine and model. KeyboardInterrupt
    once `stop` turns true; no process is left then.
    """
    if not config.data:
        raise EngineError("There is no data to measure with.", "Choose a file with data.")
    folder = find_model(config.model)
    rows = usable_rows(config, load_tokenizer(folder.path))
    if isinstance(config.memory_budget_gb, str):  # the same for all that follows, while what is free varies
        config = replace(config, memory_budget_gb=budget_bytes(config, machine()) / GB)
    try:
        shape = architecture_of(folder)
    except EngineError as error:
        if error.kind != "unknown":
            raise
        return _unpredicted(config, rows, sizes, tell, stop, error)
    longest, before = rows.largest(config), correction_for(shape, config)
    at_once = replace(config, batch_size=rows_at_once(config, len(rows.train)))
    limits = _limits(shape, at_once, longest, sizes, before)
    found = _measured(config, limits, tell, stop)
    return _answer(config, folder, shape, rows, dict(zip(limits, found, strict=True)))


def _limits(
    shape: Architecture, config: TrainConfig, longest: int, sizes: Sequence[int], correction: Correction
) -> dict[Variant, int]:
    """What to measure, and what a run would be held to; leanest first, so that what may die comes last."""
    wanted: Sequence[int | str] = sizes or ("auto", config.segment_size)
    chosen = [config.updated({"segment_size": size}) for size in wanted]
    budget = budget_bytes(config, machine())
    plans = [estimate.plan_of_size(estimate.Case(shape, one, longest, budget, correction)) for one in chosen]
    plans.sort(key=lambda plan: plan.peak_bytes)
    return {plan.variant: min(plan.limit_bytes, budget) for plan in plans}


def _answer(
    config: TrainConfig, folder: ModelFolder, shape: Architecture, rows: Rows, found: dict[Variant, Taken]
) -> dict[str, Any]:
    """The report as it is now, with what was measured; the correction is kept on the way."""
    # What is predicted of just the batch that was measured: mostly not all of its rows are as long as the longest.
    items = largest_rows(config, rows)[: config.batch_size]
    batch, each = replace(config, batch_size=len(items)), tokens_a_row(config, items)
    before = correction_for(shape, config)
    plain = {variant: estimate.plan(shape, batch, each, variant) for variant in found}
    lived = [
        Measured(variant.kind, plain[variant].parts, taken.footprint_bytes, taken.peak_bytes, taken.resting_bytes)
        for variant, taken in found.items()
        if not taken.died
    ]
    now = keep(shape, config, lived) if lived else before
    longest = rows.largest(config)
    answer = estimate.report(config, folder, longest)
    entries = {entry["segment_size"]: entry for entry in answer["plans"]}
    for variant, taken in found.items():
        # As it was measured, even where a corrected prediction would now walk this size in another way.
        entries[variant.segment_size] = {
            **estimate.described(estimate.plan(shape, config, longest, variant, now)),
            "predicted_bytes": sum(before.applied(variant.kind, plain[variant].parts).values()),
            **taken.told(),
        }
    return {**answer, "plans": list(entries.values())}


def _unpredicted(
    config: TrainConfig, rows: Rows, sizes: Sequence[int], tell: Tell, stop: Stop, reason: EngineError
) -> dict[str, Any]:
    """The answer where nothing can be predicted: what was measured alone, each size walked in the leanest way."""
    budget = budget_bytes(config, machine())
    chosen = [config.updated({"segment_size": size}) for size in sizes] or [config]
    variants = [*dict.fromkeys(leanest(one) for one in chosen)]
    found = _measured(config, dict.fromkeys(variants, budget), tell, stop)
    fitting = [
        (variant, taken) for variant, taken in zip(variants, found, strict=True) if 0 < taken.footprint_bytes <= budget
    ]
    if fitting:
        best, taken = min(fitting, key=lambda pair: pair[1].seconds)
        size: int | None = best.segment_size
        words = f"{str(best).capitalize()}: {taken.footprint_bytes / GB:.2f} of {budget / GB:.2f} GB, measured."
    else:
        size, words = None, f"Nothing that was measured fits {budget / GB:.2f} GB. {reason.message}"
    return {
        "budget_bytes": budget,
        "length": rows.largest(config),
        "calibrated": False,
        "plans": [
            {"segment_size": variant.segment_size, "kind": variant.kind, **taken.told()}
            for variant, taken in zip(variants, found, strict=True)
        ],
        "suggested": {"segment_size": size, "reason": words},
        "remedies": [],
    }


def _measured(config: TrainConfig, limits: dict[Variant, int], tell: Tell, stop: Stop) -> list[Taken]:
    """What each variant takes inside its limit in bytes, one after another."""
    found = []
    with tempfile.TemporaryDirectory(prefix="tunesmith-") as scratch:
        settings = Path(scratch) / "config.json"
        settings.write_text(json.dumps(config.to_mapping()), encoding="utf-8")
        for number, (variant, limit) in enumerate(limits.items(), start=1):
            message = f"Measuring {variant}" + f", {number} of {len(limits)}" * (len(limits) > 1)
            tell(Stage("probe", message, number - 1, len(limits)))
            found.append(_taken(settings, variant, limit, stop))
    return found


def _taken(settings: Path, variant: Variant, limit: int, stop: Stop) -> Taken:
    """What a variant takes inside `limit` bytes, as a child tells it.

    EngineError where something else than memory ended the child.
    """
    # More than is free now would have to be swapped, or would cost other programs theirs.
    allowed = machine().available_bytes
    task = json.dumps({**asdict(variant), "limit_bytes": limit, "allowed_bytes": allowed})

    def stop_now() -> bool:
        if stop():
            raise KeyboardInterrupt  # the child ends with its context
        return False

    answer: dict[str, Any] = {}
    with tempfile.TemporaryFile() as errors:
        argv = isolated.command("probe", "--config", str(settings), "--json", "--child", task)
        with isolated.started(argv, errors) as child:
            for line in isolated.lines(child, stop_now):
                answer = _object(line) or answer
            status = child.wait()
        details = isolated.tail(errors) + answer.get("details", "")
    if "footprint_bytes" in answer:
        return Taken(**answer)
    name = str(variant).capitalize()
    if "ended_at_bytes" in answer:
        held, free = answer["ended_at_bytes"] / GB, allowed / GB
        return Taken(died=f"{name} needs more memory than is free: it was ended at {held:.2f} GB of {free:.2f}.")
    if how := isolated.ended_for_the_display(details):
        raise EngineError(
            f"The process that measures {how}.",
            "Let the display sleep while it measures, or choose a smaller batch or a shorter longest row, then measure "
            "again.",
            kind="died",
        )
    if how := isolated.died_of_memory(status, details):
        return Taken(died=f"{name} {how}.")
    if answer:
        raise EngineError(answer["message"], answer["hint"], answer["kind"], answer["details"])
    raise EngineError(
        f"The process that measures {isolated.ended(status)}.",
        "Measure again; if it happens twice, choose another segment size and report it.",
        kind="died",
        details=details,
    )


def _object(line: str) -> dict[str, Any] | None:
    """The JSON object on a line, or None for anything else that a library may print."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
