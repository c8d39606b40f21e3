"""A JSON array of rows, element by element: the file is never held whole."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TextIO

from engine.data.encoding import BYTE_ORDER_MARK, MAX_LINE, TextFile
from engine.data.problems import Problem, error
from engine.data.read import Row, as_row, broken, huge, unreadable

_CHUNK = 64 * 1024
_BLANK = re.compile(rf"[ \t\r\n{BYTE_ORDER_MARK}]*")
_TAIL = 16  # an escape or a literal that a chunk's end cuts is a fault this near to it
_DECODER = json.JSONDecoder()


def looks_like_array(head: str, name_says_json: bool) -> bool:
    """Whether a file that begins with `head` is a JSON array of rows, or JSON over several lines, not JSON Lines."""
    text = head.lstrip(" \t\r\n" + BYTE_ORDER_MARK)
    if text.startswith("["):
        return name_says_json or text[1:].lstrip()[:1] in ("{", "]", "")
    first, newline, _ = text.partition("\n")
    return name_says_json and bool(newline) and not first.rstrip().endswith("}")


def read_array(file: TextFile) -> Iterator[Row | Problem]:
    """The elements of the array, or the values of a file without one, with the lines that they begin on.

    After an element that is broken, reading goes on at the next line that begins as the broken element's did;
    where there is none the problem says that the rest can't be read.
    """
    window = _Window(file.text(None))
    is_list = window.next_sign() == "["
    if is_list:
        window.advance(window.at + 1)
    while (sign := window.next_sign()) and not (is_list and sign == "]"):
        if sign == ",":
            window.advance(window.at + 1)
        else:
            yield _element(window, file)
    if sign:
        window.advance(window.at + 1)
        if window.next_sign():
            yield _stray(window.line)
    elif is_list and not window.is_lost:
        yield _endless(window.line)


def _stray(line: int) -> Problem:
    return error(
        line,
        "broken_json",
        f"Line {line} goes on after the end of the list of rows; nothing from there on is read.",
        "Put all rows into one list, or write one object a line into a .jsonl file.",
    )


def _endless(line: int) -> Problem:
    return error(
        line,
        "broken_json",
        f"Line {line} is the file's last, and the list that the rows stand in has no end.",
        "Copy the file again: a part may be missing. If it is whole, close the list with ].",
    )


class _Window:
    """The part of a text that is at hand, from `at` on, which is in `line` of the file."""

    def __init__(self, text: TextIO) -> None:
        self._file = text
        self.text, self.at, self.line = "", 0, 1
        self.ended = False
        self.is_lost = False  # nothing after a broken element could be found
        self.leads = True  # nothing but blanks stands before `at` in its line
        self._before = 0  # characters of the line that stood before `text`

    def next_sign(self) -> str:
        """Moves to the next character that is not blank, and gives it; "" at the end."""
        while True:
            self.advance(_BLANK.match(self.text, self.at).end(), blank=True)  # type: ignore[union-attr]
            if self.at < len(self.text):
                return self.text[self.at]
            if self.ended:
                return ""
            self.grow()

    def advance(self, to: int, blank: bool = False) -> None:
        lines = self.text.count("\n", self.at, to)
        self.leads = (bool(lines) or self.leads) if blank else False
        self.line += lines
        self.at = to

    def grow(self) -> None:
        """Reads on: as much again as is at hand, so that a long row is tried few times."""
        more = self._file.read(max(_CHUNK, len(self.text) - self.at))
        self._before = self.column(self.at) - 1
        self.text, self.at = self.text[self.at :] + more, 0
        self.ended = not more

    def column(self, position: int) -> int:
        newline = self.text.rfind("\n", 0, position)
        return position - newline if newline >= 0 else self._before + position + 1


def _element(window: _Window, file: TextFile) -> Row | Problem:
    line, begin = window.line, window.at
    while True:
        try:
            value, end = _DECODER.raw_decode(window.text, begin)
        except json.JSONDecodeError as cause:
            if window.ended or not _may_go_on(window, cause):
                at = line + window.text.count("\n", begin, cause.pos)
                undecoded = file.whole(line, window.text[begin : cause.pos])
                problem = undecoded if isinstance(undecoded, Problem) else None
                return _skip(window, problem or broken(line, at, window.column(cause.pos), cause))
        except (ValueError, RecursionError):
            return _skip(window, unreadable(line))
        else:
            if end < len(window.text) or window.ended:
                source = window.text[begin:end]
                window.advance(end)
                whole = file.whole(line, source)
                return whole if isinstance(whole, Problem) else as_row(line, source, value)
        if len(window.text) - begin > MAX_LINE:
            return _skip(window, huge(line))
        window.grow()
        begin = window.at


def _may_go_on(window: _Window, cause: json.JSONDecodeError) -> bool:
    return cause.msg.startswith("Unterminated string") or cause.pos >= len(window.text) - _TAIL


def _skip(window: _Window, problem: Problem) -> Problem:
    """Moves to the next line that begins with an object as deep as this one, else to the end of the file."""
    # One that doesn't begin its line stands after the list's bracket, or in a list without line ends.
    indent, least = (window.column(window.at) - 1,) * 2 if window.leads else (1, 0)
    opening = re.compile(rf"\n[ \t]{{{least},{indent}}}\{{")
    while True:
        if found := opening.search(window.text, window.at + 1):
            window.advance(found.start())
            return problem
        if window.ended:
            break
        window.advance(max(window.at, len(window.text) - indent - 2))
        window.grow()
    window.advance(len(window.text))
    window.is_lost = True
    return replace(problem, message=f"{problem.message} What comes after it, up to line {window.line}, is not read.")
