"""Predicted peak memory for several segment sizes, as stacked bars that can be chosen from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPainterPath,
    QPaintEvent,
    QPen,
    QPolygonF,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app import words
from app.theme import colors, font, theme
from app.widgets.choices import Choices, size_name
from engine.estimate import Plan

_ROW = 26
# How many times one of budget and bar may be the other before it no longer decides the scale.
_FAR = 2
_NAME = 62
_VALUE = 74

# A bar that goes on beyond the room it has ends in a slant of this many pixels.
_TEAR = 7


class Part(NamedTuple):
    """What a person reads of a part of the memory, and its colour."""

    word: str
    color: str
    meaning: str


# By the name that engine.estimate gives it.
PARTS = {
    "program": Part("program", "#5B6B88", "Python and its libraries, beside the model"),
    "weights": Part("model", "#7D8CA3", "the model itself"),
    "adapter": Part("adapter", "#4FB3A5", "what is trained, with the optimizer's two notes on each number"),
    "extras": Part("layer inputs", "#9A9AA0", "what this model hands to every layer besides the text so far"),
    "shared keys and values": Part(
        "shared by layers", "#5AA9D6", "what some layers compute and later layers use again"
    ),
    "gradients": Part("gradients", "#7BB661", "which way each number of the adapter should move"),
    "boundaries": Part("between segments", "#E3B341", "the state between two segments, kept for the way back"),
    "kept attention": Part("kept to save time", "#D9607E", "results of attention that would else be computed again"),
    "segment": Part("layers at work", "#F08A4B", "intermediate results of the layers that go backward together"),
    "working": Part("working space", "#A9744F", "what one layer takes for a moment on its way back"),
    "head": Part("head", "#B07CE8", "the scores over the vocabulary, of some tokens at a time"),
}


def part_named(name: str) -> Part:
    """The words and the colour of a part; one that the table lacks has its own name and is grey."""
    return PARTS.get(name, Part(name, "#9A9AA0", ""))


class PlanBars(QWidget):
    """A bar a segment size. Click one, or use the arrow keys, to take its size.

    Signals:
        chosen(int): the segment size of the bar that was picked.
    """

    chosen = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self._choices = Choices()
        self.setFont(font(11))
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Predicted memory by segment size")
        theme().changed.connect(self.update)

    def show_choices(self, choices: Choices) -> None:
        self._choices = choices
        self.setAccessibleDescription("; ".join(choices.sentence(plan) for plan in choices.plans))
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(240, _ROW * len(self._plans) + 4)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        scale = self._scale()
        for index, plan in enumerate(self._plans):
            self._paint_plan(painter, plan, index * _ROW, scale)
        edge = _NAME + self._choices.budget_bytes * scale
        if self._plans and edge <= self.width() - _VALUE + 4:
            painter.setPen(QPen(QColor(colors().text), 1, Qt.PenStyle.DashLine))
            painter.drawLine(round(edge), 2, round(edge), self.height() - 4)
        if self.hasFocus():
            painter.setPen(QPen(QColor(colors().accent), 2))
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 1, -1, -1), 6, 6)
        painter.end()

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            index = event.pos().y() // _ROW
            inside = 0 <= index < len(self._plans)
            text = contents(self._choices, self._plans[index]) if inside else ""
            QToolTip.showText(event.globalPos(), text, self)
            return True
        return super().event(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        index = int(event.position().y() // _ROW)
        if 0 <= index < len(self._plans):
            self.chosen.emit(self._plans[index].segment_size)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = {Qt.Key.Key_Down: 1, Qt.Key.Key_Up: -1}.get(Qt.Key(event.key()), 0)
        sizes = [plan.segment_size for plan in self._plans]
        if not step or not sizes:
            super().keyPressEvent(event)
            return
        here = sizes.index(self._choices.taken) if self._choices.taken in sizes else -1
        self.chosen.emit(sizes[max(0, min(len(sizes) - 1, here + step))])

    @property
    def _plans(self) -> Sequence[Plan]:
        return self._choices.plans

    def _scale(self) -> float:
        """Pixels a byte: the widest bar fills the room, and so does the budget, unless one is far beyond the other."""
        budget = self._choices.budget_bytes
        peaks = [plan.peak_bytes for plan in self._plans] or [1]
        reach = max(peaks)
        if budget < _FAR * reach:
            reach = max(min(reach, _FAR * budget), min(peaks), budget)
        return (self.width() - _NAME - _VALUE) / max(1, reach)

    def _room(self, top: int) -> QPainterPath:
        """Where a bar may be drawn: a slanted end tells that it goes on."""
        end, below = self.width() - _VALUE, top + _ROW
        room = QPainterPath()
        room.addPolygon(QPolygonF([QPointF(_NAME, top), QPointF(end + _TEAR, top), QPointF(end, below),
                                   QPointF(_NAME, below)]))  # fmt: skip
        return room

    def _paint_plan(self, painter: QPainter, plan: Plan, top: int, scale: float) -> None:
        c = colors()
        taken = plan.segment_size == self._choices.taken
        if taken:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(c.well))
            painter.drawRoundedRect(QRectF(0, top, self.width(), _ROW), 6, 6)
        painter.setPen(QColor(c.text if taken else c.secondary))
        painter.setFont(font(11, bold=taken))
        left, middle = Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignVCenter
        painter.drawText(QRectF(6, top, _NAME, _ROW), left | middle, size_name(plan.segment_size))
        x = float(_NAME)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.save()
        painter.setClipPath(self._room(top))
        for part, size in plan.parts.items():
            painter.setBrush(QColor(part_named(part).color))
            painter.drawRect(QRectF(x, top + 8, size * scale, _ROW - 16))
            x += size * scale
        painter.restore()
        measured = self._choices.measured.get(plan.segment_size)
        if measured and 0 < measured.measured_bytes * scale <= self.width() - _NAME - _VALUE:
            _paint_notch(painter, _NAME + measured.measured_bytes * scale, top)
        painter.setPen(QColor(c.text))
        ran_out = measured is not None and measured.died
        value = self._choices.mark(plan) + (
            self._choices.measured_words(plan) if ran_out else self._choices.predicted(plan)
        )
        painter.drawText(QRectF(0, top, self.width() - 4, _ROW), Qt.AlignmentFlag.AlignRight | middle, value)


def _paint_notch(painter: QPainter, x: float, top: int) -> None:
    """The measured size on a bar: a small triangle that points at it and a line through the bar."""
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(QColor(colors().text))
    painter.drawPolygon(QPolygonF([QPointF(x - 4, top + 2), QPointF(x + 4, top + 2), QPointF(x, top + 7)]))
    painter.drawRect(QRectF(x - 0.75, top + 6, 1.5, _ROW - 12))


def contents(choices: Choices, plan: Plan) -> str:
    """What is told of a plan and its parts with their sizes, a line each."""
    parts = [f"{part_named(name).word}: {words.memory(size)}" for name, size in plan.parts.items()]
    return "\n".join([choices.sentence(plan).capitalize(), *parts])
