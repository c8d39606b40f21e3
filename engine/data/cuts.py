"""Where a text can be cut such that its pieces, each by itself, have the tokens of the whole.

Byte-level tokenizers split a text by patterns before they merge anything: what they do with all short texts of all
sorts of characters tells where they always split. SentencePiece's kind splits nowhere: there a cut is sure between two
characters that no merge brings together. The two or three characters beside a cut tell that it is one, so that a text
has the cuts of its parts.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from tokenizers import Tokenizer

MARKS = '.,:;!?)"\n'  # what ends a word
SPACE_SIGN = "▁"  # what SentencePiece writes for a space

_BYTES = frozenset(f"<0x{byte:02X}>" for byte in range(256))

# Of each kind of places the first is taken that is sure. A space before a visible character begins a part, unless
# numbers are split off before spaces are looked at.
_SPACES = (r" (?=\S)", r" (?:(?=[!-/:-~])|(?<=\S )(?=\S))")
_LINE_ENDS = (
    r"(?=\n\S)|(?<=\S\n)(?=[^\W\d_])",
    r"(?=\n[!-/:-~])|(?<=\S\n)(?=[A-Za-z])",
    r"(?<=\n)(?=[^\W\d_])",
    r"(?<=\S\n)(?=[A-Za-z])",
)
# One of each sort of character that splitting patterns tell apart; "'s" is a part of its own to many of them.
_SORTS = "sS1½'/.é\u0301中 \n"
_LONGEST_TRIED = 4


@dataclass(frozen=True)
class Cuts:
    """Patterns: `spaces` match the spaces that a text can be cut before, `all`, of no width, wherever it can be.

    `spaces` look at one character on either side, and none of the patterns asks that something be missing.
    """

    spaces: re.Pattern[str]
    all: re.Pattern[str]


def sure_cuts(tokenizer: Tokenizer) -> Cuts | None:
    """The cuts of a tokenizer, None where not even those at spaces are sure."""
    tree = msgspec.json.decode(tokenizer.to_str())
    names = [token["content"] for token in tree["added_tokens"]]
    if not (all(map(_takes_nothing, tree["added_tokens"])) and _stay_apart(names)):
        return None
    model = tree["model"]
    if model["type"] != "BPE" or any(
        model.get(name) for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
    ):
        return None
    if _splits_bytes(tree):
        return _between_parts(tokenizer, names)
    return _between_merges(model, names) if _splits_nothing(tree) else None


def _takes_nothing(token: Mapping[str, Any]) -> bool:
    """Whether an added token takes nothing of the text around it."""
    return not (token["lstrip"] or token["rstrip"] or token["single_word"])


def _stay_apart(names: Sequence[str]) -> bool:
    """Whether no name can begin or end inside another, so that one next to any text is found as itself.

    Runs of one whitespace character may be names, as in Gemma's vocabulary: they lie in pieces and are of no others.
    """
    runs = {name for name in names if len(set(name)) == 1 and name[0] in "\n\t " + SPACE_SIGN}
    whole = [name for name in names if name not in runs]
    starts = {name[:size] for name in whole for size in range(1, len(name) + 1)}
    signs = {name[0] for name in runs}
    return not any(signs & {*name} or any(name[at:] in starts for at in range(1, len(name))) for name in whole)


def _splits_bytes(tree: Mapping[str, Any]) -> bool:
    """Whether tokens are merged within the parts of splitting patterns."""
    normalizer, parts = tree["normalizer"], tree["pre_tokenizer"] or {}
    steps = parts.get("pretokenizers", [parts])
    return (
        # Unicode's composed forms: nothing composes with a space, a line's end or a mark.
        (normalizer is None or normalizer["type"] == "NFC")
        and any(step.get("type") == "ByteLevel" and not step.get("add_prefix_space") for step in steps)
        and all(step.get("type") in ("ByteLevel", "Split", "Digits") for step in steps)
    )


def _between_parts(tokenizer: Tokenizer, names: Sequence[str]) -> Cuts | None:
    split = tokenizer.pre_tokenizer.pre_tokenize_str
    known: dict[str, list[str]] = {}

    def parts(text: str) -> list[str]:
        if text not in known:
            known[text] = [part for part, _ in split(text)]
        return known[text]

    def is_sure(cut: str, known: str = "") -> bool:
        """`known` is a part of `cut` that is sure by itself."""
        tried = re.compile(f"{known}|{cut}" if known else cut)
        return _splits_at(tried, re.compile(cut), parts) and not _is_any_cut(names, tried)

    spaces = next((spaces for spaces in _SPACES if is_sure(f"(?={spaces})")), None)
    if spaces is None or any(re.search(r"\s", name) for name in names):
        return None
    cut = f"(?={spaces})"
    for kinds in (_LINE_ENDS, (_word_ends(MARKS),)):
        cut = next((f"{cut}|{kind}" for kind in kinds if is_sure(kind, cut)), cut)
    return Cuts(re.compile(spaces), re.compile(cut))


def _splits_at(cut: re.Pattern[str], new: re.Pattern[str], parts: Callable[[str], list[str]]) -> bool:
    """Whether a tokenizer's `parts` of a text end at its cuts, all of them or one, and depend on nothing beyond.

    It is known of texts without any that is `new`. Patterns look at sorts of characters, at most a few at a time: all
    short texts of all sorts are tried.
    """
    for text in _short_texts():
        if not new.search(text, 1):
            continue  # as most: the rest takes longer
        places = [match.start() for match in cut.finditer(text) if match.start()]
        for taken in (*([place] for place in places), places if len(places) > 1 else []):
            pieces = [text[begin:end] for begin, end in itertools.pairwise((0, *taken, len(text)))]
            if taken and parts(text) != [part for piece in pieces for part in parts(piece)]:
                return False
    return True


def _short_texts() -> Iterator[str]:
    for size in range(2, _LONGEST_TRIED + 1):
        yield from map("".join, itertools.product(_SORTS, repeat=size))
    for mark in MARKS:
        yield from map("".join, itertools.product(_SORTS, "sS", mark, _SORTS))


def _splits_nothing(tree: Mapping[str, Any]) -> bool:
    """Whether a text goes to the merges as one, its spaces written as SPACE_SIGN and nothing added, as Gemma's does."""
    model, before = tree["model"], tree["pre_tokenizer"]
    return (
        tree["normalizer"] == {"type": "Replace", "pattern": {"String": " "}, "content": SPACE_SIGN}
        # No space is left that this could split at.
        and (before is None or (before["type"] == "Split" and before["pattern"] == {"String": " "}))
        and not model.get("ignore_merges")
        # Unknown characters become bytes that stay apart: one that stayed unknown would be fused with its neighbour.
        and bool(model["byte_fallback"])
        and model["vocab"].keys() >= _BYTES
    )


