"""The About window: what this is, what runs underneath, and the licence of all that is in it."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtGui import QCloseEvent, QIcon
from PySide6.QtWidgets import (
    QAbstractItemView,
    QDialog,
    QFrame,
    QHeaderView,
    QLabel,
    QPlainTextEdit,
    QTableWidget,
    QTableWidgetItem,
    QWidget,
)

from app import places, product
from app.licences import Licence, shipped
from app.theme import font
from app.widgets.basics import Card, button, column, label, row

_ICON = 72
_COLUMNS = ("Name", "Version", "Licence")
# The one whose text is shown first.
_FIRST = product.NAME


class About(QDialog):
    """Not modal: it may stand beside the window.

    Signals:
        log_requested(): the log is to be shown.
        report_requested(): a report is to be saved.
    """

    log_requested = Signal()
    report_requested = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle(f"About {product.NAME}")
        self._licences: list[Licence] = []
        self._waiting: Iterator[Licence] = shipped()
        self._complete = False
        self._picture = QLabel()
        self._picture.setPixmap(QIcon(str(places.ICON)).pixmap(QSize(_ICON, _ICON), self.devicePixelRatioF()))
        self._picture.setAccessibleName("Tunesmith's icon")
        self._versions = label("", size=11, secondary=True)
        self._versions.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.table = _table()
        self.table.itemSelectionChanged.connect(self._show_text)
        self.text = QPlainTextEdit(readOnly=True)
        self.text.setProperty("role", "details")
        self.text.setFont(font(11, mono=True))
        self.text.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.text.setAccessibleName("Licence text")
        self._figures = label("", size=11, secondary=True)
        self._build()
        # One at a time: gathering them from what is installed takes longer than a window may stand still.
        self._gathering = QTimer(self, interval=0)
        self._gathering.timeout.connect(self._take_next)

    @property
    def gathering(self) -> bool:
        """Whether more licences are on their way."""
        return self._gathering.isActive()

    def open_again(self) -> None:
        """Shows it, in front; the licences are gathered the first time, or on from where it was closed."""
        if not self._complete:
            self._gathering.start()
        self.show()
        self.raise_()
        self.activateWindow()

    def closeEvent(self, event: QCloseEvent) -> None:
        self._gathering.stop()
        super().closeEvent(event)

    def _build(self) -> None:
        facts = product.versions()
        name = label(product.NAME, size=28, bold=True)
        version = label(f"Version {facts.pop(product.NAME)}", secondary=True)
        said = label(
            "Fine-tunes language models on the computer in front of you. Nothing you train leaves it.", wrap=True
        )
        system = facts.pop("System")
        self._versions.setText("   ".join(f"{name} {version}" for name, version in facts.items()) + f"\n{system}")
        self.log = button("Show Log", self.log_requested.emit, help="Opens what Tunesmith wrote down about its work")
        self.report = button(
            "Save Report…",
            self.report_requested.emit,
            help="Saves versions, machine and log, to send when something fails",
        )
        self.close_button = button("Close", self.close, role="primary")
        self.close_button.setDefault(True)
        words = column(row(name, version, None, spacing=12), said, 4, self._versions, spacing=4)
        top = row(self._picture, words, spacing=20)
        top.setStretch(1, 1)
        lists = row(self.table, self.text, spacing=12)
        lists.setStretch(0, 4)
        lists.setStretch(1, 7)
        card = Card(row(label("Licences", bold=True), None, self._figures), lists, spacing=8)
        card.body.setStretch(1, 1)
        layout = column(top, card, row(self.log, self.report, None, self.close_button), spacing=16, margin=24)
        layout.setStretch(1, 1)
        self.setLayout(layout)
        self.resize(QSize(1000, 640))

    def _take_next(self) -> None:
        licence = next(self._waiting, None)
        if licence is None:
            self._complete = True
            self._gathering.stop()
        else:
            insort(self._licences, licence, key=_place)
            self._insert(self._licences.index(licence), licence)
        self._figures.setText(f"{len(self._licences)} parts" + ("…" if self.gathering else ""))

    def _insert(self, line: int, licence: Licence) -> None:
        self.table.insertRow(line)
        for number, text in enumerate((licence.name, licence.version, licence.licence)):
            item = QTableWidgetItem(text)
            item.setToolTip(text)
            self.table.setItem(line, number, item)
        if licence.name == _FIRST:
            self.table.selectRow(line)

    def _show_text(self) -> None:
        line = self.table.currentRow()
        if 0 <= line < len(self._licences):
            chosen = self._licences[line]
            self.text.setPlainText(
                chosen.text() or f"{chosen.name} names its licence, {chosen.licence}, without the text."
            )


def _place(licence: Licence) -> tuple[bool, str]:
    return licence.name != _FIRST, licence.name.casefold()


def _table() -> QTableWidget:
    table = QTableWidget(0, len(_COLUMNS))
    table.setAccessibleName("What is in Tunesmith, with its licences")
    for number, name in enumerate(_COLUMNS):
        title = QTableWidgetItem(name)
        title.setFont(font(11))
        table.setHorizontalHeaderItem(number, title)
    table.setFont(font(11))
    table.verticalHeader().hide()
    table.verticalHeader().setDefaultSectionSize(24)
    table.setFrameShape(QFrame.Shape.NoFrame)
    table.setShowGrid(False)
    table.setWordWrap(False)
    table.setTabKeyNavigation(False)
    table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
    table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
    table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
    table.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    header = table.horizontalHeader()
    header.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
    header.setHighlightSections(False)
    header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
    header.setSectionResizeMode(1, QHeaderView.ResizeMode.ResizeToContents)
    header.setSectionResizeMode(2, QHeaderView.ResizeMode.Stretch)
    return table
