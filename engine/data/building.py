"""A data file's rows on their way into a store: read, checked, rendered, tokenized, never more than a few at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, replace

import numpy as np

from engine.config import PAIR_OBJECTIVES
from engine.data.bulk import tokenize_all
from engine.data.check import examine, shape_of
from engine.data.conversation import Comparison, Conversation, fingerprint
from engine.data.forms import Side
from engine.data.problems import Problem, ProblemList, in_file
from engine.data.read import Row
from engine.data.remarks import text_remarks
from engine.data.source import Source
from engine.data.store import Store, StoreWriter
from engine.data.tokenizer import TextTokenizer

FORMAT_NAMES = {"messages": "messages", "prompt": "prompt/completion", "text": "text", "pair": "preference"}

# At once in memory: enough that all cores have work, little enough that stopping takes no time.
_ROWS = 512
_CHARACTERS = 1_000_000

Progress = Callable[[int, int], None]
Stop = Callable[[], bool]
Checked = Conversation | Comparison | Problem


def build_store(
    source: Source,
    tokenizer: TextTokenizer,
    objective: str,
    trained_turns: str,
    key: str,
    progress: Progress | None,
    stop: Stop,
) -> Store:
    """The store of all rows, kept under `key`; of those read so far, and not kept, once `stop` says so."""
    with StoreWriter() as writer:
        reading = _Reading(tokenizer, objective, trained_turns, writer)
        stopped = False
        for row in source.rows():
            if stopped := stop():
                break
            if reading.take(row):
                reading.flush()
                if progress is not None:
                    progress(source.bytes_done, source.bytes_total)
        reading.flush()
        if progress is not None and not stopped:
            progress(source.bytes_total, source.bytes_total)
        meta = {
            **reading.meta(),
            "files": [str(path) for path in source.files],
            "columns": source.columns,
            "column_names": list(source.column_names),
            "notes": [asdict(note) for note in source.notes],
        }
        return writer.finish(meta, None if stopped else key)


class _Reading:
    """What is known of a file so far, and the rows that wait to be tokenized."""

    def __init__(self, tokenizer: TextTokenizer, objective: str, trained_turns: str, writer: StoreWriter) -> None:
        self._tokenizer, self._objective, self._writer = tokenizer, objective, writer
        self._last_turn_only = trained_turns == "last"
        self._number = 0
        self._waiting: list[tuple[int, str, Checked]] = []
        self._parts: list[tuple[int, str]] = []  # the file's name from each of these rows' numbers on
        self._characters = 0
        self._problems = ProblemList()
        self._formats: set[str] = set()
        self._is_rendered = False  # any row, by the chat template

    def take(self, row: Row | Problem) -> bool:
        """One more row; whether it is time to `flush`."""
        self._writer.add_line(row.line)
        if not self._parts or row.file != self._parts[-1][1]:
            self._parts.append((self._number, row.file))
        checked = self._checked(row)
        self._waiting.append((self._number, row.file, checked))
        self._number += 1
        self._characters += _size(checked)
        return len(self._waiting) >= _ROWS or self._characters >= _CHARACTERS

    def flush(self) -> None:
        """Tokenizes and writes the rows that wait."""
        sides = iter(tokenize_all([side for *_, row in self._waiting for side in _sides(row)], self._tokenizer))
        for number, file, row in self._waiting:
            found = [next(sides) for _ in _sides(row)]
            if isinstance(row, Problem):
                self._problems.add(row)
                continue
            whole = [side for side in found if isinstance(side, Side)]
            if len(whole) == len(found):
                self._write(number, file, row, whole)
            else:
                refused = next(problem for problem in found if isinstance(problem, Problem))
                self._problems.add(in_file(refused, file))
        self._waiting.clear()
        self._characters = 0

    def meta(self) -> dict[str, object]:
        """What the store tells beside its arrays."""
        return {
            "rows": self._number,
            "parts": self._parts,
            "pairs": self._objective in PAIR_OBJECTIVES,
            "format": "mixed" if len(self._formats) > 1 else next(iter(self._formats), "unknown"),
            "problems": [asdict(problem) for problem in self._problems.listed()],
            "default_template": self._is_rendered and self._tokenizer.template.is_default,
        }

    def _checked(self, row: Row | Problem) -> Checked:
        if isinstance(row, Problem):
            return row
        if shape := shape_of(row, self._objective):
            self._formats.add(FORMAT_NAMES[shape])
        checked = examine(row, self._objective)
        if isinstance(checked, Problem):
            return checked
        self._is_rendered |= isinstance(checked, Comparison) or checked.kind != "text"
        if self._last_turn_only and isinstance(checked, Conversation):
            return last_turn(checked)
        return checked

    def _write(self, number: int, file: str, row: Conversation | Comparison, sides: list[Side]) -> None:
        prompt = hashlib.blake2b(row.prompt.encode(), digest_size=16).digest()
        self._writer.add_row(number, _common(sides), prompt, fingerprint(row))
        for side in sides:
            self._writer.add_side(side.ids, side.ranges, side.text)
        self._problems.extend(in_file(found, file) for found in text_remarks(row, self._tokenizer.special_names))


def last_turn(row: Conversation) -> Conversation:
    """The row with all but the assistant's last turn as context."""
    answers = [number for number, message in enumerate(row.messages) if message.role == "assistant"]
    return replace(row, context=answers[-1]) if answers else row


def _sides(row: Checked) -> tuple[Conversation, ...]:
    if isinstance(row, Problem):
        return ()
    return (row.chosen, row.rejected) if isinstance(row, Comparison) else (row,)


def _size(row: Checked) -> int:
    return sum(len(side.text) + sum([len(message.content) for message in side.messages]) for side in _sides(row))


def _common(sides: list[Side]) -> int:
    """How many tokens both sides begin with."""
    if len(sides) == 1:
        return 0
    first, second = (np.frombuffer(side.ids, np.int32) for side in sides)
    size = min(len(first), len(second))
    unlike = np.flatnonzero(first[:size] != second[:size])
    return int(unlike[0]) if len(unlike) else size
