"""Exact attention over spans and windows in O(length) memory, forward and backward.

By blocks of queries, each against only the keys that spans, causality and the window let it see. Queries are
[batch, heads, length, dim]; keys and values have heads / n heads of their own; each sequence of the batch is laid out
by its forest. A block is MLX's own kernel on a GPU, and arithmetic of our own on the CPU, where that kernel is slow to
differentiate. Where MLX's kernel is fused for whole rows it takes them whole.
"""

from __future__ import annotations

from typing import Any

from engine import attention_arithmetic, attention_kernel
from engine.attention_blocks import Sight
from engine.backend import mx, on_cpu
from engine.spans import Forest

__all__ = ["Sight", "attend", "backward", "forward", "inner_product"]

# Head dimensions up to this have a fused backward on a GPU.
FUSED_HEAD_DIM = 128


def attend(queries: mx.array, keys: mx.array, values: mx.array, sight: Sight) -> mx.array:
    """softmax(scale Q K^T) V over what each query sees; differentiable, with a gradient of its own."""
    if _takes_whole_rows(queries, sight):
        return attention_kernel.whole(queries, keys, values, sight.scale)

    @mx.custom_function
    def attention(queries: mx.array, keys: mx.array, values: mx.array) -> list[mx.array]:
        return list(forward(queries, keys, values, sight, now=False))

    @attention.vjp
    def gradients(
        primals: list[mx.array], cotangents: list[mx.array], outputs: list[mx.array]
    ) -> tuple[mx.array, mx.array, mx.array]:
        (queries, keys, values), (output, sums) = primals, outputs
        inner = inner_product(cotangents[0], output)
        return backward(queries, keys, values, sums, inner, cotangents[0], sight, now=False)

    results: Any = attention(queries, keys, values)
    out: mx.array = results[0]
    return out


def forward(
    queries: mx.array, keys: mx.array, values: mx.array, sight: Sight, now: bool = True
) -> tuple[mx.array, mx.array]:
    """The output, and float32 log-sum-exps [batch, heads, length, 1] for `backward` (empty where it needs none).

    `now` evaluates block after block, so that no two are in memory together; without it they are chained, for graphs
    that are being recorded.
    """
    if _takes_whole_rows(queries, sight):
        return attention_kernel.whole(queries, keys, values, sight.scale), mx.zeros((queries.shape[0], 0))
    blocks = attention_arithmetic if on_cpu() else attention_kernel
    parts = [
        blocks.forward(queries[rows], keys[rows], values[rows], sight, forest, now)
        for rows, forest in _by_forest(sight)
    ]
    output, sums = (_joined(list(side)) for side in zip(*parts, strict=True))
    return output, sums


def inner_product(slope: mx.array, output: mx.array) -> mx.array:
    """rowsum(dO * O), float32 [batch, heads, length, 1]: all that `backward` needs of the output."""
    return (slope.astype(mx.float32) * output.astype(mx.float32)).sum(axis=-1, keepdims=True)


def backward(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    sums: mx.array,
    inner: mx.array,
    slope: mx.array,
    sight: Sight,
    now: bool = True,
) -> tuple[mx.array, mx.array, mx.array]:
    """Gradients at queries, keys and values, from `slope`, the one at the output, and its `inner_product`."""
    if _takes_whole_rows(queries, sight):
        _, slopes = mx.vjp(
            lambda q, k, v: attention_kernel.whole(q, k, v, sight.scale), [queries, keys, values], [slope]
        )
        return slopes[0], slopes[1], slopes[2]
    blocks = attention_arithmetic if on_cpu() else attention_kernel
    arrays = (queries, keys, values, sums, inner, slope)
    parts = [
        blocks.backward(*(array[rows] for array in arrays), sight=sight, forest=forest, now=now)
        for rows, forest in _by_forest(sight)
    ]
    of_queries, of_keys, of_values = (_joined(list(side)) for side in zip(*parts, strict=True))
    return of_queries, of_keys, of_values


def _takes_whole_rows(queries: mx.array, sight: Sight) -> bool:
    """Whether MLX's kernel serves: short rows, where its scores are small, or a GPU that has it fused."""
    length, dim = queries.shape[2], queries.shape[3]
    if not all(forest.is_plain for forest in sight.forests) or (sight.window is not None and length > sight.window):
        return False
    return length <= attention_arithmetic.BLOCK or (not on_cpu() and dim <= FUSED_HEAD_DIM)


def _by_forest(sight: Sight) -> list[tuple[slice, Forest]]:
    """The rows of the batch that can be computed together, with their layout."""
    if all(forest.is_plain for forest in sight.forests):
        return [(slice(None), sight.forests[0])]
    return [(slice(row, row + 1), forest) for row, forest in enumerate(sight.forests)]


def _joined(rows: list[mx.array]) -> mx.array:
    return rows[0] if len(rows) == 1 else mx.concatenate(rows)
