import os
import time

import pytest

from engine.data.cache import cache_folder, in_the_making, make_room

DAY = 24 * 3600


def entry(name, age, size=100, *, is_folder):
    path = cache_folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path
    if is_folder:
        path.mkdir()
        file = path / "ids"
    file.write_bytes(bytes(size))
    for touched in {file, path}:
        os.utime(touched, (time.time() - age,) * 2)
    return path


def names():
    return sorted(path.name for path in cache_folder().iterdir())


def test_what_was_abandoned_goes_when_something_is_made():
    entry("new-dead", 2 * DAY, is_folder=True)
    entry("new-alive", DAY / 2, is_folder=True)
    writing = entry("new-writing", 2 * DAY, is_folder=True)
    os.utime(writing / "ids")
    entry("kept", 2 * DAY, is_folder=True)
    with in_the_making() as folder:
        assert names() == sorted(["kept", "new-alive", "new-writing", folder.name])
    assert names() == ["kept", "new-alive", "new-writing"]


def test_what_is_made_may_be_renamed():
    with in_the_making() as folder:
        (folder / "ids").write_bytes(b"1")
        folder.rename(cache_folder() / "made")
    assert names() == ["made"]
    assert (cache_folder() / "made" / "ids").read_bytes() == b"1"


@pytest.mark.parametrize("is_folder", [True, False])
@pytest.mark.parametrize(
    ("most", "left"),
    [(1000, ["a", "b", "c", "kept"]), (399, ["b", "c", "kept"]), (200, ["c", "kept"]), (1, ["kept"])],
)
def test_those_used_least_lately_make_room(most, left, is_folder):
    for name, age in (("b", 20), ("a", 30), ("c", 10)):
        entry(name, age, is_folder=is_folder)
    making = entry("new-one", 40, 10**6, is_folder=True)
    make_room(entry("kept", 50, is_folder=is_folder), most)
    assert names() == sorted([*left, making.name])
