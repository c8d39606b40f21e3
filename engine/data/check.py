"""A row's shape: those that can be trained, and in words what is wrong with any other."""

from __future__ import annotations

from typing import Literal

from engine.config import PAIR_OBJECTIVES
from engine.data.conversation import Comparison, Conversation, Message
from engine.data.fields import flaw, order_flaw, read_messages, read_tools
from engine.data.pairs import examine_pair
from engine.data.problems import Problem, error, in_file
from engine.data.read import Row

SHAPES = '{"messages": [...]}, {"prompt": "...", "completion": "..."} or {"text": "..."}'
PAIR_SHAPES = (
    '{"prompt": "...", "chosen": "...", "rejected": "..."}, or {"chosen": [...], "rejected": [...]} of messages'
)

Shape = Literal["messages", "prompt", "text", "pair"]


def examine(row: Row, objective: str = "sft") -> Conversation | Comparison | Problem:
    """What a row says, by the row's own shape, or the first thing that is wrong with it.

    A field that is null counts as left out where the others make a shape (tools that merge tables write such
    rows). Other fields are ignored. A chat is an optional system message, then user and assistant in turn, with
    the answers of tools after an assistant that called them; it may end on a user's turn, which is context that
    nothing answers. A pair objective needs pairs and nothing else. Of several files a problem names its own.
    """
    found = _examine(row, objective)
    return in_file(found, row.file) if isinstance(found, Problem) else found


def shape_of(row: Row, objective: str = "sft") -> Shape | None:
    """The shape that a row is meant to have, whether or not it can be used; a row of two is what `objective` needs."""
    if objective in PAIR_OBJECTIVES and {"chosen", "rejected"} & set(row.value):
        return "pair"
    return _shape({name for name, value in row.value.items() if value is not None}) or _shape(set(row.value))


def _examine(row: Row, objective: str) -> Conversation | Comparison | Problem:
    shape, line = shape_of(row, objective), row.line
    match shape:
        case "pair" if objective in PAIR_OBJECTIVES:
            return examine_pair(row)
        case "pair":
            return error(
                line,
                "pair_row",
                f"Line {line} is a preference pair (chosen and rejected), which learning from answers (SFT) can't use.",
                "Choose an objective that prefers better answers, or name the better answer 'completion'.",
            )
        case _ if objective in PAIR_OBJECTIVES:
            return error(
                line,
                "not_a_pair",
                f"Line {line} is no preference pair, which {objective.upper()} needs; its fields are: {_names(row)}.",
                f"Write each row as {PAIR_SHAPES}; or choose to learn from answers (SFT).",
            )
        case "messages":
            return _examine_messages(row)
        case "prompt":
            return _examine_prompt(row)
        case "text":
            problem = flaw(line, f"Line {line}", row.value, "text", str)
            return problem or Conversation(line, "text", (), row.value["text"])
    return error(
        line,
        "unknown_shape",
        f"Line {line} has no shape that can be trained; its fields are: {_names(row)}.",
        f"Write each row as {SHAPES}; or say which of your fields is which (columns).",
    )


def _shape(names: set[str]) -> Shape | None:
    if "messages" in names:
        return "messages"
    if {"prompt", "completion"} <= names:
        return "prompt"
    if names & {"chosen", "rejected"}:
        return "pair"
    if names & {"prompt", "completion"}:
        return "prompt"
    return "text" if "text" in names else None


def _names(row: Row) -> str:
    return ", ".join(repr(str(name)[:40]) for name in list(row.value)[:12]) or "none"


def _examine_prompt(row: Row) -> Conversation | Problem:
    for name in ("prompt", "completion"):
        if problem := flaw(row.line, f"Line {row.line}", row.value, name, str):
            return problem
    turns = (Message("user", row.value["prompt"]), Message("assistant", row.value["completion"]))
    tools = read_tools(row.line, row.value)
    return tools if isinstance(tools, Problem) else Conversation(row.line, "prompt", turns, "", tools=tools)


def _examine_messages(row: Row) -> Conversation | Problem:
    line = row.line
    if problem := flaw(line, f"Line {line}", row.value, "messages", list):
        return problem
    turns = read_messages(line, "", row.value["messages"])
    if isinstance(turns, Problem):
        return turns
    if all(turn.role != "assistant" for turn in turns):
        return error(
            line,
            "no_assistant",
            f"Line {line} has no assistant message, so it would train nothing.",
            "Add the assistant's answer, or take the row out.",
        )
    tools = read_tools(line, row.value)
    if isinstance(tools, Problem):
        return tools
    return order_flaw(line, "", turns) or Conversation(line, "messages", turns, "", tools=tools)
