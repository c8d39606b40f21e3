"""A pair as the model sees it: the prompt once, then the better and the worse answer side by side."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QWidget

from app import words
from app.answers import Token
from app.pages.tokentext import TokenText
from app.widgets.basics import column, fill, label, row

# Pixels: narrower than this the answers stand one above the other.
_WIDE = 640
# Answers that share less than this are marked by a word: lines under nearly everything would say nothing.
_ALIKE = 0.2
# Tokens of the prompt that are shown at first: its answers are to be in sight below it.
_PROMPT = 240


class PairView(QWidget):
    """The tokens of a pair's row, in the order of `preview`: prompt, chosen, rejected."""

    def __init__(self, tokens: Sequence[Token], name: str) -> None:
        super().__init__()
        prompt, better, worse = sides(tokens)
        marks = differences(better, worse)
        note = "" if marks else "differ throughout"
        if better and [token.id for token in better] == [token.id for token in worse]:
            note = "both are the same"
        self.prompt = TokenText(prompt, f"{name}, prompt", limit=_PROMPT)
        self.better = TokenText(better, f"{name}, better answer", marks[0] if marks else ())
        self.worse = TokenText(worse, f"{name}, worse answer", marks[1] if marks else ())
        self.texts = (self.prompt, self.better, self.worse)
        self._sides = fill(QBoxLayout(QBoxLayout.Direction.LeftToRight), spacing=24)
        for title, text, side in (("Better answer", self.better, better), ("Worse answer", self.worse, worse)):
            facts = ", ".join(filter(None, (words.plural(len(side), "token"), note)))
            text.setAccessibleDescription(facts)
            head = row(label(title, size=11, bold=True), label(facts, size=11, secondary=True), None)
            self._sides.addLayout(column(head, text, None, spacing=4), 1)
        self.setLayout(column(self.prompt, self._sides, spacing=12))
        self.prompt.setVisible(bool(prompt))

    def resizeEvent(self, event: QResizeEvent) -> None:
        wide = event.size().width() >= _WIDE
        self._sides.setDirection(QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom)
        self._sides.setSpacing(24 if wide else 12)
        super().resizeEvent(event)


def is_pair(tokens: Sequence[Token]) -> bool:
    """Whether a row's tokens are those of a pair."""
    return {"chosen", "rejected"} <= {token.part for token in tokens}


def sides(tokens: Sequence[Token]) -> tuple[Sequence[Token], Sequence[Token], Sequence[Token]]:
    """The prompt, the better and the worse answer of a pair.

    Where the prompts are not the same tokens each answer is read after its own: it then begins its side.
    """
    parts = [token.part for token in tokens]
    first, last = parts.index("chosen"), len(parts) - parts[::-1].index("chosen")
    if "prompt" in parts[last:]:
        return [], tokens[:last], tokens[last:]
    return tokens[:first], tokens[first:last], tokens[last:]


def differences(better: Sequence[Token], worse: Sequence[Token]) -> tuple[set[int], set[int]] | None:
    """The indexes of the tokens in which two answers differ; None where they have little in common."""
    # With difflib's heuristic for long sequences: without it an answer of 2,000 tokens can take seconds.
    matcher = SequenceMatcher(None, [token.id for token in better], [token.id for token in worse])
    if matcher.ratio() < _ALIKE:
        return None
    only_better, only_worse = set(range(len(better))), set(range(len(worse)))
    for start, other, size in matcher.get_matching_blocks():
        only_better -= set(range(start, start + size))
        only_worse -= set(range(other, other + size))
    return only_better, only_worse
