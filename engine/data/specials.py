"""Special tokens are meant where the template writes them and plain text where a row contains their names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from tokenizers import Encoding, Tokenizer

from engine.data.render import Range
from engine.errors import EngineError

# Private-use characters: no text has them, and normalizers leave them alone.
_FIRST_PRIVATE = 0x100000


def names_pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Finds each of `names` in a text, the longest where several begin."""
    known = sorted(filter(None, names), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, known)) or r"(?!)")


class SpecialsEncoder:
    """Encodes text whose special tokens count outside of some ranges only.

    Cutting the text at special tokens would change the tokens beside the cuts, since many tokenizers treat
    the start of a text in their own way. So where a row does contain the name of a special token, the whole
    text goes at once through a twin of the tokenizer in which every special token has a private name of the
    same length. (`Tokenizer.encode_special_tokens` is not enough: a unigram model still finds the names in
    its vocabulary.)
    """

    def __init__(self, tokenizer: Tokenizer, specials: Mapping[str, int]) -> None:
        self._tokenizer = tokenizer
        self._specials = specials
        names = sorted(specials, key=len, reverse=True)
        self._private = {name: chr(_FIRST_PRIVATE + number) * len(name) for number, name in enumerate(names) if name}
        self._names = names_pattern(specials)

    def encode(self, texts: Sequence[tuple[str, Sequence[Range]]]) -> list[Encoding]:
        """The tokens of each text, none added, with offsets in characters. Contents are in order, apart."""
        renamed = {
            number: name for number, pair in enumerate(texts) if self._names.search(name := self._rename_outside(*pair))
        }
        plain = [text for number, (text, _) in enumerate(texts) if number not in renamed]
        others = iter(self._tokenizer.encode_batch(plain, add_special_tokens=False))
        return [
            self._twin.encode(renamed[number], add_special_tokens=False) if number in renamed else next(others)
            for number in range(len(texts))
        ]

    def _rename_outside(self, text: str, contents: Sequence[Range]) -> str:
        pieces, done = [], 0
        for start, end in (*contents, (len(text), len(text))):
            pieces += [
                self._names.sub(lambda name: self._private[name[0]], text[done:start]),
                text[start:end],
            ]
            done = end
        return "".join(pieces)

    @cached_property
    def _twin(self) -> Tokenizer:
        tree = json.loads(self._tokenizer.to_str())
        model, private = tree["model"], self._private
        for token in tree["added_tokens"]:
            token["content"] = private.get(token["content"], token["content"])
        if isinstance(model["vocab"], dict):
            model["vocab"] = {private.get(name, name): number for name, number in model["vocab"].items()}
        else:
            model["vocab"] = [[private.get(name, name), score] for name, score in model["vocab"]]
        if "merges" in model:
            model["merges"] = [pair for pair in model["merges"] if not {*pair, "".join(pair)} & private.keys()]
        if model.get("unk_token") in private:
            model["unk_token"] = private[model["unk_token"]]
        twin = Tokenizer.from_str(json.dumps(tree))
        if any(twin.token_to_id(private[name]) != number for name, number in self._specials.items() if name):
            raise EngineError(
                "Some rows name special tokens, and this tokenizer can't read these as plain text.",
                "Take special tokens such as <|im_end|> out of the rows, or choose another model.",
            )
        return twin
