"""What edits one value: a number or text, a choice, several names, or a switch."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QCheckBox, QComboBox, QFileDialog, QGridLayout, QLineEdit, QWidget

from app import words
from app.theme import font
from app.widgets.basics import button, column, row
from engine.config import Setting

_NUMBER_WIDTH = 88
# Room for a name where two stand side by side in the narrowest sidebar.
_HALF_WIDTH = 96


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

    def show_wrong(self, wrong: bool) -> None:
        """Marks the field while what stands in it can't be."""
        self.line.setProperty("wrong", "true" if wrong else "false")
        self.line.style().polish(self.line)

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
        # For Qt a box's name is what is chosen in it, everywhere but on Windows: what it is for is told after that.
        self.box.setAccessibleDescription(f"{setting.label}. {setting.help}")
        # A long choice must not make the sidebar wider; the list it opens is as wide as it needs.
        self.box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
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
        place = 0
        for name in setting.choices:
            box = QCheckBox(name)
            box.setFont(font(11))
            box.setAccessibleName(f"{setting.label}: {name}")
            box.clicked.connect(self._emit)
            self.boxes[name] = box
            columns = 2 if box.fontMetrics().horizontalAdvance(name) > _HALF_WIDTH else 1
            place += place % columns  # one that takes a line begins one
            grid.addWidget(box, place // 2, place % 2, 1, columns)
            place += columns
        self.setLayout(grid)
        self.setFocusProxy(self.boxes[setting.choices[0]])

    def show_value(self, value: Any) -> None:
        for name, box in self.boxes.items():
            box.setChecked(name in value)

    def _emit(self) -> None:
        self.edited.emit(tuple(name for name, box in self.boxes.items() if box.isChecked()))


class SwitchEditor(Editor):
    """On or off, with the setting's label beside it."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.box = QCheckBox(setting.label)
        self.box.setFont(font(11))
        self.box.setAccessibleName(setting.label)
        self.box.setAccessibleDescription(setting.help)
        self.box.clicked.connect(lambda checked: self.edited.emit(checked))
        self.setLayout(row(self.box, None))
        self.setFocusProxy(self.box)

    def show_value(self, value: Any) -> None:
        self.box.setChecked(value)


def editor_for(setting: Setting) -> Editor:
    """The editor of a setting's kind."""
    match setting.kind:
        case "choice":
            return ChoiceEditor(setting)
        case "names":
            return NamesEditor(setting)
        case "switch":
            return SwitchEditor(setting)
    return TextEditor(setting)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return words.number(value)
    return str(value).capitalize() if value == "auto" else str(value)
