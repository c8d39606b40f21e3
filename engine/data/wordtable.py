"""The tokens of many words, found by the words' numbers at once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

SPECIAL = 0  # the number of all words that name a special token


class Words:
    """The tokens of known words, which lie one after the other: those of number 0, of none, are none."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}
        self._ids = np.empty(0, np.int32)
        self._ends = np.zeros(2, np.int64)

    def __len__(self) -> int:
        return len(self._known)

    def numbers(self, words: Sequence[bytes]) -> npt.NDArray[np.int64]:
        """The number of each word, -1 for one that is not known."""
        return np.fromiter(map(self._known.get, words, itertools.repeat(-1)), np.int64, len(words))

    def add(self, words: Sequence[bytes], tokens: Sequence[bytes | None]) -> None:
        """Makes words known by their tokens, None for SPECIAL."""
        number = len(self._ends) - 1
        for word, ids in zip(words, tokens, strict=True):
            self._known[word] = SPECIAL if ids is None else number
            number += ids is not None
        known = [ids for ids in tokens if ids is not None]
        ends = np.cumsum(np.array([len(ids) // 4 for ids in known], np.int64)) + self._ends[-1]
        self._ids = np.concatenate([self._ids, np.frombuffer(b"".join(known), np.int32)])
        self._ends = np.concatenate([self._ends, ends])

    def forget(self, words: Sequence[bytes]) -> None:
        """Makes words unknown that were the last to be added."""
        numbers = [self._known.pop(word) for word in words]
        kept = min((number for number in numbers if number != SPECIAL), default=len(self._ends) - 1)
        self._ends = self._ends[: kept + 1]
        self._ids = self._ids[: self._ends[-1]]

    def tokens(
        self, numbers: npt.NDArray[np.int64], order: npt.NDArray[np.integer[Any]]
    ) -> tuple[bytes, npt.NDArray[np.int64]]:
        """The tokens of words as bytes, and 0 and how many there are up to each word's end.

        `order` says for each word which of `numbers` it has: of different words there are few.
        """
        begins = self._ends[numbers]
        sizes = (self._ends[numbers + 1] - begins).astype(np.int32).take(order)
        ends = np.zeros(len(order) + 1, np.int64)
        np.cumsum(sizes, out=ends[1:])
        places = np.repeat((begins.take(order) - ends[:-1]).astype(np.int32), sizes)
        places += np.arange(len(places), dtype=np.int32)
        return self._ids.take(places).tobytes(), ends
