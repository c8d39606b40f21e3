"""Adapters on tiny real models: against mlx_lm's own loader, a float64 NumPy reference and finite differences."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from tiny_families import write_family
from tiny_models import write_llama

from engine.adapter_size import adapter_parameters
from engine.architecture import architecture
from engine.backend import mx, nn
from engine.config import TrainConfig
from engine.errors import EngineError
from engine.models.adapter import add_adapter, load_adapter, save_adapter, without_adapter
from engine.models.folder import open_folder
from engine.models.load import load_stack

import mlx_lm.utils
from mlx.utils import tree_flatten, tree_map
from mlx_lm.tuner.dora import DoRALinear
from mlx_lm.tuner.utils import linear_to_lora_layers

IDS = mx.array([[5, 70, 9, 200, 31, 8, 90, 13, 44]])
KINDS = pytest.mark.parametrize("kind", ["lora", "dora"])
FAMILIES = pytest.mark.parametrize("family", ["llama", "phi3", "gemma4", "gemma4 that sees"])


def load(folder):
    return load_stack(open_folder(folder)).model


def settings(**values):
    return TrainConfig.from_mapping({"rank": 3, **values})


def trained(model):
    return dict(tree_flatten(model.trainable_parameters()))


def shaken(model):
    """The model with random values added to all that is trained, as if it had learned."""
    mx.random.seed(11)
    model.update(tree_map(lambda array: array + 0.1 * mx.random.normal(array.shape), model.trainable_parameters()))
    return model


def saved(model, config, folder):
    folder.mkdir()
    save_adapter(model, config, "a model", folder)
    return folder


def difference(one, other):
    return mx.abs(one - other).max().item()


@FAMILIES
@KINDS
def test_a_fresh_adapter_is_all_that_is_trained_and_changes_no_answer(kind, family, tmp_path):
    model = load(write_family(tmp_path, family))
    before = model(IDS)
    model.unfreeze()
    assert add_adapter(model, settings(adapter_kind=kind)) is None
    leaves = {"lora_a", "lora_b"} | ({"m"} if kind == "dora" else set())
    for mode in (True, False):
        model.train(mode)
        assert {name.rsplit(".", 1)[-1] for name in trained(model)} == leaves
    assert all(array.dtype == mx.float32 for array in trained(model).values())
    # LoRA adds an exact zero; DoRA multiplies by m / |W|, one but for a rounding a layer.
    assert difference(model(IDS), before) <= (0 if kind == "lora" else 1e-4)


@FAMILIES
@KINDS
@pytest.mark.parametrize("last", [0, 2])
def test_mlx_lm_loads_what_is_saved(last, kind, family, tmp_path):
    source = write_family(tmp_path / "model", family)
    config = settings(adapter_kind=kind, last_layers=last, rslora=True, dropout=0.2, objective="orpo")
    model = load(source)
    add_adapter(model, config)
    shaken(model).eval()
    folder = saved(model, config, tmp_path / "adapter")
    theirs, _ = mlx_lm.utils.load_model(source)
    plain = theirs(IDS)
    mlx_lm.utils.load_adapters(theirs, str(folder)).eval()
    ours = load(source)
    load_adapter(ours, folder)
    ours.eval()
    # The same modules over the same float32 weights: the bound leaves room for another order of additions.
    assert difference(theirs(IDS), model(IDS)) < 1e-5
    assert difference(ours(IDS), model(IDS)) < 1e-5
    assert difference(plain, model(IDS)) > 1e-2
    written = json.loads((folder / "adapter_config.json").read_text())
    assert written["lora_parameters"]["scale"] == pytest.approx(config.scale / math.sqrt(3))
    assert written["lora_parameters"]["dropout"] == pytest.approx(0.2)
    assert written["num_layers"] == (last or len(model.layers))
    assert (written["rslora"], written["objective"], written["model"]) == (True, "orpo", "a model")
    assert set(written["targets"]) == {name.split(".")[-2] for name in trained(model)}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("bits", [None, 4, 8])
def test_dora_against_float64_and_finite_differences(bits, bias):
    rows, inputs, outputs, rank, scale = 4, 64, 6, 3, 1.7
    mx.random.seed(2)
    base = nn.Linear(inputs, outputs, bias=bias)
    weight = base.weight
    if bits:
        base = nn.QuantizedLinear.from_linear(base, group_size=32, bits=bits)
        weight = mx.dequantize(base.weight, base.scales, base.biases, group_size=32, bits=bits)
    base.freeze()
    layer = DoRALinear.from_base(base, r=rank, scale=scale)
    random = np.random.default_rng(3)
    values = {
        "lora_a": random.standard_normal((inputs, rank)) * 0.3,
        "lora_b": random.standard_normal((rank, outputs)) * 0.3,
        "m": np.array(layer.m, np.float64) * random.uniform(0.8, 1.2, outputs),
        "x": random.standard_normal((rows, inputs)),
    }
    slope = random.standard_normal((rows, outputs))
    singles = {name: mx.array(value.astype(np.float32)) for name, value in values.items()}
    values = {name: np.array(value, np.float64) for name, value in singles.items()}
    dense, shift = np.array(weight, np.float64), np.array(base.bias, np.float64) if bias else 0.0

    def adapted(values):
        return dense + scale * (values["lora_a"] @ values["lora_b"]).T

    norms = np.linalg.norm(adapted(values), axis=1)  # a constant: the paper's detached gradient

    def output(values):
        return values["x"] @ (values["m"] / norms * adapted(values).T) + shift

    def loss(singles):
        layer.update({name: value for name, value in singles.items() if name != "x"})
        return (layer(singles["x"]) * mx.array(slope.astype(np.float32))).sum()

    gradients = mx.grad(loss)(singles)
    layer.update({name: value for name, value in singles.items() if name != "x"})
    # float32 sums of 64 terms of order one: some 1e-6 each; a gradient sums such values again.
    np.testing.assert_allclose(np.array(layer(singles["x"])), output(values), rtol=1e-5, atol=1e-5)
    step = 1e-5  # central differences of a cubic in float64: exact to about 1e-9
    for name, value in values.items():
        slopes = np.zeros_like(value)
        for place in np.ndindex(value.shape):
            moved = [{**values, name: value.copy()} for _ in range(2)]
            moved[0][name][place] += step
            moved[1][name][place] -= step
            slopes[place] = ((output(moved[0]) - output(moved[1])) * slope).sum() / (2 * step)
        np.testing.assert_allclose(np.array(gradients[name]), slopes, rtol=1e-4, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("bits", [3, 5, 6])
def test_dora_is_refused_on_widths_that_mlx_lm_gets_wrong(bits, tmp_path):
    folder = write_llama(tmp_path)
    model = load(folder)
    odd = "model.layers.2.self_attn.v_proj"  # alone: one layer of a mixed quantization is enough
    nn.quantize(model, group_size=32, bits=bits, class_predicate=lambda path, _: path == odd)
    with pytest.raises(EngineError, match=f"{bits} bits .self_attn.v_proj"):
        add_adapter(model, settings(adapter_kind="dora"))
    before = model(IDS)
    add_adapter(model, settings(adapter_kind="lora"))
    assert difference(model(IDS), before) == 0
    assert trained(model)[f"{odd}.lora_a"].shape == (32, 3)


def test_experts_take_lora_and_refuse_dora(tmp_path):
    source = write_family(tmp_path / "model", "gemma4, K is V, experts")
    with pytest.raises(EngineError, match="mixture of experts"):
        add_adapter(load(source), settings(adapter_kind="dora"))
    config = settings(targets="up_proj")
    model = load(source)
    add_adapter(model, config)
    folder = saved(shaken(model), config, tmp_path / "adapter")
    theirs, _ = mlx_lm.utils.load_model(source)
    mlx_lm.utils.load_adapters(theirs, str(folder))
    assert difference(theirs(IDS), model(IDS)) < 1e-5
    assert json.loads((folder / "adapter_config.json").read_text())["lora_parameters"]["rank"] == 3


@KINDS
def test_the_base_answers_while_the_adapter_is_left_out(kind, tmp_path):
    model = load(write_llama(tmp_path))
    before = model(IDS)
    add_adapter(model, settings(adapter_kind=kind, last_layers=2, dropout=0.5))
    shaken(model).eval()
    adapted, modules = model(IDS), dict(model.named_modules())
    assert difference(adapted, before) > 1e-2
    with without_adapter(model):
        assert difference(model(IDS), before) == 0
        with without_adapter(model):  # there is none to leave out
            assert difference(model(IDS), before) == 0
        assert not trained(model)
    with pytest.raises(KeyError), without_adapter(model):
        raise KeyError
    assert difference(model(IDS), adapted) == 0
    after = dict(model.named_modules())
    assert after.keys() == modules.keys()
    assert all(after[name] is module for name, module in modules.items())


def test_the_seed_decides_the_first_values(tmp_path):
    folder = write_llama(tmp_path)
    drawn = []
    for seed in (1, 1, 2):
        model = load(folder)
        add_adapter(model, settings(seed=seed))
        drawn.append(trained(model)["model.layers.3.mlp.up_proj.lora_a"])
    assert difference(drawn[0], drawn[1]) == 0
    assert difference(drawn[0], drawn[2]) > 0


def test_dropout_acts_in_training_only(tmp_path):
    model = load(write_llama(tmp_path))
    add_adapter(model, settings(dropout=0.5))
    shaken(model).train()
    assert difference(model(IDS), model(IDS)) > 1e-3
    model.eval()
    assert difference(model(IDS), model(IDS)) == 0


@pytest.mark.parametrize("last", [0, 1, 3, 5])
def test_only_the_last_layers_are_adapted(last, tmp_path):
    model = load(write_llama(tmp_path, layers=5))
    add_adapter(model, settings(last_layers=last))
    adapted = {int(name.split(".")[2]) for name in trained(model)}
    assert adapted == set(range(5 - (last or 5), 5))


def test_more_layers_than_there_are_is_refused(tmp_path):
    with pytest.raises(EngineError, match=r"has 5 decoder layers.* 6"):
        add_adapter(load(write_llama(tmp_path, layers=5)), settings(last_layers=6))


def test_targets_are_looked_for_in_every_layer(tmp_path):
    # The last three layers of this one use the keys and values of earlier ones.
    model = load(write_family(tmp_path, "gemma4 that sees"))
    add_adapter(model, settings(targets="k_proj, per_layer_input_gate, qkv_proj"))
    adapted = {tuple(name.split(".")[3:-1]) for name in trained(model)}
    assert adapted == {
        *((str(layer), "self_attn", "k_proj") for layer in range(4)),
        *((str(layer), "per_layer_input_gate") for layer in range(7)),
    }


@pytest.mark.parametrize(
    ("family", "targets", "has"),
    [("phi3", "q_proj", "o_proj, down_proj, qkv_proj, gate_up_proj"), ("gemma4", "k_proj", "q_proj, o_proj")],
)
def test_targets_that_no_layer_has_are_refused(family, targets, has, tmp_path):
    model = load(write_family(tmp_path, family))
    with pytest.raises(EngineError) as refusal:
        add_adapter(model, settings(targets=targets, last_layers=3))
    assert targets in refusal.value.message
    assert has in refusal.value.hint


@KINDS
@pytest.mark.parametrize("by_file", [False, True])
def test_continuing_keeps_what_the_adapter_is(by_file, kind, tmp_path):
    source = write_llama(tmp_path / "model", layers=5)
    made = settings(adapter_kind=kind, last_layers=2, scale=4, targets="q_proj, up_proj", rslora=True)
    first = load(source)
    add_adapter(first, made)
    folder = saved(shaken(first), made, tmp_path / "run")
    path = folder / "adapters.safetensors" if by_file else folder
    config = TrainConfig.from_mapping({"adapter": str(path), "rank": 7, "dropout": 0.25})
    model = load(source)
    sentence = add_adapter(model, config)
    name = {"lora": "LoRA", "dora": "DoRA"}[kind]
    assert sentence == (
        f"Continuing from {tmp_path.name}/run: {name}, rank 3, scale 2.3094, q_proj, up_proj in the last 2 of 5 "
        "layers, as it was made."
    )
    assert trained(model).keys() == trained(first).keys()
    assert difference(model.eval()(IDS), first.eval()(IDS)) == 0
    again = saved(model, config, tmp_path / "again")
    before, after = (json.loads((one / "adapter_config.json").read_text()) for one in (folder, again))
    assert before.pop("rslora")
    assert before["lora_parameters"].pop("dropout") == 0
    assert after["lora_parameters"].pop("dropout") == 0.25
    assert after == before


@KINDS
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16])
def test_continuing_from_an_adapter_that_mlx_lm_made(dtype, kind, tmp_path):
    source = write_llama(tmp_path / "model", layers=5)
    theirs, _ = mlx_lm.utils.load_model(source)
    theirs.freeze()
    parameters = {"rank": 8, "dropout": 0.0, "scale": 20.0}
    linear_to_lora_layers(theirs, -1, parameters, use_dora=kind == "dora")
    weights = {name: array.astype(dtype) for name, array in trained(shaken(theirs)).items()}
    theirs.load_weights(list(weights.items()), strict=False)
    mx.save_safetensors(str(tmp_path / "adapters.safetensors"), weights)
    written = {"fine_tune_type": kind, "num_layers": -1, "lora_parameters": parameters, "optimizer": "adam"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(written))
    model = load(source)
    sentence = add_adapter(model, TrainConfig.from_mapping({"adapter": str(tmp_path)}))
    assert "rank 8, scale 20, down_proj," in sentence
    assert "all 5 layers" in sentence
    # Half precision is made float32 to be trained, exactly; theirs computes x A B in it: 2^-11 of values around 1e3.
    expected = theirs(IDS).astype(mx.float32)
    assert difference(model(IDS), expected) < (1e-5 if dtype == mx.float32 else 0.05) * mx.abs(expected).max().item()
    for name, array in trained(model).items():
        assert array.dtype == mx.float32
        assert difference(array, weights[name].astype(mx.float32)) == 0


LORA = {"rank": 3, "scale": 2.0, "dropout": 0.0, "keys": ["self_attn.q_proj"]}


@pytest.mark.parametrize(
    ("written", "cause"),
    [
        ({}, "does not say its lora_parameters"),
        ({"num_layers": 5, "lora_parameters": {"rank": 3, "alpha": 16}}, "does not say its scale"),
        ({"lora_parameters": LORA}, "does not say its num_layers"),
        ({"num_layers": 5, "lora_parameters": {**LORA, "rank": -1}}, "its rank, scale or dropout"),
        ({"num_layers": 5, "lora_parameters": {**LORA, "rank": 1e300}}, "its rank, scale or dropout"),
        ({"num_layers": 5, "lora_parameters": {**LORA, "scale": float("nan")}}, "its rank, scale or dropout"),
        ({"num_layers": 5, "lora_parameters": {**LORA, "dropout": 1}}, "its rank, scale or dropout"),
        ({"num_layers": 5, "lora_parameters": {**LORA, "keys": "q_proj"}}, "its keys are no names"),
        ({"num_layers": 5, "lora_parameters": 3}, "makes no sense"),
        ({"fine_tune_type": "full", "num_layers": 5}, "holds a full fine-tune"),
        ({"fine_tune_type": "vera", "num_layers": 5}, "its kind is vera"),
        ({"num_layers": 5, "lora_parameters": {**LORA, "keys": ["lm_head"]}}, "also changes lm_head"),
        ({"num_layers": 4, "lora_parameters": LORA}, "layers.0.self_attn.q_proj.lora_a does not fit"),
        ({"num_layers": 5, "lora_parameters": {**LORA, "rank": 4}}, "layers.0.self_attn.q_proj.lora_a does not fit"),
        ({"num_layers": 5, "lora_parameters": {**LORA, "keys": None}}, "lora_a does not fit"),
        ({"fine_tune_type": "dora", "num_layers": 5, "lora_parameters": LORA}, "q_proj.m does not fit"),
    ],
)
def test_adapters_that_do_not_fit_are_refused(written, cause, tmp_path):
    source = write_llama(tmp_path / "model", layers=5, tied=False)
    config = settings(targets="q_proj")
    model = load(source)
    add_adapter(model, config)
    folder = saved(model, config, tmp_path / "adapter")
    load_adapter(load(source), folder)  # as it was written it fits
    (folder / "adapter_config.json").write_text(json.dumps(written))
    with pytest.raises(EngineError, match=cause) as refusal:
        load_adapter(load(source), folder)
    assert refusal.value.hint
    with pytest.raises(EngineError, match=cause):
        add_adapter(load(source), TrainConfig.from_mapping({"adapter": str(folder)}))


def cut_off(folder):
    weights = folder / "adapters.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])


def whole_numbers(folder):
    mx.save_safetensors(str(folder / "adapters.safetensors"), {"a": mx.array([1, 2])})


def empty(folder):
    mx.save_safetensors(str(folder / "adapters.safetensors"), {})
    values = {"num_layers": 5, "lora_parameters": {**LORA, "keys": []}}
    (folder / "adapter_config.json").write_text(json.dumps(values))


def not_json(folder):
    (folder / "adapter_config.json").write_text("{")


def no_settings(folder):
    (folder / "adapter_config.json").unlink()


@pytest.mark.parametrize("damage", [cut_off, whole_numbers, empty, not_json, no_settings])
def test_damaged_adapters_are_told_with_a_cure(damage, tmp_path):
    source, config = write_llama(tmp_path / "model"), settings()
    model = load(source)
    add_adapter(model, config)
    folder = saved(model, config, tmp_path / "adapter")
    damage(folder)
    with pytest.raises(EngineError, match=str(folder)) as refusal:
        load_adapter(load(source), folder)
    assert "adapter" in refusal.value.hint.lower()


@KINDS
@pytest.mark.parametrize("values", [{}, {"last_layers": 2}, {"targets": "k_proj, o_proj, down_proj"}])
def test_the_estimate_counts_the_adapter_of_a_real_model(values, kind, tmp_path):
    source = write_llama(tmp_path / "model", layers=5, intermediate_size=56)
    config = settings(adapter_kind=kind, **values)
    model = load(source)
    add_adapter(model, config)
    count = sum(array.size for array in trained(model).values())
    shape = architecture(Path(source))
    assert adapter_parameters(shape, config) == count
    folder = saved(model, config, tmp_path / "adapter")
    continuing = TrainConfig.from_mapping({"adapter": str(folder), "rank": 50})
    assert adapter_parameters(shape, continuing) == count
