"""MiniCPM's decoder stack: Llama with scaled embeddings, residuals and logits."""

from __future__ import annotations

from functools import cached_property

from engine.backend import mx
from engine.heads import Head
from engine.models.llama import LlamaStack
from engine.models.stack import merge_heads


class MiniCPMStack(LlamaStack):
    """MiniCPM and MiniCPM 2; later ones are Llamas."""

    def heads(self, index: int) -> tuple[int, int]:
        attention = self.layers[index].self_attn
        return attention.num_heads, attention.num_key_value_heads

    def embed(self, ids: mx.array) -> mx.array:
        hidden: mx.array = super().embed(ids) * self.inner.args.scale_emb
        return hidden

    def finish(self, index: int, hidden: mx.array, mixed: mx.array, extra: mx.array | None) -> mx.array:
        layer = self.layers[index]
        share = layer.scale_depth / layer.num_hidden_layers**0.5
        hidden = hidden + layer.self_attn.o_proj(merge_heads(mixed)) * share
        out: mx.array = hidden + layer.mlp(layer.post_attention_layernorm(hidden)) * share
        return out

    @cached_property
    def head(self) -> Head:
        args = self.inner.args
        tied = args.tie_word_embeddings
        return Head(self.output_layer, scale=1.0 if tied else args.dim_model_base / args.hidden_size)
