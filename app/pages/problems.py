"""What the check found: a line for each kind, what can be pressed to mend it, and the lines of the file."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from app import words
from app.answers import Check, Cure, Problem
from app.pages.problemwords import cure_in_words, kind_in_words
from app.states import State
from app.widgets.basics import Card, Fold, button, clear, column, label, row
from app.widgets.state import Shape

_KINDS = 4
_LINES = 100
_SEVERITIES = {"error": State.WRONG, "warning": State.NEEDS_YOU, "note": State.NOTE}


class Problems(Card):
    """Kinds of problems, errors first; the first few until the person asks for all.

    Signals:
        cure_requested(list): what `fix` shall do, as names of cures.
    """

    cure_requested = Signal(list)

    def __init__(self) -> None:
        super().__init__(spacing=12)
        self.setAccessibleName("Problems in the data")
        self._title = label(bold=True)
        self.more = button("Show all kinds", self._show_all, role="small")
        self.all = button(
            "Mend all",
            lambda: self.cure_requested.emit([cure.cure for cure in self._cures.values()]),
            help="Does all of these at once, into one new file beside yours",
        )
        self._list = column(spacing=12)
        self.kinds: list[Kind] = []
        self._problems: list[Problem] = []
        self._cures: dict[str, Cure] = {}
        self._busy = False
        self.body.addLayout(row(self._title, None, self.more, self.all))
        self.body.addLayout(self._list)
        self.hide()

    def show_check(self, check: Check | None) -> None:
        problems = check.problems if check else []
        cures = {cure.cure: cure for cure in (check.cures if check else [])}
        if (problems, cures) == (self._problems, self._cures):  # what is folded out stays so
            return
        self._problems, self._cures = problems, cures
        counts = [(check.rows_with(severity) if check else 0) for severity in _SEVERITIES]
        parts = [words.plural(count, name) for count, name in zip(counts, ("problem", "warning", "note"), strict=True)]
        shown = [part for part, count in zip(parts, counts, strict=True) if count]
        self._title.setText(", ".join(shown[:-1]) + (" and " if shown[:-1] else "") + "".join(shown[-1:]))
        self.all.setVisible(len(cures) > 1)
        self._fill(_KINDS)
        self.setVisible(bool(problems))

    def allow(self, mending: bool) -> None:
        """Turns what can be pressed off while a file is being mended."""
        self._busy = mending
        for pressed in (self.all, *(kind.press for kind in self.kinds)):
            pressed.setEnabled(not mending)

    def _show_all(self) -> None:
        self._fill(len(self._problems))

    def _fill(self, limit: int) -> None:
        clear(self._list)
        groups = by_kind(self._problems)
        self.kinds = []
        offered = dict(self._cures)
        for group in groups[:limit]:
            # A cure does all rows that it is for: it is offered once, with its first kind.
            self.kinds.append(kind := Kind(group, offered.pop(group[0].cure, None)))
            kind.press.clicked.connect(lambda _=False, cure=kind.cure: self.cure_requested.emit([cure]))
            self._list.addWidget(kind)
        self.more.setVisible(len(groups) > limit)
        self.more.setText(f"Show all {words.plural(len(groups), 'kind')}")
        self.allow(self._busy)


class Kind(QWidget):
    """All problems of one code: what it is and how often, its cure, and under a fold the lines."""

    def __init__(self, problems: Sequence[Problem], known: Cure | None) -> None:
        super().__init__()
        first = problems[0]
        self.cure = first.cure
        rows = sum(problem.rows for problem in problems)
        headline = kind_in_words(first, rows) if rows > 1 else place(first) + first.message
        help = f"{known.does} Writes a new file beside yours, which stays as it is." if known else ""
        self.press = button(known.label if known else "", help=help.strip())
        self.press.setVisible(known is not None)
        self.press.setAccessibleName(f"{known.label}: {headline}" if known else headline)
        cause = label(headline, wrap=True)
        fix = cure_in_words(first, rows)
        cure = label(fix, size=11, secondary=True, wrap=True)
        cure.setVisible(bool(fix))
        said = column(cause, cure, spacing=2)
        if rows > 1:
            lines = QWidget()
            lines.setLayout(
                column(*(label(place(one) + one.message, size=11, wrap=True) for one in problems[:_LINES]), spacing=2)
            )
            self.lines = Fold("Show lines", lines)
            said.addWidget(self.lines)
        shape = Shape(_SEVERITIES.get(first.severity, State.NEEDS_YOU))
        line = row(shape, said, self.press, spacing=8)
        for item in (shape, self.press):
            line.setAlignment(item, Qt.AlignmentFlag.AlignTop)
        line.setStretch(1, 1)
        self.setLayout(line)
        self.setAccessibleName(f"{first.severity}: {headline} {fix}")


def by_kind(problems: Sequence[Problem]) -> list[list[Problem]]:
    """Problems of one severity and code together; errors, then warnings, then notes, each in the file's order."""
    groups: dict[tuple[str, str, str], list[Problem]] = {}
    for problem in problems:
        groups.setdefault((problem.severity, problem.code, problem.cure), []).append(problem)
    order = list(_SEVERITIES)
    return sorted(
        groups.values(), key=lambda group: order.index(group[0].severity) if group[0].severity in order else 0
    )


def place(problem: Problem) -> str:
    """ "Line 12, column 5: ", unless the message begins by saying so, after its file's name where it has one."""
    message = problem.message.removeprefix(f"{problem.file}: ")
    if not problem.line or problem.lines or message.startswith(("Line ", "Lines ")):
        return ""
    column = f", column {words.count(problem.column)}" if problem.column else ""
    return f"Line {words.count(problem.line)}{column}: "
