"""train(config, stop): a run from its config to its adapter, told as events."""

from __future__ import annotations

import itertools
import math
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from engine import estimate
from engine.architecture import architecture_of
from engine.backend import has_fast_blas, mx
from engine.config import TrainConfig
from engine.data import load_tokenizer
from engine.data.batch import Batch, batches_of, layout_of, row_order
from engine.data.rows import Rows, usable_rows
from engine.data.tokenize import Item
from engine.errors import EngineError
from engine.events import Evaluated, Event, Failed, Finished, Preference, Saved, Stage, Started, Step
from engine.machine import budget_bytes, machine
from engine.memory import PhaseMeter, hold_to, process_bytes
from engine.models.adapter import add_adapter, save_adapter
from engine.models.find import find_model
from engine.models.folder import ModelFolder
from engine.models.load import load_stack
from engine.models.sample import is_ready
from engine.models.stack import Stack
from engine.objectives import Totals, objective_of, totals_of
from engine.optimizer import Optimizer
from engine.reference import Reference
from engine.runs import RunFolder, new_run_folder
from engine.segmented import Loss, Plan, loss_and_gradients, score
from engine.walk import Gradients

from mlx.utils import tree_flatten

# A run looks at its validation rows this often when `evaluate_every` is "auto".
_LOOKS = 5

# Rows and the batch that they make.
_Sized = tuple[Sequence[Item], Batch]


def train(config: TrainConfig, stop: Callable[[], bool] = lambda: False) -> Iterator[Event]:
    """Trains an adapter. Yields events as they happen; the last one is Finished or Failed.

    `stop` is asked between batches: once true, the run saves what it has and ends with Finished(stopped).
    """
    try:
        yield from _train(config, stop)
    except EngineError as error:
        yield Failed(error.kind, error.message, error.hint)
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
    together = replace(config, batch_size=min(config.batch_size, len(rows.train) or 1))
    chosen = estimate.choose(architecture_of(folder), together, rows.largest(config), budget)
    yield Stage("model", f"Loading {folder.path.name}")
    if not has_fast_blas:
        yield Stage("model", "OpenBLAS is missing, so this takes about 30 times as long: install libopenblas0.")
    hold_to(budget)
    stack = load_stack(folder)
    said = add_adapter(stack.model, config)
    if said:
        yield Stage("model", said)
    run = RunFolder(new_run_folder(config))
    run.write_config(config)
    training = _Training(config, folder, stack, rows, plan_of(config, chosen), run, budget)
    try:
        for event in training.events(chosen.peak_bytes, stop):
            run.append(event)
            yield event
    except EngineError as error:
        if error.kind != "disk":  # or this could not be written either
            run.append(Failed(error.kind, error.message, error.hint))
        raise


def plan_of(config: TrainConfig, chosen: estimate.Plan) -> Plan:
    """The plan as segmented backward takes it."""
    return Plan(
        segment_size=chosen.segment_size,
        kept=chosen.kept,
        tile=chosen.tile,
        keep_attention=chosen.keep_attention,
        head=config.head,
        head_chunk=config.head_chunk,
        head_epsilon=config.head_epsilon,
    )


