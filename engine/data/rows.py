"""The rows of a run: those to train and those to measure with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from engine.config import TrainConfig
from engine.data.building import Progress, Stop
from engine.data.dataset import Dataset, load_dataset
from engine.data.folders import folder_parts, unread, unread_note
from engine.data.items import Items
from engine.data.problems import Problem, in_file
from engine.data.remarks import in_both
from engine.data.split import own_rows_sentence, split
from engine.data.tokenizer import TextTokenizer
from engine.errors import EngineError


@dataclass(frozen=True)
class Rows:
    """Usable rows, trained and set aside, in words why so, and the files that they come from.

    `valid_dataset` is None where the rows set aside are `dataset`'s own. `notes` are on a folder as a whole.
    """

    train: Items
    valid: Items
    sentence: str
    dataset: Dataset
    valid_dataset: Dataset | None = None
    notes: tuple[Problem, ...] = ()

    @cached_property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the data, then with the validation file, whose problems name it."""
        return (*self.notes, *self.dataset.problems, *self.problems_of_valid)

    @cached_property
    def problems_of_valid(self) -> tuple[Problem, ...]:
        """Those of the validation file alone."""
        if self.valid_dataset is None:
            return ()
        files = self.valid_dataset.files
        name = files[0].name if len(files) == 1 else self.valid_dataset.path.name
        found = (*self.valid_dataset.problems, *_in_both(self.dataset, self.valid_dataset))
        return tuple(in_file(one, name) for one in found)

    def largest(self, config: TrainConfig) -> int:
        """The most tokens that a row brings into a batch: of a pair both sides, its prompt once where it is shared."""
        return max(int(items.tokens(config.prefix_shared).max(initial=0)) for items in (self.train, self.valid))


def load_rows(
    config: TrainConfig, tokenizer: TextTokenizer, progress: Progress | None = None, stop: Stop = lambda: False
) -> Rows:
    """Reads the config's data and validation data for its objective. EngineError only where a file can't be opened.

    A folder's own part for validation is used where the config names none. `progress` and `stop` as in `load_dataset`.
    """
    path = Path(config.data).expanduser()
    dataset = _load(path, (), config, tokenizer, progress, stop)
    own, part = (Path(config.valid).expanduser(), ()) if config.valid else (path, folder_parts(path)[1])
    if not config.valid and not part:
        train, valid, sentence = split(dataset.prompts, config.seed)
        examples = dataset.examples
        notes = _not_read(path, dataset.files, config)
        aside = examples.at(examples.rows[valid])
        return Rows(examples.at(examples.rows[train]), aside, sentence, dataset, notes=notes)
    other = _load(own, part, config, tokenizer, progress, stop)
    sentence = own_rows_sentence(len(other.examples), other.files)
    notes = _not_read(path, (*dataset.files, *other.files), config)
    return Rows(dataset.examples, other.examples, sentence, dataset, other, notes)


def usable_rows(config: TrainConfig, tokenizer: TextTokenizer) -> Rows:
    """`load_rows` for those who train. EngineError while any row can't be used and none is to be left out.

    Where flawed rows are left out knowingly, the sentence says how many; of data and of a validation file some must
    be left.
    """
    rows = load_rows(config, tokenizer)
    errors = _errors(rows.problems)
    flawed = sum(problem.rows for problem in errors if problem.line)
    if not errors:
        return rows
    hint = ""
    if config.skip_flawed and len(rows.train):
        if rows.valid_dataset is None or len(rows.valid):
            left_out = "1 row that can't be used is" if flawed == 1 else f"{flawed:,} rows that can't be used are"
            return replace(rows, sentence=f"{rows.sentence} {left_out} left out.")
        errors = _errors(rows.problems_of_valid)
        hint = " No row is left to measure with; without a validation file some of the data's are set aside."
    elif (more := flawed - 1) > 0:
        one, many = "1 more row has errors; check tells which", f"{more:,} more rows have errors; check lists them all"
        hint = f" {one if more == 1 else many}."
    raise EngineError(errors[0].message, errors[0].fix + hint)


def _errors(problems: Iterable[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem.severity == "error"]


def _load(
    path: Path,
    files: tuple[Path, ...],
    config: TrainConfig,
    tokenizer: TextTokenizer,
    progress: Progress | None,
    stop: Stop,
) -> Dataset:
    length, objective = config.max_length, config.objective
    columns, turns = config.columns, config.trained_turns
    return load_dataset(path, tokenizer, length, objective, progress, stop, columns, turns, files)


def _not_read(path: Path, read: Iterable[Path], config: TrainConfig) -> tuple[Problem, ...]:
    files = unread(path, read)
    return (unread_note(files, bool(config.valid)),) if files else ()


def _in_both(data: Dataset, measured: Dataset) -> Iterator[Problem]:
    """Rows of the validation file that are trained as well."""
    common, trained, _ = np.intersect1d(data.contents, measured.contents, return_indices=True)
    places = zip(data.examples.lines[trained].tolist(), data.files_of(data.examples.numbers[trained]), strict=True)
    again = np.flatnonzero(np.isin(measured.contents, common))
    keys, rows = measured.contents[again].tolist(), measured.examples.at(measured.examples.rows[again])
    files = measured.files_of(rows.numbers)
    known = dict(zip(common.tolist(), places, strict=True))
    yield from in_both(known, list(zip(keys, rows.lines.tolist(), files, strict=True)))
