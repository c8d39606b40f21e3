"""What a run holds on to: flat memory over many steps, nothing left when it ends, no child that outlives its parent."""

import gc
import json
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import psutil
import pytest
from tiny_models import write_llama

from engine import isolated
from engine.backend import mx, on_cpu
from engine.config import GB, TrainConfig
from engine.data.batch import make_batch
from engine.data.tokenize import Example, Pair
from engine.events import Failed, Finished, Started, Step, from_line
from engine.memory import hold_to
from engine.trainer import train

MB = 1024**2

# A process of its own, as the window has it. Two things are kept out of what it takes, so that the engine's growth
# stands out: NumPy keeps up to seven freed arrays of every size below 1 KB, 3.6 MB in all, here from the start; and
# mlx.nn's Module.update leaves reference cycles, 5 KB a step, for which Python's collector comes by too seldom.
CHILD = """
import gc, json, sys
import numpy as np
from engine.config import TrainConfig
from engine.events import to_line
from engine.trainer import train
for size in range(1, 1024):
    arrays = [np.empty(size, np.int8) for _ in range(7)]
    del arrays
for number, event in enumerate(train(TrainConfig.from_mapping(json.loads(sys.argv[1])))):
    print(to_line(event), flush=True)
    if number % 10 == 0:
        gc.collect()
"""

# A window that trains in its child and tells the child's process id after the first step.
WINDOW = """
import json, sys
import psutil
from engine import isolated
from engine.config import TrainConfig
from engine.events import Step
for event in isolated.train(TrainConfig.from_mapping(json.loads(sys.argv[1]))):
    if isinstance(event, Step) and event.step == 1:
        print(psutil.Process().children()[0].pid, flush=True)
"""

# On a GPU a buffer out of MLX's cache may be two pages too large, which counts as active memory.
exact = pytest.mark.skipif(not on_cpu(), reason="a GPU's active memory varies by which buffers its cache had")


@pytest.fixture
def settings(tmp_path):
    return {
        "model": str(write_llama(tmp_path / "model", layers=2)),
        "data": str(write_answers(tmp_path / "answers.jsonl")),
        "output": str(tmp_path / "run"),
        "rank": 4,
        "batch_size": 3,
        "evaluate_every": 10,
    }


@pytest.fixture
def pairs(settings, tmp_path):
    return settings | {"data": str(write_pairs(tmp_path / "pairs.jsonl"))}


