"""What the build made, as files: an app for macOS, a frozen folder on Linux, or a tree of wheels."""

from __future__ import annotations

import hashlib
import plistlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Bundle:
    """A program's files. `libraries` is the folder that modules lie in, `programs` that of executables, if any."""

    root: Path
    libraries: Path
    programs: Path | None
    plist: dict[str, Any] | None

    @property
    def is_program(self) -> bool:
        """Whether it is a program, not a tree of wheels."""
        return self.programs is not None

    @property
    def resources(self) -> Path:
        """What the program brings of its own: presets, texts, the sample model, licences."""
        return self.libraries / "resources"

    def name(self, path: Path) -> str:
        """A file as a report calls it."""
        return str(path.relative_to(self.root))


class Finding(NamedTuple):
    """What a check found: `held` in its line of the report when nothing is wrong, else a sentence for each problem."""

    check: str
    held: str
    problems: list[str]


def open_bundle(root: Path) -> Bundle:
    """What lies at `root`. OSError or ValueError where an app's Info.plist can't be read."""
    contents = root / "Contents"
    if contents.is_dir():
        plist = plistlib.loads((contents / "Info.plist").read_bytes())
        return Bundle(root, contents / "Frameworks", contents / "MacOS", plist)
    internal = root / "_internal"
    return Bundle(root, internal, root, None) if internal.is_dir() else Bundle(root, root, None, None)


def files(root: Path) -> Iterator[Path]:
    """Everything under `root` but folders, sorted; links are told as they are and not followed."""
    return (path for path in sorted(root.rglob("*")) if path.is_symlink() or not path.is_dir())


def size(root: Path) -> int:
    """Bytes of all files under `root` (or of the file `root`); links count nothing."""
    if root.is_file():
        return root.stat().st_size
    return sum(path.stat().st_size for path in files(root) if not path.is_symlink())


def parts(bundle: Bundle) -> list[tuple[str, int]]:
    """The bundle's bytes by part (what lies beside the modules, at any of its homes), the largest first."""
    sizes: dict[str, int] = {}
    homes = sorted((bundle.libraries, bundle.root / "Contents" / "Resources"), key=str)
    for path in files(bundle.root):
        if path.is_symlink():
            continue
        home = next((home for home in homes if path.is_relative_to(home)), bundle.root)
        name = path.relative_to(home).parts[0]
        sizes[name] = sizes.get(name, 0) + path.stat().st_size
    return sorted(sizes.items(), key=lambda part: -part[1])


def sha256(path: Path) -> str:
    """A file's SHA-256, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
