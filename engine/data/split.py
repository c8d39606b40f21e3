"""Rows set aside to measure with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from engine.data.tokenize import Item

FEWEST_ROWS = 50
MANY_ROWS = 200


def split(examples: Sequence[Item], keys: Sequence[str], seed: int) -> tuple[tuple[Item, ...], tuple[Item, ...], str]:
    """Rows to train, rows to measure, and in words why so. Both keep the file's order.

    From 50 rows a tenth is set aside, from 200 a twentieth. Rows with the same key (the prompt) stay on one
    side, or the measure would count answers learned by heart.
    """
    rows = len(examples)
    if rows < FEWEST_ROWS:
        trained = {0: "there is nothing to train", 1: "the one row is trained"}.get(rows, f"all {rows} are trained")
        return tuple(examples), (), f"Too few rows to set some aside: {trained}, none measured."
    wanted = rows // 10 if rows < MANY_ROWS else rows // 20
    groups = defaultdict(list)
    for number, key in enumerate(keys):
        groups[key].append(number)
    members = list(groups.values())
    aside: set[int] = set()
    for group in np.random.default_rng(seed).permutation(len(members)).tolist():
        if len(aside) + len(members[group]) <= wanted:
            aside.update(members[group])
    train = tuple(example for number, example in enumerate(examples) if number not in aside)
    valid = tuple(example for number, example in enumerate(examples) if number in aside)
    if not valid:
        return train, valid, f"The rows share too few prompts to set some aside: all {rows:,} are trained."
    sentence = f"{len(valid):,} of {rows:,} rows are set aside to measure with and never trained; "
    return train, valid, sentence + "no prompt is on both sides."


def own_rows_sentence(rows: int, path: Path) -> str:
    """Says where the measured rows come from when a person brings a file of their own for it."""
    measured = f"1 row of {path.name} is" if rows == 1 else f"{rows:,} rows of {path.name} are"
    return f"{measured} measured, never trained."
