"""Real model folders, tiny: random weights in safetensors, a config, a byte-level tokenizer with a ChatML template."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' "
    "+ '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VOCABULARY = len(SPECIALS) + 256


def write_llama(folder: Path, layers: int = 5, tied: bool = True, seed: int = 0, **overrides) -> Path:
    """A Llama of some ten thousand weights that speaks bytes; `overrides` go into its config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "vocab_size": VOCABULARY,
        "tie_word_embeddings": tied,
        "eos_token_id": 2,
        **overrides,
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file(_weights(config, np.random.default_rng(seed)), folder / "model.safetensors", {"format": "pt"})
    write_tokenizer(folder)
    return folder


def write_tokenizer(folder: Path) -> None:
    """A tokenizer whose tokens are bytes, with a ChatML template."""
    tokens = SPECIALS + sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIALS])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<|im_end|>", "bos_token": "<|im_start|>", "chat_template": CHATML}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def _weights(config: dict, random: np.random.Generator) -> dict[str, np.ndarray]:
    hidden, inner, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    keys = hidden // config["num_attention_heads"] * config["num_key_value_heads"]

    def draw(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    weights = {"model.embed_tokens.weight": draw(vocabulary, hidden), "model.norm.weight": 1 + 0.1 * draw(hidden)}
    for index in range(config["num_hidden_layers"]):
        layer = f"model.layers.{index}"
        weights |= {
            f"{layer}.input_layernorm.weight": 1 + 0.1 * draw(hidden),
            f"{layer}.post_attention_layernorm.weight": 1 + 0.1 * draw(hidden),
            f"{layer}.self_attn.q_proj.weight": draw(hidden, hidden),
            f"{layer}.self_attn.k_proj.weight": draw(keys, hidden),
            f"{layer}.self_attn.v_proj.weight": draw(keys, hidden),
            f"{layer}.self_attn.o_proj.weight": draw(hidden, hidden),
            f"{layer}.mlp.gate_proj.weight": draw(inner, hidden),
            f"{layer}.mlp.up_proj.weight": draw(inner, hidden),
            f"{layer}.mlp.down_proj.weight": draw(hidden, inner),
        }
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = draw(vocabulary, hidden)
    return weights


def write_rows(path: Path, rows: int = 12) -> Path:
    """A jsonl file of small questions and answers."""
    lines = [{"prompt": f"What is {n} plus {n}?", "completion": f"{2 * n}."} for n in range(rows)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
