"""Rows of a file to what a store keeps of them, a block at a time: checked, rendered, tokenized, remarked on.

What comes of a block hangs on nothing but its rows, so that it is the same in whatever process it is made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from engine.data.bulk import tokenize_all
from engine.data.check import examine, shape_of
from engine.data.conversation import Comparison, Conversation, fingerprint
from engine.data.forms import Side
from engine.data.problems import Problem, in_file
from engine.data.read import Row
from engine.data.remarks import text_remarks
from engine.data.tokenizer import TextTokenizer

FORMAT_NAMES = {"messages": "messages", "prompt": "prompt/completion", "text": "text", "pair": "preference"}

Checked = Conversation | Comparison | Problem


@dataclass
class Block:
    """What came of some rows that follow each other in a file.

    `lines` are those of all rows; `numbers` count those that have tokens from the block's first row on. Of their sides
    `ids` are the tokens, int32, `texts` UTF-8 and `ranges` starts and ends; the sizes say how many of each are a
    side's. `common`, `prompts` and `contents` as in Store. `files` names each row's file, "" where there is only one.
    `formats` names the shapes of rows, also of such that can't be used; `is_rendered` says whether the chat template
    wrote any.
    """

    lines: list[int] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    common: list[int] = field(default_factory=list)
    prompts: list[bytes] = field(default_factory=list)
    contents: list[bytes] = field(default_factory=list)
    ids: list[bytes] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    ranges: list[int] = field(default_factory=list)
    range_sizes: list[int] = field(default_factory=list)
    texts: list[bytes] = field(default_factory=list)
    text_sizes: list[int] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    formats: set[str] = field(default_factory=set)
    is_rendered: bool = False

    def add(self, number: int, row: Conversation | Comparison, sides: Sequence[Side]) -> None:
        """A row with its tokens. `number` counts the block's rows from 0 on."""
        self.numbers.append(number)
        self.common.append(_common(sides))
        self.prompts.append(hashlib.blake2b(row.prompt.encode(), digest_size=16).digest())
        self.contents.append(fingerprint(row))
        for side in sides:
            text = side.text.encode()
            self.ids.append(side.ids)
            self.sizes.append(len(side.ids) // 4)
            self.range_sizes.append(len(side.ranges))
            for ends in side.ranges:
                self.ranges += ends
            self.texts.append(text)
            self.text_sizes.append(len(text))


def make_block(rows: Sequence[Row | Problem], tokenizer: TextTokenizer, objective: str, trained_turns: str) -> Block:
    """The block of these rows: each has tokens or is named by an error among its `problems`."""
    block = Block(lines=[row.line for row in rows], files=[row.file for row in rows])
    checked = [_checked(row, objective, trained_turns, block) for row in rows]
    sides = iter(tokenize_all([side for row in checked for side in _sides(row)], tokenizer))
    for number, row in enumerate(checked):
        if isinstance(row, Problem):
            block.problems.append(row)
            continue
        found = [next(sides) for _ in row.sides]
        whole = [side for side in found if isinstance(side, Side)]
        if len(whole) == len(found):
            block.add(number, row, whole)
            told = text_remarks(row, tokenizer.special_names)
        else:
            told = [next(problem for problem in found if isinstance(problem, Problem))]
        block.problems += [in_file(problem, block.files[number]) for problem in told]
    return block


def last_turn(row: Conversation) -> Conversation:
    """The row with all but the assistant's last turn as context."""
    answers = [number for number, message in enumerate(row.messages) if message.role == "assistant"]
    return replace(row, context=answers[-1]) if answers else row


def _checked(row: Row | Problem, objective: str, trained_turns: str, block: Block) -> Checked:
    if isinstance(row, Problem):
        return row
    checked = examine(row, objective)
    if isinstance(checked, Problem):
        if shape := shape_of(row, objective):
            block.formats.add(FORMAT_NAMES[shape])
        return checked
    block.formats.add(FORMAT_NAMES[checked.kind if isinstance(checked, Conversation) else "pair"])
    block.is_rendered |= isinstance(checked, Comparison) or checked.kind != "text"
    return last_turn(checked) if trained_turns == "last" and isinstance(checked, Conversation) else checked


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
