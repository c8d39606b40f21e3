"""What the commands have in common: the settings by flags, the model, words on the terminal, the wish to stop."""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import sys
from typing import Any

from engine.config import GB, SETTINGS, TrainConfig
from engine.events import Evaluated, Event, Failed, Finished, Saved, Stage, Started, Step, Warned
from engine.models.folder import ModelFolder

STOPPED = 130  # exit status of a process that Ctrl-C ended


def config_of(arguments: argparse.Namespace) -> TrainConfig:
    """The settings a command was given by flags; the others keep their defaults."""
    given = {name: value for name, value in vars(arguments).items() if name in SETTINGS and value is not None}
    return TrainConfig.from_mapping(given)


def find(config: TrainConfig) -> ModelFolder:
    """The config's model, fetched if need be."""
    from engine.models.find import find_model

    return find_model(config.model, to_stderr)


def to_stderr(message: str) -> None:
    """A line for people, beside what is printed for programs."""
    print(message, file=sys.stderr)


def print_json(value: Any) -> None:
    """One line of JSON."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False))


def say(event: Event) -> None:
    """An event as a line for people."""
    match event:
        case Stage():
            print(event.message)
        case Started():
            size = f"segments of {event.segment_size} layers" if event.segment_size else "all layers at once"
            known = f"predicted peak {event.predicted_peak_bytes / GB:.1f} of " if event.predicted else "budget "
            print(
                f"{event.steps:,} steps over {event.train_rows:,} rows, {size}; "
                f"{known}{event.budget_bytes / GB:.1f} GB. {event.split}"
            )
        case Step():
            print(
                f"step {event.step:,}/{event.steps:,}: loss {event.loss:.4f}, {event.tokens_per_second:,.0f} tokens/s, "
                f"peak {event.peak_bytes / GB:.2f} GB"
            )
        case Warned():
            print(f"{event.message}\n{event.hint}", file=sys.stderr)
        case Evaluated():
            print(f"step {event.step:,}: validation loss {event.loss:.4f}")
        case Saved():
            print(f"saved {event.path}")
        case Finished():
            how = "stopped" if event.stopped else "finished"
            print(f"{how} after {event.step:,} steps, {event.seconds:,.0f} s: {event.adapter}")
        case Failed():
            print(f"{event.message}\n{event.hint}\n{event.details}".rstrip(), file=sys.stderr)


class StopSignal:
    """True once we were asked to stop: by Ctrl-C, SIGTERM or, if wanted, the end of standard input."""

    def __init__(self, on_eof: bool) -> None:
        self._on_eof = on_eof
        self._asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.ask)

    def ask(self, *_: Any) -> None:
        """From now on it is true."""
        self._asked = True

    def __call__(self) -> bool:
        if self._on_eof and not self._asked:
            readable, _, _ = select.select([0], [], [], 0)
            self._asked = bool(readable) and not os.read(0, 4096)
        return self._asked
