"""Forms from TrainConfig's declarations: a field that is added there appears here by itself."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QEvent, QObject, Signal
from PySide6.QtWidgets import QWidget

from app.editors import TextEditor, editor_for
from app.session import Session
from app.widgets.basics import Fold, column, label, row
from engine.config import SETTINGS, Setting
from engine.errors import EngineError


class Field(QWidget):
    """One setting: its label, its editor, and the refusal of a value that can't be, in words below it."""

    def __init__(self, session: Session, name: str) -> None:
        super().__init__()
        self.setting = SETTINGS[name]
        self._session = session
        self.editor = editor_for(self.setting)
        self.setToolTip(self.setting.help)
        self.refusal = label(size=11, wrap=True)
        self.refusal.hide()
        self.lines = column(spacing=4)
        if self.setting.kind == "switch" or name == self.setting.group:  # the box or the panel's heading says it
            self.lines.addWidget(self.editor)
        else:
            title = label(self._title(), size=11, secondary=True, wrap=True)
            title.setBuddy(self.editor)
            beside = self.setting.kind in ("integer", "number")
            head = row(title, self.editor) if beside else column(title, self.editor, spacing=4)
            head.setStretch(0, 1 if beside else 0)
            self.lines.addLayout(head)
        self.lines.addWidget(self.refusal)
        self.setLayout(self.lines)
        self.editor.edited.connect(self._take)
        session.config_changed.connect(self.show_value)
        self.show_value()

    def show_value(self) -> None:
        """Shows the value in force."""
        self._say("")
        self.editor.show_value(getattr(self._session.config, self.setting.name))

    def _title(self) -> str:
        name, unit = self.setting.label, self.setting.unit
        return f"{name}, {unit}" if unit and unit not in name.lower() else name

    def _take(self, value: Any) -> None:
        try:
            self._session.change(**{self.setting.name: value})
        except EngineError as error:
            self._say(str(error))
        else:
            self.show_value()

    def _say(self, refusal: str) -> None:
        self.refusal.setText(f"\N{BLACK UP-POINTING TRIANGLE} {refusal}")
        self.refusal.setVisible(bool(refusal))
        if isinstance(self.editor, TextEditor):
            self.editor.show_wrong(bool(refusal))


class Form(QWidget):
    """All settings of a group: the plain ones, then Advanced, folded. `leave_out` are shown elsewhere.

    A setting that the objective in force has no use for is hidden.

    Signals:
        looked_at(Setting): the pointer or the keyboard came to this setting.
        unfolded(bool): Advanced was opened or closed.
    """

    looked_at = Signal(Setting)
    unfolded = Signal(bool)

    def __init__(self, session: Session, group: str, *, leave_out: tuple[str, ...] = ()) -> None:
        super().__init__()
        names = [name for name, item in SETTINGS.items() if item.group == group and name not in leave_out]
        plain = [name for name in names if not SETTINGS[name].advanced]
        rest = [name for name in names if SETTINGS[name].advanced]
        self._session = session
        self.fields = {name: Field(session, name) for name in names}
        layout = column(*(self.fields[name] for name in plain), spacing=12)
        if rest:
            inner = QWidget()
            inner.setLayout(column(*(self.fields[name] for name in rest), spacing=12))
            self.advanced = Fold("Advanced", inner)
            self.advanced.toggled.connect(self.unfolded)
            layout.addWidget(self.advanced)
        self.setLayout(layout)
        for field in self.fields.values():
            for part in (field, *field.editor.findChildren(QWidget)):
                part.installEventFilter(self)
        session.config_changed.connect(self._show_used)
        self._show_used()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.FocusIn, QEvent.Type.Enter):
            part: QObject | None = watched
            while part is not None and not isinstance(part, Field):
                part = part.parent()
            if part is not None:
                self.looked_at.emit(part.setting)
        return super().eventFilter(watched, event)

    def _show_used(self) -> None:
        objective = self._session.config.objective
        for field in self.fields.values():
            field.setVisible(not field.setting.objectives or objective in field.setting.objectives)
