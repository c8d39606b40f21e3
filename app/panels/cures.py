"""The part of the memory panel that says what would help where nothing fits, each with a button that does it."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.widgets.basics import button, clear, column, label, row
from engine.config import SETTINGS
from engine.remedies import Remedy

_MOST = 4


class Cures(QWidget):
    """The first remedies, in the order they come: what gives most stands first.

    Signals:
        applied(Remedy): the person wants this one.
    """

    applied = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._shown: list[Remedy] = []
        self._lines = column(spacing=4)
        self.setLayout(column(label("What would help", size=11, secondary=True), self._lines, spacing=4))
        self.hide()

    def show_remedies(self, remedies: Sequence[Remedy]) -> None:
        shown = list(remedies[:_MOST])
        self.setVisible(bool(shown))
        if shown == self._shown:  # a button that is made anew would lose the keyboard
            return
        self._shown = shown
        clear(self._lines)
        for remedy in shown:
            self._lines.addWidget(self._line(remedy))

    def _line(self, remedy: Remedy) -> QWidget:
        name = SETTINGS[remedy.setting].label
        use = button("Use", lambda: self.applied.emit(remedy), help=remedy.sentence)
        use.setAccessibleName(f"Use: {name}")
        result = QWidget()
        line = row(label(remedy.sentence, size=11, wrap=True), use)
        line.setStretch(0, 1)
        result.setLayout(line)
        return result
