"""Rows of the two plainest shapes, from JSON to what they say at once: as `check` finds it, at a quarter of the cost.

Most lines of most files are such rows. Whatever has one field more, or anything wrong with it, goes the long way.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.data.columns import Columns
from engine.data.conversation import Conversation, Message
from engine.data.fields import is_plain_order, is_seen
from engine.data.read import has_marks
from engine.data.shapes import OUR_ANSWER, OUR_CHAT, looks_like_turns


class _Turn(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    role: Literal["system", "user", "assistant"]
    content: str


class _Chat(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    messages: list[_Turn]


class _Answer(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    prompt: str
    completion: str


_read_chat = msgspec.json.Decoder(_Chat).decode
_read_answer = msgspec.json.Decoder(_Answer).decode


def plain_row(line: int, text: str, columns: Columns) -> Conversation | None:
    """What the row in a line of JSON says; None where that takes a closer look. `columns` are the file's."""
    try:
        if columns == OUR_CHAT:
            return _chat(line, text)
        if columns == OUR_ANSWER:
            return _answer(line, text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        pass
    return None


def _chat(line: int, text: str) -> Conversation | None:
    turns = _read_chat(text).messages
    roles = tuple([turn.role for turn in turns])
    if "assistant" not in roles or not is_plain_order(roles, goes_on=False):
        return None
    # Names and texts: a name that came twice would have marks of its own.
    if not has_marks(text, 2 * (1 + 4 * len(turns))) or not all(map(is_seen, [turn.content for turn in turns])):
        return None
    return Conversation(line, "messages", tuple([Message(turn.role, turn.content) for turn in turns]), "")


def _answer(line: int, text: str) -> Conversation | None:
    row = _read_answer(text)
    texts = row.prompt, row.completion
    if not has_marks(text, 2 * 4) or not all(is_seen(one) and not looks_like_turns(one) for one in texts):
        return None
    return Conversation(line, "prompt", (Message("user", row.prompt), Message("assistant", row.completion)), "")
