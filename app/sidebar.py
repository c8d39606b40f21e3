"""The left side: the four panels, in the order of work, scrolling by themselves."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QScrollArea, QWidget

from app.panels.dataset import DatasetPanel
from app.panels.memory import MemoryPanel
from app.panels.model import ModelPanel
from app.panels.objective import ObjectivePanel
from app.panels.panel import Panel
from app.session import Session
from app.widgets.basics import column, label
from engine.config import Setting

_WIDTH = 320
# Room for the longest help at the narrowest width.
_HELP_HEIGHT = 96


class Sidebar(QWidget):
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
        self.scroll_area = QScrollArea()
        self.scroll_area.setWidget(content)
        self.scroll_area.setWidgetResizable(True)
        self.scroll_area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.scroll_area.setAccessibleName("What is chosen")
        self.help = Help()
        self.setLayout(column(self.scroll_area, self.help, spacing=0))
        self.setMinimumWidth(_WIDTH)
        self.setMaximumWidth(_WIDTH + 160)
        for panel in self.panels:
            panel.form.looked_at.connect(self.help.show_setting)
            panel.form.unfolded.connect(self._show_help)
        self.help.hide()

    def show_panel(self, index: int) -> None:
        """Brings a panel into sight and gives it the keyboard."""
        panel = self.panels[index]
        self.scroll_area.ensureWidgetVisible(panel, 0, 16)
        panel.take_focus()

    def _show_help(self) -> None:
        self.help.setVisible(any(panel.form.advanced.head.isChecked() for panel in self.panels))


class Help(QFrame):
    """What the setting under the pointer or the keyboard does.

    It stands below the panels while Advanced is open in any of them: there it is in sight however long a
    panel is, and nothing moves when another setting is looked at.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setProperty("role", "help")
        self.setAccessibleName("Help")
        self._title = label(size=11, bold=True)
        self._text = label("Point at a setting to read what it does.", size=11, secondary=True, wrap=True)
        layout = column(self._title, self._text, None, spacing=2)
        layout.setContentsMargins(16, 8, 16, 8)
        self.setLayout(layout)
        self._title.hide()
        self.setFixedHeight(_HELP_HEIGHT)

    def show_setting(self, setting: Setting) -> None:
        self._title.setText(setting.label)
        self._title.show()
        self._text.setText(setting.help)
