"""The probe on tiny real models, in real processes: what it answers, what it leaves, what it teaches."""

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tiny_models import write_llama

from engine import calibration, isolated, layer_peaks
from engine.architecture import architecture
from engine.calibration import NO_CORRECTION, Correction, Line, Measured, correction_for, fitted, keep
from engine.config import TrainConfig
from engine.data import load_tokenizer
from engine.data.largest import largest_rows, tokens_a_row
from engine.data.rows import usable_rows
from engine.errors import EngineError
from engine.events import Failed, Stage, Started, Step, from_line, to_line
from engine.machine import machine
from engine.probe import probe
from engine.trainer import train

MB = 1024**2


@pytest.fixture
def settings(tmp_path):
    return {
        "model": str(write_llama(tmp_path / "model", layers=3)),
        "data": str(write_same(tmp_path / "same.jsonl")),
        "rank": 4,
        "batch_size": 2,
        "memory_budget_gb": 2,
    }


@pytest.fixture
def config(settings):
    return TrainConfig.from_mapping(settings)


def write_same(path):
    """Rows of one length, so that each is the longest."""
    path.write_text(12 * (json.dumps({"prompt": "a" * 50, "completion": "b" * 200}) + "\n"))
    return path


def heavy(config, path, length):
    """16 rows at once with all their logits: 84 KB a token, beside the hundred MB of a bare process."""
    (path / "heavy.jsonl").write_text(16 * (json.dumps({"prompt": "a", "completion": "b" * length}) + "\n"))
    changes = {"data": str(path / "heavy.jsonl"), "batch_size": 16, "max_length": 4096, "head": "full"}
    return config.updated(changes)


def written(settings, path):
    path.write_text(json.dumps(settings))
    return path


def measured(kind="lean", predicted=20 * MB, **changes):
    """50 MB of program, 100 at rest, and 30 that came and went where 20 were predicted."""
    moving = {"head": 5 * MB, "working": predicted - 5 * MB}
    found = {
        "parts": {"program": 350 * MB, "weights": 70 * MB, "adapter": 20 * MB} | moving,
        "footprint_bytes": 180 * MB,
        "peak_bytes": 130 * MB,
        "resting_bytes": 100 * MB,
    }
    return Measured(kind, **(found | changes))


