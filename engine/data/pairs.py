"""A preference pair's row: a prompt with a better and a worse response, as text or as messages."""

from __future__ import annotations

from engine.data.conversation import Comparison, Conversation, Message
from engine.data.fields import flaw, order_flaw, read_messages, read_tools
from engine.data.problems import Problem, error
from engine.data.read import Row

Turns = tuple[Message, ...]


def examine_pair(row: Row) -> Comparison | Problem:
    """The two conversations in a row with `chosen` and `rejected`, or the first thing that is wrong with it.

    With a `prompt`, each side is a text, the response's turns, or the prompt's messages with the response
    after them. Without one (or with null) both sides are whole conversations, and their common start is the
    prompt.
    """
    chosen = _side(row, "chosen")
    if isinstance(chosen, Problem):
        return chosen
    rejected = _side(row, "rejected")
    if isinstance(rejected, Problem):
        return rejected
    if row.value.get("prompt") is None:
        length = _common_start(row.line, chosen, rejected)
        return length if isinstance(length, Problem) else _comparison(row, length, chosen, rejected)
    prompt = _prompt(row)
    if isinstance(prompt, Problem):
        return prompt
    for name, turns in (("chosen", chosen), ("rejected", rejected)):
        if problem := _seam_flaw(row.line, name, turns, prompt):
            return problem
    whole = (turns if turns[0].role != "assistant" else prompt + turns for turns in (chosen, rejected))
    return _comparison(row, len(prompt), *whole)


def _comparison(row: Row, context: int, chosen: Turns, rejected: Turns) -> Comparison | Problem:
    tools = read_tools(row.line, row.value)
    if isinstance(tools, Problem):
        return tools
    better, worse = (Conversation(row.line, "messages", turns, "", context, tools) for turns in (chosen, rejected))
    return Comparison(row.line, better, worse)


def _turns(row: Row, name: str, speaker: str) -> Turns | Problem:
    """The messages in the field `name`; a text is a message of `speaker`."""
    if problem := flaw(row.line, f"Line {row.line}", row.value, name, str, list):
        return problem
    value = row.value[name]
    turns = (Message(speaker, value),) if isinstance(value, str) else read_messages(row.line, name, value)
    return turns if isinstance(turns, Problem) else order_flaw(row.line, name, turns) or turns


def _side(row: Row, name: str) -> Turns | Problem:
    turns = _turns(row, name, "assistant")
    if isinstance(turns, Problem) or any(turn.role == "assistant" for turn in turns):
        return turns
    return _no_answer(row.line, name)


def _prompt(row: Row) -> Turns | Problem:
    turns = _turns(row, "prompt", "user")
    if isinstance(turns, Problem) or (turns[0].role != "assistant" and turns[-1].role in ("user", "tool")):
        return turns
    begins = turns[-1].role in ("user", "tool")
    return error(
        row.line,
        "role_order",
        f"Line {row.line} has a 'prompt' that {'begins' if begins else 'ends'} with a message from "
        f"{turns[0 if begins else -1].role} where user should speak.",
        "Begin the prompt with the system or the user and end it with the user: the answers come after it.",
    )


def _seam_flaw(line: int, name: str, turns: Turns, prompt: Turns) -> Problem | None:
    """What is wrong where a side goes on from the prompt. One that an assistant begins has the response only."""
    if turns[0].role == "assistant":
        return None
    if _read(turns[: len(prompt)]) != _read(prompt):
        return error(
            line,
            "prompts_differ",
            f"Line {line} has {name!r} messages that begin with another prompt than its 'prompt'.",
            f"Begin {name!r} with the prompt's own messages or with the answer, or take the field 'prompt' out.",
        )
    return _no_answer(line, name) if len(turns) == len(prompt) else None


def _read(turns: Turns) -> Turns:
    """The turns as a prompt has them: whether one is learned makes no difference there."""
    return tuple([turn._replace(is_context=False) for turn in turns])


def _no_answer(line: int, name: str) -> Problem:
    return error(
        line,
        "no_assistant",
        f"Line {line} has no answer in its {name!r}: no assistant message comes after the prompt.",
        "Add the assistant's answer, or take the row out.",
    )


def _common_start(line: int, chosen: Turns, rejected: Turns) -> int | Problem:
    """How many messages of two whole conversations are the prompt."""
    if chosen[0].role == "assistant" or rejected[0].role == "assistant":
        return error(
            line,
            "no_prompt",
            f"Line {line} has answers but no 'prompt' that they answer.",
            "Add the field 'prompt', or write the whole conversation into both 'chosen' and 'rejected', "
            "as lists of messages.",
        )
    chosen, rejected = _read(chosen), _read(rejected)
    if chosen == rejected:
        return max(number for number, turn in enumerate(chosen) if turn.role == "assistant")
    common = 0
    while chosen[common : common + 1] == rejected[common : common + 1]:
        common += 1
    if [turn.role for turns in (chosen, rejected) for turn in turns[common : common + 1]] == ["assistant"] * 2:
        return common
    return error(
        line,
        "prompts_differ",
        f"Line {line} has chosen and rejected messages that first differ at message {common + 1}, "
        "which is not an answer in both.",
        "Begin both with the same messages, up to the user's message that both answer.",
    )
