"""What the two ways to compute a block of attention have in common: ranges of keys, masks, order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.backend import mx
from engine.spans import Block, Forest, Range


@dataclass(frozen=True)
class Sight:
    """How a layer looks at a batch: the scale of its scores, its window in tokens, a forest for each sequence."""

    scale: float
    window: int | None
    forests: tuple[Forest, ...]


class Places:
    """A forest's numbers on the device, for masks that are made a block at a time."""

    def __init__(self, forest: Forest, window: int | None) -> None:
        self.index = mx.arange(forest.length)
        self._positions = mx.array(forest.positions)
        self._until = mx.array(forest.until)
        self._window = window

    def seen(self, block: Block, index: mx.array) -> mx.array | None:
        """Which keys the block's queries see, bool [queries, keys]; None if all see all. `index` is `self.index`."""
        if not block.masked:
            return None
        query, key = index[block.start : block.end, None], _picked(index, block.keys)
        seen = (key <= query) & (query < _picked(self._until, block.keys))
        if self._window is not None:
            own = self._positions[block.start : block.end, None]
            seen = seen & (own - _picked(self._positions, block.keys) < self._window)
        return seen


def pick(array: mx.array, ranges: Sequence[Range]) -> mx.array:
    """The parts of [batch, heads, length, width] in `ranges` of its length, side by side."""
    parts = [array[:, :, first:last] for first, last in ranges]
    return parts[0] if len(parts) == 1 else mx.concatenate(parts, axis=2)


def add(array: mx.array, ranges: Sequence[Range], parts: mx.array) -> None:
    """Adds `parts`, as `pick` laid them out, where they belong."""
    done = 0
    for first, last in ranges:
        array[:, :, first:last] += parts[:, :, done : done + last - first].astype(array.dtype)
        done += last - first


def after(arrays: list[mx.array], earlier: list[mx.array]) -> list[mx.array]:
    """`arrays`, not to be used before `earlier` are computed: or the scheduler would hold every block's scores."""
    chained: list[mx.array] = mx.depends(arrays, earlier) if earlier else arrays
    return chained


def _picked(numbers: mx.array, ranges: Sequence[Range]) -> mx.array:
    """The parts of [length] in `ranges`, side by side."""
    return mx.concatenate([numbers[first:last] for first, last in ranges])
