"""A data file, line by line: rows with the numbers of their lines, or what is wrong with the line."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from engine.data.problems import Problem, error
from engine.errors import EngineError

FORMATS = (".jsonl", ".ndjson")
MAX_LINE_BYTES = 64 * 1024**2


@dataclass(frozen=True)
class Row:
    """One JSON object and the line that it stands on, counted from 1."""

    line: int
    value: dict[str, Any]


def read_rows(path: Path) -> Iterator[Row | Problem]:
    """The rows of a data file, streamed; a line that can't be read is a Problem in its place.

    Blank lines are no rows. EngineError where the file can't be opened or has a format that isn't read.
    """
    with open_data(path) as file:
        for line, raw in numbered_lines(file):
            yield parse_line(line, raw)


def open_data(path: Path) -> BinaryIO:
    """The file, open for `numbered_lines`. EngineError where there is no such file or not such a format."""
    try:
        if path.exists() and not path.is_file():
            raise EngineError(f"The data {path} is a folder or a device.", "Choose a file.")
        if path.suffix.lower() not in FORMATS:
            raise EngineError(
                f"The data {path.name} is not in a format that can be read.",
                f"Use a file that ends in {' or '.join(FORMATS)}, with one JSON object a line.",
            )
        return path.open("rb")
    except (OSError, ValueError) as cause:  # ValueError: a zero character in the name
        reason = cause.strerror if isinstance(cause, OSError) else cause
        raise EngineError(f"The data {path} can't be read: {reason}.", "Check its name and place.") from cause


def numbered_lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines that hold something, with their numbers, without byte order marks.

    A line longer than MAX_LINE_BYTES comes as its first MAX_LINE_BYTES + 1 bytes, so that `parse_line`
    refuses it.
    """
    line = 0
    try:
        while raw := file.readline(MAX_LINE_BYTES + 1):
            line += 1
            rest = raw
            while len(rest) > MAX_LINE_BYTES and not rest.endswith(b"\n"):
                rest = file.readline(MAX_LINE_BYTES + 1)
            raw = raw.removeprefix(codecs.BOM_UTF8)
            if raw.strip(b" \t\r\n\v\f\0"):
                yield line, raw
    except OSError as cause:
        raise EngineError(
            f"The data can't be read on after line {line}: {cause.strerror}.",
            "Copy it to this machine's disk.",
        ) from cause


def parse_line(line: int, raw: bytes) -> Row | Problem:
    """The JSON object in one line of bytes."""
    if len(raw) > MAX_LINE_BYTES:
        limit = MAX_LINE_BYTES // 1024**2
        return error(
            line,
            "huge_line",
            f"Line {line} is longer than {limit} MB.",
            "Write one row a line and break up rows of that size.",
        )
    text = _decoded(line, raw)
    if isinstance(text, Problem):
        return text
    try:
        value = json.loads(text)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as cause:
        return error(
            line,
            "broken_json",
            f"Line {line} is not valid JSON at column {cause.colno}: {_reason(cause)}.",
            "Mend that place: a row is one JSON object on one line.",
        )
    except UnicodeEncodeError:
        return error(
            line,
            "lone_surrogate",
            f"Line {line} holds half a character (a lone surrogate such as \\ud83d).",
            "Write the character itself or both of its halves.",
        )
    except (ValueError, RecursionError):  # a number of thousands of digits, brackets in thousands
        return error(
            line,
            "broken_json",
            f"Line {line} nests too deep or holds too long a number to be read.",
            "Write texts as plain strings.",
        )
    if not isinstance(value, dict):
        return error(
            line,
            "not_an_object",
            f"Line {line} is {_JSON_NAMES[type(value)]}, not an object with named fields.",
            'Write the row as an object, for example {"prompt": "...", "completion": "..."}.',
        )
    return Row(line, value)


def _reason(cause: json.JSONDecodeError) -> str:
    """Python's reason, as the end of a sentence."""
    if cause.msg.startswith("Unterminated string"):
        return "a text that begins there has no closing quotation mark"
    return cause.msg


_JSON_NAMES = {
    list: "a list",
    str: "a text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


def _decoded(line: int, raw: bytes) -> str | Problem:
    try:
        if b"\0" not in raw:
            return raw.decode("utf-8").rstrip("\r\n")
        byte = raw.index(b"\0")
    except UnicodeDecodeError as cause:
        byte = cause.start
    return error(
        line,
        "encoding",
        f"Line {line} is not UTF-8 text: its byte {byte + 1} is 0x{raw[byte]:02X}, "
        f"which looks like {_likely_encoding(raw)}.",
        "Convert the file to UTF-8: open it in a text editor and save it with the encoding UTF-8.",
    )


def _likely_encoding(raw: bytes) -> str:
    if b"\0" in raw or raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-32" if b"\0\0" in raw else "UTF-16"
    if not any(0x80 <= byte < 0xA0 for byte in raw):
        return "Latin-1"
    try:
        raw.decode("cp1252")
    except UnicodeDecodeError:
        return "an encoding that is not known here"
    return "Windows-1252"
