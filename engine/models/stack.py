"""A model as segmented backward walks it: embedding, decoder layers in pieces, final norm, head.

A layer is three pieces: `project` (norm, queries, keys and values, RoPE), attention, `finish` (output
projection, MLP and the rest). All but attention is token-wise, so it can run tile by tile. A family is a
subclass over mlx-lm's modules that says how it differs.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from engine.backend import mx, nn
from engine.heads import Head

# Where a tile's tokens stand: one offset where they follow each other, or a position a token [batch, length].
Positions = int | mx.array

# Linear layers that belong to the first piece; all others belong to the last.
PROJECTIONS = frozenset({"q_proj", "k_proj", "v_proj", "qkv_proj"})


class Stack:
    """Hidden states are [batch, length, hidden]; queries, keys and values [batch, heads, length, dim]."""

    # Where mlx-lm's model keeps its layers.
    path = "model"

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        owner: Any = model
        *outer, last = self.path.split(".")
        for name in outer:
            owner = owner[name]
        # The model with logits (mlx-lm's Model) and, inside it, the one with layers.
        self.text_model: Any = owner
        self.inner: Any = owner[last]

    @property
    def layers(self) -> list[Any]:
        return list(self.inner.layers)

    def embed(self, ids: mx.array) -> mx.array:
        """Token ids [batch, length] to the first layer's input."""
        hidden: mx.array = self.inner.embed_tokens(ids)
        return hidden

    def extras(self, ids: mx.array, hidden: mx.array) -> mx.array | None:
        """What every layer is given besides the hidden state, [batch, length, layers, width]; most give nothing."""
        return None

    def donor(self, index: int) -> int:
        """The layer whose keys and values layer `index` uses: its own, but for layers that share another's."""
        return index

    def sight(self, index: int) -> tuple[float, int | None]:
        """The scale of layer `index`'s scores, and its window in tokens."""
        raise NotImplementedError

    def project(self, index: int, hidden: mx.array, positions: Positions) -> tuple[mx.array, ...]:
        """Queries, keys and values of layer `index`; queries alone where another layer is its donor."""
        raise NotImplementedError

    def finish(self, index: int, hidden: mx.array, mixed: mx.array, extra: mx.array | None) -> mx.array:
        """Layer `index`'s output from its input, what attention mixed, and its own part of `extras`."""
        raise NotImplementedError

    def norm(self, hidden: mx.array) -> mx.array:
        """The final norm, before the head."""
        normed: mx.array = self.inner.norm(hidden)
        return normed

    @cached_property
    def head(self) -> Head:
        """The way from normed hidden states to logits; the embedding where they are tied."""
        return Head(self.output_layer)

    @property
    def output_layer(self) -> nn.Module:
        """The module whose weight makes logits."""
        layer: nn.Module = self.text_model.get("lm_head", self.inner.embed_tokens)
        return layer


def split_heads(projected: mx.array, heads: int) -> mx.array:
    """[batch, length, heads * dim] as [batch, heads, length, dim]."""
    batch, length, _ = projected.shape
    return projected.reshape(batch, length, heads, -1).transpose(0, 2, 1, 3)


def merge_heads(mixed: mx.array) -> mx.array:
    """[batch, heads, length, dim] as [batch, length, heads * dim]."""
    batch, _, length, _ = mixed.shape
    return mixed.transpose(0, 2, 1, 3).reshape(batch, length, -1)


def rotate(rope: Any, heads: mx.array, positions: Positions) -> mx.array:
    """RoPE at the tokens' positions, by the model's own module.

    It takes one offset for each row of a batch: where tokens don't simply follow each other, every token is
    a row.
    """
    if isinstance(positions, int):
        rotated: mx.array = rope(heads, offset=positions)
        return rotated
    batch, count, length, dim = heads.shape
    tokens = heads.transpose(0, 2, 1, 3).reshape(batch * length, count, 1, dim)
    rotated = rope(tokens, offset=positions.reshape(-1))
    return rotated.reshape(batch, length, count, dim).transpose(0, 2, 1, 3)
