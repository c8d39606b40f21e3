"""The disk image that people download: the app beside a link to Applications."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from commands import Run

from engine.errors import EngineError


def make_image(run: Run, app: Path, image: Path, scratch: Path) -> Path:
    """Makes `image` of `app`, by way of a folder in `scratch` that it makes anew; the image."""
    stage = scratch / "image"
    run("rm", "-rf", stage)
    run("mkdir", "-p", stage)
    # ditto keeps links and extended attributes, which the signature covers.
    run("ditto", app, stage / app.name)
    run("ln", "-s", "/Applications", stage / "Applications")
    # ULMO is LZMA: the smallest that macOS 14 opens.
    how: list[str | Path] = ["-volname", app.stem, "-srcfolder", stage, "-fs", "HFS+", "-format", "ULMO"]
    run("hdiutil", "create", *how, image)
    run("hdiutil", "verify", image)
    return image


@contextmanager
def mounted(run: Run, image: Path, scratch: Path) -> Iterator[Path]:
    """The folder in which `image` is mounted, read-only, while the context lasts; its name has spaces and an umlaut."""
    volume = scratch / "mounted image für Tests"
    run("mkdir", "-p", volume)
    run("hdiutil", "attach", "-readonly", "-nobrowse", "-noautoopen", "-mountpoint", volume, image)
    try:
        yield volume
    finally:
        try:
            run("hdiutil", "detach", "-force", volume)
        except EngineError as error:
            # Spotlight may hold it for a while. What was built is none the worse for it.
            print(f"The disk image stays mounted at {volume}. {error.message}", flush=True)
