"""A data file's rows on their way into a store: read, made into blocks, written, never more than a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from engine.config import PAIR_OBJECTIVES
from engine.data.blocks import Block, BlockMaker
from engine.data.crew import Crew, Part
from engine.data.problems import Problem, ProblemList
from engine.data.read import RawLines, Row
from engine.data.source import Source
from engine.data.store import Store, StoreWriter
from engine.data.tokenizer import TextTokenizer

# At once in memory: enough that all cores have work, little enough that stopping takes no time.
_ROWS = 2048
BYTES = 2_000_000

Progress = Callable[[int, int], None]
Stop = Callable[[], bool]


def build_store(
    source: Source,
    tokenizer: TextTokenizer,
    objective: str,
    trained_turns: str,
    key: str,
    progress: Progress | None,
    stop: Stop,
    most_rows: int | None = None,
) -> Store:
    """The store of all rows, kept under `key`; of the first `most_rows`, or those read once `stop` says so, not kept.

    Its `meta["is_whole"]` tells which.
    """
    reading, summary = _Reading(source, stop, most_rows), _Summary()
    with StoreWriter() as writer:
        maker = BlockMaker(tokenizer, objective, trained_turns, source.shaper)
        with Crew(maker, source.bytes_total) as crew:
            for block, done in crew.blocks(reading.parts()):
                writer.add(block)
                summary.add(block)
                if progress is not None:
                    progress(done, source.bytes_total)
        if progress is not None and not reading.is_stopped:
            progress(source.bytes_total, source.bytes_total)
        meta = {
            **summary.meta(),
            "is_whole": not reading.is_stopped,
            "pairs": objective in PAIR_OBJECTIVES,
            "default_template": summary.is_rendered and tokenizer.template.is_default,
            "files": [str(path) for path in source.files],
            "columns": source.columns,
            "column_names": list(source.column_names),
            "notes": [asdict(note) for note in source.notes],
        }
        return writer.finish(meta, None if reading.is_stopped else key)


class _Reading:
    """A source's rows in parts, until there are `most_rows` or `stop` says that it is enough."""

    def __init__(self, source: Source, stop: Stop, most_rows: int | None) -> None:
        self._source, self._stop, self._most_rows = source, stop, most_rows
        self.is_stopped = False

    def parts(self) -> Iterator[Part]:
        """What is taken together, each time with the bytes read up to there."""
        rows, begun, count = list[Row | Problem](), 0, 0
        for one in self._portions():
            if count == self._most_rows or self._stop():
                self.is_stopped = True
                break
            done = self._source.bytes_done
            if isinstance(one, RawLines):
                if rows:
                    yield rows, begun
                    rows = []
                yield one, done
                begun = done
                continue
            if one is not None:
                rows.append(one)
                count += 1
            if len(rows) >= _ROWS or done - begun >= BYTES:
                yield rows, done
                rows, begun = [], done
        if rows:
            yield rows, self._source.bytes_done

    def _portions(self) -> Iterator[Row | Problem | RawLines | None]:
        return self._source.steps() if self._most_rows is not None else self._source.portions(BYTES)


class _Summary:
    """What a store tells beside its arrays."""

    def __init__(self) -> None:
        self._rows = 0
        self._parts: list[tuple[int, str]] = []  # the file's name from each of these rows' numbers on
        self._problems = ProblemList()
        self._formats: set[str] = set()
        self.is_rendered = False  # any row, by the chat template

    def add(self, block: Block) -> None:
        """The next block of the data."""
        for number, file in block.files:
            if not self._parts or file != self._parts[-1][1]:
                self._parts.append((self._rows + number, file))
        self._rows += block.rows
        self._problems.extend(block.problems)
        self._formats |= block.formats
        self.is_rendered |= block.is_rendered

    def meta(self) -> dict[str, Any]:
        return {
            "rows": self._rows,
            "parts": self._parts,
            "format": "mixed" if len(self._formats) > 1 else next(iter(self._formats), "unknown"),
            "problems": [asdict(problem) for problem in self._problems.listed()],
        }
