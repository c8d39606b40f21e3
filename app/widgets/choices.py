"""The plans to choose from and what is told of each, in one place for bars and table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app import words
from app.answers import Measured
from app.verdict import fits
from engine.estimate import Plan


def size_name(segment_size: int) -> str:
    """A segment size in a word or two."""
    return "whole" if segment_size == 0 else words.plural(segment_size, "layer")


@dataclass(frozen=True)
class Choices:
    """The plans to choose from, for bars and table alike.

    `suggested` is the segment size that is marked, `taken` the one that Start would use, `measured` what a probe told
    of some sizes.
    """

    plans: Sequence[Plan] = ()
    budget_bytes: int = 0
    suggested: int | None = None
    taken: int | None = None
    measured: Mapping[int, Measured] = field(default_factory=dict)

    def fits(self, plan: Plan) -> bool:
        return fits(plan, self.measured.get(plan.segment_size), self.budget_bytes)

    def mark(self, plan: Plan) -> str:
        """A tick on the suggested plan, a triangle on one that does not fit."""
        if not self.fits(plan):
            return "\N{BLACK UP-POINTING TRIANGLE} "
        return "\N{CHECK MARK} " if plan.segment_size == self.suggested else ""

    def predicted(self, plan: Plan) -> str:
        return words.memory_beyond(plan.peak_bytes, self.budget_bytes)

    def measured_words(self, plan: Plan) -> str:
        """What was measured, that it could not be, or nothing."""
        found = self.measured.get(plan.segment_size)
        if found is None:
            return ""
        return "ran out" if found.died else words.memory_beyond(found.measured_bytes, self.budget_bytes)

    def sentence(self, plan: Plan) -> str:
        """All that bar and marks tell of a plan."""
        notes = [f"{size_name(plan.segment_size)}: {self.predicted(plan)} predicted"]
        if found := self.measured.get(plan.segment_size):
            notes.append("memory ran out when measured" if found.died else f"{self.measured_words(plan)} measured")
        notes += ["suggested"] * (plan.segment_size == self.suggested)
        notes += ["in force"] * (plan.segment_size == self.taken)
        notes += ["fits" if self.fits(plan) else "does not fit"]
        return ", ".join(notes)
