"""How many numbers an adapter has, before there is one."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

from engine.architecture import Architecture
from engine.config import TrainConfig
from engine.models.adapter_folder import open_adapter


def adapter_parameters(shape: Architecture, config: TrainConfig) -> int:
    """Numbers in the adapter: rank * (inputs + outputs) of every adapted linear layer, with DoRA its outputs more.

    An adapter to continue from has its own number; EngineError where it can't be read.
    """
    if config.adapter:
        folder = Path(config.adapter).expanduser()
        return _continued_parameters(folder, folder.stat().st_mtime_ns if folder.exists() else 0)
    first = shape.layers - min(config.last_layers or shape.layers, shape.layers)
    adapted = [one for one in shape.linears if one.name in config.targets and one.layer >= first]
    numbers = sum(one.experts * config.rank * (one.inputs + one.outputs) for one in adapted)
    return numbers + (sum(one.outputs for one in adapted) if config.adapter_kind == "dora" else 0)


@lru_cache(maxsize=8)
def _continued_parameters(folder: Path, changed: int) -> int:
    """`changed` is when the folder last was: another adapter may take its place."""
    return sum(math.prod(tensor.shape) for tensor in open_adapter(folder).tensors.values())
