"""What is predicted of memory, against what MLX measures, and the suggestion made from it."""

import csv
import gc
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_families import CONFIGS, write_family
from tiny_models import write_llama

from bench.memory_truth import LARGER, MODELS
from engine import estimate, machine
from engine.adapter_size import adapter_parameters
from engine.architecture import architecture, architecture_of
from engine.backend import mx, on_cpu
from engine.config import GB, PAIR_OBJECTIVES, TrainConfig
from engine.data.tokenize import Example, Pair
from engine.errors import EngineError
from engine.memory import hold_to
from engine.models.adapter import add_adapter, save_adapter
from engine.models.folder import open_folder
from engine.models.load import load_stack
from engine.plans import TILE, Variant, variants
from engine.steps import Steps, plan_of

from mlx.utils import tree_flatten
from mlx_lm.utils import _get_classes

PLANS = {
    "all kept": Variant(0, 6, 0, False),
    "whole": Variant(2, 2, 0, False),
    "pieces": Variant(1, 0, TILE, True),
    "lean pieces": Variant(3, 0, TILE, False),
    "pieces below kept layers": Variant(1, 3, TILE, True),
}


SETTINGS = {
    "rank 64": {"rank": 64},
    "DoRA": {"adapter_kind": "dora"},
    "dropout": {"dropout": 0.1},
    "DoRA with dropout on some": {"adapter_kind": "dora", "dropout": 0.1, "targets": ["q_proj", "o_proj", "up_proj"]},
    "queries and values": {"targets": ["q_proj", "v_proj"]},
    "the last two layers": {"last_layers": 2},
    "a whole head": {"head": "full"},
}


