"""The licences of the system's libraries that a Linux build takes in."""

import json
import shutil
import sys
from pathlib import Path

import debian
import licences
import pytest
from tiny_machos import write

from app.licences import read
from engine.errors import EngineError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a Mac's app takes no library from the system")


@pytest.fixture
def library():
    """A library that every such system has, as PyInstaller finds it."""
    if shutil.which("dpkg-query") is None:
        pytest.skip("this Linux has other packages than Debian's")
    return next(Path("/usr/lib").glob("*/libz.so.1"))


def test_a_librarys_package_is_known_with_its_licence(library):
    ((package, own),) = debian.packages([library]).items()
    assert own == [library]
    assert package.name == "zlib1g"
    assert package.version[0].isdigit()
    assert package.licence == "Zlib"
    assert "Jean-loup Gailly" in package.text.read_text(encoding="utf-8")


def test_they_are_added_to_the_others(library, tmp_path):
    (tmp_path / licences.INDEX).write_text("[]")
    (added,) = licences.add_systems(tmp_path, [library])
    assert json.loads((tmp_path / licences.INDEX).read_text())[0]["libraries"] == [library.name]
    (one,) = read(tmp_path)
    assert (one.name, one.files) == ("zlib1g", (added,))
    assert "Jean-loup Gailly" in one.text()


def test_a_library_of_nobody_is_not_shipped(tmp_path):
    stray = write(tmp_path / "libstray.so.1")
    with pytest.raises(EngineError, match=r"libstray\.so\.1 has no licence"):
        debian.packages([stray])
