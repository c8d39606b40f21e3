"""The left side: the four panels, in the order of work, scrolling by themselves."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QScrollArea, QWidget

from app.panels.dataset import DatasetPanel
from app.panels.memory import MemoryPanel
from app.panels.model import ModelPanel
from app.panels.objective import ObjectivePanel
from app.panels.panel import Panel
from app.session import Session
from app.widgets.basics import column

_WIDTH = 320


class Sidebar(QScrollArea):
    """The panels that say what is ready and what needs a person."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.dataset = DatasetPanel(session)
        self.model = ModelPanel(session)
        self.objective = ObjectivePanel(session)
        self.memory = MemoryPanel(session)
        self.panels: list[Panel] = [self.dataset, self.model, self.objective, self.memory]
        content = QWidget()
        content.setProperty("role", "ground")
        layout = column(*self.panels, None, spacing=12, margin=16)
        layout.setContentsMargins(16, 16, 8, 16)  # the scroll bar takes the rest of the right margin
        content.setLayout(layout)
        self.setWidget(content)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setMinimumWidth(_WIDTH)
        self.setMaximumWidth(_WIDTH + 160)
        self.setAccessibleName("What is chosen")

    def show_panel(self, index: int) -> None:
        """Brings a panel into sight and gives it the keyboard."""
        panel = self.panels[index]
        self.ensureWidgetVisible(panel, 0, 16)
        panel.take_focus()
