"""Rows with the numbers of their lines, or what is wrong with the line: JSON Lines, one object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from engine.data.encoding import BYTE_ORDER_MARK, MAX_LINE, TextFile, is_whole, whole_text
from engine.data.problems import Problem, error, in_file

_BLANK = " \t\r\n\v\f\0" + BYTE_ORDER_MARK


@dataclass(frozen=True)
class Row:
    """One row, the line that it begins on, counted from 1, and the name of its file where there are several."""

    line: int
    value: dict[str, Any]
    file: str = ""


@dataclass(frozen=True)
class RawLines:
    """Lines of a JSON Lines file that follow each other, `line` the number of the first. `file` is as in Row.

    Of a line that is too long the text holds one character more than a line may have.
    """

    line: int
    text: str
    encoding: str  # of the file
    file: str = ""

    def lines(self) -> Iterator[tuple[int, str] | Problem]:
        """The number and the text of each line, or what is wrong with it. Blank lines are none."""
        are_whole = is_whole(self.text)
        for line, raw in enumerate(self.text.split("\n"), self.line):
            if len(raw) > MAX_LINE:
                yield in_file(huge(line), self.file)
            elif are_whole and raw.startswith("{"):
                yield line, raw.rstrip("\r")
            elif raw.strip(_BLANK):
                text = raw.lstrip(BYTE_ORDER_MARK)
                whole = text if are_whole else whole_text(text, line, self.encoding)
                yield in_file(whole, self.file) if isinstance(whole, Problem) else (line, whole.rstrip("\r"))

    def rows(self) -> Iterator[Row | Problem]:
        """The rows; a line that can't be read is a Problem in its place."""
        for one in self.lines():
            yield one if isinstance(one, Problem) else self.row(*one)

    def row(self, line: int, text: str) -> Row | Problem:
        """The row in one of the lines."""
        return of_file(parse_line(line, text), self.file)


_Read = TypeVar("_Read", bound="Row | RawLines")


def of_file(one: _Read | Problem, file: str) -> _Read | Problem:
    """What was read, as part of `file`; as it is where that is ""."""
    if not file:
        return one
    return in_file(one, file) if isinstance(one, Problem) else replace(one, file=file)


def raw_lines(file: TextFile, characters: int) -> Iterator[RawLines]:
    """A JSON Lines file, as many lines at a time as have so many characters, or one."""
    text = file.text("\n")
    line = 1
    while True:
        lines, size = [], 0
        while size < characters and (raw := text.readline(MAX_LINE + 1)):
            size += len(raw)
            if len(raw) > MAX_LINE and not raw.endswith("\n"):
                rest = raw
                while len(rest) > MAX_LINE and not rest.endswith("\n"):
                    rest = text.readline(MAX_LINE + 1)
                raw += "\n"
            lines.append(raw)
        if not lines:
            return
        yield RawLines(line, "".join(lines), file.encoding)
        line += len(lines)


def parse_line(line: int, text: str) -> Row | Problem:
    """The JSON object in one line of text."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as cause:
        return broken(line, line, cause.colno, cause)
    except (ValueError, RecursionError):
        return unreadable(line)
    return as_row(line, text, value)


def as_row(line: int, text: str, value: Any) -> Row | Problem:
    """The row of a JSON value, which `text` is the source of."""
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return error(
                line,
                "lone_surrogate",
                f"Line {line} holds half a character (a lone surrogate such as \\ud83d).",
                "Write the character itself or both of its halves.",
                text.lower().find("\\ud") + 1,
                "convert",
            )
        except RecursionError:
            return unreadable(line)
    if not isinstance(value, dict):
        return error(
            line,
            "not_an_object",
            f"Line {line} is {_JSON_NAMES[type(value)]}, not an object with named fields.",
            'Write the row as an object, for example {"prompt": "...", "completion": "..."}.',
        )
    if _may_repeat_a_name(text, value) and (twice := _repeated_name(text)) is not None:
        return error(
            line,
            "repeated_field",
            f"Line {line} has the field {twice[:40]!r} twice in one object; which one is meant can't be told.",
            "Keep one of them, or give the other another name.",
        )
    return Row(line, value)


def _may_repeat_a_name(text: str, value: dict[str, Any]) -> bool:
    """False where no object of a JSON text has a name twice, for sure: all quotation marks are those of what was read.

    Names and texts have two each. True where that can't be counted, or takes long to.
    """
    try:
        return not has_marks(text, _marks(value))
    except RecursionError:
        return True


def has_marks(text: str, expected: int) -> bool:
    """Whether a JSON text has so many quotation marks around names and texts. False where it takes long to count."""
    marks = text.count('"')
    if marks != expected and "\\\\" not in text:
        marks -= text.count('\\"')  # inside of them
    return marks == expected


def _marks(value: dict[str, Any] | list[Any]) -> int:
    """The quotation marks around the names and the texts of a value."""
    is_object = isinstance(value, dict)
    parts = value.values() if isinstance(value, dict) else value
    return 2 * len(value) * is_object + sum(
        [2 if type(part) is str else _marks(part) for part in parts if type(part) in (str, list, dict)]
    )


def _repeated_name(text: str) -> str | None:
    """A name that an object of a JSON text has twice; None where there is none that can be found."""
    found: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        names = {name for name, _ in pairs}
        if len(names) < len(pairs):
            found.append(next(name for name in names if sum(name == other for other, _ in pairs) > 1))

    try:
        json.loads(text, object_pairs_hook=look)
    except (ValueError, RecursionError):
        return None
    return found[0] if found else None


def broken(line: int, at: int, column: int, cause: json.JSONDecodeError) -> Problem:
    """The problem that the row of `line` is no JSON: `at` and `column` are the line and column of the fault."""
    place = f"column {column}" if at == line else f"line {at}, column {column}"
    begins = cause.msg.startswith("Unterminated string")
    reason = "a text that begins there has no closing quotation mark" if begins else cause.msg
    return error(
        line,
        "broken_json",
        f"Line {line} is not valid JSON at {place}: {reason}.",
        "Mend that place: each row is one whole JSON object.",
        column,
    )


def unreadable(line: int) -> Problem:
    """The problem that a number has thousands of digits or brackets are nested by the thousand."""
    return error(
        line,
        "broken_json",
        f"Line {line} nests too deep or holds too long a number to be read.",
        "Write texts as plain strings.",
    )


def huge(line: int) -> Problem:
    """The problem that a row is longer than MAX_LINE."""
    return error(
        line,
        "huge_line",
        f"Line {line} is longer than {MAX_LINE // 1024**2} million characters.",
        "Write one row a line and break up rows of that size.",
    )


_JSON_NAMES = {
    list: "a list",
    str: "a text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}
