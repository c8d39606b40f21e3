"""Rows into batches: packed one after another or padded side by side, shuffled by epoch, none left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.config import TrainConfig
from engine.data.targets import Part, Targets
from engine.data.tokenize import Example, Item, Pair
from engine.spans import Forest, Ints, plain


@dataclass(frozen=True)
class Layout:
    """How rows become sequences. None of it changes a result.

    `pack`: all rows of a batch in one sequence. `share`: a pair's prompt once for both responses.
    `prompts`: prompts of chosen rows, up to the first answer, are targets too (ORPO's full scope).
    """

    pack: bool = True
    share: bool = True
    prompts: bool = False


def layout_of(config: TrainConfig) -> Layout:
    """How a run lays its rows out."""
    prompts = config.objective == "orpo" and config.sft_scope == "full"
    return Layout(config.pack, config.prefix_shared, prompts)


@dataclass(frozen=True)
class Batch:
    """Sequences of packed spans. A target is a token to learn that a token before it predicts; padding never is.

    `ids` is int32 [sequences, length], `forests` lays out each sequence. `places` index the flattened ids: the
    token that predicts each of `targets`, which are token ids. `kinds` says which row and part each belongs to.
    """

    ids: Ints
    forests: tuple[Forest, ...]
    targets: Ints
    places: Ints
    kinds: Targets
    tokens: int  # that are computed, padding not counted

    @property
    def positions(self) -> Ints:
        """Logical position of every token, [sequences, length]."""
        return np.stack([forest.positions for forest in self.forests])


def make_batch(items: Sequence[Item], layout: Layout = Layout()) -> Batch:
    """Lays rows and pairs out. A pair whose prompts differ becomes two spans of their own, by itself."""
    sequences: list[_Sequence] = [_Sequence()] if layout.pack else []

    def sequence() -> _Sequence:
        if not layout.pack:
            sequences.append(_Sequence())
        return sequences[-1]

    for row, item in enumerate(items):
        match item:
            case Example():
                sequence().add(row, [(item, Part.CHOSEN)], shared=0)
            case Pair() if layout.share and item.shared:
                both = [(item.chosen, Part.CHOSEN), (item.rejected, Part.REJECTED)]
                sequence().add(row, both, item.shared, layout.prompts)
            case Pair():
                sequence().add(row, [(item.chosen, Part.CHOSEN)], 0, layout.prompts)
                sequence().add(row, [(item.rejected, Part.REJECTED)], 0)
    return _joined(sequences)


def batches_of(items: Sequence[Item], size: int, layout: Layout) -> list[tuple[Sequence[Item], Batch]]:
    """`items` in their order, `size` at a time, each with the batch that they make."""
    parts = [items[start : start + size] for start in range(0, len(items), size)]
    return [(part, make_batch(part, layout)) for part in parts]


def row_order(rows: int, seed: int) -> Iterator[int]:
    """Row numbers without end: every row once an epoch, each epoch in an order of its own."""
    epoch = 0
    while True:
        yield from np.random.default_rng((seed, epoch)).permutation(rows).tolist()
        epoch += 1


class _Sequence:
    """A packed sequence in the making."""

    def __init__(self) -> None:
        self.ids: list[Ints] = []
        self.positions: list[Ints] = []
        self.until: list[Ints] = []
        self.targets: list[tuple[Ints, npt.NDArray[np.intp], int, Part]] = []
        self.length = 0

    def add(self, row: int, sides: list[tuple[Example, Part]], shared: int, prompts: bool = False) -> None:
        """Adds a tree: the first `shared` tokens once, below them what each side goes on with.

        The last token of a side predicts nothing and is left out.
        """
        start = self.length
        first = sides[0][0]
        self._span(first.ids[:shared], 0)
        for example, part in sides:
            own = self.length
            self._span(example.ids[shared:-1], shared)
            # Where token i stands as input: in the shared prompt, or in the side's own span.
            places = np.concatenate([np.arange(start, start + shared), np.arange(own, self.length)])
            targets = np.flatnonzero(example.trained)
            if prompts and part is Part.CHOSEN:
                before = np.arange(1, int(example.trained.argmax()))
                self.targets.append((example.ids[before], places[before - 1], row, Part.PROMPT))
            self.targets.append((example.ids[targets], places[targets - 1], row, part))
        if shared:
            # The root's descendants end here; `_span` could not know yet.
            self.until[-1 - len(sides)][:] = self.length

    def _span(self, ids: Ints, position: int) -> None:
        length = len(ids)
        self.length += length
        self.ids.append(ids)
        self.positions.append(np.arange(position, position + length, dtype=np.int32))
        self.until.append(np.full(length, self.length, np.int32))

    def padded(self, length: int) -> tuple[Ints, Forest]:
        """Ids and layout, with zeros behind, in a span of their own that nothing else sees."""
        if len(self.ids) == 2 and self.length < length:
            # A single row: the padding goes on where it ends, so that plain rows stay plain.
            return np.pad(np.concatenate(self.ids), (0, length - self.length)), plain(length)
        self._span(np.zeros(length - self.length, np.int32), 0)
        forest = Forest(np.concatenate(self.positions), np.concatenate(self.until))
        return np.concatenate(self.ids), plain(length) if forest.is_plain else forest


def _joined(sequences: list[_Sequence]) -> Batch:
    length = max(sequence.length for sequence in sequences)
    tokens = sum(sequence.length for sequence in sequences)
    targets = [
        (ids, places + number * length, np.full(len(ids), row), np.full(len(ids), part))
        for number, sequence in enumerate(sequences)
        for ids, places, row, part in sequence.targets
    ]
    ids, places, rows, parts = (np.concatenate(side) for side in zip(*targets, strict=True))
    laid = [sequence.padded(length) for sequence in sequences]
    return Batch(
        ids=np.stack([row for row, _ in laid]),
        forests=tuple(forest for _, forest in laid),
        targets=ids.astype(np.int32),
        places=places.astype(np.int32),
        kinds=Targets(parts.astype(np.int8), rows.astype(np.int32)),
        tokens=tokens,
    )
