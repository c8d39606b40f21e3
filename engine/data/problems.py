"""What is wrong with a line of data, in words for the person who wrote it."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

Severity = Literal["error", "warning", "note"]
Lines = tuple[tuple[int, int], ...]  # first and last of each run of consecutive lines

# Problems of one code that are told each in words; others of it are counted, with their lines.
TOLD = {"error": 100, "warning": 100, "note": 1}
LINES_IN_WORDS = 8


@dataclass(frozen=True)
class Problem:
    """A flaw of one line: an error keeps its row out of training; with a warning or a note it is trained.

    `line` counts from 1 as an editor does (0: the file as a whole), `column` too (0: not known). `message` is a
    sentence of cause, `fix` one of cure; `cure` names what can be pressed, one of `engine.data.fixes.CURES` or "".
    A problem that stands for many `rows` names all of their `lines`, and `line` is the first. (Rows can share a line.)
    `file` is the name of the file that the lines are of, where there could be several.
    """

    line: int
    severity: Severity
    code: str
    message: str
    fix: str
    column: int = 0
    cure: str = ""
    lines: Lines = ()
    rows: int = 1
    file: str = ""


def error(line: int, code: str, message: str, fix: str, column: int = 0, cure: str = "skip") -> Problem:
    """A problem that keeps the row out of training. It can be left out, unless there is a better cure."""
    return Problem(line, "error", code, message, fix, column, cure if line else "")


def warning(line: int, code: str, message: str, fix: str, column: int = 0, cure: str = "") -> Problem:
    """A problem that the row can be trained with."""
    return Problem(line, "warning", code, message, fix, column, cure)


def note(line: int, code: str, message: str, fix: str) -> Problem:
    """What a person may want to know of a row."""
    return Problem(line, "note", code, message, fix)


def in_file(problem: Problem, file: str) -> Problem:
    """The problem as one of a line of `file`, which its words name too; as it is where it names its file or `file` is
    "".
    """
    if problem.file or not file:
        return problem
    return replace(problem, file=file, message=f"{file}: {problem.message}")


class ProblemList:
    """The problems of the data, however many: of one kind the first TOLD in words, of all the others their lines."""

    def __init__(self, problems: Iterable[Problem] = ()) -> None:
        self._told: list[Problem] = []
        self._count: defaultdict[tuple[Severity, str, str], int] = defaultdict(int)
        self._more: defaultdict[tuple[Severity, str, str, str], _Others] = defaultdict(_Others)
        self.extend(problems)

    def add(self, problem: Problem) -> None:
        """One more; those of a kind come in the file's order."""
        kind = (problem.severity, problem.code, problem.cure)
        self._count[kind] += 1
        if self._count[kind] <= TOLD[problem.severity]:
            self._told.append(problem)
        else:
            self._more[*kind, problem.file].add(problem)

    def extend(self, problems: Iterable[Problem]) -> None:
        """More of them."""
        for problem in problems:
            self.add(problem)

    def listed(self) -> tuple[Problem, ...]:
        """Those told in words, then one for the others of each kind, file by file."""
        return (*self._told, *(others.problem(*kind) for kind, others in self._more.items()))


def line_ranges(lines: npt.ArrayLike) -> Lines:
    """Ascending line numbers as runs of consecutive ones."""
    numbers = np.asarray(lines, np.int64)
    ends = np.flatnonzero(np.diff(numbers) > 1)
    firsts, lasts = np.append(numbers[:1], numbers[ends + 1]), np.append(numbers[ends], numbers[-1:])
    return tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))


def lines_in_words(ranges: Sequence[tuple[int, int]]) -> str:
    """Lines for a sentence: the first LINES_IN_WORDS runs of them, and how many lines more."""
    named = [str(first) if first == last else f"{first} to {last}" for first, last in ranges[:LINES_IN_WORDS]]
    more = sum(last - first + 1 for first, last in ranges[LINES_IN_WORDS:])
    if more:
        return f"{', '.join(named)} and {more:,} more"
    return " and ".join(filter(None, (", ".join(named[:-1]), named[-1])))


@dataclass
class _Others:
    """The rows of a kind of problem, and of a file, that are counted only."""

    rows: int = 0
    lines: array[int] = field(default_factory=lambda: array("q"))  # a list would take five times as much

    def add(self, problem: Problem) -> None:
        ranges, before = problem.lines or ((problem.line, problem.line),), len(self.lines)
        for first, last in ranges:
            self.lines.extend(range(first, last + 1))
        # More than lines where rows share one, never less.
        self.rows += max(problem.rows, len(self.lines) - before)

    def problem(self, severity: Severity, code: str, cure: str, file: str) -> Problem:
        ranges, plural = line_ranges(np.sort(np.frombuffer(self.lines, np.int64))), "" if self.rows == 1 else "s"
        message = f"{self.rows:,} more row{plural} of the same kind: line{plural} {lines_in_words(ranges)}."
        fix = "The same helps as for those before."
        return in_file(Problem(ranges[0][0], severity, code, message, fix, 0, cure, ranges, self.rows), file)
