"""The frozen program: built here, tried as a person's first start, and asked for what only it could lack."""

import csv
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import run
from freezing import freeze
from info_plist import NAME
from shipped import frozen_modules
from tiny_families import CONFIGS, write_family
from tiny_models import write_llama

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(find_spec("PyInstaller") is None, reason="make package or make test-all installs PyInstaller"),
    # One build for all: they stay in one process.
    pytest.mark.xdist_group("frozen"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Freezes the program into a folder whose name a person might give."""
    scratch = tmp_path_factory.mktemp("frozen")
    freeze(run, sys.executable, scratch / "Programme für alle", scratch / "build")
    app = scratch / "Programme für alle" / f"{NAME}.app" / "Contents" / "MacOS" / NAME
    return app if app.exists() else scratch / "Programme für alle" / NAME / NAME


@pytest.fixture
def ask(program, tmp_path):
    """Runs a command of the frozen program, with nothing of this environment: what it prints."""

    def ask(*arguments):
        home = str(tmp_path / "home")
        done = subprocess.run(
            [program, *arguments],
            env={"TUNESMITH_HOME": home, "HOME": home, "PATH": os.defpath},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return ask


def test_the_self_test_passes(ask):
    output = ask("--self-test")
    assert "(packaged)" in output.splitlines()[0]
    assert "self-test passed in " in output.splitlines()[-1]


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_csv(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def write_parquet(path, rows):
    pq.write_table(pa.Table.from_pylist(rows), path)


@pytest.mark.parametrize("write", [write_jsonl, write_csv, write_parquet])
def test_data_is_read(write, ask, tmp_path):
    data = tmp_path / f"données.{write.__name__.removeprefix('write_')}"
    write(data, [{"prompt": f"What follows {number}?", "completion": str(number + 1)} for number in range(6)])
    model = write_llama(tmp_path / "model", layers=2)
    answer = ask("check", str(data), "--model", str(model), "--json").splitlines()[-1]
    assert json.loads(answer)["usable"] == 6


@pytest.mark.parametrize("name", CONFIGS)
def test_every_family_answers(name, ask, tmp_path):
    model = write_family(tmp_path / "model", name)
    ask("generate", "--model", str(model), "--prompt", "Hello", "--max-tokens", "2")


def test_every_architecture_of_mlx_lm_is_inside(program):
    folder = Path(find_spec("mlx_lm").submodule_search_locations[0]) / "models"
    names = {f"mlx_lm.models.{path.stem}" for path in folder.glob("*.py") if path.stem != "__init__"}
    assert len(names) > 100
    assert names <= frozen_modules(program)


@pytest.mark.skipif(sys.platform != "linux", reason="macOS has Accelerate")
def test_it_brings_its_own_blas(program):
    assert (program.parent / "_internal" / "libopenblas.so.0").is_file()
