"""Rows set aside to measure with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine.data.alike import grouped

FEWEST_ROWS = 50
MANY_ROWS = 200

Places = npt.NDArray[np.int64]


def split(keys: Sequence[str] | npt.NDArray[np.bytes_], seed: int) -> tuple[Places, Places, str]:
    """Places of rows to train and of rows to measure, and in words why so. Both keep the rows' order.

    From 50 rows a tenth is set aside, from 200 a twentieth. Rows with the same key (the prompt) stay on one
    side, or the measure would count answers learned by heart.
    """
    rows = len(keys)
    everything, nothing = np.arange(rows), np.arange(0)
    if rows < FEWEST_ROWS:
        trained = {0: "there is nothing to train", 1: "the one row is trained"}.get(rows, f"all {rows} are trained")
        return everything, nothing, f"Too few rows to set some aside: {trained}, none measured."
    wanted = rows // 10 if rows < MANY_ROWS else rows // 20
    order, borders = grouped(np.asarray(keys))
    is_aside, aside = np.zeros(rows, bool), 0
    for number in np.random.default_rng(seed).permutation(len(borders) - 1):
        begin, end = borders[number : number + 2].tolist()
        if aside + end - begin <= wanted:
            is_aside[order[begin:end]] = True
            aside += end - begin
        if aside == wanted:
            break
    if not aside:
        return everything, nothing, f"The rows share too few prompts to set some aside: all {rows:,} are trained."
    sentence = f"{aside:,} of {rows:,} rows are set aside to measure with and never trained; "
    return everything[~is_aside], everything[is_aside], sentence + "no prompt is on both sides."


def own_rows_sentence(rows: int, names: Sequence[Path]) -> str:
    """Says where the measured rows come from when a person brings files of their own for it."""
    named = " and ".join(path.name for path in names) if len(names) < 4 else f"{len(names)} files"
    measured = f"1 row of {named} is" if rows == 1 else f"{rows:,} rows of {named} are"
    return f"{measured} measured, never trained."
