"""Panel 1: which file to learn from, what the check found in it, and whether flawed rows are left out."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Signal

from app import words
from app.answers import Check
from app.fitting import PAIRS
from app.forms import Field, Form
from app.panels.panel import Panel
from app.session import Session
from app.states import Standing
from app.widgets.basics import button, label, row


class DatasetPanel(Panel):
    """The data file, its figures in a few lines, and how long a row may be.

    Signals:
        open_requested(): the person wants to choose a file.
    """

    open_requested = Signal()

    def __init__(self, session: Session) -> None:
        super().__init__(session, 1, "Dataset")
        self.name = label()
        self.figures = label(size=11, secondary=True, wrap=True)
        self.split = label(size=11, secondary=True, wrap=True)
        self.open = button("Open a file…", self.open_requested.emit, help="Choose the file to learn from")
        self.skip = Field(session, "skip_flawed")
        self.form = Form(session, "dataset", leave_out=("data", "skip_flawed"))
        for item in (self.name, self.figures, self.skip, self.split):
            self.body.addWidget(item)
        self.body.addLayout(row(self.open, None))
        self.body.addWidget(self.form)
        session.changed.connect(self.refresh)
        self.refresh()

    def standing(self) -> Standing:
        return self.session.dataset()

    def refresh(self) -> None:
        super().refresh()
        path = self.session.config.data
        self.name.setText(words.shortened(Path(path).name, 34) if path else "No data yet")
        check = self.session.check.result
        self.name.setToolTip("\n".join((path, *(_names(check, path) if check else ()))))
        self.open.setText("Open another file…" if path else "Open a file…")
        self.open.setAccessibleName(self.open.text())
        self.figures.setText(self._figures())
        self.split.setText(check.split_text if check and check.usable else "")
        self.split.setVisible(bool(self.split.text()))
        leaves_out = self.session.config.skip_flawed and bool(path)
        self.skip.setVisible(leaves_out or bool(check and check.usable and check.flawed))

    def _figures(self) -> str:
        check = self.session.check.result
        standing = self.standing()
        if check is None:
            return standing.reason
        # Answers that found no partner are rows, and no pairs.
        parts = [words.plural(check.rows, "pair" if check.format == PAIRS and check.usable else "row")]
        if named := _FORMATS.get(check.format):
            parts[0] += f" of {named}"
        if names := _names(check, self.session.config.data):
            parts[0] += f" in {' and '.join(names) if len(names) < _MANY_FILES else f'{len(names)} files'}"
        if check.rows > check.usable:
            how = "left out" if self.session.config.skip_flawed else "can't be used"
            parts.append(f"{words.count(check.rows - check.usable)} {how}")
        if check.truncated_rows:
            parts.append(f"{words.count(check.truncated_rows)} cut")
        if check.trained_tokens:
            parts.append(f"{words.plural(check.trained_tokens, 'token')} trained")
        figures = ", ".join(parts) + "."
        return f"{figures} {standing.reason}" if not standing.state.good else figures


_MANY_FILES = 4


def _names(check: Check, data: str) -> list[str]:
    """The files of a folder that are trained; none where `data` is a file."""
    names = [Path(file).name for file in check.files]
    return [] if names == [Path(data).name] else names


# The check's names of formats that a person would not use.
_FORMATS = {
    "prompt/completion": "prompt and answer",
    "messages": "conversation",
    "text": "text",
    "mixed": "several kinds",
}
