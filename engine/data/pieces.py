"""Text to token ids by pieces that repeat: a word's tokens are looked up where they are sure to be the same anywhere.

Of the words that texts can be cut into (`cuts`) a data set has few different ones: many texts are cut at once, and
Python sees each of their different words once. What the words have in common are pieces, which are tokenized.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from engine.data.cuts import Cuts, sure_cuts

MAX_PIECES = 500_000  # some 100 MB
ARROW_WORDS = 10_000  # fewer are not worth the 0.1 s that loading Arrow takes
_LONG = 64  # bytes or characters: longer pieces hardly come again
_NEAR = 3  # characters that tell whether a text can be cut between them
# UTF-8 of whitespace beyond ASCII, and of SentencePiece's sign for a space.
_RARE_SPACE = re.compile(
    b"\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2(?:\x80[\x80-\x8a\xa8\xa9\xaf]|\x81\x9f|\x96\x81)|\xe3\x80\x80"
)
_NO_BYTE = 0xFF  # of no UTF-8: stands for the bytes of a rare space


class PieceEncoder:
    """Token ids of texts whose special tokens count for nothing, as bytes of int32."""

    def __init__(self, tokenizer: Tokenizer, cuts: Cuts, specials: re.Pattern[str]) -> None:
        self._tokenizer, self._cut, self._specials = tokenizer, cuts.all, specials
        self._is_cut = _cut_spaces(cuts.spaces)
        self._pieces: dict[str, bytes] = {}
        self._words: dict[bytes, bytes | None] = {}
        self._seams: dict[tuple[str, int], tuple[bytes, int] | None] = {}

    def encode(self, texts: Sequence[str]) -> list[bytes | None]:
        """The tokens of each text; None for one that names a special token, which needs its surroundings."""
        self._make_room()
        data = [text.encode() for text in texts]
        ends = np.cumsum([0, *map(len, data)])
        whole = b"".join(data)
        places = self._places(whole, ends)
        words, order = _different(whole, places)
        known = self._tokens(words)
        ids, ends_of_words = _taken([one or b"" for one in known], order)
        first_words = np.searchsorted(places, ends)
        bounds = (4 * ends_of_words[first_words]).tolist()
        found: list[bytes | None] = [ids[begin:end] for begin, end in itertools.pairwise(bounds)]
        if None in known:
            unknown = np.flatnonzero(np.array([one is None for one in known])[order])
            for text in np.searchsorted(first_words, unknown, side="right") - 1:
                found[text] = None
        return found

    def encode_seam(self, text: str, place: int) -> tuple[bytes, int] | None:
        """The tokens of `text`, and how many of them stand for nothing after its first `place` characters.

        None for a text that names a special token.
        """
        if (text, place) in self._seams:
            return self._seams[text, place]
        found = None
        if not self._specials.search(text):
            encoding = self._tokenizer.encode(text, add_special_tokens=False)
            found = np.array(encoding.ids, np.int32).tobytes(), sum(end <= place for _, end in encoding.offsets)
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

    def _places(self, data: bytes, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Where the words of texts begin that lie in `data` one after the other, and its end.

        `ends` are 0 and those of the texts: what stands beyond them tells nothing of a space.
        """
        text = np.frombuffer(data + bytes(1), np.uint8)
        if not data.isascii():
            text = text.copy()
            for rare in _RARE_SPACE.finditer(data):
                text[rare.start() : rare.end()] = _NO_BYTE
        spaces = np.flatnonzero(text == ord(" "))
        begins = np.zeros(len(text), bool)
        begins[spaces] = self._is_cut[text[spaces - 1], text[spaces + 1]]
        begins[ends - 1] = False
        begins[ends] = True
        return np.flatnonzero(begins)

    def _tokens(self, words: Sequence[bytes]) -> list[bytes | None]:
        """The tokens of each word, None for one that names a special token."""
        new = [word for word in words if word not in self._words]
        cut = [self._cut.split(word.decode()) for word in new]
        self._learn(itertools.chain.from_iterable(cut))
        for word, pieces in zip(new, cut, strict=True):
            ids = [self._pieces.get(piece) for piece in pieces]
            known = [one for one in ids if one is not None]
            self._words[word] = b"".join(known) if len(known) == len(ids) else None
        found = [self._words[word] for word in words]
        for word, pieces in zip(new, cut, strict=True):
            if len(word) > _LONG:
                del self._words[word]
                for piece in pieces:
                    if len(piece) > _LONG:
                        self._pieces.pop(piece, None)
        return found

    def _learn(self, pieces: Iterable[str]) -> None:
        new = [piece for piece in {*pieces}.difference(self._pieces) if not self._specials.search(piece)]
        for piece, encoding in zip(new, self._tokenizer.encode_batch_fast(new, add_special_tokens=False), strict=True):
            self._pieces[piece] = np.array(encoding.ids, np.int32).tobytes()

    def _make_room(self) -> None:
        held: tuple[dict[Any, Any], ...] = (self._pieces, self._words, self._seams)
        if sum(map(len, held)) > MAX_PIECES:
            for known in held:
                known.clear()


def _cut_spaces(spaces: re.Pattern[str]) -> npt.NDArray[np.bool_]:
    """Whether a text is cut before a space that stands between two bytes of it [256, 256]: all that `spaces` look at.

    Beyond ASCII all characters but rare spaces are of one sort.
    """
    sorts = [*map(chr, range(128)), "é"]
    table = np.array([[spaces.match(f"{before} {after}", 1) is not None for after in sorts] for before in sorts])
    sort = np.minimum(np.arange(256), 128)
    is_cut: npt.NDArray[np.bool_] = table[np.ix_(sort, sort)]
    is_cut[_NO_BYTE] = is_cut[:, _NO_BYTE] = False
    return is_cut


def _different(data: bytes, places: npt.NDArray[np.int64]) -> tuple[list[bytes], npt.NDArray[np.integer[Any]]]:
    """The different words between `places` of `data`, and which of them each word is."""
    if len(places) <= ARROW_WORDS:
        words = [data[begin:end] for begin, end in itertools.pairwise(places.tolist())]
        number = {word: count for count, word in enumerate(dict.fromkeys(words))}
        return [*number], np.array([number[word] for word in words], np.int64)
    import pyarrow as pa

    offsets = pa.py_buffer(places.astype(np.int64))
    array = pa.Array.from_buffers(pa.large_binary(), len(places) - 1, [None, offsets, pa.py_buffer(data)])
    encoded = array.dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


def _taken(known: Sequence[bytes], order: npt.NDArray[np.integer[Any]]) -> tuple[bytes, npt.NDArray[np.int64]]:
    """The tokens of words in `order`, which of `known` each is, and 0 and how many there are up to each word's end."""
    sizes = np.array([len(one) // 4 for one in known], np.int64)
    ends = np.concatenate([[0], np.cumsum(sizes[order])])
    shifts = (np.cumsum(sizes) - sizes)[order] - ends[:-1]
    places = np.arange(ends[-1]) + np.repeat(shifts, sizes[order])
    return np.frombuffer(b"".join(known), np.int32)[places].tobytes(), ends


def piece_encoder(tokenizer: Tokenizer, specials: re.Pattern[str]) -> PieceEncoder | None:
    """An encoder by pieces, None where pieces are not sure to have the tokens of the whole text."""
    cuts = sure_cuts(tokenizer)
    return PieceEncoder(tokenizer, cuts, specials) if cuts else None
