"""A data file as examples, with everything that is wrong with it."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine.data.check import examine, shape_of
from engine.data.conversation import Comparison, Conversation
from engine.data.problems import Problem, error
from engine.data.read import numbered_lines, open_data, parse_line
from engine.data.remarks import default_template, duplicates, one_sided_lengths, remarks
from engine.data.tokenize import Item, Pair, cut_to, tokenize_whole
from engine.data.tokenizer import TextTokenizer

FORMAT_NAMES = {"messages": "messages", "prompt": "prompt/completion", "text": "text", "pair": "preference"}


@dataclass(frozen=True)
class Dataset:
    """What was read: `rows` are the usable `examples` and those that an error in `problems` names by line.

    `prompts[i]` is the same for examples of the same prompt. `format` tells the shape of the rows, also of those
    that another objective needs. `lengths` int32 are the token counts of all rows that could be rendered, before
    cutting, in the file's order; of a pair its longer side's.
    """

    path: Path
    rows: int
    examples: tuple[Item, ...]
    problems: tuple[Problem, ...]
    prompts: tuple[str, ...]
    format: str
    lengths: npt.NDArray[np.int32]


def load_dataset(
    path: Path,
    tokenizer: TextTokenizer,
    max_length: int,
    objective: str = "sft",
    progress: Callable[[int, int], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Dataset:
    """Reads, checks and tokenizes the whole file. EngineError only where it can't be opened.

    `objective` says whether rows have to be pairs. `progress` is told the bytes done and in all after each row.
    Once `stop` says so the dataset ends with the rows read so far.
    """
    reading = _Reading(tokenizer, max_length, objective)
    with open_data(path) as file:
        total = path.stat().st_size
        for line, raw in numbered_lines(file):
            if stop():
                break
            reading.take(line, raw)
            if progress is not None:
                progress(file.tell(), total)
    return reading.dataset(path)


class _Reading:
    """What is known of a file so far."""

    def __init__(self, tokenizer: TextTokenizer, max_length: int, objective: str) -> None:
        self.tokenizer, self.max_length, self.objective = tokenizer, max_length, objective
        self.rows = 0
        self.examples: list[Item] = []
        self.problems: list[Problem] = []
        self.prompts: list[str] = []
        self.lengths: list[int] = []
        self.formats: set[str] = set()
        self.is_rendered = False  # any row, by the chat template
        self.lines_by_row: defaultdict[str, list[int]] = defaultdict(list)

    def take(self, line: int, raw: bytes) -> None:
        self.rows += 1
        row = parse_line(line, raw)
        if isinstance(row, Problem):
            self.problems.append(row)
            return
        if shape := shape_of(row, self.objective):
            self.formats.add(FORMAT_NAMES[shape])
        conversation = examine(row, self.objective)
        if isinstance(conversation, Problem):
            self.problems.append(conversation)
            return
        self.is_rendered |= isinstance(conversation, Comparison) or conversation.kind != "text"
        item = tokenize_whole(conversation, self.tokenizer)
        if not isinstance(item, Problem):
            self.lengths.append(item.length)
            item = cut_to(item, self.max_length)
        if isinstance(item, Problem):
            self.problems.append(item)
            return
        self.examples.append(item)
        self.prompts.append(_fingerprint(conversation.prompt))
        self.lines_by_row[_fingerprint(_content(conversation))].append(line)
        self.problems += remarks(item)

    def dataset(self, path: Path) -> Dataset:
        return Dataset(
            path,
            self.rows,
            tuple(self.examples),
            (*self._of_the_file(), *self.problems),
            tuple(self.prompts),
            "mixed" if len(self.formats) > 1 else next(iter(self.formats), "unknown"),
            np.array(self.lengths, np.int32),
        )

    def _of_the_file(self) -> Iterator[Problem]:
        if not self.rows:
            yield error(0, "empty", "The file has no rows.", "Choose a file with one JSON object a line.")
        if self.is_rendered and self.tokenizer.template.is_default:
            yield default_template()
        if problem := one_sided_lengths([item for item in self.examples if isinstance(item, Pair)]):
            yield problem
        yield from (duplicates(lines) for lines in self.lines_by_row.values() if len(lines) > 1)


def _content(row: Conversation | Comparison) -> str:
    if isinstance(row, Comparison):
        return repr((row.chosen.messages, row.rejected.messages))
    return repr((row.messages, row.text))


def _fingerprint(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
