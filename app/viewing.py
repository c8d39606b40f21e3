"""Files and folders shown by the system's own programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PySide6.QtCore import QUrl
from PySide6.QtGui import QDesktopServices

from engine.errors import EngineError

_LIBRARIES = "LD_LIBRARY_PATH"


def show(path: Path) -> None:
    """Has the system show a file or a folder. EngineError where no program of its does."""
    with _systems_libraries():
        shown = QDesktopServices.openUrl(QUrl.fromLocalFile(str(path)))
    if not shown:
        raise EngineError(f"Nothing on this system shows {path.name}.", f"Look for it at {path}.")


@contextmanager
def _systems_libraries() -> Iterator[None]:
    """Programs that are started meanwhile load the libraries they were made for.

    On Linux a packaged program has itself and its children look inside it first; what was set before, if anything, is
    kept under another name (PyInstaller's).
    """
    ours = os.environ.get(_LIBRARIES) if getattr(sys, "frozen", False) else None
    if ours is None:
        yield
        return
    before = os.environ.get(f"{_LIBRARIES}_ORIG")
    try:
        if before is None:
            del os.environ[_LIBRARIES]
        else:
            os.environ[_LIBRARIES] = before
        yield
    finally:
        os.environ[_LIBRARIES] = ours
