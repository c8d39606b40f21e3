"""ELF files, Linux's programs and libraries: what they load and where they look for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from elftools.elf.elffile import ELFFile

# What a desktop itself brings: glibc, OpenGL's side of the graphics drivers, the libraries of X and of fonts
# (.ci/system.sh names their packages).
_SYSTEM = re.compile(
    r"ld-linux.*|lib(c|m|dl|pthread|rt|util|resolv|anl|nsl|crypt)\.so\.\d+|lib(gcc_s|stdc\+\+|z)\.so\.\d+"
    r"|lib(GL|EGL|OpenGL|GLX|GLESv2|GLdispatch|drm|gbm|vulkan)\.so\.\d+"
    r"|lib(X11|X11-xcb|Xau|Xdmcp|Xext|xcb|wayland)[\w-]*\.so\.\d+|lib(fontconfig|freetype|dbus-1|glib-2\.0|gthread-2\.0)\.so\.\d+"
)


class Needs(NamedTuple):
    """What a file loads, by name, and the folders it looks in before the system's, as written in it."""

    libraries: list[str]
    rpaths: list[str]


def is_elf(path: Path) -> bool:
    """Whether `path` is an ELF file itself, not a link to one."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def read(path: Path) -> Needs:
    """What an ELF file needs. ELFError where it can't be read as one."""
    libraries: list[str] = []
    rpaths: list[str] = []
    with path.open("rb") as file:
        sections: Iterator[Any] = ELFFile(file).iter_sections("SHT_DYNAMIC")
        for section in sections:
            libraries += [tag.needed for tag in section.iter_tags("DT_NEEDED")]
            rpaths += [folder for tag in section.iter_tags("DT_RPATH") for folder in tag.rpath.split(":")]
            rpaths += [folder for tag in section.iter_tags("DT_RUNPATH") for folder in tag.runpath.split(":")]
    return Needs(libraries, rpaths)


def is_system(library: str) -> bool:
    """Whether a Linux desktop has the library by itself."""
    return _SYSTEM.fullmatch(library) is not None


def folder(rpath: str, file: Path) -> Path | None:
    """The folder that `rpath` means for `file`; None where it isn't relative to it."""
    for origin in ("$ORIGIN", "${ORIGIN}"):
        if rpath == origin or rpath.startswith(origin + "/"):
            return file.parent / rpath.removeprefix(origin).lstrip("/")
    return None
