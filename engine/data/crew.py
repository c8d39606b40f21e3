"""Several processes share a file: this one reads it and hands out parts of it, and all make blocks of them.

What passes between them lies in files of a temporary folder. Pipes carry only the word that it is there, so that no
process ever waits until another reads. A worker is our own program; whatever ends one, what it had is done here.
"""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import selectors
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from engine.data.blocks import Block, BlockMaker
from engine.data.cache import in_the_making
from engine.data.shaping import Held, Shaper
from engine.data.tokenizer import load_tokenizer
from engine.isolated import command, started, tail

log = logging.getLogger(__name__)

Part = tuple[Held, int]  # rows that follow each other, and the bytes read up to their end

# What is smaller is done before a worker has begun.
SHARED_BYTES = 16 * 1024**2
# One process reads for all: more would wait for it.
_MOST_WORKERS = 3
# A worker has its next part at hand when it is done with one.
_PARTS_EACH = 2
# Blocks that wait for an earlier one, at most.
_WAITING = 16
_JOB = "job"


@dataclass(frozen=True)
class _Job:
    """What a worker needs to know. `model` is the tokenizer's folder, `now` the clock of its chat template."""

    model: Path
    now: datetime
    fingerprint: str
    objective: str
    trained_turns: str
    shaper: Shaper


class Crew:
    """Makes blocks of the rows of a source of `size` bytes, with `workers` if it is large, until its context ends."""

    def __init__(self, maker: BlockMaker, size: int) -> None:
        self._maker = maker
        self._count = min(_MOST_WORKERS, (os.cpu_count() or 1) - 1) if size >= SHARED_BYTES else 0
        self.workers: list[Worker] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        maker, tokenizer = self._maker, self._maker.tokenizer
        if tokenizer.folder is None:
            return self
        now = tokenizer.template.environment.now
        job = _Job(tokenizer.folder, now, tokenizer.fingerprint, maker.objective, maker.trained_turns, maker.shaper)
        try:
            for _ in range(self._count):
                self.workers.append(self._stack.enter_context(_working(job)))
        except OSError:
            pass  # the machine refuses another process, or the disk its files: it goes without
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def blocks(self, parts: Iterator[Part]) -> Iterator[tuple[Block, int]]:
        """The block of each part in their order, and the bytes read up to its end."""
        waiting: deque[_Given] = deque()
        for held, done in parts:
            waiting.append(self._give(held, done))
            while waiting and (len(waiting) > _WAITING or waiting[0].is_made):
                yield self._take(waiting.popleft())
        while waiting:
            yield self._take(waiting.popleft())

    def _give(self, held: Held, done: int) -> _Given:
        for worker in self.workers:
            if worker.has_room and (number := worker.give(held)) is not None:
                return _Given(held, done, worker, number)
        return _Given(held, done, made=self._maker.make(held))

    def _take(self, given: _Given) -> tuple[Block, int]:
        block = given.made or (given.worker and given.worker.take(given.number)) or self._maker.make(given.held)
        return block, given.done


@dataclass
class _Given:
    """A part that was given to a worker, where its answer will have `number`, or one whose block is made."""

    held: Held
    done: int
    worker: Worker | None = None
    number: int = 0
    made: Block | None = None

    @property
    def is_made(self) -> bool:
        return self.worker is None or self.worker.is_done_with(self.number)


class Worker:
    """A process that makes blocks of the parts that it is given, in their order; it says so when it can begin.

    `taken` counts the blocks that came of it.
    """

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        if process.stdin is None or process.stdout is None:
            raise ValueError("the child has no pipes")
        self.process, self.taken = process, 0
        self._in, self._out, self._folder = process.stdin.fileno(), process.stdout.fileno(), folder
        self._given = 0
        self._said = 0  # that it began, and each block
        self._is_alive = True

    @property
    def has_room(self) -> bool:
        self.listen(wait=False)
        return self._is_alive and self._said > 0 and self._given - (self._said - 1) < _PARTS_EACH

    def give(self, held: Held) -> int | None:
        """The number that the block of these rows will have, None where they can't be given."""
        number = self._given
        try:
            _write(self._folder / f"{number}.part", held)
            os.write(self._in, b"\n")
        except RecursionError:  # a row nested by the hundred
            return None
        except OSError:  # the disk is full, or the worker has ended
            self._is_alive = False
            return None
        self._given += 1
        return number

    def is_done_with(self, number: int) -> bool:
        """Whether nothing more is to be waited for."""
        self.listen(wait=False)
        return self._said > number + 1 or not self._is_alive

    def take(self, number: int) -> Block | None:
        """The block of that number, waited for; None where the worker ended before."""
        while not self.is_done_with(number):
            self.listen(wait=True)
        if self._said <= number + 1:
            return None
        self.taken += 1
        block: Block = _read(self._folder / f"{number}.block")
        return block

    def listen(self, wait: bool) -> None:
        """Takes notice of what the worker said since."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._out, selectors.EVENT_READ)
            if self._is_alive and selector.select(None if wait else 0):
                said = os.read(self._out, 4096)
                self._said += len(said)
                self._is_alive = bool(said)


@contextmanager
def _working(job: _Job) -> Iterator[Worker]:
    with in_the_making() as folder, tempfile.TemporaryFile() as errors:
        _write(folder / _JOB, job)
        with started(command("make-blocks", str(folder)), errors) as child:
            yield Worker(child, folder)
        if said := tail(errors):
            log.warning("A process that makes blocks said: %s", said)  # nobody else would read it


def work(folder: Path) -> int:
    """What a worker does with what lies in `folder`, until its standard input ends; its exit status."""
    job: _Job = _read(folder / _JOB)
    tokenizer = load_tokenizer(job.model, job.now)
    if tokenizer.fingerprint != job.fingerprint:
        return 2  # the model's files were changed just now
    maker = BlockMaker(tokenizer, job.objective, job.trained_turns, job.shaper)
    for number in itertools.count():
        os.write(sys.stdout.fileno(), b"\n")
        if not sys.stdin.buffer.read(1):
            break
        held: Held = _read(folder / f"{number}.part")
        _write(folder / f"{number}.block", maker.make(held))
    return 0


def _write(path: Path, value: object) -> None:
    path.write_bytes(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


def _read(path: Path) -> Any:
    """What one of us wrote, which is taken away."""
    value = pickle.loads(path.read_bytes())  # noqa: S301  our own file, in a folder that is ours alone
    path.unlink()
    return value
