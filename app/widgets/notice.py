"""The card that says what went wrong: the cause, the cure, what to press, and the details folded."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QPlainTextEdit, QVBoxLayout, QWidget

from app.states import State
from app.theme import font
from app.widgets.basics import Card, Fold, button, column, label, row
from app.widgets.state import Shape
from engine.errors import EngineError
from engine.events import Failed


class Notice(Card):
    """One card of cause and cure. It goes when its cause is dealt with, or when it is dismissed.

    Signals:
        dismissed(): the person has read it.
    """

    dismissed = Signal()

    def __init__(
        self,
        message: str,
        hint: str,
        *,
        details: str = "",
        state: State = State.WRONG,
        action: tuple[str, Callable[[], object]] | None = None,
    ) -> None:
        super().__init__(margin=12)
        self.message, self.hint = message, hint
        self.is_failure = state in (State.WRONG, State.TOO_BIG)
        self.setAccessibleName(message)
        self.setAccessibleDescription(hint)
        cause = label(message, bold=True, wrap=True)
        cure = label(hint, secondary=True, wrap=True)
        self.dismiss = button("Dismiss", self.dismissed.emit, role="small", help="Put this message away")
        self._buttons = row(self.dismiss)
        self._lines = column(cause, cure, spacing=4)
        if action:
            self.add_button(*action)
        top = row(Shape(state), self._lines, self._buttons, spacing=8)
        top.setAlignment(Qt.AlignmentFlag.AlignTop)
        top.setStretch(1, 1)
        self.body.addLayout(top)
        cure.setVisible(bool(hint))
        self.details: Fold | None = None
        if details.strip():
            text = QPlainTextEdit(details.strip(), readOnly=True)
            text.setProperty("role", "details")
            text.setFont(font(11, mono=True))
            text.setAccessibleName("Details")
            text.setFixedHeight(140)
            self.details = Fold("Details", text)
            self.body.addWidget(self.details)

    def add_button(self, text: str, pressed: Callable[[], object]) -> None:
        """One more thing to press, before Dismiss."""
        self._buttons.insertWidget(self._buttons.count() - 1, button(text, pressed))

    def add_line(self, text: str) -> None:
        """One more sentence under the cure."""
        self._lines.addWidget(label(text, secondary=True, wrap=True))


class Notices(QWidget):
    """The place for notices at the top of a page: one for each subject, the newest; no room without any."""

    def __init__(self) -> None:
        super().__init__()
        self._by_subject: dict[str, Notice] = {}
        self._told: dict[str, Failed | EngineError] = {}
        self._layout: QVBoxLayout = column()
        self.setLayout(self._layout)
        self.hide()

    def show_failure(
        self,
        failure: Failed | EngineError,
        *,
        subject: str,
        action: tuple[str, Callable[[], object]] | None = None,
    ) -> None:
        """Shows a failed event or a refused value; it replaces what the same subject showed before.

        The one that the subject told of last stays as it is: open, or dismissed.
        """
        if self._told.get(subject) is failure:
            return
        details = failure.details if isinstance(failure, Failed) else ""
        # What a person stopped is no fault.
        state = State.NEEDS_YOU if failure.kind == "stopped" else State.WRONG
        self.show_notice(Notice(failure.message, failure.hint, details=details, state=state, action=action), subject)
        self._told[subject] = failure

    def show_notice(self, notice: Notice, subject: str) -> None:
        self.clear(subject)
        self._by_subject[subject] = notice
        notice.dismissed.connect(lambda: self._put_away(subject))
        if notice.details:
            notice.details.head.clicked.connect(lambda: self._keep_open(notice))
        self._layout.addWidget(notice)
        notice.show()
        self.show()

    def clear(self, subject: str) -> None:
        """Puts away what a subject showed, and what it told of last is news again."""
        self._told.pop(subject, None)
        self._put_away(subject)

    def _put_away(self, subject: str) -> None:
        old = self._by_subject.pop(subject, None)
        if old:
            old.hide()
            old.deleteLater()
        self.setVisible(bool(self._by_subject))

    def _keep_open(self, notice: Notice) -> None:
        """Folds the details of the others: several at once would leave the page below no room in a low window."""
        for other in self.shown:
            if other.details and other is not notice:
                other.details.head.setChecked(False)

    @property
    def shown(self) -> list[Notice]:
        """The notices that stand there now."""
        return list(self._by_subject.values())
