"""train(config, stop): a run from its config to its adapter, told as events."""

from __future__ import annotations

import itertools
import math
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace

from engine import estimate
from engine.architecture import architecture_of
from engine.backend import has_fast_blas, mx
from engine.calibration import correction_for
from engine.config import TrainConfig
from engine.data import load_tokenizer
from engine.data.batch import row_order
from engine.data.largest import rows_at_once, rows_in_all
from engine.data.rows import Rows, usable_rows
from engine.errors import EngineError
from engine.events import Evaluated, Event, Failed, Finished, Predicted, Saved, Stage, Started
from engine.machine import budget_bytes, machine
from engine.memory import Watch, held_bytes
from engine.models.adapter import save_adapter
from engine.models.find import find_model
from engine.models.folder import ModelFolder
from engine.models.sample import is_ready
from engine.models.stack import Stack
from engine.plans import leanest
from engine.runs import RunFolder, new_run_folder
from engine.segmented import Plan
from engine.steps import Sized, Steps, load_inside, plan_of

from mlx.utils import tree_flatten

# A run looks at its validation rows this often when `evaluate_every` is "auto".
_LOOKS = 5


def train(config: TrainConfig, stop: Callable[[], bool] = lambda: False) -> Iterator[Event]:
    """Trains an adapter. Yields events as they happen; the last one is Finished or Failed.

    `stop` is asked between batches: once true, the run saves what it has and ends with Finished(stopped).
    """
    try:
        yield from _train(config, stop)
    except EngineError as error:
        yield Failed.of(error)
    except Exception:  # noqa: BLE001  whatever it is, a person reads a sentence and the log has the rest
        yield Failed(
            "internal",
            "Something went wrong in the trainer itself.",
            "The details below tell what; please report them.",
            traceback.format_exc(),
        )


def _train(config: TrainConfig, stop: Callable[[], bool]) -> Iterator[Event]:
    if not config.data:
        raise EngineError("There is no data to learn from.", "Choose a file with data.")
    fetch = config.model == "sample" and not is_ready()
    yield Stage("model", "Fetching the sample model, 93 MB, once" if fetch else "Looking for the model")
    folder = find_model(config.model)
    yield Stage("data", "Reading the data")
    rows = usable_rows(config, load_tokenizer(folder.path))
    budget = budget_bytes(config, machine())
    try:
        chosen = _predicted(config, folder, rows, budget)
        plan, predicted, limit = plan_of(config, chosen.variant), chosen.predicted, chosen.limit_bytes
    except EngineError as error:
        if error.kind != "unknown":
            raise
        yield Stage("model", f"{error.message} Training takes the leanest way, and what it takes is not predicted.")
        plan, predicted, limit = plan_of(config, leanest(config)), [], 0
    yield Stage("model", f"Loading {folder.path.name}")
    if not has_fast_blas:
        yield Stage("model", "OpenBLAS is missing, so this takes about 30 times as long: install libopenblas0.")
    stack, said, program_bytes = load_inside(budget, folder, config, limit)
    if said:
        yield Stage("model", said)
    run = RunFolder(new_run_folder(config))
    run.write_config(config)
    training = _Training(config, folder, stack, rows, plan, run)
    try:
        for event in training.events(budget, program_bytes, predicted, stop):
            run.append(event)
            yield event
    except EngineError as error:
        if error.kind != "disk":  # or this could not be written either
            run.append(Failed.of(error))
        raise


def _predicted(config: TrainConfig, folder: ModelFolder, rows: Rows, budget: int) -> estimate.Plan:
    """The plan for this run's longest rows. EngineError where it would not fit, or nothing can be predicted."""
    shape = architecture_of(folder)
    largest = replace(config, batch_size=rows_at_once(config, len(rows.train)))
    return estimate.choose(estimate.Case(shape, largest, rows.largest(config), budget, correction_for(shape, config)))


def _peak(predicted: list[Predicted]) -> int:
    """The highest that was predicted, 0 where nothing was."""
    return max((sum(phase.parts.values()) for phase in predicted), default=0)


