"""What would help where a run does not fit: each remedy is held against plans made anew with its setting changed."""

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file
from tiny_models import write_llama

from engine.adapter_size import adapter_parameters
from engine.architecture import architecture
from engine.calibration import Correction, Line
from engine.config import SETTINGS, TrainConfig
from engine.estimate import Case, plans
from engine.remedies import remedies

# Wide enough that rows, adapter and head each weigh something.
SIZES = {"hidden_size": 256, "intermediate_size": 512, "layers": 8}
CONFIGS = {
    "as it comes": {},
    "much of everything": {"batch_size": 16, "rank": 128, "accumulate": 8, "head": "full", "head_chunk": 1024},
    "DPO, side by side": {"objective": "dpo", "pack": False, "prefix_shared": False, "batch_size": 6},
    "few layers with DoRA": {"last_layers": 5, "adapter_kind": "dora", "rank": 64, "targets": ["q_proj", "up_proj"]},
    "one short row": {"batch_size": 1, "max_length": 64},
}
LONGEST = 700


@pytest.fixture(scope="module")
def shape(tmp_path_factory):
    return architecture(write_llama(tmp_path_factory.mktemp("model"), **SIZES))


def least(shape, config, *correction):
    return min(plan.peak_bytes for plan in plans(Case(shape, config, LONGEST, 0, *correction)))


@pytest.mark.parametrize("share", [0.3, 0.7, 0.95, 1.0, 2.0])
@pytest.mark.parametrize("settings", CONFIGS)
def test_each_remedy_does_what_it_says(settings, share, shape):
    config = TrainConfig.from_mapping(CONFIGS[settings])
    before = least(shape, config)
    budget = round(share * before)
    found = remedies(Case(shape, config, LONGEST, budget))
    assert found
    for one in found:
        changed = config.updated({one.setting: one.value})
        assert changed != config
        assert one.peak_bytes == least(shape, changed) < before
        assert one.saves_bytes == before - one.peak_bytes
        assert one.fits == (one.peak_bytes <= budget)
        assert one.sentence.startswith(SETTINGS[one.setting].label)
        assert ("too much" in one.sentence) == (not one.fits)
        assert ("which fits" in one.sentence) == (one.fits and before > budget)


@pytest.mark.parametrize("share", [0.3, 0.7, 0.95])
@pytest.mark.parametrize("settings", CONFIGS)
def test_what_fits_comes_first_and_then_what_gives_most(settings, share, shape):
    config = TrainConfig.from_mapping(CONFIGS[settings])
    found = remedies(Case(shape, config, LONGEST, round(share * least(shape, config))))
    assert found == sorted(found, key=lambda one: (not one.fits, -one.saves_bytes))
    assert len(found) <= 6
    assert len({one.setting for one in found}) == len(found)


def named(found, setting):
    return next(one for one in found if one.setting == setting)


def test_the_longest_row_is_the_longest_that_fits(shape):
    config = TrainConfig()
    short = replace(config, max_length=300)
    for budget in (least(shape, short), least(shape, short) - 1):
        length = named(remedies(Case(shape, config, LONGEST, budget)), "max_length").value
        assert least(shape, replace(config, max_length=length)) <= budget
        assert least(shape, replace(config, max_length=length + 1)) > budget


def test_where_no_row_is_short_enough_half_of_it_is_offered(shape):
    one = named(remedies(Case(shape, TrainConfig(), LONGEST, 1000)), "max_length")
    assert one.value == LONGEST // 2
    assert not one.fits


@pytest.mark.parametrize("rows", [1, 3, 6])
def test_as_many_rows_at_a_time_stay_as_fit(rows, shape):
    config = TrainConfig(batch_size=12)
    budget = least(shape, replace(config, batch_size=rows))
    one = named(remedies(Case(shape, config, LONGEST, budget)), "batch_size")
    assert (one.value, one.fits) == (rows, True)


def test_fewer_rows_at_a_time_come_with_the_batches_that_make_up_for_them(shape):
    config = TrainConfig(batch_size=8, accumulate=2)
    halved = replace(config, batch_size=4)
    enough = least(shape, replace(halved, accumulate=4))
    one = named(remedies(Case(shape, config, LONGEST, enough)), "batch_size")
    assert "Rows at a time 4 instead of 8" in one.sentence
    assert "Batches a step 4 instead of 2" in one.sentence
    # From one batch to two the gradients have to wait, which takes memory that is not there.
    single = replace(config, accumulate=1)
    tight = least(shape, replace(single, batch_size=1))
    assert least(shape, replace(single, batch_size=1, accumulate=8)) > tight
    assert "Batches a step" not in named(remedies(Case(shape, single, LONGEST, tight)), "batch_size").sentence


def test_an_adapter_to_go_on_with_is_not_made_smaller(shape, tmp_path):
    weights = {"model.layers.7.self_attn.q_proj.lora_a": np.zeros((256, 64), np.float32)}
    save_file(weights, tmp_path / "adapters.safetensors")
    settings = {"num_layers": 1, "lora_parameters": {"rank": 64, "scale": 1.0, "keys": ["self_attn.q_proj"]}}
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    found = remedies(Case(shape, TrainConfig(adapter=str(tmp_path), rank=64), LONGEST, 1000))
    assert not {"rank", "last_layers", "targets", "adapter_kind"} & {one.setting for one in found}
    assert named(found, "batch_size").saves_bytes > 0


def test_what_was_measured_is_in_the_remedies(shape):
    config, correction = TrainConfig(), Correction(program_bytes=10**9, lines={"pieces": Line(1.5)})
    before = least(shape, config, correction)
    assert before > 10**9
    for one in remedies(Case(shape, config, LONGEST, 10**9, correction)):
        assert not one.fits
        assert one.peak_bytes == least(shape, config.updated({one.setting: one.value}), correction) < before


def test_what_was_measured_to_rest_with_one_adapter_is_not_said_of_another(shape):
    config = TrainConfig(rank=128)
    measured = Correction(resting_bytes=10**9)
    before = least(shape, config, measured)
    for one in remedies(Case(shape, config, LONGEST, 10**8, measured)):
        changed = config.updated({one.setting: one.value})
        rests = adapter_parameters(shape, changed) == adapter_parameters(shape, config)
        assert one.peak_bytes == (least(shape, changed, measured) if rests else least(shape, changed)) < before
