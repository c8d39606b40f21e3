"""Mach-O files of a few hundred bytes: a header and the load commands that the checks read (mach-o/loader.h)."""

import struct
from pathlib import Path

_CPU = {"ARM64": 0x0100000C, "x86_64": 0x01000007}
_BUILD_VERSION, _DYLIB, _WEAK_DYLIB, _RPATH = 0x32, 0xC, 0x80000018, 0x8000001C


def macho(architecture="ARM64", minimum=(14, 0), loads=(), weak=(), rpaths=()) -> bytes:
    """A library of one architecture."""
    commands = [struct.pack("<6I", _BUILD_VERSION, 24, 1, minimum[0] << 16 | minimum[1] << 8, 0, 0)] if minimum else []
    commands += [_with_text(_DYLIB, struct.pack("<4I", 24, 0, 0, 0), load) for load in loads]
    commands += [_with_text(_WEAK_DYLIB, struct.pack("<4I", 24, 0, 0, 0), load) for load in weak]
    commands += [_with_text(_RPATH, struct.pack("<I", 12), rpath) for rpath in rpaths]
    body = b"".join(commands)
    return struct.pack("<8I", 0xFEEDFACF, _CPU[architecture], 0, 6, len(commands), len(body), 0, 0) + body


def universal(*slices: bytes) -> bytes:
    """One file of several architectures."""
    offset, heads, bodies = 8 + 20 * len(slices), b"", b""
    for one in slices:
        heads += struct.pack(">5I", *struct.unpack_from("<2I", one, 4), offset + len(bodies), len(one), 0)
        bodies += one
    return struct.pack(">2I", 0xCAFEBABE, len(slices)) + heads + bodies


def write(path: Path, data: bytes | str = b"x") -> Path:
    """Writes a file and the folders it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def _with_text(command: int, fields: bytes, text: str) -> bytes:
    data = text.encode() + b"\0"
    data += b"\0" * (-(8 + len(fields) + len(data)) % 8)
    return struct.pack("<2I", command, 8 + len(fields) + len(data)) + fields + data
