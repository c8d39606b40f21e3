"""Rows on their way to the disk as JSON lines: one file for each that they come from."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO


def written_name(file: str) -> str:
    """The name of the file that the rows of another one are written to."""
    return f"{Path(file).stem}.jsonl"


class LinesWriter:
    """The files of a folder, one open at a time: a folder may have thousands.

    Use it as a context: at its end all of them are on the disk. A file that no row is written to isn't there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = ""
        self._open: TextIO | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def write(self, file: str, text: str) -> None:
        """One more line of the rows that come from `file`."""
        if self._open is None or file != self._name:
            self._close()
            # Appended: the names of two may differ in nothing but the letters of their endings.
            self._open = (self._folder / written_name(file)).open("a", encoding="utf-8", newline="\n")
            self._name = file
        self._open.write(text + "\n")

    def _close(self) -> None:
        if self._open is None:
            return
        with self._open as file:
            self._open = None
            file.flush()
            os.fsync(file.fileno())
