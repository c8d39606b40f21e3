"""Exact attention over spans and windows in O(length) memory, forward and backward.

By blocks of queries, each against only the keys that spans, causality and the window let it see. The forward
keeps the output and each row's log-sum-exp; the backward recomputes the probabilities from it
(Dao et al. 2022, without the tiling over keys):

    P = exp(scale Q K^T - lse)    dV = P^T dO    dS = P * (dO V^T - rowsum(dO * O))    dQ = dS K    dK = dS^T Q

Queries are [batch, heads, length, dim]; keys and values have heads / n heads of their own; a sequence of the
batch is laid out by its forest. MLX's own kernel holds whole [length, length] scores while differentiating on
the CPU; where it is fused, on a GPU over plain rows, it is used instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.backend import exp_now, mx, on_cpu
from engine.spans import Block, Forest, Range

Exponential = Callable[[mx.array], mx.array]

# Queries at a time: fewer take less memory, more make larger matrix products.
BLOCK = 128
# A GPU needs larger products to be busy; a block's float32 scores are held to this many bytes there.
_GPU_BLOCKS = (512, 256, 128)
_GPU_SCORES_BYTES = 96 * 1024**2
# Head dimensions up to this have a fused backward on a GPU.
_FUSED_HEAD_DIM = 128


@dataclass(frozen=True)
class Sight:
    """How a layer looks at a batch: the scale of its scores, its window in tokens, a forest for each sequence."""

    scale: float
    window: int | None
    forests: tuple[Forest, ...]


def attend(queries: mx.array, keys: mx.array, values: mx.array, sight: Sight) -> mx.array:
    """softmax(scale Q K^T) V over what each query sees; differentiable, with a gradient of its own."""
    if _is_built_in(queries, sight):
        return _built_in(queries, keys, values, sight)

    @mx.custom_function
    def attention(queries: mx.array, keys: mx.array, values: mx.array) -> list[mx.array]:
        return list(forward(queries, keys, values, sight, exp=mx.exp))

    @attention.vjp
    def gradients(
        primals: list[mx.array], cotangents: list[mx.array], outputs: list[mx.array]
    ) -> tuple[mx.array, mx.array, mx.array]:
        (queries, keys, values), (output, sums) = primals, outputs
        return backward(queries, keys, values, output, sums, cotangents[0], sight, exp=mx.exp)

    results: Any = attention(queries, keys, values)
    out: mx.array = results[0]
    return out


def forward(
    queries: mx.array, keys: mx.array, values: mx.array, sight: Sight, exp: Exponential = exp_now
) -> tuple[mx.array, mx.array]:
    """The output, and float32 log-sum-exp [batch, heads, length, 1] that `backward` starts from.

    With `exp_now` this computes as it goes, which is faster but can't be recorded for differentiation.
    """
    if _is_built_in(queries, sight):
        return _built_in(queries, keys, values, sight), mx.zeros((1,))
    parts = [
        _forward(queries[rows], keys[rows], values[rows], sight, forest, exp) for rows, forest in _by_forest(sight)
    ]
    if len(parts) == 1:
        return parts[0]
    return mx.concatenate([out for out, _ in parts]), mx.concatenate([sums for _, sums in parts])


def backward(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    output: mx.array,
    sums: mx.array,
    slope: mx.array,
    sight: Sight,
    exp: Exponential = exp_now,
) -> tuple[mx.array, mx.array, mx.array]:
    """Gradients at queries, keys and values, from the one at the output."""
    if _is_built_in(queries, sight):
        _, slopes = mx.vjp(lambda q, k, v: _built_in(q, k, v, sight), [queries, keys, values], [slope])
        return slopes[0], slopes[1], slopes[2]
    inner = (slope.astype(mx.float32) * output.astype(mx.float32)).sum(axis=-1, keepdims=True)
    arrays = (queries, keys, values, sums, slope, inner)
    parts = [
        _backward(*(array[rows] for array in arrays), sight=sight, forest=forest, exp=exp)
        for rows, forest in _by_forest(sight)
    ]
    if len(parts) == 1:
        return parts[0]
    of_queries, of_keys, of_values = (mx.concatenate(list(side)) for side in zip(*parts, strict=True))
    return of_queries, of_keys, of_values


def _is_built_in(queries: mx.array, sight: Sight) -> bool:
    """Whether MLX's kernel serves: short rows, where its scores are small, or a GPU that has it fused."""
    length, dim = queries.shape[2], queries.shape[3]
    if not all(forest.is_plain for forest in sight.forests) or (sight.window is not None and length > sight.window):
        return False
    return length <= BLOCK or (not on_cpu() and dim <= _FUSED_HEAD_DIM)


def _built_in(queries: mx.array, keys: mx.array, values: mx.array, sight: Sight) -> mx.array:
    return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=sight.scale, mask="causal")


def _by_forest(sight: Sight) -> list[tuple[slice, Forest]]:
    """The rows of the batch that can be computed together, with their layout."""
    if all(forest.is_plain for forest in sight.forests):
        return [(slice(None), sight.forests[0])]
    return [(slice(row, row + 1), forest) for row, forest in enumerate(sight.forests)]


