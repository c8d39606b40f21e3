"""Exact causal attention in O(length) memory, forward and backward.

By blocks of queries, each against only the keys that causality and the window let it see. The forward
keeps the output and each row's log-sum-exp; the backward recomputes the probabilities from it
(Dao et al. 2022, without the tiling over keys):

    P = exp(scale Q K^T - lse)    dV = P^T dO    dS = P * (dO V^T - rowsum(dO * O))    dQ = dS K    dK = dS^T Q

MLX's own kernel holds whole [length, length] scores while differentiating on the CPU; where it is fused,
on a GPU, it is used instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from engine.backend import mx, on_cpu

# Queries at a time: fewer take less memory, more make larger matrix products.
BLOCK = 128


def attend(queries: mx.array, keys: mx.array, values: mx.array, scale: float, window: int | None) -> mx.array:
    """softmax(scale Q K^T) V, causal, each query seeing at most the last `window` keys.

    Queries are [batch, heads, length, dim]; keys and values have heads / n heads of their own.
    """
    length = queries.shape[2]
    if length <= BLOCK or not on_cpu():
        hides = window is not None and length > window
        mask = _visible(0, length, 0, length, window) if hides else "causal"
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask)
    out: mx.array = _blockwise(scale, window)(queries, keys, values)[0]
    return out


@cache
def _blockwise(scale: float, window: int | None) -> Any:
    """Attention as a function with a gradient of its own; returns the output and the log-sum-exp."""

    @mx.custom_function
    def attention(queries: mx.array, keys: mx.array, values: mx.array) -> list[mx.array]:
        outputs: list[mx.array] = []
        sums: list[mx.array] = []
        for start, end, first in _blocks(queries.shape[2], window):
            # Without the dependency the scheduler would hold every block's scores at the same time.
            (block,) = _after([_fold(queries[:, :, start:end], keys)], outputs[-1:])
            seen = _scores(block, keys[:, :, first:end], scale, (start, end, first), window)
            # One exponential for both results: on the CPU it costs more than all else here together.
            highest = seen.max(axis=-1, keepdims=True)
            weights = mx.exp(seen - highest)
            total = weights.sum(axis=-1, keepdims=True)
            mixed = (weights.astype(values.dtype) @ values[:, :, first:end]).astype(mx.float32) / total
            outputs.append(_unfold(mixed.astype(values.dtype), queries))
            sums.append(_unfold(highest + mx.log(total), queries))
        return [mx.concatenate(outputs, axis=2), mx.concatenate(sums, axis=2)]

    @attention.vjp
    def gradients(
        primals: list[mx.array], cotangents: list[mx.array], outputs: list[mx.array]
    ) -> tuple[mx.array, mx.array, mx.array]:
        queries, keys, values = primals
        slope, (output, sums) = cotangents[0], outputs
        inner = (slope.astype(mx.float32) * output.astype(mx.float32)).sum(axis=-1, keepdims=True)
        of_queries: list[mx.array] = []
        of_keys = mx.zeros(keys.shape, mx.float32)
        of_values = mx.zeros(values.shape, mx.float32)
        for start, end, first in _blocks(queries.shape[2], window):
            folded = [_fold(array[:, :, start:end], keys) for array in (queries, slope, sums, inner)]
            earlier = [of_queries[-1], of_keys, of_values] if of_queries else []
            block, block_slope, total, block_inner = _after(folded, earlier)
            near_keys, near_values = keys[:, :, first:end], values[:, :, first:end]
            seen = _scores(block, near_keys, scale, (start, end, first), window)
            weights = mx.exp(seen - total)
            of_scores = (block_slope @ near_values.swapaxes(-1, -2)).astype(mx.float32)
            of_scores = (weights * (of_scores - block_inner) * scale).astype(queries.dtype)
            weights = weights.astype(queries.dtype)
            of_queries.append(_unfold(of_scores @ near_keys, queries))
            of_keys[:, :, first:end] += (of_scores.swapaxes(-1, -2) @ block).astype(mx.float32)
            of_values[:, :, first:end] += (weights.swapaxes(-1, -2) @ block_slope).astype(mx.float32)
        whole = mx.concatenate(of_queries, axis=2)
        return whole, of_keys.astype(keys.dtype), of_values.astype(values.dtype)

    return attention


def _blocks(length: int, window: int | None) -> Iterator[tuple[int, int, int]]:
    """(first query, end of the queries, first key that any of them sees) of each block."""
    for start in range(0, length, BLOCK):
        first = 0 if window is None else max(0, start - window + 1)
        yield start, min(start + BLOCK, length), first


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


def _scores(block: mx.array, keys: mx.array, scale: float, place: tuple[int, int, int], window: int | None) -> mx.array:
    """Scaled scores in float32, -inf where a query must not look: [batch, key heads, g n, keys]."""
    start, end, first = place
    scores = ((block * scale) @ keys.swapaxes(-1, -2)).astype(mx.float32)
    batch, heads, rows, columns = scores.shape
    grouped = scores.reshape(batch, heads, -1, end - start, columns)
    # Added, not selected: a tenth of the time of mx.where over all heads on the CPU.
    hidden = mx.where(_visible(start, end, first, end, window), 0.0, -mx.inf)
    return (grouped + hidden).reshape(batch, heads, rows, columns)


def _visible(start: int, end: int, first: int, last: int, window: int | None) -> mx.array:
    """Which keys [first, last) each query [start, end) may see."""
    query, key = mx.arange(start, end)[:, None], mx.arange(first, last)[None]
    causal = query >= key
    return causal if window is None else causal & (query < key + window)
