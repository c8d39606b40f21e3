"""What is wrong with a line of data, in words for the person who wrote it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Problem:
    """A flaw of one line: an error keeps its row out of training, a warning does not.

    `line` counts from 1 as an editor does (0: the file as a whole). `message` is a sentence of cause, `fix`
    one of cure.
    """

    line: int
    severity: Literal["error", "warning"]
    code: str
    message: str
    fix: str


def error(line: int, code: str, message: str, fix: str) -> Problem:
    """A problem that keeps the row out of training."""
    return Problem(line, "error", code, message, fix)


def warning(line: int, code: str, message: str, fix: str) -> Problem:
    """A problem that the row can be trained with."""
    return Problem(line, "warning", code, message, fix)
