"""Phi-3's decoder stack: queries, keys and values from one linear layer, RoPE on a part of each head."""

from __future__ import annotations

from engine.backend import mx
from engine.models.llama import LlamaStack
from engine.models.stack import Positions, rotate, split_heads


class Phi3Stack(LlamaStack):
    """The fused MLP is inside mlx-lm's module."""

    def project(self, index: int, hidden: mx.array, positions: Positions) -> tuple[mx.array, ...]:
        layer = self.layers[index]
        attention = layer.self_attn
        heads = split_heads(
            attention.qkv_proj(layer.input_layernorm(hidden)), attention.n_heads + 2 * attention.n_kv_heads
        )
        queries, keys, values = mx.split(heads, [attention.n_heads, attention.n_heads + attention.n_kv_heads], axis=1)
        return rotate(attention.rope, queries, positions), rotate(attention.rope, keys, positions), values
