"""Checks of a bundle's ELF files: that another Linux desktop can run them."""

from __future__ import annotations

from pathlib import Path

import elf
from bundle import Bundle, Finding, files
from elftools.common.exceptions import ELFError


def of(bundle: Bundle) -> list[Finding]:
    """Every check of ELF files; none where there are none."""
    paths = [path for path in files(bundle.root) if elf.is_elf(path)]
    return [libraries(bundle, paths)] if paths else []


def libraries(bundle: Bundle, paths: list[Path]) -> Finding:
    """Each library that a file needs is a desktop's own or inside.

    A search path that leads out, such as Python's own to where it was installed, counts for nothing and does no harm.
    """
    problems = []
    # PyInstaller's program has the loader look in the modules' folder first.
    common = {path.name for path in bundle.libraries.iterdir()}
    for path in paths:
        name = bundle.name(path)
        try:
            needs = elf.read(path)
        except ELFError as error:
            problems.append(f"{name} can't be read: {error}.")
            continue
        folders = [folder for rpath in needs.rpaths if (folder := elf.folder(rpath, path))]
        for library in needs.libraries:
            beside = any((folder / library).is_file() for folder in folders)
            if not (beside or library in common or elf.is_system(library)):
                problems.append(f"{name} needs {library}, which is neither in the bundle nor part of a desktop.")
    return Finding("libraries", f"all that {len(paths)} ELF files need are inside or a desktop's own", problems)
