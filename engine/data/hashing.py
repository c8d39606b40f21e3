"""What a file holds, in a few bytes: hashed, and remembered for as long as nobody writes to the file."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from engine.data.cache import cache_folder, in_the_making, make_room
from engine.data.encoding import open_bytes

# A file is remembered when nothing was written to it for so long. Disks tell times by up to 2 seconds, and what a
# program writes to a file that it has mapped into memory gets its time up to half a minute later.
SETTLED_SECONDS = 60
_PIECE_BYTES = 4 * 1024**2  # a file that is smaller is hashed in no time
_MAX_REMEMBERED_BYTES = 64 * 1024  # of all files' digests, some hundred; those remembered first go first


def digest_of(path: Path, told: Callable[[int], None], stop: Callable[[], bool]) -> str | None:
    """The digest of a file's bytes, in hexadecimal figures; None once `stop` says so.

    `told` is called with the bytes of each large piece that is hashed. EngineError where there is no such file.
    """
    with open_bytes(path) as data:
        began, stamp = time.time(), stamp_of(data.fileno())
        if known := _recalled(path, stamp):
            return known
        digest = hashlib.blake2b()
        while piece := data.read(_PIECE_BYTES):
            digest.update(piece)
            if len(piece) == _PIECE_BYTES:
                told(len(piece))
                if stop():
                    return None
        *_, size, changed, written = stamp
        is_settled = began - max(changed, written) / 1e9 > SETTLED_SECONDS
        if size >= _PIECE_BYTES and is_settled and stamp_of(data.fileno()) == stamp:
            _remember(path, stamp, digest.hexdigest())
    return digest.hexdigest()


def stamp_of(file: int | Path) -> tuple[int, ...]:
    """What changes with a file's content: which file it is, its size, and when it was changed and written.

    The time of writing can be set by hand, as copies do; that of the change can't.
    """
    status = file.stat() if isinstance(file, Path) else os.fstat(file)
    return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns, status.st_mtime_ns


def _place(path: Path) -> Path:
    name = hashlib.blake2b(os.fsencode(path.absolute()), digest_size=16).hexdigest()
    return cache_folder("digests") / name


def _recalled(path: Path, stamp: tuple[int, ...]) -> str:
    """The digest of a file that was remembered under this stamp, "" for none."""
    try:
        known, _, digest = _place(path).read_text(encoding="ascii").partition("\n")
    except (OSError, ValueError):
        return ""
    return digest if known == str(stamp) else ""


def _remember(path: Path, stamp: tuple[int, ...], digest: str) -> None:
    place = _place(path)
    with suppress(OSError):  # where the disk refuses, the file is hashed again
        with in_the_making("digests") as work:
            (work / place.name).write_text(f"{stamp}\n{digest}", encoding="ascii")
            (work / place.name).replace(place)
        make_room(place, _MAX_REMEMBERED_BYTES)
