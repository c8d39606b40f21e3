"""A report that a person can save and send: what happened, on what, and the end of the log, without their own paths."""

from __future__ import annotations

import re
import sys
import tempfile
from datetime import datetime
from pathlib import Path

from app import places, product, words
from engine.errors import EngineError
from engine.machine import machine
from engine.runs import home_folder

_LOG_LINES = 200

# A part of a path may hold spaces and apostrophes, but a quotation mark ends it.
_PART = r"(?:[^/\n'\"]|'(?=\w))"
# Where people's own folders lie, with the name that says whose they are.
_PERSONAL = rf"/Users/[^/\s'\"]+|/home/[^/\s'\"]+|/Volumes/{_PART}*[^/\s'\"]"
# The folders on the way to a file: each ends in a slash at once, so that the words after a path are no part of it.
_FOLDERS = rf"(?:/[^/\s'\"](?:{_PART}*[^/\s'\"])?(?=/))+"


def report(what: str, details: str = "") -> str:
    """The text of a report: `what` happened and `details` such as a traceback, versions, machine, end of the log."""
    here = machine()
    parts = {
        "What happened": what,
        "Details": details.strip(),
        "When": datetime.now().astimezone().isoformat(timespec="seconds"),
        "Versions": "\n".join(f"{name} {version}" for name, version in product.versions().items()),
        "Memory": f"{words.memory(here.total_bytes)} in all, {words.memory(here.available_bytes)} free, "
        f"{words.memory(here.swap_bytes)} swapped out",
        "End of the log": _end_of_log(),
    }
    text = "\n\n".join(f"{title}\n{'-' * len(title)}\n{part}" for title, part in parts.items() if part)
    return impersonal(text) + "\n"


def save(text: str, path: Path) -> None:
    """Writes a report where the person chose. EngineError where the disk refuses."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise EngineError(
            f"The report could not be written to {path}: {error.strerror or error}.", "Choose another folder.", "disk"
        ) from error


def impersonal(text: str) -> str:
    """The text with people's folders shortened: "/Users/anna/Letters/may.jsonl" is "~/…/may.jsonl".

    Paths inside the program and Python stay whole below their roots, as a traceback says nothing without them.
    """
    roots = {
        Path(sys.prefix): "[Python]",
        Path(sys.base_prefix): "[Python]",
        places.RESOURCES.parent: "[Tunesmith]",  # after Python's: packaged, all three are one folder
        home_folder(): "[home]",
        Path(tempfile.gettempdir()): "[temporary]",
    }
    # Both as named and as they are, longest first: one may lie in another.
    named = {str(form): name for root, name in roots.items() for form in (root, root.resolve())}
    for root in sorted(named, key=len, reverse=True):
        text = re.sub(re.escape(root) + r"(?![^/\s'\",;:.)])", named[root], text)
    own = sorted({re.escape(str(form)) for form in (Path.home(), Path.home().resolve())}, key=len, reverse=True)
    personal = rf"(?:{'|'.join(own)}|{_PERSONAL})(?![^/\s'\",;:.)])"
    return re.sub(personal, "~", re.sub(personal + _FOLDERS, "~/…", text))


def _end_of_log() -> str:
    try:
        lines = places.log_file().read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "There is no log."
    return "\n".join(lines[-_LOG_LINES:])
