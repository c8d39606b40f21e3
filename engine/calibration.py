"""What measurements have taught about predicting a model's memory on this machine, kept from probe to probe."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from engine.adapter_size import adapter_parameters
from engine.architecture import Architecture
from engine.config import TrainConfig
from engine.errors import EngineError
from engine.machine import computes_on_gpu
from engine.runs import home_folder, write_whole

log = logging.getLogger(__name__)

# Parts of a prediction that are there all the time: beside MLX's arrays, and as arrays. All others come and go.
PROGRAM, RESTING = "program", ("weights", "adapter")
# Bytes that no machine has.
_ABSURD = 2**50


@dataclass(frozen=True)
class Correction:
    """How predictions are put right: what was measured in place of what rests, a factor for what comes and goes.

    `factors` are by the way that a plan walks the layers, `engine.estimate.Plan.kind`.
    """

    program_bytes: int | None = None
    resting_bytes: int | None = None
    factors: Mapping[str, float] = field(default_factory=dict)

    def applied(self, kind: str, parts: dict[str, int]) -> dict[str, int]:
        """The parts of a prediction, in bytes, put right for a plan of `kind`.

        A kind that was not measured takes the mean of those that were.
        """
        if self == NO_CORRECTION:
            return parts
        mean = math.fsum(self.factors.values()) / len(self.factors) if self.factors else 1.0
        factor = self.factors.get(kind, mean)
        corrected = {name: round(size * factor) for name, size in parts.items()}
        corrected.update({name: parts[name] for name in (PROGRAM, *RESTING) if name in parts})
        resting = sum(parts.get(name, 0) for name in RESTING)
        if self.resting_bytes is not None and resting:
            corrected.update(
                {name: round(parts[name] * self.resting_bytes / resting) for name in RESTING if name in parts}
            )
        if self.program_bytes is not None:
            corrected[PROGRAM] = self.program_bytes
        return corrected


NO_CORRECTION = Correction()


@dataclass(frozen=True)
class Measured:
    """What a probe found of one plan, beside the parts that were predicted for the same batch, uncorrected."""

    kind: str
    parts: Mapping[str, int]
    footprint_bytes: int  # the highest
    peak_bytes: int  # of MLX's arrays
    resting_bytes: int  # of MLX's arrays between the steps

    @property
    def moving_bytes(self) -> int:
        """What was predicted to come and go."""
        return sum(size for name, size in self.parts.items() if name not in (PROGRAM, *RESTING))


@dataclass(frozen=True)
class _Kept:
    """A model's entry in the file. What rests is by adapter, the rest holds for all."""

    program_bytes: int
    factors: dict[str, float]
    resting_bytes: dict[str, int]

    @classmethod
    def of(cls, entry: dict[str, Any]) -> _Kept:
        """The entry, checked. ValueError, KeyError, TypeError or AttributeError where it is none."""
        factors = {str(kind): float(factor) for kind, factor in entry["factors"].items()}
        kept = cls(int(entry["program_bytes"]), factors, {str(k): int(v) for k, v in entry["resting_bytes"].items()})
        if not all(0 <= size < _ABSURD for size in (kept.program_bytes, *kept.resting_bytes.values())):
            raise ValueError("no size in bytes")
        if not all(0 < factor < math.inf for factor in factors.values()):
            raise ValueError("no factor")
        return kept


def correction_for(shape: Architecture, config: TrainConfig) -> Correction:
    """What was learned about this model on this machine, with this version of MLX; NO_CORRECTION where nothing was.

    EngineError where the adapter to continue from can't be read.
    """
    kept = _read().get(_key(shape))
    if kept is None:
        return NO_CORRECTION
    return Correction(kept.program_bytes, kept.resting_bytes.get(_adapter(shape, config)), kept.factors)


def keep(shape: Architecture, config: TrainConfig, measured: Sequence[Measured]) -> Correction:
    """Learns from what was measured, at least one plan, and returns what holds from now on.

    A plan's factor is how many times its arrays took what was predicted, by MLX's own count. What the process held
    above that count goes into the program's part: it is about the same for short rows and long ones, and as a factor
    would make nonsense of long ones. Of several plans the most counts. EngineError(kind="disk") where it can't be kept.
    """
    everything = _read()
    before = everything.get(_key(shape), _Kept(0, {}, {}))
    resting = max(one.resting_bytes for one in measured)
    factors: dict[str, float] = {}
    for one in measured:
        if one.moving_bytes and one.peak_bytes > resting:
            factor = (one.peak_bytes - resting) / one.moving_bytes
            factors[one.kind] = max(factor, factors.get(one.kind, 0.0))
    everything[_key(shape)] = _Kept(
        program_bytes=max(max(0, one.footprint_bytes - one.peak_bytes) for one in measured),
        factors=before.factors | factors,
        resting_bytes=before.resting_bytes | {_adapter(shape, config): resting},
    )
    try:
        _file().parent.mkdir(parents=True, exist_ok=True)
        write_whole(_file(), json.dumps({key: asdict(kept) for key, kept in everything.items()}, indent=1) + "\n")
    except OSError as error:
        raise EngineError(
            f"What was measured could not be kept in {_file()}: {error.strerror or error}.",
            "Make room on the disk, then measure again.",
            kind="disk",
        ) from error
    return correction_for(shape, config)


def _file() -> Path:
    return home_folder() / "measured.json"


def _read() -> dict[str, _Kept]:
    """All that is kept. A damaged file is none: it says nothing that a new probe doesn't."""
    try:
        return {key: _Kept.of(entry) for key, entry in json.loads(_file().read_text(encoding="utf-8")).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        log.warning("%s can't be used, so predictions go without what was measured: %s", _file(), error)
        return {}


def _key(shape: Architecture) -> str:
    """This machine, this version of MLX and this model, by the numbers that its memory depends on."""
    device = "GPU" if computes_on_gpu() else "CPU"
    machine = f"{platform.system()} {platform.machine()} {psutil.virtual_memory().total} {device}"
    return f"{machine}, mlx {_mlx_version()}, model {hashlib.sha256(repr(shape).encode()).hexdigest()[:16]}"


@cache
def _mlx_version() -> str:
    return importlib.metadata.version("mlx")  # without loading it


def _adapter(shape: Architecture, config: TrainConfig) -> str:
    """The adapter's size: what rests in memory was measured together with one."""
    return f"{adapter_parameters(shape, config):,} parameters"
