"""The rows of a run: those to train and those to measure with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from engine.config import TrainConfig
from engine.data.dataset import Dataset, load_dataset
from engine.data.problems import Problem
from engine.data.split import own_rows_sentence, split
from engine.data.tokenize import Item
from engine.data.tokenizer import TextTokenizer
from engine.errors import EngineError


@dataclass(frozen=True)
class Rows:
    """Usable rows, trained and set aside, in words why so, and the files that they come from.

    `valid_dataset` is None where the rows set aside are `dataset`'s own.
    """

    train: tuple[Item, ...]
    valid: tuple[Item, ...]
    sentence: str
    dataset: Dataset
    valid_dataset: Dataset | None = None

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the data, then with the validation file, whose problems name it."""
        if self.valid_dataset is None:
            return self.dataset.problems
        name = self.valid_dataset.path.name
        own = (replace(found, message=f"{name}: {found.message}") for found in self.valid_dataset.problems)
        return (*self.dataset.problems, *own)

    def largest(self, config: TrainConfig) -> int:
        """The most tokens that a row brings into a batch: of a pair both sides, its prompt once where it is shared."""
        items = self.train + self.valid
        return max((item.tokens if config.prefix_shared else item.tokens_apart for item in items), default=0)


def load_rows(config: TrainConfig, tokenizer: TextTokenizer) -> Rows:
    """Reads the config's data and validation data for its objective. EngineError only where a file can't be opened."""
    dataset = _load(config.data, config, tokenizer)
    if not config.valid:
        return Rows(*split(dataset.examples, dataset.prompts, config.seed), dataset)
    own = _load(config.valid, config, tokenizer)
    return Rows(dataset.examples, own.examples, own_rows_sentence(len(own.examples), own.path), dataset, own)


def usable_rows(config: TrainConfig, tokenizer: TextTokenizer) -> Rows:
    """`load_rows` for those who train. EngineError while any row can't be used: none is dropped."""
    rows = load_rows(config, tokenizer)
    errors = [problem for problem in rows.problems if problem.severity == "error"]
    if errors:
        first, more = errors[0], len(errors) - 1
        others = {0: "", 1: " 1 more row has errors; check tells which."}
        hint = others.get(more, f" {more:,} more rows have errors; check lists them all.")
        raise EngineError(first.message, first.fix + hint)
    return rows


def _load(path: str, config: TrainConfig, tokenizer: TextTokenizer) -> Dataset:
    return load_dataset(Path(path).expanduser(), tokenizer, config.max_length, config.objective)
