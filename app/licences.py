"""The licences of all that is shipped: from the folder that the build wrote, else gathered from what is installed."""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import qVersion

from app import product
from app.places import RESOURCES

WRITTEN = RESOURCES / "licences"
INDEX = "index.json"

_TEXTS = RESOURCES / "texts" / "licences"
_QT = tuple(_TEXTS / name for name in ("Qt.txt", "LGPL-3.0.txt", "GPL-3.0.txt"))
_APACHE = (_TEXTS / "Apache-2.0.txt",)
_NAMES = re.compile(r"licen[cs]e|copying|notice|authors", re.IGNORECASE)
_PROGRAMS = {".py", ".pyc", ".pyi"}


@dataclass(frozen=True)
class Licence:
    """One thing that is shipped. `licence` is the short name of its licence, `files` hold the full texts."""

    name: str
    version: str
    licence: str
    files: tuple[Path, ...]

    def text(self) -> str:
        """All of its texts, one after another."""
        return "\n\n\n".join(file.read_text(encoding="utf-8", errors="replace").strip("\n") for file in self.files)


def shipped() -> Iterator[Licence]:
    """What this program is made of, in no order; one at a time, as gathering all of it takes a while."""
    if (WRITTEN / INDEX).is_file():
        yield from read(WRITTEN)
    else:
        yield from gather()


def read(folder: Path) -> list[Licence]:
    """What the build wrote into `folder`."""
    entries = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    return [
        Licence(one["name"], one["version"], one["licence"], tuple(folder / file for file in one["files"]))
        for one in entries
    ]


def gather(others: Iterable[str] = ()) -> Iterator[Licence]:
    """What is installed here: this program, Python, Qt, the sample model, and every distribution that is needed.

    `others` are further distributions that a build brings along.
    """
    yield Licence(product.NAME, product.version(), "Apache-2.0", _APACHE)
    yield Licence("Python", ".".join(map(str, sys.version_info[:3])), "PSF-2.0", _pythons())
    yield Licence("Qt", qVersion(), "LGPL-3.0-only", _QT)
    yield Licence("SmolLM2-135M-Instruct", "", "Apache-2.0", _APACHE)
    for distribution in needed([*product.requirements(), *others]):
        yield of_distribution(distribution)


def needed(requirements: Iterable[str]) -> Iterator[importlib.metadata.Distribution]:
    """The installed distributions that `requirements` mean, and those that they need, each once."""
    from packaging.requirements import Requirement  # not at the start: the window needs it for this alone
    from packaging.utils import canonicalize_name

    waiting = [Requirement(requirement) for requirement in requirements]
    followed: set[tuple[str, str]] = set()
    found: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another system, or a choice that was not taken
        if name not in found:
            found.add(name)
            yield distribution
        for extra in {"", *requirement.extras}:
            if (name, extra) not in followed:
                followed.add((name, extra))
                inner = [Requirement(one) for one in distribution.requires or ()]
                waiting += [one for one in inner if one.marker is None or one.marker.evaluate({"extra": extra})]


def of_distribution(distribution: importlib.metadata.Distribution) -> Licence:
    """A distribution's licence from its metadata; those without texts of their own get the common ones they name."""
    licence = _short_name(distribution.metadata)
    own = [file for file in distribution.files or () if _NAMES.search(file.name) and file.suffix not in _PROGRAMS]
    files = tuple(Path(str(distribution.locate_file(file))) for file in own)
    if not files:
        files = _QT if "LGPL-3.0" in licence else _APACHE if "Apache" in licence else ()
    return Licence(distribution.metadata["Name"], distribution.version, licence, files)


def _short_name(metadata: importlib.metadata.PackageMetadata) -> str:
    for field in ("License-Expression", "License"):
        name = metadata.get_all(field, [""])[0]
        if name and "\n" not in name:  # some put the whole text there
            return str(name)
    classifiers = metadata.get_all("Classifier", [])
    return " OR ".join(one.rpartition(" :: ")[2] for one in classifiers if one.startswith("License ::"))


def _pythons() -> tuple[Path, ...]:
    """Python's own text, which Debian and others keep elsewhere."""
    stdlib, (major, minor) = Path(sysconfig.get_path("stdlib")), sys.version_info[:2]
    places = (stdlib / "LICENSE.txt", Path(f"/usr/share/doc/python{major}.{minor}/copyright"))
    return tuple(place for place in places if place.is_file())[:1]