class _Training:
    """A run while it goes: its steps, its place in the data, its folder."""

    def __init__(
        self, config: TrainConfig, folder: ModelFolder, stack: Stack, rows: Rows, plan: Plan, run: RunFolder
    ) -> None:
        self.config, self.folder, self.rows, self.run = config, folder, rows, run
        self.model, self.layers = stack.model, len(stack.layers)
        self.rows_in_all = rows_in_all(config, len(rows.train))
        count = math.ceil(self.rows_in_all / (config.batch_size * config.accumulate))
        self.steps = Steps(config, stack, plan, count)

    def events(
        self, budget_bytes: int, program_bytes: int, predicted: list[Predicted], stop: Callable[[], bool]
    ) -> Iterator[Event]:
        parameters = sum(array.size for _, array in tree_flatten(self.model.trainable_parameters()))
        plan, count = self.steps.plan, self.steps.count
        recomputed = len(plan.segments(self.layers))
        yield Started(
            run=str(self.run.path),
            steps=count,
            segment_size=plan.segment_size,
            segments=recomputed + (plan.kept > 0),
            budget_bytes=budget_bytes,
            resting_bytes=mx.get_active_memory(),
            predicted_peak_bytes=_peak(predicted),
            train_rows=len(self.rows.train),
            valid_rows=len(self.rows.valid),
            split=self.rows.sentence,
            trainable_parameters=parameters,
            predicted=predicted,
            program_bytes=program_bytes,
        )
        watch = Watch(budget_bytes)
        begun, losses, done = time.perf_counter(), [0.0], 0
        yield from self._evaluated(0, stop)
        for number, batches in enumerate(self._batches(), start=1):
            step = self.steps.take(number, batches, stop)
            if step is None:
                break
            losses = [losses[0] if done else step.loss, step.loss]
            done = number
            yield step
            warning = watch.look(max(held_bytes(), program_bytes + step.peak_bytes))
            if warning is not None:
                yield warning
            if self._looks_after(number):
                yield from self._evaluated(number, stop)
                yield self._saved(number)
        if not self._looks_after(done) or not done:
            yield self._saved(done)
        yield Finished(
            step=done,
            steps=count,
            stopped=done < count,
            run=str(self.run.path),
            adapter=str(self.run.adapter / "adapters.safetensors"),
            first_loss=losses[0],
            last_loss=losses[-1],
            seconds=time.perf_counter() - begun,
            peak_bytes=self.steps.peak_bytes,
        )

    def _batches(self) -> Iterator[list[Sized]]:
        """The batches of each step. By epochs, the last step holds just the rows that are left."""
        rows = self.rows.train
        order = itertools.islice(row_order(len(rows), self.config.seed), self.rows_in_all)
        step_rows = self.config.batch_size * self.config.accumulate
        while numbers := list(itertools.islice(order, step_rows)):
            yield self.steps.batches([rows[number] for number in numbers])

    def _looks_after(self, number: int) -> bool:
        """Whether the validation rows are measured, and the adapter saved, after step `number`."""
        every = self.config.evaluate_every
        gap = math.ceil(self.steps.count / _LOOKS) if isinstance(every, str) else every
        return bool(gap) and (number % gap == 0 or number == self.steps.count)

    def _evaluated(self, number: int, stop: Callable[[], bool]) -> Iterator[Evaluated]:
        if not self.rows.valid or self.config.evaluate_every == 0:
            return
        batches = self.steps.batches(self.rows.valid)
        measured = self.steps.measure(number, batches, stop)
        if measured is None:
            return
        loss, preference = measured
        yield Evaluated(
            step=number,
            loss=loss,
            rows=len(self.rows.valid),
            trained_tokens=sum(len(batch.targets) for _, batch in batches),
            preference=preference,
        )

    def _saved(self, number: int) -> Saved:
        self.run.replace_adapter(lambda folder: save_adapter(self.model, self.config, str(self.folder.path), folder))
        return Saved(step=number, path=str(self.run.adapter))
