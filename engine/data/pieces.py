"""Text to token ids by pieces that repeat: a word's tokens are looked up where they are sure to be the same anywhere.

Of the words that texts can be cut into (`cuts`) a data set has few different ones: many texts are cut at once, and
Python sees each of their different words once. What the words have in common are pieces, which are tokenized.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from engine.data.cuts import Cuts, sure_cuts
from engine.data.wordtable import SPECIAL, Words

MAX_PIECES = 500_000  # some 100 MB
ARROW_WORDS = 10_000  # fewer are not worth the 0.1 s that loading Arrow takes
_PORTION = 4 * 1024**2  # characters that are taken at once: what is worked out of them takes ten times the room
_LONG = 64  # bytes or characters: longer pieces hardly come again
NEAR = 3  # characters that tell whether a text can be cut between them
# UTF-8 of whitespace beyond ASCII, and of SentencePiece's sign for a space.
_RARE_SPACE = re.compile(
    b"\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2(?:\x80[\x80-\x8a\xa8\xa9\xaf]|\x81\x9f|\x96\x81)|\xe3\x80\x80"
)
_NO_BYTE = 0xFF  # of no UTF-8: stands for the bytes of a rare space


class PieceEncoder:
    """Token ids of texts whose special tokens count for nothing, as bytes of int32."""

    def __init__(self, tokenizer: Tokenizer, cuts: Cuts, specials: re.Pattern[str]) -> None:
        self._tokenizer, self._cut, self._specials = tokenizer, cuts.all, specials
        self._is_cut, self._is_seam = _cut_spaces(cuts.spaces), _cut_pairs(cuts.all)
        self._may_begin = bytes(self._is_seam.reshape(256, 256).any(axis=0) | (np.arange(256) == ord(" ")))
        self._pieces: dict[str, bytes] = {}
        self._words = Words()
        self._seams: dict[tuple[str, int], tuple[bytes, int] | None] = {}

    def encode(self, texts: Sequence[str]) -> list[bytes | None]:
        """The tokens of each text; None for one that names a special token, which needs its surroundings."""
        if sum(map(len, texts)) <= _PORTION:
            return self._encode(texts)
        found: list[list[bytes | None]] = [[] for _ in texts]
        for portion in self._portions(texts):
            for (number, _), ids in zip(portion, self._encode([part for _, part in portion]), strict=True):
                found[number].append(ids)
        return [_whole(parts) for parts in found]

    def _portions(self, texts: Sequence[str]) -> Iterator[list[tuple[int, str]]]:
        """Parts of texts, with the texts' numbers, about as many at a time as _PORTION allows."""
        portion, room = list[tuple[int, str]](), _PORTION
        for number, text in enumerate(texts):
            at = 0
            while len(text) - at > room:
                cut = self._cut.search(text, at + max(1, room))
                end = cut.start() if cut else len(text)
                yield [*portion, (number, text[at:end])]
                portion, room, at = [], _PORTION, end
            portion.append((number, text[at:]))
            room -= len(text) - at
        yield portion

    def _encode(self, texts: Sequence[str]) -> list[bytes | None]:
        self._make_room()
        data = [text.encode() for text in texts]
        ends = np.cumsum([0, *map(len, data)])
        whole = b"".join(data)
        places = self._places(whole, ends)
        words, order = _different(whole, places)
        numbers, long = self._numbers(words)
        ids, ends_of_words = self._words.tokens(numbers, order)
        self._words.forget(long)
        first_words = np.searchsorted(places, ends)
        bounds = (4 * ends_of_words[first_words]).tolist()
        found: list[bytes | None] = [ids[begin:end] for begin, end in itertools.pairwise(bounds)]
        if (numbers == SPECIAL).any():
            special = np.flatnonzero(numbers.take(order) == SPECIAL)
            for text in np.searchsorted(first_words, special, side="right") - 1:
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

    def is_cut(self, before: str, after: str) -> bool:
        """Whether no token goes across the seam of two texts for sure."""
        near = before[-NEAR:]
        return bool(near) and self._cut.match(near + after[:NEAR], len(near)) is not None

    def joint(self, before: str, after: str) -> tuple[int, int]:
        """Where what has to be taken as one begins in `before`, and where it ends in `after`: two pieces or none."""
        if self.is_cut(before, after):
            return len(before), 0
        end = self._cut.search(after, 1)
        tail = self._cut.split(before[-_LONG:])
        last = tail[-1] if len(tail) > 1 else self._cut.split(before)[-1]
        return len(before) - len(last), end.start() if end else len(after)

    def _places(self, data: bytes, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Where the words of texts begin that lie in `data` one after the other, and its end.

        `ends` are 0 and those of the texts: what stands beyond them tells nothing of a space.
        """
        if not data.isascii():
            data = _RARE_SPACE.sub(lambda rare: bytes([_NO_BYTE]) * len(rare[0]), data)
        text = np.frombuffer(data + bytes(1), np.uint8)
        # Before most bytes no text is cut, whatever stands there.
        here = np.flatnonzero(np.frombuffer(data.translate(self._may_begin), bool))
        byte, before = text[here], text[here - 1].astype(np.uint16) << 8
        begins = np.zeros(len(text), bool)
        begins[here] = (byte == ord(" ")) & self._is_cut.take(before | text[here + 1])
        begins[ends - 1] = False
        begins[here[self._is_seam.take(before | byte)]] = True
        begins[ends] = True
        return np.flatnonzero(begins)

    def _numbers(self, words: Sequence[bytes]) -> tuple[npt.NDArray[np.int64], list[bytes]]:
        """The words' numbers in `_words`, and those of the words that are not worth keeping: the last of it."""
        numbers = self._words.numbers(words)
        places = sorted(np.flatnonzero(numbers < 0).tolist(), key=lambda place: len(words[place]))
        new = [words[place] for place in places]
        if new:
            self._learn(new)
            numbers[places] = self._words.numbers(new)
        return numbers, new[bisect.bisect(new, _LONG, key=len) :]

    def _learn(self, words: Sequence[bytes]) -> None:
        cut = [self._cut.split(word.decode()) for word in words]
        new = {*itertools.chain.from_iterable(cut)}.difference(self._pieces)
        plain = [piece for piece in new if not self._specials.search(piece)]
        encodings = self._tokenizer.encode_batch_fast(plain, add_special_tokens=False)
        for piece, encoding in zip(plain, encodings, strict=True):
            self._pieces[piece] = np.array(encoding.ids, np.int32).tobytes()
        self._words.add(words, [self._joined(pieces) for pieces in cut])
        for piece in plain:
            if len(piece) > _LONG:
                del self._pieces[piece]

    def _joined(self, pieces: Sequence[str]) -> bytes | None:
        try:
            return b"".join([self._pieces[piece] for piece in pieces])
        except KeyError:
            return None

    def _make_room(self) -> None:
        if len(self._pieces) + len(self._words) + len(self._seams) > MAX_PIECES:
            self._pieces.clear()
            self._seams.clear()
            self._words = Words()


def _whole(parts: Sequence[bytes | None]) -> bytes | None:
    known = [part for part in parts if part is not None]
    return b"".join(known) if len(known) == len(parts) else None


def _cut_spaces(spaces: re.Pattern[str]) -> npt.NDArray[np.bool_]:
    """Whether a text is cut before a space that stands between two bytes of it [256 * 256]: all that `spaces` look at.

    Beyond ASCII all characters but rare spaces are of one sort.
    """
    sorts = [*map(chr, range(128)), "é"]
    table = np.array([[spaces.match(f"{before} {after}", 1) is not None for after in sorts] for before in sorts])
    sort = np.minimum(np.arange(256), 128)
    is_cut: npt.NDArray[np.bool_] = table[np.ix_(sort, sort)]
    is_cut[_NO_BYTE] = is_cut[:, _NO_BYTE] = False
    return is_cut.ravel()


def _cut_pairs(cuts: re.Pattern[str]) -> npt.NDArray[np.bool_]:
    """Whether two bytes tell that a text is cut between them [256 * 256], beyond ASCII none.

    Cuts that more characters tell are left to the pieces of words.
    """
    table = np.zeros((256, 256), bool)
    ascii_only = [*map(chr, range(128))]
    table[:128, :128] = [[cuts.match(before + after, 1) is not None for after in ascii_only] for before in ascii_only]
    return table.ravel()


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


def piece_encoder(tokenizer: Tokenizer, specials: re.Pattern[str]) -> PieceEncoder | None:
    """An encoder by pieces, None where pieces are not sure to have the tokens of the whole text."""
    cuts = sure_cuts(tokenizer)
    return PieceEncoder(tokenizer, cuts, specials) if cuts else None
