"""Tables as text, with any delimiter: records by the names in the first line."""

from __future__ import annotations

import csv
import string
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TextIO

from engine.data.columns import is_known
from engine.data.encoding import BYTE_ORDER_MARK, MAX_LINE, TextFile
from engine.data.problems import Problem, error
from engine.data.read import Row, huge
from engine.errors import EngineError

DELIMITERS = (",", "\t", ";", "|", "^", "~", "\x1f", "\x01")
# Those that no name and no number holds, and that stand alone in texts.
_MARKS = tuple(mark for mark in string.punctuation if mark not in DELIMITERS and mark not in "\"'._-/\\()[]{}<>")
_SNIFFED_RECORDS = 100
_LONG_NAME = 64  # characters: a longer cell of the first line is no column's name

# The module's default of 131,072 characters refuses texts that people have; a quotation mark that is never closed
# swallows the file up to this many.
_MAX_FIELD = MAX_LINE // 4
csv.field_size_limit(_MAX_FIELD)


def read_table(file: TextFile) -> Iterator[Row | Problem]:
    """The records of the table, with the lines that they begin on. Records of blank cells are no rows.

    A record that breaks the rules of quoting costs its first line only: reading goes on at the next one.
    EngineError where the first line doesn't name the columns.
    """
    head = _complete(file.head())
    delimiter = find_delimiter(head)
    records = _records(_Lines(file.text("")), delimiter, _has_spaces(head, delimiter))
    names = _names(file, records)
    for line, cells in records:
        yield cells if isinstance(cells, Problem) else _row(file, line, names, cells)


def find_delimiter(head: str) -> str:
    """The delimiter by which most records of `head` have as many fields as the first, of those the one of most fields.

    Where it is none of DELIMITERS it may be another mark, but only one that cuts the first line into known names, or
    all records alike: such marks stand in texts too. A table of one column has none: then a comma.
    """
    return _best(head, DELIMITERS) or _best(head, [mark for mark in _MARKS if _delimits(head, mark)]) or ","


def _best(head: str, delimiters: Iterable[str]) -> str:
    best, most = "", (0.0, 1)
    for delimiter in delimiters:
        records = _sniffed(head, delimiter)
        if records and (fields := len(records[0])) > 1:
            alike = sum(len(record) == fields for record in records) / len(records)
            if (alike, fields) > most:
                best, most = delimiter, (alike, fields)
    return best


def _delimits(head: str, mark: str) -> bool:
    records = _sniffed(head, mark)
    names = records[0] if records else []
    if len(names) < 2 or not all(name and name == name.strip() for name in names):
        return False
    return all(map(is_known, names)) or (len(records) > 1 and len({*map(len, records)}) == 1)


def _has_spaces(head: str, delimiter: str) -> bool:
    """Whether a space belongs to the delimiter, as people write it: before quotation marks it would hide them."""
    later = [cell for record in _sniffed(head, delimiter) for cell in record[1:] if cell]
    return all(cell.startswith(" ") for cell in later) and any(cell.startswith(' "') for cell in later)


def _sniffed(head: str, delimiter: str) -> list[list[str]]:
    records = csv.reader(head.splitlines(keepends=True), delimiter=delimiter)
    return list(islice(filter(None, records), _SNIFFED_RECORDS))


def _complete(head: str) -> str:
    return head[: head.rfind("\n") + 1] or head


class _Lines:
    """The lines of a text for `csv.reader`, held until their record is whole, so that they can be read again."""

    def __init__(self, text: TextIO) -> None:
        self._text = text
        self._again: deque[str] = deque()
        self._held: list[str] = []
        self.line = 0  # the last one given

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else self._text.readline(MAX_LINE)
        if not line:
            raise StopIteration
        if not self.line:
            line = line.removeprefix(BYTE_ORDER_MARK)
        self.line += 1
        self._held.append(line)
        if len(line) == MAX_LINE:
            while len(line) == MAX_LINE and not line.endswith(("\n", "\r")):
                line = self._text.readline(MAX_LINE)
            raise csv.Error("line contains more characters than are read")
        return line

    def begin(self) -> int:
        """Lets the lines of the last record go. The number of the line that the next one begins on."""
        self._held.clear()
        return self.line + 1

    def back(self) -> None:
        """Gives the lines of this record again, but for its first."""
        again = self._held[1:]
        self._again.extendleft(reversed(again))
        self.line -= len(again)


def _records(lines: _Lines, delimiter: str, has_spaces: bool) -> Iterator[tuple[int, list[str] | Problem]]:
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=has_spaces, strict=True)
    while True:
        line = lines.begin()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as cause:
            yield line, _broken(line, str(cause))
            lines.back()
            continue
        if any(cell and not cell.isspace() for cell in cells):
            yield line, cells


def _broken(line: int, reason: str) -> Problem:
    if reason.startswith("'"):  # the delimiter is expected after the quotation mark
        return error(
            line,
            "broken_quotes",
            f"Line {line} has text after a closing quotation mark.",
            'Double the quotation marks inside a quoted field: "She said ""yes""".',
        )
    if reason.startswith("line contains"):
        return huge(line)
    return error(
        line,
        "broken_quotes",
        f"Line {line} opens a quotation mark that is not closed.",
        "Close the field with a quotation mark, or double the mark if it belongs to the text.",
    )


def _names(file: TextFile, records: Iterator[tuple[int, list[str] | Problem]]) -> list[str]:
    """The columns' names: the first record."""
    line, first = next(records, (1, []))
    if isinstance(first, Problem):
        raise EngineError(f"The columns of {file.path.name} can't be read: {first.message}", first.fix)
    cells = [file.whole(line, cell) for cell in first]
    names = [cell.strip() if isinstance(cell, str) else "" for cell in cells]
    while names and not names[-1]:
        names.pop()
    if any(map(_is_text, names)) and not any(map(is_known, names)):
        raise EngineError(
            f"The first line of {file.path.name} names no columns: it begins with {names[0][:40]!r}.",
            "Write a first line that names them, such as prompt,completion.",
        )
    if twice := next((name for name, times in Counter(names).items() if name and times > 1), ""):
        raise EngineError(f"Two columns of {file.path.name} have the name {twice!r}.", "Give them different names.")
    return [name or f"column {number}" for number, name in enumerate(names, start=1)]


def _is_text(name: str) -> bool:
    is_number = name.replace(".", "", 1).replace("-", "", 1).isdecimal()
    return is_number or len(name) > _LONG_NAME or "\n" in name or name.endswith((".", "?", "!", "…", "。", "？"))


def _row(file: TextFile, line: int, names: list[str], cells: list[str]) -> Row | Problem:
    if len(cells) < len(names) or any(cells[len(names) :]):
        plural = "" if len(cells) == 1 else "s"
        return error(
            line,
            "ragged",
            f"Line {line} has {len(cells)} field{plural} where the first line names {len(names)} columns.",
            "Put each text that holds the delimiter or a line end into quotation marks.",
        )
    value = {}
    for name, cell in zip(names, cells, strict=False):
        whole = file.whole(line, cell)
        if isinstance(whole, Problem):
            return whole
        value[name] = whole
    return Row(line, value)
