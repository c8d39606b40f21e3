"""The steps of a run, one after another: loss, gradients, update, and what each took. Knows no run folder."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from engine.backend import mx
from engine.config import TrainConfig
from engine.data.batch import Batch, batches_of, layout_of
from engine.data.tokenize import Item
from engine.errors import EngineError
from engine.events import Preference, Step
from engine.machine import footprint_bytes, swap_bytes
from engine.memory import PhaseMeter, held_bytes, hold_to
from engine.models.adapter import add_adapter
from engine.models.folder import ModelFolder
from engine.models.load import load_stack
from engine.models.stack import Stack
from engine.objectives import Totals, objective_of, totals_of
from engine.optimizer import Optimizer
from engine.plans import Variant
from engine.reference import Reference
from engine.segmented import Loss, Plan, loss_and_gradients, score
from engine.walk import Gradients

# Rows and the batch that they make.
Sized = tuple[Sequence[Item], Batch]


def plan_of(config: TrainConfig, variant: Variant) -> Plan:
    """The walk as segmented backward takes it."""
    return Plan(
        segment_size=variant.segment_size,
        kept=variant.kept,
        tile=variant.tile,
        keep_attention=variant.keep_attention,
        head=config.head,
        head_chunk=config.head_chunk,
        head_epsilon=config.head_epsilon,
    )


def load_inside(
    budget_bytes: int, folder: ModelFolder, config: TrainConfig, limit_bytes: int = 0
) -> tuple[Stack, str | None, int]:
    """The model with its adapter, and MLX held to the budget, or to a plan's limit where that is less.

    With it what there is to say about the adapter, mostly nothing, and what the process holds beside MLX's arrays, in
    bytes. EngineError where the model can't be loaded.
    """
    hold_to(budget_bytes)
    stack = load_stack(folder)
    said = add_adapter(stack.model, config)
    mx.clear_cache()
    program_bytes = max(0, held_bytes() - mx.get_active_memory())
    # MLX runs ahead as far as its limit lets it. The prediction as the limit costs no time on the CPU and keeps a tenth
    # to a third of what comes and goes out of memory; on a GPU it costs some, and up to half as much is kept out.
    hold_to(min(budget_bytes, limit_bytes or budget_bytes), program_bytes)
    return stack, said, program_bytes


class Steps:
    """Model, objective, optimizer and meter of `count` steps."""

    def __init__(self, config: TrainConfig, stack: Stack, plan: Plan, count: int) -> None:
        self.config, self.stack, self.plan, self.count = config, stack, plan, count
        self.meter = PhaseMeter()
        self.peak_bytes = 0  # of all steps so far
        self._optimizer = Optimizer(config, count)
        self._objective = objective_of(config)
        self._layout = layout_of(config)
        needs_reference = self._objective.needs_reference
        self._reference = Reference(stack, plan, continued=bool(config.adapter)) if needs_reference else None

    def batches(self, items: Sequence[Item]) -> list[Sized]:
        """`items` in their order, a batch's rows at a time."""
        return batches_of(items, self.config.batch_size, self._layout)

    def take(self, number: int, batches: list[Sized], stop: Callable[[], bool] = lambda: False) -> Step | None:
        """Optimizer step `number` over `batches`, or None when it was stopped before its end."""
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
        rate, norm = self._optimizer.update(self.stack.model, gradients, number)
        _check_finite(number, loss, norm)
        peak = max(self.meter.peak_bytes, mx.get_peak_memory())  # the update's own peak included
        self.peak_bytes = max(self.peak_bytes, peak)
        seconds = time.perf_counter() - begun
        tokens = sum(batch.tokens for _, batch in batches)
        return Step(
            step=number,
            steps=self.count,
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
            process_bytes=footprint_bytes(),
            swap_bytes=swap_bytes(),
            phases=self.meter.phases,
            preference=_preference(sums, totals),
        )

    def measure(
        self, number: int, batches: list[Sized], stop: Callable[[], bool]
    ) -> tuple[float, Preference | None] | None:
        """The loss of `batches` as the model is after step `number`, and pairs' means; None when it was stopped."""
        self.stack.model.eval()
        totals, loss, sums = self._totals(batches), 0.0, np.zeros(4)
        for items, batch in batches:
            if stop():
                return None
            outcome = self._loss(items, batch, totals)(score(self.stack, batch, self.plan))
            loss += float(np.array(outcome.loss))
            if outcome.preference is not None:
                sums += np.array(outcome.preference)
        _check_finite(number, loss)
        return loss, _preference(sums, totals)

    def _loss(self, items: Sequence[Item], batch: Batch, totals: Totals) -> Loss:
        """The objective over one batch, as its share of `totals`."""
        reference = self._reference(batch, items) if self._reference else None
        return lambda log_p: self._objective(log_p, batch.kinds, totals, reference)

    def _totals(self, batches: list[Sized]) -> Totals:
        return totals_of(self._objective, [batch.kinds for _, batch in batches])


def _check_finite(step: int, *values: float) -> None:
    if not all(math.isfinite(value) for value in values):
        raise EngineError(
            f"In step {step} the loss stopped being a number: training went astray.",
            "Start again with a lower learning rate, a third of this one for a start.",
        )


def _preference(sums: np.ndarray, totals: Totals) -> Preference | None:
    """The means over pairs, or None where there are none."""
    return Preference(*(sums / totals.pairs).tolist()) if totals.pairs else None
