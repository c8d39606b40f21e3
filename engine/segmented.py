"""Segmented backward: gradients as from one value_and_grad, with only one segment's activations alive.

Forward: each segment of `segment_size` layers runs without recording; the hidden state at its end is kept.
The last segment records, runs the head on its output, and goes straight on into its backward. Then, last
segment first, each one is recomputed from its boundary under `mx.vjp` with the gradient from above. With
one segment, nothing is recomputed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from engine.backend import mx
from engine.data.batch import Batch
from engine.heads import log_probabilities_and_gradients, target_log_probabilities
from engine.memory import PhaseMeter
from engine.models.llama import LlamaStack

from mlx.utils import tree_flatten, tree_unflatten

Gradients = dict[str, mx.array]


@dataclass(frozen=True)
class Plan:
    """How a step is walked: layers a segment (0: all of them) and target tokens a head chunk."""

    segment_size: int
    head_chunk: int

    def segments(self, layers: int) -> list[range]:
        """The layers of each segment, first segment first."""
        size = self.segment_size or layers
        return [range(start, min(start + size, layers)) for start in range(0, layers, size)]


def loss_and_gradients(
    stack: LlamaStack, batch: Batch, total_targets: int, plan: Plan, meter: PhaseMeter, seed: int
) -> tuple[float, Gradients]:
    """Summed loss of the batch's targets, and gradients of that sum over `total_targets`.

    `total_targets` counts the targets of the whole optimizer step, so that the gradients of its batches add
    up to those of the token mean. `seed` decides the dropout: the same whatever the segments are, and the
    same again when a segment is recomputed. Gradients come by parameter name, as in `trainable_parameters`.
    """
    walk = _Walk(stack, batch, total_targets, plan, meter, seed)
    *earlier, last = enumerate(plan.segments(len(stack.layers)))
    hidden = stack.embed(mx.array(batch.inputs))
    mx.eval(hidden)
    boundaries = []
    for number, layers in earlier:
        boundaries.append(hidden)
        hidden = walk.run(layers, hidden)
        mx.eval(hidden)
        meter.end("forward", number)
    loss, slope = walk.last_segment(*last, hidden)
    del hidden
    for number, layers in reversed(earlier):
        slope = walk.backward(number, layers, boundaries.pop(), slope)
    return loss, walk.gradients


def score(stack: LlamaStack, batch: Batch, head_chunk: int) -> np.ndarray:
    """log p of every target of the batch, float32, in the order of `batch.target_rows`. No gradients."""
    hidden = stack.embed(mx.array(batch.inputs))
    for index in range(len(stack.layers)):
        hidden = stack.run(index, hidden)
        mx.eval(hidden)
    picked = hidden.reshape(-1, hidden.shape[-1])[mx.array(batch.target_positions)]
    log_p = target_log_probabilities(stack.head, stack.norm(picked), mx.array(batch.targets), head_chunk)
    return np.array(log_p)


@dataclass
class _Walk:
    """One batch on its way through the model; `gradients` fills up from the last segment to the first."""

    stack: LlamaStack
    batch: Batch
    total_targets: int
    plan: Plan
    meter: PhaseMeter
    seed: int
    gradients: Gradients = field(default_factory=dict)

    def run(self, layers: range, hidden: mx.array) -> mx.array:
        """The segment's layers, one after the other."""
        for index in layers:
            # MLX draws dropout from one global state; set by layer, it does not depend on the segments.
            mx.random.seed(self.seed * 1_000_003 + index)
            hidden = self.stack.run(index, hidden)
        return hidden

    def last_segment(self, number: int, layers: range, start: mx.array) -> tuple[float, mx.array]:
        """Forward, head and backward in one graph: these activations are kept, not recomputed.

        The graph is recorded whole, then evaluated in order: the output, the head chunk by chunk, the
        gradients. What the backward does not need is free as soon as the forward is done.
        """
        names, values = self._trainable(layers)
        output, chunks = start, list[tuple[mx.array, mx.array]]()

        def surrogate(hidden: mx.array, *parameters: mx.array) -> mx.array:
            """A number whose gradient at the last hidden state is the head's; it is never computed itself."""
            nonlocal output, chunks
            with self._parameters(names, values, parameters):
                output = self.run(layers, hidden)
            slope, chunks = self._head(mx.stop_gradient(output))
            return (output * mx.stop_gradient(slope)).sum()

        _, slopes = mx.vjp(surrogate, [start, *values], [mx.array(1.0, start.dtype)])
        mx.eval(output)
        self.meter.end("forward", number)
        loss = 0.0
        for log_p, slope in chunks:
            mx.eval(log_p, slope)
            loss -= float(np.array(log_p).sum(dtype=np.float64))
        chunks.clear()
        self.meter.end("head", number)
        return loss, self._collect(number, slopes, names, layers)

    def backward(self, number: int, layers: range, start: mx.array, slope: mx.array) -> mx.array:
        """Recomputes a segment from its boundary, files its gradients, returns the one at the boundary."""
        names, values = self._trainable(layers)

        def segment(hidden: mx.array, *parameters: mx.array) -> mx.array:
            with self._parameters(names, values, parameters):
                return self.run(layers, hidden)

        _, slopes = mx.vjp(segment, [start, *values], [slope])
        return self._collect(number, slopes, names, layers)

    def _head(self, hidden: mx.array) -> tuple[mx.array, list[tuple[mx.array, mx.array]]]:
        """The mean loss's gradient at the hidden states [batch, length, hidden], and the chunks it is made of.

        Only the positions that predict a target go through the norm and the head.
        """
        flat = hidden.reshape(-1, hidden.shape[-1])
        positions = mx.array(self.batch.target_positions)
        picked, targets = flat[positions], mx.array(self.batch.targets)
        weights = mx.full(targets.shape, -1.0 / self.total_targets)
        chunks = log_probabilities_and_gradients(
            self.stack.head, self.stack.norm(picked), targets, weights, self.plan.head_chunk
        )
        _, (slope,) = mx.vjp(self.stack.norm, [picked], [mx.concatenate([slope for _, slope in chunks])])
        whole = mx.zeros_like(flat)
        whole[positions] = slope
        return whole.reshape(hidden.shape), chunks

    def _collect(self, number: int, slopes: list[mx.array], names: list[str], layers: range) -> mx.array:
        """Evaluates a segment's gradients and files them by name. Returns the one at the segment's input.

        The first segment's input is the embedding, which is not trained: its gradient stays unevaluated.
        """
        below, *of_parameters = slopes
        mx.eval(of_parameters, *([below] if layers.start else []))
        self.gradients.update(zip(names, of_parameters, strict=True))
        self.meter.end("backward", number)
        return below

    def _trainable(self, layers: range) -> tuple[list[str], list[mx.array]]:
        """Names and values of the layers' trainable parameters, in one fixed order."""
        named = [
            (f"model.layers.{index}.{name}", value)
            for index in layers
            for name, value in tree_flatten(self.stack.layers[index].trainable_parameters())
        ]
        return [name for name, _ in named], [value for _, value in named]

    @contextmanager
    def _parameters(self, names: list[str], values: list[mx.array], traced: Sequence[mx.array]) -> Iterator[None]:
        """The model with `traced` in place of its own parameters while a graph is recorded."""
        self.stack.model.update(tree_unflatten(list(zip(names, traced, strict=True))))
        try:
            yield
        finally:
            self.stack.model.update(tree_unflatten(list(zip(names, values, strict=True))))
