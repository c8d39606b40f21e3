"""The bars of the memory panel as a table: every segment size with its figures, and its parts one level down."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QFrame, QHeaderView, QSizePolicy, QTreeWidget, QTreeWidgetItem

from app import words
from app.theme import font
from app.widgets.choices import Choices, size_name
from app.widgets.planbars import part_named
from engine.estimate import Plan

_NAME, _PREDICTED, _MEASURED = range(3)
_LINE = 22
_LINES = 9  # in sight at once; the rest scrolls
_SIZE = Qt.ItemDataRole.UserRole
_FIGURES = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


class PlanTable(QTreeWidget):
    """The same Choices as the bars, in words and figures. Open a line to see its parts.

    Signals:
        chosen(int): the segment size of the line that was double-clicked, or stood on when Enter was pressed.
    """

    chosen = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.setAccessibleName("Memory by segment size, table")
        self.setHeaderLabels(["Size", "Predicted", "Measured"])
        self.setFont(font(11))
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setIndentation(14)
        self.setUniformRowHeights(True)
        self.setExpandsOnDoubleClick(False)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        header = self.header()
        header.setFont(font(11))
        header.setStretchLastSection(False)
        header.setSectionResizeMode(_NAME, QHeaderView.ResizeMode.Stretch)
        for column in (_PREDICTED, _MEASURED):
            header.setSectionResizeMode(column, QHeaderView.ResizeMode.ResizeToContents)
            self.headerItem().setTextAlignment(column, _FIGURES)
        self.itemActivated.connect(self._choose)

    def show_choices(self, choices: Choices) -> None:
        """Shows these plans, with the lines open that were open before."""
        lines = [self.topLevelItem(index) for index in range(self.topLevelItemCount())]
        opened = {line.data(_NAME, _SIZE) for line in lines if line and line.isExpanded()}
        self.clear()
        for plan in choices.plans:
            line = _line(choices, plan)
            self.addTopLevelItem(line)
            line.setExpanded(plan.segment_size in opened)
            if plan.segment_size == choices.taken:
                self.setCurrentItem(line)
        self.updateGeometry()

    def sizeHint(self) -> QSize:
        return QSize(240, _LINE * (1 + min(_LINES, max(1, self.topLevelItemCount()))) + 4)

    def _choose(self, item: QTreeWidgetItem) -> None:
        size = item.data(_NAME, _SIZE)
        if size is not None:
            self.chosen.emit(size)


def _line(choices: Choices, plan: Plan) -> QTreeWidgetItem:
    name = size_name(plan.segment_size)
    item = QTreeWidgetItem([name, choices.mark(plan) + choices.predicted(plan), choices.measured_words(plan)])
    item.setData(_NAME, _SIZE, plan.segment_size)
    item.setData(_NAME, Qt.ItemDataRole.AccessibleTextRole, choices.sentence(plan))
    item.setToolTip(_NAME, choices.sentence(plan))
    item.setFont(_NAME, font(11, bold=plan.segment_size == choices.taken))
    for part, size in plan.parts.items():
        child = QTreeWidgetItem([part_named(part).word, words.memory(size), ""])
        child.setToolTip(_NAME, part_named(part).meaning)
        item.addChild(child)
    for line in (item, *(item.child(index) for index in range(item.childCount()))):
        line.setSizeHint(_NAME, QSize(0, _LINE))
        for column in (_PREDICTED, _MEASURED):
            line.setTextAlignment(column, _FIGURES)
    return item
