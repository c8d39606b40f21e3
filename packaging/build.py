"""Builds Tunesmith for the machine it runs on, into dist/: one command, a function a step.

On a Mac: wheels for the oldest macOS, frozen, signed, checked, tried, approved by Apple, as a disk image, and all that
again for the image. On Linux: frozen, checked, tried. `--dry-run` prints a Mac's commands on any machine and runs none.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path

from bundle import open_bundle, parts, sha256, size
from commands import Run, run, show
from dmg import make_image, mounted
from freezing import ROOT, freeze, macos_environment
from info_plist import NAME
from signing import assess_app, assess_image, notarize, sign_app, sign_image, staple, verify_signature

from engine.errors import EngineError

DIST = ROOT / "dist"
SCRATCH = ROOT / "build"
IMAGE_LIMIT_MB = 350
# notarytool's options for an API key, and where their values come from.
_API_KEY = {
    "--key": "TUNESMITH_NOTARY_KEY",
    "--key-id": "TUNESMITH_NOTARY_KEY_ID",
    "--issuer": "TUNESMITH_NOTARY_ISSUER",
}
# The parts that are named one by one when sizes are printed.
_NAMED_PARTS = 12


@dataclass(frozen=True)
class Release:
    """How the app is handed out: signed with `identity`, and approved by Apple with notarytool's `credentials`."""

    identity: str | None = None
    credentials: tuple[str, ...] = ()


def build_on_macos(run: Run, release: Release) -> tuple[Path, Path]:
    """Every step of a Mac build: the app and the disk image."""
    app, image = DIST / f"{NAME}.app", DIST / f"{NAME}-{version()}.dmg"
    clear_the_way(run, app, DIST / NAME, image)
    python = macos_environment(run, SCRATCH / "environment")
    freeze(run, python, DIST, SCRATCH)
    run("rm", "-rf", DIST / NAME)  # what PyInstaller made the app of
    sign_app(run, app, release.identity)
    verify_bundle(run, python, app)
    verify_signature(run, app)
    self_test(run, app / "Contents" / "MacOS" / NAME)
    # Again: what the program writes into its own bundle breaks the signature.
    verify_signature(run, app)
    if release.credentials:
        archive = SCRATCH / f"{NAME}.zip"
        run("ditto", "-c", "-k", "--keepParent", app, archive)
        approve(run, release, archive, app)
        assess_app(run, app)
    make_image(run, app, image, SCRATCH)
    if release.identity:
        sign_image(run, image, release.identity)
    if release.credentials:
        approve(run, release, image, image)
        assess_image(run, image)
    with mounted(run, image, SCRATCH) as volume:
        self_test(run, volume / app.name / "Contents" / "MacOS" / NAME)
    return app, image


def build_on_linux(run: Run) -> Path:
    """Every step of a Linux build: the frozen folder."""
    folder = DIST / NAME
    clear_the_way(run, folder)
    freeze(run, sys.executable, DIST, SCRATCH)
    verify_bundle(run, sys.executable, folder)
    self_test(run, folder / NAME)
    return folder


def version() -> str:
    """The version that pyproject.toml declares."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def clear_the_way(run: Run, *results: Path) -> None:
    """Removes what an earlier build left where this one's results go, and says so."""
    for result in results:
        if result.exists():
            made = datetime.fromtimestamp(result.stat().st_mtime).astimezone()
            print(f"Replaces {result.relative_to(ROOT)} of {made:%Y-%m-%d %H:%M}.", flush=True)
            run("rm", "-rf", result)


def verify_bundle(run: Run, python: Path | str, made: Path) -> None:
    """Holds the bundle against what must be, with the Python it was frozen from, which knows what belongs to whom."""
    run(python, ROOT / "packaging" / "verify_bundle.py", made)


def self_test(run: Run, program: Path) -> None:
    """Has the frozen program try itself: a window, three training steps, an answer."""
    run(program, "--self-test")


def approve(run: Run, release: Release, archive: Path, target: Path) -> None:
    """Has Apple approve what is in `archive` and fastens the approval to `target`."""
    notarize(run, archive, release.credentials)
    staple(run, target)


def release_from(options: argparse.Namespace, environ: Mapping[str, str]) -> Release:
    """What the command line says, else the environment. EngineError where the two halves don't fit."""
    identity = options.identity or environ.get("TUNESMITH_IDENTITY") or None
    profile = options.keychain_profile or environ.get("TUNESMITH_NOTARY_PROFILE")
    key = {option: environ.get(name, "") for option, name in _API_KEY.items()}
    missing = [_API_KEY[option] for option, value in key.items() if not value]
    credentials: tuple[str, ...] = ()
    if profile:
        credentials = ("--keychain-profile", profile)
    elif not missing:
        credentials = tuple(chain.from_iterable(key.items()))
    elif len(missing) < len(key):
        raise EngineError(f"{' and '.join(missing)} is not set.", "An API key is its file, its id and its issuer.")
    if credentials and not identity:
        raise EngineError("Apple approves nothing that is signed ad hoc.", "Name a Developer ID with --identity.")
    return Release(identity, credentials)


def report(made: Path, image: Path | None = None) -> None:
    """Prints sizes by part and hashes. EngineError where the disk image is over its limit."""
    sizes = parts(open_bundle(made))
    rest = sum(amount for _, amount in sizes[_NAMED_PARTS:])
    for name, amount in [*sizes[:_NAMED_PARTS], ("everything else", rest), (made.name, size(made))]:
        print(f"{amount / 1e6:8.1f} MB  {name}")
    if image:
        megabytes = size(image) / 1e6
        print(f"{megabytes:8.1f} MB  {image.name}\nsha256 {sha256(image)}  {image.name}")
        if megabytes > IMAGE_LIMIT_MB:
            raise EngineError(
                f"The disk image has {megabytes:.0f} MB; the limit is {IMAGE_LIMIT_MB} MB.",
                "The sizes above say where they go.",
            )


def main(argv: Sequence[str] | None = None) -> int:
    """Builds; 0 where it is done, 2 with a sentence where it is not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dry-run", action="store_true", help="print the commands of a build on a Mac and run none")
    parser.add_argument("--identity", help="a Developer ID to sign with (or TUNESMITH_IDENTITY); without one, ad hoc")
    parser.add_argument(
        "--keychain-profile",
        help="notarytool's profile (or TUNESMITH_NOTARY_PROFILE); else the API key that packaging/README.md names",
    )
    options = parser.parse_args(argv)
    try:
        release = release_from(options, os.environ)
        if options.dry_run:
            build_on_macos(show, release)
        elif (sys.platform, platform.machine()) == ("darwin", "arm64"):
            report(*build_on_macos(run, release))
        elif sys.platform == "linux":
            report(build_on_linux(run))
        else:
            raise EngineError(
                f"Tunesmith can't be built on {sys.platform} with a Python for {platform.machine()}.",
                "Build on a Mac with Apple silicon, with an arm64 Python, or on Linux.",
            )
    except EngineError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