@pytest.mark.skipif(not on_cpu(), reason="how far a GPU runs ahead depends on its pace")
@pytest.mark.parametrize(("rows", "length"), [(1, 700), pytest.param(4, 200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("plan", PLANS)
def test_every_phase_is_predicted_as_it_is_measured(plan, rows, length, limits, tmp_path):
    _hold_to_the_prediction({"batch_size": rows}, PLANS[plan], length, tmp_path, apart=0.2, peak_apart=0.1)


@pytest.mark.skipif(not on_cpu(), reason="how far a GPU runs ahead depends on its pace")
@pytest.mark.parametrize("plan", ["all kept", pytest.param("pieces", marks=pytest.mark.slow)])
@pytest.mark.parametrize("settings", SETTINGS)
def test_every_setting_of_the_adapter_is_in_the_prediction(settings, plan, limits, tmp_path):
    # Without what an adapter saves, dropout and DoRA were a quarter to a third too low with all activations kept.
    _hold_to_the_prediction(SETTINGS[settings], PLANS[plan], 700, tmp_path, apart=0.3, peak_apart=0.1)


@pytest.mark.skipif(not on_cpu(), reason="how far a GPU runs ahead depends on its pace")
def test_both_sides_of_pairs_that_lie_apart_are_predicted_as_rows_of_their_own(limits, tmp_path):
    # As one row of twice the length a pair has twice as many tiles: pieces were predicted at 0.7 of what they take.
    pairs = {"objective": "orpo", "pack": False, "prefix_shared": False}
    _hold_to_the_prediction(pairs, PLANS["lean pieces"], 450, tmp_path, apart=0.2, peak_apart=0.1)


@pytest.mark.skipif(not on_cpu(), reason="how far a GPU runs ahead depends on its pace")
def test_the_whole_model_is_recorded_again_below_a_head_that_computes_as_it_goes(limits, tmp_path):
    (variant,) = variants(architecture(write_llama(tmp_path)), TrainConfig(head="blocked"), 0)
    _hold_to_the_prediction({"head": "blocked"}, variant, 400, tmp_path, apart=0.25, peak_apart=0.1)


@pytest.mark.skipif(not on_cpu(), reason="how far a GPU runs ahead depends on its pace")
def test_an_adapter_to_go_on_with_goes_backward_as_far_as_it_reaches(limits, tmp_path):
    made = {"adapter": str(_adapter_of_the_last_layer(tmp_path))}
    _hold_to_the_prediction(made, PLANS["pieces"], 400, tmp_path, apart=0.25, peak_apart=0.1)


def _adapter_of_the_last_layer(path):
    config = TrainConfig(last_layers=1)
    model = load_stack(open_folder(_wide_llama(path))).model
    add_adapter(model, config)
    (path / "adapter").mkdir()
    save_adapter(model, config, str(path), path / "adapter")
    return path / "adapter"


_GEMMA4 = {
    "model_type": "gemma4_text", "hidden_size": 192, "intermediate_size": 256, "num_hidden_layers": 6,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32, "global_head_dim": 64, "vocab_size": 3000,
    "num_kv_shared_layers": 0, "sliding_window": 64, "sliding_window_pattern": 3, "use_double_wide_mlp": False,
    "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 3000, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}  # fmt: skip
_EXPERTS = {"enable_moe_block": True, "num_experts": 16, "top_k_experts": 6, "moe_intermediate_size": 64}


@pytest.mark.skipif(not on_cpu(), reason="how far a GPU runs ahead depends on its pace")
@pytest.mark.parametrize("plan", ["all kept", "whole", "lean pieces"])
def test_a_token_goes_to_each_of_its_experts_as_a_copy(plan, limits, tmp_path):
    # By the experts' widths alone it was predicted at 0.6 of what it takes.
    folder = _write(tmp_path, _GEMMA4 | _EXPERTS)
    _hold_to_the_prediction({}, PLANS[plan], 400, tmp_path, apart=0.3, peak_apart=0.12, folder=folder)


def test_keys_and_values_that_layers_share_wait_in_the_head_too(tmp_path):
    # Without them a head over few logits was predicted at 0.6 of what it takes.
    shape = architecture(_write(tmp_path, _GEMMA4 | {"num_kv_shared_layers": 3, "num_key_value_heads": 6}))
    plan = estimate.plan(shape, TrainConfig(), 700, PLANS["lean pieces"])
    phases = {(one.name, one.segment): one.parts for one in plan.phases}
    waiting = "shared keys and values"
    assert phases["head", 2][waiting] == phases["forward", 1][waiting] > 0


@pytest.mark.skipif(not on_cpu(), reason="how far a GPU runs ahead depends on its pace")
@pytest.mark.parametrize("head", ["full", "chunked"])
def test_a_cap_on_the_logits_is_counted(head, limits, tmp_path):
    # A whole head was predicted at 0.6 of what it takes.
    settings = {"head": head, "head_chunk": 256}
    folder = _write(tmp_path, _GEMMA4)
    _hold_to_the_prediction(settings, PLANS["lean pieces"], 400, tmp_path, apart=0.3, peak_apart=0.12, folder=folder)


def _write(path, config):
    model_class, arguments = _get_classes(dict(config))
    model = model_class(arguments.from_dict(dict(config)))
    mx.save_safetensors(str(path / "model.safetensors"), dict(tree_flatten(model.parameters())), {"format": "mlx"})
    (path / "config.json").write_text(json.dumps(config))
    return path


def _wide_llama(path):
    return write_llama(path, hidden_size=192, intermediate_size=512, layers=6)


def _hold_to_the_prediction(settings, variant, length, tmp_path, *, apart, peak_apart, folder=None):
    folder = open_folder(folder or _wide_llama(tmp_path))
    config = TrainConfig.from_mapping({"batch_size": 1, "rank": 8, "head_chunk": 64, **settings})
    rows = config.batch_size
    gc.collect()
    others = mx.get_active_memory()
    stack = load_stack(folder)
    add_adapter(stack.model, config)
    mx.eval(stack.model.parameters())
    ids = np.random.default_rng(0).integers(3, 250, length).astype(np.int32)
    row = Example(1, ids, np.arange(length) > 0, 0)
    item = Pair(1, row, row) if config.objective in PAIR_OBJECTIVES else row
    longest = item.tokens if config.prefix_shared else item.tokens_apart
    chosen = estimate.plan(architecture_of(folder), config, longest, variant)
    mx.set_memory_limit(0)  # nothing runs ahead
    steps = Steps(config, stack, plan_of(config, chosen.variant), 2)
    batches = steps.batches([item] * rows)
    measured = [steps.take(number, batches) for number in (1, 2)][-1]  # the moments are there from the second on
    resting = mx.get_active_memory() - others
    rests = {"program", "weights", "adapter"}
    # Masks and positions, some 10 KB each, are not counted.
    assert sum(chosen.parts[name] for name in rests - {"program"}) == pytest.approx(resting, rel=0.01)
    predicted = {(one.name, one.segment): one.parts for one in chosen.phases}
    for phase in measured.phases:
        parts = predicted.pop((phase.name, phase.segment))
        moving = sum(size for name, size in parts.items() if name not in rests)
        # MLX decides by its pace which of some ten operations on the way share memory: that moves a phase so far.
        assert moving == pytest.approx(phase.peak_bytes - others - resting, rel=apart), (phase.name, phase.segment)
    assert [name for name, _ in predicted] == ["update"]
    hold_to(others + chosen.limit_bytes, chosen.parts["program"])  # as a run is
    above = steps.take(3, batches).peak_bytes - others - resting
    assert chosen.peak_bytes - chosen.parts["program"] - resting == pytest.approx(above, rel=peak_apart)


@pytest.fixture
def an_nvidia_gpu(monkeypatch):
    """A machine that predicts as one with an NVIDIA GPU does."""
    known = (machine.is_nvidia, machine.computes_on_gpu)
    monkeypatch.setattr(machine, "_is_installed", lambda distribution: True)
    for one in known:
        one.cache_clear()
    yield
    for one in known:
        one.cache_clear()


@pytest.mark.parametrize("model", MODELS)
def test_what_an_h200_took_is_predicted(model, an_nvidia_gpu, tmp_path):
    # Measured by bench.memory_truth, without the program: a machine without a GPU keeps to it too.
    shape = architecture(_write_headers(tmp_path, {**MODELS[model], **LARGER[model]}))
    ratios = {}
    with Path(__file__).with_name("h200_peaks.csv").open() as file:
        cells = [one for one in csv.DictReader(file) if one["model"] == model]
    assert len(cells) == 24
    for cell in cells:
        config = {"objective": cell["objective"], "batch_size": int(cell["rows"]), "max_length": 8192}
        way = [int(cell[name]) for name in ("segment_size", "kept", "tile")]
        predicted = estimate.plan(
            shape, TrainConfig.from_mapping(config), int(cell["tokens"]), Variant(*way, cell["keep_attention"] == "1")
        )
        above = predicted.peak_bytes - predicted.parts.get("program", 0)
        ratios[tuple(cell.values())] = above / float(cell["gb"]) / GB
    assert {cell: ratio for cell, ratio in ratios.items() if abs(ratio - 1) > 0.02} == {}


def _write_headers(folder, config):
    """A model folder in bfloat16 without its weights, which the estimate doesn't read."""
    model_class, arguments = _get_classes(dict(config))
    model, headers, end = model_class(arguments.from_dict(dict(config))), {}, 0
    for name, array in tree_flatten(model.parameters()):
        begin, end = end, end + 2 * array.size
        headers[name] = {"dtype": "BF16", "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(headers).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)  # a hole, which takes no room on the disk
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("bits", [None, 4])
def test_the_estimate_counts_the_adapter_of_every_family(family, bits, tmp_path):
    folder = open_folder(write_family(tmp_path, family, bits))
    for settings in ({"rank": 5}, {"rank": 3, "last_layers": 2, "targets": ["k_proj", "qkv_proj", "down_proj"]}):
        config = TrainConfig.from_mapping(settings)
        stack = load_stack(folder)
        add_adapter(stack.model, config)
        counted = sum(array.size for _, array in tree_flatten(stack.model.trainable_parameters()))
        assert adapter_parameters(architecture_of(folder), config) == counted


def test_the_suggestion_is_the_fastest_that_fits(tmp_path):
    shape = architecture(write_llama(tmp_path, layers=12))
    plenty = 10**12
    case = estimate.Case(shape, TrainConfig(), 2000, plenty)
    plans = estimate.plans(case)
    assert [plan.segment_size for plan in plans] == [1, 2, 3, 4, 6, 8, 10, 0]
    fastest = estimate.suggest(plans, plenty)
    budget = next(plan for plan in plans if plan.segment_size == fastest.segment_size).peak_bytes - 1
    tight = estimate.plans(replace(case, budget_bytes=budget))
    suggestion = estimate.suggest(tight, budget)
    chosen = next(plan for plan in tight if plan.segment_size == suggestion.segment_size)
    assert chosen.peak_bytes <= budget
    assert chosen.cost == min(plan.cost for plan in tight if plan.peak_bytes <= budget)
    nothing = estimate.suggest(tight, 1000)
    assert nothing.segment_size is None
    assert "Nothing fits" in nothing.reason
    stingy = replace(case, budget_bytes=0)
    leanest = min(plan.peak_bytes for plan in estimate.plans(stingy))
    longest = estimate.longest_that_fits(replace(case, budget_bytes=leanest - 1))
    assert longest < 2000
    shorter = estimate.plans(replace(stingy, config=TrainConfig(max_length=longest)))
    assert min(plan.peak_bytes for plan in shorter) < leanest


CURES = {
    "another segment size": ({"segment_size": 0}, 0.99, "segment_size"),
    "another setting": ({"batch_size": 8}, 0.9, "which fits"),
    "nothing": ({}, 0.001, "smaller model"),
}


@pytest.mark.parametrize("case", CURES)
def test_a_run_that_does_not_fit_is_refused_with_what_would(case, tmp_path):
    settings, share, words = CURES[case]
    config = TrainConfig(**settings)
    wanted = estimate.Case(architecture(write_llama(tmp_path, layers=12)), config, 2000, 0)
    budget = int(share * estimate.plan_of_size(wanted).peak_bytes)
    with pytest.raises(EngineError, match="by prediction") as refusal:
        estimate.choose(replace(wanted, budget_bytes=budget))
    assert refusal.value.kind == "memory"
    assert words in refusal.value.hint
    assert "max_length" not in refusal.value.hint
