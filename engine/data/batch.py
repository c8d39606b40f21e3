"""Rows into batches: padded on the right, shuffled by epoch, none left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from engine.data.tokenize import Example


@dataclass(frozen=True)
class Batch:
    """Rows side by side. A target is a trained token that a token before it predicts; padding never is one.

    `inputs` is int32 [rows, length - 1]: every token but a row's last. `target_positions` index the
    flattened inputs, `targets` are the token ids that follow there, `target_rows` the row of each.
    """

    inputs: np.ndarray
    targets: np.ndarray
    target_positions: np.ndarray
    target_rows: np.ndarray
    tokens: int  # real tokens, padding not counted


def make_batch(examples: Sequence[Example]) -> Batch:
    """Puts the rows' tokens into one padded rectangle."""
    length = max(len(example.ids) for example in examples)
    ids = np.zeros((len(examples), length), np.int32)
    trained = np.zeros((len(examples), length), bool)
    for row, example in enumerate(examples):
        ids[row, : len(example.ids)] = example.ids
        trained[row, : len(example.ids)] = example.trained
    is_target = trained[:, 1:]
    rows, columns = np.nonzero(is_target)
    return Batch(
        inputs=np.ascontiguousarray(ids[:, :-1]),
        targets=ids[:, 1:][is_target],
        target_positions=(rows * (length - 1) + columns).astype(np.int32),
        target_rows=rows.astype(np.int32),
        tokens=sum(len(example.ids) for example in examples),
    )


def row_order(rows: int, seed: int) -> Iterator[int]:
    """Row numbers without end: every row once an epoch, each epoch in an order of its own."""
    epoch = 0
    while True:
        yield from np.random.default_rng((seed, epoch)).permutation(rows).tolist()
        epoch += 1
