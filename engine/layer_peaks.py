"""What one decoder layer takes of memory while a batch goes through it, forward and backward, in bytes.

Which arrays are alive outside of an evaluation follows from `engine.whole` and `engine.pieces`. What lives inside of
one was measured, by phases of steps of models that differ in one width each: on the CPU, where nothing runs ahead, to
2 or 3 %; on an NVIDIA H200, where how much is under way depends on its pace, by 89 plans of five shapes. A limit on
MLX's memory holds that to what is predicted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from engine.adapter_arrays import AdapterArrays, adapter_arrays
from engine.architecture import FLOAT32, GATED, Architecture, Widths
from engine.config import PAIR_OBJECTIVES, TrainConfig
from engine.machine import computes_on_gpu, is_nvidia
from engine.plans import TILE

# Queries that attention takes at a time on the CPU; a test holds it to engine.attention.BLOCK.
ATTENTION_BLOCK = 128
# Head dimensions that MLX's fused attention takes whole on a GPU; a test holds it to engine.attention.
FUSED_HEAD_DIM = 128
# The lengths that it takes on CUDA are multiples of this, and where it takes none, attention goes by blocks of so many
# queries that their scores stay within a limit; a test holds all to engine.attention_kernel.
FUSED_LENGTHS = 128
BLOCK_SIZES, BLOCK_SCORES_BYTES = (1024, 512, 256, 128), 32 * 1024**2


@dataclass(frozen=True)
class LayerPeaks:
    """A layer's arrays, and what lives at the most while it is walked, its input and the gradient above not counted."""

    attended: int  # what attention gave, with its log-sum-exps
    shared: int  # its keys and values, 0 where it has none of its own
    saved: int  # of its forward, for a recorded backward
    forward: int  # at work in pieces
    backward: int  # the same, going backward with what attention gave
    lean: int  # the same, with attention computed again
    unrecorded: int  # at work as a whole, without recording
    recorded: int  # going backward as a whole, besides what is saved
    top_forward: int  # of the layers that keep their activations: going forward
    top_backward: int


