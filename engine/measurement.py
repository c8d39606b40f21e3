"""What one plan really takes: two steps on the dataset's longest batch, in a process that is there for nothing else."""

from __future__ import annotations

import json
import os
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from engine.backend import mx
from engine.config import TrainConfig
from engine.data import load_tokenizer
from engine.data.largest import largest_rows
from engine.data.rows import usable_rows
from engine.memory import held_bytes
from engine.models.find import find_model
from engine.plans import Variant
from engine.probe import Taken
from engine.steps import Steps, load_inside, plan_of

# The first step has no moments yet; the second is like all that follow.
_STEPS = 2
# How often the process looks at what it holds: no system tells of a peak since a moment of our choice.
_PAUSE_SECONDS = 0.003


def measure(config: TrainConfig, variant: Variant, limit_bytes: int, allowed_bytes: int) -> None:
    """Prints what two steps took inside `limit_bytes`: a Taken as a JSON line.

    What loading takes for a moment doesn't count.

    Ends the process at once where it would hold more than `allowed_bytes`, having printed `ended_at_bytes`, and when
    its standard input ends. EngineError where a run could not be made.
    """
    with _sentry(allowed_bytes) as sentry:
        folder = find_model(config.model)
        rows = usable_rows(config, load_tokenizer(folder.path))
        stack, _, _ = load_inside(limit_bytes, folder, config)
        steps = Steps(config, stack, plan_of(config, variant), _STEPS)
        # The largest last: the gradients of the one before wait beside it.
        batches = steps.batches(largest_rows(config, rows))[::-1]
        sentry.highest_bytes = 0
        seconds = 0.0
        for number in range(1, _STEPS + 1):
            begun = time.perf_counter()
            steps.take(number, batches)
            seconds = time.perf_counter() - begun
    _tell(asdict(Taken(sentry.highest_bytes, steps.peak_bytes, mx.get_active_memory(), seconds)))


@dataclass
class _Sentry:
    """What this process was seen to hold at most."""

    allowed_bytes: int
    highest_bytes: int = 0

    def look(self) -> None:
        held = held_bytes()
        self.highest_bytes = max(self.highest_bytes, held)
        if held > self.allowed_bytes:
            _tell({"ended_at_bytes": held})
            os._exit(0)  # an evaluation under way can't be stopped in any other way


@contextmanager
def _sentry(allowed_bytes: int) -> Iterator[_Sentry]:
    """Looks at what the process holds while the context lasts, on a thread of its own: MLX computes without Python."""
    sentry, is_over = _Sentry(allowed_bytes), threading.Event()

    def watch() -> None:
        while not is_over.is_set():
            sentry.look()
            ended, _, _ = select.select([0], [], [], _PAUSE_SECONDS)
            if ended and not os.read(0, 4096):
                os._exit(1)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield sentry
    finally:
        is_over.set()
        thread.join()


def _tell(answer: dict[str, Any]) -> None:
    os.write(1, (json.dumps(answer) + "\n").encode())
