"""Where the window keeps its log, its settings and the sample's data, and where its resources lie."""

from __future__ import annotations

import logging
import logging.handlers
import os
import sys
from pathlib import Path

import platformdirs
from PySide6.QtCore import QSettings

from engine.errors import EngineError
from engine.runs import home_folder, write_whole

RESOURCES = Path(__file__).resolve().parent.parent / "resources"
ICON = RESOURCES / "icons" / "tunesmith.svg"
SAMPLE_DATA = RESOURCES / "samples" / "bookings.jsonl"
SAMPLE_HELD_OUT = RESOURCES / "samples" / "bookings_held_out.jsonl"
SAMPLE_PRESET = RESOURCES / "presets" / "bookings.toml"
LOGS = ("app", "engine")


def _own_home() -> Path | None:
    home = os.environ.get("TUNESMITH_HOME")
    return Path(home) if home else None


def log_file() -> Path:
    """The file that Help > Show Log reveals."""
    home = _own_home()
    folder = home / "log" if home else platformdirs.user_log_path("Tunesmith", appauthor=False)
    return folder / "tunesmith.log"


def crash_file() -> Path:
    """Where a crash that no Python code sees leaves its trace."""
    return log_file().with_name("crash.txt")


def sample_copy() -> Path:
    """Where the person's own copy of the sample's data is kept."""
    return home_folder() / "samples" / SAMPLE_DATA.name


def sample_data() -> Path:
    """The person's copy of the sample's data, made the first time. EngineError where the disk refuses.

    What is made from data goes beside it, so it can't stay in the program: writing there breaks its signature, and
    macOS may start it from another place each time.
    """
    copy = sample_copy()
    if not copy.is_file():
        try:
            copy.parent.mkdir(parents=True, exist_ok=True)
            write_whole(copy, SAMPLE_DATA.read_text(encoding="utf-8"))
        except OSError as error:
            raise EngineError(
                f"The sample's data could not be copied to {copy}: {error.strerror or error}.",
                "Make room on the disk, then try again.",
                kind="disk",
            ) from error
    return copy


def settings() -> QSettings:
    """What the window remembers between starts."""
    home = _own_home()
    if home:
        return QSettings(str(home / "config" / "window.ini"), QSettings.Format.IniFormat)
    # On macOS a domain, turned round, is the beginning of the file's name: so it is the program's own.
    return QSettings("tunesmith.app" if sys.platform == "darwin" else "Tunesmith", "Tunesmith")


def start_log() -> logging.Handler | None:
    """Sends the app's log, and the engine's in this process, to `log_file`.

    None where the disk refuses, which must not keep the window shut.
    """
    try:
        log_file().parent.mkdir(parents=True, exist_ok=True)
        handler = logging.handlers.RotatingFileHandler(
            log_file(), maxBytes=1_000_000, backupCount=2, encoding="utf-8", delay=True
        )
    except OSError:
        return None
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    for name in LOGS:
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).setLevel(logging.INFO)
    return handler
