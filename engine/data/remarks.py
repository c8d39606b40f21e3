"""What is worth a warning or a note in rows that can be trained."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from engine.data.conversation import Comparison, Conversation
from engine.data.personal import NAMES, may_hold_personal_data, personal_data
from engine.data.problems import Problem, ProblemList, in_file, line_ranges, note, warning
from engine.data.tokenize import Example, Item, Pair, extent

Key = TypeVar("Key", bound=Hashable)

MAX_LINES_NAMED = 20  # in one sentence

# What no one types: controls but tab and line ends, and the sign that stands for a character that got lost.
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")
_LOST = "\ufffd"
# In UTF-8: those of one byte, and how the others begin, as some letters do.
_CONTROL_BYTES, _BEYOND_ASCII = bytes([*range(9), 11, 12, *range(14, 32), 127]), b"\xc2"

# Answers this unlike in length: over so many times as long, and by more than so many tokens.
_TIMES_AS_LONG = 4
_TOKENS_LONGER = 64


def text_remarks(rows: Sequence[Conversation | Comparison], specials: re.Pattern[str]) -> Iterator[list[Problem]]:
    """What a person should know of each row's texts. `specials` finds the names of the model's special tokens.

    In a plain text special tokens are meant: no template adds them.
    """
    texts = [_texts(row) for row in rows]
    whole = "\n".join(texts)
    # Most signs are in no row at all: rows are looked at one by one for those alone that all of them together hold.
    looks: list[Callable[[Conversation | Comparison, str], Iterable[Problem]]] = []
    if _may_hold_control(whole.encode("utf-8", "surrogatepass")):
        looks.append(_controls)
    if _LOST in whole:
        looks.append(_lost)
    if specials.search(whole):
        looks.append(lambda row, text: _specials(row, text, specials))
    if may_hold_personal_data(whole):
        looks.append(_personal)
    for row, text in zip(rows, texts, strict=True):
        yield [problem for look in looks for problem in look(row, text)]


def remarks(item: Item) -> list[Problem]:
    """What a person should know of a row that was cut to fit: what is lost, and whether anything is left to prefer."""
    if isinstance(item, Example):
        return _cut_warnings(item)
    same = np.array_equal(item.chosen.ids, item.rejected.ids)
    return [
        *_cut_warnings(item.chosen, "chosen"),
        *_cut_warnings(item.rejected, "rejected"),
        *([_identical(item)] if same else []),
    ]


def default_template() -> Problem:
    """Says how rows are written for a model that has no chat template."""
    return warning(
        0,
        "default_template",
        "This model has no chat template, so rows are written as User: and Assistant: sections.",
        "Talk to the trained model in the same form, or choose an instruct model.",
    )


def duplicates(lines: Sequence[int], others: Sequence[str] = (), times: int = 0) -> Problem:
    """Names the `lines` of a file that hold the same row, and the `others` that hold it too, `times` in all."""
    if others:
        named = " and ".join(others) if len(others) < 3 else f"{len(others):,} other files"
        held = f"{'hold' if len(lines) > 1 else 'holds'} a row that is in {named} too and"
    else:
        held, times = "hold the same row, which", len(lines)
    return Problem(
        lines[0],
        "warning",
        "duplicates",
        f"{_lines(lines)} {held} counts {times:,} times as much as others.",
        "Keep one of them, unless that is meant.",
        cure="dedupe",
        lines=line_ranges(lines),
        rows=len(lines),
    )


def in_both(trained: Mapping[Key, tuple[int, str]], measured: Iterable[tuple[Key, int, str]]) -> tuple[Problem, ...]:
    """Rows of the validation file that are trained too.

    `trained` maps the fingerprints of rows to their lines and files, `measured` are those of the validation data.
    """
    return ProblemList(
        in_file(_in_both(line, *trained[fingerprint]), file)
        for fingerprint, line, file in measured
        if fingerprint in trained
    ).listed()


def one_sided_lengths(sizes: npt.NDArray[np.integer]) -> Problem | None:
    """A warning where most pairs prefer the much longer answer, or most the much shorter one.

    `sizes` [pairs, 2] are the tokens of the chosen and the rejected answers.
    """
    for side, other, preferred in ((0, 1, "longer"), (1, 0, "shorter")):
        longer, shorter = sizes[:, side], sizes[:, other]
        unlike = int(((longer > _TIMES_AS_LONG * shorter) & (longer - shorter > _TOKENS_LONGER)).sum())
        if 2 * unlike > len(sizes):
            return warning(
                0,
                "one_sided_lengths",
                f"In {unlike:,} of {len(sizes):,} pairs the chosen answer is much {preferred} than the rejected one, "
                f"over {_TIMES_AS_LONG} times: to write {preferred} answers is then what is learned.",
                "Add pairs whose two answers are about as long.",
            )
    return None


def _in_both(line: int, trained_line: int, trained_file: str) -> Problem:
    return warning(
        line,
        "in_both",
        f"Line {line} is line {trained_line} of {trained_file or 'the training data'} too, so measuring it tells what "
        "was learned by heart.",
        "Take the row out of one of the two files.",
    )


def _texts(row: Conversation | Comparison) -> str:
    """All that a row says, once."""
    if isinstance(row, Comparison):
        better, worse = row.chosen, row.rejected
        messages = (*better.messages, *worse.messages[worse.context :])
        return "\n".join([message.content + message.calls for message in messages])
    return row.text or "\n".join([message.content + message.calls for message in row.messages])


def _may_hold_control(data: bytes) -> bool:
    return len(data.translate(None, _CONTROL_BYTES)) < len(data) or _BEYOND_ASCII in data


def _controls(row: Conversation | Comparison, text: str) -> Iterator[Problem]:
    if (match := CONTROLS.search(text)) is not None:
        yield warning(
            row.line,
            "control_character",
            f"Line {row.line} holds the control character U+{ord(match[0]):04X}, which is no text.",
            "Take it out; such characters often come from a file that was copied or converted wrongly.",
            cure="convert",
        )


def _lost(row: Conversation | Comparison, text: str) -> Iterator[Problem]:
    if _LOST in text:
        yield warning(
            row.line,
            "lost_character",
            f"Line {row.line} holds the sign \ufffd, which stands where a character was lost.",
            "Go back to the original and convert it from its own encoding.",
        )


def _specials(row: Conversation | Comparison, text: str, specials: re.Pattern[str]) -> Iterator[Problem]:
    if (isinstance(row, Comparison) or row.kind != "text") and (match := specials.search(text)) is not None:
        yield warning(
            row.line,
            "special_token",
            f"Line {row.line} holds {match[0][:40]!r}, the name of a special token of this model. It is learned as "
            "plain text.",
            "Take it out if it came with the texts from another template.",
        )


def _personal(row: Conversation | Comparison, text: str) -> Iterator[Problem]:
    for kind in personal_data(text):
        yield note(
            row.line,
            f"personal_{kind}",
            f"Line {row.line} holds what looks like {NAMES[kind]}, which the model may learn and repeat.",
            "Replace it by an invented one, unless it is meant to be learned.",
        )


def _lines(lines: Sequence[int]) -> str:
    if len(lines) == 1:
        return f"Line {lines[0]}"
    named = ", ".join(map(str, lines[: min(MAX_LINES_NAMED, len(lines) - 1)]))
    others = len(lines) - MAX_LINES_NAMED
    return f"Lines {named} and {f'{others:,} more' if others > 1 else lines[-1]}"


def _cut_warnings(example: Example, side: str = "") -> list[Problem]:
    if not example.cut:
        return []
    whole = example.length + example.cut
    return [
        warning(
            example.line,
            "cut",
            f"{extent(example.line, side, whole)}: the last {example.cut:,} are cut off.",
            f"Set the longest row (max_length) to {whole:,} to keep all of it.",
            cure="trim",
        )
    ]


def _identical(pair: Pair) -> Problem:
    kept, fix = "", "Write a worse answer as 'rejected', or take the row out."
    if pair.cut:
        kept, fix = " as far as they are kept", "Set the longest row (max_length) higher, or take the row out."
    return warning(
        pair.line,
        "identical_pair",
        f"Line {pair.line}'s chosen and rejected answers are the same{kept}, so there is nothing to prefer.",
        fix,
        cure="skip",
    )
