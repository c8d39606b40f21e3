"""Text to token ids by pieces that repeat: a word's tokens are looked up where they are sure to be the same anywhere.

Byte-level tokenizers split a text by a pattern before they merge, and mostly a new part begins at a space that follows
something seen. Where that always holds, the tokens of a text are those of its pieces between such places, and a data
set has few different ones.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer

# A piece ends before a space that follows a visible character; with most tokenizers also between a line's end, or just
# a single one, and a letter: the more places, the fewer different pieces.
_PATTERNS = (
    re.compile(r"\s*\S+(?:[^\S ]\s*(?:(?<!\n)\S+|(?![^\W\d_])\S+)?)*|\s+"),
    re.compile(r"\s*\S+(?:[^\S ]\s*(?:(?<!\S\n)\S+|(?![^\W\d_])\S+)?)*|\s+"),
    re.compile(r"\s*\S+(?:[^\S ]\s*\S*)*|\s+"),
)

MAX_PIECES = 2_000_000  # some 300 MB
# One of each sort of character that splitting patterns tell apart.
_SORTS = "aS1'/é\u0301中 \n"
_LONGEST_TRIED = 4


class PieceEncoder:
    """Token ids of texts whose special tokens count for nothing, as bytes of int32.

    KeyError for a text with a piece that is not known: a new one, or one that names a special token, which needs its
    surroundings. `pattern` matches a text's pieces, one after another.
    """

    def __init__(self, tokenizer: Tokenizer, pattern: re.Pattern[str], specials: re.Pattern[str]) -> None:
        self._tokenizer, self.pattern, self._specials = tokenizer, pattern, specials
        self._known: dict[str, bytes] = {}
        # Pieces that are a word, and a word after one space: between such words every space begins a piece.
        self._words: dict[str, bytes] = {"": b""}
        self._spaced: dict[str, bytes] = {}
        self._seams: dict[tuple[str, int], tuple[bytes, int]] = {}

    def learn(self, texts: Iterable[str]) -> None:
        """Makes the pieces of `texts` known; a batch at a time uses all cores."""
        if len(self._known) > MAX_PIECES:
            for known in (self._known, self._spaced):
                known.clear()
            self._words = {"": b""}
        pieces = set(itertools.chain.from_iterable(map(self.pattern.findall, texts))).difference(self._known)
        new = [piece for piece in pieces if not self._specials.search(piece)]
        for piece, encoding in zip(new, self._tokenizer.encode_batch_fast(new, add_special_tokens=False), strict=True):
            ids = self._known[piece] = np.array(encoding.ids, np.int32).tobytes()
            word = piece.removeprefix(" ")
            if word and " " not in word and not word[0].isspace() and not word[-1].isspace():
                (self._words if word == piece else self._spaced)[word] = ids

    def encode(self, text: str) -> bytes:
        """The tokens of `text`."""
        words = text.split(" ")
        try:
            return self._words[words[0]] + b"".join(map(self._spaced.__getitem__, words[1:]))
        except KeyError:
            return b"".join(map(self._known.__getitem__, self.pattern.findall(text)))

    def encode_seam(self, piece: str, place: int) -> tuple[bytes, int]:
        """The tokens of `piece`, and how many of them stand for nothing after its first `place` characters."""
        found = self._seams.get((piece, place))
        if found is None:
            if self._specials.search(piece):
                raise KeyError(piece)
            if len(self._seams) > MAX_PIECES:
                self._seams.clear()
            encoding = self._tokenizer.encode(piece, add_special_tokens=False)
            before = sum(end <= place for _, end in encoding.offsets)
            found = self._seams[piece, place] = np.array(encoding.ids, np.int32).tobytes(), before
        return found


def piece_encoder(tokenizer: Tokenizer, specials: re.Pattern[str]) -> PieceEncoder | None:
    """An encoder by pieces, None where pieces are not sure to have the tokens of the whole text."""
    tree = json.loads(tokenizer.to_str())
    added = tree["added_tokens"]
    alone = all(map(_stands_alone, added)) and _stay_apart([token["content"] for token in added])
    if not (alone and _merges_stay_inside(tree)):
        return None
    pattern = next((pattern for pattern in _PATTERNS if _splits_at(pattern, tokenizer)), None)
    return PieceEncoder(tokenizer, pattern, specials) if pattern else None


def _merges_stay_inside(tree: Mapping[str, Any]) -> bool:
    """Whether tokens are made by byte-pair merges within the parts of the splitting pattern and by nothing else."""
    model, normalizer = tree["model"], tree["normalizer"]
    parts = tree["pre_tokenizer"] or {}
    steps = parts.get("pretokenizers", [parts])
    return (
        model["type"] == "BPE"
        and not any(model.get(name) for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"))
        # Unicode's composed forms: nothing composes with a space before it.
        and (normalizer is None or normalizer["type"] == "NFC")
        and any(step.get("type") == "ByteLevel" and not step.get("add_prefix_space") for step in steps)
        and all(step.get("type") in ("ByteLevel", "Split", "Digits") for step in steps)
    )


def _stands_alone(token: Mapping[str, Any]) -> bool:
    """Whether an added token takes nothing of the text around it, and can't lie across two pieces."""
    takes = token["lstrip"] or token["rstrip"] or token["single_word"]
    return not takes and not re.search(r"\s", token["content"])


def _stay_apart(names: Sequence[str]) -> bool:
    """Whether no name can begin or end inside another, so that one next to any text is found as itself."""
    starts = {name[:size] for name in names for size in range(1, len(name) + 1)}
    return not any(name[place:] in starts for name in names for place in range(1, len(name)))


def _splits_at(pattern: re.Pattern[str], tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer splits wherever a piece ends, and its parts depend on nothing beyond.

    Patterns look at sorts of characters, at most a few at a time: all short texts of all sorts are tried.
    """
    split = tokenizer.pre_tokenizer.pre_tokenize_str
    known: dict[str, list[str]] = {}

    def parts(text: str) -> list[str]:
        if text not in known:
            known[text] = [part for part, _ in split(text)]
        return known[text]

    for size in range(2, _LONGEST_TRIED + 1):
        for characters in itertools.product(_SORTS, repeat=size):
            text = "".join(characters)
            pieces = pattern.findall(text)
            if len(pieces) > 1 and parts(text) != [part for piece in pieces for part in parts(piece)]:
                return False
    return True
