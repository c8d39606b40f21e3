"""Debian's packages: of which one a library of the system is, and under which licence."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from engine.errors import EngineError

_DOCUMENTS = Path("/usr/share/doc")


class Package(NamedTuple):
    """A package, the short name of its licence, and its text with those of all its parts."""

    name: str
    version: str
    licence: str
    text: Path


def packages(libraries: Iterable[Path]) -> dict[Package, list[Path]]:
    """The packages that `libraries` are of, each with its own. EngineError where one is of none, or has no licence."""
    found: dict[Package, list[Path]] = {}
    for library in libraries:
        found.setdefault(_package(library), []).append(library)
    return found


def _package(library: Path) -> Package:
    real = library.resolve()
    # What lies in /usr/lib today may be known by its older home.
    for path in (real, Path("/", *real.parts[2:])):
        if answer := _ask("--search", str(path)):
            name = answer.partition(":")[0]
            text = _DOCUMENTS / name / "copyright"
            if text.is_file():
                return Package(name, _ask("--show", "--showformat", "${Version}\n", name), _licence(text), text)
    raise EngineError(
        f"{library} has no licence in {_DOCUMENTS}, and must not be shipped without.",
        "Build on Debian or Ubuntu, with the system's own packages.",
    )


def _ask(*arguments: str) -> str:
    """The first line of dpkg-query's answer, empty where it has none."""
    try:
        done = subprocess.run(["dpkg-query", *arguments], capture_output=True, text=True, check=False)  # noqa: S607
    except OSError:
        return ""
    return (done.stdout.splitlines() or [""])[0]


def _licence(text: Path) -> str:
    """The licence that Debian's machine-readable format names first: that of most files."""
    named = re.search(r"^License: *(\S.*)$", text.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    return named[1].strip() if named else "told in its text"
