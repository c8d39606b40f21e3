"""The schedule's shape, and AdamW against its formula in float64."""

from itertools import pairwise

import numpy as np
import pytest

from engine.backend import mx, nn
from engine.config import TrainConfig
from engine.optimizer import Optimizer, learning_rate


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


def test_adamw_with_a_limit_on_the_gradient():
    config = TrainConfig.from_mapping({"learning_rate": 0.1, "warmup": 0, "schedule": "constant", "weight_decay": 0.05})
    model = nn.Linear(3, 2, bias=False)
    value, first, second = np.array(model.weight, np.float64), 0.0, 0.0
    optimizer = Optimizer(config, 10)
    for step in range(1, 4):
        gradient = np.random.default_rng(step).standard_normal((2, 3))
        rate, norm = optimizer.update(model, {"weight": mx.array(gradient.astype(np.float32))}, step)
        length = np.linalg.norm(gradient)
        assert norm == pytest.approx(length, rel=1e-6)
        clipped = gradient / max(1.0, length)
        first, second = 0.9 * first + 0.1 * clipped, 0.999 * second + 0.001 * clipped**2
        moments = first / (1 - 0.9**step), second / (1 - 0.999**step)
        value = value * (1 - rate * 0.05) - rate * moments[0] / (np.sqrt(moments[1]) + 1e-8)
        # The limit divides by length + 1e-6, and float32 rounds: together a few parts in a million.
        np.testing.assert_allclose(np.array(model.weight), value, rtol=1e-5, atol=1e-5)
