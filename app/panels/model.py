"""Panel 2: which model to fine-tune."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtWidgets import QComboBox, QFileDialog, QProgressBar

from app import words
from app.forms import Form
from app.panels.panel import Panel
from app.session import Session
from app.shelf import SAMPLE
from app.states import Standing
from app.theme import font
from app.widgets.basics import button, label, row
from engine.errors import EngineError

_OTHER = "another"


class ModelPanel(Panel):
    """The models on this machine, a folder of one's own, and the adapter's settings."""

    def __init__(self, session: Session) -> None:
        super().__init__(session, 2, "Model")
        self.box = QComboBox()
        self.box.setFont(font())
        self.box.setAccessibleName("Model")
        self.box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.box.activated.connect(self._choose)
        self.facts = label(size=11, secondary=True, wrap=True)
        self.fetch = button(
            "Fetch the sample model",
            session.shelf.fetch_sample,
            help="Downloads SmolLM2 135M, about 93 MB, once",
        )
        self.progress = QProgressBar(textVisible=False)
        self.progress.setAccessibleName("Fetching the model")
        self.form = Form(session, "model", leave_out=("model",))
        for item in (self.box, self.facts, self.progress):
            self.body.addWidget(item)
        self.body.addLayout(row(self.fetch, None))
        self.body.addWidget(self.form)
        session.changed.connect(self.refresh)
        self.refresh()

    def standing(self) -> Standing:
        return self.session.model()

    def refresh(self) -> None:
        super().refresh()
        self._fill_box()
        self.facts.setText(self._facts())
        stage = self.session.shelf.fetching
        self.progress.setVisible(stage is not None)
        if stage:
            self.progress.setRange(0, stage.total)  # a range of nothing runs to and fro
            self.progress.setValue(stage.done)
        known = self.session.shelf.named(self.session.config.model)
        self.fetch.setVisible(bool(known and not known.ready and stage is None))

    def _fill_box(self) -> None:
        chosen = self.session.config.model
        entries = [(model.title, model.choice) for model in self.session.shelf.models]
        if self.session.shelf.named(chosen) is None:
            entries.append(("SmolLM2 135M (sample)" if chosen == SAMPLE else Path(chosen).name, chosen))
        entries.append(("A folder on this machine…", _OTHER))
        if entries != [(self.box.itemText(i), self.box.itemData(i)) for i in range(self.box.count())]:
            self.box.clear()
            for text, data in entries:
                self.box.addItem(text, data)
        known = self.session.shelf.named(chosen)
        self.box.setCurrentIndex(self.box.findData(known.choice if known else chosen))

    def _facts(self) -> str:
        standing = self.standing()
        stage = self.session.shelf.fetching
        if stage:
            return stage.message
        model = self.session.shelf.named(self.session.config.model)
        if not standing.state.good or model is None:
            return standing.reason or self.session.config.model
        parts = [f"{words.count(round(model.parameters / 1e6))} M parameters"] if model.parameters else []
        parts += [words.plural(model.layers, "layer")] if model.layers else []
        parts += [words.memory(model.bytes)] if model.bytes else []
        return ", ".join(parts) or model.family

    def _choose(self, index: int) -> None:
        name = self.box.itemData(index)
        if name == _OTHER:
            name = QFileDialog.getExistingDirectory(self, "A folder with a model")
        try:
            if name:
                self.session.change(model=name)
        except EngineError as error:
            self.session.refused.emit(error)
        self.refresh()
