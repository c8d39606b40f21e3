"""Text to token ids by pieces that repeat: a word's tokens are looked up where they are sure to be the same anywhere.

Of the pieces that a text can be cut into (`cuts`) a data set has few different ones.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from engine.data.cuts import SPACE_SIGN, Cuts, sure_cuts

MAX_PIECES = 500_000  # some 100 MB
_LONG = 64  # characters: longer pieces hardly come again
_RARE_SPACE = re.compile(r"[^\S \n]")
_NEAR = 3  # characters that tell whether a text can be cut between them


class PieceEncoder:
    """Token ids of texts whose special tokens count for nothing, as bytes of int32.

    KeyError for a text with a piece that is not known: a new one, or one that names a special token, which needs its
    surroundings.
    """

    def __init__(self, tokenizer: Tokenizer, cuts: Cuts, specials: re.Pattern[str]) -> None:
        self._tokenizer, self._specials = tokenizer, specials
        self._cut, self._spaces = cuts.all, cuts.spaces
        self._known = {"": b""}
        self._long: list[str] = []
        # A text up to its first space that begins a piece, and what follows such a space up to the next.
        self._first, self._after = _Words("", self._joined), _Words(" ", self._joined)
        self._seams: dict[tuple[str, int], tuple[bytes, int]] = {}

    def learn(self, texts: Iterable[str]) -> None:
        """Makes the pieces of `texts` known; a batch at a time uses all cores."""
        self._make_room()
        firsts, words = set[str](), set[str]()
        for text in texts:
            first, *others = self._spaces.split(text)
            firsts.add(first)
            words.update(others)
        unknown = [*firsts, *(" " + word for word in words.difference(self._after))]
        pieces = set(itertools.chain.from_iterable(map(self._cut.split, unknown))).difference(self._known)
        new = [piece for piece in pieces if not self._specials.search(piece)]
        self._long = [piece for piece in new if len(piece) > _LONG]
        for piece, encoding in zip(new, self._tokenizer.encode_batch_fast(new, add_special_tokens=False), strict=True):
            self._known[piece] = np.array(encoding.ids, np.int32).tobytes()

    def encode(self, text: str) -> bytes:
        """The tokens of `text`."""
        first, *words = text.split(" ") if _is_simple(text) else self._spaces.split(text)
        return self._first[first] + b"".join(map(self._after.__getitem__, words))

    def encode_seam(self, text: str, place: int) -> tuple[bytes, int]:
        """The tokens of `text`, and how many of them stand for nothing after its first `place` characters."""
        found = self._seams.get((text, place))
        if found is None:
            found = self._seam(text, place)
            if len(text) <= _LONG:
                self._seams[text, place] = found
        return found

    def joint(self, before: str, after: str) -> tuple[int, int]:
        """Where what has to be taken as one begins in `before`, and where it ends in `after`: two pieces or none."""
        near = before[-_NEAR:]
        if near and self._cut.match(near + after[:_NEAR], len(near)):
            return len(before), 0
        end = self._cut.search(after, 1)
        tail = self._cut.split(before[-_LONG:])
        last = tail[-1] if len(tail) > 1 else self._cut.split(before)[-1]
        return len(before) - len(last), end.start() if end else len(after)

    def _seam(self, text: str, place: int) -> tuple[bytes, int]:
        pieces = self._cut.split(text)
        ends = list(itertools.accumulate(map(len, pieces)))
        if place in ends:
            ids = [self._known[piece] for piece in pieces]
            return b"".join(ids), sum(map(len, ids[: ends.index(place) + 1])) // 4
        if self._specials.search(text):
            raise KeyError(text)
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return np.array(encoding.ids, np.int32).tobytes(), sum(end <= place for _, end in encoding.offsets)

    def _joined(self, text: str) -> bytes:
        return b"".join([self._known[piece] for piece in self._cut.split(text)])

    def _make_room(self) -> None:
        for piece in self._long:
            del self._known[piece]
        held: tuple[dict[Any, Any], ...] = (self._known, self._first, self._after, self._seams)
        if sum(map(len, held)) > MAX_PIECES:
            for known in held:
                known.clear()
            self._known[""] = b""


class _Words(dict[str, bytes]):
    """The tokens of words that stand behind `before`; those of a new word are made when it is asked for."""

    def __init__(self, before: str, encode: Callable[[str], bytes]) -> None:
        super().__init__()
        self._before, self._encode = before, encode

    def __missing__(self, word: str) -> bytes:
        ids = self._encode(self._before + word)
        if len(word) <= _LONG:
            self[word] = ids
        return ids


def _is_simple(text: str) -> bool:
    """Whether all spaces of a text stand between visible characters: each of them then begins a piece."""
    twice = "  " in text or " \n" in text or "\n " in text
    return not (twice or text.startswith(" ") or text.endswith(" ") or SPACE_SIGN in text or _RARE_SPACE.search(text))


def piece_encoder(tokenizer: Tokenizer, specials: re.Pattern[str]) -> PieceEncoder | None:
    """An encoder by pieces, None where pieces are not sure to have the tokens of the whole text."""
    cuts = sure_cuts(tokenizer)
    return PieceEncoder(tokenizer, cuts, specials) if cuts else None
