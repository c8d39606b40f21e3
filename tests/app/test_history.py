"""What a run has told: columns that grow, running means, and values that only pairs have."""

import numpy as np
import pytest

from app.history import History
from engine.events import Evaluated, Phase, Predicted, Preference, Started, Step


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


def started(**told):
    return Started("", 600, 6, 5, 4000, 700, 1500, 9, 1, "", 100, **told)


def test_what_the_steps_took_adds_up_to_time():
    history = History()
    for number in range(1, 601):
        history.add(step(number, 1.0, pair=False))
    # 600 additions of 0.1 in float64.
    np.testing.assert_allclose(history.elapsed, 0.1 * np.arange(1, 601), rtol=1e-12)


def test_arrays_count_together_with_the_program():
    history = History()
    assert (history.peak_bytes, history.resting_bytes, history.budget_bytes, history.predicted_peak_bytes) == (0,) * 4
    history.begin(started(program_bytes=300, predicted=[Predicted("head", 0, {"program": 250, "head": 900})]))
    for number, (peak, process) in enumerate([(1000, 900), (1100, 1350), (1050, 1450)], start=1):
        history.add(Step(number, 600, 1.0, 1e-4, 0.5, 10, 5, 100.0, 0.1, peak, 1, 0, process, swap_bytes=number))
        assert history.peak_bytes == (1300, 1400, 1450)[number - 1]
    assert history["swap_bytes"].tolist() == [1, 2, 3]
    assert (history.resting_bytes, history.budget_bytes, history.predicted_peak_bytes) == (1000, 4000, 1500)
    assert history.measured_bytes(Phase("head", 0, 800)) == 1100
    assert history.predicted_parts(Phase("head", 0, 800)) == {"program": 250, "head": 900}


def test_a_run_without_a_prediction_has_no_parts():
    history = History()
    history.begin(started())
    assert history.predicted_parts(Phase("forward", 2, 800)) == {}
    assert history.measured_bytes(Phase("forward", 2, 800)) == 800
