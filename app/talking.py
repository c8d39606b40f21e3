"""The resident process that answers prompts, with and without the adapter."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QProcess, Signal

from app.calls import death, end_process, failure_from, json_object, log_complaints, start_process
from engine.events import Failed

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Question:
    """One prompt to one side: `adapter` false is the original model."""

    prompt: str
    adapter: bool
    max_tokens: int = 96
    temperature: float = 0.0


class Talk(QObject):
    """Answers questions one after the other in a child process, which is started when the first one comes.

    Signals:
        began(Question): its answer is next.
        piece(Question, str): more of the answer's text.
        answered(Question): the answer is complete.
        failed(Failed): a question could not be answered, or the child died; those that wait are dropped.
        changed(): busy or not, another model or adapter.
    """

    began = Signal(Question)
    piece = Signal(Question, str)
    answered = Signal(Question)
    failed = Signal(Failed)
    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.model = ""
        self.adapter: Path | None = None
        self.ready = False
        self._process: QProcess | None = None
        self._buffer = b""
        self._waiting: list[Question] = []
        self._current: Question | None = None

    @property
    def busy(self) -> bool:
        """Whether a question is being answered or waits."""
        return bool(self._current or self._waiting)

    def choose(self, model: str, adapter: Path | None) -> None:
        """Whom to talk to from now on; a process that runs with another one is ended."""
        if (model, adapter) != (self.model, self.adapter):
            self.close()
            self.model, self.adapter = model, adapter
            self.changed.emit()

    def ask(self, question: Question) -> None:
        """Puts a question into the queue."""
        self._waiting.append(question)
        if self._process is None:
            self._start()
        self._next()

    def stop(self) -> None:
        """Ends the answer under way where it is, and drops the waiting questions."""
        self._waiting.clear()
        if self._current and self._process:
            self._send({"stop": True})
        self.changed.emit()

    def close(self) -> None:
        """Ends the process and frees its memory."""
        process, self._process = self._process, None
        self._waiting.clear()
        self._current, self.ready, self._buffer = None, False, b""
        if process:
            end_process(process)
            log_complaints(process, "talk")
            process.deleteLater()
            self.changed.emit()

    def _start(self) -> None:
        adapter = [f"--adapter={self.adapter}"] if self.adapter else []
        self._process = start_process(self, "talk", f"--model={self.model}", *adapter)
        self._process.readyReadStandardOutput.connect(self._read)
        self._process.finished.connect(self._died)
        self._process.errorOccurred.connect(self._could_not_start)

    def _next(self) -> None:
        if self.ready and self._current is None and self._waiting:
            question = self._current = self._waiting.pop(0)
            self._send(
                {
                    "prompt": question.prompt,
                    "max_tokens": question.max_tokens,
                    "temperature": question.temperature,
                    "adapter": question.adapter,
                }
            )
            self.began.emit(question)
        self.changed.emit()

    def _send(self, message: dict[str, Any]) -> None:
        if self._process:
            self._process.write(json.dumps(message).encode() + b"\n")

    def _read(self) -> None:
        if self._process is None:
            return
        *lines, self._buffer = (self._buffer + self._process.readAllStandardOutput().data()).split(b"\n")
        for line in lines:
            message = json_object(line)
            if message is not None:
                self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        if failure := failure_from(message):
            self._fail(failure)
        elif message.get("ready"):
            self.ready = True
        elif self._current and "text" in message:
            self.piece.emit(self._current, str(message["text"]))
            return
        elif self._current and message.get("done"):
            question, self._current = self._current, None
            self.answered.emit(question)
        self._next()

    def _died(self) -> None:
        self._read()
        if self._process:
            self._fail(death(self._process, "talk"))

    def _could_not_start(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart and self._process:
            self._fail(death(self._process, "talk"))

    def _fail(self, failure: Failed) -> None:
        log.error("talk failed: %s %s\n%s", failure.message, failure.hint, failure.details)
        self.close()
        self.failed.emit(failure)
