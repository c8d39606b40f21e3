"""What `check --json` tells of a run's data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.data.alike import repeated
from engine.data.cache import cache_folder, in_the_making, make_room
from engine.data.dataset import Dataset
from engine.data.fixes import CURES
from engine.data.rows import Rows
from engine.errors import EngineError

MAX_LENGTHS_BYTES = 128 * 1024**2  # of all files of row lengths in the cache; the oldest go first
_WITHOUT_TARGETS = ("nothing_to_train", "no_assistant")
_TRIM = "Shorten up to {} row{} by turns and sentences"


def report(rows: Rows, prompts: bool = False) -> dict[str, Any]:
    """Counts, problems and token counts of the data; of a validation file only the problems and the rows.

    `prompts`: the prompts of chosen rows are trained too, as by ORPO's full scope. `tokens` counts what is kept of the
    usable rows, `longest` and `lengths` whole rows. A pair is as long as its longer side; in the total both sides
    count, a shared prompt once. `largest` is the most tokens that a usable row brings into a batch, `largest_apart`
    where prompts are not shared. `lengths` is the path of a .npy file, int32 [rows, 3]: prompt tokens, response tokens
    and line of each row that has tokens. EngineError(kind="disk") where it can't be written.
    """
    dataset, examples = rows.dataset, rows.dataset.examples
    kept, tokens, sizes = examples.lengths.max(axis=1, initial=0), examples.tokens(), dataset.sizes
    some = kept if len(kept) else np.zeros(1, int)
    return {
        "rows": dataset.rows,
        "usable": len(examples),
        "format": dataset.format,
        "files": [str(path) for path in dataset.files],
        "columns": {"names": list(dataset.column_names), "used": dataset.columns},
        "problems": [asdict(problem) for problem in rows.problems],
        "cures": list(_cures(dataset)),
        "tokens": {
            "median": round(float(np.median(some))),
            "p95": round(float(np.percentile(some, 95))),
            "max": int(some.max()),
            "total": int(tokens.sum()),
        },
        "trained_tokens": int(examples.trained.sum()) + (_prompt_targets(dataset) if prompts else 0),
        "truncated_rows": int(examples.is_cut.sum()),
        "rows_without_targets": sum(found.rows for found in dataset.problems if found.code in _WITHOUT_TARGETS),
        "split": {"train": len(rows.train), "valid": len(rows.valid)},
        "split_text": rows.sentence,
        "longest": int(sizes[:, :2].sum(axis=1).max(initial=0)),
        "largest": int(tokens.max(initial=0)),
        "largest_apart": int(examples.tokens(shared=False).max(initial=0)),
        "lengths": str(_keep(sizes)),
    }


def _prompt_targets(dataset: Dataset) -> int:
    """Tokens of the chosen rows' prompts that another one predicts: of single rows none."""
    if dataset.examples.store.sides == 1:
        return 0
    return int(np.maximum(dataset.examples.firsts[:, 0] - 1, 0).sum())


def _cures(dataset: Dataset) -> Iterator[dict[str, Any]]:
    """What `fix` can do for the file: a cure, what its button says, what it does in a sentence, and for how many rows
    of the whole file, or of the folder's files to train with.
    """
    rendered = dataset.rendered
    same = sum(found.rows for found in dataset.problems if found.severity == "warning" and found.cure == "skip")
    # What stands before the first answer can be shortened; a plain text's first token is all that it has there.
    long = rendered.is_cut & (rendered.firsts.max(axis=1, initial=0) > 1)
    flawed = dataset.rows - len(dataset.examples) + same
    unclean = sum(found.rows for found in dataset.problems if found.cure == "convert")
    for cure, one, many, count in (
        (
            "skip",
            "Leave out 1 flawed row",
            "Leave out all {:,} flawed rows",
            flawed * (flawed < dataset.rows),
        ),
        ("trim", _TRIM.format(1, ""), _TRIM.format("{:,}", "s"), int(long.sum())),
        ("convert", "Convert 1 row to clean UTF-8", "Convert all {:,} such rows to clean UTF-8", unclean),
        ("dedupe", "Leave out 1 repeated row", "Leave out {:,} repeated rows", _repeated(dataset)),
    ):
        if count:
            label = one if count == 1 else many.format(count)
            yield {"cure": cure, "label": label, "does": f"{CURES[cure]}.", "rows": count}


def _repeated(dataset: Dataset) -> int:
    """Rows that say what one before them says: all of them go, also those that can't be used, where any that can is
    repeated.
    """
    contents = dataset.rendered.store.contents
    if not len(repeated(contents, dataset.examples.rows)[0]):
        return 0
    places, groups, _ = repeated(contents, dataset.rendered.rows)
    return len(places) - len(np.unique(groups))


def _keep(sizes: npt.NDArray[np.int32]) -> Path:
    """Writes the lengths into the cache, named by what they are, and takes the oldest out."""
    folder = cache_folder("lengths")
    path = folder / f"{hashlib.blake2b(sizes.data, digest_size=16).hexdigest()}.npy"
    try:
        with in_the_making("lengths") as work:
            np.save(work / path.name, sizes)
            (work / path.name).replace(path)
        make_room(path, MAX_LENGTHS_BYTES)
    except OSError as cause:
        raise EngineError(
            f"The rows' lengths can't be written to {folder}: {cause.strerror or cause}.",
            "Make room on the disk, or choose another place with TUNESMITH_HOME.",
            kind="disk",
        ) from cause
    return path
