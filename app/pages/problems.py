"""What the check found, line by line, each with its cure."""

from __future__ import annotations

from PySide6.QtWidgets import QWidget

from app import words
from app.answers import Check, Problem
from app.states import State
from app.widgets.basics import Card, button, clear, column, label, row
from app.widgets.state import Shape

_FIRST = 3
_MOST = 100


class Problems(Card):
    """Errors first, then warnings; the first few until the person asks for all."""

    def __init__(self) -> None:
        super().__init__()
        self.setAccessibleName("Problems in the data")
        self._title = label(bold=True)
        self.more = button("Show all", self._show_all, role="small")
        self._list = column(spacing=12)
        self._problems: list[Problem] = []
        self.body.addLayout(row(self._title, None, self.more))
        self.body.addLayout(self._list)
        self.hide()

    def show_check(self, check: Check | None) -> None:
        found = check.problems if check else []
        self._problems = sorted(found, key=lambda problem: problem.severity != "error")
        errors = len(check.errors) if check else 0
        warnings = len(self._problems) - errors
        parts = [words.plural(errors, "problem")] if errors else []
        parts += [words.plural(warnings, "note")] if warnings else []
        self._title.setText(" and ".join(parts))
        self._fill(_FIRST)
        self.setVisible(bool(self._problems))

    def _show_all(self) -> None:
        self._fill(_MOST)

    def _fill(self, limit: int) -> None:
        clear(self._list)
        for problem in self._problems[:limit]:
            self._list.addWidget(_entry(problem))
        left = len(self._problems) - limit
        self.more.setVisible(left > 0 and limit < _MOST)
        self.more.setText(f"Show all {words.count(len(self._problems))}")
        if left > 0 and limit >= _MOST:
            self._list.addWidget(label(f"and {words.count(left)} more", size=11, secondary=True))


def _entry(problem: Problem) -> QWidget:
    entry = QWidget()
    state = State.WRONG if problem.severity == "error" else State.NEEDS_YOU
    place = "" if not problem.line or "ine " in problem.message[:8] else f"Line {words.count(problem.line)}: "
    cause = label(place + problem.message, wrap=True)
    cure = label(problem.fix, size=11, secondary=True, wrap=True)
    layout = row(Shape(state), column(cause, cure, spacing=2))
    layout.setStretch(1, 1)
    entry.setLayout(layout)
    cure.setVisible(bool(problem.fix))
    entry.setAccessibleName(f"{place}{problem.message} {problem.fix}")
    return entry
