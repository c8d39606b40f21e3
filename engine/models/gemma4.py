"""Gemma 4's decoder stack: upper layers share the keys and values of a lower one, and every layer is given a
per-layer input made from the token ids.
"""

from __future__ import annotations

from functools import cached_property

from engine.backend import mx, nn
from engine.heads import Head
from engine.models.stack import Positions, Stack, merge_heads, rotate, split_heads


class Gemma4Stack(Stack):
    """The text model, dense or with experts. Per-layer inputs come from the embedding alone: none is trained."""

    def embed(self, ids: mx.array) -> mx.array:
        hidden: mx.array = super().embed(ids) * self.inner.embed_scale
        return hidden

    def extras(self, ids: mx.array, hidden: mx.array) -> mx.array | None:
        if not self.inner.hidden_size_per_layer_input:
            return None
        by_token = self.inner._get_per_layer_inputs(ids)
        extras: mx.array = self.inner._project_per_layer_inputs(hidden, by_token)
        return extras

    def donor(self, index: int) -> int:
        donor: int = self.inner.previous_kvs[index]
        return donor

    def sight(self, index: int) -> tuple[float, int | None]:
        attention = self.layers[index].self_attn
        return attention.scale, self.inner.window_size if attention.is_sliding else None

    def project(self, index: int, hidden: mx.array, positions: Positions) -> tuple[mx.array, ...]:
        layer = self.layers[index]
        attention = layer.self_attn
        normed = layer.input_layernorm(hidden)
        queries = attention.q_norm(split_heads(attention.q_proj(normed), attention.n_heads))
        queries = rotate(attention.rope, queries, positions)
        if self.donor(index) != index:
            return (queries,)
        keys = split_heads(attention.k_proj(normed), attention.n_kv_heads)
        values = keys if attention.use_k_eq_v else split_heads(attention.v_proj(normed), attention.n_kv_heads)
        return queries, rotate(attention.rope, attention.k_norm(keys), positions), attention.v_norm(values)

    def finish(self, index: int, hidden: mx.array, mixed: mx.array, extra: mx.array | None) -> mx.array:
        layer = self.layers[index]
        hidden = hidden + layer.post_attention_layernorm(layer.self_attn.o_proj(merge_heads(mixed)))
        inner = layer.mlp(layer.pre_feedforward_layernorm(hidden))
        if layer.enable_moe:
            routed = layer.experts(layer.pre_feedforward_layernorm_2(hidden), *layer.router(hidden))
            inner = layer.post_feedforward_layernorm_1(inner) + layer.post_feedforward_layernorm_2(routed)
        hidden = hidden + layer.post_feedforward_layernorm(inner)
        if extra is not None:
            gate = nn.gelu_approx(layer.per_layer_input_gate(hidden)) * extra
            hidden = hidden + layer.post_per_layer_input_norm(layer.per_layer_projection(gate))
        out: mx.array = hidden * layer.layer_scalar
        return out

    @cached_property
    def head(self) -> Head:
        return Head(self.output_layer, softcap=self.text_model.final_logit_softcapping)


class Gemma4VisionStack(Gemma4Stack):
    """The text model inside one that also sees and hears."""

    path = "language_model.model"
