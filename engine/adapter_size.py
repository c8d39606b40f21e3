"""How many numbers an adapter has, before there is one, and the one that is there to continue from."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

from engine.architecture import Architecture
from engine.config import TrainConfig
from engine.models.adapter_folder import AdapterFolder, open_adapter


def adapter_parameters(shape: Architecture, config: TrainConfig) -> int:
    """Numbers in the adapter: rank * (inputs + outputs) of every adapted linear layer, with DoRA its outputs more.

    An adapter to continue from has its own number; EngineError where it can't be read.
    """
    if config.adapter:
        return sum(math.prod(tensor.shape) for tensor in continued(config).tensors.values())
    first = shape.layers - adapted_layers(shape, config)
    adapted = [one for one in shape.linears if one.name in config.targets and one.layer >= first]
    numbers = sum(one.experts * config.rank * (one.inputs + one.outputs) for one in adapted)
    return numbers + (sum(one.outputs for one in adapted) if config.adapter_kind == "dora" else 0)


def adapted_layers(shape: Architecture, config: TrainConfig) -> int:
    """How many decoder layers have an adapter, counted from the last. Errors as above."""
    chosen = continued(config).settings.layers if config.adapter else config.last_layers
    return min(chosen or shape.layers, shape.layers)


def continued(config: TrainConfig) -> AdapterFolder:
    """The adapter to continue from. EngineError where it can't be read."""
    folder = Path(config.adapter).expanduser()
    return _opened(folder, folder.stat().st_mtime_ns if folder.exists() else 0)


@lru_cache(maxsize=8)
def _opened(folder: Path, changed: int) -> AdapterFolder:
    """`changed` is when the folder last was: another adapter may take its place."""
    return open_adapter(folder)
