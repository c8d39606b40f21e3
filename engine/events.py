"""What a training run tells: dataclasses that travel as one JSON line each.

The child process prints them, the window and the run folder read them back; the "event" key is the
class name in lower case.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.errors import EngineError


@dataclass(frozen=True)
class Phase:
    """Peak memory of one part of a step: all layers of one segment, forward or backward, or the head."""

    name: str  # forward | head | backward
    segment: int
    peak_bytes: int


@dataclass(frozen=True)
class Predicted:
    """What a phase is expected to take, in bytes by part. `name` and `segment` are those of its Phase."""

    name: str  # forward | head | backward
    segment: int
    parts: dict[str, int]


@dataclass(frozen=True)
class Stage:
    """Work before or after the steps, such as loading the model. `done` of `total` when it can be counted."""

    name: str
    message: str
    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class Started:
    """The plan, once everything is loaded and before the first step."""

    run: str  # the run's folder
    steps: int
    segment_size: int  # layers, 0 is the whole model at once
    segments: int
    budget_bytes: int
    resting_bytes: int  # measured: weights, adapter and optimizer
    predicted_peak_bytes: int
    train_rows: int
    valid_rows: int
    split: str  # the same in words
    trainable_parameters: int
    predicted: list[Predicted] = field(default_factory=list)
    program_bytes: int = 0  # measured: what the process held beside MLX's arrays when the steps began


@dataclass(frozen=True)
class Preference:
    """How a model takes pairs, means over them: `accuracy` is the share whose chosen answer it prefers.

    `margin` is ORPO's log odds or DPO's difference of rewards; `chosen_logp` and `rejected_logp` are the
    answers' mean log-probabilities a token.
    """

    accuracy: float
    margin: float
    chosen_logp: float
    rejected_logp: float


@dataclass(frozen=True)
class Step:
    """One optimizer step. `loss` is the objective's, before the update; with SFT the mean over trained tokens."""

    step: int
    steps: int
    loss: float
    learning_rate: float
    grad_norm: float
    tokens: int  # all tokens that went through the model, without padding
    trained_tokens: int
    tokens_per_second: float
    seconds: float
    peak_bytes: int
    active_bytes: int
    cache_bytes: int
    process_bytes: int  # the footprint: all that the process holds, as the system counts it
    swap_bytes: int = 0  # in use on the machine, whoever uses it
    phases: list[Phase] = field(default_factory=list)
    preference: Preference | None = None  # of pair objectives


@dataclass(frozen=True)
class Warned:
    """Training goes on, but a person should know: a sentence of cause and one of cure."""

    message: str
    hint: str


@dataclass(frozen=True)
class Evaluated:
    """The objective's loss on the validation rows."""

    step: int
    loss: float
    rows: int
    trained_tokens: int
    preference: Preference | None = None


@dataclass(frozen=True)
class Saved:
    """The adapter was written to `path`, complete, as it is after `step`."""

    step: int
    path: str


@dataclass(frozen=True)
class Finished:
    """The run's last word when it ended well. `stopped` when a person ended it early."""

    step: int
    steps: int
    stopped: bool
    run: str
    adapter: str
    first_loss: float
    last_loss: float
    seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class Failed:
    """The run's last word when it ended badly. `details` is for the log, folded away in the window."""

    kind: str
    message: str
    hint: str
    details: str = ""

    @classmethod
    def of(cls, error: EngineError) -> Failed:
        """A run that ended by what is told to the person."""
        return cls(error.kind, error.message, error.hint, error.details)


Event = Stage | Started | Step | Warned | Evaluated | Saved | Finished | Failed

_BY_NAME: dict[str, type[Event]] = {
    kind.__name__.lower(): kind for kind in (Stage, Started, Step, Warned, Evaluated, Saved, Finished, Failed)
}


def to_line(event: Event) -> str:
    """The event as one line of JSON, without the line end."""
    return json.dumps({"event": type(event).__name__.lower(), **asdict(event)}, ensure_ascii=False, allow_nan=False)


def from_line(line: str) -> Event:
    """The event that `to_line` wrote. ValueError for anything else."""
    fields: dict[str, Any] = json.loads(line)
    try:
        kind = _BY_NAME[fields.pop("event")]
        if "phases" in fields:
            fields["phases"] = [Phase(**phase) for phase in fields["phases"]]
        if "predicted" in fields:
            fields["predicted"] = [Predicted(**phase) for phase in fields["predicted"]]
        if fields.get("preference"):
            fields["preference"] = Preference(**fields["preference"])
        return kind(**fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an event: {line[:200]}") from error
