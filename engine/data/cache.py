"""The cache: what can be made again at any time, made under another name and renamed when whole."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import platformdirs

_IN_THE_MAKING = "new-"
_ABANDONED_SECONDS = 24 * 3600  # nothing was written for so long: whoever was at it was killed


def cache_folder(kind: str = "tokens") -> Path:
    """Where what is of one kind is kept: in TUNESMITH_HOME, or the user's cache folder."""
    own = os.environ.get("TUNESMITH_HOME")
    return (Path(own) / "cache" if own else platformdirs.user_cache_path("Tunesmith", appauthor=False)) / kind


@contextmanager
def in_the_making(kind: str = "tokens") -> Iterator[Path]:
    """A folder to make something in. It goes at the end, unless it was renamed, and so do those long abandoned."""
    cache = cache_folder(kind)
    cache.mkdir(parents=True, exist_ok=True)
    for other in cache.glob(f"{_IN_THE_MAKING}*"):
        if _last_written(other) < time.time() - _ABANDONED_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_IN_THE_MAKING, dir=cache, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def make_room(kept: Path, most_bytes: int) -> None:
    """Takes out the files or folders beside `kept` that were used least lately, until all are within `most_bytes`."""
    found = []
    for entry in kept.parent.iterdir():
        if not entry.name.startswith(_IN_THE_MAKING):
            with suppress(OSError):  # it went meanwhile
                found.append((entry == kept, entry.stat().st_mtime, _size(entry), entry))
    left = most_bytes
    for is_kept, _, size, entry in sorted(found, reverse=True):
        left -= size
        if left < 0 and not is_kept:
            remove(entry)


def remove(entry: Path) -> None:
    """Takes a file or a folder out, if it can be; whoever has it open may use it on."""
    if entry.is_dir():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        with suppress(OSError):
            entry.unlink()


def _size(entry: Path) -> int:
    return sum(file.stat().st_size for file in (entry.iterdir() if entry.is_dir() else (entry,)))


def _last_written(folder: Path) -> float:
    """When anything in it was; now where that can't be told."""
    try:
        return max(file.stat().st_mtime for file in (folder, *folder.iterdir()))
    except OSError:
        return time.time()