def test_probe_answers_on_the_command_line(settings, tmp_path):
    file = str(written(settings, tmp_path / "c.json"))
    argv = isolated.command("probe", "--config", file, "--sizes", "2", "1", "--json")
    done = subprocess.run(argv, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    *stages, answer = done.stdout.splitlines()
    told = [from_line(line) for line in stages]
    assert [(stage.done, stage.total) for stage in told] == [(0, 2), (1, 2)]
    assert all("segment size" in stage.message for stage in told)
    answer = json.loads(answer)
    assert answer["calibrated"]
    plans = {entry["segment_size"]: entry for entry in answer["plans"]}
    assert set(plans) == {1, 2, 0}
    assert "measured_bytes" not in plans[0]
    for size in (1, 2):
        assert 0 < plans[size]["measured_peak_bytes"] < plans[size]["measured_bytes"] < plans[size]["predicted_bytes"]
        assert plans[size]["seconds"] > 0
        assert plans[size]["peak_bytes"] == sum(plans[size]["parts"].values())
    assert not (tmp_path / "home" / "runs").exists()
    table = subprocess.run(argv[:-1], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout
    assert "This is kept" in table


def test_without_sizes_the_suggested_and_the_chosen_one_are_measured(config):
    suggested = probe(config)
    (only,) = [entry["segment_size"] for entry in suggested["plans"] if "measured_bytes" in entry]
    chosen = 2 if only != 2 else 1
    stages = []
    answer = probe(config.updated({"segment_size": chosen}), tell=stages.append)
    assert {entry["segment_size"] for entry in answer["plans"] if "measured_bytes" in entry} == {only, chosen}
    assert [stage.total for stage in stages] == [2, 2]


@pytest.mark.parametrize("changes", [{}, {"accumulate": 3}, {"pack": False}, {"segment_size": 1}, {"rank": 16}])
def test_the_corrected_prediction_is_what_was_measured(config, changes):
    config = config.updated({"segment_size": 2, **changes})
    (entry,) = [entry for entry in probe(config, [config.segment_size])["plans"] if "measured_bytes" in entry]
    # The bound of the promise; what is left here is rounding, since one plan gives each number that it is made of.
    assert entry["peak_bytes"] == pytest.approx(entry["measured_bytes"], rel=0.02)


def test_the_correction_holds_for_the_run_that_follows(config, tmp_path):
    probe(config, [1])
    events = list(isolated.train(config.updated({"segment_size": 1, "steps": 2, "output": str(tmp_path / "run")})))
    started = next(event for event in events if isinstance(event, Started))
    steps = [event for event in events if isinstance(event, Step)]
    assert len(steps) == 2
    assert 0 < started.program_bytes < started.predicted_peak_bytes
    # A run reports what it holds between phases, and malloc keeps a few MB more or less of it from run to run.
    assert started.predicted_peak_bytes == pytest.approx(steps[-1].process_bytes, rel=0.1)


def test_what_is_not_predictable_is_measured_and_trained_all_the_same(settings, tmp_path):
    model = write_llama(tmp_path / "odd", layers=3, num_kv_shared_layers=9)
    config = TrainConfig.from_mapping(settings | {"model": str(model), "steps": 2, "output": str(tmp_path / "run")})
    with pytest.raises(EngineError) as refused:
        architecture(model)
    assert refused.value.kind == "unknown"
    answer = probe(config, [1, 1])
    (entry,) = answer["plans"]
    assert entry.keys() == {"segment_size", "kind", "measured_bytes", "measured_peak_bytes", "seconds"}
    assert answer["suggested"]["segment_size"] == entry["segment_size"] == 1
    assert not answer["calibrated"]
    tight = heavy(config, tmp_path, length=500).updated({"memory_budget_gb": 0.1})
    assert probe(tight)["suggested"]["segment_size"] is None
    started = next(event for event in train(config) if isinstance(event, Started))
    assert (started.predicted, started.predicted_peak_bytes) == ([], 0)


def test_a_batch_too_large_for_what_is_free_is_an_answer(config, tmp_path, monkeypatch):
    little = replace(machine(), available_bytes=256 * MB)
    monkeypatch.setattr("engine.probe.machine", lambda: little)
    (entry,) = [entry for entry in probe(heavy(config, tmp_path, length=2000), [0])["plans"] if "died" in entry]
    assert "of 0.25" in entry["died"]
    assert entry["predicted_bytes"] > 0
    assert "measured_bytes" not in entry
    assert correction_for(architecture(Path(config.model)), config) == NO_CORRECTION


def test_rows_that_do_not_fill_a_batch_are_held_to_what_a_run_of_them_is(config, tmp_path, monkeypatch):
    limits, command = [], isolated.command

    def noted(*arguments):
        limits.append(json.loads(arguments[-1])["limit_bytes"])
        return command(*arguments)

    monkeypatch.setattr(isolated, "command", noted)
    few = len(usable_rows(config, load_tokenizer(Path(config.model))).train)
    for rows in (few, 4 * few):
        probe(config.updated({"batch_size": rows, "epochs": 1.0, "memory_budget_gb": 8}), [1])
        (tmp_path / "home" / "measured.json").unlink()
    assert limits[0] == limits[1]


@pytest.fixture
def measuring(settings, tmp_path):
    """A probe that has a long way to go, as a process, and the process that it measures in."""
    (tmp_path / "scratch").mkdir()
    # Hours of work: nothing here can end before it is ended.
    settings = settings | {"max_length": 65536, "data": str(write_long(tmp_path / "long.jsonl")), "segment_size": 1}
    argv = isolated.command(
        "probe", "--config", str(written(settings, tmp_path / "c.json")), "--sizes", "1", "--json", "--stop-on-eof"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    parent = subprocess.Popen(argv, text=True, env={**os.environ, "TMPDIR": str(tmp_path / "scratch")}, **pipes)
    with parent:
        assert isinstance(from_line(parent.stdout.readline()), Stage)
        children = []
        while not children:
            assert parent.poll() is None
            children = psutil.Process(parent.pid).children()
        yield parent, children[0]
        parent.kill()


def write_long(path):
    path.write_text(4 * (json.dumps({"prompt": "a", "completion": "b" * 65_000}) + "\n"))
    return path


def test_a_child_that_is_killed_is_an_answer(measuring):
    parent, child = measuring
    child.kill()
    answer = json.loads(parent.stdout.read())
    assert parent.wait(timeout=60) == 0
    (died,) = [entry["died"] for entry in answer["plans"] if "died" in entry]
    assert "memory ran out" in died
    assert not answer["calibrated"]


ENDS = {
    "SIGTERM": lambda parent: parent.terminate(),
    "SIGINT": lambda parent: parent.send_signal(signal.SIGINT),
    "end of input": lambda parent: parent.stdin.close(),
}


@pytest.mark.parametrize("end", ENDS)
def test_ending_the_probe_leaves_nothing(measuring, tmp_path, end):
    parent, child = measuring
    ENDS[end](parent)
    assert parent.wait(timeout=60) == 130
    assert not child.is_running()
    assert list((tmp_path / "scratch").iterdir()) == []
    assert "Traceback" not in parent.stderr.read()


def test_a_killed_probe_leaves_no_child(measuring):
    parent, child = measuring
    parent.kill()
    _, alive = psutil.wait_procs([child], timeout=60)
    assert alive == []


FAULTS = {
    "no data": lambda config, path: config.updated({"data": ""}),
    "no model": lambda config, path: config.updated({"model": str(path / "nowhere")}),
    # The parent reads only headers; the child is the first to see what the weights are.
    "damaged weights": lambda config, path: config.updated({"model": str(swapped(path / "swapped"))}),
    "negative size": lambda config, path: config,
}


def swapped(folder):
    """A model whose weights fit its config in every size, under another name for one of them."""
    write_llama(folder, layers=3)
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights.replace(b"model.norm.weight", b"model.nose.weight"))
    return folder


@pytest.mark.parametrize("fault", FAULTS)
def test_a_real_fault_is_an_error(config, tmp_path, fault):
    with pytest.raises(EngineError) as error:
        probe(FAULTS[fault](config, tmp_path), [-1] if fault == "negative size" else [1])
    assert error.value.kind == "request"
    assert error.value.message
    assert error.value.hint


def test_a_fault_of_our_own_comes_with_its_details(config, monkeypatch):
    failed = Failed("internal", "Something went wrong.", "Please report the details.", "Traceback: here")
    code = f"print({to_line(failed)!r})"
    monkeypatch.setattr(isolated, "command", lambda *_: [sys.executable, "-c", code])
    with pytest.raises(EngineError, match="went wrong") as error:
        probe(config, [1])
    assert error.value.kind == "internal"
    assert error.value.details == "Traceback: here"


def test_macos_that_ends_it_for_the_display_is_said(config, monkeypatch):
    code = "import os, sys; sys.stderr.write('Impacting Interactivity (0000000e)'); sys.stderr.flush(); os.abort()"
    monkeypatch.setattr(isolated, "command", lambda *_: [sys.executable, "-c", code])
    with pytest.raises(EngineError, match="kept the display waiting") as error:
        probe(config, [1])
    assert "measure again" in error.value.hint


def test_a_correction_changes_what_comes_and_goes():
    correction = Correction(60 * MB, 99 * MB, {"whole": Line(2.0), "lean": Line(1.0, 4 * MB)})
    parts = {"program": 350 * MB, "weights": 20 * MB, "adapter": 13 * MB, "working": 6 * MB, "head": 2 * MB}
    rest = {"program": 60 * MB, "weights": 60 * MB, "adapter": 39 * MB}
    assert correction.applied("whole", parts) == rest | {"working": 12 * MB, "head": 4 * MB}
    # The constant is shared out by what the parts take.
    assert correction.applied("lean", parts) == rest | {"working": 9 * MB, "head": 3 * MB}
    # A way that was not measured takes the mean of those that were: 1.5 and 2 MB.
    assert correction.applied("pieces", parts) == rest | {"working": 10.5 * MB, "head": 3.5 * MB}
    assert NO_CORRECTION.applied("whole", parts) == parts


@pytest.mark.parametrize(
    ("points", "line"),
    [
        ([(100, 90)], Line(0.9)),  # one batch, too high: a factor
        ([(100, 130)], Line(1.0, 30)),  # one batch, too low: a constant
        ([(100, 130), (110, 120)], Line(1.0, 30)),  # near one another: the same, and the most counts
        ([(100, 130), (200, 250)], Line(1.2, 10)),  # apart: the line through both
        ([(200, 250), (100, 130)], Line(1.2, 10)),
        ([(100, 100), (200, 220)], Line(1.1)),  # a constant below nothing is none, and nothing lies above
        ([(100, 130), (200, 120)], Line(1.0, 30)),  # less for more is noise
        ([(100, 130), (200, 260), (300, 330)], Line(1.0, 60)),  # none above the line
    ],
)
def test_a_line_is_fitted_to_what_was_measured(points, line):
    found = fitted(points)
    assert found.factor == pytest.approx(line.factor)
    assert found.constant_bytes == pytest.approx(line.constant_bytes)
    assert all(measured <= found.at(predicted) + 1e-9 for predicted, measured in points)


def test_what_is_kept_holds_for_this_model_and_adapter(config, tmp_path):
    shape = architecture(Path(config.model))
    assert correction_for(shape, config) == NO_CORRECTION
    assert keep(shape, config, [measured()]) == Correction(50 * MB, 100 * MB, {"lean": Line(1.0, 10 * MB)})
    both = keep(shape, config, [measured("whole", peak_bytes=120 * MB), measured("whole", footprint_bytes=190 * MB)])
    # Of two the one that took more; what was known of the other kind stays.
    assert both == Correction(60 * MB, 100 * MB, {"lean": Line(1.0, 10 * MB), "whole": Line(1.0, 10 * MB)})
    assert correction_for(shape, config) == both
    assert correction_for(shape, config.updated({"rank": 8})) == replace(both, resting_bytes=None)
    other = architecture(write_llama(tmp_path / "other", layers=4))
    assert correction_for(other, config) == NO_CORRECTION
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["measured.json"]


def test_two_batches_teach_a_line_and_the_latest_measurement_of_each_counts(config):
    shape = architecture(Path(config.model))
    keep(shape, config, [measured(peak_bytes=900 * MB)])
    keep(shape, config, [measured(predicted=40 * MB, peak_bytes=150 * MB)])
    kept = keep(shape, config, [measured()])
    assert kept.lines["lean"].factor == pytest.approx(1.0)
    assert kept.lines["lean"].constant_bytes == pytest.approx(10 * MB)
    for size in range(60, 70):
        kept = keep(shape, config, [measured(predicted=size * MB, peak_bytes=(100 + size) * MB)])
    # The file doesn't grow for ever: what was measured first is forgotten first.
    assert kept.lines["lean"] == Line()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: text.replace(str(30 * MB), "-1"),
        lambda text: text.replace(str(30 * MB), "NaN"),
        lambda text: text.replace(str(30 * MB), "null"),
        lambda text: text.replace(str(50 * MB), str(10**30)),
        lambda text: text.replace("program_bytes", "program"),
        lambda text: text.replace('"lean": [', '"whole": [], "lean": ['),
    ],
)
def test_a_damaged_file_is_no_correction(config, tmp_path, damage):
    shape, file = architecture(Path(config.model)), tmp_path / "home" / "measured.json"
    kept = keep(shape, config, [measured()])
    whole = file.read_text()
    assert damage(whole) != whole
    file.write_text(damage(whole))
    assert correction_for(shape, config) == NO_CORRECTION
    assert keep(shape, config, [measured()]) == kept


