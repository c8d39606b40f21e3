"""Segmented backward against one value_and_grad over mlx-lm's own forward, on tiny real models."""

import json

import numpy as np
import pytest
from tiny_models import write_llama

from engine.backend import mx, nn
from engine.config import TrainConfig
from engine.data import Example
from engine.data.batch import make_batch
from engine.memory import PhaseMeter
from engine.models.adapter import add_adapter
from engine.models.folder import open_folder
from engine.models.load import load_stack
from engine.segmented import Plan, loss_and_gradients, score

from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.utils import load_model, save_model

# Two float32 computations of the same sums in another order; measured worst 3e-6.
TOLERANCE = 1e-5
KINDS = ["plain", "untied", "sliding", "mistral", "quantized", "traditional"]


def make_folder(kind, path):
    overrides = {
        "untied": {"tied": False},
        "sliding": {
            "layer_types": ["full_attention", "sliding_attention"] * 2 + ["full_attention"],
            "sliding_window": 7,
        },
        "mistral": {"model_type": "mistral"},
    }.get(kind, {})
    folder = write_llama(path, layers=5, **overrides)
    if kind == "traditional":
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "rope_traditional": True, "rope_theta": 500.0}))
    if kind == "quantized":
        model, config = load_model(folder)
        nn.quantize(
            model,
            group_size=32,
            bits=4,
            class_predicate=lambda _, m: hasattr(m, "to_quantized") and m.weight.shape[-1] % 32 == 0,
        )
        save_model(folder, model)
        (folder / "config.json").write_text(json.dumps({**config, "quantization": {"group_size": 32, "bits": 4}}))
    return folder


def make_stack(folder, **settings):
    """The stack with an adapter whose B is not zero, or half of the gradients would be."""
    stack = load_stack(open_folder(folder))
    add_adapter(stack.model, TrainConfig.from_mapping({"rank": 3, **settings}))
    mx.random.seed(7)
    drawn = [
        (name, mx.random.normal(value.shape) * 0.1)
        for name, value in tree_flatten(stack.model.trainable_parameters())
        if name.endswith("lora_b")
    ]
    stack.model.update(tree_unflatten(drawn))
    return stack


def rows(*lengths):
    random = np.random.default_rng(5)
    return [
        Example(number, random.integers(3, 250, length).astype(np.int32), np.arange(length) >= length // 3, 0)
        for number, length in enumerate(lengths)
    ]


def unsegmented(stack, examples):
    """Token-mean loss and its gradients by one value_and_grad, row by row without padding."""

    def loss(parameters):
        stack.model.update(parameters)
        total, count = mx.array(0.0), 0
        for example in examples:
            ids = mx.array(example.ids)[None]
            losses = nn.losses.cross_entropy(stack.model(ids[:, :-1]), ids[:, 1:])
            total = total + (losses * mx.array(example.trained[1:].astype(np.float32))).sum()
            count += int(example.trained[1:].sum())
        return total / count

    parameters = stack.model.trainable_parameters()
    value, gradients = mx.value_and_grad(loss)(parameters)
    stack.model.update(parameters)
    mx.eval(value, gradients)
    return value.item(), dict(tree_flatten(gradients))


def segmented(stack, batches, size, chunk=16, seed=0):
    targets, loss, gradients, meter = sum(len(batch.targets) for batch in batches), 0.0, {}, PhaseMeter()
    for batch in batches:
        part, slopes = loss_and_gradients(stack, batch, targets, Plan(size, chunk), meter, seed)
        loss += part / targets
        gradients = {name: gradients.get(name, 0) + slope for name, slope in slopes.items()}
    return loss, gradients, meter


def assert_same(got, wanted):
    assert got.keys() == wanted.keys()
    for name, gradient in wanted.items():
        error = mx.linalg.norm(got[name] - gradient) / mx.linalg.norm(gradient)
        assert error.item() < TOLERANCE, name


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_equal_one_value_and_grad(kind, tmp_path):
    stack = make_stack(make_folder(kind, tmp_path))
    examples = rows(40, 9, 150, 23)
    loss, gradients = unsegmented(stack, examples)
    for size in (0, 1, 2, 3, 5, 9):
        got, slopes, _ = segmented(stack, [make_batch(examples)], size)
        assert got == pytest.approx(loss, rel=TOLERANCE)
        assert_same(slopes, gradients)


def test_batches_of_one_step_add_up_to_the_token_mean(tmp_path):
    stack = make_stack(make_folder("plain", tmp_path))
    examples = rows(40, 9, 30, 23, 64)
    loss, gradients = unsegmented(stack, examples)
    got, slopes, _ = segmented(stack, [make_batch(examples[:2]), make_batch(examples[2:])], 2)
    assert got == pytest.approx(loss, rel=TOLERANCE)
    assert_same(slopes, gradients)


def test_padding_and_the_order_of_rows_change_nothing(tmp_path):
    stack = make_stack(make_folder("plain", tmp_path))
    examples = rows(12, 140)
    loss, gradients, _ = segmented(stack, [make_batch(examples)], 2)
    again, slopes, _ = segmented(stack, [make_batch(examples[::-1])], 2)
    assert again == pytest.approx(loss, rel=TOLERANCE)
    assert_same(slopes, gradients)


def test_dropout_is_the_same_for_every_segment_size(tmp_path):
    stack = make_stack(make_folder("plain", tmp_path), dropout=0.4)
    stack.model.train()
    batch = make_batch(rows(30, 20))
    loss, gradients, _ = segmented(stack, [batch], 0, seed=11)
    for size in (1, 2):
        got, slopes, _ = segmented(stack, [batch], size, seed=11)
        assert got == pytest.approx(loss, rel=TOLERANCE)
        assert_same(slopes, gradients)
    assert segmented(stack, [batch], 0, seed=12)[0] != pytest.approx(loss, rel=1e-3)


def test_phases_come_in_the_order_of_the_step(tmp_path):
    stack = make_stack(make_folder("plain", tmp_path))
    _, _, meter = segmented(stack, [make_batch(rows(30))], 2)
    names = [(phase.name, phase.segment) for phase in meter.phases]
    assert names == [
        *[("forward", number) for number in range(3)],
        ("head", 2),
        *[("backward", number) for number in (2, 1, 0)],
    ]
    assert all(phase.peak_bytes > 0 for phase in meter.phases)


def test_the_stack_scores_as_mlx_lm_does(tmp_path):
    folder = make_folder("untied", tmp_path)
    model, _ = load_model(folder)
    (example,) = rows(200)
    ids = mx.array(example.ids)[None]
    logits = model(ids[:, :-1])
    expected = -np.array(nn.losses.cross_entropy(logits, ids[:, 1:]))[0][example.trained[1:]]
    got = score(load_stack(open_folder(folder)), make_batch([example]), 32)
    np.testing.assert_allclose(got, expected, atol=1e-4, rtol=1e-5)
