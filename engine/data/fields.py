"""Fields and messages of a row, or in words what is wrong with them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from engine.data.conversation import Message
from engine.data.problems import Problem, error

ROLES = ("system", "user", "assistant", "tool")

_WANTED: dict[tuple[type, ...], str] = {
    (str,): "a text",
    (list,): "a list",
    (str, list): "a text or a list of messages",
}
# Neither a space nor a character that is never seen, such as a zero-width space.
_VISIBLE = re.compile(r"[^\s\x00-\x1f\x7f-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
# What says more of a message than its role and its content.
_MORE = frozenset(("tool_calls", "weight"))
# What a tool's answer says of itself, beside its content.
_TOOL_FIELDS = ("tool_call_id", "name")


def is_seen(text: str) -> bool:
    """Whether any character of a text is one that is seen."""
    # Most texts begin with a letter, which is found at a fifth of the cost.
    return text[:1].isalnum() or _VISIBLE.search(text) is not None


def flaw(line: int, place: str, fields: Mapping[str, Any], name: str, *kinds: type) -> Problem | None:
    """What is wrong with the field `name` if it must be of one of `kinds` and not empty."""
    if name not in fields:
        return error(line, "missing_field", f"{place} has no {name!r}.", f"Add the field {name!r}.")
    value = fields[name]
    if value is None:
        return error(line, "null_field", f"{place} has null as its {name!r}.", "Fill the field or take the row out.")
    if not isinstance(value, kinds):
        wanted = _WANTED[kinds]
        return error(line, "wrong_type", f"{place} has a {name!r} that is not {wanted}.", f"Make it {wanted}.")
    if not (is_seen(value) if isinstance(value, str) else value):
        return error(line, "empty_field", f"{place} has an empty {name!r}.", "Fill the field or take the row out.")
    return None


def read_messages(line: int, owner: str, values: Sequence[Any]) -> tuple[Message, ...] | Problem:
    """The messages of a list. `owner` is the field's name in front of "message 3", "" for `messages` itself."""
    turns = []
    for number, value in enumerate(values, start=1):
        turn = _plain_message(value) or _read_message(line, place_of(line, owner, number), value)
        if isinstance(turn, Problem):
            return turn
        turns.append(turn)
    return tuple(turns)


def read_tools(line: int, fields: Mapping[str, Any]) -> str | Problem:
    """The JSON text of the row's tools, "" where it has none."""
    tools = fields.get("tools")
    if not tools:
        return ""
    if isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools):
        return _json_text(line, f"Line {line}", "tools", tools)
    return error(line, "wrong_type", f"Line {line} has 'tools' that are no list of objects.", "Describe each tool.")


def order_flaw(line: int, owner: str, turns: Sequence[Message]) -> Problem | None:
    """What is wrong with who speaks: an optional system message, then user and assistant in turn.

    After an assistant's tool calls come the tools' answers. Turns that an assistant begins go on from a prompt, and
    have no system message.
    """
    if is_plain_order(tuple(["call" if turn.calls else turn.role for turn in turns]), bool(owner)):
        return None
    first = 1 if turns[0].role == "system" else 0
    expected: tuple[str, ...] = ("assistant",) if turns[0].role == "assistant" and owner else ("user",)
    for number, turn in enumerate(turns[first:], start=first + 1):
        if turn.role not in expected:
            return error(
                line,
                "role_order",
                f"{place_of(line, owner, number)} is from {turn.role} where {expected[0]} should speak.",
                "Write an optional system message first, then user and assistant in turn, and a tool after the "
                "assistant that called it; join messages of one role.",
            )
        expected = _next_speakers(turn)
    return None


@lru_cache(maxsize=256)
def is_plain_order(roles: tuple[str, ...], goes_on: bool) -> bool:
    """Whether nobody but user and assistant speaks, in turn, after what may come first."""
    begins_late = roles[0] == "system" or (goes_on and roles[0] == "assistant")
    spoken = roles[1:] if begins_late else roles
    return {*spoken[::2]} <= {"user"} and {*spoken[1::2]} <= {"assistant"}


def place_of(line: int, owner: str, number: int) -> str:
    """The start of a sentence on a message, counted from 1."""
    return f"Line {line}, {owner} message {number}," if owner else f"Line {line}, message {number},"


def _next_speakers(turn: Message) -> tuple[str, ...]:
    match turn.role:
        case "assistant":
            return ("tool",) if turn.calls else ("user",)
        case "tool":
            return ("assistant", "tool")
    return ("assistant",)


def _plain_message(value: Any) -> Message | None:
    """A message with a role and a text, which nearly all are; None where there is more to it."""
    if not isinstance(value, dict) or (len(value) > 2 and not _MORE.isdisjoint(value)):
        return None
    role, content = value.get("role"), value.get("content")
    if role in ("user", "assistant", "system") and isinstance(content, str):
        return Message(role, content) if is_seen(content) else None
    return None


def _read_message(line: int, place: str, value: Any) -> Message | Problem:
    if not isinstance(value, dict):
        return error(line, "wrong_type", f"{place} is not an object.", "Give each message a 'role' and a 'content'.")
    if problem := flaw(line, place, value, "role", str):
        return problem
    role = value["role"]
    if role not in ROLES:
        return error(
            line,
            "unknown_role",
            f"{place} has the role {role[:40]!r}, which is unknown.",
            f"Use one of the roles {', '.join(ROLES)}.",
        )
    calls = _read_calls(line, place, value) if role == "assistant" else ""
    if isinstance(calls, Problem):
        return calls
    weight = value.get("weight")
    if weight not in (None, 0, 1):
        return error(
            line,
            "weight",
            f"{place} has the weight {json.dumps(weight)[:40]}: a message is learned, by 1, or not, by 0.",
            "Write 0 or 1, or leave the weight out.",
        )
    is_context = role == "assistant" and weight == 0
    if calls and value.get("content") in (None, ""):
        return Message(role, "", calls, is_context=is_context)
    if problem := flaw(line, place, value, "content", str):
        return problem
    named = {name: value[name] for name in _TOOL_FIELDS if value.get(name) is not None} if role == "tool" else {}
    call = _json_text(line, place, "tool_call_id", named) if named else ""
    return call if isinstance(call, Problem) else Message(role, value["content"], calls, call, is_context)


def _read_calls(line: int, place: str, fields: Mapping[str, Any]) -> str | Problem:
    """The JSON text of an assistant's tool calls, their arguments as objects; "" where it makes none."""
    calls = fields.get("tool_calls")
    if not calls:
        return ""
    read = [_read_call(call) for call in calls] if isinstance(calls, list) else [None]
    if None in read:
        return error(
            line,
            "wrong_type",
            f"{place} has 'tool_calls' that can't be read.",
            'Write each as {"type": "function", "function": {"name": "...", "arguments": {...}}}.',
        )
    return _json_text(line, place, "tool_calls", read)


def _read_call(call: Any) -> dict[str, Any] | None:
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return None
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):  # as services send them; chat templates want objects
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return None
    if not isinstance(arguments, dict):
        return None
    rest = {"id": call["id"]} if call.get("id") is not None else {}
    return {**rest, "type": "function", "function": {"name": function["name"], "arguments": arguments}}


def _json_text(line: int, place: str, name: str, value: Any) -> str | Problem:
    try:
        text = json.dumps(value, ensure_ascii=False)
        text.encode()  # arguments that were a text of their own can hold half a character
    except (RecursionError, ValueError):
        return error(line, "wrong_type", f"{place} has {name!r} that can't be read.", "Write it as plain JSON.")
    return text
