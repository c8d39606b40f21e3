"""Text from tokens one at a time, in whole characters."""

from __future__ import annotations

from collections.abc import Callable

_REPLACEMENT = "\ufffd"
_MAX_PENDING = 8  # a character has four bytes: what is still broken after so many tokens stays broken


class StreamDecoder:
    """Gives a character that is spread over several tokens to the token that completes it.

    Each token is decoded together with the ones before it, since many decoders treat the first token of a
    text in their own way.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._shown: list[int] = []
        self._pending: list[int] = []

    def add(self, token_id: int) -> str:
        """The text that `token_id` completes, "" while a character is open."""
        self._pending.append(token_id)
        text = self._text_of_pending()
        if text.endswith(_REPLACEMENT) and len(self._pending) < _MAX_PENDING:
            return ""
        self._shown, self._pending = self._pending, []
        return text

    def finish(self) -> str:
        """The text of a character that was never completed, after the last token."""
        text = self._text_of_pending()
        self._shown, self._pending = [], []
        return text

    def _text_of_pending(self) -> str:
        return self._decode(self._shown + self._pending)[len(self._decode(self._shown)) :]
