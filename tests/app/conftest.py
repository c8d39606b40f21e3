"""Every test has a home of its own, real windows and real children; what it leaves running fails it."""

import json
import logging
import sys
import threading
from pathlib import Path

import psutil
import pytest
from PySide6.QtCore import QEvent, QTimer
from PySide6.QtWidgets import QApplication
from tiny_models import write_llama

from app import places
from app.theme import theme
from app.window import MainWindow
from engine import isolated

STAND_IN = str(Path(__file__).with_name("stand_in.py"))


@pytest.fixture(scope="session", autouse=True)
def _offscreen():
    patch = pytest.MonkeyPatch()
    patch.setenv("QT_QPA_PLATFORM", "offscreen")
    yield
    patch.undo()


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home that no other test shares: models, runs, settings and log."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("TUNESMITH_HOME", str(folder))
    return folder


@pytest.fixture(autouse=True)
def nothing_left(qapp):
    """Threads, children and running timers that a test leaves behind are its failure."""
    threads = set(threading.enumerate())
    yield
    QApplication.processEvents()
    children = [child for child in psutil.Process().children(recursive=True) if child.is_running()]
    assert not children, f"children left behind: {children}"
    assert set(threading.enumerate()) <= threads, "threads left behind"
    timers = [
        timer
        for widget in QApplication.topLevelWidgets()
        for timer in widget.findChildren(QTimer)
        if timer.isActive() and widget.objectName() == "main"
    ]
    assert not timers, f"timers left behind: {timers}"
    # The test's window goes now, not in the next one's first event loop: a style is put on all widgets that there are.
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)


@pytest.fixture
def stand_in(monkeypatch, home):
    """Child processes are the stand-in; the sample model is on this machine already."""
    monkeypatch.setattr(isolated, "command", lambda *arguments: [sys.executable, STAND_IN, *arguments])
    write_llama(home / "models" / "sample", layers=30)


@pytest.fixture
def child_at():
    """Finds the child that does a command. One that has ended and waits to be noticed does none."""

    def words(child: psutil.Process) -> list[str]:
        try:
            return child.cmdline()
        except psutil.NoSuchProcess:
            return []

    def find(command: str) -> psutil.Process:
        (child,) = [child for child in psutil.Process().children() if command in words(child)]
        return child

    return find


@pytest.fixture
def make_window(qtbot, stand_in):
    """Opens windows. At the end a run under way is stopped first, so that closing has nothing to ask."""

    def finish(window: MainWindow) -> None:
        training = window.session.training
        if training.phase.active:
            with qtbot.waitSignal(training.ended, timeout=10_000):
                training.stop()

    def make() -> MainWindow:
        theme().install(QApplication.instance())
        window = MainWindow(places.settings())
        window.setObjectName("main")
        qtbot.addWidget(window, before_close_func=finish)
        window.show()
        qtbot.waitUntil(lambda: window.session.shelf.listed)
        return window

    return make


@pytest.fixture
def window(make_window):
    return make_window()


@pytest.fixture
def data(tmp_path):
    """Makes a data file of a few of the sample's rows; its name tells the stand-in how to behave."""

    def make(name: str, rows: int = 20) -> Path:
        path = tmp_path / name
        lines = places.SAMPLE_DATA.read_text(encoding="utf-8").splitlines()
        path.write_text("\n".join(lines[:rows]) + "\n", encoding="utf-8")
        return path

    return make


@pytest.fixture
def pairs(tmp_path):
    """Makes a file of preference pairs; its name tells the stand-in how to behave."""

    def make(name: str = "preferences.jsonl", rows: int = 12) -> Path:
        path = tmp_path / name
        lines = (
            {
                "prompt": f"Which number follows {number}?",
                "chosen": f"The number {number + 1} follows {number}.",
                "rejected": f"The number {number - 1} follows {number}, as everybody knows.",
            }
            for number in range(rows)
        )
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return path

    return make


@pytest.fixture(autouse=True)
def _quiet_log(caplog):
    caplog.set_level(logging.CRITICAL, logger="app")


@pytest.fixture
def ready(qtbot):
    """Waits until nothing keeps Start off."""

    def wait(window: MainWindow) -> None:
        qtbot.waitUntil(lambda: window.session.blocker() is None, timeout=10_000)

    return wait
