"""Rows of a file to what a store keeps of them, a block at a time: checked, rendered, tokenized, remarked on.

What comes of a block hangs on nothing but its rows, so that it is the same in whatever process it is made.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from engine.config import PAIR_OBJECTIVES
from engine.data.bulk import tokenize_all
from engine.data.check import examine, shape_of
from engine.data.conversation import Comparison, Conversation, fingerprint
from engine.data.forms import Side
from engine.data.problems import Problem, in_file
from engine.data.read import RawLines, Row
from engine.data.remarks import text_remarks
from engine.data.shaping import Held, Shaper
from engine.data.tokenizer import TextTokenizer

FORMAT_NAMES = {"messages": "messages", "prompt": "prompt/completion", "text": "text", "pair": "preference"}

_MOST = 2**31 - 1

Checked = Conversation | Comparison | Problem


@dataclass(frozen=True)
class Block:
    """What came of some rows that follow each other in a file. Arrays are bytes: int32, but where a type is named.

    `lines` are those of all `rows`; `numbers` count those that have tokens from the block's first row on. Of their
    sides `ids` are the tokens, `texts` UTF-8 and `ranges` starts and ends; the sizes say how many of each are a side's.
    `common`, `prompts` and `contents` as in Store. `files` names each file of the rows ("" where there is only one)
    with the number of its first row here. `formats` names the shapes of rows, also of such that can't be used;
    `is_rendered` says whether the chat template wrote any.
    """

    rows: int
    lines: bytes
    files: list[tuple[int, str]]
    numbers: bytes
    common: bytes
    prompts: bytes  # 16 a row
    contents: bytes
    ids: bytes
    sizes: bytes
    ranges: bytes
    range_sizes: bytes
    texts: bytes
    text_sizes: bytes
    problems: list[Problem]
    formats: set[str]
    is_rendered: bool


class _Tokenized:
    """The rows of a block that have tokens."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.common: list[int] = []
        self.prompts: list[bytes] = []
        self.contents: list[bytes] = []
        self.sides: list[Side] = []

    def add(self, number: int, row: Conversation | Comparison, sides: Sequence[Side]) -> None:
        """A row with its tokens. `number` counts the block's rows from 0 on."""
        self.numbers.append(number)
        self.common.append(_common(sides))
        self.prompts.append(hashlib.blake2b(row.prompt.encode(), digest_size=16).digest())
        self.contents.append(fingerprint(row))
        self.sides += sides

    def arrays(self) -> dict[str, bytes]:
        """What a block keeps of them."""
        texts = [side.text.encode() for side in self.sides]
        return {
            "numbers": _int32(self.numbers),
            "common": _int32(self.common),
            "prompts": b"".join(self.prompts),
            "contents": b"".join(self.contents),
            "ids": b"".join([side.ids for side in self.sides]),
            "sizes": _int32([len(side.ids) // 4 for side in self.sides]),
            "ranges": _int32([place for side in self.sides for ends in side.ranges for place in ends]),
            "range_sizes": _int32([len(side.ranges) for side in self.sides]),
            "texts": b"".join(texts),
            "text_sizes": _int32(list(map(len, texts))),
        }


@dataclass(frozen=True)
class BlockMaker:
    """What blocks are made by: the settings of TrainConfig, and how rows are brought into shape."""

    tokenizer: TextTokenizer
    objective: str
    trained_turns: str
    shaper: Shaper

    def make(self, held: Held) -> Block:
        """The block of these rows: each has tokens or is named by an error among its `problems`."""
        with _rare_collection():
            return self._make(held)  # whose rows are gone before anything is looked for

    def _make(self, held: Held) -> Block:
        rows = self.shaper.rows(held, may_be_plain=self.objective not in PAIR_OBJECTIVES)
        files = [held.file] * len(rows) if isinstance(held, RawLines) else [row.file for row in held]
        formats: set[str] = set()
        checked = [_checked(row, self.objective, self.trained_turns, formats) for row in rows]
        return _block(checked, files, formats, self.tokenizer)


@contextmanager
def _rare_collection() -> Iterator[None]:
    """Has Python look for garbage in circles hardly ever: rows have none, and it costs a tenth of their time."""
    usual = gc.get_threshold()
    gc.set_threshold(1_000_000)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def _block(checked: Sequence[Checked], files: Sequence[str], formats: set[str], tokenizer: TextTokenizer) -> Block:
    sides = iter(tokenize_all([side for row in checked for side in _sides(row)], tokenizer))
    kept, problems = _Tokenized(), list[Problem]()
    remarks = text_remarks([row for row in checked if not isinstance(row, Problem)], tokenizer.special_names)
    for number, row in enumerate(checked):
        if isinstance(row, Problem):
            problems.append(row)
            continue
        told = next(remarks)
        found = [next(sides) for _ in row.sides]
        whole = [side for side in found if isinstance(side, Side)]
        if len(whole) == len(found):
            kept.add(number, row, whole)
        else:
            told = [next(problem for problem in found if isinstance(problem, Problem))]
        problems += [in_file(problem, files[number]) for problem in told]
    return Block(
        rows=len(checked),
        lines=_int32([min(row.line, _MOST) for row in checked]),
        files=[(number, file) for number, file in enumerate(files) if not number or file != files[number - 1]],
        **kept.arrays(),
        problems=problems,
        formats=formats,
        is_rendered=any(_is_rendered(row) for row in checked),
    )


def last_turn(row: Conversation) -> Conversation:
    """The row with all but the last turn that is learned as context."""
    return replace(row, context=row.answers[-1]) if row.answers else row


def _checked(row: Row | Checked, objective: str, trained_turns: str, formats: set[str]) -> Checked:
    if isinstance(row, Problem):
        return row
    checked = examine(row, objective) if isinstance(row, Row) else row
    if isinstance(checked, Problem):
        if isinstance(row, Row) and (shape := shape_of(row, objective)):
            formats.add(FORMAT_NAMES[shape])
        return checked
    formats.add(FORMAT_NAMES[checked.kind if isinstance(checked, Conversation) else "pair"])
    return last_turn(checked) if trained_turns == "last" and isinstance(checked, Conversation) else checked


def _is_rendered(row: Checked) -> bool:
    """Whether the chat template writes the row."""
    return isinstance(row, Comparison) or (isinstance(row, Conversation) and row.kind != "text")


def _sides(row: Checked) -> tuple[Conversation, ...]:
    return () if isinstance(row, Problem) else row.sides


def _common(sides: Sequence[Side]) -> int:
    """How many tokens both sides begin with."""
    if len(sides) == 1:
        return 0
    first, second = (np.frombuffer(side.ids, np.int32) for side in sides)
    size = min(len(first), len(second))
    unlike = np.flatnonzero(first[:size] != second[:size])
    return int(unlike[0]) if len(unlike) else size


def _int32(numbers: Sequence[int]) -> bytes:
    return np.array(numbers, np.int32).tobytes()
