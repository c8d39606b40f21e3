"""What all pages share: a heading, a line beside it, the notices under it, and the content below."""

from __future__ import annotations

from PySide6.QtWidgets import QWidget

from app.widgets.basics import column, label, row
from app.widgets.notice import Notices


class Page(QWidget):
    """The frame of a page; a subclass fills `body`."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.title = title
        self.setAccessibleName(title)
        self.heading = label(title, size=17, bold=True)
        self.side = label(secondary=True)
        self.notices = Notices()
        self.top = row(self.heading, None, self.side)
        self.body = column(self.top, self.notices, spacing=16)
        self.body.setContentsMargins(24, 20, 24, 20)
        self.setLayout(self.body)
