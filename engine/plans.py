"""The ways to walk a model backward that are worth weighing, and how long each takes against the others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from engine.adapter_size import adapted_layers
from engine.architecture import Architecture
from engine.config import PAIR_OBJECTIVES, TrainConfig
from engine.machine import computes_on_gpu

# Tokens that a layer's pieces take at a time.
TILE = 512
_SIZES = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)


@dataclass(frozen=True)
class Variant:
    """How a step is walked; the fields are `engine.segmented.Plan`'s. A `segment_size` of 0 is the whole model."""

    segment_size: int
    kept: int
    tile: int
    keep_attention: bool

    @property
    def kind(self) -> str:
        """The way it goes through most layers: "whole", in "pieces", or "lean": pieces that keep nothing."""
        if not self.tile:
            return "whole"
        return "pieces" if self.keep_attention else "lean"

    def __str__(self) -> str:
        return f"segment size {self.segment_size}" if self.segment_size else "the whole model at once"


def segment_sizes(shape: Architecture, config: TrainConfig) -> list[int]:
    """The segment sizes that are weighed: a few spread over the layers, the one that was set, and last the whole."""
    found = {size for size in _SIZES if size < shape.layers}
    if not isinstance(config.segment_size, str) and 0 < config.segment_size < shape.layers:
        found.add(config.segment_size)
    return [*sorted(found), 0]


def variants(shape: Architecture, config: TrainConfig, size: int) -> Iterator[Variant]:
    """The ways to walk segments of `size` layers."""
    # A head that computes as it goes can't be part of a recorded graph.
    records = config.head != "blocked"
    if not size:
        yield Variant(0, shape.layers if records else 0, 0, False)
        return
    last = shape.layers - (math.ceil(shape.layers / size) - 1) * size
    yield Variant(size, last if records else 0, 0, False)
    trained = adapted_layers(shape, config)
    for kept in sorted({trained * quarter // 4 for quarter in range(5)} - {shape.layers}) if records else [0]:
        yield Variant(size, kept, TILE, True)
    yield Variant(size, 0, TILE, False)


def leanest(config: TrainConfig) -> Variant:
    """What takes least at the chosen segment size, of whatever model; a layer at a time where none is chosen."""
    size = 1 if isinstance(config.segment_size, str) else config.segment_size
    return Variant(size, kept=0, tile=TILE, keep_attention=False)


def row_limit(config: TrainConfig) -> int:
    """The most tokens that a row brings: each of a pair's sides is cut by itself."""
    return config.max_length * (2 if config.objective in PAIR_OBJECTIVES else 1)


def cost(shape: Architecture, config: TrainConfig, longest: int, variant: Variant) -> float:
    """How long a token takes to go through, in token-wise forwards of one layer."""
    length = min(longest, row_limit(config))
    linear = shape.linear_numbers / shape.layers
    attention = shape.heads * shape.head_dim * length
    # Recorded attention: MLX's exponentials on the CPU cost as much as some two thousand multiplications.
    slow = 1.0 if computes_on_gpu() else 1 + 2000 / shape.head_dim / 8
    mix, slow_mix = attention / linear, slow * attention / linear
    trained = adapted_layers(shape, config)
    top = min(variant.kept, trained)
    below = trained - top
    others = (shape.layers - trained) * (1 + slow_mix) + top * (2 + 3.5 * slow_mix)
    inside = max(1, min(variant.segment_size, below))
    again = (inside - 1) / inside
    if not variant.tile:
        return others + below * (3 + 4.5 * slow_mix)
    if variant.keep_attention:
        return others + below * (2.85 + 0.8 * again + 3.5 * mix)
    return others + below * (2.85 + again * (1 + mix) + 4.5 * mix)
