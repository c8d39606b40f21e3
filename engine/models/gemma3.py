"""Gemma 3's decoder stack: four norms a layer, normed heads, most layers with a sliding window."""

from __future__ import annotations

from engine.backend import mx
from engine.models.llama import Qwen3Stack
from engine.models.stack import merge_heads

from mlx_lm.models.gemma3_text import clip_residual


class Gemma3Stack(Qwen3Stack):
    """The text model."""

    def sight(self, index: int) -> tuple[float, int | None]:
        attention = self.layers[index].self_attn
        return attention.scale, self.inner.window_size if attention.is_sliding else None

    def embed(self, ids: mx.array) -> mx.array:
        hidden = super().embed(ids)
        # Rounded to bfloat16 as the model was trained.
        return hidden * mx.array(self.inner.args.hidden_size**0.5, mx.bfloat16).astype(hidden.dtype)

    def finish(self, index: int, hidden: mx.array, mixed: mx.array, extra: mx.array | None) -> mx.array:
        layer = self.layers[index]
        hidden = clip_residual(hidden, layer.post_attention_layernorm(layer.self_attn.o_proj(merge_heads(mixed))))
        inner = layer.mlp(layer.pre_feedforward_layernorm(hidden))
        out: mx.array = clip_residual(hidden, layer.post_feedforward_layernorm(inner))
        return out


class Gemma3VisionStack(Gemma3Stack):
    """The text model inside one that also sees."""

    path = "language_model.model"
