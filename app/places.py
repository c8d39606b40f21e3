"""Where the window keeps its log and its settings, and where its resources lie."""

from __future__ import annotations

import logging
import logging.handlers
import os
from pathlib import Path

import platformdirs
from PySide6.QtCore import QSettings

RESOURCES = Path(__file__).resolve().parent.parent / "resources"
SAMPLE_DATA = RESOURCES / "samples" / "bookings.jsonl"
SAMPLE_HELD_OUT = RESOURCES / "samples" / "bookings_held_out.jsonl"
SAMPLE_PRESET = RESOURCES / "presets" / "bookings.toml"


def _own_home() -> Path | None:
    home = os.environ.get("TUNESMITH_HOME")
    return Path(home) if home else None


def log_file() -> Path:
    """The file that Help > Show Log reveals."""
    home = _own_home()
    folder = home / "log" if home else platformdirs.user_log_path("Tunesmith", appauthor=False)
    return folder / "tunesmith.log"


def settings() -> QSettings:
    """What the window remembers between starts."""
    home = _own_home()
    if home:
        return QSettings(str(home / "config" / "window.ini"), QSettings.Format.IniFormat)
    return QSettings("Tunesmith", "Tunesmith")


def start_log() -> logging.Handler | None:
    """Sends the app's log to `log_file`; None where the disk refuses, which must not keep the window shut."""
    try:
        log_file().parent.mkdir(parents=True, exist_ok=True)
        handler = logging.handlers.RotatingFileHandler(
            log_file(), maxBytes=1_000_000, backupCount=2, encoding="utf-8", delay=True
        )
    except OSError:
        return None
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger("app")
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    return handler
