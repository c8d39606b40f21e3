"""What memory a run takes: measured phase by phase, and held inside its budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.backend import mx, on_cpu
from engine.config import GB
from engine.events import Phase, Warned
from engine.machine import footprint_bytes, swap_bytes

# Of the budget: a plan that fits it closely is off by 2 % at most when it was measured.
_NEAR = 0.98
# Of the footprint that was warned of.
_WORSE = 1.05
# Less than this comes and goes on a machine that has memory to spare.
_MUCH_SWAP = GB // 2

_HINT = (
    "Close programs that you don't need. If it stays so, stop, and start again with a shorter longest row (max_length) "
    "or fewer rows at a time (batch_size)."
)


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


def hold_to(budget_bytes: int, program_bytes: int = 0) -> None:
    """Keeps the process inside its budget: MLX may have what Python and libraries leave of it.

    `program_bytes` is what those hold beside MLX's arrays, 0 while that isn't known. Above the limit, evaluation waits;
    it doesn't fail. Of freed buffers a GPU keeps at most an eighth for reuse: the cache is not in what MLX counts as
    its peak, and without a limit the process takes far more than any prediction says.
    """
    limit = max(0, budget_bytes - program_bytes)
    mx.set_memory_limit(limit)
    # On the CPU malloc keeps freed memory by itself. A cache on top gains no time there, and its buffers, scattered
    # over the heap, keep malloc from giving back the rest: SmolLM2 took 1.5 GB where 0.7 were in use.
    mx.set_cache_limit(0 if on_cpu() else limit // 8)
    if mx.metal.is_available():
        # The first buffers to come are wired first, and those are the weights: macOS then can't move them out
        # between steps. More than the recommended working set is an error.
        mx.set_wired_limit(min(limit, int(mx.device_info()["max_recommended_working_set_size"])))


def held_bytes() -> int:
    """What this process holds now of the memory that its budget is of.

    That is its footprint, or on an NVIDIA GPU, which has memory of its own, MLX's arrays and cache there.
    """
    if on_cpu() or mx.metal.is_available():
        return footprint_bytes()
    return int(mx.get_active_memory() + mx.get_cache_memory())


@dataclass
class Watch:
    """Looks at what training holds after each step, and warns while something can still be done about it.

    `swap` tells the swap in use on the machine, in bytes.
    """

    budget_bytes: int
    swap: Callable[[], int] = swap_bytes

    def __post_init__(self) -> None:
        self._most = int(_NEAR * self.budget_bytes)
        self._swap_at_first = self.swap()
        self._most_swapped = _MUCH_SWAP

    def look(self, footprint_bytes: int) -> Warned | None:
        """A warning when the footprint comes near the budget, or when the machine has begun to swap. Mostly None.

        The same is said again only when it got clearly worse.
        """
        swapped = self.swap() - self._swap_at_first
        causes = []
        if footprint_bytes > self._most:
            self._most = int(_WORSE * footprint_bytes)
            causes.append(f"Training holds {_gb(footprint_bytes)} of {_gb(self.budget_bytes)} GB.")
        if swapped > self._most_swapped:
            self._most_swapped = 2 * swapped
            causes.append(f"Since training began, the machine has moved {_gb(swapped)} GB to swap, which slows it.")
        return Warned(" ".join(causes), _HINT) if causes else None


def _gb(amount: int) -> str:
    return f"{amount / GB:.2f}"
