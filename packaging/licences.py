"""Writes the licences of all that is shipped into a bundle, where the About box reads them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import debian

from app.licences import INDEX, Licence, gather
from engine.errors import EngineError

# Its bootloader is what starts the program.
_OF_THE_BUILD = ("pyinstaller",)


def collect(folder: Path) -> None:
    """Writes a folder for each distribution with its texts, and an index of name, version, licence and files.

    EngineError where a distribution has no text: it must not be shipped without.
    """
    entries = []
    for one in sorted(gather(_OF_THE_BUILD), key=lambda licence: licence.name.casefold()):
        if not one.files:
            raise EngineError(
                f"{one.name} {one.version} carries no licence text.",
                "Add the text of its licence to resources/texts/licences and name it in app/licences.py.",
            )
        files = _copied(one, folder)
        entries.append({"name": one.name, "version": one.version, "licence": one.licence, "files": files})
    (folder / INDEX).write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")


def add_systems(folder: Path, libraries: Iterable[Path]) -> list[Path]:
    """Adds the licences of the system's `libraries` to what `collect` wrote; the files it added.

    EngineError where one has none.
    """
    index, added = folder / INDEX, []
    entries = json.loads(index.read_text(encoding="utf-8"))
    for package, own in sorted(debian.packages(libraries).items()):
        (name,) = _copied(Licence(package.name, package.version, package.licence, (package.text,)), folder)
        added.append(folder / name)
        inside = sorted(library.name for library in own)
        told = {"name": package.name, "version": package.version, "licence": package.licence}
        entries.append({**told, "files": [name], "libraries": inside})
    index.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
    return added


def _copied(one: Licence, folder: Path) -> list[str]:
    """Its texts in a folder of its own, numbered as many have the same name; their names below `folder`."""
    own = folder / re.sub(r"[-_.]+", "-", one.name).lower()
    own.mkdir(parents=True)
    names = []
    for number, file in enumerate(one.files, start=1):
        stem = re.sub(r"[^\w.-]+", "-", file.stem if file.suffix in (".txt", ".md") else file.name)
        target = own / (f"{stem}.txt" if len(one.files) == 1 else f"{number:02} {stem}.txt")
        shutil.copyfile(file, target)
        names.append(target.relative_to(folder).as_posix())
    return names
