"""The schedule's shape, and AdamW against its formula in float64."""

import math
from itertools import pairwise

import numpy as np
import pytest

from engine.backend import mx, nn
from engine.config import TrainConfig
from engine.optimizer import Optimizer, learning_rate

from mlx.optimizers import AdamW
from mlx.utils import tree_flatten
from mlx_lm.tuner.dora import DoRALinear


@pytest.mark.parametrize(("schedule", "end"), [("cosine", 0.1), ("linear", 0.1), ("constant", 1.0)])
def test_warm_up_then_the_schedule(schedule, end):
    config = TrainConfig.from_mapping({"schedule": schedule, "warmup": 10, "learning_rate": 0.5})
    rates = [learning_rate(config, step, 100) for step in range(1, 101)]
    assert rates[:10] == pytest.approx([0.05 * step for step in range(1, 11)])
    assert rates[-1] == pytest.approx(0.5 * end)
    assert all(later <= earlier for earlier, later in pairwise(rates[9:]))


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_short_runs_still_learn(steps):
    rates = [learning_rate(TrainConfig(), step, steps) for step in range(1, steps + 1)]
    assert max(rates) == TrainConfig().learning_rate
    assert min(rates) > 0


class Reference:
    """AdamW in float64, one array."""

    def __init__(self, value):
        self.value, self.first, self.second, self.step = np.array(value, np.float64), 0.0, 0.0, 0

    def move(self, gradient, rate, decay):
        self.step += 1
        self.first = 0.9 * self.first + 0.1 * gradient
        self.second = 0.999 * self.second + 0.001 * gradient**2
        mean, square = self.first / (1 - 0.9**self.step), self.second / (1 - 0.999**self.step)
        self.value = self.value * (1 - rate * decay) - rate * mean / (np.sqrt(square) + 1e-8)


def adapted_layer():
    layer = DoRALinear(4, 3, r=2)
    layer.linear.freeze()
    layer.lora_b = mx.random.normal((2, 3))
    return layer


def draw_gradients(layer, step):
    random = np.random.default_rng(step)
    return {name: random.standard_normal(array.shape) for name, array in tree_flatten(layer.trainable_parameters())}


def in_mlx(gradients):
    return {name: mx.array(gradient.astype(np.float32)) for name, gradient in gradients.items()}


@pytest.mark.parametrize("ratio", [1.0, 16.0])
def test_adamw_with_a_limit_on_the_gradient_and_a_rate_of_its_own_for_b(ratio):
    values = {"learning_rate": 0.02, "warmup": 2, "weight_decay": 0.05, "lora_plus": ratio}
    config = TrainConfig.from_mapping(values)
    layer = adapted_layer()
    references = {name: Reference(array) for name, array in tree_flatten(layer.trainable_parameters())}
    assert references.keys() == {"lora_a", "lora_b", "m"}
    optimizer = Optimizer(config, 10)
    for step in range(1, 5):
        gradients = draw_gradients(layer, step)
        rate, norm = optimizer.update(layer, in_mlx(gradients), step)
        assert rate == learning_rate(config, step, 10)
        length = math.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
        assert norm == pytest.approx(length, rel=1e-6)
        for name, reference in references.items():
            own_rate = rate * ratio if name == "lora_b" else rate
            decay = 0.0 if name == "m" else 0.05
            reference.move(gradients[name] / max(1.0, length), own_rate, decay)
            # The limit divides by length + 1e-6, and float32 rounds: together a few parts in a million.
            np.testing.assert_allclose(np.array(layer[name]), reference.value, rtol=1e-5, atol=1e-5, err_msg=name)


def test_without_a_ratio_it_is_mlx_own_adamw_bit_for_bit():
    config = TrainConfig.from_mapping({"max_grad_norm": 0, "schedule": "constant", "warmup": 0})
    layer, optimizer = adapted_layer(), Optimizer(config, 10)
    layer.freeze(keys="m", recurse=False)
    alone = {name: mx.array(array) for name, array in tree_flatten(layer.trainable_parameters())}
    adamw = AdamW(config.learning_rate, weight_decay=config.weight_decay, bias_correction=True)
    for step in range(1, 4):
        gradients = in_mlx(draw_gradients(layer, step))
        alone = adamw.apply_gradients(gradients, alone)
        optimizer.update(layer, gradients, step)
        assert all(mx.array_equal(layer[name], array) for name, array in alone.items())


def test_layers_without_an_adapter_stay_out_of_the_step():
    model = nn.Sequential(nn.Linear(4, 4), adapted_layer())
    model.layers[0].freeze()
    before = mx.array(model.layers[0].weight)
    gradients = {f"layers.1.{name}": value for name, value in in_mlx(draw_gradients(model.layers[1], 1)).items()}
    moved = mx.array(model.layers[1].lora_b)
    Optimizer(TrainConfig.from_mapping({"lora_plus": 4}), 10).update(model, gradients, 1)
    assert mx.array_equal(model.layers[0].weight, before)
    assert not mx.array_equal(model.layers[1].lora_b, moved)
