"""Forms from TrainConfig's declarations: a field that is added there appears here by itself."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtWidgets import QCheckBox, QComboBox, QFileDialog, QGridLayout, QLineEdit, QWidget

from app import words
from app.session import Session
from app.theme import font
from app.widgets.basics import Fold, button, column, label, row
from engine.config import SETTINGS, Setting
from engine.errors import EngineError

_NUMBER_WIDTH = 88


class Editor(QWidget):
    """What edits one value; it shows what `show_value` gives it.

    Signals:
        edited(object): the person entered this, as text or as the value itself; not checked yet.
    """

    edited = Signal(object)

    def show_value(self, value: Any) -> None:
        raise NotImplementedError


class TextEditor(Editor):
    """A number, a word or a path. `auto` and other words stand as the field's own text."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self._setting = setting
        self._shown = ""
        self.line = QLineEdit()
        self.line.setFont(font())
        self.line.setAcceptDrops(False)  # files dropped anywhere belong to the window
        self.line.setPlaceholderText("None" if setting.kind == "path" else setting.word.capitalize())
        if setting.kind in ("integer", "number"):
            self.line.setAlignment(Qt.AlignmentFlag.AlignRight)
            self.line.setFixedWidth(_NUMBER_WIDTH)
        self.line.setAccessibleName(setting.label)
        self.line.setAccessibleDescription(setting.help)
        self.line.editingFinished.connect(self._finish)
        items: list[QWidget | None] = [self.line]
        if setting.kind == "path":
            items.append(button("Choose…", self._choose, help=f"Choose: {setting.label.lower()}"))
        self.setLayout(row(*items))
        self.setFocusProxy(self.line)

    def show_value(self, value: Any) -> None:
        self._shown = _text(value)
        if self.line.text() != self._shown:
            self.line.setText(self._shown)
            self.line.setCursorPosition(0)

    def _finish(self) -> None:
        text = self.line.text().strip()
        if text != self._shown:
            word = self._setting.word
            self.edited.emit(word if text.lower() in ("", word) else text)

    def _choose(self) -> None:
        name, _ = QFileDialog.getOpenFileName(self, self._setting.label)
        if name:
            self.edited.emit(name)


class ChoiceEditor(Editor):
    """One of several named choices."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.box = QComboBox()
        self.box.setFont(font())
        self.box.setAccessibleName(setting.label)
        self.box.setAccessibleDescription(setting.help)
        for choice, text in zip(setting.choices, setting.choice_labels or setting.choices, strict=True):
            self.box.addItem(text, choice)
        self.box.activated.connect(lambda index: self.edited.emit(self.box.itemData(index)))
        self.setLayout(column(self.box))
        self.setFocusProxy(self.box)

    def show_value(self, value: Any) -> None:
        self.box.setCurrentIndex(self.box.findData(value))


class NamesEditor(Editor):
    """Several of a few names."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.boxes: dict[str, QCheckBox] = {}
        grid = QGridLayout()
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setSpacing(4)
        for index, name in enumerate(setting.choices):
            box = QCheckBox(name)
            box.setFont(font(11))
            box.setAccessibleName(f"{setting.label}: {name}")
            box.clicked.connect(self._emit)
            self.boxes[name] = box
            grid.addWidget(box, index // 2, index % 2)
        self.setLayout(grid)
        self.setFocusProxy(self.boxes[setting.choices[0]])

    def show_value(self, value: Any) -> None:
        for name, box in self.boxes.items():
            box.setChecked(name in value)

    def _emit(self) -> None:
        self.edited.emit(tuple(name for name, box in self.boxes.items() if box.isChecked()))


class Field(QWidget):
    """One setting: its label, its editor, and the refusal of a value that can't be, in words below it."""

    def __init__(self, session: Session, name: str) -> None:
        super().__init__()
        self.setting = SETTINGS[name]
        self._session = session
        match self.setting.kind:
            case "choice":
                self.editor: Editor = ChoiceEditor(self.setting)
            case "names":
                self.editor = NamesEditor(self.setting)
            case _:
                self.editor = TextEditor(self.setting)
        self.setToolTip(self.setting.help)
        self.refusal = label(size=11, wrap=True)
        self.refusal.hide()
        title = label(self._title(), size=11, secondary=True, wrap=True)
        title.setBuddy(self.editor)
        if self.setting.kind in ("integer", "number"):
            line = row(title, self.editor)
            line.setStretch(0, 1)
            self.setLayout(column(line, self.refusal, spacing=4))
        else:
            self.setLayout(column(title, self.editor, self.refusal, spacing=4))
        self.editor.edited.connect(self._take)
        session.config_changed.connect(self.show_value)
        self.show_value()

    def show_value(self) -> None:
        self._say("")
        self.editor.show_value(getattr(self._session.config, self.setting.name))

    def _title(self) -> str:
        return f"{self.setting.label}, {self.setting.unit}" if self.setting.unit else self.setting.label

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
            self.editor.line.setProperty("wrong", "true" if refusal else "false")
            self.editor.line.style().polish(self.editor.line)


class Form(QWidget):
    """All settings of a group: the plain ones, then Advanced, folded. `leave_out` are shown elsewhere."""

    def __init__(self, session: Session, group: str, *, leave_out: tuple[str, ...] = ()) -> None:
        super().__init__()
        names = [name for name, item in SETTINGS.items() if item.group == group and name not in leave_out]
        plain = [name for name in names if not SETTINGS[name].advanced]
        rest = [name for name in names if SETTINGS[name].advanced]
        self.fields = {name: Field(session, name) for name in names}
        layout = column(*(self.fields[name] for name in plain), spacing=12)
        if rest:
            inner = QWidget()
            self._help = label(size=11, secondary=True, wrap=True)
            self._help.setFixedHeight(64)  # so that nothing jumps when another field is looked at
            inner.setLayout(column(*(self.fields[name] for name in rest), self._help, spacing=12))
            for name in rest:
                for part in (self.fields[name], *self.fields[name].editor.findChildren(QWidget)):
                    part.installEventFilter(self)
            self.advanced = Fold("Advanced", inner)
            layout.addWidget(self.advanced)
        self.setLayout(layout)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Shows the help of the advanced field that has the focus or the pointer."""
        if event.type() in (QEvent.Type.FocusIn, QEvent.Type.Enter):
            part: QObject | None = watched
            while part is not None and not isinstance(part, Field):
                part = part.parent()
            if part is not None:
                self._help.setText(part.setting.help)
        return super().eventFilter(watched, event)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return words.number(value)
    return str(value).capitalize() if value == "auto" else str(value)
