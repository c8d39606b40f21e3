"""One question to our own command line: a child process that answers with JSON while the window goes on."""

from __future__ import annotations

import json
import logging
from typing import Any

from PySide6.QtCore import QObject, QProcess, QTimer, Signal

from engine import isolated
from engine.events import Failed, Stage

log = logging.getLogger(__name__)

# How long a child that is asked to end may take, with children of its own; then it is killed.
_GONE_MS = 2000
_DETAIL_CHARACTERS = 20_000


class Call(QObject):
    """Runs `command ARGUMENTS` and reads its answer, the last JSON object it prints.

    Signals:
        answered(dict): the answer. Exit status 2 counts too: `check` answers and then says "not clean".
        failed(Failed): the request can't be met, or the child died.
        progressed(Stage): word of a long one, such as a download.
        stopped(): the child is gone after `stop`; neither answered nor failed comes then.
    """

    answered = Signal(dict)
    failed = Signal(Failed)
    progressed = Signal(Stage)
    stopped = Signal()

    def __init__(self, parent: QObject, *arguments: str) -> None:
        super().__init__(parent)
        self._name = arguments[0]
        self._buffer = b""
        self._answer: dict[str, Any] | None = None
        self._stopping = False
        self._process = start_process(self, *arguments)
        self._process.readyReadStandardOutput.connect(self._read)
        self._process.finished.connect(self._finish)
        self._process.errorOccurred.connect(self._could_not_start)

    def stop(self) -> None:
        """Asks the child to end, so that it can take its own children along; `stopped` says when it has."""
        self._stopping = True
        self._process.terminate()
        QTimer.singleShot(_GONE_MS, self._process, self._process.kill)

    def cancel(self) -> None:
        """Ends the child; nothing is signalled any more."""
        self.blockSignals(True)
        end_process(self._process)
        self.deleteLater()

    def _read(self) -> None:
        *lines, self._buffer = (self._buffer + self._process.readAllStandardOutput().data()).split(b"\n")
        for line in lines:
            self._take(line)

    def _take(self, line: bytes) -> None:
        value = json_object(line)
        if value is None:
            return
        if value.get("event") == "stage":
            value.pop("event")
            self.progressed.emit(Stage(**value))
        else:
            self._answer = value

    def _finish(self, status: int, how: QProcess.ExitStatus) -> None:
        self._read()
        self._take(self._buffer)
        answer = self._answer
        if self._stopping:
            self.stopped.emit()
        elif answer is not None and answer.get("event") != "failed":
            log_complaints(self._process, self._name)
            self.answered.emit(answer)
        else:
            failure = failure_from(answer) or death(self._process, self._name)
            log.error("%s failed: %s %s\n%s", self._name, failure.message, failure.hint, failure.details)
            self.failed.emit(failure)
        self.deleteLater()

    def _could_not_start(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart:  # the others end in `finished`
            self.failed.emit(death(self._process, self._name))
            self.deleteLater()


def start_process(parent: QObject, *arguments: str) -> QProcess:
    """Our own command line with `arguments`, started as a child of `parent`."""
    program, *rest = isolated.command(*arguments)
    process = QProcess(parent)
    process.start(program, rest)
    return process


def end_process(process: QProcess) -> None:
    """Ends a child for good, so that none is left behind."""
    process.blockSignals(True)
    if process.state() != QProcess.ProcessState.NotRunning:
        process.terminate()
        if not process.waitForFinished(_GONE_MS):
            process.kill()
            process.waitForFinished(_GONE_MS)


def log_complaints(process: QProcess, name: str) -> None:
    """Into the log with what a child that did its work wrote to its standard error: nobody else would see it."""
    if complaints := _standard_error(process):
        log.warning("%s wrote to its standard error:\n%s", name, complaints)


def json_object(line: bytes) -> dict[str, Any] | None:
    """The JSON object on a line, or None for anything else a library may have printed there."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def failure_from(answer: dict[str, Any] | None) -> Failed | None:
    """The failed event in an answer, if it is one."""
    if answer is None or answer.get("event") != "failed":
        return None
    return Failed(
        str(answer.get("kind", "internal")),
        str(answer.get("message", "")),
        str(answer.get("hint", "")),
        str(answer.get("details", "")),
    )


def death(process: QProcess, name: str) -> Failed:
    """The end of a child that said nothing, as a sentence."""
    details = _standard_error(process)
    if process.error() == QProcess.ProcessError.FailedToStart:
        return Failed(
            "died",
            f"The helper that does “{name}” could not be started.",
            "Install Tunesmith again.",
            details,
        )
    how = (
        "was ended from outside"
        if process.exitStatus() == QProcess.ExitStatus.CrashExit
        else f"ended with status {process.exitCode()}"
    )
    return Failed(
        "died",
        f"The helper that does “{name}” {how} before it answered.",
        "Try again; close other programs if memory is short.",
        details,
    )


def _standard_error(process: QProcess) -> str:
    errors = bytes(process.readAllStandardError().data())
    return errors.decode("utf-8", errors="replace").strip()[-_DETAIL_CHARACTERS:]
