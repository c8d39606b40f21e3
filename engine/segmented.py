"""Segmented backward: gradients as from one value_and_grad, with only one segment's activations alive.

Forward: each segment of `segment_size` layers runs without recording; the hidden state at its start is kept. Then the
head: the objective's loss and its gradient at the last hidden state. Then, last segment first, each one goes backward
from its boundary with the gradient from above, whole or in pieces. The top layers can keep their activations: they
run forward, head and backward as one graph, and nothing of them is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from engine.backend import compute_now, mx
from engine.data.batch import Batch
from engine.heads import HeadPlan, choose_head, log_probabilities, unit_gradients
from engine.memory import PhaseMeter
from engine.models.stack import Stack
from engine.objectives import Outcome
from engine.pieces import Pieces
from engine.walk import Gradients, Walk
from engine.whole import WholeSegments

# From log p of a batch's targets to the loss and its slopes; nothing is evaluated.
Loss = Callable[[mx.array], Outcome]


@dataclass(frozen=True)
class Plan:
    """How a step is walked.

    `segment_size` layers make a segment, 0: all of them. The top `kept` layers keep their activations. The others go
    backward in pieces of `tile` tokens, or whole where `tile` is 0; pieces can keep what attention gave.
    """

    segment_size: int
    kept: int
    tile: int = 0
    keep_attention: bool = False
    head: str = "auto"
    head_chunk: int = 256
    head_epsilon: float = 1e-5

    def segments(self, layers: int) -> list[range]:
        """The layers of each segment below the kept ones, first segment first."""
        end = layers - min(self.kept, layers)
        size = self.segment_size or layers
        return [range(start, min(start + size, end)) for start in range(0, end, size)]

    def head_plan(self, stack: Stack, targets: int) -> HeadPlan:
        """How the head goes over so many targets."""
        kind = "fused" if self.head == "auto" and self.kept else self.head
        return choose_head(kind, self.head_chunk, self.head_epsilon, targets, stack.head.vocabulary)


@dataclass(frozen=True)
class Result:
    """What a batch gives: its share of the step's loss, gradients by parameter name, sums over pairs or None."""

    loss: float
    gradients: Gradients
    preference: np.ndarray | None


def loss_and_gradients(stack: Stack, batch: Batch, objective: Loss, plan: Plan, meter: PhaseMeter, seed: int) -> Result:
    """The batch's loss and the gradients of all trainable parameters, named as in `trainable_parameters`.

    `seed` decides the dropout: what is computed again draws the same again.
    """
    top = _Top(stack, batch, objective, plan)
    if top.evaluates:
        plan = replace(plan, kept=0)
    with Walk(stack, batch, seed) as walk:
        _walk(walk, top, plan, meter)
    return Result(top.loss, walk.gradients, top.preference)


def _walk(walk: Walk, top: _Top, plan: Plan, meter: PhaseMeter) -> None:
    """Forward, head and backward; the gradients are left in the walk, the loss in the top."""
    walker = Pieces(walk, plan.tile, plan.keep_attention) if plan.tile else WholeSegments(walk)
    layers = len(walk.stack.layers)
    segments = plan.segments(layers)
    hidden, boundaries = walk.take_start(), dict[int, mx.array]()
    for number, segment in enumerate(segments):
        if segment.stop > walk.first_trained:
            boundaries[number] = hidden
        hidden = walker.forward(segment, hidden)
        meter.end("forward", number)
    if plan.kept:

        def settle(output: mx.array) -> None:
            mx.eval(output)
            meter.end("forward", len(segments))
            top.settle()
            meter.end("head", len(segments))

        kept = range(layers - min(plan.kept, layers), layers)
        slope = WholeSegments(walk).top(kept, hidden, top.slope, settle)
        meter.end("backward", len(segments))
    else:
        slope = top.slope(hidden)
        top.settle()
        mx.eval(slope)
        meter.end("head", len(segments))
    del hidden
    for number in sorted(boundaries, reverse=True):
        slope = walker.backward(segments[number], boundaries.pop(number), slope)
        meter.end("backward", number)


def score(stack: Stack, batch: Batch, plan: Plan) -> mx.array:
    """log p of every target of the batch, float32 [targets] in its order. No gradients."""
    with Walk(stack, batch, seed=0) as walk:
        walker = Pieces(walk, plan.tile or batch.ids.shape[1], keep_attention=False)
        hidden = walker.forward(range(len(stack.layers)), walk.take_start())
    normed = stack.norm(_picked(hidden, batch))
    head = plan.head_plan(stack, len(batch.targets))  # the one that trains: DPO compares the two
    return log_probabilities(stack.head, normed, mx.array(batch.targets), head)


class _Top:
    """The way from the last hidden state to the loss and back; only positions that predict a target take it."""

    def __init__(self, stack: Stack, batch: Batch, objective: Loss, plan: Plan) -> None:
        self._stack, self._batch, self._objective = stack, batch, objective
        self._plan = plan.head_plan(stack, len(batch.targets))
        self._chunks: list[tuple[mx.array, mx.array]] = []
        self._outcome = Outcome(mx.array(0.0), mx.zeros((0,)), None)
        self.loss = 0.0
        self.preference: np.ndarray | None = None

    @property
    def evaluates(self) -> bool:
        """Whether this head computes as it goes, so that it can't be part of a graph that is being recorded."""
        return self._plan.kind == "blocked"

    def slope(self, hidden: mx.array) -> mx.array:
        """The loss's gradient at the last hidden states [batch, length, hidden], for `settle` to evaluate in order."""
        stack = self._stack
        picked = _picked(hidden, self._batch)
        normed = stack.norm(picked)
        self._chunks = unit_gradients(stack.head, normed, mx.array(self._batch.targets), self._plan)
        self._outcome = self._objective(mx.concatenate([log_p for log_p, _ in self._chunks]))
        units = mx.concatenate([unit for _, unit in self._chunks])
        weighted = (units * self._outcome.slopes[:, None]).astype(hidden.dtype)
        _, (slope,) = mx.vjp(stack.norm, [picked], [weighted])
        flat = mx.zeros((hidden.shape[0] * hidden.shape[1], hidden.shape[2]), hidden.dtype)
        # Added, since the end of a shared prompt predicts the first token of both responses.
        return flat.at[mx.array(self._batch.places)].add(slope).reshape(hidden.shape)

    def settle(self) -> None:
        """Evaluates the head chunk by chunk, then what the objective makes of it."""
        for log_p, unit in self._chunks:
            compute_now(log_p, unit)
        self._chunks = []
        mx.eval(self._outcome.loss, self._outcome.slopes)
        self.loss = float(np.array(self._outcome.loss))
        if self._outcome.preference is not None:
            self.preference = np.array(self._outcome.preference, np.float64)


def _picked(hidden: mx.array, batch: Batch) -> mx.array:
    """The hidden states that predict the targets, [targets, hidden]."""
    return hidden.reshape(-1, hidden.shape[-1])[mx.array(batch.places)]
