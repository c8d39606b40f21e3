"""What memory a run takes: measured phase by phase, and held inside its budget."""

from __future__ import annotations

from dataclasses import dataclass, field

import psutil

from engine.backend import mx, on_cpu
from engine.events import Phase


@dataclass
class PhaseMeter:
    """Records each phase's own peak of MLX's memory, in bytes, everything resident included."""

    phases: list[Phase] = field(default_factory=list)

    def start(self) -> None:
        """Forgets the phases of the step before and frees what it left in MLX's cache.

        Rows of other lengths need buffers of other sizes: kept, those of every length so far would pile up.
        """
        self.phases = []
        mx.clear_cache()
        mx.reset_peak_memory()

    def end(self, name: str, segment: int) -> None:
        """Closes the phase that has run since the last call. Its arrays must be evaluated.

        Batches of one step that run the same phase are one phase, with the higher peak.
        """
        peak = max(mx.get_peak_memory(), mx.get_active_memory())
        mx.reset_peak_memory()
        for index, phase in enumerate(self.phases):
            if (phase.name, phase.segment) == (name, segment):
                self.phases[index] = Phase(name, segment, max(peak, phase.peak_bytes))
                return
        self.phases.append(Phase(name, segment, peak))

    @property
    def peak_bytes(self) -> int:
        """The highest peak of all phases so far."""
        return max((phase.peak_bytes for phase in self.phases), default=0)


def hold_to(budget_bytes: int) -> None:
    """Keeps MLX inside the budget: evaluation waits above it, and of freed buffers a GPU keeps an eighth for reuse.

    The cache of freed buffers comes on top of what MLX counts as its peak; without a limit the process
    can take far more than any prediction says.
    """
    mx.set_memory_limit(budget_bytes)
    # On the CPU malloc keeps freed memory by itself. A cache on top gains no time there, and its buffers, scattered
    # over the heap, keep malloc from giving back the rest: SmolLM2 took 1.5 GB where 0.7 were in use.
    mx.set_cache_limit(0 if on_cpu() else budget_bytes // 8)


def process_bytes() -> int:
    """Memory that this process holds now, as the system counts it."""
    return int(psutil.Process().memory_info().rss)
