"""The Try it page: ask the original model and the trained one the same question."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QPlainTextEdit, QScrollArea, QWidget

from app import places
from app.pages.exchange import Exchange
from app.pages.page import Page
from app.session import Session
from app.talking import Question, Talk
from app.theme import font
from app.widgets.basics import ElidedButton, button, clear, column, label, row
from engine.events import Failed, Finished

_EXAMPLES = 3
# Tokens: for a question of one's own, and for one whose answer in the data is short.
_LONG_ANSWER, _SHORT_ANSWER = 256, 64


class TalkPage(Page):
    """A prompt box, and each question's answers before and after.

    Signals:
        answered(): every answer that was asked for is complete.
    """

    answered = Signal()

    def __init__(self, session: Session) -> None:
        super().__init__("Try it")
        self._session = session
        self._exchange: Exchange | None = None
        self._expected: dict[str, str] = {}
        self.exchanges: list[Exchange] = []
        self.talk = Talk(self)
        self.talk.piece.connect(self._add)
        self.talk.answered.connect(self._answered)
        self.talk.failed.connect(self._failed)
        self.talk.changed.connect(self._say)
        self.prompt = QPlainTextEdit()
        self.prompt.setProperty("role", "field")
        self.prompt.setFont(font())
        self.prompt.setPlaceholderText("Write a question, press Return")
        self.prompt.setAccessibleName("Your question")
        self.prompt.setTabChangesFocus(True)
        self.prompt.setAcceptDrops(False)  # files dropped anywhere belong to the window
        self.prompt.setFixedHeight(60)
        self.prompt.installEventFilter(self)
        self.ask_button = button("Ask", self.ask, role="primary", help="Asks the model (Return)")
        self.stop_button = button("Stop answering", self.talk.stop, help="Ends the answer where it is")
        self.examples = column(spacing=4)
        self._examples_title = label("From the sample's rows that were never trained:", size=11, secondary=True)
        self.hint = label(secondary=True, wrap=True)
        self._list = column(spacing=8)
        content = QWidget()
        content.setProperty("role", "ground")
        content.setLayout(column(self.hint, self._list, None, spacing=16))
        self.scroll_area = QScrollArea()
        self.scroll_area.setWidgetResizable(True)
        self.scroll_area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.scroll_area.setWidget(content)
        self.scroll_area.setAccessibleName("Questions and answers")
        self.scroll_area.verticalScrollBar().rangeChanged.connect(self._show_newest)
        self.body.addWidget(self.scroll_area, 1)
        self.body.addLayout(column(self._examples_title, self.examples, spacing=4))
        ask_row = row(self.prompt, column(self.ask_button, self.stop_button, spacing=4))
        ask_row.setStretch(0, 1)
        self.body.addLayout(ask_row)
        session.config_changed.connect(self._config_changed)
        session.shelf.changed.connect(self._config_changed)
        session.training.changed.connect(self._training_changed)
        session.training.finished.connect(self._finished)
        self._config_changed()

    def ask(self, text: str = "", expected: str = "") -> Exchange | None:
        """Asks both sides `text`, or what stands in the box."""
        prompt = text or self.prompt.toPlainText().strip()
        if not prompt or not self._possible() or self.talk.busy:
            return None
        self.prompt.clear()
        self.notices.clear("talk")
        tuned = self.talk.adapter is not None
        self._exchange = Exchange(prompt, expected or self._expected.get(prompt, ""), tuned=tuned)
        self.exchanges.append(self._exchange)
        self._list.addWidget(self._exchange)
        longest = _SHORT_ANSWER if self._exchange.expected else _LONG_ANSWER
        for side in self._exchange.answers:
            self.talk.ask(Question(prompt, adapter=side, max_tokens=longest))
        self._say()
        return self._exchange

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Return asks; with Shift it begins a new line."""
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            plain = not event.modifiers() & Qt.KeyboardModifier.ShiftModifier
            if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and plain:
                self.ask()
                return True
        return super().eventFilter(watched, event)

    def offer(self, adapter: Path) -> None:
        """Has the adapter in this folder asked beside the chosen model."""
        self.talk.choose(self._session.config.model, adapter)

    def close_talk(self) -> None:
        """Ends the model's process."""
        self.talk.close()

    def _show_newest(self, _low: int, high: int) -> None:
        """Keeps the newest question in sight: its answers may be longer than the page."""
        if self._exchange:
            self.scroll_area.verticalScrollBar().setValue(min(high, self._exchange.y()))

    def _possible(self) -> bool:
        here = self._session.shelf.folder(self._session.config.model) is not None
        return here and not self._session.training.phase.active

    def _config_changed(self) -> None:
        config = self._session.config
        if config.model != self.talk.model:
            self.talk.choose(config.model, None)
        sample = config.data == str(places.sample_copy())
        found = held_out() if sample else []
        if dict(found) != self._expected:
            self._expected = dict(found)
            clear(self.examples)
            for prompt, expected in found[:_EXAMPLES]:
                entry = ElidedButton(prompt, partial(self.ask, prompt, expected))
                self.examples.addWidget(entry)
        self._examples_title.setVisible(bool(found))
        self._say()

    def _training_changed(self) -> None:
        if self._session.training.phase.active:
            self.talk.close()  # its memory is the run's now
            self._give_up()
        self._say()

    def _finished(self, event: Finished) -> None:
        self.talk.choose(self._session.training.config.model, Path(event.adapter).parent)  # its file's folder

    def _add(self, question: Question, text: str) -> None:
        if self._exchange:
            self._exchange.add(question.adapter, text)

    def _answered(self, question: Question) -> None:
        if self._exchange:
            self._exchange.end(question.adapter)
        if not self.talk.busy:
            self.answered.emit()

    def _failed(self, failure: Failed) -> None:
        self._give_up()
        self.notices.show_failure(failure, subject="talk")

    def _give_up(self) -> None:
        if self._exchange:
            self._exchange.give_up()

    def _say(self) -> None:
        busy, possible = self.talk.busy, self._possible()
        self.ask_button.setEnabled(possible and not busy)
        self.stop_button.setVisible(busy)
        for index in range(self.examples.count()):
            item = self.examples.itemAt(index).widget()
            if item:
                item.setEnabled(possible and not busy)
        if self._session.training.phase.active:
            hint = "The model is learning. When it has finished, ask it here, before and after side by side."
        elif not possible:
            hint = "Choose a model first; then you can talk to it here."
        elif self.talk.adapter is None:
            hint = "Ask the original model now. After training, the trained one answers beside it."
        else:
            hint = "Each question is answered twice: by the original model, and after training."
        self.hint.setText(hint)
        loading = busy and not self.talk.ready
        self.side.setText("Loading the model…" if loading else "Answering…" if busy else "")


def held_out() -> list[tuple[str, str]]:
    """The sample's prompts that are never trained, each with its answer; none where the file is missing."""
    try:
        lines = places.SAMPLE_HELD_OUT.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    rows = [json.loads(line) for line in lines]
    return [(str(entry["prompt"]), str(entry["completion"])) for entry in rows]
