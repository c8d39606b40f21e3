"""Llama's decoder stack, and those that differ from it in a line or two: Mistral, SmolLM2, SmolLM3, Qwen2, Qwen3."""

from __future__ import annotations

from typing import Any

from engine.backend import mx
from engine.models.stack import Positions, Stack, merge_heads, rotate, split_heads


class LlamaStack(Stack):
    """Also SmolLM3, whose layers without RoPE have a module that does nothing, and Qwen2, whose biases are inside."""

    def sight(self, index: int) -> tuple[float, int | None]:
        layer = self.layers[index]
        sliding = getattr(layer, "use_sliding", False)
        return layer.self_attn.scale, self.inner.sliding_window if sliding else None

    def project(self, index: int, hidden: mx.array, positions: Positions) -> tuple[mx.array, ...]:
        layer = self.layers[index]
        attention = layer.self_attn
        normed = layer.input_layernorm(hidden)
        heads, kv_heads = self.heads(index)
        queries = split_heads(attention.q_proj(normed), heads)
        keys, values = (split_heads(project(normed), kv_heads) for project in (attention.k_proj, attention.v_proj))
        queries, keys = self.normed_heads(attention, queries, keys)
        return rotate(attention.rope, queries, positions), rotate(attention.rope, keys, positions), values

    def heads(self, index: int) -> tuple[int, int]:
        """Query heads, and key and value heads, of layer `index`."""
        attention = self.layers[index].self_attn
        return attention.n_heads, attention.n_kv_heads

    def normed_heads(self, attention: Any, queries: mx.array, keys: mx.array) -> tuple[mx.array, mx.array]:
        """Queries and keys as RoPE takes them."""
        return queries, keys

    def finish(self, index: int, hidden: mx.array, mixed: mx.array, extra: mx.array | None) -> mx.array:
        layer = self.layers[index]
        hidden = hidden + layer.self_attn.o_proj(merge_heads(mixed))
        out: mx.array = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        return out


class Qwen3Stack(LlamaStack):
    """Queries and keys are normed head by head."""

    def normed_heads(self, attention: Any, queries: mx.array, keys: mx.array) -> tuple[mx.array, mx.array]:
        return attention.q_norm(queries), attention.k_norm(keys)
