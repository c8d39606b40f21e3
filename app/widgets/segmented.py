"""One of a few choices, side by side: the tabs of the window, the charts of a page."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QButtonGroup, QFrame, QToolButton

from app.theme import font
from app.widgets.basics import row


class Segmented(QFrame):
    """A row of tabs; the arrow keys go from one to the next.

    Signals:
        chosen(int): the index of the tab that was pressed.
    """

    chosen = Signal(int)

    def __init__(self, name: str, choices: list[str], *, size: int = 13) -> None:
        super().__init__()
        self.setProperty("role", "track")
        self.setAccessibleName(name)
        self._group = QButtonGroup(self)
        layout = row(spacing=2)
        layout.setContentsMargins(2, 2, 2, 2)
        for index, choice in enumerate(choices):
            tab = QToolButton()
            tab.setText(choice)
            tab.setFont(font(size))
            tab.setProperty("role", "tab")
            tab.setCheckable(True)
            tab.setAccessibleName(choice)
            self._group.addButton(tab, index)
            layout.addWidget(tab)
        self.setLayout(layout)
        self._group.idClicked.connect(self.chosen)
        self.show_choice(0)

    @property
    def choice(self) -> int:
        return self._group.checkedId()

    def show_choice(self, index: int) -> None:
        self._group.button(index).setChecked(True)

    def tab(self, index: int) -> QToolButton:
        """The button of a tab."""
        found = self._group.button(index)
        assert isinstance(found, QToolButton)  # noqa: S101  for mypy
        return found

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = {Qt.Key.Key_Right: 1, Qt.Key.Key_Left: -1}.get(Qt.Key(event.key()), 0)
        index = self.choice + step
        if step and self._group.button(index):
            self._group.button(index).setFocus()
            self._group.button(index).click()
        else:
            super().keyPressEvent(event)
