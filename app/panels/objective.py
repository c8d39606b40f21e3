"""Panel 3: what the model should get better at."""

from __future__ import annotations

from app.forms import Form
from app.panels.panel import Panel
from app.session import Session
from app.states import Standing


class ObjectivePanel(Panel):
    """The objective and how it is learned, all from TrainConfig's declarations."""

    def __init__(self, session: Session) -> None:
        super().__init__(session, 3, "Objective")
        self.form = Form(session, "objective")
        self.body.addWidget(self.form)
        session.changed.connect(self.refresh)
        self.refresh()

    def standing(self) -> Standing:
        return self.session.objective()
