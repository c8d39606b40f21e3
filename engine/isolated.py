"""The trainer's events, from a child process: whatever ends it, the caller goes on.

The child is our own program (`train --events`), so a packaged app starts itself. MLX can end a process
from C++ without an exception (a Metal out-of-memory is one way); here that becomes a Failed event.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from engine.config import TrainConfig
from engine.events import Event, Failed, Finished, from_line

log = logging.getLogger(__name__)

# How often `stop` is asked while the child says nothing.
_POLL_SECONDS = 0.1
_DETAIL_BYTES = 20_000
# Of Metal, of MLX's allocator, of Python, as they come in errors, without spaces.
_OUT_OF_MEMORY = ("outofmemory", "insufficientmemory", "unabletoallocate", "bad_alloc", "memoryerror")
# What Metal says where macOS ended work on the GPU for the display's sake.
_DISPLAY_WAITED = "impactinginteractivity"


def command(*arguments: str) -> list[str]:
    """The argv that runs our own command line with `arguments`, from source or packaged."""
    if getattr(sys, "frozen", False):
        return [sys.executable, *arguments]
    return [sys.executable, "-m", "engine", *arguments]


def train(config: TrainConfig, stop: Callable[[], bool] = lambda: False) -> Iterator[Event]:
    """Trains in a child process. Yields its events; the last one is Finished or Failed.

    When `stop` turns true the child finishes its step, saves and ends with Finished(stopped=True).
    Closing the iterator early ends the child at once.
    """
    with tempfile.TemporaryDirectory(prefix="tunesmith-") as scratch:
        settings = Path(scratch) / "config.json"
        settings.write_text(json.dumps(config.to_mapping()), encoding="utf-8")
        with (Path(scratch) / "stderr").open("w+b") as errors:
            yield from _events(
                command("train", "--config", str(settings), "--events", "--stop-on-eof"),
                errors,
                stop,
            )


def _events(argv: list[str], errors: IO[bytes], stop: Callable[[], bool]) -> Iterator[Event]:
    last: Event | None = None
    with started(argv, errors) as child:
        for line in lines(child, stop):
            try:
                last = from_line(line)
            except ValueError:
                errors.write(line.encode() + b"\n")
                continue
            yield last
        child.wait()
        details = tail(errors)
        if not isinstance(last, (Finished, Failed)):
            yield _death(child.returncode, details)
        elif details.strip():
            log.warning("the training process wrote to its standard error:\n%s", details.strip())


@contextmanager
def started(argv: list[str], errors: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A child whose output `lines` reads. Leaving the context ends it at once, whatever it does."""
    # The end of its standard input tells the child to stop: when we close it, and when we die.
    # Its own session: a Ctrl-C in our terminal is ours to answer, by `stop`.
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True)
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()
        for stream in (child.stdin, child.stdout):
            if stream:
                stream.close()


def lines(child: subprocess.Popen[bytes], stop: Callable[[], bool]) -> Iterator[str]:
    """What the child prints, line by line, until it closes its output. Its input ends once `stop` turns true."""
    if child.stdin is None or child.stdout is None:
        raise ValueError("the child has no pipes")
    stream, buffer = child.stdout.fileno(), b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            if not child.stdin.closed and stop():
                child.stdin.close()
            if not selector.select(_POLL_SECONDS):
                continue
            piece = os.read(stream, 65536)
            if not piece:
                return
            *complete, buffer = (buffer + piece).split(b"\n")
            for line in complete:
                yield line.decode("utf-8", errors="replace")


def tail(errors: IO[bytes]) -> str:
    """The end of what a child wrote to its standard error."""
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, size - _DETAIL_BYTES))
    return errors.read().decode("utf-8", errors="replace")


def died_of_memory(status: int, details: str) -> str:
    """How memory ended a process, to go on with after its name, or nothing where something else did.

    `status` is Popen's, `details` what the process wrote to standard error.
    """
    if any(words in details.lower().replace(" ", "") for words in _OUT_OF_MEMORY):
        return "needed more memory than the machine could give and was ended"
    if status == -signal.SIGKILL:
        return "was ended from outside, most likely because memory ran out"
    return ""


def ended_for_the_display(details: str) -> str:
    """How macOS ended a process for the display's sake, to go on with after its name, or nothing where it did not."""
    waited = _DISPLAY_WAITED in details.lower().replace(" ", "")
    return "was ended by macOS because it kept the display waiting" if waited else ""


def _death(status: int, details: str) -> Failed:
    """One place where the end of a process becomes a sentence."""
    if how := ended_for_the_display(details):
        return Failed(
            "died",
            f"The training process {how}.",
            "Let the display sleep while training goes on, or choose a smaller batch or a shorter longest row, "
            "then start again.",
            details,
        )
    if how := died_of_memory(status, details):
        return Failed(
            "died" if status == -signal.SIGKILL else "memory",
            f"The training process {how}.",
            "Choose a smaller segment size or a shorter longest row, close other programs or lower the memory budget, "
            "then start again.",
            details,
        )
    return Failed(
        "died",
        f"The training process {ended(status)}.",
        "Start again; if it happens twice, the details below tell us why.",
        details,
    )


def ended(status: int) -> str:
    """How a process ended unexpectedly, to go on with after its name."""
    how = f"by signal {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
    return f"ended unexpectedly {how}"
