"""A model's numbers for the estimate: right for every family, and refused where its files don't tell them."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny_families import CONFIGS, write_family
from tiny_models import write_llama

from engine.architecture import architecture, architecture_of
from engine.backend import mx
from engine.errors import EngineError
from engine.models.folder import open_folder
from engine.models.load import load_stack

from mlx.utils import tree_flatten

GEMMA_EXPERTS = "gemma4, K is V, experts"


def change(folder, **values):
    """Changes config.json, in the part for the text model where there is one; None takes a name away."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for name, value in values.items():
        part = config["text_config"] if name in config.get("text_config", {}) else config
        part[name] = value
        if value is None:
            del part[name]
    path.write_text(json.dumps(config))
    return folder


def change_weights(folder, edit):
    """Writes the weights anew as `edit` changes the arrays by name."""
    path = folder / "model.safetensors"
    arrays = dict(load_file(path))
    edit(arrays)
    save_file(arrays, path, {"format": "pt"})
    return folder


def by_place(shape):
    """The linear layers in an order of their own: files keep them in any."""
    return sorted(shape.linears, key=repr)


def refused(folder) -> EngineError:
    with pytest.raises(EngineError) as refusal:
        architecture(folder)
    assert refusal.value.kind == "unknown"
    assert "Measure" in refusal.value.hint
    return refusal.value


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("bits", [None, 4])
def test_weights_are_counted_as_they_will_be_held(family, bits, tmp_path):
    folder = open_folder(write_family(tmp_path, family, bits))
    shape = architecture_of(folder)
    model = load_stack(folder).model
    assert shape.weight_bytes == sum(array.nbytes for _, array in tree_flatten(model.parameters()))
    config = CONFIGS[family].get("text_config", CONFIGS[family])
    assert (shape.layers, shape.hidden) == (config["num_hidden_layers"], config["hidden_size"])
    assert shape.vocabulary == CONFIGS[family]["vocab_size"]
    assert shape.is_quantized == bool(bits)
    widest = max(one.inputs for one in shape.linears if one.name == "down_proj" and one.experts == 1)
    assert shape.intermediate == widest


def test_a_large_vocabulary_does_not_hide_that_the_layers_are_packed(tmp_path):
    # The embedding alone takes more bytes than the layers would unpacked.
    sizes = {"hidden_size": 32, "intermediate_size": 64, "layers": 1}
    folder = write_llama(tmp_path, **sizes, vocab_size=20_000)

    def pack(arrays):
        for name in [name for name in arrays if arrays[name].ndim == 2]:
            packed = mx.quantize(mx.array(arrays[name]), group_size=32, bits=8)
            for part, array in zip(("weight", "scales", "biases"), packed, strict=True):
                arrays[name.replace("weight", part)] = np.array(array)

    assert not architecture(folder).is_quantized
    assert architecture(change(change_weights(folder, pack), quantization={"bits": 8, "group_size": 32})).is_quantized


@pytest.mark.parametrize(("mode", "bits", "group_size"), [("affine", 3, 32), ("mxfp4", 4, 32), ("nvfp4", 4, 16)])
def test_every_packing_tells_the_same_linear_layers(mode, bits, group_size, tmp_path):
    sizes = {"hidden_size": 64, "intermediate_size": 96}
    dense = architecture(write_llama(tmp_path, **sizes))

    def pack(arrays):
        for name in [name for name in arrays if arrays[name].ndim == 2]:
            packed = mx.quantize(mx.array(arrays[name]), group_size=group_size, bits=bits, mode=mode)
            for part, array in zip(("weight", "scales", "biases"), packed, strict=False):
                arrays[name.replace("weight", part)] = np.array(array)

    folder = change(change_weights(tmp_path, pack), quantization={"mode": mode, "bits": bits, "group_size": group_size})
    packed = architecture(folder)
    assert by_place(packed) == by_place(dense)
    assert packed.weight_bytes < dense.weight_bytes / 2


