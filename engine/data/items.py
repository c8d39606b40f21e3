"""A store's rows cut by max_length: counted from its arrays, made into examples and pairs when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import overload

import numpy as np
import numpy.typing as npt

from engine.data.store import Store
from engine.data.tokenize import Example, Item, Pair

Ints = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int32]  # of tokens: half the bytes of Ints, for each of millions of rows


class Items(Sequence[Item]):
    """Rows of a store, each side's first `max_length` tokens. `rows` are their places in the store.

    Two lists of the same rows are equal in what they hold; an item is made anew whenever it is asked for.
    """

    def __init__(self, store: Store, rows: Ints, max_length: int) -> None:
        self.store, self.rows, self.max_length = store, rows, max_length

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, place: int) -> Item: ...
    @overload
    def __getitem__(self, place: slice) -> Items: ...
    def __getitem__(self, place: int | slice) -> Item | Items:
        if isinstance(place, slice):
            return self.at(self.rows[place])
        return self._item(int(self.rows[place]))

    def __iter__(self) -> Iterator[Item]:
        return map(self._item, self.rows.tolist())

    def at(self, rows: Ints) -> Items:
        """Other rows of the store, cut alike."""
        return Items(self.store, rows, self.max_length)

    @property
    def numbers(self) -> Ints:
        """Each row's number among all rows of the data, from 0 on."""
        return self.store.numbers[self.rows].astype(np.int64)

    @property
    def lines(self) -> npt.NDArray[np.int32]:
        """Each row's line."""
        return self.store.lines[self.store.numbers[self.rows]]

    @cached_property
    def whole_lengths(self) -> Counts:
        """Tokens of each side before cutting, [rows, sides]."""
        return np.diff(self.store.ends).astype(np.int32)[self._sides]

    @property
    def lengths(self) -> Counts:
        """Tokens of each side, [rows, sides]."""
        return np.minimum(self.whole_lengths, self._most)

    @cached_property
    def firsts(self) -> Counts:
        """Each side's tokens before the first that is trained, all where none is, [rows, sides]."""
        store, begins = self.store, self.store.range_ends[self._sides]
        none = begins == store.range_ends[self._sides + 1]
        if not len(store.ranges):
            return self.whole_lengths
        return np.where(none, self.whole_lengths, store.ranges[np.minimum(begins, len(store.ranges) - 1), 0])

    @cached_property
    def trained(self) -> Counts:
        """Trained tokens of each side, [rows, sides]."""
        ranges, sides, ends = self.store.ranges, self._sides, self.store.range_ends
        sizes = np.minimum(ranges[:, 1], self._most) - np.minimum(ranges[:, 0], self._most)
        before = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=before[1:])
        return (before[ends[sides + 1]] - before[ends[sides]]).astype(np.int32)

    @property
    def is_cut(self) -> npt.NDArray[np.bool_]:
        """Whether a side of the row is longer than max_length, [rows]."""
        return np.asarray((self.whole_lengths > self.max_length).any(axis=1))

    @property
    def is_usable(self) -> npt.NDArray[np.bool_]:
        """Whether every side has something to train, [rows]."""
        return np.asarray((self.trained > 0).all(axis=1))

    @property
    def is_identical(self) -> npt.NDArray[np.bool_]:
        """Whether both sides are the same tokens as far as they are kept, [rows]."""
        if self.store.sides == 1:
            return np.zeros(len(self), bool)
        shorter, longer = self.lengths.min(axis=1), self.lengths.max(axis=1)
        return np.asarray((shorter == longer) & (self.store.common[self.rows] >= longer))

    def tokens(self, shared: bool = True) -> Counts:
        """Tokens that each row brings into a batch, [rows]: both sides, their prompt once where it is `shared`."""
        if self.store.sides == 1:
            return np.asarray(self.lengths[:, 0])
        if not shared:
            return np.asarray(2 * self.lengths.max(axis=1))
        prompts = self.firsts[:, 0]
        same = (prompts == self.firsts[:, 1]) & (self.store.common[self.rows] >= prompts)
        return np.asarray(self.lengths.sum(axis=1, dtype=np.int32) - np.where(same, prompts, 0))

    def longer_sides(self) -> tuple[Counts, Counts]:
        """Prompt and response tokens of each row's longer side before cutting, [rows] each."""
        longer = self.whole_lengths.argmax(axis=1)[:, None]
        prompts = np.take_along_axis(self.firsts, longer, axis=1)[:, 0]
        return prompts, self.whole_lengths.max(axis=1) - prompts

    @property
    def _sides(self) -> Ints:
        return self.rows[:, None] * self.store.sides + np.arange(self.store.sides)

    @property
    def _most(self) -> int:
        return min(self.max_length, np.iinfo(np.int32).max)

    def _item(self, row: int) -> Item:
        line = int(self.store.lines[self.store.numbers[row]])
        first = row * self.store.sides
        if self.store.sides == 1:
            return self._example(line, first)
        return Pair(line, self._example(line, first), self._example(line, first + 1))

    def _example(self, line: int, side: int) -> Example:
        start, end = self.store.ends[side : side + 2].tolist()
        # A copy: whoever keeps a row shall not hold the file.
        ids = np.array(self.store.ids[start : min(end, start + self.max_length)])
        trained = np.zeros(len(ids), bool)
        first, last = self.store.range_ends[side : side + 2].tolist()
        for begin, until in self.store.ranges[first:last].tolist():
            trained[begin:until] = True
        return Example(line, ids, trained, end - start - len(ids))
