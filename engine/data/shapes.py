"""Foreign shapes of rows in the one that is checked: messages, prompt and completion, text, or a preference."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.data.columns import Columns, is_known
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
OUR_CHAT, OUR_ANSWER = {"messages": "messages"}, {"prompt": "prompt", "completion": "completion"}
_NAME = "\0"  # in words stands for the name of a field's column; no text that is shown there holds it
_OF_A_PAIR = ("prompt", "chosen", "rejected")


def canonical(row: Row, columns: Columns) -> Row | Problem:
    """The row in one of the shapes of `engine.data.check`; as it is where `columns` ({} for none) fit none of it.

    Names of fields and of who speaks are translated, parts of a content are joined, and what belongs to a prompt
    is put before it. Of two answers the winner is the chosen one. What has no place in the shape is a Problem. Other
    fields stay, but for those of names that are understood: under ours they would make another row of it.
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
    except _MisfitError as cause:
        says = cause.says.replace(_NAME, repr(columns.get(cause.field)))
        return in_file(error(row.line, cause.code, f"Line {row.line} {says}", cause.fix), row.file)
    is_ours = all(field == name for field, name in columns.items())
    is_same = is_ours and all(row.value.get(name) is part for name, part in value.items())
    return row if is_same else replace(row, value={**value, **_others(row, columns)})


def _others(row: Row, columns: Columns) -> dict[str, Any]:
    used = columns.values()
    return {name: part for name, part in row.value.items() if name not in used and not is_known(name)}


def _is_ours(value: Mapping[str, Any], columns: Columns) -> bool:
    """Whether there is nothing to translate for sure, as in most rows: found at a fifth of the cost."""
    if columns == OUR_CHAT:
        turns = value.get("messages")
        return type(turns) is list and all(type(turn) is dict and _is_plain(turn) for turn in turns)
    if columns == OUR_ANSWER:
        texts = value.get("prompt"), value.get("completion")
        return all(_is_text(text) and not looks_like_turns(text) for text in texts)
    return False


class _MisfitError(Exception):
    """What a row holds beside its shape: a problem's code, what the line does, and a cure."""

    def __init__(self, code: str, field: str, says: str, fix: str) -> None:
        super().__init__(says)
        self.code, self.field, self.says, self.fix = code, field, says, fix


def _shaped(fields: dict[str, Any]) -> dict[str, Any]:
    extras = {}
    if tools := _parsed(fields.get("tools")):
        extras["tools"] = tools
    is_pair = {"chosen", "rejected"} <= fields.keys()
    if "messages" in fields and "chosen" not in fields:
        return {"messages": _introduced(fields, _turns(fields["messages"])), **extras}
    if "text" in fields:
        return {"text": fields["text"]}
    sides = ("chosen", "rejected", "completion")
    if is_pair:
        fields = {name: transcript(part) if name in _OF_A_PAIR else part for name, part in fields.items()}
    shaped: dict[str, Any] = {name: _side(fields[name]) for name in sides if name in fields}
    if is_pair and fields.get("messages") is not None and all(map(_is_answer, shaped.values())):
        if fields.get("prompt") is not None:
            raise _MisfitError(
                "no_place",
                "messages",
                f"has a prompt beside its {_NAME}, which are one as well.",
                "Name one of the two columns as the prompt.",
            )
        fields = {**fields, "prompt": _turns(fields["messages"])}  # the chat that both answers go on from
    if _has_prompt(fields, is_pair):
        shaped = {"prompt": _prompt(fields), **shaped}
    elif is_pair:  # two whole chats
        shaped = {name: side if _is_answer(side) else _introduced(fields, side) for name, side in shaped.items()}
    is_chat = any(isinstance(shaped.get(name), list) for name in ("prompt", "completion")) or bool(extras)
    if is_chat and {"prompt", "completion"} <= shaped.keys():
        turns = [*_as_turns(shaped["prompt"], "user"), *_as_turns(shaped["completion"], "assistant")]
        return {"messages": turns, **extras}
    return {**shaped, **extras}


