"""What measurements have taught about predicting a model's memory on this machine, kept from probe to probe."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import platform
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from engine import nvidia
from engine.adapter_size import adapter_parameters
from engine.architecture import Architecture
from engine.config import TrainConfig
from engine.errors import EngineError
from engine.machine import computes_on_gpu, is_nvidia
from engine.peaks import Sizes, phases
from engine.plans import variants
from engine.runs import home_folder, write_whole

log = logging.getLogger(__name__)

# Parts of a prediction that are there all the time: beside MLX's arrays, and as arrays. All others come and go.
PROGRAM, RESTING = "program", ("weights", "adapter")
# Bytes that no machine has.
_ABSURD = 2**50
# Measurements of one way to walk that are kept, and how far apart two must lie to tell a factor from a constant.
_POINTS, _APART = 8, 1.5
# Tokens in a row whose prediction stands for all others.
_USUAL_TOKENS = 1024


@dataclass(frozen=True)
class Line:
    """What comes and goes took `factor` times the predicted bytes and `constant_bytes`."""

    factor: float = 1.0
    constant_bytes: float = 0.0

    def at(self, predicted_bytes: int) -> float:
        return self.factor * predicted_bytes + self.constant_bytes


def fitted(points: Iterable[tuple[int, int]]) -> Line:
    """The line that measurements of one way to walk lie on or below. `points`: predicted, measured bytes.

    What was predicted too high is a factor: a layer that stands for narrower ones is counted too high in every batch.
    What was predicted too low is a constant, as all arrays that grow with a batch are counted, but not what a device
    has under way beside them; unless batches of several sizes tell that it grows.
    """
    points = list(points)
    ratios = [measured / predicted for predicted, measured in points]
    sizes = [predicted for predicted, _ in points]
    factor = min(1.0, max(ratios))
    if max(sizes) >= _APART * min(sizes):
        slope, _ = statistics.linear_regression(*zip(*points, strict=True))
        factor = min(max(factor, slope), max(ratios))
    return Line(factor, max(0.0, *(measured - factor * predicted for predicted, measured in points)))


@dataclass(frozen=True)
class Correction:
    """How predictions are put right: what was measured in place of what rests, a line for what comes and goes.

    `lines` are by the way that a plan walks the layers, `engine.estimate.Plan.kind`.
    """

    program_bytes: int | None = None
    resting_bytes: int | None = None
    lines: Mapping[str, Line] = field(default_factory=dict)

    def applied(self, kind: str, parts: dict[str, int]) -> dict[str, int]:
        """The parts of a prediction, in bytes, put right for a plan of `kind`.

        A kind that was not measured takes the mean of those that were.
        """
        moving = sum(size for name, size in parts.items() if name not in (PROGRAM, *RESTING))
        scale = self._line(kind).at(moving) / moving if moving else 1.0
        corrected = {name: round(size * scale) for name, size in parts.items()}
        corrected.update({name: parts[name] for name in (PROGRAM, *RESTING) if name in parts})
        resting = sum(parts.get(name, 0) for name in RESTING)
        if self.resting_bytes is not None and resting:
            corrected.update(
                {name: round(parts[name] * self.resting_bytes / resting) for name in RESTING if name in parts}
            )
        if self.program_bytes is not None:
            corrected[PROGRAM] = self.program_bytes
        return corrected

    def _line(self, kind: str) -> Line:
        if kind in self.lines or not self.lines:
            return self.lines.get(kind, Line())
        known = self.lines.values()
        return Line(
            statistics.fmean(line.factor for line in known), statistics.fmean(line.constant_bytes for line in known)
        )


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
    points: dict[str, list[tuple[int, int]]]  # by the way to walk: predicted, measured bytes; the latest last
    resting_bytes: dict[str, int]

    @classmethod
    def of(cls, entry: dict[str, Any]) -> _Kept:
        """The entry, checked. ValueError, KeyError, TypeError or AttributeError where it is none."""
        points = {
            str(kind): [(int(predicted), int(measured)) for predicted, measured in found]
            for kind, found in entry["points"].items()
        }
        kept = cls(int(entry["program_bytes"]), points, {str(k): int(v) for k, v in entry["resting_bytes"].items()})
        if not all(0 <= size < _ABSURD for size in (kept.program_bytes, *kept.resting_bytes.values())):
            raise ValueError("no size in bytes")
        if not all(found and all(0 < size < _ABSURD for pair in found for size in pair) for found in points.values()):
            raise ValueError("no measurement")
        return kept

    def with_points(self, kind: str, found: dict[int, int]) -> list[tuple[int, int]]:
        """The points of a kind, with what was now `found` in place of what was known of the same batch."""
        known = dict(self.points.get(kind, ()))
        return [*((size, known[size]) for size in known if size not in found), *found.items()][-_POINTS:]


def correction_for(shape: Architecture, config: TrainConfig) -> Correction:
    """What was learned about this model on this machine, with this version of MLX; NO_CORRECTION where nothing was.

    EngineError where the adapter to continue from can't be read.
    """
    kept = _read().get(_key(shape))
    if kept is None:
        return NO_CORRECTION
    lines = {kind: fitted(points) for kind, points in kept.points.items()}
    return Correction(kept.program_bytes, kept.resting_bytes.get(_adapter(shape, config)), lines)


def keep(shape: Architecture, config: TrainConfig, measured: Sequence[Measured]) -> Correction:
    """Learns from what was measured, at least one plan, and returns what holds from now on.

    What a plan's arrays took is MLX's own count. What the process held above that count goes into the program's part:
    it is about the same for short rows and long ones. Of several plans the most counts. EngineError(kind="disk") where
    it can't be kept.
    """
    everything = _read()
    before = everything.get(_key(shape), _Kept(0, {}, {}))
    resting = max(one.resting_bytes for one in measured)
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for one in measured:
        if one.moving_bytes and one.peak_bytes > resting:
            of_kind = found[one.kind]
            of_kind[one.moving_bytes] = max(one.peak_bytes - resting, of_kind.get(one.moving_bytes, 0))
    everything[_key(shape)] = _Kept(
        program_bytes=max(max(0, one.footprint_bytes - one.peak_bytes) for one in measured),
        points=before.points | {kind: before.with_points(kind, points) for kind, points in found.items()},
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


@cache
def _key(shape: Architecture) -> str:
    """This machine, this version of MLX, and this model by what is predicted of it.

    A point is a prediction beside a measurement: it tells nothing of a program that predicts otherwise.
    """
    gpu = nvidia.gpu_memory() if is_nvidia() else None
    device = f"GPU {gpu.total_bytes}" if gpu else "GPU" if computes_on_gpu() else "CPU"
    machine = f"{platform.system()} {platform.machine()} {psutil.virtual_memory().total} {device}"
    config = TrainConfig()
    sizes = Sizes.of(shape, config, _USUAL_TOKENS)
    predicted = [[*phases(sizes, way)] for size in (1, 0) for way in variants(shape, config, size)]
    told = hashlib.sha256(repr((shape, predicted)).encode()).hexdigest()[:16]
    return f"{machine}, mlx {_mlx_version()}, model {told}"


@cache
def _mlx_version() -> str:
    return importlib.metadata.version("mlx")  # without loading it


def _adapter(shape: Architecture, config: TrainConfig) -> str:
    """The adapter's size: what rests in memory was measured together with one."""
    return f"{adapter_parameters(shape, config):,} parameters"
