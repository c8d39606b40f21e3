"""A card for one row of the data, with its figures, as the model sees it."""

from __future__ import annotations

from collections.abc import Sequence

from app import words
from app.answers import Row, Token
from app.pages.pairview import PairView, is_pair
from app.pages.tokentext import TokenText
from app.widgets.basics import Card, button, label, row


class RowView(Card):
    """One row: its tokens, or its text and what is wrong with it. Long rows show their beginning at first."""

    def __init__(self, answer: Row, number: int) -> None:
        super().__init__(spacing=4, margin=14)
        self.number = number
        self.tokens: Sequence[Token] = answer.tokens
        name = f"Row {words.count(number)}"
        line = f"line {words.count(answer.line)}" if answer.line else ""
        side = ", ".join(filter(None, (words.shortened(answer.file, 40), line)))
        head = row(label(name, size=11, bold=True), label(side, size=11, secondary=True), None)
        self.body.addLayout(head)
        if answer.problem:
            self.body.addWidget(label(answer.problem, size=11, wrap=True))
        facts = _facts(answer.tokens)
        if answer.tokens:
            head.addWidget(label(facts, size=11, secondary=True))
        self.pair = PairView(answer.tokens, name) if is_pair(answer.tokens) else None
        if self.pair:
            self.texts: Sequence[TokenText] = self.pair.texts
            self.body.addWidget(self.pair)
        else:
            shown = answer.tokens or [Token(text=answer.text)]
            self.texts = (TokenText(shown, f"{name}: {facts}", unused=not answer.tokens),)
            self.body.addWidget(self.texts[0])
        self.more = button(f"Show all {words.plural(len(answer.tokens), 'token')}", self._unfold, role="small")
        self.body.addLayout(row(self.more, None))
        self.more.setVisible(any(text.folded for text in self.texts))

    @property
    def complete(self) -> bool:
        """Whether all that is to be shown is laid out."""
        return all(text.complete for text in self.texts)

    def _unfold(self) -> None:
        self.more.hide()
        for text in self.texts:
            text.unfold()


def _facts(tokens: Sequence[Token]) -> str:
    cut = sum(token.cut for token in tokens)
    facts = [words.plural(len(tokens), "token"), f"{words.count(sum(token.trained for token in tokens))} trained"]
    return ", ".join(facts + ([f"{words.count(cut)} cut"] if cut else []))
