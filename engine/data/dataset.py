"""A data file as examples, with everything that is wrong with it."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.data.alike import keys, repeated
from engine.data.blocks import FORMAT_NAMES
from engine.data.building import Progress, Stop, build_store
from engine.data.hashing import digest_of, stamp_of
from engine.data.items import Ints, Items
from engine.data.problems import TOLD, Problem, ProblemList, error, in_file, line_ranges
from engine.data.remarks import default_template, duplicates, one_sided_lengths, remarks
from engine.data.source import Source, open_source
from engine.data.store import Store, drop_store, find_store
from engine.data.tokenize import cut_to
from engine.data.tokenizer import TextTokenizer

Names = npt.NDArray[np.object_]  # of few different files

# A byte is hashed about so many times faster than it is checked and tokenized, and counts as much less in progress.
_HASHED_FASTER = 50


@dataclass(frozen=True)
class Dataset:
    """What was read: `rows` are the usable `examples` and those that an error in `problems` names by line.

    `rendered` are all rows that have tokens, also those with nothing to train at this length. `format` tells the shape
    of the rows, also of those that another objective needs. `columns` maps our fields to the file's `column_names`.
    Where it is not `is_whole` there are more rows in the file.
    """

    path: Path
    rows: int
    examples: Items
    rendered: Items
    format: str
    files: tuple[Path, ...]
    columns: dict[str, str]
    column_names: tuple[str, ...]
    is_whole: bool

    @cached_property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the data, in the order of its files and lines."""
        meta = self.rendered.store.meta
        found = ProblemList([Problem(**_untupled(problem)) for problem in meta["problems"]])
        found.extend(_of_the_tokens(self.rendered))
        found.extend(_of_the_file(meta, self.examples))
        return tuple(sorted(found.listed(), key=lambda problem: (problem.file, problem.line)))

    def files_of(self, numbers: Ints) -> Names:
        """The names of the files that the rows of these numbers are of, from 0 on; "" for a file without a folder."""
        return _files_of(self.rendered.store, numbers)

    @property
    def prompts(self) -> npt.NDArray[np.bytes_]:
        """The same for examples of the same prompt, [examples]."""
        return keys(self.examples.store.prompts, self.examples.rows)

    @property
    def contents(self) -> npt.NDArray[np.bytes_]:
        """The same for examples that say the same, [examples]."""
        return keys(self.examples.store.contents, self.examples.rows)

    @property
    def lengths(self) -> npt.NDArray[np.int32]:
        """Tokens of all rendered rows before cutting, in the file's order; of a pair its longer side's."""
        return np.asarray(self.rendered.whole_lengths.max(axis=1, initial=0))

    @property
    def sizes(self) -> npt.NDArray[np.int32]:
        """Prompt tokens, response tokens and line of all rendered rows before cutting, [rows, 3], as `lengths`."""
        return np.stack([*self.rendered.longer_sides(), self.rendered.lines], axis=1)


def load_dataset(
    path: Path,
    tokenizer: TextTokenizer,
    max_length: int,
    objective: str = "sft",
    progress: Progress | None = None,
    stop: Stop = lambda: False,
    columns: str = "",
    trained_turns: str = "all",
    files: tuple[Path, ...] = (),
    most_rows: int | None = None,
) -> Dataset:
    """Reads, checks and tokenizes the whole file, or finds in the cache what came of it. EngineError only where it
    can't be opened.

    `objective` says whether rows have to be pairs. `progress` is told the bytes done and in all from time to time.
    Once `stop` says so the dataset ends with the rows read so far. `columns` and `trained_turns` are those of
    TrainConfig. `files` are read in place of those that a folder would be trained with. Of a file that is not in the
    cache only the first `most_rows` are read.
    """
    source = open_source(path, columns, files=files)
    store = open_rows(source, tokenizer, objective, progress, stop, columns, trained_turns, most_rows)
    meta = store.meta
    rendered = Items(store, np.arange(len(store.numbers)), max_length)
    usable = rendered.is_usable
    examples = rendered if usable.all() else rendered.at(np.flatnonzero(usable))  # what it counts is kept once
    return Dataset(
        path=path,
        rows=meta["rows"],
        examples=examples,
        rendered=rendered,
        format=_format(meta),
        files=tuple(map(Path, meta["files"])),
        columns=meta["columns"],
        column_names=tuple(meta["column_names"]),
        is_whole=meta["is_whole"],
    )


