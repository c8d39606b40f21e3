"""A row that is too long, made to fit by leaving out what was said first."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

# One character of a prompt is no question.
_FEWEST_CHARACTERS = 16


def shortened(value: dict[str, Any], fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
    """The row with as much of what comes before its last answer as `fits`; None where that can't be done.

    The oldest turns go first, whole; then the start of the text before the answer. The answers that are left, and a
    system message, stay whole.
    """
    for name in ("messages", "prompt"):
        if isinstance(value.get(name), list):
            return _chat(value, name, fits)
    if isinstance(value.get("prompt"), str):
        return _cut(value["prompt"], lambda text: {**value, "prompt": text}, fits)
    return None


def _chat(value: dict[str, Any], name: str, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
    turns = value[name]
    kept = 1 if turns and turns[0].get("role") == "system" else 0
    head, rest = turns[:kept], turns[kept:]
    # Turns go in whole exchanges: what is left begins with a user. The last is where `fits` stays to be tried on text.
    starts = [number for number, turn in enumerate(rest) if turn.get("role") == "user"]
    if name == "messages":
        answered = max((number for number, turn in enumerate(rest) if turn.get("role") == "assistant"), default=-1)
        starts = [number for number in starts if number < answered]
    for start in starts:
        shorter = {**value, name: head + rest[start:]}
        if fits(shorter):
            return shorter
    if not starts or not isinstance(rest[starts[-1]].get("content"), str):
        return None
    first, after = rest[starts[-1]], rest[starts[-1] + 1 :]
    return _cut(first["content"], lambda text: {**value, name: [*head, {**first, "content": text}, *after]}, fits)


def _cut(
    text: str, row_of: Callable[[str], dict[str, Any]], fits: Callable[[dict[str, Any]], bool]
) -> dict[str, Any] | None:
    """The row with the longest end of `text` that fits, by halving: a shorter text has hardly ever more tokens."""
    most = len(text) - _FEWEST_CHARACTERS
    if most < 1:
        return None
    left_out = bisect_left(range(most), True, lo=1, key=lambda count: fits(row_of(text[count:])))
    row = row_of(text[left_out:])
    return row if fits(row) else None
