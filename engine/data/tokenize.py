"""Conversations as token ids, with what is trained."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from engine.data.conversation import Comparison, Conversation
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

    @property
    def length(self) -> int:
        """Tokens, from the first to the last."""
        return len(self.ids)

    @property
    def tokens(self) -> int:
        """Tokens that go through the model."""
        return len(self.ids)

    @property
    def tokens_apart(self) -> int:
        """The same: a row shares nothing."""
        return len(self.ids)

    @property
    def prompt_targets(self) -> int:
        """A single row's targets are its trained tokens alone."""
        return 0

    @property
    def trained_tokens(self) -> int:
        """Targets."""
        return int(self.trained.sum())


@dataclass(frozen=True, eq=False)
class Pair:
    """A prompt with a better and a worse response, each whole: prompt and response."""

    line: int
    chosen: Example
    rejected: Example

    @property
    def shared(self) -> int:
        """Tokens of the prompt that both begin with; 0 where the prompts are not the same tokens."""
        chosen, rejected = self.chosen, self.rejected
        prompt = int(chosen.trained.argmax())
        same = prompt == int(rejected.trained.argmax())
        return prompt if same and np.array_equal(chosen.ids[:prompt], rejected.ids[:prompt]) else 0

    @property
    def length(self) -> int:
        """Tokens of the longer side."""
        return max(self.chosen.length, self.rejected.length)

    @property
    def tokens(self) -> int:
        """Tokens that go through the model: both sides, a shared prompt once."""
        return self.chosen.length + self.rejected.length - self.shared

    @property
    def tokens_apart(self) -> int:
        """The same where prompts are not shared: at most two rows as long as the longer side."""
        return 2 * self.length

    @property
    def prompt_targets(self) -> int:
        """Tokens of the chosen row's prompt that another one predicts."""
        return max(0, int(self.chosen.trained.argmax()) - 1)

    @property
    def trained_tokens(self) -> int:
        """Targets of both sides."""
        return self.chosen.trained_tokens + self.rejected.trained_tokens

    @property
    def cut(self) -> int:
        """Tokens that were cut off both sides."""
        return self.chosen.cut + self.rejected.cut


Item = Example | Pair


def tokenize(row: Conversation | Comparison, tokenizer: TextTokenizer, max_length: int) -> Item | Problem:
    """The row's first `max_length` tokens, of a pair each side's; a Problem where nothing of it could be trained."""
    item = tokenize_whole(row, tokenizer)
    return item if isinstance(item, Problem) else cut_to(item, max_length)


def tokenize_whole(row: Conversation | Comparison, tokenizer: TextTokenizer) -> Item | Problem:
    """The row at its full length."""
    if isinstance(row, Conversation):
        return _tokenize_conversation(row, tokenizer)
    chosen = _tokenize_conversation(row.chosen, tokenizer)
    if isinstance(chosen, Problem):
        return chosen
    rejected = _tokenize_conversation(row.rejected, tokenizer)
    return rejected if isinstance(rejected, Problem) else Pair(row.line, chosen, rejected)


def _tokenize_conversation(conversation: Conversation, tokenizer: TextTokenizer) -> Example | Problem:
    rendered = render(conversation, tokenizer.template)
    if isinstance(rendered, Problem):
        return rendered
    return tokenize_rendered(rendered, conversation.line, tokenizer)


def tokenize_rendered(rendered: Rendered, line: int, tokenizer: TextTokenizer) -> Example:
    """The row at its full length, from its text."""
    ids, offsets = tokenizer.encode_rendered(rendered)
    return Example(line, ids, trained_tokens(rendered, ids, offsets, tokenizer), cut=0)


def trained_tokens(
    rendered: Rendered, ids: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64], tokenizer: TextTokenizer
) -> npt.NDArray[np.bool_]:
    """Which of a text's tokens are trained, bool [tokens].

    A token is trained when it stands for any character of a trained range: one that also holds the end of
    the prompt is what the model has to write to begin the answer. Not so a special token of the template
    that swallows the spaces after it. The first token is no target, nothing predicts it.
    """
    starts, ends = offsets.T
    special = np.isin(ids, list(tokenizer.special_ids))
    trained = np.zeros(len(ids), bool)
    for start, end in rendered.trained:
        trained |= (starts < end) & (ends > start) & ~(special & (starts < start))
    trained[:1] = False
    return trained


def cut_to(item: Item, max_length: int) -> Item | Problem:
    """The first `max_length` tokens, of a pair each side's; a Problem ('nothing_to_train') where a side has no target
    among them.
    """
    if isinstance(item, Example):
        return _cut(item, max_length)
    chosen = _cut(item.chosen, max_length, "chosen")
    if isinstance(chosen, Problem):
        return chosen
    rejected = _cut(item.rejected, max_length, "rejected")
    return rejected if isinstance(rejected, Problem) else Pair(item.line, chosen, rejected)


def extent(line: int, side: str, length: int) -> str:
    """The start of a sentence on a row, or on a pair's `side`, that is too long."""
    if side:
        return f"Line {line}'s {side} answer is, with its prompt, {length:,} tokens long"
    return f"Line {line} is {length:,} tokens long"


def _cut(example: Example, max_length: int, side: str = "") -> Example | Problem:
    length, line = example.length, example.line
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
            f"{extent(line, side, length)} and has no token that could be trained.",
            "Write a longer text, or an answer that is learned, or take the row out.",
        )
    before = int(example.trained.argmax())
    return error(
        line,
        "nothing_to_train",
        f"{extent(line, side, length)} and the prompt alone takes {before:,}, "
        f"so nothing of the answer is left at {max_length:,} tokens.",
        f"Set the longest row (max_length) to {length:,} to hold all of it, or shorten the prompt.",
    )