def _has_prompt(fields: Mapping[str, Any], is_pair: bool) -> bool:
    """Whether a row has a prompt, or of a pair what belongs to one. In a pair null counts as left out."""
    if not is_pair:
        return "prompt" in fields
    return fields.get("prompt") is not None or bool(_text(fields, "input") or _history(fields))


def _prompt(fields: Mapping[str, Any]) -> Any:
    """The prompt with what belongs to it: the input after it and an empty line, system and history before it."""
    prompt, further, earlier = _side(fields.get("prompt", "")), _text(fields, "input"), _history(fields)
    if further and not isinstance(prompt, str):
        raise _MisfitError(
            "no_place",
            "input",
            f"has a text in {_NAME} beside a prompt that is no text, where it has no place.",
            "Write it into the prompt's last message.",
        )
    if further:
        prompt = f"{prompt}\n\n{further}" if prompt.strip() else further
    if not earlier and not _text(fields, "system"):
        return prompt
    own = _as_turns(prompt, "user") if prompt or "prompt" in fields else []
    return _introduced(fields, [*earlier, *own])


def _history(fields: Mapping[str, Any]) -> list[Any]:
    """The messages before the prompt, of a field with messages or with pairs of what was asked and answered."""
    turns = _parsed(fields.get("history"))
    if turns is None or turns == [] or (isinstance(turns, str) and not turns.strip()):
        return []
    if isinstance(turns, list):
        if all(isinstance(turn, dict) for turn in turns):
            return list(_turns(turns))
        if all(isinstance(turn, list | tuple) and len(turn) == 2 for turn in turns):
            return [
                {"role": role, "content": said}
                for turn in turns
                for role, said in zip(("user", "assistant"), turn, strict=True)
            ]
    raise _MisfitError(
        "wrong_type",
        "history",
        f"has a {_NAME} that is neither a list of messages nor one of pairs.",
        'Write it as [["question", "answer"], ...], or as messages with role and content.',
    )


def _introduced(fields: Mapping[str, Any], turns: Any) -> Any:
    """Messages after the system message that stands in a field of its own."""
    system = _text(fields, "system")
    if not system or not isinstance(turns, list):
        return turns
    own = turns[0] if turns and isinstance(turns[0], dict) and turns[0].get("role") == "system" else None
    if own is None:
        return [{"role": "system", "content": system}, *turns]
    if own.get("content") != system:
        raise _MisfitError(
            "two_systems",
            "system",
            f"has a {_NAME} and another system message in its messages, where one can stand.",
            "Keep one of the two; or leave the field out for all rows (columns: system=).",
        )
    return turns


def _text(fields: Mapping[str, Any], field: str) -> str:
    """The text of a field that may be left out or blank: then ""."""
    value = fields.get(field)
    if value is None or isinstance(value, str):
        return value if value and value.strip() else ""
    raise _MisfitError("wrong_type", field, f"has a {_NAME} that is not a text.", "Make it a text.")


def _as_turns(value: Any, speaker: str) -> list[Any]:
    return value if isinstance(value, list) else [{"role": speaker, "content": value}]


def _side(value: Any) -> Any:
    """A text, or messages; a single message counts as a list of one."""
    if isinstance(value, dict) and ("role" in value or "from" in value):
        value = [value]
    return _turns(value) if isinstance(value, list) or looks_like_turns(value) else value


def looks_like_turns(value: Any) -> bool:
    """Whether a text is the JSON text of messages, as a table's cell holds them."""
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
            kind = str(part.get("type")) if isinstance(part, dict) else type(part).__name__
            raise _MisfitError(
                "part_type",
                "messages",
                f"has a message with a part of type {kind[:40]!r}, which can't be trained here.",
                "Keep parts of the type 'text' only, or take the row out.",
            )
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
