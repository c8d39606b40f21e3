"""What a run has told so far, in arrays the plots can draw without copying."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from engine.events import Evaluated, Finished, Phase, Preference, Started, Step

Numbers = NDArray[np.float64]

# Each smoothed value keeps this much of the past: about the mean of the last ten steps.
_MEMORY = 0.9
_RECENT = 20

_PREFERENCE = tuple(item.name for item in fields(Preference))
_STEP = tuple(item.name for item in fields(Step) if item.name not in ("steps", "phases", "preference"))
# What is told of steps and of validation rows alike.
_CURVES = ("loss", *_PREFERENCE)


class Column:
    """Numbers that are only ever appended; `values` is a view, never a copy."""

    def __init__(self) -> None:
        self._room = np.empty(256, dtype=np.float64)
        self._length = 0

    def append(self, value: float) -> None:
        if self._length == len(self._room):
            self._room = np.concatenate([self._room, np.empty_like(self._room)])
        self._room[self._length] = value
        self._length += 1

    @property
    def values(self) -> Numbers:
        return self._room[: self._length]


class Smoothed(Column):
    """The running mean of what is appended."""

    def __init__(self) -> None:
        super().__init__()
        self._average = 0.0

    def append(self, value: float) -> None:
        self._average = _MEMORY * self._average + (1 - _MEMORY) * value
        # Divided by the weight seen so far, so that the first values are not pulled towards zero.
        super().append(self._average / (1 - _MEMORY ** (self._length + 1)))


class History:
    """One run as it is known so far. `version` grows with every event: draw only when it changed."""

    def __init__(self) -> None:
        self.version = 0
        self.started: Started | None = None
        self.last: Step | None = None
        self.finished: Finished | None = None
        self._predicted: dict[tuple[str, int], dict[str, int]] = {}
        self._steps = {name: Column() for name in (*_STEP, *_PREFERENCE)}
        self._elapsed = Column()
        self._smoothed = {name: Smoothed() for name in _CURVES}
        self._measured = {name: Column() for name in ("step", *_CURVES)}

    def __getitem__(self, name: str) -> Numbers:
        """The values of one of Step's or its Preference's fields, in order; none of the latter with SFT."""
        return self._steps[name].values

    def smoothed(self, name: str) -> Numbers:
        """The running mean of the loss or of one of Preference's fields, a value a step."""
        return self._smoothed[name].values

    def measured(self, name: str) -> Numbers:
        """The same on the validation rows, a value for each of `measured("step")`."""
        return self._measured[name].values

    @property
    def steps(self) -> int:
        """How many steps the run will have; 0 while that isn't known."""
        return self.started.steps if self.started else 0

    @property
    def phases(self) -> list[Phase]:
        """The last step's parts, in the order they ran."""
        return self.last.phases if self.last else []

    @property
    def elapsed(self) -> Numbers:
        """Seconds that the steps took up to and with each of them; measuring and saving between them don't count."""
        return self._elapsed.values

    @property
    def program_bytes(self) -> int:
        """What the process holds beside the arrays; 0 while that isn't known."""
        return self.started.program_bytes if self.started else 0

    @property
    def budget_bytes(self) -> int:
        """What the process may take; 0 while that isn't known."""
        return self.started.budget_bytes if self.started else 0

    @property
    def resting_bytes(self) -> int:
        """What the process takes before the first step; 0 while that isn't known."""
        return self.started.resting_bytes + self.program_bytes if self.started else 0

    @property
    def predicted_peak_bytes(self) -> int:
        """What the process was predicted to take at most; 0 while that isn't known."""
        return self.started.predicted_peak_bytes if self.started else 0

    @property
    def peak_bytes(self) -> float:
        """The most that the process is known to have taken: between the steps, or with the arrays at their peak."""
        if self.last is None:
            return 0.0
        return max(float(self["peak_bytes"].max()) + self.program_bytes, float(self["process_bytes"].max()))

    def measured_bytes(self, phase: Phase) -> int:
        """What the process took in `phase`: the arrays at their peak, and the program."""
        return phase.peak_bytes + self.program_bytes

    def predicted_parts(self, phase: Phase) -> dict[str, int]:
        """What the process was predicted to take in `phase`, bytes by part; empty where nothing was."""
        return self._predicted.get((phase.name, phase.segment), {})

    @property
    def seconds_a_step(self) -> float:
        """The mean of the recent steps; 0 before the first."""
        recent = self["seconds"][-_RECENT:]
        return float(recent.mean()) if len(recent) else 0.0

    @property
    def seconds_left(self) -> float | None:
        """How long the remaining steps will take; None before the second step, which tells the true pace."""
        if self.last is None or len(self["step"]) < 2:
            return None
        return (self.last.steps - self.last.step) * self.seconds_a_step

    def begin(self, event: Started) -> None:
        self.started = event
        self._predicted = {(item.name, item.segment): item.parts for item in event.predicted}
        self.version += 1

    def add(self, event: Step) -> None:
        self.last = event
        for name in _STEP:
            self._steps[name].append(getattr(event, name))
        self._elapsed.append(event.seconds + (self.elapsed[-1] if len(self.elapsed) else 0.0))
        self._smoothed["loss"].append(event.loss)
        if event.preference:
            for name in _PREFERENCE:
                value = getattr(event.preference, name)
                self._steps[name].append(value)
                self._smoothed[name].append(value)
        self.version += 1

    def measure(self, event: Evaluated) -> None:
        self._measured["step"].append(event.step)
        self._measured["loss"].append(event.loss)
        if event.preference:
            for name in _PREFERENCE:
                self._measured[name].append(getattr(event.preference, name))
        self.version += 1

    def end(self, event: Finished) -> None:
        self.finished = event
        self.version += 1
