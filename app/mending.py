"""Mending the chosen data: `fix` in a child process, which writes a new file beside the old one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.answers import Fixed
from app.calls import Call
from app.checking import check_arguments
from app.progress import Progress
from engine.config import TrainConfig
from engine.events import Failed, Stage


class Mending(QObject):
    """Runs one `fix` at a time.

    Signals:
        changed(): it began, ended, or is about to stop.
        advanced(): it has read on.
        mended(Path, Fixed): the file it was about, and the new one.
        failed(Failed): nothing was written.
    """

    changed = Signal()
    advanced = Signal()
    mended = Signal(Path, Fixed)
    failed = Signal(Failed)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.busy = False
        self.stopping = False
        self.progress = Progress()
        self.cures: Sequence[str] = ()  # those of the last time
        self._source = Path()
        self._call: Call | None = None

    def start(self, config: TrainConfig, cures: Sequence[str]) -> None:
        """Mends `config`'s data by `cures`."""
        if self.busy or not config.data or not cures:
            return
        self.busy, self.stopping, self.progress = True, False, Progress()
        self.cures, self._source = tuple(cures), Path(config.data)
        wanted = [part for cure in cures for part in ("--cure", cure)]
        self._call = Call(self, "fix", *check_arguments(config), *wanted, "--json")
        self._call.progressed.connect(self._progressed)
        self._call.answered.connect(self._answered)
        self._call.failed.connect(self._failed)
        self._call.stopped.connect(self._end)
        self.changed.emit()

    def stop(self) -> None:
        """Ends it without a new file."""
        if self._call and not self.stopping:
            self.stopping = True
            self._call.stop()
            self.changed.emit()

    def close(self) -> None:
        """Ends it and waits until its child is gone."""
        if self._call:
            self._call.cancel()
            self._call, self.busy = None, False

    def _progressed(self, stage: Stage) -> None:
        self.progress.take(stage)
        self.advanced.emit()

    def _answered(self, answer: dict[str, object]) -> None:
        self._end()
        self.mended.emit(self._source, Fixed.read(answer))

    def _failed(self, failure: Failed) -> None:
        self._end()
        self.failed.emit(failure)

    def _end(self) -> None:
        self._call, self.busy, self.stopping = None, False, False
        self.changed.emit()