def _forward(
    queries: mx.array, keys: mx.array, values: mx.array, sight: Sight, forest: Forest, exp: Exponential
) -> tuple[mx.array, mx.array]:
    places = _Places(forest)
    outputs: list[mx.array] = []
    sums: list[mx.array] = []
    for block in forest.blocks(_block_size(queries), sight.window):
        # Without the dependency the scheduler would hold every block's scores at the same time.
        own = _fold(queries[:, :, block.start : block.end], keys)
        own, later_keys, later_values, index = _after([own, keys, values, places.index], outputs[-1:])
        near_keys, near_values = _pick(later_keys, block.keys), _pick(later_values, block.keys)
        seen = _scores(own, near_keys, sight, block, places.hidden(block, sight.window, index))
        # One exponential for both results: on the CPU it costs more than all else here together.
        highest = seen.max(axis=-1, keepdims=True)
        weights = exp(seen - highest)
        total = weights.sum(axis=-1, keepdims=True)
        mixed = (weights.astype(values.dtype) @ near_values).astype(mx.float32) / total
        outputs.append(_unfold(mixed.astype(values.dtype), queries))
        sums.append(_unfold(highest + mx.log(total), queries))
    return mx.concatenate(outputs, axis=2), mx.concatenate(sums, axis=2)


def _backward(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    sums: mx.array,
    slope: mx.array,
    inner: mx.array,
    *,
    sight: Sight,
    forest: Forest,
    exp: Exponential,
) -> tuple[mx.array, mx.array, mx.array]:
    places = _Places(forest)
    of_queries: list[mx.array] = []
    of_keys = mx.zeros(keys.shape, mx.float32)
    of_values = mx.zeros(values.shape, mx.float32)
    for block in forest.blocks(_block_size(queries), sight.window):
        part = slice(block.start, block.end)
        folded = [_fold(array[:, :, part], keys) for array in (queries, slope, sums, inner)]
        earlier = [of_queries[-1], of_keys, of_values] if of_queries else []
        own, own_slope, total, own_inner, later_keys, later_values, index = _after(
            [*folded, keys, values, places.index], earlier
        )
        near_keys, near_values = _pick(later_keys, block.keys), _pick(later_values, block.keys)
        weights = exp(_scores(own, near_keys, sight, block, places.hidden(block, sight.window, index)) - total)
        of_scores = (own_slope @ near_values.swapaxes(-1, -2)).astype(mx.float32)
        of_scores = (weights * (of_scores - own_inner) * sight.scale).astype(queries.dtype)
        weights = weights.astype(queries.dtype)
        of_queries.append(_unfold(of_scores @ near_keys, queries))
        _add(of_keys, block.keys, of_scores.swapaxes(-1, -2) @ own)
        _add(of_values, block.keys, weights.swapaxes(-1, -2) @ own_slope)
    return mx.concatenate(of_queries, axis=2), of_keys.astype(keys.dtype), of_values.astype(values.dtype)


class _Places:
    """A forest's numbers on the device, for masks that are made a block at a time."""

    def __init__(self, forest: Forest) -> None:
        self.index = mx.arange(forest.length)
        self._positions = mx.array(forest.positions)
        self._until = mx.array(forest.until)

    def hidden(self, block: Block, window: int | None, index: mx.array) -> mx.array | None:
        """0 where a query of the block sees a key, -inf where not: float32 [queries, keys]; None if all see all."""
        if not block.masked:
            return None
        query = index[block.start : block.end, None]
        key = _picked(index, block.keys)
        seen = (key <= query) & (query < _picked(self._until, block.keys))
        if window is not None:
            own = self._positions[block.start : block.end, None]
            seen = seen & (own - _picked(self._positions, block.keys) < window)
        return mx.where(seen, 0.0, -mx.inf)


def _scores(own: mx.array, near_keys: mx.array, sight: Sight, block: Block, hidden: mx.array | None) -> mx.array:
    """Scaled scores in float32, -inf where a query must not look: [batch, key heads, g n, keys]."""
    scores = ((own * sight.scale) @ near_keys.swapaxes(-1, -2)).astype(mx.float32)
    if hidden is None:
        return scores
    batch, heads, rows, columns = scores.shape
    grouped = scores.reshape(batch, heads, -1, block.end - block.start, columns)
    # Added, not selected: a tenth of the time of mx.where over all heads on the CPU.
    return (grouped + hidden).reshape(batch, heads, rows, columns)


def _picked(numbers: mx.array, ranges: Sequence[Range]) -> mx.array:
    """The parts of [length] in `ranges`, side by side."""
    return mx.concatenate([numbers[first:last] for first, last in ranges])


def _pick(array: mx.array, ranges: Sequence[Range]) -> mx.array:
    """The parts of [batch, heads, length, width] in `ranges` of its length, side by side."""
    parts = [array[:, :, first:last] for first, last in ranges]
    return parts[0] if len(parts) == 1 else mx.concatenate(parts, axis=2)


def _add(array: mx.array, ranges: Sequence[Range], parts: mx.array) -> None:
    """Adds `parts`, as `_pick` laid them out, where they belong."""
    done = 0
    for first, last in ranges:
        array[:, :, first:last] += parts[:, :, done : done + last - first].astype(array.dtype)
        done += last - first


def _fold(array: mx.array, keys: mx.array) -> mx.array:
    """[batch, heads, n, d] with the query heads that share a key head side by side: [batch, key heads, g n, d]."""
    batch, _, _, width = array.shape
    return array.reshape(batch, keys.shape[1], -1, width)


def _unfold(array: mx.array, queries: mx.array) -> mx.array:
    batch, _, _, width = array.shape
    return array.reshape(batch, queries.shape[1], -1, width)


def _after(arrays: list[mx.array], earlier: list[mx.array]) -> list[mx.array]:
    """`arrays`, not to be used before `earlier` are computed."""
    chained: list[mx.array] = mx.depends(arrays, earlier) if earlier else arrays
    return chained


def _block_size(queries: mx.array) -> int:
    if on_cpu():
        return BLOCK
    batch, heads, length, _ = queries.shape
    row = 4 * batch * heads * length
    return next((size for size in _GPU_BLOCKS if size * row <= _GPU_SCORES_BYTES), _GPU_BLOCKS[-1])
