"""A row's shape: the three that can be trained, and in words what is wrong with any other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from engine.data.problems import Problem, error
from engine.data.read import Row

ROLES = ("system", "user", "assistant")
SHAPES = '{"messages": [...]}, {"prompt": "...", "completion": "..."} or {"text": "..."}'

Kind = Literal["messages", "prompt", "text"]


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: str
    content: str


@dataclass(frozen=True)
class Conversation:
    """A row in one form: `messages` for chats and for prompt and completion, `text` for plain text."""

    line: int
    kind: Kind
    messages: tuple[Message, ...]
    text: str

    @property
    def prompt(self) -> str:
        """What stands before the first answer; the whole of a plain text."""
        turns = []
        for message in self.messages:
            if message.role == "assistant":
                break
            turns.append(message.content)
        return "\n".join(turns) or self.text


def examine(row: Row) -> Conversation | Problem:
    """The conversation in a row, by the row's own shape, or the first thing that is wrong with it.

    A field that is null counts as left out where the others make a shape (tools that merge tables write such
    rows). Other fields are ignored. A chat is an optional system message, then user and assistant in turn;
    it may end on a user's turn, which is context that nothing answers.
    """
    shape = _shape({name for name, value in row.value.items() if value is not None}) or _shape(set(row.value))
    match shape:
        case "messages":
            return _examine_messages(row)
        case "prompt":
            return _examine_prompt(row)
        case "text":
            flaw = _flaw(row.line, f"Line {row.line}", row.value, "text")
            return flaw or Conversation(row.line, "text", (), row.value["text"])
        case "pair":
            return error(
                row.line,
                "pair_row",
                f"Line {row.line} is a preference pair (chosen and rejected): the pair objectives need it, "
                "learning from answers (SFT) can't use it.",
                "Choose data with answers, or name the better answer 'completion'.",
            )
    columns = ", ".join(repr(str(name)[:40]) for name in list(row.value)[:12]) or "none"
    return error(
        row.line,
        "unknown_shape",
        f"Line {row.line} has no shape that can be trained; its fields are: {columns}.",
        f"Write each row as {SHAPES}.",
    )


def _shape(names: set[str]) -> Kind | Literal["pair"] | None:
    if "messages" in names:
        return "messages"
    if {"prompt", "completion"} <= names:
        return "prompt"
    if names & {"chosen", "rejected"}:
        return "pair"
    if names & {"prompt", "completion"}:
        return "prompt"
    return "text" if "text" in names else None


def _examine_prompt(row: Row) -> Conversation | Problem:
    for name in ("prompt", "completion"):
        if flaw := _flaw(row.line, f"Line {row.line}", row.value, name):
            return flaw
    turns = (Message("user", row.value["prompt"]), Message("assistant", row.value["completion"]))
    return Conversation(row.line, "prompt", turns, "")


def _examine_messages(row: Row) -> Conversation | Problem:
    place = f"Line {row.line}"
    if flaw := _flaw(row.line, place, row.value, "messages", list):
        return flaw
    turns = []
    for number, message in enumerate(row.value["messages"], start=1):
        turn = _examine_message(row.line, f"{place}, message {number},", message)
        if isinstance(turn, Problem):
            return turn
        turns.append(turn)
    flaw = _order_flaw(row.line, [turn.role for turn in turns])
    return flaw or Conversation(row.line, "messages", tuple(turns), "")


def _examine_message(line: int, place: str, message: Any) -> Message | Problem:
    if not isinstance(message, dict):
        return error(line, "wrong_type", f"{place} is not an object.", "Give each message a 'role' and a 'content'.")
    if flaw := _flaw(line, place, message, "role"):
        return flaw
    if message["role"] not in ROLES:
        return error(
            line,
            "unknown_role",
            f"{place} has the role {message['role'][:40]!r}, which is unknown.",
            f"Use one of the roles {', '.join(ROLES)}.",
        )
    return _flaw(line, place, message, "content") or Message(message["role"], message["content"])


def _order_flaw(line: int, roles: list[str]) -> Problem | None:
    if "assistant" not in roles:
        return error(
            line,
            "no_assistant",
            f"Line {line} has no assistant message, so it would train nothing.",
            "Add the assistant's answer, or take the row out.",
        )
    first = 1 if roles[0] == "system" else 0
    for number, role in enumerate(roles[first:]):
        expected = ("user", "assistant")[number % 2]
        if role != expected:
            return error(
                line,
                "role_order",
                f"Line {line}, message {first + number + 1}, is from {role} where {expected} should speak.",
                "Write an optional system message first, then user and assistant in turn; join messages of one role.",
            )
    return None


def _flaw(
    line: int, place: str, fields: Mapping[str, Any], name: str, kind: type[str] | type[list[Any]] = str
) -> Problem | None:
    """What is wrong with the field `name` if it must be of `kind` and not empty."""
    if name not in fields:
        return error(line, "missing_field", f"{place} has no {name!r}.", f"Add the field {name!r}.")
    value = fields[name]
    if value is None:
        return error(line, "null_field", f"{place} has null as its {name!r}.", "Fill the field or take the row out.")
    if not isinstance(value, kind):
        wanted = "a text" if kind is str else "a list"
        return error(line, "wrong_type", f"{place} has a {name!r} that is not {wanted}.", f"Make it {wanted}.")
    if not (value.strip() if isinstance(value, str) else value):
        return error(line, "empty_field", f"{place} has an empty {name!r}.", "Fill the field or take the row out.")
    return None
