"""A text file as clean UTF-8: from its encoding, without control characters and halves of characters."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, AnyStr

from engine.data.encoding import MAX_LINE, likely_encoding
from engine.data.remarks import CONTROLS

_BLOCK = 1 << 20  # bytes that show a file's encoding
_PIECE = 1 << 20  # of a line, at a time: a list of rows may be one line
_JSON = (".json", ".jsonl", ".ndjson")
_MARKS = (  # UTF-32 first: its mark begins with UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
# An escape of JSON: whole pairs and other escapes are kept, so that what is left are halves.
_ESCAPE = re.compile(r"\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|(\\u[dD][89a-fA-F][\da-fA-F]{2})|\\.")


def convert(source: Path, target: Path, told: Callable[[int], None]) -> set[int]:
    """Writes the text of `source` to `target` and returns the numbers of the lines that had to be changed.

    Halves of characters that JSON escapes become U+FFFD. `told` is called with the bytes read; it may raise to end
    the work. OSError where the disk refuses.
    """
    changed, number = set(), 1
    is_json = source.suffix.lower() in _JSON
    with target.open("w", encoding="utf-8", errors="surrogateescape", newline="") as new:
        for text, as_it_was, done in _pieces(source):
            told(done)
            mended = clean(text)
            if is_json:
                mended = _ESCAPE.sub(_whole, mended)
            new.write(mended)
            if not as_it_was or mended != text:
                changed.add(number)
            number += text.endswith(("\n", "\r"))
    return changed


def clean(value: Any) -> Any:
    """A JSON value without the control characters in its texts."""
    match value:
        case str():
            return CONTROLS.sub("", value)
        case list():
            return [clean(item) for item in value]
        case dict():
            return {clean(name): clean(item) for name, item in value.items()}
    return value


def _whole(escape: re.Match[str]) -> str:
    return "\\ufffd" if escape[1] else escape[0]


def _pieces(path: Path) -> Iterator[tuple[str, bool, int]]:
    """Lines with their ends, long ones in parts, whether they were UTF-8, and the bytes read so far.

    A file that says its encoding, or shows it by zero bytes, is read by it; else each piece by its own.
    """
    with path.open("rb") as file:
        encoding = _encoding(file.read(_BLOCK))
        file.seek(0)
        if encoding is None:
            for raw in _in_parts(file.readline, b"", b"\n", b","):
                yield *_decoded(raw), file.tell()
            return
        with io.TextIOWrapper(file, encoding, errors="replace", newline="") as text:
            for line in _in_parts(text.readline, "", "\n", ","):
                yield line, encoding == "utf-8-sig", file.tell()


def _in_parts(readline: Callable[[int], AnyStr], rest: AnyStr, end: AnyStr, comma: AnyStr) -> Iterator[AnyStr]:
    """Lines; of a long one parts that end in a comma, where neither a character nor an escape is cut in two.

    A line has one at least every MAX_LINE characters, or it is too long to be read.
    """
    while read := readline(_PIECE):
        part = rest + read
        cut = len(part)
        if len(read) == _PIECE and not read.endswith(end):
            cut = part.rfind(comma) + 1 or (0 if len(part) < MAX_LINE else cut)
        if cut:
            yield part[:cut]
        rest = part[cut:]
    if rest:
        yield rest


def _encoding(start: bytes) -> str | None:
    for mark, name in _MARKS:
        if start.startswith(mark):
            return name
    zeros = start.count(0)
    if zeros < max(1, len(start) // 4):
        return None
    width = "utf-32" if zeros > len(start) // 2 else "utf-16"
    return f"{width}-{'be' if start[0] == 0 else 'le'}"


def _decoded(raw: bytes) -> tuple[str, bool]:
    """One line. Of bytes in an encoding that is not known nothing is changed: they stay a problem of their row."""
    try:
        return raw.decode(), True
    except UnicodeDecodeError:
        codec, _ = likely_encoding(raw.replace(b"\0", b""))
        return raw.decode(codec or "utf-8", "surrogateescape"), not codec
