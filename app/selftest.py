"""`--self-test`: this copy of Tunesmith proves that it works, without a hand, a display or the internet.

A new home folder, the window, the sample model, three training steps, the adapter read back, an answer with it, each
in a child process started as the window starts it. A line on standard error is a failure too.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from app import places
from app.driving import DrivingError, close, wait
from app.main import SELF_TEST, open_window
from app.product import versions
from app.seclusion import kept_stderr, new_home, refuse_network
from app.talking import Question
from app.window import MainWindow
from engine.errors import EngineError
from engine.events import Finished
from engine.models.adapter_folder import open_adapter

_STEPS = 3
_ANSWER_TOKENS = 12
_STAGE_SECONDS = 240.0
_STATUS = 7  # no process ends so by itself


class SelfTestError(Exception):
    """A sentence: what does not work."""


def main(arguments: Sequence[str]) -> int:
    """Runs the self-test; exit status 0 where all works, 1 with a sentence where something does not."""
    parser = argparse.ArgumentParser(prog=f"tunesmith {SELF_TEST}", description=__doc__, allow_abbrev=False)
    parser.add_argument("model", nargs="?", default="", help="a model's folder to take instead of the sample")
    model = parser.parse_args(arguments).model
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    begun = time.perf_counter()
    failure, lines = "", list[str]()
    try:
        with new_home(), kept_stderr() as lines:
            refuse_network()
            _test(model)
    except (SelfTestError, DrivingError, EngineError) as error:
        failure = str(error)
    except Exception:  # noqa: BLE001  whatever it is, this copy does not work
        failure = traceback.format_exc()
    if lines and not failure:
        failure = "Something was written to standard error that should not be there."
    if failure:
        print("\n".join([f"self-test failed: {failure}", *lines]), file=sys.stderr)
        return 1
    print(f"self-test passed in {time.perf_counter() - begun:.1f} s", flush=True)
    return 0


def _test(model: str) -> None:
    print(_versions(), flush=True)
    app, window = open_window()
    app.processEvents()
    _tell("start to window", time.time() - psutil.Process().create_time())
    try:
        with _stage("models listed"):
            wait(window, lambda: window.session.shelf.listed, _STAGE_SECONDS)
        with _stage("model and data"):
            _load(window, model)
        with _stage(f"{_STEPS} training steps"):
            finished = _train(window)
        with _stage("adapter read back"):
            _read_back(Path(finished.adapter))
        with _stage("answer"):
            _ask(window)
    finally:
        close(app, window)
    if children := psutil.Process().children(recursive=True):
        raise SelfTestError(f"Child processes are left behind: {children}.")
    with _stage("process spawned"):
        _spawn()


@contextmanager
def _stage(name: str) -> Iterator[None]:
    """Tells how long a stage took, once it is done."""
    begun = time.perf_counter()
    yield
    _tell(name, time.perf_counter() - begun)


def _tell(stage: str, seconds: float) -> None:
    print(f"{stage:<18}{seconds:6.1f} s", flush=True)


def _load(window: MainWindow, model: str) -> None:
    session = window.session
    if model:
        session.change(model=model, data=str(places.sample_data()), max_length=512, skip_flawed=True)
    else:
        window.data_page.welcome.sample.click()
    session.change(steps=_STEPS, batch_size=2, evaluate_every=0)
    wait(window, lambda: session.blocker() is None, _STAGE_SECONDS)


def _train(window: MainWindow) -> Finished:
    training, ends = window.session.training, list[Finished]()
    training.finished.connect(ends.append)
    window.bar.start.click()
    wait(window, lambda: bool(ends) and not training.phase.active, _STAGE_SECONDS)
    losses = [float(loss) for loss in training.history["loss"]]
    if len(losses) != _STEPS or not all(map(math.isfinite, losses)):
        raise SelfTestError(f"{_STEPS} steps were asked for and these losses came: {losses}.")
    return ends[0]


def _read_back(weights: Path) -> None:
    """The adapter's folder is what mlx_lm loads: settings, and a lora_a and a lora_b for each adapted layer."""
    names = set(open_adapter(weights).tensors)
    firsts = {name for name in names if name.endswith(".lora_a")}
    if not firsts or names != firsts | {name.removesuffix("a") + "b" for name in firsts}:
        raise SelfTestError(f"The adapter's tensors are not named as mlx_lm names them: {sorted(names)[:4]}.")


def _ask(window: MainWindow) -> None:
    talk, answered = window.talk_page.talk, list[Question]()
    talk.answered.connect(answered.append)
    if talk.adapter is None:
        raise SelfTestError("The trained adapter is not the one that is talked to.")
    talk.ask(Question("A table for two, tonight at eight.", adapter=True, max_tokens=_ANSWER_TOKENS))
    wait(window, lambda: bool(answered), _STAGE_SECONDS)


def _spawn() -> None:
    """A process of Python's own making runs what it is told: packaged, it is this program that must know how."""
    child = multiprocessing.get_context("spawn").Process(target=sys.exit, args=(_STATUS,))
    child.start()
    child.join(_STAGE_SECONDS)
    if child.exitcode != _STATUS:
        raise SelfTestError(f"A spawned process ended with {child.exitcode} instead of {_STATUS}.")


def _versions() -> str:
    packaged = "packaged" if getattr(sys, "frozen", False) else "from source"
    return ", ".join(f"{name} {value}" for name, value in versions().items()) + f" ({packaged})"
