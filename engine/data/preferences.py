"""Preference pairs in foreign dress: two answers with the better one named, and transcripts of Human and Assistant."""

from __future__ import annotations

import re
from typing import Any

from engine.data.columns import Columns
from engine.data.problems import Problem, error
from engine.data.read import Row

_TIES = ("both", "both_good", "both_bad", "bothbad", "neither", "none", "draw", "equal", "same", "even")
# What stands before the letter or number of an answer where it is named: model_a, Response 1.
_CALLED = re.compile(r"\A(?:model|response|answer|completion|output|conversation|option|choice|assistant)_?(?=\w$)")
# How Anthropic's HH-RLHF writes a conversation.
_SPEAKER = re.compile(r"(?:\A|\n\r?\n)\s*(Human|Assistant):[ \t]*")
_ROLES = {"Human": "user", "Assistant": "assistant"}

Turns = list[dict[str, str]]


def judged(row: Row, columns: Columns) -> dict[str, Any] | Problem:
    """The fields of a row of two answers, with `chosen` and `rejected` in place of the answers and the winner.

    `columns` has answer_a and answer_b. A tie is a Problem, and so is a winner that is neither answer's name.
    """
    fields = {field: row.value[name] for field, name in columns.items() if name in row.value}
    names = columns["answer_a"], columns["answer_b"]
    for field, name in zip(("answer_a", "answer_b"), names, strict=True):
        if field not in fields:
            return error(row.line, "missing_field", f"Line {row.line} has no {name!r}.", f"Add the field {name!r}.")
    answers, winner = (fields.pop("answer_a"), fields.pop("answer_b")), fields.pop("winner", None)
    told = _plain(winner)
    if told in _TIES or told.startswith("tie"):
        return error(
            row.line,
            "tie",
            f"Line {row.line} prefers neither answer: its {columns['winner']!r} is {str(winner)[:40]!r}.",
            "Take the row out: there is nothing to prefer in a tie.",
        )
    better = [number for number, name in enumerate(names) if _is_meant(told, name)]
    if len(better) == 1:
        chosen, rejected = (answers[number] for number in (better[0], 1 - better[0]))
        return {**fields, "chosen": chosen, "rejected": rejected}
    place = columns.get("winner")
    says = f"its {place!r} is {str(winner)[:40]!r}" if winner is not None else f"it has no {place or 'winner'!r}"
    return error(
        row.line,
        "no_winner",
        f"Line {row.line} doesn't say which of its answers is better: {says}.",
        f"Write {names[0]!r} or {names[1]!r} into the field {place or 'winner'!r}, or take the row out.",
    )


def transcript(value: Any) -> Any:
    """The messages of a text of Human's and Assistant's turns; any other value as it is.

    An Assistant's turn without a word at the end is no message: there the answer begins.
    """
    if not isinstance(value, str) or not value.lstrip().startswith("Human:"):
        return value
    _, *parts = _SPEAKER.split(value)
    turns = [{"role": _ROLES[who], "content": said.strip()} for who, said in zip(parts[::2], parts[1::2], strict=True)]
    if all(turn["role"] == "user" for turn in turns):
        return value
    return turns[:-1] if turns[-1] == {"role": "assistant", "content": ""} else turns


def _is_meant(told: str, column: str) -> bool:
    """Whether a winner is the answer in this column: by its name, or by what the name ends in."""
    name = _plain(column)
    return bool(told) and (told == name or _CALLED.sub("", told) == name.rpartition("_")[2])


def _plain(value: Any) -> str:
    text = "" if value is None else str(value)
    return text.strip().lower().replace(" ", "_").replace("-", "_").removesuffix(".0")
