"""Seconds and peak memory of one step, and tables of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.backend import mx
from engine.config import GB
from engine.memory import PhaseMeter


@dataclass(frozen=True)
class Cost:
    """What a step took: seconds, and MLX's peak above what rested in memory before it, in GB."""

    seconds: float
    gigabytes: float


def measured(step: Callable[[PhaseMeter], object], warm: int = 0) -> Cost:
    """One call of `step`, after `warm` calls that don't count: a GPU compiles its kernels in the first.

    The engine closes its phases on the meter that the step is given, which resets MLX's own peak.
    """
    for _ in range(warm):
        step(PhaseMeter())
    mx.synchronize()
    mx.clear_cache()
    resting, meter = mx.get_active_memory(), PhaseMeter()
    meter.start()
    begun = time.perf_counter()
    step(meter)
    mx.synchronize()
    peak = max(meter.peak_bytes, mx.get_peak_memory())
    return Cost(time.perf_counter() - begun, (peak - resting) / GB)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A Markdown table."""
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |", flush=True)
