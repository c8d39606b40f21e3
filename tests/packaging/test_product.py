"""The icon in every size, and the licences that go into a bundle."""

import json
import struct

import icon
import licences
import pytest
from PySide6.QtGui import QImage

from app import places
from app.licences import Licence, gather
from engine.errors import EngineError


def entries(path):
    data = path.read_bytes()
    magic, size = struct.unpack_from(">4sI", data)
    assert (magic, size) == (b"icns", len(data))
    found, at = {}, 8
    while at < len(data):
        kind, length = struct.unpack_from(">4sI", data, at)
        found[kind.decode()] = data[at + 8 : at + length]
        at += length
    return found


@pytest.fixture(scope="module")
def icns(tmp_path_factory):
    path = tmp_path_factory.mktemp("icon") / "Tunesmith.icns"
    icon.write_icns(places.ICON, path)
    return entries(path)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("ic11", 32),
        ("ic12", 64),
        ("ic07", 128),
        ("ic13", 256),
        ("ic08", 256),
        ("ic14", 512),
        ("ic09", 512),
        ("ic10", 1024),
    ],
)
def test_the_large_sizes_are_png(icns, kind, size):
    image = QImage.fromData(icns[kind], "PNG")
    assert (image.width(), image.height()) == (size, size)
    assert image.pixelColor(0, 0).alpha() == 0
    assert image.pixelColor(size // 2, size * 3 // 4).alpha() == 255


@pytest.mark.parametrize(("kind", "size"), [("ic04", 16), ("ic05", 32)])
def test_the_small_sizes_are_the_four_channels(icns, kind, size):
    data = icns[kind]
    assert data[:4] == b"ARGB"
    planes, at = bytearray(), 4
    while at < len(data):  # Apple's run-length code
        control = data[at]
        if control < 128:
            planes += data[at + 1 : at + 2 + control]
            at += 2 + control
        else:
            planes += data[at + 1 : at + 2] * (control - 125)
            at += 2
    count = size * size
    assert len(planes) == 4 * count
    image = icon.render(places.ICON, size)
    for x, y in ((0, 0), (size // 2, size // 5), (size // 2, size * 3 // 4), (size // 4, size // 2)):
        color, place = image.pixelColor(x, y), y * size + x
        stored = [planes[channel * count + place] for channel in range(4)]
        assert stored[0] == color.alpha()
        if stored[0]:  # what is quite transparent has no colour to speak of
            assert stored[1:] == [color.red(), color.green(), color.blue()]


def test_what_is_finer_than_a_pixel_is_left_out_of_the_small_sizes():
    """Between the fork and the edge there is a wave at 64 pixels, plain ground at 32."""

    def row(size):
        image = icon.render(places.ICON, size)
        return [image.pixelColor(x, size * 332 // 1024).lightness() for x in range(size // 5, size // 3)]

    assert max(row(64)) - min(row(64)) > 30
    assert max(row(32)) - min(row(32)) < 10


@pytest.mark.parametrize("size", [16, 256])
def test_a_png_has_the_size_that_was_asked_for(tmp_path, size):
    icon.write_png(places.ICON, tmp_path / "icon.png", size)
    assert QImage(str(tmp_path / "icon.png")).width() == size


def test_a_bundle_gets_the_texts_and_an_index(tmp_path):
    licences.collect(tmp_path)
    index = json.loads((tmp_path / "index.json").read_text(encoding="utf-8"))
    named = {entry["name"]: entry for entry in index}
    assert {one.name for one in gather()} <= set(named)
    files = [tmp_path / file for entry in index for file in entry["files"]]
    assert len(files) == len(set(files))
    assert all(file.stat().st_size for file in files)
    written = {file for file in tmp_path.rglob("*") if file.is_file()}
    assert written == {*files, tmp_path / "index.json"}
    assert "Apple Inc" in (tmp_path / named["mlx"]["files"][0]).read_text(encoding="utf-8")


def test_what_has_no_text_is_not_shipped(tmp_path, monkeypatch):
    monkeypatch.setattr(licences, "gather", lambda others: iter([Licence("nameless", "1", "", ())]))
    with pytest.raises(EngineError, match="nameless 1 carries no licence text"):
        licences.collect(tmp_path)
    assert list(tmp_path.iterdir()) == []
