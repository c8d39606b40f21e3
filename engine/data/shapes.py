"""Foreign shapes of rows in the one that is checked: messages, prompt and completion, text, or a preference."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.data.columns import Columns
from engine.data.preferences import judged, transcript
from engine.data.problems import Problem, error, in_file
from engine.data.read import Row, unreadable

_SPEAKERS = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "observation": "tool",
    "function_response": "tool",
}
_CALL = "function_call"
_CHAT, _ANSWER = {"messages": "messages"}, {"prompt": "prompt", "completion": "completion"}
_OF_A_PAIR = ("prompt", "chosen", "rejected")


def canonical(row: Row, columns: Columns) -> Row | Problem:
    """The row in one of the shapes of `engine.data.check`; as it is where `columns` ({} for none) fit none of it.

    Names of fields and of who speaks are translated, parts of a content are joined, and what belongs to a prompt
    is put before it. Of two answers the winner is the chosen one. A part that is no text is a Problem.
    """
    if _is_ours(row.value, columns):
        return row
    fields: dict[str, Any] | Problem = {field: row.value[name] for field, name in columns.items() if name in row.value}
    if not fields:
        return row
    if "answer_a" in columns:
        fields = judged(row, columns)
    if isinstance(fields, Problem):
        return in_file(fields, row.file)
    try:
        value = _shaped(fields)
    except RecursionError:
        return in_file(unreadable(row.line), row.file)
    except _PartError as cause:
        problem = error(
            row.line,
            "part_type",
            f"Line {row.line} has a message with a part of type {cause.kind[:40]!r}, which can't be trained here.",
            "Keep parts of the type 'text' only, or take the row out.",
        )
        return in_file(problem, row.file)
    is_ours = all(field == name for field, name in columns.items())
    is_same = is_ours and all(row.value.get(name) is part for name, part in value.items())
    return row if is_same else replace(row, value=value)


def _is_ours(value: Mapping[str, Any], columns: Columns) -> bool:
    """Whether there is nothing to translate for sure, as in most rows: found at a fifth of the cost."""
    if columns == _CHAT:
        turns = value.get("messages")
        return type(turns) is list and all(type(turn) is dict and _is_plain(turn) for turn in turns)
    if columns == _ANSWER:
        texts = value.get("prompt"), value.get("completion")
        return all(_is_text(text) and not _looks_like_turns(text) for text in texts)
    return False


class _PartError(Exception):
    """A part of a message's content is no text."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


def _shaped(fields: dict[str, Any]) -> dict[str, Any]:
    extras = {}
    if tools := _parsed(fields.get("tools")):
        extras["tools"] = tools
    if "messages" in fields and "chosen" not in fields:
        return {"messages": _introduced(fields, _turns(fields["messages"])), **extras}
    if "text" in fields:
        return {"text": fields["text"]}
    sides = ("chosen", "rejected", "completion")
    if {"chosen", "rejected"} <= fields.keys():
        fields = {name: transcript(part) if name in _OF_A_PAIR else part for name, part in fields.items()}
    shaped: dict[str, Any] = {name: _side(fields[name]) for name in sides if name in fields}
    if "prompt" in fields:
        shaped = {"prompt": _prompt(fields), **shaped}
    elif "messages" in fields and all(_is_answer(side) for side in shaped.values()):
        shaped = {"prompt": _introduced(fields, _turns(fields["messages"])), **shaped}
    is_chat = any(isinstance(shaped.get(name), list) for name in ("prompt", "completion")) or bool(extras)
    if is_chat and {"prompt", "completion"} <= shaped.keys():
        turns = [*_as_turns(shaped["prompt"], "user"), *_as_turns(shaped["completion"], "assistant")]
        return {"messages": turns, **extras}
    return {**shaped, **extras}


