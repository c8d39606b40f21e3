"""One row as the model sees it: what is learned in colour, what is cut struck, special tokens as chips."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QColor, QFont, QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QFrame, QSizePolicy, QTextBrowser

from app import words
from app.answers import Row, Token
from app.theme import colors, font, theme
from app.widgets.basics import Card, button, label, row

# Tokens laid out at a time: a slice takes a few milliseconds.
_SLICE = 400
_FOLDED = 800
_SPECIAL = ("<|", "<s>", "</s>", "<bos>", "<eos>", "<start_of", "<end_of", "[INST]", "[/INST]")


class RowView(Card):
    """A card for one row. Long rows show their beginning until they are opened."""

    def __init__(self, answer: Row, number: int) -> None:
        super().__init__(spacing=4, margin=14)
        self._answer = answer
        self._limit = _FOLDED
        self._drawn = 0
        trained = sum(token.trained for token in answer.tokens)
        cut = sum(token.cut for token in answer.tokens)
        facts = [words.plural(len(answer.tokens), "token"), f"{words.count(trained)} trained"]
        facts += [f"{words.count(cut)} cut"] if cut else []
        name = f"Row {words.count(number)}"
        self.text = RowText()
        self.text.setAccessibleName(f"{name}: {', '.join(facts)}")
        self.more = button(f"Show all {words.plural(len(answer.tokens), 'token')}", self._unfold, role="small")
        self.more.setVisible(len(answer.tokens) > _FOLDED)
        side = f"line {words.count(answer.line)}" if answer.line else ""
        head = row(label(name, size=11, bold=True), label(side, size=11, secondary=True), None)
        self.body.addLayout(head)
        if answer.problem:
            self.body.addWidget(label(answer.problem, size=11, wrap=True))
        if answer.tokens:
            head.addWidget(label(", ".join(facts), size=11, secondary=True))
        else:
            self._answer = replace(answer, tokens=[Token(text=answer.text, cut=True)])
        self.body.addWidget(self.text)
        self.body.addLayout(row(self.more, None))
        self._timer = QTimer(self, interval=0)
        self._timer.timeout.connect(self._draw_slice)
        theme().changed.connect(self._restart)
        self._restart()

    @property
    def tokens(self) -> list[Token]:
        """The row's tokens, those not shown yet too."""
        return self._answer.tokens

    @property
    def complete(self) -> bool:
        """Whether all that is to be shown is laid out."""
        return not self._timer.isActive()

    def _unfold(self) -> None:
        self._limit = len(self._answer.tokens)
        self.more.hide()
        self._timer.start()

    def _restart(self) -> None:
        self._drawn = 0
        self.text.clear()
        self._draw_slice()
        self._timer.start()

    def _draw_slice(self) -> None:
        end = min(self._limit, self._drawn + _SLICE, len(self._answer.tokens))
        self.text.add(self._answer.tokens[self._drawn : end])
        self._drawn = end
        if end >= min(self._limit, len(self._answer.tokens)):
            self._timer.stop()


class RowText(QTextBrowser):
    """Coloured tokens, as high as they need."""

    def __init__(self) -> None:
        super().__init__()
        self.setFont(font())
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setAcceptDrops(False)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.document().setDocumentMargin(0)
        self.document().documentLayout().documentSizeChanged.connect(
            lambda size: self.setFixedHeight(max(18, round(size.height()) + 2))
        )

    def add(self, tokens: list[Token]) -> None:
        """Appends tokens. Neighbours that look alike go in as one piece, which keeps emoji whole."""
        cursor = QTextCursor(self.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.beginEditBlock()
        piece, before = "", None
        for token in tokens:
            look = (token.trained, token.cut, is_special(token))
            if look != before and before is not None:
                self._insert(cursor, piece, before)
                piece = ""
            piece, before = piece + token.text, look
            if look[2]:
                self._insert(cursor, piece, look)
                piece, before = "", None
        if before is not None:
            self._insert(cursor, piece, before)
        cursor.endEditBlock()

    def _insert(self, cursor: QTextCursor, text: str, look: tuple[bool, bool, bool]) -> None:
        trained, cut, special = look
        c = colors()
        form = QTextCharFormat()
        form.setForeground(QColor(c.text))
        if special:
            form.setFont(
                font(11, mono=True),
                QTextCharFormat.FontPropertiesInheritanceBehavior.FontPropertiesSpecifiedOnly,
            )
            form.setForeground(QColor(c.text if trained else c.secondary))
            form.setBackground(QColor(c.trained if trained else c.well))
            text = f"\N{NARROW NO-BREAK SPACE}{text}\N{NARROW NO-BREAK SPACE}"
        elif trained:
            form.setBackground(QColor(c.trained))
            form.setFontWeight(QFont.Weight.Medium)
        if cut:
            form.setFontStrikeOut(True)
            form.setForeground(QColor(c.secondary))
        cursor.insertText(text, form)
        if special and not trained:
            cursor.insertText("\N{ZERO WIDTH SPACE}", QTextCharFormat())


def is_special(token: Token) -> bool:
    """Whether a token is one of the template's marks rather than text."""
    text = token.text.strip()
    return bool(text) and len(text) < 40 and text.startswith(_SPECIAL) and text[-1] in ">]"
