"""Segments walked whole: one `mx.vjp` over a segment's layers. Fastest; its peak grows with the segment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from engine.backend import compute_now, mx
from engine.walk import KeysValues, Walk


class WholeSegments:
    """Forward without recording; backward by recording the segment again from its boundary."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk

    def forward(self, layers: range, hidden: mx.array) -> mx.array:
        """The segment's output; keys and values that later segments use stay in the walk's donors."""
        walk = self._walk
        shared = dict(walk.donors)
        hidden = walk.run(layers, hidden, shared)
        walk.donors = {index: pair for index, pair in shared.items() if walk.is_shared(index)}
        mx.eval(hidden, list(walk.donors.values()))
        return hidden

    def backward(self, layers: range, start: mx.array, slope: mx.array) -> mx.array:
        """Files the segment's gradients and returns the one at its boundary."""
        walk, record = self._walk, _Record(self._walk, layers)
        made = [index for index in layers if index in walk.donor_slopes]

        def segment(hidden: mx.array, *arrays: mx.array) -> list[mx.array]:
            output, shared = record.run(hidden, arrays)
            return [output, *(array for index in made for array in shared[index])]

        slopes = [slope, *(array for index in made for array in walk.donor_slopes.pop(index))]
        found = record.gradients(segment, start, slopes)
        for index in layers:
            walk.donors.pop(index, None)
        return record.file(found, slope)

    def top(
        self, layers: range, start: mx.array, head: Callable[[mx.array], mx.array], settle: Callable[[mx.array], None]
    ) -> mx.array:
        """Forward, head and backward of the last layers in one graph: their activations are kept, not recomputed.

        `head` gives the gradient at the last hidden state, unevaluated. The graph is recorded whole, then evaluated
        in order: `settle(output)` evaluates the output and what the head is made of, then come the gradients.
        What the backward does not need is free as soon as the forward is done.
        """
        record = _Record(self._walk, layers)
        output = start

        def surrogate(hidden: mx.array, *arrays: mx.array) -> list[mx.array]:
            """A number whose gradient at the last hidden state is the head's; it is never computed itself."""
            nonlocal output
            output, _ = record.run(hidden, arrays)
            return [(output * mx.stop_gradient(head(mx.stop_gradient(output)))).sum()]

        found = record.gradients(surrogate, start, [mx.array(1.0, start.dtype)])
        settle(output)
        return record.file(found, start)


class _Record:
    """A segment as a function of arrays: keys and values from donors below it, and its own parameters."""

    def __init__(self, walk: Walk, layers: range) -> None:
        self._walk, self._layers = walk, layers
        self._is_lowest = layers.start <= walk.first_trained
        self._used = sorted({walk.stack.donor(index) for index in layers} - set(layers))
        self._parameters = walk.parameters(layers)
        self.inputs = [array for index in self._used for array in walk.donors[index]]
        self.inputs += [value for _, _, value in self._parameters]

    def run(self, hidden: mx.array, arrays: Sequence[mx.array]) -> tuple[mx.array, dict[int, KeysValues]]:
        """The segment's output, and keys and values by layer, with `arrays` in place of `inputs`."""
        shared = {index: (arrays[2 * n], arrays[2 * n + 1]) for n, index in enumerate(self._used)}
        with self._walk.replaced(self._parameters, arrays[2 * len(self._used) :]):
            return self._walk.run(self._layers, hidden, shared), shared

    def gradients(
        self, function: Callable[..., list[mx.array]], start: mx.array, slopes: list[mx.array]
    ) -> list[mx.array]:
        """The gradients of `function` at `inputs`, and last at its input where something below is trained.

        They are not evaluated. Without the last, layers below the lowest trained one keep nothing for a backward that
        never comes.
        """
        if self._is_lowest:
            return mx.vjp(partial(function, start), self.inputs, slopes)[1]
        below, *rest = mx.vjp(function, [start, *self.inputs], slopes)[1]
        return [*rest, below]

    def file(self, found: list[mx.array], otherwise: mx.array) -> mx.array:
        """Evaluates and files `found`; returns the one at the segment's input, or `otherwise` where there is none.

        That one is evaluated last, as it was where peaks were measured.
        """
        compute_now(*found)
        for n, index in enumerate(self._used):
            self._walk.send_back(index, (found[2 * n], found[2 * n + 1]))
        self._walk.file(self._parameters, found[2 * len(self._used) : len(self.inputs)])
        return otherwise if self._is_lowest else found[-1]