def write_answers(path):
    """40 rows of all lengths from 30 to 108 bytes."""
    rows = [{"prompt": "a" * (1 + n % 7 * 3), "completion": "b" * (1 + n)} for n in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_pairs(path):
    """40 pairs; prompts and both answers vary in length, each in its own rhythm."""
    rows = [{"prompt": "a" * (1 + n), "chosen": "b" * (1 + n % 7), "rejected": "c" * (1 + n % 11)} for n in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def events_of_a_child(settings):
    argv = [sys.executable, "-c", CHILD, json.dumps(settings)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    events = [from_line(line) for line in done.stdout.splitlines()]
    assert isinstance(events[-1], Finished), events[-1]
    return events


def test_active_memory_is_flat_and_the_cache_within_its_limit(settings):
    events = events_of_a_child(settings | {"steps": 120})
    started = next(event for event in events if isinstance(event, Started))
    steps = [event for event in events if isinstance(event, Step)]
    assert len({step.tokens for step in steps}) > 20
    assert max(step.cache_bytes for step in steps) <= (0 if on_cpu() else started.budget_bytes // 8)
    if on_cpu():
        assert len({step.active_bytes for step in steps}) == 1


@pytest.mark.slow
@exact
@pytest.mark.parametrize(("objective", "count"), [("sft", 1000), ("orpo", 300), ("dpo", 300)])
def test_the_footprint_does_not_grow(settings, pairs, objective, count):
    given = (settings if objective == "sft" else pairs) | {"objective": objective, "steps": count}
    steps = [event for event in events_of_a_child(given) if isinstance(event, Step)]
    assert len(steps) == count
    assert len({step.active_bytes for step in steps[19:]}) == 1
    # 1 % is 1 MB here. A tiny model leaves it to the interpreter and its libraries: 1.1 KB a step would show.
    assert max(step.process_bytes for step in steps[20:]) <= 1.01 * max(step.process_bytes for step in steps[:20])


def test_a_layout_is_gone_with_its_batch():
    ids = np.arange(9, dtype=np.int32)
    sides = [Example(1, np.append(ids, last), np.arange(10) > 5, 0) for last in (9, 10)]
    forest = make_batch([Pair(1, *sides)]).forests[0]
    assert not forest.is_plain
    forest.blocks(4, None)
    gone = weakref.ref(forest)
    del forest
    assert gone() is None


def finish(config):
    assert isinstance(list(train(config))[-1], Finished)


def stop(config):
    events = []
    for event in train(config.updated({"steps": 10_000}), lambda: any(isinstance(e, Step) for e in events)):
        events.append(event)
    assert events[-1].stopped


def close(config):
    events = train(config.updated({"steps": 10_000}))
    assert any(isinstance(event, Step) for event in events)
    events.close()


def fail(config):
    model = write_llama(Path(config.model + "-broken"), layers=2, rms_norm_eps=-1e9)
    assert isinstance(list(train(config.updated({"model": str(model)})))[-1], Failed)


@exact
@pytest.mark.parametrize("end", [finish, stop, close, fail])
def test_a_run_leaves_nothing_behind(settings, end, tmp_path):
    """No arrays, threads or open files. A stream of MLX's on the CPU is a thread of the system's."""
    config = TrainConfig.from_mapping(settings | {"steps": 3})
    finish(config.updated({"output": str(tmp_path / "first")}))  # what is made once in a process is there from now on
    process = psutil.Process()
    gc.collect()
    before = mx.get_active_memory(), process.num_threads(), process.num_fds(), threading.active_count()
    end(config)
    gc.collect()
    assert (mx.get_active_memory(), process.num_threads(), process.num_fds(), threading.active_count()) == before


def test_a_child_that_fails_ends(settings):
    events = list(isolated.train(TrainConfig.from_mapping(settings | {"model": settings["data"]})))
    assert isinstance(events[-1], Failed)
    assert not psutil.Process().children()


def test_a_child_saves_and_ends_when_its_parent_is_killed(settings, tmp_path):
    given = settings | {"steps": 10_000, "evaluate_every": 0}
    argv = [sys.executable, "-c", WINDOW, json.dumps(given)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as window:
        child = psutil.Process(int(window.stdout.readline()))
        window.kill()
    _, alive = psutil.wait_procs([child], timeout=60)
    assert not alive
    last = from_line((tmp_path / "run" / "events.jsonl").read_text().splitlines()[-1])
    assert isinstance(last, Finished)
    assert last.stopped
    assert (tmp_path / "run" / "adapter" / "adapters.safetensors").is_file()


@pytest.mark.parametrize("budget", [GB // 10, 8 * GB])
def test_freed_buffers_stay_within_the_limit(limits, budget):
    hold_to(budget)
    limit = 0 if on_cpu() else budget // 8
    for size in range(1, 12):
        array = mx.zeros((size, MB))  # 4 MB each
        mx.eval(array)
        del array
        assert mx.get_cache_memory() <= limit


@exact
@pytest.mark.parametrize("room", [0, 64 * MB])
def test_evaluation_waits_above_the_budget(limits, room):
    """A chain of 20 links, each with two arrays of 16 MB: up to ten tasks ahead it takes 144 MB."""
    resting = mx.get_active_memory()
    hold_to(resting + room)
    link = mx.array(0.0)
    for _ in range(20):
        link = mx.exp(mx.ones((16 * MB // 4,)) * 0.1 + link).mean()
    mx.reset_peak_memory()
    mx.eval(link)
    # The limit holds tasks back, not the one that goes over it: that one's arrays, and those it reads, come on top.
    assert mx.get_peak_memory() - resting <= room + 33 * MB
