"""The most that a run brings into one step: its largest batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle, islice

import numpy as np

from engine.config import TrainConfig
from engine.data.rows import Rows
from engine.data.tokenize import Item


def rows_in_all(config: TrainConfig, train_rows: int) -> int:
    """The rows that a run goes through: those of its steps, or of its epochs over `train_rows`."""
    return config.steps * config.batch_size * config.accumulate or math.ceil(train_rows * config.epochs)


def rows_at_once(config: TrainConfig, train_rows: int) -> int:
    """The most rows in a batch. With few rows an epoch's last and the next one's first share a batch."""
    return min(config.batch_size, rows_in_all(config, train_rows) or 1)


def largest_rows(config: TrainConfig, rows: Rows) -> list[Item]:
    """The rows of the largest step that a run can meet, largest first: one batch, or two where batches accumulate.

    Where there are fewer rows than that, they come by more than once, as they do in a run.
    """
    wanted = min(config.batch_size * min(config.accumulate, 2), rows_in_all(config, len(rows.train)))
    longest = [
        items[place]
        for items in (rows.train, rows.valid)
        for place in np.argsort(-items.tokens(config.prefix_shared), kind="stable")[:wanted].tolist()
    ]
    longest.sort(key=lambda item: _tokens(config, item), reverse=True)
    return list(islice(cycle(longest[:wanted]), wanted))


def tokens_a_row(config: TrainConfig, items: Sequence[Item]) -> int:
    """Tokens that each of a batch's rows brings: their mean where they are packed, the most where they are padded."""
    tokens = [_tokens(config, item) for item in items]
    return math.ceil(sum(tokens) / len(tokens)) if config.pack else max(tokens)


def _tokens(config: TrainConfig, item: Item) -> int:
    return item.tokens if config.prefix_shared else item.tokens_apart
