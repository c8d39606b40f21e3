"""Labels, buttons, cards and layouts in the window's one style."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLayout,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from app.theme import font

Box = TypeVar("Box", bound=QBoxLayout)


def label(text: str = "", *, size: int = 13, bold: bool = False, secondary: bool = False, wrap: bool = False) -> QLabel:
    """A line of text; `wrap` for a sentence."""
    result = QLabel(text)
    result.setTextFormat(Qt.TextFormat.PlainText)
    result.setFont(font(size, bold=bold))
    result.setWordWrap(wrap)
    if secondary:
        result.setProperty("role", "secondary")
    if wrap:
        result.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)
    return result


def button(text: str, pressed: Callable[[], object] | None = None, *, role: str = "", help: str = "") -> QPushButton:
    """A push button; `role` primary, small, toggle or example changes its dress."""
    result = QPushButton(text)
    result.setProperty("role", role)
    result.setFont(font(11 if role in ("small", "toggle") else 13))
    result.setCheckable(role == "toggle")
    result.setToolTip(help)
    result.setAccessibleName(text)
    result.setAccessibleDescription(help)
    if pressed:
        result.clicked.connect(lambda: pressed())
    return result


class ElidedButton(QPushButton):
    """A button whose text ends in an ellipsis where it does not fit; the whole of it is the tool tip."""

    def __init__(self, text: str, pressed: Callable[[], object]) -> None:
        super().__init__()
        self._whole = text
        self.setProperty("role", "example")
        self.setFont(font())
        self.setToolTip(text)
        self.setAccessibleName(text)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.clicked.connect(lambda: pressed())

    def resizeEvent(self, event: QResizeEvent) -> None:
        room = self.width() - 28  # the padding and border of the style sheet
        self.setText(self.fontMetrics().elidedText(self._whole, Qt.TextElideMode.ElideRight, room))
        super().resizeEvent(event)


def fill(layout: Box, *items: QWidget | QLayout | int | None, spacing: int = 8, margin: int = 0) -> Box:
    """Puts widgets, layouts, spaces (int) and a stretch (None) into a box layout."""
    layout.setSpacing(spacing)
    layout.setContentsMargins(margin, margin, margin, margin)
    for item in items:
        match item:
            case None:
                layout.addStretch(1)
            case int():
                layout.addSpacing(item)
            case QWidget():
                layout.addWidget(item)
            case _:
                layout.addLayout(item)
    return layout


def row(*items: QWidget | QLayout | int | None, spacing: int = 8) -> QHBoxLayout:
    return fill(QHBoxLayout(), *items, spacing=spacing)


def column(*items: QWidget | QLayout | int | None, spacing: int = 8, margin: int = 0) -> QVBoxLayout:
    return fill(QVBoxLayout(), *items, spacing=spacing, margin=margin)


class Card(QFrame):
    """A rounded ground for one subject; fill its `body`."""

    def __init__(self, *items: QWidget | QLayout | int | None, spacing: int = 8, margin: int = 16) -> None:
        super().__init__()
        self.setProperty("role", "card")
        self.body = column(*items, spacing=spacing, margin=margin)
        self.setLayout(self.body)


class Fold(QWidget):
    """A heading that opens and closes what stands under it.

    Signals:
        toggled(bool): opened or closed.
    """

    toggled = Signal(bool)

    def __init__(self, title: str, content: QWidget, *, opened: bool = False) -> None:
        super().__init__()
        self.content = content
        self.head = QPushButton()
        self.head.setProperty("role", "fold")
        self.head.setFont(font(11))
        self._title = title
        self.head.setAccessibleName(title)
        self.head.setCheckable(True)
        self.head.toggled.connect(self._show)
        self.setLayout(column(row(self.head, None), content, spacing=4))
        self.head.setChecked(opened)
        self._show(opened)

    def _show(self, opened: bool) -> None:
        arrow = "\N{BLACK DOWN-POINTING SMALL TRIANGLE}" if opened else "\N{BLACK RIGHT-POINTING SMALL TRIANGLE}"
        self.head.setText(f"{arrow} {self._title}")
        self.content.setVisible(opened)
        self.toggled.emit(opened)


def clear(layout: QBoxLayout) -> None:
    """Takes everything out of a layout and deletes it."""
    while item := layout.takeAt(0):
        if widget := item.widget():
            widget.hide()
            widget.deleteLater()
