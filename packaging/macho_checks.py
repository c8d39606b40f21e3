"""Checks of a bundle's Mach-O files: that another Mac can run them."""

from __future__ import annotations

from pathlib import Path

import macho
from bundle import Bundle, Finding, files
from info_plist import MINIMUM_MACOS
from macho import Slice

Binaries = dict[Path, list[Slice]]


def of(bundle: Bundle) -> list[Finding]:
    """Every check of Mach-O files; none where there are none."""
    paths = [path for path in files(bundle.root) if macho.is_macho(path)]
    if not paths:
        return []
    binaries: Binaries = {}
    unreadable = []
    for path in paths:
        try:
            binaries[path] = macho.read(path)
        except ValueError as error:
            unreadable.append(f"{bundle.name(path)} can't be read: {error}.")
    return [
        Finding("readable", f"{len(paths)} Mach-O files", unreadable),
        architecture(bundle, binaries),
        minimum_macos(bundle, binaries),
        load_paths(bundle, binaries),
        metallib(bundle),
    ]


def architecture(bundle: Bundle, binaries: Binaries) -> Finding:
    """arm64 and nothing else: another slice is dead weight, one without it doesn't load."""
    problems = []
    for path, slices in binaries.items():
        names = [one.architecture for one in slices]
        if names != [macho.ARM64]:
            problems.append(f"{bundle.name(path)} is for {' and '.join(names)}, not for {macho.ARM64} alone.")
    return Finding("architecture", f"all are {macho.ARM64} and nothing else", problems)


def minimum_macos(bundle: Bundle, binaries: Binaries) -> Finding:
    """No file may need a newer macOS than Info.plist promises."""
    promised = str((bundle.plist or {}).get("LSMinimumSystemVersion", MINIMUM_MACOS))
    limit = tuple(map(int, promised.split(".")[:2]))
    problems = []
    for path, slices in binaries.items():
        name = bundle.name(path)
        for minimum in {one.minimum for one in _run(slices)}:
            if not minimum:
                problems.append(f"{name} doesn't say which macOS it needs.")
            elif minimum > limit:
                problems.append(f"{name} needs macOS {'.'.join(map(str, minimum))}, but {promised} is promised.")
    return Finding("minimum macOS", f"none needs more than {promised}", problems)


def load_paths(bundle: Bundle, binaries: Binaries) -> Finding:
    """Each library that a file loads is macOS's own or inside, and no search path leads out."""
    problems = []
    programs = [path for path in binaries if path.parent == bundle.programs]
    inherited = [rpath for path in programs for one in _run(binaries[path]) for rpath in one.rpaths]
    for path, slices in binaries.items():
        name = bundle.name(path)
        for one in _run(slices):
            out = [rpath for rpath in one.rpaths if rpath.startswith("/") and not macho.is_system(rpath + "/")]
            problems += [f"{name} searches {rpath}, which other Macs don't have." for rpath in out]
            for load in one.loads + one.weak:
                if macho.is_system(load):
                    continue
                if load.startswith("/"):
                    problems.append(f"{name} loads {load}, which other Macs don't have.")
                elif load in one.loads and not _inside(bundle, load, path, [*one.rpaths, *inherited]):
                    problems.append(f"{name} loads {load}, which is not in the bundle.")
    return Finding("load paths", "all lead to macOS's own libraries or into the bundle", problems)


def _inside(bundle: Bundle, load: str, path: Path, rpaths: list[str]) -> bool:
    root = bundle.root.resolve()
    found = (place.resolve() for place in macho.places(load, path, rpaths, bundle.programs))
    return any(place.is_file() and place.is_relative_to(root) for place in found)


def metallib(bundle: Bundle) -> Finding:
    """MLX looks for its GPU programs beside each libmlx.dylib, by the name it was loaded under: a link counts too."""
    libraries = [path for path in files(bundle.root) if path.name == "libmlx.dylib"]
    problems = [
        f"{bundle.name(path)} has no mlx.metallib beside it."
        for path in libraries
        if not (path.parent / "mlx.metallib").is_file()
    ]
    if not libraries:
        problems = ["There is no libmlx.dylib."]
    return Finding("metallib", f"beside each of {len(libraries)} libmlx.dylib", problems)


def _run(slices: list[Slice]) -> list[Slice]:
    # What an Apple silicon Mac takes; all of them where there is nothing for it, which `architecture` tells.
    return [one for one in slices if one.architecture == macho.ARM64] or slices
