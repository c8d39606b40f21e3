"""What the command line's --json answers hold, as dataclasses. Unknown fields are ignored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self


class _Answer:
    """Reads the fields it knows from a JSON object."""

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Self:
        known = {item.name for item in fields(cls)}  # type: ignore[arg-type]
        return cls(**{name: value for name, value in answer.items() if name in known and value is not None})


@dataclass(frozen=True)
class Problem(_Answer):
    """One thing about a line of a data file. `severity` is error, warning or note; `cure` names what mends it.

    One that stands for many `rows` tells their `lines`: the first and the last of each run of them. In a folder `file`
    is the one that the lines are of, which the message names too.
    """

    line: int = 0
    column: int = 0
    severity: str = "error"
    code: str = ""
    message: str = ""
    fix: str = ""
    cure: str = ""
    lines: list[list[int]] = field(default_factory=list)
    file: str = ""
    rows: int = 1  # more than there are lines where rows share one


@dataclass(frozen=True)
class Cure(_Answer):
    """What can be pressed: its name for `fix --cure`, what the button says, what it does, and for how many rows."""

    cure: str = ""
    label: str = ""
    does: str = ""
    rows: int = 0


@dataclass(frozen=True)
class Columns(_Answer):
    """The names in a file, and which of them is read as which of our fields."""

    names: list[str] = field(default_factory=list)
    used: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Fixed(_Answer):
    """The answer of `fix`: the new file or folder, its rows, and how many of the old ones were changed or left out.

    `copied` counts the files of a folder that stand in the new one as they were.
    """

    path: str = ""
    rows: int = 0
    changed: int = 0
    left_out: int = 0
    is_renamed: bool = False
    copied: int = 0


@dataclass(frozen=True)
class Check(_Answer):
    """The answer of `check`: what a data file holds and what of it would be trained.

    `lengths` is the path of an array of [rows, 3] int32: prompt tokens, response tokens, line.
    """

    rows: int = 0
    usable: int = 0
    format: str = ""
    problems: list[Problem] = field(default_factory=list)
    tokens: dict[str, float] = field(default_factory=dict)
    trained_tokens: int = 0
    truncated_rows: int = 0
    rows_without_targets: int = 0
    split: dict[str, int] = field(default_factory=dict)
    split_text: str = ""
    longest: int = 0
    largest: int = 0
    largest_apart: int = 0
    columns: Columns = field(default_factory=Columns)
    cures: list[Cure] = field(default_factory=list)
    lengths: str = ""
    files: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Self:
        parts = {
            "problems": [Problem.read(problem) for problem in answer.get("problems") or []],
            "columns": Columns.read(answer.get("columns") or {}),
            "cures": [Cure.read(cure) for cure in answer.get("cures") or []],
        }
        return super().read({**answer, **parts})

    @property
    def flawed(self) -> int:
        """Rows that can't be trained, or of a validation file not measured."""
        return max(self.rows - self.usable, self.rows_with("error"))

    def rows_with(self, severity: str) -> int:
        """How many times a problem of this severity was found."""
        return sum(problem.rows for problem in self.problems if problem.severity == severity)


@dataclass(frozen=True)
class Measured(_Answer):
    """What two real steps took at one segment size, in bytes and seconds; `died` says so when memory ran out.

    `predicted_bytes` is what was predicted before, 0 where nothing could be.
    """

    segment_size: int = 0
    predicted_bytes: int = 0
    measured_bytes: int = 0
    seconds: float = 0.0
    died: str = ""


@dataclass(frozen=True)
class Token(_Answer):
    """One token of a row. `trained` tokens are learned, `cut` ones lie past the longest row.

    `part` is prompt, response, chosen or rejected; `special` tokens are the template's marks, not text.
    """

    id: int = 0
    text: str = ""
    trained: bool = False
    part: str = ""
    cut: bool = False
    special: bool = False


@dataclass(frozen=True)
class Row(_Answer):
    """A row as the model sees it. `problem` says why there are no tokens. In a folder `file` is the one it is from."""

    tokens: list[Token] = field(default_factory=list)
    text: str = ""
    file: str = ""
    line: int = 0
    row: int = 0
    problem: str = ""

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Self:
        problem = answer.get("problem") or ""
        if isinstance(problem, Mapping):
            problem = f"{problem.get('message', '')} {problem.get('fix', '')}".strip()
        tokens = [Token.read(token) for token in answer.get("tokens") or []]
        return super().read({**answer, "tokens": tokens, "problem": str(problem)})


@dataclass(frozen=True)
class Model(_Answer):
    """A model on this machine. `ready` is false while it still has to be fetched."""

    name: str = ""
    path: str = ""
    family: str = ""
    supported: bool = True
    reason: str = ""
    layers: int = 0
    parameters: int = 0
    bytes: int = 0
    ready: bool = True

    @property
    def choice(self) -> str:
        """What the setting `model` holds for it: "sample", or the folder."""
        return self.name if self.name == "sample" else self.path

    @property
    def title(self) -> str:
        if self.name == "sample":
            return "SmolLM2 135M (sample)"
        return Path(self.name).name or self.name
