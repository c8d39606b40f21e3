"""A row that is too long, made to fit: whole turns go, then whole sentences or words, and no answer is ever cut."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

from engine.data.documents import SENTENCE_END, WORD_END

# A few characters of a prompt are no question.
_FEWEST_CHARACTERS = 16
# A sentence's border is worth less text than a word's, but not less than this share of it.
_WORTH = 0.5

Value = dict[str, Any]
Fits = Callable[[Value], bool]


def shortened(value: Value, fits: Fits) -> Value | None:
    """The row with as much of it as `fits`; None where that can't be done.

    Of a chat the last turns go, whole, so that it ends on an answer as it did; of a pair's messages, whose last is what
    both answer, the oldest. Where that is not enough the start of the question goes, up to a sentence or else a word.
    Answers that stay and a system message stay whole.
    """
    if isinstance(value.get("messages"), list):
        return _chat(value, value["messages"], fits)
    prompt = value.get("prompt")
    if isinstance(prompt, list):
        return _context(value, prompt, fits)
    return _cut(prompt, lambda text: {**value, "prompt": text}, fits) if isinstance(prompt, str) else None


def _chat(value: Value, turns: Sequence[Value], fits: Fits) -> Value | None:
    """The chat up to the last answer that fits; where not even the first one does, with less of its question.

    An answer too long by itself goes with what was said before it: what comes after is a chat still.
    """
    head = _head(turns)

    def row_of(chosen: Sequence[Value]) -> Value:
        return {**value, "messages": [*head, *chosen]}

    begun = (_up_to_an_answer(turns[asked:], row_of, fits) for asked in _questions(turns))
    return next(filter(None, begun), None)


def _up_to_an_answer(turns: Sequence[Value], row_of: Callable[[Sequence[Value]], Value], fits: Fits) -> Value | None:
    ends = [number for number, turn in enumerate(turns, start=1) if _is_answer(turn)]
    if not ends:
        return None
    if most := bisect_left(ends, True, key=lambda end: not fits(row_of(turns[:end]))):
        return row_of(turns[: ends[most - 1]])
    answer = turns[1 : ends[0]]
    return _with_less(turns[0], lambda turn: row_of([turn, *answer]), fits)


def _context(value: Value, turns: Sequence[Value], fits: Fits) -> Value | None:
    """The prompt's messages without the oldest, or with less of the last that a user said."""
    head = _head(turns)
    starts = _questions(turns)

    def row_of(chosen: Sequence[Value]) -> Value:
        return {**value, "prompt": [*head, *chosen]}

    place = bisect_left(starts, True, key=lambda start: fits(row_of(turns[start:])))
    if place < len(starts):
        return row_of(turns[starts[place] :])
    if not starts:
        return None
    last = starts[-1]
    return _with_less(turns[last], lambda turn: row_of([turn, *turns[last + 1 :]]), fits)


def _head(turns: Sequence[Value]) -> Sequence[Value]:
    return turns[:1] if turns and turns[0].get("role") == "system" else []


def _questions(turns: Sequence[Value]) -> list[int]:
    return [number for number, turn in enumerate(turns) if turn.get("role") == "user"]


def _is_answer(turn: Value) -> bool:
    """Whether a chat can end there: on words of the assistant that are learned."""
    return turn.get("role") == "assistant" and not turn.get("tool_calls") and turn.get("weight") != 0


def _with_less(turn: Value, row_of: Callable[[Value], Value], fits: Fits) -> Value | None:
    """The row with the end of the turn's text."""
    text = turn.get("content")
    return _cut(text, lambda end: row_of({**turn, "content": end}), fits) if isinstance(text, str) else None


def _cut(text: str, row_of: Callable[[str], Value], fits: Fits) -> Value | None:
    """The row with the longest end of `text` that fits and begins with a sentence, or with a word where that says much
    more.

    The words are halved: a shorter text has hardly ever more tokens.
    """
    sentences = _starts(SENTENCE_END, text)
    starts = sorted({*sentences, *_starts(WORD_END, text)})  # languages without spaces have sentences only
    place = bisect_left(starts, True, key=lambda start: fits(row_of(text[start:])))
    if place == len(starts):
        return None
    start = starts[place]
    sentence = next((border for border in sentences if border >= start), len(text))
    if len(text) - sentence >= _WORTH * (len(text) - start) and fits(row := row_of(text[sentence:])):
        return row
    return row_of(text[start:])


def _starts(border: re.Pattern[str], text: str) -> list[int]:
    """Where the text goes on after a border, with enough of it left."""
    return [match.end() for match in border.finditer(text) if 0 < match.end() <= len(text) - _FEWEST_CHARACTERS]
