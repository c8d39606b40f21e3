"""What this program is called, which version it is, and what runs underneath."""

from __future__ import annotations

import importlib.metadata
import platform
import tomllib
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from PySide6.QtCore import qVersion

NAME = "Tunesmith"
IDENTIFIER = "app.tunesmith.Tunesmith"

_UNDERNEATH = {"MLX": "mlx", "mlx-lm": "mlx-lm", "PySide": "pyside6-essentials", "pyqtgraph": "pyqtgraph"}


def version() -> str:
    """This program's version."""
    try:
        return importlib.metadata.version(NAME)
    except importlib.metadata.PackageNotFoundError:
        return str(_declared()["version"])


def versions() -> dict[str, str]:
    """The versions of this program and of what it runs on, by their names."""
    return {
        NAME: version(),
        **{name: _version(distribution) for name, distribution in _UNDERNEATH.items()},
        "Qt": qVersion(),
        "Python": platform.python_version(),
        "System": f"{_system()}, {platform.machine()}",
    }


def requirements() -> list[str]:
    """What this program needs at run time, on any system, as requirements without markers."""
    try:
        wanted = importlib.metadata.requires(NAME) or []
    except importlib.metadata.PackageNotFoundError:
        project = _declared()
        wanted = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    return [requirement.partition(";")[0].strip() for requirement in wanted]


def _system() -> str:
    mac = platform.mac_ver()[0]
    return f"macOS {mac}" if mac else f"{platform.system()} {platform.release()}"


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not found"


@cache
def _declared() -> dict[str, Any]:
    """The project's table, for a source tree that nobody installed."""
    text = (Path(__file__).resolve().parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    project: dict[str, Any] = tomllib.loads(text)["project"]
    return project
