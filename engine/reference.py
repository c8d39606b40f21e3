"""DPO's reference: what the model thought of the same targets before training."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from engine.backend import mx
from engine.data.batch import Batch
from engine.data.tokenize import Item, Pair
from engine.models.adapter import without_adapter
from engine.models.stack import Stack
from engine.segmented import Plan, score

from mlx.utils import tree_map


class Reference:
    """log p of a batch's targets under the model as it was, computed once for each row and kept: 4 bytes a target.

    That is the model without its adapter; where an adapter is `continued`, the model with the adapter as it came.
    """

    def __init__(self, stack: Stack, plan: Plan, continued: bool) -> None:
        self._stack, self._plan = stack, plan
        self._known: dict[bytes, npt.NDArray[np.float32]] = {}
        parameters = stack.model.trainable_parameters()
        self._start = tree_map(mx.array, parameters) if continued else None

    def __call__(self, batch: Batch, items: Sequence[Item]) -> mx.array:
        """float32 [targets], in the batch's order. No gradients, no dropout."""
        rows = [batch.kinds.rows == row for row in range(len(items))]
        keys = [_key(item) for item in items]
        if any(key not in self._known for key in keys):
            with self._before():
                values = np.array(score(self._stack, batch, self._plan))
            self._known.update({key: values[own] for key, own in zip(keys, rows, strict=True)})
        reference = np.empty(len(batch.targets), np.float32)
        for key, own in zip(keys, rows, strict=True):
            reference[own] = self._known[key]
        return mx.array(reference)

    @contextmanager
    def _before(self) -> Iterator[None]:
        model = self._stack.model
        if self._start is None:
            with without_adapter(model):
                yield
            return
        now, training = model.trainable_parameters(), model.training
        model.update(self._start)
        model.eval()
        try:
            yield
        finally:
            model.update(now)
            model.train(training)


def _key(item: Item) -> bytes:
    """The same for rows of the same tokens and targets: an item is made anew whenever a run comes by its row."""
    digest = hashlib.blake2b(digest_size=16)
    for side in (item.chosen, item.rejected) if isinstance(item, Pair) else (item,):
        digest.update(len(side.ids).to_bytes(8) + side.ids.tobytes() + side.trained.tobytes())
    return digest.digest()
