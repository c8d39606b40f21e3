"""MLX inside its budget, the watch over the footprint, and the events that tell of memory."""

import json
import os
import subprocess
import sys

import pytest

from engine.backend import mx, on_cpu
from engine.commands import common
from engine.config import GB
from engine.events import Phase, Predicted, Started, Step, Warned, from_line, to_line
from engine.machine import footprint_bytes
from engine.memory import PhaseMeter, Watch, hold_to

MB = 1024**2


@pytest.mark.parametrize(
    ("budget", "program", "expected"),
    [(8 * GB, 0, 8 * GB), (8 * GB, GB // 2, 7.5 * GB), (GB, GB, 0), (GB // 4, GB, 0)],
)
def test_mlx_may_have_what_the_program_leaves(limits, budget, program, expected):
    hold_to(budget, program)
    # Setting a limit tells the one before.
    assert mx.set_memory_limit(GB) == expected
    assert mx.set_cache_limit(0) == (0 if on_cpu() else expected // 8)


GRAPHS = "import os, engine.backend; print(os.environ['MLX_MAX_OPS_PER_BUFFER'], os.environ['MLX_MAX_MB_PER_BUFFER'])"


@pytest.mark.skipif(sys.platform != "linux", reason="Metal's own are small")
@pytest.mark.parametrize(("chosen", "told"), [({}, "20 25"), ({"MLX_MAX_OPS_PER_BUFFER": "100"}, "100 25")])
def test_cuda_is_given_small_graphs_unless_a_person_chose(chosen, told):
    # Read by MLX when its first stream is made: what is computed in one graph stays until all of it is done.
    others = {name: value for name, value in os.environ.items() if not name.startswith("MLX_MAX_")}
    command = [sys.executable, "-c", GRAPHS]
    child = subprocess.run(command, env=others | chosen, capture_output=True, text=True, check=True)
    assert child.stdout.split() == told.split()


@pytest.mark.skipif(not mx.metal.is_available(), reason="only Metal wires memory")
@pytest.mark.parametrize("budget", [GB, 1024 * GB])
def test_no_more_is_wired_than_metal_recommends(limits, budget):
    hold_to(budget, 0)
    assert mx.set_wired_limit(0) == min(budget, mx.device_info()["max_recommended_working_set_size"])


HOLDS = """
from engine.backend import mx
from engine.machine import footprint_bytes
from engine.memory import held_bytes
mx.eval(mx.ones((1,)) * 2)
before = held_bytes()
array = mx.ones(({numbers},)) * 2
mx.eval(array)
print(held_bytes() - before, held_bytes() - footprint_bytes())
"""


def test_what_the_process_holds_follows_its_arrays():
    # In a process of its own: this one has freed memory at hand, which a new array takes first.
    child = subprocess.run([sys.executable, "-c", HOLDS.format(numbers=64 * MB // 4)], capture_output=True, check=True)
    grown, beside = map(int, child.stdout.split())
    # Pages that the first evaluations in a process touch besides.
    assert grown == pytest.approx(64 * MB, abs=8 * MB)
    assert not on_cpu() or beside == pytest.approx(0, abs=MB)


class Swap:
    """The swap in use, in bytes, as a test sets it."""

    def __init__(self, used=0):
        self.used = used

    def __call__(self):
        return self.used


@pytest.mark.parametrize(
    ("footprints", "warned"),
    [
        ([0, 3, 5.8, 5.87], []),
        ([5.9, 5.9, 5.95, 5.8, 6.1], [0]),  # once, and not again for as much as that
        ([5.9, 6.3, 6.3, 6.5, 6.7], [0, 1, 4]),  # each time a twentieth more than was said
        ([9, 5, 9, 9.4], [0]),
        ([5, 7, 8], [1, 2]),
    ],
)
def test_a_warning_before_the_budget_is_passed(footprints, warned):
    watch = Watch(6 * GB, Swap())
    said = [watch.look(int(footprint * GB)) for footprint in footprints]
    assert [index for index, warning in enumerate(said) if warning] == warned
    for index in warned:
        assert said[index].message == f"Training holds {footprints[index]:.2f} of 6.00 GB."
        assert said[index].hint.endswith(".")


@pytest.mark.parametrize(
    ("swaps", "warned"),
    [
        ([2, 2, 1, 0], []),  # what was in use before we began isn't ours
        ([2.4], []),
        ([2.6, 2.6, 3], ["0.60"]),
        ([3, 3.6, 4, 4.2, 6.3], ["1.00", "2.20"]),  # twice as much as was said
        ([3, 4.2, 2, 6.5], ["1.00", "2.20", "4.50"]),
    ],
)
def test_swap_that_grows_is_told(swaps, warned):
    swap = Swap(2 * GB)
    watch, said = Watch(6 * GB, swap), []
    for used in swaps:
        swap.used = int(used * GB)
        said.append(watch.look(GB))
    assert [warning.message for warning in said if warning] == [
        f"Since training began, the machine has moved {grown} GB to swap, which slows it." for grown in warned
    ]


def test_both_are_told_together():
    swap = Swap()
    watch = Watch(6 * GB, swap)
    swap.used = GB
    message = watch.look(7 * GB).message
    assert "7.00 of 6.00 GB" in message
    assert "1.00 GB to swap" in message


def test_this_machines_own_swap_is_watched():
    assert Watch(1024 * GB).look(footprint_bytes()) is None
    assert Watch(1).look(footprint_bytes()).message.startswith("Training holds")


def test_phases_of_several_batches_are_one():
    meter = PhaseMeter()
    meter.start()
    resting = mx.get_active_memory()
    for size, name in [(4, "forward"), (16, "backward"), (8, "forward")]:
        array = mx.ones((size * MB // 4,)) * 2
        mx.eval(array)
        del array
        meter.end(name, 0)
    assert [(phase.name, phase.segment) for phase in meter.phases] == [("forward", 0), ("backward", 0)]
    # 1 MB: the scalar that the ones are multiplied by, and whole pages.
    assert [phase.peak_bytes - resting for phase in meter.phases] == pytest.approx([8 * MB, 16 * MB], abs=MB)
    assert meter.peak_bytes == meter.phases[1].peak_bytes


STARTED = {
    "run": "r", "steps": 1, "segment_size": 2, "segments": 3, "budget_bytes": 4, "resting_bytes": 5,
    "predicted_peak_bytes": 6, "train_rows": 7, "valid_rows": 8, "split": "", "trainable_parameters": 9,
}  # fmt: skip
STEP = {
    "step": 1, "steps": 2, "loss": 0.5, "learning_rate": 1e-4, "grad_norm": 1.0, "tokens": 3, "trained_tokens": 2,
    "tokens_per_second": 1.0, "seconds": 3.0, "peak_bytes": 4, "active_bytes": 5, "cache_bytes": 6, "process_bytes": 7,
}  # fmt: skip

EVENTS = [
    Warned("Training holds 5.90 of 6.00 GB.", "Close programs."),
    Started(**STARTED, predicted=[Predicted("head", 0, {"program": 1, "logits": 2})], program_bytes=3),
    Step(**STEP, swap_bytes=8, phases=[Phase("forward", 0, 4)]),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_that_tell_of_memory_travel_as_lines(event):
    assert from_line(to_line(event)) == event


@pytest.mark.parametrize(("name", "fields", "kind"), [("started", STARTED, Started), ("step", STEP, Step)])
def test_runs_from_before_are_still_read(name, fields, kind):
    """Their lines have no prediction, program or swap."""
    event = from_line(json.dumps({"event": name, **fields}))
    assert event == kind(**fields)


def test_a_prediction_without_parts_is_no_event():
    line = json.dumps({"event": "started", **STARTED, "predicted": [{"name": "head", "segment": 0}]})
    with pytest.raises(ValueError, match="not an event"):
        from_line(line)


def test_a_warning_is_told_on_the_command_line(capsys):
    common.say(EVENTS[0])
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "Training holds 5.90 of 6.00 GB.\nClose programs.\n"
