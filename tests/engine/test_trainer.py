"""Whole runs on a tiny real model: what they tell, what they leave behind, how they end."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
from tiny_models import write_llama, write_rows

from engine import isolated
from engine.config import TrainConfig
from engine.events import Evaluated, Failed, Finished, Saved, Started, Step, from_line, to_line
from engine.trainer import train

import mlx_lm.utils


@pytest.fixture
def config(tmp_path):
    return TrainConfig.from_mapping(
        {
            "model": str(write_llama(tmp_path / "model", layers=3)),
            "data": str(write_rows(tmp_path / "data.jsonl", 60)),
            "output": str(tmp_path / "run"),
            "steps": 6,
            "rank": 4,
            "learning_rate": 0.01,
            "batch_size": 3,
            "accumulate": 2,
            "evaluate_every": 3,
        }
    )


def timeless(event):
    """An event without what differs from run to run: clocks and memory."""
    fields = dataclasses.asdict(event)
    loose = {"seconds", "tokens_per_second", "phases", "budget_bytes"}
    return type(event).__name__, {k: v for k, v in fields.items() if k not in loose and not k.endswith("_bytes")}


def test_a_run_from_its_first_event_to_its_last(config, tmp_path):
    events = list(train(config))
    kinds = [type(event) for event in events if isinstance(event, (Started, Step, Evaluated, Saved, Finished))]
    look = [Step, Step, Step, Evaluated, Saved]
    assert kinds == [Started, Evaluated, *look, *look, Finished]
    finished = events[-1]
    assert finished.last_loss < 0.9 * finished.first_loss
    assert not finished.stopped
    written = [from_line(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert written == [event for event in events if type(event) in (*kinds,)]
    assert json.loads((tmp_path / "run" / "config.json").read_text()) == config.to_mapping()
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"adapter", "config.json", "events.jsonl"}


def test_the_adapter_is_what_mlx_lm_loads(config):
    finished = list(train(config))[-1]
    plain, _ = mlx_lm.utils.load_model(Path(config.model))
    adapted, _ = mlx_lm.utils.load_model(Path(config.model))
    mlx_lm.utils.load_adapters(adapted, str(Path(finished.adapter).parent))
    ids = mlx_lm.utils.mx.array([[5, 6, 7, 8]])
    assert np.abs(np.array(adapted(ids)) - np.array(plain(ids))).max() > 1e-3


def test_the_child_process_tells_the_same(config, tmp_path):
    here = [timeless(event) for event in train(config)]
    there = [timeless(event) for event in isolated.train(config.updated({"output": str(tmp_path / "other")}))]
    assert json.dumps(there).replace("/other", "/run") == json.dumps(here)


def test_segments_do_not_change_what_is_learned(config, tmp_path):
    losses = []
    for size in (0, 1, 2):
        changed = config.updated({"segment_size": size, "output": str(tmp_path / f"size-{size}")})
        losses.append([event.loss for event in train(changed) if isinstance(event, Step)])
    # Six steps let float32 differences grow; they start at 1e-6.
    np.testing.assert_allclose(losses[1:], [losses[0]] * 2, rtol=1e-3)


def test_epochs_train_every_row_alike(config):
    config = config.updated({"steps": 0, "epochs": 2.0, "batch_size": 5, "accumulate": 1, "evaluate_every": 0})
    events = list(train(config))
    started = next(event for event in events if isinstance(event, Started))
    steps = [event for event in events if isinstance(event, Step)]
    assert (started.train_rows, started.valid_rows) == (54, 6)
    assert len(steps) == started.steps == 22
    assert steps[-1].trained_tokens < steps[0].trained_tokens  # 108 rows: the last step has the three left


@pytest.mark.parametrize("runner", [train, isolated.train])
def test_stopping_saves(config, runner):
    seen = []
    for event in runner(config.updated({"steps": 10_000}), lambda: any(isinstance(e, Step) for e in seen)):
        seen.append(event)
    assert isinstance(seen[-1], Finished)
    assert seen[-1].stopped
    assert Path(seen[-1].adapter).is_file()


def test_a_killed_child_is_a_sentence(config):
    events = isolated.train(config.updated({"steps": 10_000}))
    for event in events:
        if isinstance(event, Step):
            (child,) = psutil.Process().children()
            os.kill(child.pid, signal.SIGKILL)
            break
    last = list(events)[-1]
    assert isinstance(last, Failed)
    assert last.kind == "died"
    assert "Traceback" not in last.message + last.hint


@pytest.mark.parametrize(
    ("said", "kind", "sentence"),
    [
        ("Command buffer execution failed: Impacting Interactivity (0000000e)", "died", "kept the display waiting"),
        ("Command buffer execution failed: Insufficient Memory (00000008)", "memory", "needed more memory"),
        ("", "died", "ended unexpectedly by signal SIGABRT"),
    ],
)
def test_what_metal_says_last_is_told_in_a_sentence(tmp_path, said, kind, sentence):
    code = f"import os, sys; print({said!r}, file=sys.stderr, flush=True); os.abort()"
    with (tmp_path / "stderr").open("w+b") as errors:
        (last,) = isolated._events([sys.executable, "-c", code], errors, lambda: False)
    assert last.kind == kind
    assert sentence in last.message
    assert last.hint


def test_closing_the_iterator_ends_the_child(config):
    events = isolated.train(config.updated({"steps": 10_000}))
    next(events)
    (child,) = psutil.Process().children()
    events.close()
    assert not child.is_running()


def test_a_parent_that_dies_stops_the_run(config, tmp_path):
    settings = tmp_path / "config.json"
    settings.write_text(json.dumps(config.updated({"steps": 10_000}).to_mapping()))
    argv = isolated.command("train", "--config", str(settings), "--events", "--stop-on-eof")
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert from_line(done.stdout.splitlines()[-1]).stopped


def broken_rows(config, path):
    path.write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "a", "completion": null}\n')
    return {"data": str(path)}


FAILURES = {
    "no data": lambda config, path: {"data": ""},
    "missing data": lambda config, path: {"data": str(path / "none.jsonl")},
    "broken rows": lambda config, path: broken_rows(config, path / "broken.jsonl"),
    "empty data": lambda config, path: {"data": str((path / "e.jsonl").write_text("") or path / "e.jsonl")},
    "no model": lambda config, path: {"model": str(path / "nowhere")},
    "not a model": lambda config, path: {"model": str(path)},
    "a hub name": lambda config, path: {"model": "owner/name"},
    "another family": lambda config, path: {"model": str(write_llama(path / "m", model_type="mamba"))},
    "own code": lambda config, path: {"model": str(write_llama(path / "m", model_file="evil.py"))},
    "too little memory": lambda config, path: {
        "memory_budget_gb": 0.1,
        "model": str(write_llama(path / "m", layers=8, hidden_size=512, intermediate_size=2048)),
    },
    "run folder in use": lambda config, path: {"output": str(path)},
    "no numbers": lambda config, path: {"model": str(write_llama(path / "m", rms_norm_eps=-1e9))},
}


@pytest.mark.parametrize("name", FAILURES)
def test_what_can_not_be_met_fails_with_cause_and_cure(name, config, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    last = list(train(config.updated(FAILURES[name](config, tmp_path))))[-1]
    assert isinstance(last, Failed), last
    assert last.kind in ("request", "memory"), last.details
    assert last.message
    assert last.hint
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in before.items()), "a file was overwritten"


def write_pairs(path, count=60):
    lines = [{"prompt": f"Say {n}.", "chosen": f"{n}, gladly.", "rejected": f"No {n}!"} for n in range(count)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


@pytest.mark.parametrize("objective", ["orpo", "dpo"])
def test_pairs_are_learned_and_told(objective, config, tmp_path):
    pairs = write_pairs(tmp_path / "pairs.jsonl")
    events = list(train(config.updated({"objective": objective, "data": pairs, "steps": 9, "learning_rate": 0.02})))
    looks = [event for event in events if isinstance(event, Evaluated)]
    assert looks[-1].loss < looks[0].loss
    assert looks[-1].preference.margin > looks[0].preference.margin
    assert looks[-1].preference.accuracy > 0.9
    assert all(event.preference is not None for event in events if isinstance(event, Step))
    if objective == "dpo":  # nothing has moved yet: every margin is 0
        assert looks[0].loss == pytest.approx(np.log(2), abs=1e-6)


def test_dpo_that_goes_on_from_an_adapter_compares_with_the_model_that_it_came_with(config, tmp_path):
    first = list(train(config))[-1]
    again = config.updated(
        {
            "objective": "dpo",
            "data": write_pairs(tmp_path / "pairs.jsonl"),
            "adapter": str(Path(first.adapter).parent),
            "output": str(tmp_path / "again"),
            "dropout": 0.0,
        }
    )
    look = next(event for event in train(again) if isinstance(event, Evaluated))
    assert look.loss == pytest.approx(np.log(2), abs=1e-6)


def test_a_full_disk_is_told(config, tmp_path, monkeypatch):
    """The child may write files of 20 kB at most, as on a disk that is full after them."""
    settings = tmp_path / "config.json"
    settings.write_text(json.dumps(config.to_mapping()))
    code = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)); "
        f"from engine.cli import main; raise SystemExit(main(['train', '--config', {str(settings)!r}, '--events']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    failed = from_line(done.stdout.splitlines()[-1])
    assert done.returncode == 2, done.stdout
    assert failed.kind == "disk"
    assert not list((tmp_path / "run").glob(".adapter*"))


def test_events_travel_as_lines(config):
    for event in train(config):
        assert from_line(to_line(event)) == event
    for line in ("", "[]", '{"event": "nonsense"}', '{"event": "saved"}', "null"):
        with pytest.raises(ValueError):  # noqa: PT011
            from_line(line)
