"""How long the rows are, and what cutting them would cost: arithmetic on the check's array of lengths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.answers import Check
from engine.config import PAIR_OBJECTIVES, TrainConfig
from engine.errors import EngineError

Counts = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Cost:
    """What a longest row takes away: rows cut, rows left with nothing to train, tokens lost; and the steps left."""

    rows_cut: int
    rows_untrained: int
    tokens_lost: int
    steps: int


@dataclass(frozen=True)
class Lengths:
    """Tokens of each row, uncut, [rows] each: before what is learned, and from there on (of a pair its longer side)."""

    prompt: Counts
    response: Counts

    @classmethod
    def load(cls, path: str) -> Lengths:
        """What a check left at `path`. EngineError where it is gone or no such array."""
        try:
            stored = np.load(Path(path), allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise EngineError("The lengths of the rows can't be read any more.", "Check the data again.") from error
        if stored.ndim != 2 or stored.shape[1] < 2:
            raise EngineError("The lengths of the rows are not what they should be.", "Check the data again.")
        return cls(stored[:, 0].copy(), stored[:, 1].copy())

    @cached_property
    def total(self) -> Counts:
        return self.prompt + self.response

    @cached_property
    def longest(self) -> int:
        return int(self.total.max(initial=0))

    @cached_property
    def tokens(self) -> int:
        """All of them together."""
        return int(self.total.sum(dtype=np.int64))

    def cost(self, max_length: int, config: TrainConfig, check: Check) -> Cost:
        """What `max_length` would take, where `check` was made with `config`'s."""
        over = self.total - max_length
        untrained, before = self._untrained(max_length), self._untrained(config.max_length)
        usable = max(1, len(self.prompt) - before)
        train_rows = round(check.split.get("train", 0) * (len(self.prompt) - untrained) / usable)
        at_once = config.batch_size * config.accumulate
        steps = config.steps or math.ceil(math.ceil(train_rows * config.epochs) / at_once)
        lost = int(over.clip(min=0).sum(dtype=np.int64))
        return Cost(int(np.count_nonzero(over > 0)), untrained, lost, steps)

    def largest(self, max_length: int, config: TrainConfig) -> int:
        """The most tokens that one row brings when cut to `max_length`; of pairs at most so many."""
        prompt = np.minimum(self.prompt, max_length)
        response = np.minimum(self.response, max_length - prompt)
        if config.objective not in PAIR_OBJECTIVES:
            return int((prompt + response).max(initial=0))
        sides = 2 * response + (prompt if config.prefix_shared else 2 * prompt)
        return int(sides.max(initial=0))

    def _untrained(self, max_length: int) -> int:
        return int(np.count_nonzero((self.prompt >= max_length) | (self.response == 0)))
