"""Rows mended one after another: cleaned, shortened, left out or kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from engine.config import TrainConfig
from engine.data.blocks import last_turn
from engine.data.bulk import tokenize_all
from engine.data.check import examine
from engine.data.conversation import Comparison, Conversation, fingerprint
from engine.data.convert import clean, convert
from engine.data.forms import Side
from engine.data.problems import Problem, in_file
from engine.data.read import Row, unreadable
from engine.data.remarks import remarks
from engine.data.shorten import shortened
from engine.data.source import open_source
from engine.data.tokenize import Example, Item, Pair, cut_to
from engine.data.tokenizer import TextTokenizer
from engine.data.written import LinesWriter
from engine.errors import EngineError

_BINARY = (".parquet",)

# Rows that are tokenized together, and the bytes that they may take.
_ROWS = 512
_BYTES = 1024**2


class StoppedError(Exception):
    """A person stopped the work."""


class Mending:
    """Rows on their way from the old files into the new ones, counted."""

    def __init__(self, config: TrainConfig, cures: Collection[str], tokenizer: TextTokenizer) -> None:
        self._config, self._cures, self._tokenizer = config, frozenset(cures), tokenizer
        self._source = Path(config.data).expanduser()
        self._seen: set[bytes] = set()
        self._converted: set[tuple[str, int]] = set()  # files, named as in Row, and lines
        self.rows = self.changed = self.left_out = 0
        self.is_renamed = False  # the fields of any rows

    def size(self, files: Sequence[Path]) -> int:
        """The bytes that `write` tells of in all."""
        return _size(files) * (2 if self._converts(files) else 1)

    def write(self, files: tuple[Path, ...], new: Path, told: Callable[[int], None]) -> None:
        """Writes the rows of files of the data that are kept into the folder `new`, each under its file's name.

        `told` is called with the bytes done; it may raise to end the work.
        """
        self._seen.clear()
        with TemporaryDirectory(dir=new.parent) as between, LinesWriter(new) as writer:
            size, copies, behind = _size(files), files, 0
            if self._converts(files):
                copies, behind = tuple(self._convert(files, Path(between), told)), size
            opened = open_source(self._source, self._config.columns, files=copies)
            self.is_renamed |= any(field != name for field, name in opened.columns.items())
            waiting, done = list[Row | Problem](), 0
            for row in opened.steps():
                told(behind + round(size * opened.bytes_done / opened.bytes_total))
                if row is not None:
                    waiting.append(row)
                if len(waiting) >= _ROWS or opened.bytes_done - done >= _BYTES:
                    self._write(waiting, writer)
                    waiting, done = [], opened.bytes_done
            self._write(waiting, writer)

    def _converts(self, files: Sequence[Path]) -> bool:
        return "convert" in self._cures and files[0].suffix.lower() not in _BINARY

    def _convert(self, files: Sequence[Path], folder: Path, told: Callable[[int], None]) -> Iterator[Path]:
        """The files as clean UTF-8, one after another."""
        behind = 0

        def told_of_all(done: int) -> None:
            told(behind + done)

        for file in files:
            copy = folder / file.name
            lines = convert(file, copy, told_of_all)
            self._converted |= {(file.name if self._source.is_dir() else "", line) for line in lines}
            behind += _size([file])
            yield copy

    def _write(self, rows: list[Row | Problem], writer: LinesWriter) -> None:
        cleaned = [self._cleaned(row) for row in rows]
        items = self._items(cleaned) if self._cures & {"skip", "trim"} else [None] * len(rows)
        for old, new, item in zip(rows, cleaned, items, strict=True):
            value = None if isinstance(new, Problem) else self._mended(new, item)
            text = None if value is None else self._text(old, value)
            if text is None:
                self.left_out += 1
                continue
            self.rows += 1
            self.changed += value != getattr(old, "value", None) or (old.file, old.line) in self._converted
            writer.write(old.file or self._source.name, text)

    def _cleaned(self, row: Row | Problem) -> Row | Problem:
        if isinstance(row, Row) and "convert" in self._cures:
            try:
                return Row(row.line, clean(row.value), row.file)
            except RecursionError:
                row = in_file(unreadable(row.line), row.file)
        if isinstance(row, Problem):
            self._let_go(row)
        return row

    def _text(self, row: Row | Problem, value: dict[str, Any]) -> str | None:
        """The line to write; None for what is nested by the hundred and left out."""
        try:
            # What only tables hold, such as a date in a column that is not read, is kept as its text.
            return json.dumps(value, ensure_ascii=False, default=str)
        except RecursionError:
            self._let_go(in_file(unreadable(row.line), row.file))
            return None

    def _let_go(self, problem: Problem) -> None:
        """EngineError for a row that can't be written, unless such rows are to be left out."""
        if "skip" not in self._cures:
            raise EngineError(
                problem.message, f"{problem.fix} Or leave out such rows too (skip): they can't be written."
            )

    def _mended(self, row: Row, item: Item | Problem | None) -> dict[str, Any] | None:
        """What is written for a row whose whole tokens are `item`; None where it is left out."""
        if "trim" in self._cures and isinstance(item, Example | Pair) and item.length > self._config.max_length:
            row = Row(row.line, shortened(row.value, self._fits) or row.value, row.file)
            (item,) = self._items([row])
        if "skip" in self._cures and item is not None and self._is_flawed(item):
            return None
        return None if "dedupe" in self._cures and self._came_before(row) else row.value

    def _fits(self, value: dict[str, Any]) -> bool:
        (item,) = self._items([Row(1, value)])
        return not isinstance(item, Problem) and item.length <= self._config.max_length

    def _is_flawed(self, whole: Item | Problem) -> bool:
        item = whole if isinstance(whole, Problem) else cut_to(whole, self._config.max_length)
        return isinstance(item, Problem) or any(found.cure == "skip" for found in remarks(item))

    def _items(self, rows: Sequence[Row | Problem]) -> list[Item | Problem]:
        """The rows at their full length."""
        said = [row if isinstance(row, Problem) else self._said(row) for row in rows]
        wanted = [side for row in said if not isinstance(row, Problem) for side in row.sides]
        sides = iter(tokenize_all(wanted, self._tokenizer))
        return [row if isinstance(row, Problem) else _item(row.line, [next(sides) for _ in row.sides]) for row in said]

    def _said(self, row: Row) -> Conversation | Comparison | Problem:
        said = examine(row, self._config.objective)
        is_last = self._config.trained_turns == "last"
        return last_turn(said) if is_last and isinstance(said, Conversation) else said

    def _came_before(self, row: Row) -> bool:
        said = examine(row, self._config.objective)
        if isinstance(said, Problem):
            return False
        known = fingerprint(said)
        if known in self._seen:
            return True
        self._seen.add(known)
        return False


def _size(files: Sequence[Path]) -> int:
    return sum(file.stat().st_size for file in files)


def _item(line: int, sides: Sequence[Side | Problem]) -> Item | Problem:
    examples = []
    for side in sides:
        if isinstance(side, Problem):
            return side
        ids = np.frombuffer(side.ids, np.int32)
        trained = np.zeros(len(ids), bool)
        for start, end in side.ranges:
            trained[start:end] = True
        examples.append(Example(line, ids, trained, cut=0))
    return Pair(line, *examples) if len(examples) == 2 else examples[0]
