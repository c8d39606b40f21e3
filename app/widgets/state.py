"""A state as a shape and a word."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.states import State
from app.theme import colors, font, theme

_SIDE = 14


class Shape(QWidget):
    """A tick in a disc (good), a ring with a dot (needs you), a triangle (wrong, too big), dots (busy), an i (note)."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self.setFixedSize(_SIDE, _SIDE)
        theme().changed.connect(self.update)

    def show_state(self, state: State) -> None:
        self._state = state
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint_shape(painter, self._state, QRectF(0, 0, _SIDE, _SIDE))
        painter.end()


class StateWord(QWidget):
    """The state at the right of a panel's heading."""

    def __init__(self, state: State = State.BUSY) -> None:
        super().__init__()
        self.state = state
        self.setFont(font(11))
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        theme().changed.connect(self.update)
        self.show_state(state)

    def show_state(self, state: State) -> None:
        self.state = state
        self.setAccessibleName(f"State: {state.value}")
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(_SIDE + 6 + self.fontMetrics().horizontalAdvance(self.state.value) + 1, 16)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint_shape(painter, self.state, QRectF(0, 1, _SIDE, _SIDE))
        painter.setFont(self.font())
        painter.setPen(QColor(colors().text))
        place = self.rect().adjusted(_SIDE + 6, 0, 0, 0)
        painter.drawText(place, Qt.AlignmentFlag.AlignVCenter, self.state.value)
        painter.end()


def paint_shape(painter: QPainter, state: State, place: QRectF) -> None:
    """Draws a state's shape into the square `place`."""
    c = colors()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.save()
    painter.translate(place.topLeft())
    painter.scale(place.width() / _SIDE, place.height() / _SIDE)
    match state:
        case State.READY | State.FITS:
            _disc(painter, c.green)
            tick = QPolygonF([QPointF(4, 7.2), QPointF(6.2, 9.4), QPointF(10.2, 4.8)])
            painter.setPen(QPen(QColor("#FFFFFF"), 1.6, c=Qt.PenCapStyle.RoundCap, j=Qt.PenJoinStyle.RoundJoin))
            painter.drawPolyline(tick)
        case State.NEEDS_YOU:
            painter.setPen(QPen(QColor(c.amber), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawEllipse(QRectF(1.5, 1.5, 11, 11))
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(c.amber))
            painter.drawEllipse(QRectF(5, 5, 4, 4))
        case State.WRONG | State.TOO_BIG:
            triangle = QPainterPath(QPointF(7, 1.2))
            triangle.lineTo(13.4, 12.6)
            triangle.lineTo(0.6, 12.6)
            triangle.closeSubpath()
            painter.setPen(QPen(QColor(c.red), 1, j=Qt.PenJoinStyle.RoundJoin))
            painter.setBrush(QColor(c.red))
            painter.drawPath(triangle)
            painter.setPen(QPen(QColor("#FFFFFF"), 1.6, c=Qt.PenCapStyle.RoundCap))
            painter.drawLine(QPointF(7, 5.4), QPointF(7, 8.6))
            painter.drawPoint(QPointF(7, 10.9))
        case State.NOTE:
            _disc(painter, c.secondary)
            painter.setPen(QPen(QColor(c.card), 1.8, c=Qt.PenCapStyle.RoundCap))
            painter.drawPoint(QPointF(7, 4))
            painter.drawLine(QPointF(7, 6.8), QPointF(7, 10.2))
        case State.BUSY:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(c.secondary))
            for x in (2, 7, 12):
                painter.drawEllipse(QPointF(x, 7), 1.5, 1.5)
    painter.restore()


def _disc(painter: QPainter, color: str) -> None:
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(QColor(color))
    painter.drawEllipse(QRectF(0.5, 0.5, 13, 13))
