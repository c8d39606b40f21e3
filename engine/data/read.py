"""Rows with the numbers of their lines, or what is wrong with the line: JSON Lines, one object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine.data.encoding import BYTE_ORDER_MARK, MAX_LINE, TextFile
from engine.data.problems import Problem, error

_BLANK = " \t\r\n\v\f\0" + BYTE_ORDER_MARK


@dataclass(frozen=True)
class Row:
    """One row, the line that it begins on, counted from 1, and the name of its file where there are several."""

    line: int
    value: dict[str, Any]
    file: str = ""


def read_lines(file: TextFile) -> Iterator[Row | Problem]:
    """The rows of a JSON Lines file, streamed; a line that can't be read is a Problem in its place.

    Blank lines are no rows.
    """
    text = file.text("\n")
    line = 0
    while raw := text.readline(MAX_LINE + 1):
        line += 1
        rest = raw
        while len(rest) > MAX_LINE and not rest.endswith("\n"):
            rest = text.readline(MAX_LINE + 1)
        if not raw.strip(_BLANK):
            continue
        if len(raw) > MAX_LINE:
            yield huge(line)
            continue
        whole = file.whole(line, raw.lstrip(BYTE_ORDER_MARK))
        yield whole if isinstance(whole, Problem) else parse_line(line, whole.rstrip("\r\n"))


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
    return Row(line, value)


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
