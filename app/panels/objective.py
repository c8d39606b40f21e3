"""Panel 3: what the model should get better at."""

from __future__ import annotations

from app.forms import Form
from app.panels.panel import Panel
from app.session import Session
from app.states import Standing
from app.widgets.basics import label

# What each objective does, and the rows it needs.
SENTENCES = {
    "sft": "Learns to answer as your data does. Each row holds a prompt and its answer.",
    "orpo": "Learns the better of two answers and to keep from the worse. Each row holds a prompt, a chosen and a "
    "rejected answer.",
    "dpo": "Learns which of two answers is better and stays near the model as it was. Each row holds a prompt, a "
    "chosen and a rejected answer.",
}


class ObjectivePanel(Panel):
    """The objective, what it needs, and how it is learned, from TrainConfig's declarations."""

    def __init__(self, session: Session) -> None:
        super().__init__(session, 3, "Objective")
        self.form = Form(session, "objective")
        self.chosen_by_data = label(size=11, wrap=True, bold=True)
        self.misfit = label(size=11, wrap=True, bold=True)
        self.sentence = label(size=11, secondary=True, wrap=True)
        for line in (self.chosen_by_data, self.misfit, self.sentence):
            self.form.fields["objective"].lines.addWidget(line)
        self.body.addWidget(self.form)
        session.changed.connect(self.refresh)
        self.refresh()

    def standing(self) -> Standing:
        return self.session.objective()

    def refresh(self) -> None:
        super().refresh()
        self.sentence.setText(SENTENCES[self.session.config.objective])
        for line, text in ((self.chosen_by_data, self.session.chosen_by_data), (self.misfit, self.standing().reason)):
            line.setText(text)
            line.setVisible(bool(text))
