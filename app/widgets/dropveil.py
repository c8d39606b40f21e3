"""What covers the window while a file hangs over it."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from app.theme import colors, font


class DropVeil(QWidget):
    """A frame in the accent and one line that says what a drop will do."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setAccessibleName("Drop to open")
        self.hide()

    def cover(self, window: QWidget) -> None:
        self.setGeometry(window.rect())
        self.raise_()
        self.show()

    def paintEvent(self, event: QPaintEvent) -> None:
        c = colors()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        ground = QColor(c.ground)
        ground.setAlpha(225)
        painter.fillRect(self.rect(), ground)
        painter.setPen(QPen(QColor(c.accent), 3))
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(12, 12, -12, -12), 10, 10)
        painter.setPen(QColor(c.text))
        painter.setFont(font(17, bold=True))
        painter.drawText(
            self.rect(), Qt.AlignmentFlag.AlignCenter, "Drop to open it as data, or as a model if it is one"
        )
        painter.end()
