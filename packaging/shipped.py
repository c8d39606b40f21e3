"""Which distributions a program was frozen from: told by the modules inside it."""

from __future__ import annotations

import re
from importlib.metadata import packages_distributions
from pathlib import Path

from bundle import Bundle

# An executable that PyInstaller has put an archive of modules into holds this.
_COOKIE = b"MEI\014\013\012\013\016"
_OURS = {"tunesmith", "pyinstaller"}


def distributions(bundle: Bundle) -> set[str]:
    """The canonical names of all distributions of which `bundle` has a module or the metadata, but our own.

    A module belongs to the distribution that brings it into the Python that runs this.
    """
    owners = packages_distributions()
    modules = {path.name.split(".")[0] for path in bundle.libraries.iterdir()}
    for program in bundle.programs.iterdir() if bundle.programs else []:
        modules |= {name.split(".")[0] for name in frozen_modules(program)}
    found = {canonical(owner) for module in modules for owner in owners.get(module, [])}
    found |= {canonical(path.name.split("-")[0]) for path in bundle.libraries.glob("*.dist-info")}
    return found - _OURS


def frozen_modules(program: Path) -> set[str]:
    """The modules in the archive that PyInstaller put into `program`; none where there is no archive."""
    if program.is_dir() or not _has_archive(program):
        return set()
    from PyInstaller.archive.readers import CArchiveReader  # of the build, not of development

    archive = CArchiveReader(str(program))
    inner = [name for name in archive.toc if name.endswith(".pyz")]
    return {module for name in inner for module in archive.open_embedded_archive(name).toc}


def _has_archive(program: Path) -> bool:
    # Not at the end alone: on a Mac the signature follows, with a hash for each page of the program.
    return _COOKIE in program.read_bytes()


def canonical(name: str) -> str:
    """A distribution's name as registries compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
