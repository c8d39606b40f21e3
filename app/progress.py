"""How far a child is with work that is counted in bytes, and how long it will take."""

from __future__ import annotations

import time

from engine.events import Stage

# Time left is told for what takes longer than this, and once the pace is known.
WORTH_TELLING = 5.0
_PACE_KNOWN = 1.0


class Progress:
    """The last word of a child, with the time since it began."""

    def __init__(self) -> None:
        self.stage: Stage | None = None
        self._began = time.monotonic()

    def take(self, stage: Stage) -> None:
        self.stage = stage

    @property
    def seconds_left(self) -> float | None:
        """At the pace so far; None while that is not known or not worth telling."""
        passed = time.monotonic() - self._began
        if self.stage is None or not 0 < self.stage.done <= self.stage.total or passed < _PACE_KNOWN:
            return None
        left = passed * (self.stage.total / self.stage.done - 1)
        return left if passed + left > WORTH_TELLING else None
