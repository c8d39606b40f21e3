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
    """One thing about one line of a data file. `severity` is error or warning."""

    line: int = 0
    severity: str = "error"
    code: str = ""
    message: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Check(_Answer):
    """The answer of `check`: what a data file holds and what of it would be trained."""

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

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Self:
        problems = [Problem.read(problem) for problem in answer.get("problems") or []]
        return super().read({**answer, "problems": problems})

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.severity == "error"]


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
    """A row as the model sees it. `problem` says why there are no tokens."""

    tokens: list[Token] = field(default_factory=list)
    text: str = ""
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
