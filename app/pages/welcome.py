"""The first start: what to do when there is no data yet."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.theme import colors, theme
from app.widgets.basics import button, column, label, row


class Welcome(QWidget):
    """An invitation: the sample, a file of one's own, or a drop.

    Signals:
        sample_requested(): the sample, with a model and settings that suit it.
        open_requested(): a file is to be chosen.
        folder_requested(): a folder is to be chosen.
    """

    sample_requested = Signal()
    open_requested = Signal()
    folder_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.sample = button(
            "Try the sample",
            self.sample_requested.emit,
            role="primary",
            help="Loads 310 restaurant bookings, a small model and settings that suit them",
        )
        self.open = button("Open a file…", self.open_requested.emit, help="Choose your own data")
        self.open_folder = button(
            "Open a folder…", self.folder_requested.emit, help="Choose a folder with files to train and to measure with"
        )
        title = label("Teach a model your own answers", size=28, bold=True)
        lines = [
            label(text, secondary=True, wrap=True)
            for text in (
                "Drop a file or folder of questions and answers here, or begin with the sample:",
                "310 messages to a restaurant, each answered with a booking card, and a small model.",
            )
        ]
        hint = label(
            "JSON, CSV or Parquet of prompts and answers, conversations or pairs of answers; text and Markdown; or a "
            "folder of these. Nothing leaves this machine.",
            size=11,
            secondary=True,
            wrap=True,
        )
        centre = Qt.AlignmentFlag.AlignHCenter
        for line in (*lines, hint):
            line.setAlignment(centre)
        layout = column(None, title, *lines, spacing=8)
        layout.setContentsMargins(24, 16, 24, 16)
        layout.setAlignment(title, centre)
        layout.addSpacing(16)
        layout.addLayout(row(None, self.sample, self.open, self.open_folder, None, spacing=12))
        layout.addSpacing(16)
        layout.addWidget(hint)
        layout.addStretch(1)
        self.setLayout(layout)
        theme().changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        c = colors()
        painter.setPen(QPen(QColor(c.line), 2, Qt.PenStyle.CustomDashLine))
        pen = painter.pen()
        pen.setDashPattern([4, 4])
        painter.setPen(pen)
        painter.setBrush(QColor(c.card))
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 1, -1, -1), 10, 10)
        painter.end()
