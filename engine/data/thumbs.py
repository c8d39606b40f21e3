"""Answers with a thumb up or down, paired where a prompt has both."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from engine.data.columns import Columns
from engine.data.problems import Problem, error, in_file, note, warning
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


def paired(
    rows: Iterable[Row | Problem], columns: Columns, with_numbers: bool, tell: Callable[[Problem], None]
) -> Iterator[Row | Problem | None]:
    """Pairs out of rows with a label, each in the place of its second row; at the end those that found no partner.

    None stands in the place of an answer that waits for a partner: it lies in a temporary file, and in memory are 16
    bytes of its prompt and where it lies. A row without a prompt or an answer comes as it is. In the end `tell` is told
    what the file is.
    """
    waiting: dict[tuple[bytes, bool], list[_Waiting]] = {}
    has_both: dict[bytes, bool] = {}
    pairs = 0
    with tempfile.TemporaryFile() as spool:
        for row in rows:
            labelled = row if isinstance(row, Problem) else _labelled(row, columns, with_numbers)
            if not isinstance(labelled, _Labelled):
                yield labelled
                continue
            key = hashlib.blake2b(labelled.prompt.encode(), digest_size=16).digest()
            if partners := waiting.get((key, not labelled.is_good)):
                spool.seek(partners.pop().place)
                if not partners:
                    del waiting[key, not labelled.is_good]
                has_both[key] = True
                pairs += 1
                yield labelled.against(spool.readline())
            else:
                place = spool.seek(0, os.SEEK_END)
                one = _Waiting(place, labelled.row.line, labelled.row.file)
                waiting.setdefault((key, labelled.is_good), []).append(one)
                has_both.setdefault(key, False)
                spool.write(labelled.answer.encode() + b"\n")
                yield None
    if has_both:
        tell(_told(len(has_both), sum(has_both.values()), pairs))
    alone = sorted((one, is_good) for (_, is_good), ones in waiting.items() for one in ones)
    yield from (_alone(one, is_good) for one, is_good in alone)


class _Waiting(NamedTuple):
    """Where an answer lies that waits for a partner, in the order of reading, and where it comes from."""

    place: int
    line: int
    file: str


@dataclass(frozen=True)
class _Labelled:
    """An answer with its verdict, prompt and answer as JSON texts; `row` is in one shape already."""

    row: Row
    prompt: str
    answer: str
    is_good: bool

    def against(self, other: bytes) -> Row:
        """The pair of this answer and one of the other verdict."""
        prompt, own = json.loads(self.prompt), json.loads(self.answer)
        chosen, rejected = (own, json.loads(other)) if self.is_good else (json.loads(other), own)
        tools = {"tools": self.row.value["tools"]} if "tools" in self.row.value else {}
        return replace(self.row, value={"prompt": prompt, "chosen": chosen, "rejected": rejected, **tools})


def _labelled(row: Row, columns: Columns, with_numbers: bool) -> _Labelled | Row | Problem:
    is_good = verdict(row.value.get(columns["label"]), with_numbers)
    if is_good is None:
        problem = error(
            row.line,
            "no_verdict",
            f"Line {row.line} has no thumb up or down in its {columns['label']!r}, which the rows before it have.",
            "Write true or false there, or take the row out.",
        )
        return in_file(problem, row.file)
    shaped = canonical(row, {field: name for field, name in columns.items() if field != "label"})
    if isinstance(shaped, Problem):
        return shaped
    prompt, answer = shaped.value.get("prompt"), shaped.value.get("completion")
    turns = shaped.value.get("messages")
    if isinstance(turns, list) and turns:  # a chat: what answers is its last message
        prompt, answer = turns[:-1], turns[-1:]
    if not prompt or not answer:
        return shaped
    try:
        return _Labelled(shaped, json.dumps(prompt), json.dumps(answer), is_good)
    except (TypeError, RecursionError):  # a date, or lists in lists by the hundred: the check will say so
        return shaped


def _alone(one: _Waiting, is_good: bool) -> Problem:
    own, other = ("up", "down") if is_good else ("down", "up")
    problem = error(
        one.line,
        "unpaired",
        f"Line {one.line} has an answer with a thumb {own}, and its prompt has none left with a thumb {other}.",
        "Add such an answer to the same prompt, or take the row out.",
    )
    return in_file(problem, one.file)


def _told(prompts: int, both: int, pairs: int) -> Problem:
    """What a person should know of the file as a whole."""
    what = "These are answers with a thumb up or down, and pairs are made of them"
    if not both:
        none = f"none of the {prompts:,} prompts has both" if prompts != 1 else "the one prompt doesn't have both"
        return warning(
            0,
            "thumbs",
            f"{what}, but {none}.",
            "Add answers of the other kind to the same prompts; or keep only the good ones, without the thumb, and "
            "learn from these (SFT).",
        )
    made = "1 pair comes of it" if pairs == 1 else f"{pairs:,} pairs come of it"
    return note(
        0,
        "thumbs",
        f"{what}: {both:,} of {prompts:,} prompts {'has' if both == 1 else 'have'} both, and {made}.",
        "Add answers of the other kind where one has no partner.",
    )
