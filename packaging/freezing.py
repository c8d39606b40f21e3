"""The frozen program: an environment to freeze, and PyInstaller on our spec."""

from __future__ import annotations

import sys
from pathlib import Path

from commands import Run
from info_plist import MINIMUM_MACOS

ROOT = Path(__file__).resolve().parent.parent
SPEC = ROOT / "packaging" / "tunesmith.spec"

# uv and PyInstaller both read it: what the app must run on, whatever macOS builds it.
_TARGET = {"MACOSX_DEPLOYMENT_TARGET": MINIMUM_MACOS}


def macos_environment(run: Run, folder: Path) -> Path:
    """Makes an environment in `folder` of wheels that the oldest macOS runs, and checks that; its Python.

    pip would take the newest wheels that this very Mac can run: mlx-metal has others for macOS 15 and 26.
    """
    uv = (sys.executable, "-m", "uv")
    python = folder / "bin" / "python"
    run(*uv, "venv", "--clear", "--seed", "--python", sys.executable, folder)
    wheels = ("--python-platform", "aarch64-apple-darwin", "--only-binary", ":all:")
    project = ROOT / "pyproject.toml"
    run(*uv, "pip", "install", "--python", python, *wheels, "-r", project, "--group", f"{project}:package", env=_TARGET)
    run(*uv, "pip", "install", "--python", python, "--no-deps", "--editable", ROOT)
    run(sys.executable, ROOT / "packaging" / "verify_bundle.py", folder, "--only", "minimum macOS")
    return python


def freeze(run: Run, python: Path | str, dist: Path, scratch: Path) -> None:
    """Runs PyInstaller with an environment's `python`; the program is in `dist` afterwards."""
    folders = ("--distpath", dist, "--workpath", scratch / "pyinstaller")
    run(python, "-m", "PyInstaller", "--noconfirm", "--log-level", "WARN", *folders, SPEC, env=_TARGET)
