"""What the system's own programs are asked to show, and the libraries they would load."""

import os
import sys

import pytest
from PySide6.QtCore import QObject, QUrl, Slot
from PySide6.QtGui import QDesktopServices

from app import places, viewing
from engine.errors import EngineError
from engine.runs import runs_folder


class Viewer(QObject):
    """Takes the place of the system's programs: keeps what it is asked for and the environment it would start in."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = []

    @Slot(QUrl)
    def show(self, url: QUrl) -> None:
        self.asked.append((url.toLocalFile(), os.environ.get("LD_LIBRARY_PATH")))


@pytest.fixture
def viewer(qapp):
    viewer = Viewer()
    QDesktopServices.setUrlHandler("file", viewer, "show")
    yield viewer
    QDesktopServices.unsetUrlHandler("file")


@pytest.mark.parametrize("before", [None, "/opt/lib"])
def test_another_program_does_not_load_the_packaged_ones_libraries(viewer, before, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/apps/Tunesmith/_internal")
    monkeypatch.delenv("LD_LIBRARY_PATH_ORIG", raising=False)
    if before:
        monkeypatch.setenv("LD_LIBRARY_PATH_ORIG", before)
    viewing.show(tmp_path)
    assert viewer.asked == [(str(tmp_path), before)]
    # Our own children still need it.
    assert os.environ["LD_LIBRARY_PATH"] == "/apps/Tunesmith/_internal"


def test_from_source_a_persons_own_setting_stays(viewer, tmp_path, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    viewing.show(tmp_path)
    assert viewer.asked == [(str(tmp_path), "/opt/lib")]


def test_where_nothing_shows_it_a_sentence_says_where_it_is(qapp, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match="Nothing on this system shows") as caught:
        viewing.show(tmp_path)
    assert str(tmp_path) in caught.value.hint


def test_the_menus_show_the_log_and_the_runs(window, viewer):
    places.log_file().parent.mkdir(parents=True, exist_ok=True)
    places.log_file().write_text("a line\n", encoding="utf-8")
    window.help.show_log()
    runs_folder().mkdir()
    window.reveal_run()
    assert [path for path, _ in viewer.asked] == [str(places.log_file()), str(runs_folder())]
