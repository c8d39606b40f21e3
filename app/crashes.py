"""What a crash leaves that no Python code sees, such as one inside Qt: a trace in a file, found at the next start."""

from __future__ import annotations

import faulthandler
import logging
from pathlib import Path
from typing import TextIO

log = logging.getLogger(__name__)


class CrashTrace:
    """Has a crash of this process written to `path`, from now until `close`.

    `last` is the trace that the process before left there, empty where it ended well or was killed from outside.
    Where the disk refuses there is no trace: that must not keep the window shut.
    """

    def __init__(self, path: Path) -> None:
        self.last = ""
        self._path = path
        self._file: TextIO | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_file():
                self.last = path.read_text(encoding="utf-8", errors="replace").strip()
            self._file = path.open("w", encoding="utf-8")
        except OSError as error:
            log.warning("no trace of a crash can be written to %s: %s", path, error)
            return
        if self.last:
            log.critical("the last start ended in a crash\n%s", self.last)
        faulthandler.enable(self._file)

    def close(self) -> None:
        """This process has ended well."""
        if self._file:
            faulthandler.disable()
            self._file.close()
            self._path.unlink(missing_ok=True)
            self._file = None
