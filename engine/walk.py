"""One batch on its way through the model: what whole segments and pieces of layers have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from engine.attention import Sight, attend
from engine.backend import mx
from engine.data.batch import Batch
from engine.models.stack import PROJECTIONS, Positions, Stack

from mlx.utils import tree_flatten, tree_unflatten

Gradients = dict[str, mx.array]
KeysValues = tuple[mx.array, mx.array]
# A trainable parameter: its layer, its name within the layer, its value.
Parameter = tuple[int, str, mx.array]


class Walk:
    """The batch's constants, the keys and values that layers share, and the gradients found so far.

    `donors` holds keys and values that later layers use too, `donor_slopes` the gradients that those layers
    have sent back to them. `seed` decides the dropout: a layer's piece draws the same in its forward and when it is
    computed again.
    """

    def __init__(self, stack: Stack, batch: Batch, seed: int) -> None:
        self.stack = stack
        self.gradients: Gradients = {}
        self.donors: dict[int, KeysValues] = {}
        self.donor_slopes: dict[int, KeysValues] = {}
        self._forests = batch.forests
        self._seed = seed
        plain = all(forest.is_plain for forest in batch.forests)
        self._positions = None if plain else mx.array(batch.positions)
        self._parameters = [
            (index, name, value)
            for index, layer in enumerate(stack.layers)
            for name, value in tree_flatten(layer.trainable_parameters())
        ]
        # The lowest layer with something to train: no gradient is needed below it.
        self.first_trained = min((index for index, _, _ in self._parameters), default=len(stack.layers))
        self._users = {stack.donor(index): index for index in range(len(stack.layers))}  # the last user of each
        ids = mx.array(batch.ids)
        start = stack.embed(ids)
        self._extras = stack.extras(ids, start)
        mx.eval(start, *([] if self._extras is None else [self._extras]))
        self._start, self._dtype = [start], start.dtype

    def __enter__(self) -> Walk:
        """Has the adapter compute in the model's own dtype: its float32 would make float32 copies of wide arrays."""
        self._put(self._parameters, self._lowered(self._parameters))
        return self

    def __exit__(self, *_: object) -> None:
        self._put(self._parameters, [value for _, _, value in self._parameters])

    def take_start(self) -> mx.array:
        """The first layer's input; the walk doesn't hold it any longer."""
        return self._start.pop()

    def is_shared(self, index: int) -> bool:
        """Whether layers above `index` use its keys and values."""
        return self._users.get(index, index) > index

    def sight(self, index: int) -> Sight:
        scale, window = self.stack.sight(index)
        return Sight(scale, window, self._forests)

    def project(self, index: int, hidden: mx.array, start: int = 0) -> tuple[mx.array, ...]:
        """The layer's first piece over a tile that begins at token `start`."""
        self._draw_as(index, 0, start)
        positions: Positions = start
        if self._positions is not None:
            positions = self._positions[:, start : start + hidden.shape[1]]
        return self.stack.project(index, hidden, positions)

    def finish(self, index: int, hidden: mx.array, mixed: mx.array, start: int = 0) -> mx.array:
        """The layer's last piece over a tile that begins at token `start`."""
        self._draw_as(index, 1, start)
        extra = None if self._extras is None else self._extras[:, start : start + hidden.shape[1], index]
        return self.stack.finish(index, hidden, mixed, extra)

    def run(self, layers: range, hidden: mx.array, shared: dict[int, KeysValues]) -> mx.array:
        """Whole layers, one after the other. Takes keys and values of donors from `shared` and adds its own."""
        for index in layers:
            queries, *own = self.project(index, hidden)
            if own:
                shared[index] = (own[0], own[1])
            mixed = attend(queries, *shared[self.stack.donor(index)], self.sight(index))
            if not self.is_shared(index):
                shared.pop(index, None)
            hidden = self.finish(index, hidden, mixed)
        return hidden

    def parameters(self, layers: Sequence[int], wanted: Callable[[bool], bool] = lambda first: True) -> list[Parameter]:
        """The layers' trainable parameters in one fixed order; `wanted` chooses by whether they are in `project`."""
        return [
            (index, name, value)
            for index, name, value in self._parameters
            if index in layers and wanted(not PROJECTIONS.isdisjoint(name.split(".")))
        ]

    @contextmanager
    def replaced(self, parameters: list[Parameter], traced: Sequence[mx.array]) -> Iterator[None]:
        """The model with `traced` in place of its own parameters while a graph is recorded."""
        self._put(parameters, self._lowered(parameters, traced))
        try:
            yield
        finally:
            self._put(parameters, self._lowered(parameters))

    def file(self, parameters: list[Parameter], slopes: Sequence[mx.array]) -> None:
        """Keeps gradients under the names that `trainable_parameters` gives the whole model's."""
        for (index, name, _), slope in zip(parameters, slopes, strict=True):
            self.gradients[f"{self.stack.path}.layers.{index}.{name}"] = slope

    def send_back(self, donor: int, slopes: KeysValues) -> None:
        """Adds to the gradient at a donor's keys and values, until the donor's own turn comes."""
        earlier = self.donor_slopes.get(donor)
        added = slopes if earlier is None else (earlier[0] + slopes[0], earlier[1] + slopes[1])
        mx.eval(added)
        self.donor_slopes[donor] = added

    def _lowered(self, parameters: list[Parameter], values: Sequence[mx.array] | None = None) -> list[mx.array]:
        """The parameters, or `values` for them, in the model's dtype; not DoRA's m, which scales whole outputs."""
        values = [value for _, _, value in parameters] if values is None else values
        return [
            value.astype(self._dtype) if name.endswith(("lora_a", "lora_b")) else value
            for (_, name, _), value in zip(parameters, values, strict=True)
        ]

    def _put(self, parameters: list[Parameter], values: Sequence[mx.array]) -> None:
        by_layer: dict[int, list[tuple[str, mx.array]]] = {}
        for (index, name, _), value in zip(parameters, values, strict=True):
            by_layer.setdefault(index, []).append((name, value))
        for index, named in by_layer.items():
            layer: Any = self.stack.layers[index]
            layer.update(tree_unflatten(named))

    def _draw_as(self, index: int, piece: int, start: int) -> None:
        # MLX draws dropout from one global state; set by layer, piece and tile, it comes out the same again.
        mx.random.seed((((self._seed * 8191 + index) * 2 + piece) * 1_000_003 + start) % 2**63)
