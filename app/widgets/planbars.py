"""Predicted peak memory for several segment sizes, as stacked bars that can be chosen from."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from app import words
from app.theme import colors, font, theme
from engine.estimate import Plan

_ROW = 26
_NAME = 62
_VALUE = 74

# In the order they are stacked; a part that is not named here is grey.
PART_COLORS = {
    "weights": "#7D8CA3",
    "adapter": "#4FB3A5",
    "gradients": "#7BB661",
    "boundaries": "#E3B341",
    "kept attention": "#D9607E",
    "shared keys": "#5AA9D6",
    "segment": "#F08A4B",
    "working": "#A9744F",
    "head": "#B07CE8",
}
_OTHER = "#9A9AA0"


def part_color(part: str) -> str:
    """The colour of a part of the memory, by the first word of its name."""
    return next((color for name, color in PART_COLORS.items() if part.startswith(name)), _OTHER)


def size_name(segment_size: int) -> str:
    """A segment size in a word or two."""
    return "whole" if segment_size == 0 else words.plural(segment_size, "layer")


class PlanBars(QWidget):
    """A bar a segment size. Click one, or use the arrow keys, to take its size.

    Signals:
        chosen(int): the segment size of the bar that was picked.
    """

    chosen = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self._plans: list[Plan] = []
        self._budget = 0
        self._suggested: int | None = None
        self._taken: int | None = None
        self.setFont(font(11))
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Predicted memory by segment size")
        theme().changed.connect(self.update)

    def show_plans(self, plans: list[Plan], budget: int, suggested: int | None, taken: int | None) -> None:
        """Shows these plans; `suggested` is marked, `taken` is the one that Start would use."""
        self._plans, self._budget, self._suggested, self._taken = plans, budget, suggested, taken
        self.setAccessibleDescription("; ".join(self._sentence(plan) for plan in plans))
        self.setVisible(bool(plans))
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
        edge = _NAME + self._budget * scale
        if self._plans and edge <= self.width() - _VALUE + 4:
            painter.setPen(QPen(QColor(colors().text), 1, Qt.PenStyle.DashLine))
            painter.drawLine(round(edge), 2, round(edge), self.height() - 4)
        if self.hasFocus():
            painter.setPen(QPen(QColor(colors().accent), 2))
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 1, -1, -1), 6, 6)
        painter.end()

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
        here = sizes.index(self._taken) if self._taken in sizes else -1
        self.chosen.emit(sizes[max(0, min(len(sizes) - 1, here + step))])

    def _scale(self) -> float:
        """Pixels a byte: the widest bar fills the room, and so does the budget unless it is far away."""
        widest = max((plan.peak_bytes for plan in self._plans), default=1)
        reach = max(widest, self._budget) if self._budget < 2 * widest else widest
        return (self.width() - _NAME - _VALUE) / max(1, reach)

    def _paint_plan(self, painter: QPainter, plan: Plan, top: int, scale: float) -> None:
        c = colors()
        taken = plan.segment_size == self._taken
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
        for part, size in plan.parts.items():
            painter.setBrush(QColor(part_color(part)))
            painter.drawRect(QRectF(x, top + 8, size * scale, _ROW - 16))
            x += size * scale
        painter.setPen(QColor(c.text))
        value = words.memory(plan.peak_bytes)
        mark = "\N{BLACK UP-POINTING TRIANGLE} " if plan.peak_bytes > self._budget else ""
        mark = "\N{CHECK MARK} " if plan.segment_size == self._suggested else mark
        painter.drawText(QRectF(0, top, self.width() - 4, _ROW), Qt.AlignmentFlag.AlignRight | middle, mark + value)

    def _sentence(self, plan: Plan) -> str:
        notes = [f"{size_name(plan.segment_size)}: {words.memory(plan.peak_bytes)} predicted"]
        notes += ["suggested"] if plan.segment_size == self._suggested else []
        notes += ["does not fit"] if plan.peak_bytes > self._budget else []
        return ", ".join(notes)
