"""What the container that we run in leaves us: the memory limits of Linux's control groups, versions 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

# Version 1 has no word for "no limit": it writes the largest number of pages.
_UNLIMITED = 2**60


@dataclass(frozen=True)
class Allowance:
    """How much memory the container may use, and how much of that is free for us now."""

    total_bytes: int
    available_bytes: int


@dataclass(frozen=True)
class _Files:
    """What a version calls a group's limit and use, and in its statistics the page cache that can go."""

    limit: str
    used: str
    reclaimable: str


_V1 = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = _Files("memory.max", "memory.current", "inactive_file")


def allowance(root: Path = Path("/")) -> Allowance | None:
    """The lowest limit and the least room among our group and all groups around it; None where nothing limits us.

    A limit binds everything below it, so the one that counts may be set far up. What a group uses counts as held
    less its inactive page cache, which the system gives up before it refuses anything.
    """
    limited = [found for folder, files in _groups(root) if (found := _limited(folder, files)) is not None]
    if not limited:
        return None
    return Allowance(min(one.total_bytes for one in limited), min(one.available_bytes for one in limited))


def _groups(root: Path) -> Iterator[tuple[Path, _Files]]:
    """The folders of our memory groups, from our own up to the topmost we can see."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        mounted = root / "sys/fs/cgroup"
        if controllers == "":
            files = _V2
        elif "memory" in controllers.split(","):
            files, mounted = _V1, mounted / "memory"
        else:
            continue
        # Inside a container the path may be the host's, which isn't mounted here: then the topmost folder is our group.
        # One with ".." lies outside of what we see, and only the topmost folder tells of it.
        inside = PurePosixPath(path.lstrip("/"))
        for folder in [] if ".." in inside.parts else [inside, *inside.parents]:
            yield mounted / folder, files
        yield mounted, files


def _limited(folder: Path, files: _Files) -> Allowance | None:
    limit = _number(folder / files.limit)
    if limit is None or limit >= _UNLIMITED:
        return None
    held = (_number(folder / files.used) or 0) - _statistic(folder / "memory.stat", files.reclaimable)
    return Allowance(limit, max(0, limit - max(0, held)))


def _number(file: Path) -> int | None:
    """The number in the file. None without the file and for the word that version 2 has for no limit, "max"."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _statistic(file: Path, name: str) -> int:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    return next((int(value) for key, _, value in (line.partition(" ") for line in lines) if key == name), 0)
