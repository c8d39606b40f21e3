"""Tiny real models of every family, made by mlx-lm's own classes: random weights, a few thousand numbers each."""

import json
from pathlib import Path

from tiny_models import VOCABULARY, write_tokenizer

from engine.backend import mx, nn

from mlx.utils import tree_flatten, tree_map, tree_map_with_path
from mlx_lm.utils import _get_classes

# Chosen so that no model is much worse conditioned than the others.
_SEED = 3
_COMMON = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "vocab_size": VOCABULARY,
}
_GEMMA4 = {
    **_COMMON,
    "num_hidden_layers": 7,
    "head_dim": 8,
    "global_head_dim": 16,
    "num_kv_shared_layers": 3,
    "sliding_window": 7,
    "sliding_window_pattern": 2,
    # With 8, of one token all gates were nearly shut: the norm after them divides by what is left, and so magnified the
    # rounding of that token's gradient, which outweighed the others', by more than a hundred.
    "hidden_size_per_layer_input": 16,
    "vocab_size_per_layer_input": VOCABULARY,
}
_SLIDING = ["full_attention", "sliding_attention"] * 2 + ["full_attention"]

CONFIGS = {
    "llama": {"model_type": "llama", **_COMMON},
    "llama untied, traditional RoPE": {
        "model_type": "llama",
        **_COMMON,
        "tie_word_embeddings": False,
        "rope_traditional": True,
    },
    "llama 3 RoPE, biases": {
        "model_type": "llama",
        **_COMMON,
        "attention_bias": True,
        "mlp_bias": True,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 32},
    },
    "mistral, windows": {"model_type": "mistral", **_COMMON, "layer_types": _SLIDING, "sliding_window": 7},
    "smollm3": {"model_type": "smollm3", **_COMMON, "no_rope_layer_interval": 2},
    "qwen2": {"model_type": "qwen2", **_COMMON, "tie_word_embeddings": False},
    "qwen3": {"model_type": "qwen3", **_COMMON, "head_dim": 16, "tie_word_embeddings": True},
    "phi3": {"model_type": "phi3", **_COMMON, "partial_rotary_factor": 0.5},
    "minicpm": {"model_type": "minicpm", **_COMMON, "dim_model_base": 16, "scale_depth": 1.4, "scale_emb": 12.0},
    "gemma3": {
        "model_type": "gemma3_text",
        **_COMMON,
        "head_dim": 8,
        "sliding_window": 7,
        "sliding_window_pattern": 2,
        "query_pre_attn_scalar": 8,
    },
    "gemma3 that sees": {
        "model_type": "gemma3",
        "vocab_size": VOCABULARY,
        "text_config": {
            "model_type": "gemma3_text",
            **_COMMON,
            "head_dim": 8,
            "sliding_window": 9,
            "sliding_window_pattern": 3,
        },
    },
    "gemma4": {"model_type": "gemma4_text", **_GEMMA4},
    "gemma4, K is V, experts": {
        "model_type": "gemma4_text",
        **_GEMMA4,
        "num_kv_shared_layers": 0,
        "hidden_size_per_layer_input": 0,
        "attention_k_eq_v": True,
        "num_global_key_value_heads": 1,
        "use_double_wide_mlp": False,
        "enable_moe_block": True,
        "num_experts": 4,
        "top_k_experts": 2,
        "moe_intermediate_size": 16,
    },
    "gemma4 that sees": {
        "model_type": "gemma4",
        "vocab_size": VOCABULARY,
        "text_config": {"model_type": "gemma4_text", **_GEMMA4},
    },
}


def write_family(folder: Path, name: str, bits: int | None = None) -> Path:
    """The model called `name` in CONFIGS as a folder, quantized to `bits` where its layers allow it."""
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads(json.dumps(CONFIGS[name]))
    model_class, arguments = _get_classes(config)
    mx.random.seed(_SEED)
    model = model_class(arguments.from_dict(json.loads(json.dumps(config))))
    # No weight stays one or zero: a norm or a bias that is left out must show.
    model.update(tree_map(lambda array: array + 0.1 * mx.random.normal(array.shape), model.parameters()))
    if "gemma" in name:
        # Normed heads make large scores; smaller ones, or rounding alone changes what is attended to.
        kept = 1.0 if "gemma3" in name else 0.0  # Gemma 3 adds one to its norms' weights
        model.update(
            tree_map_with_path(lambda path, a: 0.3 * (a + kept) - kept if "q_norm" in path else a, model.parameters())
        )
    if bits:
        nn.quantize(model, group_size=32, bits=bits, class_predicate=_fits)
        config["quantization"] = {"group_size": 32, "bits": bits}
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())), {"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder)
    return folder


def _fits(_: str, module: nn.Module) -> bool:
    return hasattr(module, "to_quantized") and module.weight.shape[-1] % 32 == 0
