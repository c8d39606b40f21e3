"""What a run has told: columns that grow, running means, and values that only pairs have."""

import numpy as np
import pytest

from app.history import History
from engine.events import Evaluated, Preference, Step


def preference(value):
    return Preference(accuracy=value, margin=2 * value, chosen_logp=-value, rejected_logp=-3 * value)


def step(number, value, pair):
    return Step(
        number, 600, value, 1e-4, 0.5, 10, 5, 100.0, 0.1, 1, 1, 0, 2, preference=preference(value) if pair else None
    )


def running_mean(values):
    """The mean of each value and those before it, each weighing 0.9 times the next."""
    weights = [0.9 ** np.arange(index, -1, -1) for index in range(len(values))]
    return [np.average(values[: len(weight)], weights=weight) for weight in weights]


@pytest.mark.parametrize("pair", [False, True])
def test_every_step_is_kept_beyond_the_first_room(pair):
    values = np.random.default_rng(0).normal(size=600)
    history = History()
    for number, value in enumerate(values, start=1):
        history.add(step(number, value, pair))
    # Exact: nothing is computed. The running means differ by rounding alone.
    assert history["loss"].tolist() == values.tolist()
    assert history["margin"].tolist() == ((2 * values).tolist() if pair else [])
    np.testing.assert_allclose(history.smoothed("loss"), running_mean(values), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        history.smoothed("rejected_logp"), running_mean(-3 * values) if pair else [], rtol=1e-9, atol=1e-12
    )


def test_measurements_are_kept_beside_the_steps():
    history = History()
    history.measure(Evaluated(5, 1.5, 10, 20, preference(0.75)))
    assert {name: history.measured(name).tolist() for name in ("step", "loss", "accuracy", "margin")} == {
        "step": [5], "loss": [1.5], "accuracy": [0.75], "margin": [1.5],
    }  # fmt: skip
    assert history.version == 1
