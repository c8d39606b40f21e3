"""Mach-O files, macOS's programs and libraries: what they run on and what they load."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from macholib import mach_o
from macholib.MachO import MachO, MachOHeader

_MAGICS = {bytes.fromhex(magic) for magic in ("cffaedfe", "cefaedfe", "feedfacf", "feedface", "cafebabe", "cafebabf")}
_LOADS = {mach_o.LC_LOAD_DYLIB, mach_o.LC_REEXPORT_DYLIB, mach_o.LC_LOAD_UPWARD_DYLIB}
_SYSTEM = ("/usr/lib/", "/System/Library/")
# macholib's name for it is the enumeration's.
ARM64 = "ARM64"


@dataclass(frozen=True)
class Slice:
    """One architecture of a Mach-O file.

    `minimum` is the oldest macOS it runs on, () where it doesn't say. `loads` must be there at run time,
    `weak` may be missing. All three lists are as written in the file.
    """

    architecture: str
    minimum: tuple[int, ...]
    loads: tuple[str, ...]
    weak: tuple[str, ...]
    rpaths: tuple[str, ...]


def is_macho(path: Path) -> bool:
    """Whether `path` is a Mach-O file itself, not a link to one. A Java class has a universal file's magic number."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(8)
    # A universal file's second number counts its slices; a Java class's is its version, 45 at least.
    return head[:4] in _MAGICS and (head[:3] != b"\xca\xfe\xba" or int.from_bytes(head[4:]) < 45)


def read(path: Path) -> list[Slice]:
    """A Mach-O file's slices. ValueError where it can't be read as one."""
    try:
        return [_slice(header) for header in MachO(str(path)).headers]
    except struct.error as error:
        raise ValueError(f"it ends too early ({error})") from error


def _slice(header: MachOHeader) -> Slice:
    minimum: tuple[int, ...] = ()
    loads, weak, rpaths = [], [], []
    for command, details, data in header.commands:
        match command.cmd:
            case mach_o.LC_BUILD_VERSION:
                minimum = _version(details.minos)
            case mach_o.LC_VERSION_MIN_MACOSX:
                minimum = _version(details.version)
            case mach_o.LC_LOAD_WEAK_DYLIB:
                weak.append(_text(data))
            case mach_o.LC_RPATH:
                rpaths.append(_text(data))
            case kind if kind in _LOADS:
                loads.append(_text(data))
    name = mach_o.CPU_TYPE_NAMES.get(header.header.cputype, str(header.header.cputype))
    return Slice(name, minimum, tuple(loads), tuple(weak), tuple(rpaths))


def _version(packed: int) -> tuple[int, ...]:
    # Nibbles xxxx.yy.zz; the last one decides nothing here.
    return int(packed) >> 16, int(packed) >> 8 & 0xFF


def _text(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode("utf-8", errors="replace")


def is_system(load: str) -> bool:
    """Whether every Mac has what `load` names."""
    return load.startswith(_SYSTEM)


def places(load: str, file: Path, rpaths: list[str], executables: Path | None) -> list[Path]:
    """Where the loader looks for `load` on behalf of `file`. `executables` is the program's folder, if there is one."""
    if not load.startswith("@rpath/"):
        found = _place(load, file, executables)
        return [found] if found else []
    rest = load.removeprefix("@rpath/")
    folders = [_place(rpath, file, executables) for rpath in rpaths]
    return [folder / rest for folder in folders if folder]


def _place(path: str, file: Path, executables: Path | None) -> Path | None:
    if path == "@loader_path" or path.startswith("@loader_path/"):
        return file.parent / path.removeprefix("@loader_path").lstrip("/")
    if path == "@executable_path" or path.startswith("@executable_path/"):
        return executables and executables / path.removeprefix("@executable_path").lstrip("/")
    return Path(path) if path.startswith("/") else None
