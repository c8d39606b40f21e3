"""What all four panels share: a numbered heading, the state beside it and the reason under it."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from app.forms import Form
from app.session import Session
from app.states import Standing
from app.widgets.basics import Card, label, row
from app.widgets.state import StateWord


class Panel(Card):
    """A card of the sidebar. A subclass fills `body`, makes `form`, and overrides `standing` and `refresh`."""

    form: Form

    def __init__(self, session: Session, number: int, title: str) -> None:
        super().__init__(spacing=8, margin=14)
        self.session = session
        self.title = title
        self.state = StateWord()
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setAccessibleName(title)
        self.body.addLayout(
            row(label(str(number), bold=True, secondary=True), label(title, bold=True), None, self.state)
        )

    def standing(self) -> Standing:
        """How this panel stands now."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Shows what the session knows now."""
        self.state.show_state(self.standing().state)

    def take_focus(self) -> None:
        """Gives the keyboard to the first thing that can be changed here."""
        for child in self.findChildren(QWidget):
            if child.isVisible() and child.isEnabled() and child.focusPolicy() & Qt.FocusPolicy.TabFocus:
                child.setFocus(Qt.FocusReason.ShortcutFocusReason)
                return
        self.setFocus(Qt.FocusReason.ShortcutFocusReason)
