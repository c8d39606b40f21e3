import os
import time

import pytest

from engine.data import hashing
from engine.data.cache import cache_folder, in_the_making, make_room
from engine.data.hashing import digest_of

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


@pytest.fixture
def large(tmp_path):
    path = tmp_path / "large.jsonl"
    path.write_bytes(b"a" * (5 * 1024**2))
    return path


def hashed(path):
    """The digest, and whether the file was hashed for it."""
    told = []
    return digest_of(path, told.append, lambda: False), bool(told)


def test_a_large_file_is_hashed_once(large, monkeypatch):
    first, _ = hashed(large)
    assert hashed(large) == (first, True)  # it was written just now
    monkeypatch.setattr(hashing, "SETTLED_SECONDS", -1)
    assert [hashed(large), hashed(large)] == [(first, True), (first, False)]
    (kept,) = cache_folder("digests").iterdir()
    kept.write_text(kept.read_text()[:20])
    assert [hashed(large), hashed(large)] == [(first, True), (first, False)]


@pytest.mark.parametrize("change", ["bytes", "replaced", "size"])
def test_a_file_that_changes_is_hashed_anew_even_where_its_time_is_the_same(large, monkeypatch, change):
    monkeypatch.setattr(hashing, "SETTLED_SECONDS", -1)
    first, _ = hashed(large)
    status = large.stat()
    if change == "bytes":
        with large.open("r+b") as file:
            file.write(b"b")
    elif change == "size":
        with large.open("ab") as file:
            file.write(b"a")
    else:
        other = large.with_name("other")
        other.write_bytes(b"b" * status.st_size)
        other.replace(large)
    os.utime(large, ns=(status.st_atime_ns, status.st_mtime_ns))
    again, anew = hashed(large)
    assert anew
    assert again != first


def test_hashing_can_be_stopped(large):
    assert digest_of(large, lambda size: None, lambda: True) is None


def test_a_cache_that_cannot_be_written_costs_the_memory_only(large, monkeypatch):
    monkeypatch.setattr(hashing, "SETTLED_SECONDS", -1)
    cache_folder("digests").parent.mkdir(parents=True)
    cache_folder("digests").write_text("no folder")
    assert hashed(large) == hashed(large)
