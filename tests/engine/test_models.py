"""Model folders from strangers, and the sample's conversion."""

import json
import struct

import numpy as np
import pytest
from tiny_models import write_llama

from engine.backend import mx
from engine.errors import EngineError
from engine.models.find import find_model
from engine.models.folder import read_header
from engine.models.gguf import _plain_rotary_rows
from engine.models.load import load_stack


def damage_cut_off(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def damage_header_size(folder):
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2**60) + b"{}")


def damage_header(folder):
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 3) + b'{"a')


def damage_config(folder):
    (folder / "config.json").write_text("[1, 2")


def damage_shape(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 40}))


def damage_quantization(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "awq"}}))


def damage_family(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "gemma4_text"}))


def damage_pickle(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    "damage",
    [
        damage_cut_off,
        damage_header_size,
        damage_header,
        damage_config,
        damage_shape,
        damage_pickle,
        damage_quantization,
        damage_family,
    ],
)
def test_damaged_folders_are_told_with_a_cure(damage, tmp_path):
    folder = write_llama(tmp_path)
    damage(folder)
    with pytest.raises(EngineError) as refusal:
        load_stack(find_model(str(folder)))
    assert refusal.value.hint


def test_headers_are_read_without_the_weights(tmp_path):
    tensors = read_header(write_llama(tmp_path) / "model.safetensors")
    assert tensors["model.norm.weight"].shape == (32,)
    assert tensors["model.norm.weight"].bytes == 128


def test_rotary_rows_come_back_as_two_halves():
    plain = np.arange(2 * 8).reshape(16, 1)
    interleaved = plain.reshape(2, 2, 4, 1).swapaxes(1, 2).reshape(16, 1)  # pairs (i, i + 4) side by side
    assert np.array_equal(np.array(_plain_rotary_rows(mx.array(interleaved), 2)), plain)
