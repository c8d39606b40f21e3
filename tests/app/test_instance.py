"""One Tunesmith for a home: a second start goes to the first, whatever its home is called, however the first ended."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from PySide6.QtCore import Qt

from app import places
from app.instance import Instance, hand_over
from engine.errors import EngineError

ROOT = Path(__file__).resolve().parents[2]


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture
def children():
    """Programs that are ended when the test ends."""
    started = []
    yield started
    for child in started:
        child.kill()
        child.wait()
        child.stdout.close()


@pytest.fixture(params=["plain", "with a space, ü and 音", "deep" * 50])
def named_home(request, tmp_path, monkeypatch):
    """Homes of different names; a socket's path can't be as long as the last one."""
    folder = tmp_path / request.param
    monkeypatch.setenv("TUNESMITH_HOME", str(folder))
    return folder


@pytest.fixture
def first(named_home):
    found = Instance()
    assert found.is_first
    yield found
    found.close()


def test_a_second_start_hands_over_its_files_and_ends(first, tmp_path, children, qtbot):
    files = [tmp_path / "letters.jsonl", tmp_path / "mit Umlaut ü.csv"]
    with qtbot.waitSignal(first.asked, timeout=20_000) as told:
        children.append(start("-m", "app.main", *map(str, files)))
    assert told.args == [files]
    assert children[0].wait(20) == 0
    assert children[0].stdout.read() == ""


def test_the_place_is_free_after_the_end(first):
    assert not Instance().is_first
    first.close()
    again = Instance()
    assert again.is_first
    again.close()


def test_a_crash_of_the_first_is_no_obstacle(named_home, tmp_path, children, qtbot):
    code = """
import signal
from PySide6.QtCore import QCoreApplication
from app.instance import Instance
app, one = QCoreApplication(), Instance()
print(one.is_first, flush=True)
signal.pause()
"""
    child = start("-c", code)
    children.append(child)
    assert child.stdout.readline() == "True\n"
    assert not Instance().is_first
    child.send_signal(signal.SIGKILL)
    child.wait()
    found = Instance()
    assert found.is_first
    with qtbot.waitSignal(found.asked, timeout=20_000):
        children.append(start("-c", "from app.instance import hand_over; hand_over([])"))
    found.close()


def test_homes_do_not_know_each_other(first, tmp_path, monkeypatch):
    monkeypatch.setenv("TUNESMITH_HOME", str(tmp_path / "another"))
    other = Instance()
    assert other.is_first
    other.close()


def test_one_that_does_not_answer_is_told(home, monkeypatch):
    monkeypatch.setattr("app.instance._PATIENCE_SECONDS", 0.2)
    with pytest.raises(EngineError, match="open already, and does not answer"):
        hand_over([])


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_home_that_cannot_be_written_keeps_nothing_shut(home):
    home.chmod(0o500)
    assert Instance().is_first


def test_a_window_comes_forward_and_opens_what_it_is_asked_to(window, data, ready):
    window.showMinimized()
    path = data("letters.jsonl")
    window.come_forward([path])
    assert not window.windowState() & Qt.WindowState.WindowMinimized
    ready(window)
    assert window.session.config.data == str(path)


def test_the_program_itself_is_one(home, data, children, qtbot):
    """Two real starts: the first opens what it was given, and then what the second was given."""

    def logged(text: str) -> bool:
        file = places.log_file()
        return file.is_file() and text in file.read_text(encoding="utf-8")

    letters, others = data("letters.jsonl"), data("others.jsonl")
    children.append(start("-m", "app.main", str(letters)))
    qtbot.waitUntil(lambda: logged("started: "), timeout=30_000)
    children.append(start("-m", "app.main", str(others)))
    assert children[1].wait(30) == 0
    qtbot.waitUntil(lambda: logged(f"asked to come forward with ['{others}']"), timeout=10_000)
    assert children[0].poll() is None
    children[0].terminate()
    children[0].wait()
