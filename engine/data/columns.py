"""Which of a file's columns is which field: by hand, or guessed by the names that people use."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

from engine.errors import EngineError

# The names that are understood, field by field; the first is the field's own.
NAMES: dict[str, tuple[str, ...]] = {
    "messages": ("messages", "conversations", "conversation", "dialogue", "dialog", "chat", "turns"),
    "chosen": ("chosen", "chosen_response", "preferred", "accepted"),
    "rejected": ("rejected", "rejected_response", "dispreferred", "non_preferred"),
    "answer_a": ("answer_a", "response_a", "completion_a", "output_a", "conversation_a", "answer_0", "response_0"),
    "answer_b": ("answer_b", "response_b", "completion_b", "output_b", "conversation_b", "answer_1", "response_1"),
    "winner": ("winner", "preference", "better", "better_response", "better_response_id"),
    "prompt": ("prompt", "instruction", "question", "query", "problem", "input", "user", "human"),
    "completion": ("completion", "response", "output", "answer", "reply", "solution", "assistant", "target"),
    "text": ("text", "content", "document", "passage", "article", "body"),
    "input": ("input", "context"),
    "system": ("system", "system_prompt"),
    "history": ("history",),
    "tools": ("tools", "functions"),
    "label": ("label", "thumbs", "feedback", "rating", "vote"),
}
_BY_NAME = {name: field for field, names in reversed(NAMES.items()) for name in names}

# The fields that make a shape together, in the order of preference, and those that may come with them.
SHAPES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("chosen", "rejected"), ("prompt", "messages", "input", "system", "history", "tools")),
    (("answer_a", "answer_b"), ("winner", "prompt", "messages", "input", "system", "history", "tools")),
    (("messages",), ("system", "tools")),
    (("prompt", "completion"), ("input", "system", "history", "tools", "label")),
    (("text",), ()),
)
_TAKES_INPUT = ("instruction", "question")  # prompts that a second column belongs to, by its usual name

Columns = dict[str, str]  # our field -> the file's column


@lru_cache(1024)
def is_known(name: str) -> bool:
    """Whether a column of this name is understood."""
    return _plain(name) in _BY_NAME


def guess(names: Iterable[str]) -> Columns:
    """The columns that make a shape, by their names; {} where none does or where more than one could be a field.

    A field's own name goes before any other that people give it.
    """
    by_plain = {_plain(name): name for name in reversed(list(names))}
    for needed, extras in SHAPES:
        found = {field: name for field in needed if (name := _only(field, by_plain))}
        if len(found) == len(needed):
            return _with_extras(found, extras, by_plain)
    return {}


def parse_columns(columns: str, names: Iterable[str], place: str) -> Columns:
    """The columns named by hand, as in "prompt=question, completion=answer", with the guess for what they leave out.

    "system=" says that no column is the field. A name that holds a comma stands in quotation marks with its field:
    "prompt=first, second". EngineError for a field or a column that there isn't, or where they make no shape. `place`
    says whose `names` are meant.
    """
    known = list(names)
    given: Columns = {}
    none: set[str] = set()
    for part in next(csv.reader([columns], skipinitialspace=True), []):
        field, equals, name = (piece.strip() for piece in part.partition("="))
        if not part.strip():
            continue
        if not equals or field not in NAMES:
            raise EngineError(
                f"The columns setting has {part.strip()[:60]!r}, which names no field.",
                f"Write FIELD=COLUMN, or FIELD= where no column is meant, with a field out of {', '.join(NAMES)}.",
            )
        if not name:
            none.add(field)
            continue
        if name not in known:
            raise EngineError(
                f"{place} has no column {name[:60]!r}, which the columns setting names for {field!r}.",
                f"Its columns are: {', '.join(map(repr, known[:30])) or 'none'}.",
            )
        given[field] = name
    return _completed(given, none - given.keys(), [name for name in known if name not in given.values()])


def _completed(given: Columns, none: Collection[str], others: list[str]) -> Columns:
    """The columns given by hand and, for the fields of their shape that aren't, those found by their names.

    A label is not looked for: it would make pairs of what is called an answer by hand.
    """
    by_plain = {_plain(name): name for name in reversed(others)}
    for needed, extras in sorted(SHAPES, key=lambda shape: -len(given.keys() & {*shape[0]})):
        if not {*(given or none)} & {*needed, *extras}:
            continue
        names = {field: given.get(field) or _only(field, by_plain) for field in needed if field not in none}
        if all(names.get(field) for field in needed) and given.keys() <= {*needed, *extras}:
            wanted = [field for field in extras if field not in {*none, *given, "label"}]
            return _with_extras({**names, **given}, wanted, by_plain)
    shapes = "; ".join(" and ".join(needed) for needed, _ in SHAPES)
    raise EngineError(
        f"The columns named for {', '.join(map(repr, given)) or 'nothing'} make no row that can be trained.",
        f"Name the columns of one of these together: {shapes}.",
    )


def _with_extras(found: Columns, extras: Iterable[str], by_plain: Mapping[str, str]) -> Columns:
    """The columns of a shape with those of the fields that may come with it."""
    for field in extras:
        name = _only(field, by_plain)
        if name and name not in found.values() and _belongs(field, found):
            found[field] = name
    return found


def _only(field: str, by_plain: Mapping[str, str]) -> str:
    """The column of a field: that of its own name, else the only one of its other names, else ""."""
    if field in by_plain:
        return by_plain[field]
    found = [by_plain[name] for name in NAMES[field] if name in by_plain]
    if field == "prompt" and len(found) > 1:  # instruction and input are Alpaca's two halves of a prompt
        found = [name for name in found if _plain(name) != "input"]
    return found[0] if len(found) == 1 else ""


def _belongs(field: str, found: Columns) -> bool:
    if field in ("prompt", "messages"):  # of a pair: the text or the chat that both answers go on from
        return not found.keys() & {"prompt", "messages"}
    return field != "input" or ("prompt" in found and _plain(found["prompt"]) in _TAKES_INPUT)


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")