def open_rows(
    source: Source,
    tokenizer: TextTokenizer,
    objective: str = "sft",
    progress: Progress | None = None,
    stop: Stop = lambda: False,
    columns: str = "",
    trained_turns: str = "all",
    most_rows: int | None = None,
) -> Store:
    """The source's rows at full length, from the cache where they are known; else the first `most_rows`."""
    settings = [objective, columns, trained_turns, tokenizer.fingerprint, _code(), [str(file) for file in source.files]]
    key = hashlib.blake2b(repr(settings).encode(), digest_size=20)
    before = _stamps(source.files)
    hashed = 0

    def told(size: int) -> None:
        nonlocal hashed
        hashed += size
        if progress is not None:
            progress(hashed // _HASHED_FASTER, source.bytes_total)

    for file in source.files:  # each by itself: a row may go from the end of one to the start of the next
        digest = digest_of(file, told, stop)
        if digest is None:
            return build_store(source, tokenizer, objective, trained_turns, "", None, lambda: True)
        key.update(digest.encode())
    if store := find_store(key.hexdigest()):
        return store

    def read(done: int, total: int) -> None:
        if progress is not None:
            progress(max(done, hashed // _HASHED_FASTER), total)

    store = build_store(source, tokenizer, objective, trained_turns, key.hexdigest(), read, stop, most_rows)
    if _stamps(source.files) != before:
        drop_store(key.hexdigest())  # the file was written to meanwhile: these are not the rows of what it held before
    return store


def _stamps(files: Sequence[Path]) -> list[tuple[int, ...] | None]:
    """What changes with each file's content; None for one that is gone."""
    stamps: list[tuple[int, ...] | None] = []
    for file in files:
        try:
            stamps.append(stamp_of(file))
        except OSError:
            stamps.append(None)
    return stamps


def _code() -> str:
    """Another whenever this folder's code is: what older code wrote is not what this one would write."""
    # A packaged program has no sources beside it: they are inside the program itself.
    frozen = getattr(sys, "frozen", False)
    files = [Path(sys.executable)] if frozen else sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _format(meta: dict[str, Any]) -> str:
    """Answers that wait for a partner and ties are meant as preferences, also where no row is one."""
    meant = meta["format"] == "unknown" and {"label", "answer_a"} & meta["columns"].keys()
    return FORMAT_NAMES["pair"] if meant else str(meta["format"])


def _of_the_file(meta: dict[str, Any], examples: Items) -> Iterator[Problem]:
    yield from (Problem(**_untupled(found)) for found in meta["notes"])
    if not meta["rows"]:
        yield error(0, "empty", "The file has no rows.", "Choose a file that holds rows.")
    if meta["default_template"]:
        yield default_template()
    if examples.store.sides == 2 and (problem := one_sided_lengths(examples.trained)):
        yield problem
    yield from _repeated(examples)


def _of_the_tokens(rows: Items) -> Iterator[Problem]:
    """What is wrong with rows at this length: all are found, of each kind the first are told in words."""
    kinds = (~rows.is_usable, rows.is_usable & rows.is_cut, rows.is_usable & rows.is_identical & ~rows.is_cut)
    for kind in kinds:
        found = rows.at(rows.rows[np.flatnonzero(kind)])
        files = _files_of(rows.store, found.numbers)
        told: list[Problem] = []
        for item, file in zip(Items(rows.store, found.rows[: TOLD["error"]], 2**62), files, strict=False):
            kept = cut_to(item, rows.max_length)
            told += [in_file(one, file) for one in ([kept] if isinstance(kept, Problem) else remarks(kept))]
        yield from told
        files, lines = files[TOLD["error"] :], found.lines[TOLD["error"] :]
        for file in dict.fromkeys(files):
            own = lines[files == file]
            yield replace(told[0], file=file, lines=line_ranges(own), rows=len(own))


def _repeated(rows: Items) -> Iterator[Problem]:
    """The rows that say the same, group by group, and file by file where several hold them."""
    places, groups, sizes = repeated(rows.store.contents, rows.rows)
    again = rows.at(rows.rows[places])
    by_group: dict[int, dict[str, list[int]]] = {}
    for number, line, file in zip(
        groups.tolist(), again.lines.tolist(), _files_of(rows.store, again.numbers), strict=True
    ):
        by_group.setdefault(number, {}).setdefault(file, []).append(line)
    for number, by_file in by_group.items():
        for file, own in by_file.items():
            others = [other for other in by_file if other != file]
            yield in_file(duplicates(own, others, int(sizes[number])), file)


def _files_of(store: Store, numbers: Ints) -> Names:
    """The names of the files that rows are of, by their numbers in all the data."""
    starts, names = zip(*store.meta["parts"], strict=True) if store.meta["parts"] else ((0,), ("",))
    return np.array(names, object)[np.searchsorted(starts, numbers, side="right") - 1]


def _untupled(found: dict[str, Any]) -> dict[str, Any]:
    """A problem's fields as JSON gives them back, as they were."""
    return {**found, "lines": tuple((first, last) for first, last in found["lines"])}
