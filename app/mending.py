"""Mending the chosen data: `fix` in a child process, which writes a new file or folder beside the old one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.answers import Fixed
from app.checking import check_arguments
from app.job import Job
from app.progress import Progress
from engine.config import TrainConfig
from engine.events import Failed, Stage


class Mending(Job):
    """Runs one `fix` at a time.

    Signals:
        advanced(): it has read on.
        mended(Path, Fixed): the file it was about, and the new one.
        failed(Failed): nothing was written.
    """

    advanced = Signal()
    mended = Signal(Path, Fixed)
    failed = Signal(Failed)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.progress = Progress()
        self.cures: Sequence[str] = ()  # those of the last time
        self._source = Path()

    def start(self, config: TrainConfig, cures: Sequence[str]) -> None:
        """Mends `config`'s data by `cures`."""
        if self.busy or not config.data or not cures:
            return
        self.progress = Progress()
        self.cures, self._source = tuple(cures), Path(config.data)
        wanted = [part for cure in cures for part in ("--cure", cure)]
        self._begin("fix", *check_arguments(config), *wanted, "--json")

    def _progressed(self, stage: Stage) -> None:
        self.progress.take(stage)
        self.advanced.emit()

    def _answered(self, answer: dict[str, Any]) -> None:
        self._end()
        self.mended.emit(self._source, Fixed.read(answer))

    def _failed(self, failure: Failed) -> None:
        self._end()
        self.failed.emit(failure)
