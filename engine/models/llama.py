"""The Llama family's decoder stack (Llama, Mistral, SmolLM2) over mlx-lm's modules."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from engine.attention import attend
from engine.backend import mx, nn


class LlamaStack:
    """The model as segmented backward walks it: embedding, layers one by one, final norm, head.

    Hidden states are [batch, length, hidden]. Rows are padded on the right, so the causal mask alone keeps
    padding out of every real token's sight.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._inner: Any = model["model"]

    @property
    def layers(self) -> list[nn.Module]:
        return list(self._inner.layers)

    def embed(self, ids: mx.array) -> mx.array:
        """Token ids [batch, length] to the first layer's input."""
        hidden: mx.array = self._inner.embed_tokens(ids)
        return hidden

    def run(self, index: int, hidden: mx.array) -> mx.array:
        """Decoder layer `index`."""
        layer: Any = self._inner.layers[index]
        attention = layer.self_attn
        normed = layer.input_layernorm(hidden)
        queries = attention.rope(_heads(attention.q_proj(normed), attention.n_heads))
        keys = attention.rope(_heads(attention.k_proj(normed), attention.n_kv_heads))
        values = _heads(attention.v_proj(normed), attention.n_kv_heads)
        window = self._inner.sliding_window if layer.use_sliding else None
        mixed = attend(queries, keys, values, attention.scale, window)
        batch, _, length, _ = mixed.shape
        hidden = hidden + attention.o_proj(mixed.transpose(0, 2, 1, 3).reshape(batch, length, -1))
        out: mx.array = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        return out

    def norm(self, hidden: mx.array) -> mx.array:
        """The final norm, before the head."""
        normed: mx.array = self._inner.norm(hidden)
        return normed

    @cached_property
    def head(self) -> nn.Module:
        """The module whose weight turns hidden states into logits; the embedding where they are tied."""
        head: nn.Module = self.model.get("lm_head", self._inner.embed_tokens)
        return head


def _heads(projected: mx.array, heads: int) -> mx.array:
    """[batch, length, heads * dim] as [batch, heads, length, dim]."""
    batch, length, _ = projected.shape
    return projected.reshape(batch, length, heads, -1).transpose(0, 2, 1, 3)
