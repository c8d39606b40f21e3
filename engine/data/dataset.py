"""A data file as examples, with everything that is wrong with it."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.data.check import Conversation, examine
from engine.data.problems import Problem, error, warning
from engine.data.read import numbered_lines, open_data, parse_line
from engine.data.tokenize import Example, cut_to, tokenize_whole
from engine.data.tokenizer import TextTokenizer

MAX_LENGTHS = 20_000  # row lengths in a report
MAX_LINES_NAMED = 20  # in one sentence

FORMAT_NAMES = {"messages": "messages", "prompt": "prompt/completion", "text": "text"}


@dataclass(frozen=True)
class Dataset:
    """What was read: `rows` are the usable `examples` and those that an error in `problems` names by line.

    `prompts[i]` is the same for examples of the same prompt. `lengths` int32 are the token counts of all
    rows that could be rendered, before cutting, in the file's order.
    """

    path: Path
    rows: int
    examples: tuple[Example, ...]
    problems: tuple[Problem, ...]
    prompts: tuple[str, ...]
    format: str
    lengths: npt.NDArray[np.int32]


def load_dataset(
    path: Path,
    tokenizer: TextTokenizer,
    max_length: int,
    progress: Callable[[int, int], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Dataset:
    """Reads, checks and tokenizes the whole file. EngineError only where it can't be opened.

    `progress` is told the bytes done and in all after each row. Once `stop` says so the dataset ends with
    the rows read so far.
    """
    reading = _Reading()
    with open_data(path) as file:
        total = path.stat().st_size
        for line, raw in numbered_lines(file):
            if stop():
                break
            reading.take(line, raw, tokenizer, max_length)
            if progress is not None:
                progress(file.tell(), total)
    return reading.dataset(path, tokenizer)


class _Reading:
    """What is known of a file so far."""

    def __init__(self) -> None:
        self.rows = 0
        self.examples: list[Example] = []
        self.problems: list[Problem] = []
        self.prompts: list[str] = []
        self.lengths: list[int] = []
        self.kinds: Counter[str] = Counter()
        self.lines_by_row: defaultdict[str, list[int]] = defaultdict(list)

    def take(self, line: int, raw: bytes, tokenizer: TextTokenizer, max_length: int) -> None:
        self.rows += 1
        row = parse_line(line, raw)
        conversation = row if isinstance(row, Problem) else examine(row)
        if isinstance(conversation, Problem):
            self.problems.append(conversation)
            return
        self.kinds[conversation.kind] += 1
        example = tokenize_whole(conversation, tokenizer)
        if isinstance(example, Example):
            self.lengths.append(len(example.ids))
            example = cut_to(example, max_length)
        if isinstance(example, Problem):
            self.problems.append(example)
            return
        self._keep(conversation, example)

    def _keep(self, conversation: Conversation, example: Example) -> None:
        self.examples.append(example)
        self.prompts.append(_fingerprint(conversation.prompt))
        self.lines_by_row[_fingerprint(repr((conversation.messages, conversation.text)))].append(example.line)
        if example.cut:
            self.problems.append(cut_warning(example))

    def dataset(self, path: Path, tokenizer: TextTokenizer) -> Dataset:
        names = [FORMAT_NAMES[kind] for kind in self.kinds]
        return Dataset(
            path,
            self.rows,
            tuple(self.examples),
            tuple(self._of_the_file(tokenizer)) + tuple(self.problems),
            tuple(self.prompts),
            names[0] if len(names) == 1 else "mixed" if names else "unknown",
            np.array(self.lengths, np.int32),
        )

    def _of_the_file(self, tokenizer: TextTokenizer) -> list[Problem]:
        found = []
        if not self.rows:
            found.append(error(0, "empty", "The file has no rows.", "Choose a file with one JSON object a line."))
        if tokenizer.template.is_default and self.kinds["messages"] + self.kinds["prompt"]:
            found.append(
                warning(
                    0,
                    "default_template",
                    "This model has no chat template, so rows are written as User: and Assistant: sections.",
                    "Talk to the trained model in the same form, or choose an instruct model.",
                )
            )
        found += [_duplicates(lines) for lines in self.lines_by_row.values() if len(lines) > 1]
        return found


def cut_warning(example: Example) -> Problem:
    """Says how much of a row is lost."""
    kept, line = len(example.ids), example.line
    return warning(
        line,
        "cut",
        f"Line {line} is {kept + example.cut:,} tokens long: the last {example.cut:,} are cut off.",
        f"Set the longest row (max_length) to {kept + example.cut:,} to keep all of it.",
    )


def _duplicates(lines: list[int]) -> Problem:
    named = ", ".join(map(str, lines[: min(MAX_LINES_NAMED, len(lines) - 1)]))
    others = len(lines) - MAX_LINES_NAMED
    last = f"{others:,} more" if others > 1 else str(lines[-1])
    return warning(
        lines[0],
        "duplicates",
        f"Lines {named} and {last} hold the same row, which counts {len(lines):,} times as much as others.",
        "Keep one of them, unless that is meant.",
    )


def _fingerprint(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def report(dataset: Dataset, train_rows: int, valid_rows: int) -> dict[str, Any]:
    """What `check --json` prints.

    `tokens` counts what is kept of the usable rows, `longest` and `lengths` whole rows. `lengths` holds at
    most MAX_LENGTHS rows, taken evenly over the file.
    """
    kept = np.array([len(example.ids) for example in dataset.examples] or [0])
    lengths = dataset.lengths
    if len(lengths) > MAX_LENGTHS:
        lengths = lengths[np.linspace(0, len(lengths) - 1, MAX_LENGTHS).astype(int)]
    without_targets = ("nothing_to_train", "no_assistant")
    return {
        "rows": dataset.rows,
        "usable": len(dataset.examples),
        "format": dataset.format,
        "problems": [asdict(problem) for problem in dataset.problems],
        "tokens": {
            "median": round(float(np.median(kept))),
            "p95": round(float(np.percentile(kept, 95))),
            "max": int(kept.max()),
            "total": int(kept.sum()),
        },
        "trained_tokens": sum(int(example.trained.sum()) for example in dataset.examples),
        "truncated_rows": sum(example.cut > 0 for example in dataset.examples),
        "rows_without_targets": sum(problem.code in without_targets for problem in dataset.problems),
        "split": {"train": train_rows, "valid": valid_rows},
        "longest": int(dataset.lengths.max(initial=0)),
        "lengths": lengths.tolist(),
    }
