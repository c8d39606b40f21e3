"""What leads to a row: an order to go through, a text to search for, and the row's number."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtGui import QIntValidator
from PySide6.QtWidgets import QComboBox, QLineEdit, QToolButton, QWidget

from app.theme import font
from app.widgets.basics import button, label, row

# What `preview --jump` calls each, and what a person reads.
ORDERS = {
    "": "All rows",
    "longest": "Longest first",
    "shortest": "Shortest first",
    "cut": "Rows that are cut",
    "problem": "Rows with a problem",
}
_NUMBER_WIDTH = 64
_MOST = 2_000_000_000


class Finding(QWidget):
    """One line of tools over the rows.

    Signals:
        ordered(str): a key of ORDERS was chosen.
        sought(str): the next row with this text is wanted.
        numbered(int): the row of this number is wanted.
    """

    ordered = Signal(str)
    sought = Signal(str)
    numbered = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.order = QComboBox()
        self.order.setFont(font())
        self.order.setAccessibleName("Rows to show")
        self.order.setAccessibleDescription("Which rows to show, and in which order")
        for key, name in ORDERS.items():
            self.order.addItem(name, key)
        self.order.activated.connect(lambda index: self.ordered.emit(self.order.itemData(index)))
        self.text = self._line("Find in rows", "Search")
        self.text.setClearButtonEnabled(True)
        for clear in self.text.findChildren(QToolButton):
            clear.setAccessibleName("Clear the search")
        self.text.returnPressed.connect(self._seek)
        self.find_next = button("Find next", self._seek, help="The next row that holds this text")
        self.number = self._line("Go to row number", "")
        self.number.setFixedWidth(_NUMBER_WIDTH)
        self.number.setValidator(QIntValidator(1, _MOST, self.number))
        self.number.returnPressed.connect(self._go)
        caption = label("Row", size=11, secondary=True)
        caption.setBuddy(self.number)
        layout = row(self.order, self.text, self.find_next, 8, caption, self.number)
        layout.setStretch(1, 1)
        self.setLayout(layout)

    def show_order(self, order: str) -> None:
        self.order.setCurrentIndex(self.order.findData(order))

    def _line(self, name: str, placeholder: str) -> QLineEdit:
        line = QLineEdit()
        line.setFont(font())
        line.setAccessibleName(name)
        line.setPlaceholderText(placeholder)
        line.setAcceptDrops(False)  # files dropped anywhere belong to the window
        return line

    def _seek(self) -> None:
        if self.text.text():
            self.sought.emit(self.text.text())

    def _go(self) -> None:
        if self.number.hasAcceptableInput():
            self.numbered.emit(int(self.number.text()))
