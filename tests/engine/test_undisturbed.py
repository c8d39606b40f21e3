"""What a run asks of macOS, with a stand-in for its caffeinate."""

import os
import stat
import subprocess
import sys

import pytest

RUN = """
import os, sys
sys.platform, told = sys.argv[1], sys.argv[2]
from engine import undisturbed
undisturbed._CAFFEINATE = sys.argv[3]
undisturbed.stay_undisturbed()
print(os.getpid(), os.environ.get("AGX_RELAX_CDM_CTXSTORE_TIMEOUT"))
try:
    os.wait()
except ChildProcessError:
    pass
"""


@pytest.fixture
def caffeinate(tmp_path):
    """A stand-in that writes what it was told into `told` beside it."""
    program = tmp_path / "caffeinate"
    program.write_text(f'#!/bin/sh\necho "$@" > "{tmp_path / "told"}"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


@pytest.fixture
def prepared(caffeinate, tmp_path):
    """Prepares a process that takes itself for one of `system`: what it printed and what caffeinate was told."""
    told = tmp_path / "told"

    def prepare(system, program=caffeinate, **variables):
        argv = [sys.executable, "-c", RUN, system, told, program]
        environment = {**os.environ, **variables}
        done = subprocess.run(argv, capture_output=True, text=True, check=True, env=environment)
        return done, told.read_text().split() if told.exists() else []

    return prepare


def test_a_mac_stays_awake_as_long_as_the_run_lasts(prepared):
    done, told = prepared("darwin")
    process, relaxed = done.stdout.split()
    assert told == ["-i", "-w", process]
    assert (relaxed, done.stderr) == ("1", "")


COMMAND = """
import os, sys
from engine import cli, probe, undisturbed
undisturbed._CAFFEINATE = sys.argv[1]
sys.platform = "darwin"
sys.modules[sys.argv[2]] = None  # the first that loads MLX, and the end here
cli.main(sys.argv[3:])
print(os.environ.get("AGX_RELAX_CDM_CTXSTORE_TIMEOUT"))
try:
    os.wait()
except ChildProcessError:
    pass  # it ended before we looked
"""


@pytest.mark.parametrize(
    ("loads_mlx", "command"),
    [("engine.trainer", ["train"]), ("engine.measurement", ["probe", "--child", "{}"])],
    ids=["training", "measuring"],
)
def test_what_keeps_the_gpu_busy_asks_before_mlx_is_loaded(caffeinate, tmp_path, loads_mlx, command):
    (tmp_path / "config.json").write_text("{}")
    argv = [sys.executable, "-c", COMMAND, caffeinate, loads_mlx, *command, "--config", tmp_path / "config.json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
    assert (tmp_path / "told").read_text().startswith("-i -w ")


def test_a_persons_own_choice_for_the_gpu_stays(prepared):
    done, _ = prepared("darwin", AGX_RELAX_CDM_CTXSTORE_TIMEOUT="0")
    assert done.stdout.split()[1] == "0"


def test_other_systems_are_asked_for_nothing(prepared):
    done, told = prepared("linux")
    assert (done.stdout.split()[1], told) == ("None", [])


def test_a_run_goes_on_where_it_cannot_be_kept_awake(prepared, tmp_path):
    done, told = prepared("darwin", tmp_path / "not there")
    assert "may fall asleep" in done.stderr
    assert told == []
