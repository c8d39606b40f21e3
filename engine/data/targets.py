"""Which row, and which part of it, each target of a batch belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt


class Part(IntEnum):
    """A row's answer is its CHOSEN part; REJECTED and PROMPT are a pair's."""

    PROMPT = 0
    CHOSEN = 1
    REJECTED = 2


@dataclass(frozen=True, eq=False)
class Targets:
    """For each target its Part, int8 [targets], and its row within the batch, int32 [targets], from 0 on."""

    parts: npt.NDArray[np.int8]
    rows: npt.NDArray[np.int32]

    def of_row(self, row: int) -> Targets:
        """One row's targets, as a batch of their own."""
        own = self.rows == row
        return Targets(self.parts[own], np.zeros(int(own.sum()), np.int32))
