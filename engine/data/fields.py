"""Fields and messages of a row, or in words what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.data.conversation import Message
from engine.data.problems import Problem, error

ROLES = ("system", "user", "assistant")

_WANTED: dict[tuple[type, ...], str] = {
    (str,): "a text",
    (list,): "a list",
    (str, list): "a text or a list of messages",
}


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
    if not (value.strip() if isinstance(value, str) else value):
        return error(line, "empty_field", f"{place} has an empty {name!r}.", "Fill the field or take the row out.")
    return None


def read_messages(line: int, owner: str, values: Sequence[Any]) -> tuple[Message, ...] | Problem:
    """The messages of a list. `owner` is the field's name in front of "message 3", "" for `messages` itself."""
    turns = []
    for number, value in enumerate(values, start=1):
        turn = _read_message(line, place_of(line, owner, number), value)
        if isinstance(turn, Problem):
            return turn
        turns.append(turn)
    return tuple(turns)


def order_flaw(line: int, owner: str, turns: Sequence[Message]) -> Problem | None:
    """What is wrong with who speaks: an optional system message, then user and assistant in turn.

    Turns that an assistant begins go on from a prompt, and have no system message.
    """
    roles = [turn.role for turn in turns]
    speakers = ("assistant", "user") if roles[0] == "assistant" and owner else ("user", "assistant")
    first = 1 if roles[0] == "system" else 0
    for number, role in enumerate(roles[first:]):
        expected = speakers[number % 2]
        if role != expected:
            return error(
                line,
                "role_order",
                f"{place_of(line, owner, first + number + 1)} is from {role} where {expected} should speak.",
                "Write an optional system message first, then user and assistant in turn; join messages of one role.",
            )
    return None


def place_of(line: int, owner: str, number: int) -> str:
    """The start of a sentence on a message, counted from 1."""
    return f"Line {line}, {owner} message {number}," if owner else f"Line {line}, message {number},"


def _read_message(line: int, place: str, value: Any) -> Message | Problem:
    if not isinstance(value, dict):
        return error(line, "wrong_type", f"{place} is not an object.", "Give each message a 'role' and a 'content'.")
    if problem := flaw(line, place, value, "role", str):
        return problem
    if value["role"] not in ROLES:
        return error(
            line,
            "unknown_role",
            f"{place} has the role {value['role'][:40]!r}, which is unknown.",
            f"Use one of the roles {', '.join(ROLES)}.",
        )
    return flaw(line, place, value, "content", str) or Message(value["role"], value["content"])