def _between_merges(model: Mapping[str, Any], names: Sequence[str]) -> Cuts | None:
    merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    seams = {(left[-1], right[0]) for left, right in merges}
    if any(right == SPACE_SIGN != left for left, right in seams) or not _BYTES.isdisjoint(itertools.chain(*merges)):
        return None
    spaces = rf" (?<=[^ {SPACE_SIGN}] )"
    if _is_any_cut(names, re.compile(f"(?={spaces})")):
        return None
    further = []
    if "\n" in names or not any((left == "\n") != (right == "\n") for left, right in seams):
        further.append(r"(?<=\n)(?=[^\n])|(?<=[^\n])(?=\n)")
    marks = [mark for mark in MARKS if not any((letter, mark) in seams for letter in string.ascii_letters)]
    if marks:
        further.append(_word_ends(marks))
    sure = [cut for cut in further if not _is_any_cut(names, re.compile(cut))]
    return Cuts(re.compile(spaces), re.compile("|".join([f"(?={spaces})", *sure])))


def _word_ends(marks: Sequence[str]) -> str:
    return rf"(?<=[A-Za-z])(?=[{re.escape(''.join(marks))}])"


def _is_any_cut(names: Sequence[str], cut: re.Pattern[str]) -> bool:
    return any(len(cut.split(name)) > 1 for name in names)
