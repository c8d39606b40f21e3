"""Conversations as the text that the model sees, with the characters that are trained.

Where the answers stand in a chat template's text is found by rendering twice: once with the real contents
and once with markers in their place. What lies between two markers is the template's own text, whatever the
template does, and the real text is laid along it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from engine.data.conversation import Conversation, Message
from engine.data.problems import Problem, error
from engine.data.template import ChatTemplate
from engine.errors import EngineError

Range = tuple[int, int]  # characters, the end not included

_MARKER = re.compile(r"qzContent(\d+)zq")
# Templates move or drop the reasoning in a content: its parts are followed one by one.
_REASONING = re.compile(r"(</?think>)")


@dataclass(frozen=True)
class Rendered:
    """A row's text.

    `trained` ranges are the answers with the tokens that end them. `contents` ranges come from the row;
    outside of them the template speaks, so special tokens are meant there, and only there. `with_bos` says
    that the tokenizer's own first token belongs before the text, since no template writes it.
    """

    text: str
    trained: tuple[Range, ...]
    contents: tuple[Range, ...]
    with_bos: bool = False


@dataclass(frozen=True)
class _Part:
    """A piece of a message's content that goes through the template as one."""

    message: int
    text: str


@dataclass(frozen=True)
class _Placed:
    """A part as it stands in the rendered text, and the template's own text after it."""

    message: int
    start: int
    end: int
    after: str


def render(conversation: Conversation, template: ChatTemplate) -> Rendered | Problem:
    """The text of a row; a Problem where the template refuses the row or hides what the answer is.

    The range of an answer, one of the row's `answers`, is its content and the end-of-turn token after it, with only
    whitespace between. A plain text is trained whole, with the end-of-text token behind it; special tokens in it are
    meant, since no template adds them.
    """
    if conversation.kind == "text":
        text = conversation.text
        if not text.endswith(template.eos_token):
            text += template.eos_token
        return Rendered(text, ((0, len(text)),), (), with_bos=True)
    try:
        text, placed = _lay_out(conversation.messages, template, tools=conversation.tools)
        trained = tuple(
            _call_range(text, conversation, n, template)
            if conversation.messages[n].calls
            else _answer_range(text, [part for part in placed if part.message == n], template)
            for n in conversation.answers
        )
    except EngineError as cause:
        return error(conversation.line, "template", f"Line {conversation.line}: {cause.message}", cause.hint)
    return Rendered(text, trained, tuple((part.start, part.end) for part in placed))


def render_prompt(messages: Sequence[Message], template: ChatTemplate) -> Rendered:
    """The text that asks the model for its next answer. EngineError with the template's reason."""
    text, placed = _lay_out(messages, template, add_generation_prompt=True)
    return Rendered(text, (), tuple((part.start, part.end) for part in placed))


def _lay_out(
    messages: Sequence[Message], template: ChatTemplate, add_generation_prompt: bool = False, tools: str = ""
) -> tuple[str, list[_Placed]]:
    """The rendered text and where the contents stand in it, in order."""
    masked, parts = _mask(messages)
    literals, order = _skeleton(template, masked, add_generation_prompt, tools)
    for number, message in enumerate(messages):
        if message.calls and not message.content:
            continue
        # The last part of a content must be there; reasoning before it may be left out.
        last = max((n for n, part in enumerate(parts) if part.message == number), default=-1)
        times = order.count(last)
        if times == 0 or (times > 1 and message.role == "assistant"):
            done = "leaves out" if times == 0 else "repeats"
            raise _misfit(f"The model's chat template {done} the {message.role} message {number + 1}.")
    text = template.render(messages, add_generation_prompt, tools)
    return text, _align(text, literals, [parts[n] for n in order])


def _mask(messages: Sequence[Message]) -> tuple[tuple[Message, ...], list[_Part]]:
    """The messages with numbered markers for contents, and the parts that the markers stand for."""
    masked: list[Message] = []
    parts: list[_Part] = []
    for number, message in enumerate(messages):
        pieces = _REASONING.split(message.content) if message.role == "assistant" else [message.content]
        for place, piece in enumerate(pieces):
            if piece.strip() and not _REASONING.fullmatch(piece):
                pieces[place] = f"qzContent{len(parts)}zq"
                parts.append(_Part(number, piece))
        masked.append(message._replace(content="".join(pieces)))
    return tuple(masked), parts


@lru_cache(maxsize=256)
def _skeleton(
    template: ChatTemplate, masked: tuple[Message, ...], add_generation_prompt: bool, tools: str
) -> tuple[list[str], list[int]]:
    """The template's own text around the markers, and the markers' numbers in their order in the text."""
    pieces = _MARKER.split(template.render(masked, add_generation_prompt, tools))
    return pieces[::2], [int(number) for number in pieces[1::2]]


def _align(text: str, literals: list[str], parts: list[_Part]) -> list[_Placed]:
    """Places `parts` in `text` such that the template's `literals` stand before, between and after them."""
    if not text.startswith(literals[0]):
        raise _misfit("The model's chat template writes this conversation in a way that can't be followed.")
    placed: list[_Placed] = []
    start = len(literals[0])
    for part, after in zip(parts, literals[1:], strict=True):
        end = _end_of(part.text, text, start, after, last=len(placed) == len(parts) - 1)
        if end <= start:
            raise _misfit(f"The model's chat template changes what message {part.message + 1} says.")
        placed.append(_Placed(part.message, start, end, after))
        start = end + len(after)
    return placed


def _end_of(content: str, text: str, start: int, after: str, last: bool) -> int:
    """Where the content that starts at `start` ends, before `after`; -1 if that is not certain."""
    for written in (content, content.rstrip(), content.lstrip(), content.strip()):
        end = start + len(written)
        fits = len(text) == end + len(after) if last else True
        if fits and text.startswith(written, start) and text.startswith(after, end):
            return end
    # Written otherwise (escaped, say): it still ends where the template goes on, if that can be told apart.
    if last:
        return len(text) - len(after) if text.endswith(after) else -1
    return -1 if not after.strip() or after in content else text.find(after, start)


def _answer_range(text: str, parts: list[_Placed], template: ChatTemplate) -> Range:
    start, end, after = parts[0].start, parts[-1].end, parts[-1].after
    before = text[:start].rstrip()
    if "</think>" in text[start:end] and before.endswith("<think>"):
        start = len(before) - len("<think>")
    ending = after.lstrip()
    closing = max((token for token in template.ends if ending.startswith(token)), key=len, default="")
    return start, end + (len(after) - len(ending) + len(closing) if closing else 0)


def _call_range(text: str, row: Conversation, number: int, template: ChatTemplate) -> Range:
    """An answer that calls tools: all that the template writes from where it asks for it until its end token.

    EngineError where that can't be told, or the calls are not in it.
    """
    message, before = row.messages[number], template.render(row.messages[:number], True, row.tools)
    if any(token in message.content + message.calls for token in template.added_tokens if token):
        raise _misfit(f"The tool calls of message {number + 1} hold a special token of the model.")
    start = len(before)
    ends = [(place, token) for token in template.ends if (place := text.find(token, start)) >= 0]
    place, token = min(ends, default=(-1, ""))
    names = [call["function"]["name"] for call in json.loads(message.calls)]
    if not text.startswith(before) or not all(name in text[start : max(start, place)] for name in names):
        raise _misfit(f"The model's chat template does not write the tool calls of message {number + 1}.")
    return start, place + len(token)


def _misfit(message: str) -> EngineError:
    return EngineError(message, "Change the row to what the template takes, or choose another model.")
