"""Tokens as the model sees them: trained ones in colour, cut ones struck, special ones as chips."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from PySide6.QtCore import QMimeData, Qt, QTimer
from PySide6.QtGui import QColor, QFont, QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QFrame, QSizePolicy, QTextBrowser

from app.answers import Token
from app.theme import colors, font, theme

# Tokens laid out at a time: a slice takes a few milliseconds.
_SLICE = 400
_FOLDED = 800
_MORE = " …"
# Around and inside a special token: it stands as one piece.
_SPACE, _JOINED = "\N{NARROW NO-BREAK SPACE}", "|\N{WORD JOINER}"
_GAP = "\N{ZERO WIDTH SPACE}"  # between two of them


class Look(NamedTuple):
    """What decides how a token is drawn."""

    trained: bool
    cut: bool
    special: bool
    differs: bool
    unused: bool = False


class TokenText(QTextBrowser):
    """As high as its tokens need. More than `limit` show their beginning until `unfold`.

    `differing` are the indexes of tokens that are underlined; what is `unused` is no part of what the model sees.
    """

    def __init__(
        self,
        tokens: Sequence[Token],
        name: str,
        differing: Collection[int] = (),
        *,
        limit: int = _FOLDED,
        unused: bool = False,
    ) -> None:
        super().__init__()
        self._looks = [
            Look(token.trained, token.cut, token.special, index in differing, unused)
            for index, token in enumerate(tokens)
        ]
        self._tokens = tokens
        self._limit = limit
        self._drawn = 0
        self.setAccessibleName(name)
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
        self._timer = QTimer(self, interval=0)
        self._timer.timeout.connect(self._draw_slice)
        theme().changed.connect(self._restart)
        self._restart()

    @property
    def complete(self) -> bool:
        """Whether all that is to be shown is laid out."""
        return not self._timer.isActive()

    @property
    def folded(self) -> bool:
        """Whether tokens at the end are not shown."""
        return len(self._tokens) > self._limit

    def unfold(self) -> None:
        """Shows all tokens."""
        if self.folded:
            self._limit = len(self._tokens)
            cursor = _end_of(self)
            for _ in _MORE:
                cursor.deletePreviousChar()
            self._timer.start()

    def createMimeDataFromSelection(self) -> QMimeData:
        """What is copied: the text, without what only holds a special token together."""
        data = QMimeData()
        text = super().createMimeDataFromSelection().text()
        data.setText(text.replace(_JOINED, "|").replace(_SPACE, "").replace(_GAP, ""))
        return data

    def _restart(self) -> None:
        self._drawn = 0
        self.clear()
        self._timer.start()
        self._draw_slice()

    def _draw_slice(self) -> None:
        last = min(self._limit, len(self._tokens))
        end = min(last, self._drawn + _SLICE)
        self._add(self._drawn, end)
        self._drawn = end
        if end == last:
            self._timer.stop()
            if self.folded:
                _insert(_end_of(self), _MORE, Look(False, False, False, False))

    def _add(self, start: int, end: int) -> None:
        """Appends tokens. Neighbours that look alike go in as one piece, which keeps emoji whole."""
        cursor = _end_of(self)
        cursor.beginEditBlock()
        begin = start
        for index in range(start + 1, end + 1):
            look = self._looks[begin]
            if index == end or look.special or self._looks[index] != look:
                text = "".join(token.text for token in self._tokens[begin:index])
                # A last line end would draw an empty line.
                _insert(cursor, text.removesuffix("\n") if index == len(self._tokens) else text, look)
                begin = index
        cursor.endEditBlock()


def _end_of(text: QTextBrowser) -> QTextCursor:
    cursor = QTextCursor(text.document())
    cursor.movePosition(QTextCursor.MoveOperation.End)
    return cursor


def _insert(cursor: QTextCursor, text: str, look: Look) -> None:
    c = colors()
    form = QTextCharFormat()
    form.setForeground(QColor(c.text))
    if look.special:
        form.setFont(
            font(11, mono=True),
            QTextCharFormat.FontPropertiesInheritanceBehavior.FontPropertiesSpecifiedOnly,
        )
        form.setForeground(QColor(c.text if look.trained else c.secondary))
        form.setBackground(QColor(c.trained if look.trained else c.well))
        text = f"{_SPACE}{text.replace('|', _JOINED)}{_SPACE}"
    elif look.trained:
        form.setBackground(QColor(c.trained))
        form.setFontWeight(QFont.Weight.Medium)
    if look.differs:
        form.setUnderlineStyle(QTextCharFormat.UnderlineStyle.SingleUnderline)
        form.setUnderlineColor(QColor(c.accent))
    if look.cut:
        form.setFontStrikeOut(True)
    if look.cut or look.unused:
        form.setForeground(QColor(c.secondary))
    cursor.insertText(text, form)
    if look.special and not look.trained:
        cursor.insertText(_GAP, QTextCharFormat())
