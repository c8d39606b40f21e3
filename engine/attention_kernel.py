"""A block of attention by MLX's own kernel, for a GPU, where each launch counts more than its arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

from engine.attention_blocks import Places, Sight, add, after, pick
from engine.backend import compute_now, mx
from engine.spans import Block, Forest

# Queries at a time: larger products keep a GPU busier. A block's float32 scores may take half as much memory as
# the queries themselves, or this many bytes.
SIZES = (1024, 512, 256, 128)
SCORES_BYTES = 32 * 1024**2


# CUDA's fused backward takes lengths that are multiples of this; of others it would hold all scores.
CUDA_LENGTHS = 128


def whole(queries: mx.array, keys: mx.array, values: mx.array, scale: float, multiple: int | None = None) -> mx.array:
    """Causal attention over plain rows, padded to a `multiple` in length: the one that the device wants."""
    length = queries.shape[2]
    padding = -length % (multiple or (CUDA_LENGTHS if mx.cuda.is_available() else 1))
    if padding:
        # Behind the row, where no query of it looks.
        behind = [(0, 0), (0, 0), (0, padding), (0, 0)]
        queries, keys, values = (mx.pad(array, behind) for array in (queries, keys, values))
    mixed = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask="causal")
    return mixed[:, :, :length] if padding else mixed


def forward(
    queries: mx.array, keys: mx.array, values: mx.array, sight: Sight, forest: Forest, now: bool
) -> tuple[mx.array, mx.array]:
    """The output; `backward` needs nothing else."""
    places = Places(forest, sight.window)
    outputs: list[mx.array] = []
    for block in blocks_for(queries, forest, sight.window):
        own, later_keys, later_values, index = after(
            [queries[:, :, block.start : block.end], keys, values, places.index], [] if now else outputs[-1:]
        )
        near = pick(later_keys, block.keys), pick(later_values, block.keys)
        outputs.append(_mix(own, *near, sight.scale, places.seen(block, index)))
        if now:
            compute_now(outputs[-1])
    return mx.concatenate(outputs, axis=2), mx.zeros((queries.shape[0], 0))


def backward(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    sums: mx.array,
    inner: mx.array,
    slope: mx.array,
    *,
    sight: Sight,
    forest: Forest,
    now: bool,
) -> tuple[mx.array, mx.array, mx.array]:
    """Gradients at queries, keys and values; `sums` and `inner` are not used."""
    places = Places(forest, sight.window)
    of_queries = mx.zeros(queries.shape, queries.dtype)
    of_keys = mx.zeros(keys.shape, mx.float32)
    of_values = mx.zeros(values.shape, mx.float32)
    for block in blocks_for(queries, forest, sight.window):
        part = slice(block.start, block.end)
        earlier = [] if now or not block.start else [of_queries, of_keys, of_values]
        own, own_slope, later_keys, later_values, index = after(
            [queries[:, :, part], slope[:, :, part], keys, values, places.index], earlier
        )
        seen = places.seen(block, index)

        def mix(q: mx.array, k: mx.array, v: mx.array, seen: mx.array | None = seen) -> mx.array:
            return _mix(q, k, v, sight.scale, seen)

        near = [own, pick(later_keys, block.keys), pick(later_values, block.keys)]
        _, (of_own, of_near_keys, of_near_values) = mx.vjp(mix, near, [own_slope])
        of_queries[:, :, part] = of_own
        add(of_keys, block.keys, of_near_keys)
        add(of_values, block.keys, of_near_values)
        if now:
            compute_now(of_queries, of_keys, of_values)  # each block copies them: not two at a time
    return of_queries, of_keys.astype(keys.dtype), of_values.astype(values.dtype)


def _mix(queries: mx.array, keys: mx.array, values: mx.array, scale: float, seen: mx.array | None) -> mx.array:
    return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=seen)


def blocks_for(queries: mx.array, forest: Forest, window: int | None) -> tuple[Block, ...]:
    """The largest blocks whose scores stay within their limit, or the smallest."""
    limit = max(SCORES_BYTES, queries.nbytes // 2)
    heads = queries.shape[0] * queries.shape[1]
    blocks: tuple[Block, ...] = ()
    for size in SIZES:
        blocks = forest.blocks(size, window)
        if scores_bytes(blocks, heads) <= limit:
            break
    return blocks


def scores_bytes(blocks: Sequence[Block], heads: int) -> int:
    """What the float32 scores of the largest of the blocks take."""
    return 4 * heads * max((one.end - one.start) * sum(last - first for first, last in one.keys) for one in blocks)