def test_a_matrix_packed_otherwise_than_the_rest_tells_its_own_size(tmp_path):
    dense = architecture(write_family(tmp_path / "dense", "llama"))
    folder = write_family(tmp_path / "mixed", "llama", bits=4)
    path = "model.layers.1.self_attn.q_proj"

    def repack(arrays):
        weight = mx.dequantize(*(mx.array(arrays[f"{path}.{part}"]) for part in ("weight", "scales", "biases")), 32, 4)
        for part, array in zip(("weight", "scales", "biases"), mx.quantize(weight, 32, 8), strict=True):
            arrays[f"{path}.{part}"] = np.array(array)

    change_weights(folder, repack)
    assert path in refused(folder).message
    change(folder, quantization={"group_size": 32, "bits": 4, path: {"group_size": 32, "bits": 8}})
    assert by_place(architecture(folder)) == by_place(dense)


def test_what_loading_leaves_out_is_not_counted(tmp_path):
    plain = architecture(write_llama(tmp_path))

    def add(arrays):
        arrays["lm_head.weight"] = arrays["model.embed_tokens.weight"].copy()
        arrays["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(4, np.float32)

    assert architecture(change_weights(tmp_path, add)) == plain


def test_keys_and_values_that_shared_layers_hold_in_vain_are_not_counted(tmp_path):
    folder = write_family(tmp_path, "gemma4")
    plain = architecture(folder)

    def add(arrays):
        for name in ("k_proj", "v_proj"):
            arrays[f"model.layers.6.self_attn.{name}.weight"] = arrays[f"model.layers.3.self_attn.{name}.weight"]

    assert architecture(change_weights(folder, add)) == plain


def test_fused_experts_are_the_layers_that_loading_makes_of_them(tmp_path):
    folder = write_family(tmp_path, GEMMA_EXPERTS)
    plain = architecture(folder)

    def fuse(arrays):
        for layer in range(plain.layers):
            experts = f"model.layers.{layer}.experts"
            gate, up, down = (
                arrays.pop(f"{experts}.switch_glu.{part}.weight") for part in ("gate_proj", "up_proj", "down_proj")
            )
            arrays[f"{experts}.gate_up_proj"], arrays[f"{experts}.down_proj"] = np.concatenate([gate, up], -2), down

    fused = architecture(change_weights(folder, fuse))
    assert by_place(fused) == by_place(plain)
    assert fused.weight_bytes == plain.weight_bytes


def test_numbers_that_a_model_that_sees_leaves_out_come_from_the_headers(tmp_path):
    folder = write_family(tmp_path, "gemma3 that sees")
    plain = architecture(folder)
    for name in ("num_attention_heads", "num_key_value_heads", "head_dim"):
        assert architecture(change(folder, **{name: None})) == plain


NUMBERS = [
    *(("llama", name) for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")),
    *(("llama", name) for name in ("num_key_value_heads", "vocab_size")),
    ("qwen3", "head_dim"),
    ("phi3", "num_attention_heads"),
    ("phi3", "intermediate_size"),
    ("gemma4 that sees", "num_hidden_layers"),
    *(("gemma4", name) for name in ("global_head_dim", "num_kv_shared_layers", "hidden_size_per_layer_input")),
    *((GEMMA_EXPERTS, name) for name in ("num_experts", "moe_intermediate_size", "num_key_value_heads")),
]
WRONG = {
    "left out": lambda number: None,
    "zero": lambda number: 0,
    "negative": lambda number: -number,
    "a fraction": lambda number: number + 0.5,
    "a text": str,
    "a switch": lambda number: True,
    "a list": lambda number: [number],
    "one more": lambda number: number + 1,
    "double": lambda number: 2 * number,
    "absurd": lambda number: 10**30,
}


@pytest.mark.parametrize(("family", "name"), NUMBERS)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_number_is_refused_by_its_name(family, name, wrong, tmp_path):
    folder = write_family(tmp_path, family)
    config = CONFIGS[family].get("text_config", CONFIGS[family])
    number = WRONG[wrong](config[name])
    message = refused(change(folder, **{name: number})).message
    # What is left out or zero has a default from other numbers; then the contradiction names those.
    assert number is None or name.removeprefix("global_") in message


def test_a_contradiction_names_both_values(tmp_path):
    folder = write_llama(tmp_path, layers=5)
    assert "num_hidden_layers 6, and its weights have 5" in refused(change(folder, num_hidden_layers=6)).message
    change(folder, num_hidden_layers=5, intermediate_size=40)
    assert "intermediate_size 40, and its weights have 48" in refused(folder).message
    change(folder, intermediate_size=48, vocab_size=1000)
    assert "vocab_size 1,000, and its weights have 259" in refused(folder).message


@pytest.mark.parametrize("wrong", [None, 0, "two", [2], 10**9, 1000])
def test_how_many_experts_a_token_takes_is_a_number_that_can_be(wrong, tmp_path):
    assert "top_k_experts" in refused(change(write_family(tmp_path, GEMMA_EXPERTS), top_k_experts=wrong)).message


LACKING = [
    *(("llama", part) for part in ("layers.2.", "layers.4.mlp.down_proj", "layers.1.self_attn.v_proj", "embed_tokens")),
    ("phi3", "layers.0.mlp.gate_up_proj"),
    ("gemma4", "layers.3.self_attn.k_proj"),
    ("gemma4", "layers.6.per_layer_input_gate"),
    (GEMMA_EXPERTS, "layers.2.experts.switch_glu.up_proj"),
    ("qwen2", "lm_head"),
]


@pytest.mark.parametrize(("family", "lacking"), LACKING)
def test_missing_weights_are_noticed(family, lacking, tmp_path):
    def remove(arrays):
        for name in [name for name in arrays if lacking in name]:
            del arrays[name]

    refused(change_weights(write_family(tmp_path, family), remove))


QUANTIZATIONS = {
    "GPTQ": ({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}}, "gptq"),
    "AWQ": ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "awq"),
    "bitsandbytes": ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}, "bitsandbytes"),
    "no method": ({"quantization_config": {"bits": 4, "group_size": 32}}, "does not name"),
    "unknown bits": ({"quantization": {"bits": 7, "group_size": 32}}, "bits 7"),
    "bits that are none": ({"quantization": {"bits": "4", "group_size": 32}}, "bits '4'"),
    "unknown mode": ({"quantization": {"bits": 4, "group_size": 32, "mode": "trellis"}}, "trellis"),
    "a mode that is none": ({"quantization": {"bits": 4, "group_size": 32, "mode": []}}, "[]"),
    "no group size": ({"quantization": {"bits": 4}}, "group_size"),
    "another group size": ({"quantization": {"bits": 4, "group_size": 64}}, "groups of 64"),
    "other bits": ({"quantization": {"bits": 8, "group_size": 32}}, "8 bits"),
    "a mode's other group": ({"quantization": {"bits": 4, "group_size": 64, "mode": "mxfp4"}}, "group_size 64"),
    "no mapping": ({"quantization": "4-bit"}, "bits"),
    "not a word": ({}, "does not say how"),
}


@pytest.mark.parametrize("case", QUANTIZATIONS)
def test_an_unknown_quantization_is_refused(case, tmp_path):
    values, words = QUANTIZATIONS[case]
    folder = change(write_family(tmp_path, "llama", bits=4), quantization=None)
    assert words in refused(change(folder, **values)).message


def test_weights_that_are_not_what_the_config_says_are_refused(tmp_path):
    folder = change(write_llama(tmp_path), quantization={"bits": 4, "group_size": 32})
    assert "not quantized" in refused(folder).message
    change(folder, quantization=None)
    change_weights(folder, lambda arrays: arrays.update({k: v.astype(np.int8) for k, v in arrays.items()}))
    assert "I8" in refused(folder).message
