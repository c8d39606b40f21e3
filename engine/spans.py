"""Packed sequences: a forest of token spans, as two numbers a token.

A span sees itself causally and its ancestors whole, and its positions go on from its parent's end. Laid down
depth first, the descendants of a span stand right behind it, so the token at j is seen from i exactly when

    j <= i < until[j]        until[j]: where the last descendant of j's span ends

and a window of w tokens cuts by logical position: position[i] - position[j] < w. Rows packed together are
roots; a preference pair is a prompt with two children; one plain row is the forest of a single span.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Range = tuple[int, int]


@dataclass(frozen=True)
class Block:
    """Queries [start, end) and the ranges of keys that any of them sees; `masked` if not all see all of those."""

    start: int
    end: int
    keys: tuple[Range, ...]
    masked: bool


@dataclass(frozen=True, eq=False)
class Forest:
    """The layout of one sequence: int32 `positions` and `until`, [length] each."""

    positions: Ints
    until: Ints
    # With the forest, not in a cache of the module: that would hold on to the forests of many past batches.
    _blocks: dict[tuple[int, int | None], tuple[Block, ...]] = field(default_factory=dict, init=False, repr=False)

    @property
    def length(self) -> int:
        return len(self.positions)

    @cached_property
    def is_plain(self) -> bool:
        """Whether this is a single span: ordinary causal attention."""
        return bool((self.until == self.length).all() and (self.positions == np.arange(self.length)).all())

    def blocks(self, size: int, window: int | None) -> tuple[Block, ...]:
        """The sequence in blocks of `size` queries, with the keys that spans and the window leave to each."""
        if (size, window) not in self._blocks:
            starts = range(0, self.length, size)
            found = tuple(_block(self, start, min(start + size, self.length), window) for start in starts)
            self._blocks[size, window] = found
        return self._blocks[size, window]


@lru_cache(maxsize=8)
def plain(length: int) -> Forest:
    """One span of `length` tokens."""
    return Forest(np.arange(length, dtype=np.int32), np.full(length, length, np.int32))


def is_visible(forest: Forest, queries: Ints, keys: Ints, window: int | None) -> npt.NDArray[np.bool_]:
    """Which of the `keys` each of the `queries` sees, [queries, keys]; both are places in the sequence."""
    query, key = queries[:, None], keys[None]
    seen = (key <= query) & (query < forest.until[key])
    if window is not None:
        seen &= forest.positions[query] - forest.positions[key] < window
    return seen


def _block(forest: Forest, start: int, end: int, window: int | None) -> Block:
    until, positions = forest.until[:end], forest.positions[:end]
    places = np.arange(end)
    # A run is a part of one span inside the block: its first query sees the farthest back.
    breaks = (np.diff(positions[start:end]) != 1) | (np.diff(until[start:end]) != 0)
    runs = [start, *(start + 1 + np.flatnonzero(breaks)).tolist(), end]
    seen_by_any, seen_by_all = np.zeros(end, bool), np.ones(end, bool)
    for first, last in itertools.pairwise(runs):
        lineage = until > first
        near = lineage & (places < last)
        clear = lineage & (places <= first)
        if window is not None:
            near &= positions[first] - positions < window
            clear &= positions[last - 1] - positions < window
        seen_by_any |= near
        seen_by_all &= clear
    edges = np.flatnonzero(np.diff(np.concatenate([[False], seen_by_any, [False]])))
    keys = tuple(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
    return Block(start, end, keys, masked=bool((seen_by_any & ~seen_by_all).any()))
