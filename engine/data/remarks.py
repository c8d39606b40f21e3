"""What is worth a warning in rows that can be trained."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.data.problems import Problem, warning
from engine.data.tokenize import Example, Item, Pair, extent

MAX_LINES_NAMED = 20  # in one sentence

# Answers this unlike in length: over so many times as long, and by more than so many tokens.
_TIMES_AS_LONG = 4
_TOKENS_LONGER = 64


def remarks(item: Item) -> list[Problem]:
    """What a person should know of a row that was cut to fit: what is lost, and whether anything is left to prefer."""
    if isinstance(item, Example):
        return _cut_warnings(item)
    same = np.array_equal(item.chosen.ids, item.rejected.ids)
    return [
        *_cut_warnings(item.chosen, "chosen"),
        *_cut_warnings(item.rejected, "rejected"),
        *([_identical(item)] if same else []),
    ]


def default_template() -> Problem:
    """Says how rows are written for a model that has no chat template."""
    return warning(
        0,
        "default_template",
        "This model has no chat template, so rows are written as User: and Assistant: sections.",
        "Talk to the trained model in the same form, or choose an instruct model.",
    )


def duplicates(lines: Sequence[int]) -> Problem:
    """Names the `lines` that hold the same row."""
    named = ", ".join(map(str, lines[: min(MAX_LINES_NAMED, len(lines) - 1)]))
    others = len(lines) - MAX_LINES_NAMED
    last = f"{others:,} more" if others > 1 else str(lines[-1])
    return warning(
        lines[0],
        "duplicates",
        f"Lines {named} and {last} hold the same row, which counts {len(lines):,} times as much as others.",
        "Keep one of them, unless that is meant.",
    )


def one_sided_lengths(pairs: Sequence[Pair]) -> Problem | None:
    """A warning where most pairs prefer the much longer answer, or most the much shorter one."""
    sizes = np.array([(pair.chosen.trained_tokens, pair.rejected.trained_tokens) for pair in pairs]).reshape(-1, 2)
    for side, other, preferred in ((0, 1, "longer"), (1, 0, "shorter")):
        longer, shorter = sizes[:, side], sizes[:, other]
        unlike = int(((longer > _TIMES_AS_LONG * shorter) & (longer - shorter > _TOKENS_LONGER)).sum())
        if 2 * unlike > len(pairs):
            return warning(
                0,
                "one_sided_lengths",
                f"In {unlike:,} of {len(pairs):,} pairs the chosen answer is much {preferred} than the rejected one, "
                f"over {_TIMES_AS_LONG} times: to write {preferred} answers is then what is learned.",
                "Add pairs whose two answers are about as long.",
            )
    return None


def _cut_warnings(example: Example, side: str = "") -> list[Problem]:
    if not example.cut:
        return []
    whole = example.length + example.cut
    return [
        warning(
            example.line,
            "cut",
            f"{extent(example.line, side, whole)}: the last {example.cut:,} are cut off.",
            f"Set the longest row (max_length) to {whole:,} to keep all of it.",
        )
    ]


def _identical(pair: Pair) -> Problem:
    kept, fix = "", "Write a worse answer as 'rejected', or take the row out."
    if pair.cut:
        kept, fix = " as far as they are kept", "Set the longest row (max_length) higher, or take the row out."
    return warning(
        pair.line,
        "identical_pair",
        f"Line {pair.line}'s chosen and rejected answers are the same{kept}, so there is nothing to prefer.",
        fix,
    )
