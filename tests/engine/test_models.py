"""Model folders from strangers, the sample's conversion, and the estimate against what is measured."""

import json
import struct

import numpy as np
import pytest
from tiny_models import write_llama

from engine import estimate
from engine.backend import mx
from engine.config import TrainConfig
from engine.data import Example
from engine.data.batch import make_batch
from engine.errors import EngineError
from engine.memory import PhaseMeter
from engine.models.adapter import add_adapter, load_adapter
from engine.models.find import find_model
from engine.models.folder import open_folder, read_header
from engine.models.gguf import _plain_rotary_rows
from engine.models.load import load_stack
from engine.optimizer import Optimizer
from engine.segmented import Plan, loss_and_gradients


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


def damage_pickle(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    "damage", [damage_cut_off, damage_header_size, damage_header, damage_config, damage_shape, damage_pickle]
)
def test_damaged_folders_are_told_with_a_cure(damage, tmp_path):
    folder = write_llama(tmp_path)
    damage(folder)
    with pytest.raises(EngineError) as refusal:
        load_stack(find_model(str(folder)))
    assert refusal.value.hint


@pytest.mark.parametrize("content", [{}, {"lora_parameters": {"rank": -1, "scale": 1}, "num_layers": 3}])
def test_what_is_no_adapter_is_refused(content, tmp_path):
    stack = load_stack(open_folder(write_llama(tmp_path / "model")))
    with pytest.raises(EngineError):
        load_adapter(stack.model, tmp_path)
    (tmp_path / "adapter_config.json").write_text(json.dumps(content))
    mx.save_safetensors(str(tmp_path / "adapters.safetensors"), {"a": mx.zeros(1)})
    with pytest.raises(EngineError):
        load_adapter(stack.model, tmp_path)


def test_headers_are_read_without_the_weights(tmp_path):
    tensors = read_header(write_llama(tmp_path) / "model.safetensors")
    assert tensors["model.norm.weight"].shape == (32,)
    assert tensors["model.norm.weight"].bytes == 128


def test_rotary_rows_come_back_as_two_halves():
    plain = np.arange(2 * 8).reshape(16, 1)
    interleaved = plain.reshape(2, 2, 4, 1).swapaxes(1, 2).reshape(16, 1)  # pairs (i, i + 4) side by side
    assert np.array_equal(np.array(_plain_rotary_rows(mx.array(interleaved), 2)), plain)


@pytest.mark.parametrize(("rows", "length"), [(1, 300), (4, 200), (2, 700)])
@pytest.mark.parametrize("size", [0, 1, 3])
def test_the_estimate_is_near_what_is_measured(size, rows, length, tmp_path):
    shape = {"hidden_size": 192, "intermediate_size": 512, "layers": 6}
    folder = open_folder(write_llama(tmp_path, **shape))
    config = TrainConfig.from_mapping({"batch_size": rows, "rank": 8, "head_chunk": 64})
    stack = load_stack(folder)
    add_adapter(stack.model, config)
    ids = np.random.default_rng(0).integers(3, 250, length).astype(np.int32)
    batch = make_batch([Example(1, ids, np.ones(length, bool), 0)] * rows)
    optimizer, meter = Optimizer(config, 10), PhaseMeter()
    others = mx.get_active_memory() - sum(array.nbytes for _, array in _flat(stack.model.parameters()))
    for step in (1, 2):  # the moments are there from the second step on
        mx.clear_cache()
        meter.start()
        _, gradients = loss_and_gradients(stack, batch, len(batch.targets), Plan(size, 64), meter, 0)
        optimizer.update(stack.model, gradients, step)
    measured = max(meter.peak_bytes, mx.get_peak_memory()) - others
    predicted = estimate.plan(estimate.architecture_of(folder), config, length, size).peak_bytes
    # The first version: within 15 % here, where small models leave more to fixed costs than large ones.
    assert predicted == pytest.approx(measured, rel=0.15)


def _flat(tree):
    from mlx.utils import tree_flatten

    return tree_flatten(tree)


def test_the_suggestion_is_the_fastest_that_fits(tmp_path):
    shape = estimate.architecture(write_llama(tmp_path, layers=12))
    plans = estimate.plans(shape, TrainConfig(), 2000)
    assert [plan.segment_size for plan in plans] == [1, 2, 3, 4, 6, 8, 10, 0]
    budget = plans[3].peak_bytes
    suggestion = estimate.suggest(plans, budget)
    assert suggestion.segment_size == max(p.segment_size for p in plans[:-1] if p.peak_bytes <= budget)
    nothing = estimate.suggest(plans, 1000)
    assert nothing.segment_size is None
    assert "Nothing fits" in nothing.reason
    longest = estimate.longest_that_fits(shape, TrainConfig(), 2000, plans[0].peak_bytes - 1)
    assert longest < 2000
    assert estimate.plan(shape, TrainConfig(), longest, 1).peak_bytes < plans[0].peak_bytes
