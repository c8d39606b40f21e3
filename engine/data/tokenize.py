"""Conversations as token ids, with what is trained."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from engine.data.check import Conversation
from engine.data.problems import Problem, error
from engine.data.render import Rendered, render
from engine.data.tokenizer import TextTokenizer


@dataclass(frozen=True, eq=False)
class Example:
    """A row that can be trained.

    `ids` is int32 [tokens], `trained` bool [tokens]: token i is a target, predicted by the tokens before it.
    `cut` tokens more were cut off at the end.
    """

    line: int
    ids: npt.NDArray[np.int32]
    trained: npt.NDArray[np.bool_]
    cut: int


def tokenize(conversation: Conversation, tokenizer: TextTokenizer, max_length: int) -> Example | Problem:
    """The row's first `max_length` tokens; a Problem where nothing of it could be trained."""
    example = tokenize_whole(conversation, tokenizer)
    return example if isinstance(example, Problem) else cut_to(example, max_length)


def tokenize_whole(conversation: Conversation, tokenizer: TextTokenizer) -> Example | Problem:
    """The row at its full length."""
    rendered = render(conversation, tokenizer.template)
    if isinstance(rendered, Problem):
        return rendered
    return tokenize_rendered(rendered, conversation.line, tokenizer)


def tokenize_rendered(rendered: Rendered, line: int, tokenizer: TextTokenizer) -> Example:
    """The row at its full length, from its text.

    A token is trained when it stands for any character of a trained range: one that also holds the end of
    the prompt is what the model has to write to begin the answer. Not so a special token of the template
    that swallows the spaces after it. The first token is no target, nothing predicts it.
    """
    ids, offsets = tokenizer.encode_rendered(rendered)
    starts, ends = offsets.T
    special = np.isin(ids, list(tokenizer.special_ids))
    trained = np.zeros(len(ids), bool)
    for start, end in rendered.trained:
        trained |= (starts < end) & (ends > start) & ~(special & (starts < start))
    trained[:1] = False
    return Example(line, ids, trained, cut=0)


def cut_to(example: Example, max_length: int) -> Example | Problem:
    """The first `max_length` tokens; a Problem ('nothing_to_train') where none of them is a target."""
    length, line = len(example.ids), example.line
    if example.trained[:max_length].any():
        if length <= max_length:
            return example
        # Copies: a view would keep the whole row in memory.
        ids, trained = example.ids[:max_length].copy(), example.trained[:max_length].copy()
        return replace(example, ids=ids, trained=trained, cut=length - max_length)
    if not example.trained.any():
        return error(
            line,
            "nothing_to_train",
            f"Line {line} has no token that could be trained: it is {length:,} tokens long.",
            "Write a longer text, or take the row out.",
        )
    before = int(example.trained.argmax())
    return error(
        line,
        "nothing_to_train",
        f"Line {line} is {length:,} tokens long and its prompt alone takes {before:,}, "
        f"so nothing of its answer is left at {max_length:,} tokens.",
        f"Set the longest row (max_length) to {length:,} to hold all of it, or shorten the prompt.",
    )
