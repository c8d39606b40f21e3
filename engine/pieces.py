"""Segments walked in pieces: a layer's backward in three steps, the token-wise ones tile by tile.

The inputs of a segment's layers are computed again from its boundary; then, last layer first: queries, keys and
values; attention; the gradient of the layer's last piece; of attention; of its first piece. Only one layer's
arrays live, and of the wide ones (the MLP's) only a tile, so the peak hardly grows with the segment.
"""

from __future__ import annotations

from engine import attention
from engine.backend import compute_next, compute_now, mx
from engine.walk import Parameter, Walk


class Pieces:
    """`tile` tokens at a time; with `keep_attention` what attention gave in the forward is kept for the backward."""

    def __init__(self, walk: Walk, tile: int, keep_attention: bool) -> None:
        self._walk, self._tile, self._keep = walk, tile, keep_attention
        self._attended: dict[int, tuple[mx.array, mx.array]] = {}

    def forward(self, layers: range, hidden: mx.array) -> mx.array:
        """The segment's output; keys and values that later layers use stay in the walk's donors."""
        for index in layers:
            hidden = self._layer(index, hidden)
        return hidden

    def backward(self, layers: range, start: mx.array, slope: mx.array) -> mx.array:
        """Files the segment's gradients and returns the one at its boundary."""
        inputs = [start]
        del start
        for index in layers[:-1]:
            inputs.append(self._layer(index, inputs[-1]))
        for index in reversed(layers):
            hidden = inputs.pop()
            if index < self._walk.first_trained:
                break
            slope = self._layer_backward(index, hidden, slope)
        return slope

    def _layer(self, index: int, hidden: mx.array) -> mx.array:
        mixed, sums = self._attended.get(index) or self._attend(index, *self._projected(index, hidden))
        if self._keep and index >= self._walk.first_trained:
            self._attended[index] = mixed, sums
        tiles = [
            self._next(self._walk.finish(index, hidden[:, tile], mixed[:, :, tile], tile.start))
            for tile in self._tiles(hidden)
        ]
        return _joined([out for (out,) in tiles])

    def _projected(self, index: int, hidden: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """Queries of the layer, keys and values of its donor."""
        walk = self._walk
        tiles = [self._next(*walk.project(index, hidden[:, tile], tile.start)) for tile in self._tiles(hidden)]
        queries, *own = (_joined(list(parts), axis=2) for parts in zip(*tiles, strict=True))
        if own and walk.is_shared(index):
            walk.donors[index] = (own[0], own[1])
        keys, values = own or walk.donors[walk.stack.donor(index)]
        return queries, keys, values

    def _attend(self, index: int, queries: mx.array, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        mixed, sums = attention.forward(queries, keys, values, self._walk.sight(index))
        compute_now(mixed, sums)
        return mixed, sums

    def _layer_backward(self, index: int, hidden: mx.array, slope: mx.array) -> mx.array:
        walk = self._walk
        queries, keys, values = self._projected(index, hidden)
        if index not in self._attended:
            self._attended[index] = self._attend(index, queries, keys, values)
        mixed, sums = self._attended.pop(index)
        slope, of_mixed = self._finish_backward(index, hidden, mixed, slope)
        inner = attention.inner_product(of_mixed, mixed)
        compute_now(inner)
        del mixed
        of_queries, of_keys, of_values = attention.backward(
            queries, keys, values, sums, inner, of_mixed, walk.sight(index)
        )
        compute_now(of_queries, of_keys, of_values)
        del queries, keys, values, sums, inner, of_mixed
        donor = walk.stack.donor(index)
        if donor != index:
            walk.send_back(donor, (of_keys, of_values))
            return self._project_backward(index, hidden, slope, [of_queries])
        if index in walk.donor_slopes:
            walk.send_back(index, (of_keys, of_values))
            of_keys, of_values = walk.donor_slopes.pop(index)
        walk.donors.pop(index, None)
        return self._project_backward(index, hidden, slope, [of_queries, of_keys, of_values])

    def _finish_backward(
        self, index: int, hidden: mx.array, mixed: mx.array, slope: mx.array
    ) -> tuple[mx.array, mx.array]:
        """The gradients at the layer's input, by this piece alone, and at what attention gave."""
        walk = self._walk
        parameters = walk.parameters([index], lambda is_projection: not is_projection)
        of_hidden, of_mixed, total = [], [], _Sum(parameters)
        for tile in self._tiles(hidden):

            def piece(hidden: mx.array, mixed: mx.array, *traced: mx.array, start: int = tile.start) -> mx.array:
                with walk.replaced(parameters, traced):
                    return walk.finish(index, hidden, mixed, start)

            inputs = [hidden[:, tile], mixed[:, :, tile], *total.values]
            _, (below, beside, *slopes) = mx.vjp(piece, inputs, [slope[:, tile]])
            total.add(slopes)
            # The widest of a layer's tiles: two at a time would be the step's peak.
            compute_now(below, beside, *total.slopes)
            of_hidden.append(below)
            of_mixed.append(beside)
        walk.file(parameters, total.slopes)
        return _joined(of_hidden), _joined(of_mixed, axis=2)

    def _project_backward(self, index: int, hidden: mx.array, slope: mx.array, outer: list[mx.array]) -> mx.array:
        """`slope`, the gradient at the layer's input that is known so far, with that of this piece added."""
        walk = self._walk
        parameters = walk.parameters([index], lambda is_projection: is_projection)
        below, total = [], _Sum(parameters)
        for tile in self._tiles(hidden):

            def piece(hidden: mx.array, *traced: mx.array, start: int = tile.start) -> list[mx.array]:
                with walk.replaced(parameters, traced):
                    return list(walk.project(index, hidden, start))

            slopes_above = [array[:, :, tile] for array in outer]
            _, (of_hidden, *slopes) = mx.vjp(piece, [hidden[:, tile], *total.values], slopes_above)
            total.add(slopes)
            below.append(slope[:, tile] + of_hidden)
            compute_next(below[-1], *total.slopes)
        walk.file(parameters, total.slopes)
        return _joined(below)

    @staticmethod
    def _next(*tile: mx.array) -> tuple[mx.array, ...]:
        """A tile's arrays, on their way before the next tile is begun."""
        compute_next(*tile)
        return tile

    def _tiles(self, hidden: mx.array) -> list[slice]:
        length = hidden.shape[1]
        return [slice(start, min(start + self._tile, length)) for start in range(0, length, self._tile)]


class _Sum:
    """Gradients of parameters, added up over tiles."""

    def __init__(self, parameters: list[Parameter]) -> None:
        self.values = [value for _, _, value in parameters]
        self.slopes: list[mx.array] = []

    def add(self, slopes: list[mx.array]) -> None:
        self.slopes = [a + b for a, b in zip(self.slopes, slopes, strict=True)] if self.slopes else slopes


def _joined(tiles: list[mx.array], axis: int = 1) -> mx.array:
    joined = tiles[0] if len(tiles) == 1 else mx.concatenate(tiles, axis=axis)
    compute_now(joined)
    return joined