@dataclass(frozen=True)
class _Arrays:
    """Bytes of the arrays that a layer's work is made of."""

    h: int  # hidden states
    i: int  # of the MLP's width
    a: int  # queries, or what attention mixed
    k: int  # keys or values
    own_k: int  # the same, 0 where they are another layer's
    extra: int  # the layer's per-layer input
    scores: int  # of a block of queries
    block: int  # a block's queries
    sums: int  # log-sum-exps
    routed: int  # hidden states, one for each of a token's experts
    tile: float  # the share of the tokens that a tile has
    block_scores: int  # of a block of queries where a GPU goes by blocks, else 0
    padded: float  # times as long, for fused attention

    @classmethod
    def of(cls, shape: Architecture, config: TrainConfig, length: int, widths: Widths) -> _Arrays:
        rows, item = config.batch_size, shape.item_bytes
        tokens = rows * length
        k = widths.keys or shape.kv_heads * widths.queries // shape.heads
        # Packed rows are attended one after the other.
        scores = FLOAT32 * shape.heads * min(ATTENTION_BLOCK, length) * length * (1 if config.pack else rows)
        queries = tokens * widths.queries * item
        return cls(
            h=tokens * shape.hidden * item,
            i=tokens * widths.inner * item,
            a=queries,
            k=tokens * k * item,
            own_k=tokens * widths.keys * item,
            extra=tokens * shape.extras // shape.layers * item,
            scores=scores,
            block=ATTENTION_BLOCK * widths.queries * item,
            sums=FLOAT32 * tokens * shape.heads,
            routed=tokens * widths.routed * item,
            tile=min(1.0, TILE / (tokens if config.pack else length)),
            block_scores=block_scores(shape.heads, config, length, queries) if _goes_by_blocks(shape, config) else 0,
            padded=-(-length // FUSED_LENGTHS) * FUSED_LENGTHS / length if is_nvidia() else 1.0,
        )


def block_scores(heads: int, config: TrainConfig, length: int, queries: int) -> int:
    """The float32 scores of the block of queries that has most, where rows of `length` are laid one after another.

    `queries` are the bytes of all. A block sees the keys of its rows up to its end.
    """
    total, at_once = (config.batch_size * length, 1) if config.pack else (length, config.batch_size)
    most = 0
    for size in BLOCK_SIZES:
        # After a common multiple of block and row the same come again.
        starts = np.arange(0, min(total, math.lcm(size, length)), size)
        ends = np.minimum(starts + size, total)
        most = FLOAT32 * at_once * heads * int(((ends - starts) * (ends - starts // length * length)).max())
        if most <= max(BLOCK_SCORES_BYTES, queries // 2):
            break
    return most


def layer_peaks(shape: Architecture, config: TrainConfig, length: int) -> Iterator[LayerPeaks]:
    """Every layer's peaks, for rows that bring `length` tokens each."""
    if _sides_are_rows(config):
        config, length = replace(config, batch_size=2 * config.batch_size), max(1, length // 2)
    known: dict[tuple[Widths, AdapterArrays], LayerPeaks] = {}
    for of_layer in zip(shape.widths, adapter_arrays(shape, config, config.batch_size * length), strict=True):
        if of_layer not in known:
            widths, adapter = of_layer
            arrays = _Arrays.of(shape, config, length, widths)
            bare = _on_gpu(shape, arrays) if computes_on_gpu() else _on_cpu(shape, arrays)
            known[of_layer] = _adapted(_routed(bare, arrays.routed, arrays.tile), adapter, arrays.tile)
        yield known[of_layer]


def _routed(bare: LayerPeaks, routed: int, tile: float) -> LayerPeaks:
    """The layer with the copies of hidden states that go to its experts and come back; measured on the CPU."""
    of_tile = round(tile * routed)
    return replace(
        bare,
        saved=bare.saved + round(2.7 * routed),
        forward=bare.forward + of_tile,
        backward=bare.backward + round(4.3 * of_tile),
        lean=bare.lean + round(4.3 * of_tile),
        unrecorded=bare.unrecorded + routed,
        recorded=bare.recorded + routed,
        top_forward=bare.top_forward + routed // 4,
        top_backward=bare.top_backward + routed // 4,
    )


def _adapted(bare: LayerPeaks, adapter: AdapterArrays, tile: float) -> LayerPeaks:
    """The layer with what its adapter adds."""
    working, of_tile = adapter.working, round(tile * adapter.finishing)
    return LayerPeaks(
        attended=bare.attended,
        shared=bare.shared,
        saved=bare.saved + adapter.saved,
        forward=bare.forward + working,
        backward=bare.backward + working + of_tile,
        lean=bare.lean + working + of_tile,
        unrecorded=bare.unrecorded + working,
        recorded=bare.recorded + working,
        top_forward=bare.top_forward + working,
        top_backward=bare.top_backward + working,
    )


def _saved(shape: Architecture, one: _Arrays) -> int:
    """The norms' inputs and outputs, q, k, v, what attention mixed as heads and as rows, the insides of the MLP and of
    the gate for per-layer inputs.
    """
    norms = 4 + max(0, shape.norms - 2)
    heads = (one.a + one.own_k) if shape.head_norms else 0
    return norms * one.h + 4 * one.extra + 3 * one.a + 2 * one.own_k + shape.gated * one.i + one.sums + heads


def _on_cpu(shape: Architecture, one: _Arrays) -> LayerPeaks:
    h, i, a, k, own_k, scores, sums = one.h, one.i, one.a, one.k, one.own_k, one.scores, one.sums
    post_norms = max(0, shape.norms - 2)
    saved = _saved(shape, one)
    projected = 2 * a + 4 * own_k  # tiles, and they joined
    finished = max(h + 2 * a + 2 * own_k + one.tile * (8.1 * i + (2.2 + 2 * post_norms) * h), 2 * h + 3 * a + 2 * own_k)
    mixed = 3.43 * a + 5.65 * k + 2 * sums + 3.8 * scores + 0.53 * one.block
    forward = max(
        projected,
        a + 2 * k + max(a + sums + 3.6 * scores, 2 * (a + sums)),
        a + sums + h + max(h, one.tile * (3.65 * i + 3 * h)),
    )
    recorded = max(2.2 * i + (3.5 - post_norms) * h, 7.6 * h + 6 * a + 5 * k + 2.1 * scores - saved)
    return LayerPeaks(
        attended=a + sums,
        shared=2 * own_k,
        saved=saved,
        forward=round(forward),
        backward=round(max(projected + a + sums, finished + a + sums, mixed)),
        lean=round(max(projected, finished + a + sums, mixed)),
        unrecorded=round(max(2 * h + 4 * i, 1.5 * h + 1.5 * a + 3 * k + 1.2 * scores)),
        recorded=round(recorded),
        top_forward=h,
        top_backward=round(recorded),
    )


def _on_gpu(shape: Architecture, one: _Arrays) -> LayerPeaks:
    h, i, a, k, own_k, tile_i = one.h, one.i, one.a, one.k, one.own_k, one.tile * one.i
    kept = 2 * a + 2 * own_k  # queries, keys, values and gradients
    # Grouped keys and values are spread over the queries' heads.
    whole = one.padded * min(8 * a + 4 * k, 10 * a)
    attention = 2.5 * a + 10.5 * k + 1.4 * one.block_scores if one.block_scores else whole
    backward = kept + max(0.7 * h + 1.35 * a + 14 * tile_i, h + attention)
    # GELU saves more than SiLU, most of which is free before attention's turn comes.
    gelu = shape.gated > GATED
    recorded, top = (3.3 * i + 2.5 * a, 2 * i + 2 * a) if gelu else (5 * i + 8.8 * a, 3 * i + 9 * a)
    return LayerPeaks(
        attended=a,
        shared=2 * own_k,
        saved=_saved(shape, one) - (a + one.sums if one.block_scores else 0),
        forward=round(2.3 * a + 3.6 * k + 4.6 * tile_i),
        backward=round(backward),
        lean=round(backward),
        unrecorded=round(3.9 * i + 4.6 * h + 1.2 * a),
        recorded=round(recorded),
        top_forward=round(4.3 * h),
        top_backward=round(top),
    )


def _goes_by_blocks(shape: Architecture, config: TrainConfig) -> bool:
    """Whether attention goes by blocks on a GPU: where rows are packed, pairs share a prompt, or heads are wide."""
    if not computes_on_gpu():
        return False
    pairs = config.objective in PAIR_OBJECTIVES
    packed = config.pack and (config.batch_size > 1 or pairs)
    return packed or (pairs and config.prefix_shared) or shape.head_dim > FUSED_HEAD_DIM


def _sides_are_rows(config: TrainConfig) -> bool:
    """Whether a pair is two rows, one for each side, where otherwise it is one."""
    return config.objective in PAIR_OBJECTIVES and not config.pack and not config.prefix_shared
