"""Checks of a bundle's files as files: size, leftovers, links, what must be there, licences, Info.plist."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bundle import Bundle, Finding, files, size
from info_plist import info_plist
from shipped import canonical, distributions

from engine.models import sample

_PRESENT = (
    f"models/{sample.GGUF}",
    "presets/bookings.toml",
    "samples/bookings.jsonl",
    "texts/window.qss",
)
# Qt loads them by name, so nothing else misses them; a self-test without a display does not either.
_MACS_PLUGINS = ("platforms/libqcocoa.dylib", "iconengines/libqsvgicon.dylib")
_LINUXS_PLUGINS = ("platforms/libqxcb.so", "iconengines/libqsvgicon.so")
_WITHOUT_MODULES = {"python", "qt", canonical(sample.NAME)}
_LEFTOVER_FOLDERS = {"__pycache__", "tests", "test", "include", ".git", ".pytest_cache"}
_LEFTOVER_SUFFIXES = {
    *(".h", ".hh", ".hpp", ".c", ".cc", ".cpp", ".pyx", ".pxd", ".pxi", ".pyi"),
    *(".a", ".la", ".lib", ".cmake", ".prl", ".qmltypes"),
}


def size_within(bundle: Bundle, limit_mb: int) -> Finding:
    """Megabytes are 10^6 bytes, as Finder shows them."""
    megabytes = size(bundle.root) / 1e6
    over = f"It has {megabytes:.0f} MB; the limit is {limit_mb} MB."
    return Finding("size", f"{megabytes:.0f} MB of {limit_mb}", [over] if megabytes > limit_mb else [])


def no_leftovers(bundle: Bundle) -> Finding:
    """No tests, headers, static libraries or caches: nothing that a running program never opens."""
    problems = []
    folders: set[Path] = set()
    for path in files(bundle.root):
        inner = path.relative_to(bundle.root)
        left = next((parent for parent in reversed(inner.parents) if parent.name in _LEFTOVER_FOLDERS), None)
        if left and left not in folders:
            folders.add(left)
            problems.append(f"{left}/ is left over.")
        elif not left and path.suffix in _LEFTOVER_SUFFIXES:
            problems.append(f"{inner} is left over.")
    return Finding("leftovers", "no tests, headers or caches", problems)


def names_apart(bundle: Bundle) -> Finding:
    """Two names that differ in case alone are one on most Macs: of two files or folders one is lost."""
    paths = {bundle.root / parent for path in files(bundle.root) for parent in path.relative_to(bundle.root).parents}
    seen: dict[tuple[Path, str], Path] = {}
    problems = []
    for path in sorted(paths | set(files(bundle.root))):
        first = seen.setdefault((path.parent, path.name.casefold()), path)
        if first != path:
            problems.append(f"{bundle.name(first)} and {bundle.name(path)} are one name on a Mac.")
    return Finding("names", "no two differ in case alone", problems)


def links_stay_inside(bundle: Bundle) -> Finding:
    """A link that is absolute, leads out or leads nowhere breaks where the bundle is moved to."""
    problems = []
    root = bundle.root.resolve()
    links = [path for path in files(bundle.root) if path.is_symlink()]
    for link in links:
        target = link.readlink()
        if target.is_absolute() or not link.resolve().is_relative_to(root):
            problems.append(f"{bundle.name(link)} links to {target}, outside of the bundle.")
        elif not link.exists():
            problems.append(f"{bundle.name(link)} links to {target}, which is not there.")
    return Finding("links", f"{len(links)} links stay inside", problems)


def described(bundle: Bundle, plist: dict[str, Any]) -> Finding:
    """Info.plist says what the build meant it to say, and the program and icon it names are there."""
    version = str(plist.get("CFBundleShortVersionString", ""))
    problems = [
        f"Info.plist has another {key} than the build gave it."
        for key, value in info_plist(version).items()
        if plist.get(key) != value
    ]
    if not version:
        problems.append("Info.plist has no version.")
    contents = bundle.root / "Contents"
    for key, folder in (("CFBundleExecutable", "MacOS"), ("CFBundleIconFile", "Resources")):
        name = str(plist.get(key, ""))
        if not name or not (contents / folder / name).is_file():
            problems.append(f"Info.plist's {key}, {name or 'which it lacks'}, is not in Contents/{folder}.")
    return Finding("Info.plist", f"version {version}, program and icon are there", problems)


def complete(bundle: Bundle) -> Finding:
    """What makes the first minute work: a window, and without a network the sample model, its data and its preset."""
    plugins = _LINUXS_PLUGINS if bundle.plist is None else _MACS_PLUGINS
    wanted = [f"resources/{name}" for name in _PRESENT] + [f"PySide6/Qt/plugins/{name}" for name in plugins]
    problems = [f"{name} is missing." for name in wanted if not (bundle.libraries / name).is_file()]
    return Finding("complete", "Qt's plugins, sample model, sample data, preset and texts are there", problems)


def licensed(bundle: Bundle) -> Finding:
    """Whatever is inside has its licence there in full: distributions, Python, Qt, the model, a system's libraries."""
    folder = bundle.resources / "licences"
    try:
        entries = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        texts = {canonical(entry["name"]): [folder / file for file in entry["files"]] for entry in entries}
        told = {library for entry in entries for library in entry.get("libraries", ())}
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Finding("licences", "", [f"resources/licences/index.json can't be read: {error}."])
    needed = _WITHOUT_MODULES | distributions(bundle)
    problems = []
    for name in sorted(needed | texts.keys()):
        if name not in texts:
            problems.append(f"{name} is inside without a licence.")
        elif not texts[name] or not all(text.is_file() and text.stat().st_size for text in texts[name]):
            problems.append(f"The licence of {name} has no text.")
    problems += [f"{name} is inside without a licence." for name in sorted(_systems(bundle) - told)]
    return Finding("licences", f"of {len(texts)} parts are there in full", problems)


def _systems(bundle: Bundle) -> set[str]:
    """The libraries that a Linux build took from the system: files at the top, where all others are links."""
    if bundle.plist is not None:
        return set()
    libraries = (path for path in bundle.libraries.glob("lib*.so*") if path.is_file() and not path.is_symlink())
    return {path.name for path in libraries if not path.name.startswith("libpython")}