def _prompt(fields: Mapping[str, Any]) -> Any:
    """The prompt with what belongs to it: the input after it and an empty line, system and history before it."""
    prompt, further = _side(fields["prompt"]), fields.get("input")
    if isinstance(prompt, str) and isinstance(further, str) and further.strip():
        prompt = f"{prompt}\n\n{further}" if prompt.strip() else further
    history = _parsed(fields.get("history"))
    earlier = [
        {"role": role, "content": said}
        for turn in (history if isinstance(history, list) else [])
        if isinstance(turn, list | tuple)
        for role, said in zip(("user", "assistant"), turn, strict=False)
    ]
    if not earlier and not _system(fields):
        return prompt
    return _introduced(fields, [*earlier, *_as_turns(prompt, "user")])


def _introduced(fields: Mapping[str, Any], turns: Any) -> Any:
    """Messages after the system message that stands in a field of its own."""
    system = _system(fields)
    has_own = (
        isinstance(turns, list) and bool(turns) and isinstance(turns[0], dict) and turns[0].get("role") == "system"
    )
    if not system or not isinstance(turns, list) or has_own:
        return turns
    return [{"role": "system", "content": system}, *turns]


def _system(fields: Mapping[str, Any]) -> str:
    system = fields.get("system")
    return system if isinstance(system, str) and system.strip() else ""


def _as_turns(value: Any, speaker: str) -> list[Any]:
    return value if isinstance(value, list) else [{"role": speaker, "content": value}]


def _side(value: Any) -> Any:
    """A text, or messages; a single message counts as a list of one."""
    if isinstance(value, dict) and ("role" in value or "from" in value):
        value = [value]
    return _turns(value) if isinstance(value, list) or _looks_like_turns(value) else value


def _looks_like_turns(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("[{") and ('"role"' in value or '"from"' in value)


def _is_answer(side: Any) -> bool:
    """Whether a pair's side is the answer alone, not a whole chat."""
    first = side[0] if isinstance(side, list) and side else None
    return isinstance(side, str) or (isinstance(first, dict) and first.get("role") == "assistant")


def _turns(value: Any) -> Any:
    turns = _parsed(value)
    if not isinstance(turns, list):
        return value
    changed = [_turn(turn) for turn in turns]
    return turns if changed == turns else changed


def _turn(turn: Any) -> Any:
    """A message with role and content. Other fields that are null are left out: tables have all in each message."""
    if not isinstance(turn, dict) or _is_plain(turn):
        return turn
    message = turn
    if "from" in turn and "role" not in turn:
        message = {
            **turn,
            "role": _SPEAKERS.get(turn["from"], turn["from"]) if _is_text(turn["from"]) else turn["from"],
        }
        del message["from"]
        if "value" in message and "content" not in message:
            message["content"] = message.pop("value")
        if message["role"] == _CALL:
            message = _called(message)
    if isinstance(message.get("content"), list):
        message = {**message, "content": _joined(message["content"])}
    return {name: value for name, value in message.items() if value is not None or name in ("role", "content")}


def _is_plain(turn: dict[str, Any]) -> bool:
    return len(turn) == 2 and "role" in turn and isinstance(turn.get("content"), str)


def _called(message: dict[str, Any]) -> dict[str, Any]:
    """ShareGPT's turn of a function call as the assistant's message that calls it; as it is where it can't be read."""
    call = _parsed(message.get("content"))
    calls = call if isinstance(call, list) else [call]
    if not all(isinstance(part, dict) and "name" in part for part in calls):
        return message
    return {
        **message,
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": part} for part in calls],
    }


def _joined(parts: Sequence[Any]) -> Any:
    texts = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and part.get("type", "text") == "text" and _is_text(part.get("text")):
            texts.append(part["text"])
        else:
            raise _PartError(str(part.get("type")) if isinstance(part, dict) else type(part).__name__)
    return "".join(texts)


def _parsed(value: Any) -> Any:
    """The list or object that a table's cell holds as JSON text; any other value as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
