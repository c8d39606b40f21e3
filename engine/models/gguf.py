"""A Llama-family GGUF file into Hugging Face's layout: config.json, bfloat16 safetensors, tokenizer.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from engine.backend import mx

_CONTROL_TOKEN = 3  # llama.cpp's token type for special tokens

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Writes config.json, model.safetensors and the tokenizer's files into `folder` from a Llama-family GGUF."""
    loaded: Any = mx.load(str(gguf), return_metadata=True)
    weights, metadata = loaded
    heads = _integer(metadata, "llama.attention.head_count")
    kv_heads = _integer(metadata, "llama.attention.head_count_kv")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": _integer(metadata, "llama.embedding_length"),
        "intermediate_size": _integer(metadata, "llama.feed_forward_length"),
        "num_hidden_layers": _integer(metadata, "llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": _integer(metadata, "llama.context_length"),
        "rms_norm_eps": _single(metadata, "llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": _single(metadata, "llama.rope.freq_base"),
        "vocab_size": len(metadata["tokenizer.ggml.tokens"]),
        "tie_word_embeddings": "output.weight" not in weights,
        "torch_dtype": "bfloat16",
        "bos_token_id": _integer(metadata, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": _integer(metadata, "tokenizer.ggml.eos_token_id"),
    }
    tensors = {}
    for name in [name for name in weights if name.endswith(".weight")]:
        tensor = _dense(weights, name)
        if ".attn_q." in name or ".attn_k." in name:
            tensor = _plain_rotary_rows(tensor, heads if ".attn_q." in name else kv_heads)
        tensors[_hugging_face_name(name)] = tensor.astype(mx.bfloat16)
    mx.save_safetensors(str(folder / "model.safetensors"), tensors, {"format": "mlx"})
    _write_tokenizer(metadata, folder)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _dense(weights: dict[str, mx.array], name: str) -> mx.array:
    base = name.removesuffix(".weight")
    weight, scales = weights[name], weights.get(f"{base}.scales")
    if scales is None:
        return weight
    bits = weight.shape[-1] // scales.shape[-1]  # 32 values a group, packed into 32-bit words: bits words
    return mx.dequantize(
        weight,
        scales.astype(mx.float32),
        weights[f"{base}.biases"].astype(mx.float32),
        group_size=32,
        bits=bits,
    )


def _plain_rotary_rows(weight: mx.array, heads: int) -> mx.array:
    """GGUF keeps a head's rotary pairs interleaved (2i, 2i+1); Hugging Face keeps them as two halves."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _hugging_face_name(name: str) -> str:
    if name.startswith("blk."):
        _, index, part, _ = name.split(".")
        return f"model.layers.{index}.{_LAYER_NAMES[part]}.weight"
    return {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
    }[name]


def _write_tokenizer(metadata: dict[str, Any], folder: Path) -> None:
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    kinds = metadata["tokenizer.ggml.token_type"].tolist()
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {
        f"{role}_token": tokens[_integer(metadata, f"tokenizer.ggml.{key}_token_id")]
        for role, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown"))
        if f"tokenizer.ggml.{key}_token_id" in metadata
    }
    settings = {
        **named,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": _integer(metadata, "llama.context_length"),
        "chat_template": metadata["tokenizer.chat_template"],
    }
    text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")


def _integer(metadata: dict[str, Any], key: str) -> int:
    return int(metadata[key].item())


def _single(metadata: dict[str, Any], key: str) -> float:
    """A float32 of the file, as the decimal number that was meant: 1e-05, not 9.99999974e-06."""
    return float(f"{metadata[key].item():.7g}")
