"""Coloured marks with words beside them."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.theme import colors, font, theme

_MARK = 10
_GAP = 14
_LINE = 18
# Squares whose lightness differs less than this from the ground would hardly be seen by their colour alone.
_FAINT = 0.25


class Legend(QWidget):
    """Entries of (word, colour, shape) that wrap into lines. A colour is a field of Colors or a #RRGGBB.

    A shape is square, line, thin, dash, dot, plain (the word alone), struck or underlined (the word so drawn).
    """

    def __init__(self, entries: Sequence[tuple[str, str, str]] = ()) -> None:
        super().__init__()
        self._entries = list(entries)
        self.setFont(font(11))
        policy = QSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Preferred)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        theme().changed.connect(self.update)
        self.show_entries(entries)

    def show_entries(self, entries: Sequence[tuple[str, str, str]]) -> None:
        self._entries = list(entries)
        self.setAccessibleName("Legend: " + ", ".join(word for word, _, _ in entries))
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(sum(self._width(word, shape) for word, _, shape in self._entries), _LINE)

    def minimumSizeHint(self) -> QSize:
        return QSize(max((self._width(word, shape) for word, _, shape in self._entries), default=0), _LINE)

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        places = self._places(width)
        return (places[-1][1] if places else 0) + _LINE

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for (word, color, shape), (x, y) in zip(self._entries, self._places(self.width()), strict=True):
            ink = QColor(color if color.startswith("#") else getattr(colors(), color))
            middle = y + _LINE / 2
            if shape == "square":
                painter.setPen(QPen(_outline(ink), 1))
                painter.setBrush(ink)
                painter.drawRoundedRect(QRectF(x + 0.5, middle - _MARK / 2 + 0.5, _MARK - 1, _MARK - 1), 2, 2)
            elif shape in ("line", "thin", "dash"):
                style = Qt.PenStyle.DotLine if shape == "dash" else Qt.PenStyle.SolidLine
                pen = QPen(ink, 1 if shape == "thin" else 2, style)
                pen.setCapStyle(Qt.PenCapStyle.FlatCap)
                painter.setPen(pen)
                painter.drawLine(x, round(middle), x + _MARK, round(middle))
            elif shape == "dot":
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(ink)
                painter.drawEllipse(QRectF(x + 2, middle - 3, 6, 6))
            painter.setPen(QColor(colors().secondary))
            written = font(11)
            written.setStrikeOut(shape == "struck")
            written.setUnderline(shape == "underlined")
            painter.setFont(written)
            place = QRectF(x + self._indent(shape), y, self._width(word, shape), _LINE)
            painter.drawText(place, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, word)
        painter.end()

    def _indent(self, shape: str) -> int:
        return 0 if shape in ("plain", "struck", "underlined") else _MARK + 6

    def _width(self, word: str, shape: str) -> int:
        return self._indent(shape) + self.fontMetrics().horizontalAdvance(word) + _GAP

    def _places(self, width: int) -> list[tuple[int, int]]:
        places, x, y = [], 0, 0
        for word, _, shape in self._entries:
            if x and x + self._width(word, shape) - _GAP > width:
                x, y = 0, y + _LINE
            places.append((x, y))
            x += self._width(word, shape)
        return places


def _outline(ink: QColor) -> QColor:
    """The line round a square: its own colour, a little darker, or one that is seen where that is faint."""
    faint = abs(ink.lightnessF() - QColor(colors().card).lightnessF()) < _FAINT
    return QColor(colors().secondary) if faint else ink.darker(112)
