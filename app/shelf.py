"""The models on this machine, and the sample model's way here."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.answers import Model
from app.calls import Call
from engine.events import Failed, Stage

SAMPLE = "sample"


class ModelShelf(QObject):
    """Knows what `models` lists, and fetches the sample model.

    Signals:
        changed(): the list is new, or a fetch began, moved on, ended or failed.
    """

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.models: list[Model] = []
        self.failure: Failed | None = None
        self.fetching: Stage | None = None
        self.listed = False
        self._call: Call | None = None

    def refresh(self) -> None:
        """Asks again what is on this machine."""
        self._ask("models", "--json")

    def fetch_sample(self) -> None:
        """Brings the sample model here, if it is not on its way already."""
        if self.fetching is None:
            self.fetching = Stage("fetch", "Fetching the sample model")
            self._ask("models", "--fetch", SAMPLE, "--json")

    def named(self, name: str) -> Model | None:
        """The listed model with this name or in this folder."""
        for model in self.models:
            if name in (model.name, model.path):
                return model
        return None

    def folder(self, name: str) -> Path | None:
        """Where the model's files lie, or None while they don't."""
        model = self.named(name)
        if model is not None:
            return Path(model.path) if model.ready and model.path else None
        return None if name == SAMPLE or not name else Path(name).expanduser()

    def close(self) -> None:
        """Ends a question under way."""
        if self._call:
            self._call.cancel()
            self._call = None

    def _ask(self, *arguments: str) -> None:
        self.close()
        self.failure = None
        self._call = Call(self, *arguments)
        self._call.answered.connect(self._answered)
        self._call.failed.connect(self._failed)
        self._call.progressed.connect(self._progressed)
        self.changed.emit()

    def _answered(self, answer: dict[str, list[dict[str, object]]]) -> None:
        self._call, self.fetching, self.listed = None, None, True
        self.models = [Model.read(model) for model in answer.get("models", [])]
        self.changed.emit()

    def _failed(self, failure: Failed) -> None:
        self._call, self.fetching, self.failure = None, None, failure
        self.changed.emit()

    def _progressed(self, stage: Stage) -> None:
        self.fetching = stage
        self.changed.emit()