def test_what_was_measured_beside_another_prediction_is_forgotten(config, monkeypatch):
    shape = architecture(Path(config.model))
    kept = keep(shape, config, [measured()])
    calibration._key.cache_clear()
    assert correction_for(shape, config) == kept != NO_CORRECTION
    with monkeypatch.context() as changed:
        changed.setattr(layer_peaks, "_saved", lambda shape, arrays: 0)
        calibration._key.cache_clear()
        assert correction_for(shape, config) == NO_CORRECTION
    calibration._key.cache_clear()
    assert correction_for(shape, config) == kept


def test_a_full_disk_is_said(config, tmp_path):
    (tmp_path / "home").write_text("a file where the folder would be")
    with pytest.raises(EngineError) as error:
        keep(architecture(Path(config.model)), config, [measured()])
    assert error.value.kind == "disk"


def test_the_measured_step_is_the_largest_that_a_run_can_meet(config, tmp_path):
    data = tmp_path / "all.jsonl"
    data.write_text("".join(json.dumps({"prompt": "a", "completion": "b" * n}) + "\n" for n in range(1, 10)))
    config = config.updated({"data": str(data), "batch_size": 3})
    rows = usable_rows(config, load_tokenizer(Path(config.model)))
    longest = sorted((item.tokens for item in rows.train), reverse=True)

    def tokens(**changes):
        return [item.tokens for item in largest_rows(config.updated(changes), rows)]

    assert tokens() == longest[:3]
    assert tokens(accumulate=4) == longest[:6]
    assert tokens(batch_size=12, steps=5) == longest + longest[: 12 - len(longest)]
    assert tokens(batch_size=12, steps=0, epochs=1.0) == longest
    items = largest_rows(config, rows)
    assert tokens_a_row(config, items) == math.ceil(sum(longest[:3]) / 3)
    assert tokens_a_row(config.updated({"pack": False}), items) == longest[0]