class _Training:
    """The state of a run while it goes: model, optimizer, place in the data, what has been measured."""

    def __init__(
        self,
        config: TrainConfig,
        folder: ModelFolder,
        stack: Stack,
        rows: Rows,
        plan: Plan,
        run: RunFolder,
        budget_bytes: int,
    ) -> None:
        self.config, self.folder, self.stack, self.rows = config, folder, stack, rows
        self.plan, self.run, self.budget_bytes = plan, run, budget_bytes
        step_rows = config.batch_size * config.accumulate
        self.steps = config.steps or math.ceil(math.ceil(len(rows.train) * config.epochs) / step_rows)
        self.optimizer = Optimizer(config, self.steps)
        self.objective = objective_of(config)
        self.layout = layout_of(config)
        self.reference = (
            Reference(stack, plan, continued=bool(config.adapter)) if self.objective.needs_reference else None
        )
        self.meter = PhaseMeter()
        self.peak_bytes = 0

    def events(self, predicted_peak_bytes: int, stop: Callable[[], bool]) -> Iterator[Event]:
        parameters = sum(array.size for _, array in tree_flatten(self.stack.model.trainable_parameters()))
        recomputed = len(self.plan.segments(len(self.stack.layers)))
        yield Started(
            run=str(self.run.path),
            steps=self.steps,
            segment_size=self.plan.segment_size,
            segments=recomputed + (self.plan.kept > 0),
            budget_bytes=self.budget_bytes,
            resting_bytes=mx.get_active_memory(),
            predicted_peak_bytes=predicted_peak_bytes,
            train_rows=len(self.rows.train),
            valid_rows=len(self.rows.valid),
            split=self.rows.sentence,
            trainable_parameters=parameters,
        )
        begun, losses, done = time.perf_counter(), [0.0], 0
        yield from self._evaluated(0, stop)
        for number, batches in enumerate(self._steps(), start=1):
            step = self._step(number, batches, stop)
            if step is None:
                break
            losses = [losses[0] if done else step.loss, step.loss]
            done = number
            yield step
            if self._looks_after(number):
                yield from self._evaluated(number, stop)
                yield self._saved(number)
        if not self._looks_after(done) or not done:
            yield self._saved(done)
        yield Finished(
            step=done,
            steps=self.steps,
            stopped=done < self.steps,
            run=str(self.run.path),
            adapter=str(self.run.adapter / "adapters.safetensors"),
            first_loss=losses[0],
            last_loss=losses[-1],
            seconds=time.perf_counter() - begun,
            peak_bytes=self.peak_bytes,
        )

    def _steps(self) -> Iterator[list[_Sized]]:
        """The batches of each step. By epochs, the last step holds just the rows that are left."""
        size, rows = self.config.batch_size, self.rows.train
        step_rows = size * self.config.accumulate
        total = self.steps * step_rows if self.config.steps else math.ceil(len(rows) * self.config.epochs)
        order = itertools.islice(row_order(len(rows), self.config.seed), total)
        while numbers := list(itertools.islice(order, step_rows)):
            yield self._batches([rows[number] for number in numbers])

    def _batches(self, items: Sequence[Item]) -> list[_Sized]:
        return batches_of(items, self.config.batch_size, self.layout)

    def _loss(self, items: Sequence[Item], batch: Batch, totals: Totals) -> Loss:
        """The objective over one batch, as its share of `totals`."""
        reference = self.reference(batch, items) if self.reference else None
        return lambda log_p: self.objective(log_p, batch.kinds, totals, reference)

    def _totals(self, batches: list[_Sized]) -> Totals:
        return totals_of(self.objective, [batch.kinds for _, batch in batches])

    def _step(self, number: int, batches: list[_Sized], stop: Callable[[], bool]) -> Step | None:
        """One optimizer step, or None when it was stopped before its end."""
        begun = time.perf_counter()
        totals = self._totals(batches)
        self.stack.model.train()
        self.meter.start()
        loss, gradients, sums = 0.0, Gradients(), np.zeros(4)
        for index, (items, batch) in enumerate(batches):
            if stop():
                return None
            seed = (self.config.seed * 1_000_003 + number) * 4096 + index
            share = loss_and_gradients(self.stack, batch, self._loss(items, batch, totals), self.plan, self.meter, seed)
            loss += share.loss
            gradients = {name: gradients[name] + new if gradients else new for name, new in share.gradients.items()}
            mx.eval(gradients)
            if share.preference is not None:
                sums += share.preference
            del share
        rate, norm = self.optimizer.update(self.stack.model, gradients, number)
        _check_finite(number, loss, norm)
        peak = max(self.meter.peak_bytes, mx.get_peak_memory())  # the update's own peak included
        self.peak_bytes = max(self.peak_bytes, peak)
        seconds = time.perf_counter() - begun
        tokens = sum(batch.tokens for _, batch in batches)
        return Step(
            step=number,
            steps=self.steps,
            loss=loss,
            learning_rate=rate,
            grad_norm=norm,
            tokens=tokens,
            trained_tokens=sum(len(batch.targets) for _, batch in batches),
            tokens_per_second=tokens / seconds,
            seconds=seconds,
            peak_bytes=peak,
            active_bytes=mx.get_active_memory(),
            cache_bytes=mx.get_cache_memory(),
            process_bytes=process_bytes(),
            phases=self.meter.phases,
            preference=_preference(sums, totals),
        )

    def _looks_after(self, number: int) -> bool:
        """Whether the validation rows are measured, and the adapter saved, after step `number`."""
        every = self.config.evaluate_every
        gap = math.ceil(self.steps / _LOOKS) if isinstance(every, str) else every
        return bool(gap) and (number % gap == 0 or number == self.steps)

    def _evaluated(self, number: int, stop: Callable[[], bool]) -> Iterator[Evaluated]:
        if not self.rows.valid or self.config.evaluate_every == 0:
            return
        self.stack.model.eval()
        batches = self._batches(self.rows.valid)
        totals, loss, sums = self._totals(batches), 0.0, np.zeros(4)
        for items, batch in batches:
            if stop():
                return
            outcome = self._loss(items, batch, totals)(score(self.stack, batch, self.plan))
            loss += float(np.array(outcome.loss))
            if outcome.preference is not None:
                sums += np.array(outcome.preference)
        _check_finite(number, loss)
        yield Evaluated(
            step=number,
            loss=loss,
            rows=len(self.rows.valid),
            trained_tokens=sum(len(batch.targets) for _, batch in batches),
            preference=_preference(sums, totals),
        )

    def _saved(self, number: int) -> Saved:
        self.run.replace_adapter(
            lambda folder: save_adapter(self.stack.model, self.config, str(self.folder.path), folder)
        )
        return Saved(step=number, path=str(self.run.adapter))


def _check_finite(step: int, *values: float) -> None:
    if not all(math.isfinite(value) for value in values):
        raise EngineError(
            f"In step {step} the loss stopped being a number: training went astray.",
            "Start again with a lower learning rate, a third of this one for a start.",
        )


def _preference(sums: np.ndarray, totals: Totals) -> Preference | None:
    """The means over pairs, or None where there are none."""
    return Preference(*(sums / totals.pairs).tolist()) if totals.pairs else None
