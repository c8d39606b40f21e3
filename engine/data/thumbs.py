"""Answers with a thumb up or down, paired where a prompt has both."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from engine.data.columns import Columns
from engine.data.problems import Problem, error
from engine.data.read import Row
from engine.data.shapes import canonical

_VERDICTS = {
    **dict.fromkeys(("true", "up", "thumbs_up", "thumbsup", "good", "like", "liked", "👍"), True),
    **dict.fromkeys(("false", "down", "thumbs_down", "thumbsdown", "bad", "dislike", "disliked", "👎"), False),
}
_NUMBERS = {"1": True, "0": False, "-1": False}


def verdict(value: Any, with_numbers: bool = False) -> bool | None:
    """Whether a label says that the answer is good; None where it says neither.

    1, 0 and -1 count only `with_numbers`: many tables number their classes so.
    """
    if isinstance(value, bool):
        return value
    name = str(value).strip().lower().replace(" ", "_").replace("-1.0", "-1").removesuffix(".0")
    return _VERDICTS.get(name, _NUMBERS.get(name) if with_numbers else None)


def paired(rows: Iterable[Row | Problem], columns: Columns, with_numbers: bool) -> Iterator[Row | Problem]:
    """Pairs out of rows with a label, each in the place of its second row; at the end those that found no partner.

    Answers that wait for a partner lie in a temporary file: in memory are 16 bytes of each one's prompt and where the
    answer lies. A row without a prompt or an answer comes as it is.
    """
    waiting: dict[tuple[bytes, bool], list[tuple[int, int]]] = {}
    with tempfile.TemporaryFile() as spool:
        for row in rows:
            labelled = row if isinstance(row, Problem) else _labelled(row, columns, with_numbers)
            if not isinstance(labelled, _Labelled):
                yield labelled
                continue
            key = hashlib.blake2b(json.dumps(labelled.prompt).encode(), digest_size=16).digest()
            if partners := waiting.get((key, not labelled.is_good)):
                spool.seek(partners.pop()[1])
                if not partners:
                    del waiting[key, not labelled.is_good]
                yield labelled.against(json.loads(spool.readline()))
            else:
                place = spool.seek(0, os.SEEK_END)
                waiting.setdefault((key, labelled.is_good), []).append((labelled.row.line, place))
                spool.write(json.dumps(labelled.answer).encode() + b"\n")
    yield from (_alone(*one) for one in sorted((line, good) for (_, good), ones in waiting.items() for line, _ in ones))


@dataclass(frozen=True)
class _Labelled:
    """An answer with its verdict; `row` is in one shape already."""

    row: Row
    prompt: Any
    answer: Any
    is_good: bool

    def against(self, other: Any) -> Row:
        """The pair of this answer and one of the other verdict."""
        chosen, rejected = (self.answer, other) if self.is_good else (other, self.answer)
        tools = {"tools": self.row.value["tools"]} if "tools" in self.row.value else {}
        return replace(self.row, value={"prompt": self.prompt, "chosen": chosen, "rejected": rejected, **tools})


def _labelled(row: Row, columns: Columns, with_numbers: bool) -> _Labelled | Row | Problem:
    is_good = verdict(row.value.get(columns["label"]), with_numbers)
    if is_good is None:
        return error(
            row.line,
            "no_verdict",
            f"Line {row.line} has no thumb up or down in its {columns['label']!r}, which the rows before it have.",
            "Write true or false there, or take the row out.",
        )
    shaped = canonical(row, {field: name for field, name in columns.items() if field != "label"})
    if isinstance(shaped, Problem):
        return shaped
    prompt, answer = shaped.value.get("prompt"), shaped.value.get("completion")
    turns = shaped.value.get("messages")
    if isinstance(turns, list) and turns:  # a chat: what answers is its last message
        prompt, answer = turns[:-1], turns[-1:]
    return _Labelled(shaped, prompt, answer, is_good) if prompt and answer else shaped


def _alone(line: int, is_good: bool) -> Problem:
    own, other = ("up", "down") if is_good else ("down", "up")
    return error(
        line,
        "unpaired",
        f"Line {line} has an answer with a thumb {own}, and its prompt has none left with a thumb {other}.",
        "Add such an answer to the same prompt, or take the row out.",
    )
