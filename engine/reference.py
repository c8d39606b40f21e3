"""DPO's reference: what the model without its adapter thinks of the same targets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.backend import mx
from engine.data.batch import Batch
from engine.data.tokenize import Item
from engine.models.adapter import without_adapter
from engine.models.stack import Stack
from engine.segmented import Plan, score


class Reference:
    """log p of a batch's targets under the model as it was, computed once for each row and kept: 4 bytes a target."""

    def __init__(self, stack: Stack, plan: Plan) -> None:
        self._stack, self._plan = stack, plan
        self._known: dict[Item, npt.NDArray[np.float32]] = {}

    def __call__(self, batch: Batch, items: Sequence[Item]) -> mx.array:
        """float32 [targets], in the batch's order. No gradients, no dropout."""
        rows = [batch.kinds.rows == row for row in range(len(items))]
        if any(item not in self._known for item in items):
            with without_adapter(self._stack.model):
                values = np.array(score(self._stack, batch, self._plan))
            self._known.update({item: values[own] for item, own in zip(items, rows, strict=True)})
        reference = np.empty(len(batch.targets), np.float32)
        for item, own in zip(items, rows, strict=True):
            reference[own] = self._known[item]
        return mx.array(reference)
