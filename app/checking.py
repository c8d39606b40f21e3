"""The check of the chosen data, kept up to date in a child process while settings change."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Signal

from app.answers import Check
from app.calls import Call
from app.progress import Progress
from engine.config import TrainConfig
from engine.events import Failed, Stage

# Typing a number should not start a process for every digit.
_SETTLE_MS = 250


def check_arguments(config: TrainConfig) -> list[str]:
    """What `check`, `preview` and `fix` need to know of the settings."""
    # Names that people give stand behind "=": alone, one that begins with a dash would be taken for a flag.
    arguments = [
        config.data, f"--model={config.model}", "--max-length", str(config.max_length),
        "--objective", config.objective, "--sft-scope", config.sft_scope, "--trained-turns", config.trained_turns,
    ]  # fmt: skip
    return arguments + ([f"--columns={config.columns}"] if config.columns else [])


class DataCheck(QObject):
    """Holds the latest answer of `check` for the data, model, length and objective in force.

    Signals:
        changed(): a check began, was answered, was stopped or failed.
        advanced(): it has read on.
    """

    changed = Signal()
    advanced = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.result: Check | None = None
        self.failure: Failed | None = None
        self.busy = False
        self.progress = Progress()
        self._wanted: list[str] = []
        self._about = ("", "", "")
        self._call: Call | None = None
        self._timer = QTimer(self, singleShot=True, interval=_SETTLE_MS)
        self._timer.timeout.connect(self._start)

    def follow(self, config: TrainConfig, *, possible: bool) -> None:
        """Checks `config`'s data soon, unless that is what the last check was about."""
        arguments: list[str] = []
        if config.data and possible:
            arguments = ["check", *check_arguments(config), "--seed", str(config.seed), "--json"]
            arguments += [f"--valid={config.valid}"] if config.valid else []
        if arguments == self._wanted:
            return
        if (about := (config.data, config.objective, config.columns)) != self._about:
            self.result = None  # another file, or rows that were read as others: the figures would mislead
        self._wanted, self._about = arguments, about
        self.again()

    def again(self) -> None:
        """Checks once more, for a file that was mended meanwhile."""
        self._drop()
        self.failure = None
        self.progress = Progress()
        self.busy = bool(self._wanted)
        if self.busy:
            self._timer.start()
        else:
            self._timer.stop()
        self.changed.emit()

    def stop(self) -> None:
        """Ends a check under way, without an answer."""
        self._timer.stop()
        if self._call:
            self._call.stop()
        elif self.busy:
            self._stopped()

    def close(self) -> None:
        """Ends a check under way."""
        self._timer.stop()
        self._drop()

    def _drop(self) -> None:
        if self._call:
            self._call.cancel()
            self._call = None

    def _start(self) -> None:
        self._call = Call(self, *self._wanted)
        self._call.progressed.connect(self._progressed)
        self._call.answered.connect(self._answered)
        self._call.failed.connect(self._failed)
        self._call.stopped.connect(self._stopped)

    def _progressed(self, stage: Stage) -> None:
        self.progress.take(stage)
        self.advanced.emit()

    def _answered(self, answer: dict[str, object]) -> None:
        self._end(Check.read(answer), None)

    def _failed(self, failure: Failed) -> None:
        self._end(None, failure)

    def _stopped(self) -> None:
        self._end(None, Failed("stopped", "Reading the data was stopped.", "Check it again when there is time for it."))

    def _end(self, result: Check | None, failure: Failed | None) -> None:
        self._call, self.busy = None, False
        self.result, self.failure = result, failure
        self.changed.emit()
