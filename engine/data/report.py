"""What `check --json` tells of a run's data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from engine.data.rows import Rows

MAX_LENGTHS = 20_000  # row lengths in a report


def report(rows: Rows, prompts: bool = False) -> dict[str, Any]:
    """Counts, problems and token counts of the data; of a validation file only the problems and the rows.

    `prompts`: the prompts of chosen rows are trained too, as by ORPO's full scope. `tokens` counts what is kept of the
    usable rows, `longest` and `lengths` whole rows. A pair is as long as its longer side; in the total both sides
    count, a shared prompt once. `largest` is the most tokens that a usable row
    brings into a batch, `largest_apart` where prompts are not shared. `lengths` holds at
    most MAX_LENGTHS rows, taken evenly over the file.
    """
    dataset = rows.dataset
    examples, lengths = dataset.examples, dataset.lengths
    kept = np.array([item.length for item in examples] or [0])
    if len(lengths) > MAX_LENGTHS:
        lengths = lengths[np.linspace(0, len(lengths) - 1, MAX_LENGTHS).astype(int)]
    without_targets = ("nothing_to_train", "no_assistant")
    return {
        "rows": dataset.rows,
        "usable": len(examples),
        "format": dataset.format,
        "problems": [asdict(problem) for problem in rows.problems],
        "tokens": {
            "median": round(float(np.median(kept))),
            "p95": round(float(np.percentile(kept, 95))),
            "max": int(kept.max()),
            "total": sum(item.tokens for item in examples),
        },
        "trained_tokens": sum(item.trained_tokens + (item.prompt_targets if prompts else 0) for item in examples),
        "truncated_rows": sum(item.cut > 0 for item in examples),
        "rows_without_targets": sum(problem.code in without_targets for problem in dataset.problems),
        "split": {"train": len(rows.train), "valid": len(rows.valid)},
        "split_text": rows.sentence,
        "longest": int(dataset.lengths.max(initial=0)),
        "largest": max((item.tokens for item in examples), default=0),
        "largest_apart": max((item.tokens_apart for item in examples), default=0),
        "lengths": lengths.tolist(),
    }
