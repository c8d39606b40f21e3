"""The self-test from source, with a tiny model: it passes, and it notices what must not be."""

import os
import subprocess
import sys

import pytest
from tiny_models import write_llama

CHILDREN = ("models", "check", "train", "talk")


def run(*argv, **environment):
    return subprocess.run(
        [sys.executable, *argv],
        env={**os.environ, "PYTHONWARNINGS": "default", **environment},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.fixture
def tiny(tmp_path):
    return str(write_llama(tmp_path / "tiny", layers=2))


def test_this_copy_works(tiny, home):
    done = run("-m", "app.main", "--self-test", tiny, TMPDIR=str(home))
    assert (done.returncode, done.stderr) == (0, "")
    first, *stages, last = done.stdout.splitlines()
    assert first.startswith("Tunesmith ")
    assert all(f" {name} " in f" {first}" for name in ("MLX", "mlx-lm", "Qt", "pyqtgraph", "Python"))
    assert [stage[:18].strip() for stage in stages] == [
        "start to window",
        "models listed",
        "model and data",
        "3 training steps",
        "adapter read back",
        "answer",
        "process spawned",
    ]
    assert last.startswith("self-test passed in ")
    assert [path.name for path in home.iterdir() if path.name != "mlx"] == []  # MLX keeps what it compiles for the CPU


def test_a_child_that_complains_is_a_failure(tiny, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        f"for name in {CHILDREN}:\n"
        "    if name in sys.orig_argv:\n"
        "        print(f'{name} has something to say', file=sys.stderr)\n"
    )
    done = run("-m", "app.main", "--self-test", tiny, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "self-test failed: Something was written to standard error" in done.stderr
    for name in CHILDREN:
        assert f"{name} has something to say" in done.stderr


def test_a_failure_is_told_in_a_sentence(tmp_path):
    done = run("-m", "app.main", "--self-test", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("self-test failed: ")
    assert "Traceback" not in done.stderr
    assert "passed" not in done.stdout


SECLUDED = """
import logging, os, socket, subprocess, sys
from app.seclusion import kept_stderr, new_home, refuse_network

with new_home() as home, kept_stderr() as lines:
    refuse_network()
    {body}
print(lines, home.exists())
"""


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("pass", "[]"),
        ("print('by Python', file=sys.stderr)", "['by Python']"),
        ("os.write(2, b'by the system')", "['by the system']"),
        ("subprocess.run(['sh', '-c', 'echo by a child >&2'])", "['by a child']"),
        ("logging.getLogger('engine.x').warning('by a log')", "['by a log']"),
        ("logging.getLogger('app').info('nothing to tell')", "[]"),
        ("socket.create_server(('127.0.0.1', 0)).close()", "[]"),
    ],
)
def test_what_reaches_standard_error_is_kept(body, told):
    done = run("-c", SECLUDED.format(body=body))
    assert (done.stdout.strip(), done.stderr) == (f"{told} False", "")


@pytest.mark.parametrize("body", ["socket.create_connection(('192.0.2.1', 80))", "socket.getaddrinfo('pypi.org', 443)"])
def test_the_network_is_refused(body):
    done = run("-c", SECLUDED.format(body=body))
    assert done.returncode == 1
    assert "PermissionError: There is no network in a self-test" in done.stderr
