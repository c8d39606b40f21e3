"""How the window starts: what the system asks to open, its icon, where things lie, and what it loads."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from app import places
from engine.config import TrainConfig

ROOT = Path(__file__).resolve().parents[2]


def run(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_what_the_system_asks_to_open_is_opened(home, data):
    path = data("letters.jsonl")
    code = """
import sys
from PySide6.QtCore import QCoreApplication
from PySide6.QtGui import QFileOpenEvent
from app.start import Application
app = Application()
app.open_requested.connect(print)
QCoreApplication.sendEvent(app, QFileOpenEvent(sys.argv[1]))
print(app.windowIcon().isNull() == (sys.platform != "darwin"), app.applicationVersion())
"""
    shown = run(code, str(path)).splitlines()
    assert shown[0] == str(path)
    assert shown[1].startswith("False ")


@pytest.fixture
def run_folder(tmp_path, data):
    """A run's folder, with an adapter."""

    def make(*, trained: bool) -> Path:
        folder = tmp_path / "letters 2026-11-30"
        folder.mkdir()
        config = TrainConfig().updated({"data": str(data("letters.jsonl")), "rank": 4, "output": str(folder)})
        (folder / "config.json").write_text(json.dumps(config.to_mapping()), encoding="utf-8")
        (folder / "events.jsonl").write_text("", encoding="utf-8")
        if trained:
            (folder / "adapter").mkdir()
        return folder

    return make


@pytest.mark.parametrize(("trained", "page"), [(True, 2), (False, 0)])
def test_a_run_folder_opens_with_its_settings_and_its_adapter(window, run_folder, ready, trained, page):
    folder = run_folder(trained=trained)
    window.open_data(folder)
    ready(window)
    config = window.session.config
    assert (Path(config.data).name, config.rank, config.output) == ("letters.jsonl", 4, "")
    assert window.talk_page.talk.adapter == (folder / "adapter" if trained else None)
    assert window.stack.currentIndex() == page


def test_a_run_folder_that_cannot_be_read_is_a_card(window, run_folder):
    folder = run_folder(trained=True)
    (folder / "config.json").write_text("{", encoding="utf-8")
    window.open_data(folder)
    (notice,) = window.data_page.notices.shown
    assert "config.json" in notice.message
    assert window.talk_page.talk.adapter is None


# -- places


def test_the_samples_data_is_the_persons_own_copy(window, home, ready):
    window.try_sample()
    ready(window)
    copy = home / "samples" / "bookings.jsonl"
    assert window.session.config.data == str(copy)
    assert copy.read_bytes() == places.SAMPLE_DATA.read_bytes()
    assert window.talk_page.examples.count() > 0


def test_a_copy_that_was_edited_stays(home):
    copy = places.sample_data()
    copy.write_text('{"prompt": "mine", "completion": "own"}\n', encoding="utf-8")
    assert places.sample_data().read_text(encoding="utf-8").startswith('{"prompt": "mine"')


def test_a_disk_that_refuses_the_copy_is_a_card(window, home):
    (home / "samples").write_text("a file where the folder would be", encoding="utf-8")
    window.try_sample()
    (notice,) = window.data_page.notices.shown
    assert "could not be copied" in notice.message


@pytest.mark.parametrize("name", ["Anna Maria", "Jürgen 音楽"])
def test_without_a_home_of_its_own_all_is_in_the_users_folders(tmp_path, monkeypatch, name):
    """Data, cache and log are asked of the system, and made under any name."""
    for variable in ("TUNESMITH_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    user = tmp_path / name
    user.mkdir()
    monkeypatch.setenv("HOME", str(user))
    code = """
from app import places
from engine.data.cache import cache_folder
from engine.runs import home_folder, runs_folder
places.start_log().emit(__import__("logging").makeLogRecord({"msg": "ü", "levelname": "INFO"}))
settings = places.settings(); settings.setValue("a", 1); settings.sync()
print(places.sample_data(), cache_folder(), places.log_file(), settings.fileName(), sep="\\n")
"""
    sample, cache, log, settings = map(Path, run(code).splitlines())
    assert all(path.is_relative_to(user) for path in (sample, cache, log, settings))
    assert all(path.is_file() for path in (sample, log, settings))
    if sys.platform == "darwin":
        library = user / "Library"
        assert sample.is_relative_to(library / "Application Support" / "Tunesmith")
        assert cache.is_relative_to(library / "Caches" / "Tunesmith")
        assert log.is_relative_to(library / "Logs" / "Tunesmith")


def test_the_window_loads_nothing_that_takes_long():
    """A start takes what is imported; these each took a tenth of a second or more, and nothing of them is needed."""
    loaded = run("import sys, app.start; print(*sys.modules)").split()
    assert not {"pyarrow", "tokenizers", "jinja2", "packaging.requirements", "pandas", "scipy"} & set(loaded)
