"""Measure: a child process, its progress and its end, and for which settings its answer counts."""

import json
from pathlib import Path

import pytest

from app.states import State


@pytest.fixture
def measured_window(window, data, ready):
    """A window with the sample's model and a data file of this name, ready to measure."""

    def make(name):
        window.try_sample()
        ready(window)
        window.open_data(data(name))
        ready(window)
        return window

    return make


@pytest.fixture
def measure(qtbot):
    def run(window):
        window.sidebar.memory.measure.click()
        assert window.session.probing.busy
        qtbot.waitUntil(lambda: not window.session.probing.busy, timeout=10_000)

    return run


def test_predicted_and_measured_stand_side_by_side(measured_window, measure):
    window = measured_window("plain.jsonl")
    memory = window.sidebar.memory
    measure(window)
    text = memory.measuring.text.text()
    assert "Segment size 6: predicted 0.30 GB, measured 0.28 GB, 1.9 s a step." in text
    assert "follow the measurement" in text
    assert "measured" in memory.bars.accessibleDescription()
    assert "measured" in memory.legend.accessibleName()


def test_the_child_gets_the_settings_with_the_budget_in_sight(measured_window, child_at, qtbot):
    window = measured_window("slow.jsonl")
    session = window.session
    assert session.config.memory_budget_gb == "auto"
    session.measure()
    qtbot.waitUntil(lambda: session.probing.stage is not None)
    child = child_at("probe")
    handed = json.loads(Path(child.cmdline()[child.cmdline().index("--config") + 1]).read_text(encoding="utf-8"))
    # To within what a float of GB can hold.
    assert handed.pop("memory_budget_gb") * 1024**3 == pytest.approx(session.outlook.budget_bytes, abs=1)
    expected = session.config.to_mapping()
    del expected["memory_budget_gb"]
    assert handed == expected
    window.close()


def test_while_it_runs_it_says_how_far_and_start_is_off(measured_window, child_at, qtbot):
    window = measured_window("slow.jsonl")
    memory = window.sidebar.memory
    memory.measure.click()
    qtbot.waitUntil(lambda: window.session.probing.stage is not None)
    assert memory.measuring.text.text() == "Measuring segment size 6…"
    assert memory.measuring.progress.isVisibleTo(memory)
    assert memory.measuring.progress.maximum() == 0  # of one thing it can't be told how far it is
    assert not memory.measure.isEnabled()
    assert not window.bar.start.isEnabled()
    assert "measured" in window.bar.start.toolTip()
    child = child_at("probe")
    memory.measuring.stop.click()
    qtbot.waitUntil(lambda: not window.session.probing.busy)
    assert not child.is_running()
    assert memory.measuring.isHidden()
    assert window.bar.start.isEnabled()


@pytest.mark.parametrize("change", [{"max_length": 1024}, {"batch_size": 2}, {"rank": 8}, {"head_chunk": 64}])
def test_an_answer_counts_only_for_the_settings_it_was_made_for(measured_window, measure, change):
    window = measured_window("plain.jsonl")
    session, memory = window.session, window.sidebar.memory
    before = {name: getattr(session.config, name) for name in change}
    measure(window)
    session.change(**change)
    assert memory.measuring.text.text().startswith("Measured for other settings")
    assert "measured" not in memory.bars.accessibleDescription()
    session.change(**before)
    assert "measured 0.28 GB" in memory.measuring.text.text()


@pytest.mark.parametrize("change", [{"learning_rate": 1e-5}, {"seed": 3}, {"epochs": 1.0}, {"segment_size": 1}])
def test_an_answer_stays_when_memory_does_not_depend_on_the_change(measured_window, measure, change):
    window = measured_window("plain.jsonl")
    measure(window)
    window.session.change(**change)
    assert "measured 0.28 GB" in window.sidebar.memory.measuring.text.text()


def test_a_probe_that_dies_of_memory_is_an_answer(measured_window, measure):
    window = measured_window("greedy.jsonl")
    window.session.change(segment_size=6)
    memory = window.sidebar.memory
    measure(window)
    assert window.session.probing.failure is None
    assert "memory ran out" in memory.measuring.text.text()
    assert "memory ran out when measured" in memory.bars.accessibleDescription()
    assert memory.state.state is State.TOO_BIG
    assert not window.bar.start.isEnabled()
    window.session.change(segment_size=1)  # of which nothing is known but its prediction
    assert memory.state.state is State.FITS


def test_a_failure_is_said_with_its_cure_and_measuring_goes_on(measured_window, measure):
    window = measured_window("unfit.jsonl")
    memory = window.sidebar.memory
    measure(window)
    assert "The rows can't be measured. Choose other data." in memory.measuring.text.text()
    assert memory.measure.isEnabled()
    before = window.session.config.batch_size
    window.session.change(batch_size=before + 1)  # of which nothing is known
    assert memory.measuring.isHidden()
    window.session.change(batch_size=before)
    assert "can't be measured" in memory.measuring.text.text()


def test_measure_says_why_it_is_off(window, data, ready, qtbot):
    memory = window.sidebar.memory
    assert not memory.measure.isEnabled()
    assert memory.measure.toolTip() == "Choose data to start."
    window.open_data(data("errors.jsonl"))
    qtbot.waitUntil(lambda: window.session.check.result is not None)
    assert not memory.measure.isEnabled()
    assert memory.measure.toolTip() == window.session.dataset().reason
    window.open_data(data("slow.jsonl"))
    ready(window)
    assert memory.measure.isEnabled()
    window.bar.start.click()
    assert not memory.measure.isEnabled()
    assert memory.measure.toolTip().startswith("Training")


def test_what_does_not_fit_by_prediction_can_be_measured(measured_window):
    window = measured_window("plain.jsonl")
    window.session.change(rank=1024, memory_budget_gb=0.1)
    assert window.sidebar.memory.state.state is State.TOO_BIG
    assert window.sidebar.memory.measure.isEnabled()


def test_closing_the_window_ends_a_probe(measured_window, child_at, qtbot):
    window = measured_window("slow.jsonl")
    window.sidebar.memory.measure.click()
    qtbot.waitUntil(lambda: window.session.probing.stage is not None)
    child = child_at("probe")
    assert window.close()
    assert not child.is_running()
