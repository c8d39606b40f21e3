"""Proof by tracing that a chat template takes contents as plain slots, so that rows of a shape need no rendering.

The template runs once on markers that are strings of a watchful kind. They may be joined with other text and
written; every other question about them either has an answer that holds for all contents of a stated sort (those
without surrounding whitespace, those that lack certain words), which is noted, or ends the proof. What depends on
contents in no other way must write every such conversation of the same roles around the same literals.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from jinja2 import nodes
from jinja2.runtime import Macro
from jinja2.visitor import NodeTransformer

from engine.data.template import TemplateEnvironment

_MARKER = re.compile(r"qzSlot(\d+)zq")

# Tests that ask what kind of value it is, not what it says; filters that keep a list's members as they are.
_KIND_TESTS = frozenset({"boolean", "callable", "defined", "false", "float", "integer", "iterable", "mapping", "none",
                         "number", "sequence", "string", "true", "undefined"})  # fmt: skip
_LIST_FILTERS = frozenset({"count", "first", "last", "length", "list", "reverse"})


class NotPlainError(Exception):
    """The template asks of a content what has no answer for all contents."""


@dataclass(frozen=True)
class Layout:
    """How a template writes every conversation of the same roles whose contents fit.

    The text is `literals` with contents between them; `order[i]` is the message whose content follows literal i.
    Contents fit when they are not blank, hold none of `absent` and, where `stripped`, have no whitespace around them.
    """

    literals: tuple[str, ...]
    order: tuple[int, ...]
    absent: frozenset[str]
    stripped: bool

    def text(self, contents: Sequence[str]) -> str:
        """The text of a conversation with these contents."""
        return self.literals[0] + "".join(
            [contents[number] + after for number, after in zip(self.order, self.literals[1:], strict=True)]
        )

    def fits(self, contents: Sequence[str], held: Collection[str]) -> bool:
        """Whether the layout holds for these contents, of all messages in order.

        `held` are those of `absent` that any content may hold: a look at many texts at once leaves few.
        """
        for text in contents:
            if not text or text.isspace() or (self.stripped and (text[0].isspace() or text[-1].isspace())):
                return False
            for word in held:
                if word in text:
                    return False
        return True


def plain_layout(environment: TemplateEnvironment, source: str, values: dict[str, Any], roles: Sequence[str]) -> Layout:
    """The layout for conversations of `roles`, with `values` for the template's other names.

    NotPlainError where contents are more than slots; whatever the template raises where it refuses these roles.
    """
    notes = _Notes()
    messages = [{"role": role, "content": _marker(notes, number)} for number, role in enumerate(roles)]
    template = _Tracing(environment.now).from_string(source)
    # Whoever reads a joined text through C code, past the methods of _Slot, gets a plain string with a marker in it.
    text = "".join([str.__str__(piece) for piece in template.generate({**values, "messages": messages})])
    pieces = _MARKER.split(text)
    return Layout(tuple(pieces[::2]), tuple(map(int, pieces[1::2])), frozenset(notes.absent), notes.stripped)


@dataclass
class _Notes:
    """What has to hold of contents for the answers that were given."""

    absent: set[str] = field(default_factory=set)
    stripped: bool = False


class _Slot(str):
    """A content's marker, `whole` by itself or joined with other text."""

    notes: _Notes
    whole: bool

    def __add__(self, other: str) -> _Slot:
        return _joined(self.notes, str.__add__(self, other))

    def __radd__(self, other: str) -> _Slot:
        return _joined(self.notes, str.__add__(other, self))

    def __str__(self) -> str:
        return self

    def __bool__(self) -> bool:
        return True  # no content is empty

    def strip(self, characters: str | None = None, /) -> _Slot:
        return self._stripped(str.strip, characters)

    def lstrip(self, characters: str | None = None, /) -> _Slot:
        return self._stripped(str.lstrip, characters)

    def rstrip(self, characters: str | None = None, /) -> _Slot:
        return self._stripped(str.rstrip, characters)

    def __contains__(self, word: object) -> bool:
        return self._lacks(word)

    def startswith(self, word: Any, *rest: Any) -> bool:
        return self._lacks(word, *rest)

    def endswith(self, word: Any, *rest: Any) -> bool:
        return self._lacks(word, *rest)

    def split(self, word: Any = None, *rest: Any, **named: Any) -> list[str]:  # type: ignore[override]
        self._lacks(word, *rest, *named)
        return [self]

    def _stripped(self, strip: Callable[..., str], characters: str | None) -> _Slot:
        if characters is not None and (type(characters) is not str or characters.strip()):
            raise NotPlainError
        self.notes.stripped = True
        return _joined(self.notes, strip(self, characters))

    def _lacks(self, word: object, *rest: object) -> bool:
        """Notes that contents lack `word`; of a joined text it may also lie across a seam."""
        if rest or type(word) is not str or not word or not self.whole:
            raise NotPlainError
        self.notes.absent.add(word)
        return False


def _refuse(*_: Any, **__: Any) -> Any:
    raise NotPlainError


for _name in set(dir(str)) - set(vars(_Slot)) - set(dir(object)):
    setattr(_Slot, _name, _refuse)
for _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__format__"):
    setattr(_Slot, _name, _refuse)


def _marker(notes: _Notes, number: int) -> _Slot:
    return _joined(notes, f"qzSlot{number}zq")


def _joined(notes: _Notes, text: str) -> _Slot:
    slot = str.__new__(_Slot, text)
    slot.notes, slot.whole = notes, _MARKER.fullmatch(text) is not None
    return slot


def _tells(value: Any) -> bool:
    """Whether the value holds a content."""
    if isinstance(value, str):
        return _MARKER.search(str.__str__(value)) is not None
    if isinstance(value, dict):
        return any(map(_tells, value)) or any(map(_tells, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_tells, value))


class _Tracing(TemplateEnvironment):
    """The templates' environment, where nothing reads a content unseen."""

    intercepted_binops = frozenset({"%", "*"})

    def __init__(self, now: Any) -> None:
        super().__init__(now)
        self.filters = {name: _watched_filter(name, function) for name, function in self.filters.items()}
        self.tests = {name: _watched_test(name, function) for name, function in dict[str, Any](self.tests).items()}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        # Their texts are put together unseen.
        if any(True for _ in tree.find_all((nodes.AssignBlock, nodes.FilterBlock, nodes.CallBlock))):
            raise NotPlainError
        _Seen().visit(tree)
        return tree

    def join(self, values: list[Any]) -> Any:
        """The operator ~."""
        total: Any = ""
        for value in values:
            total = total + (value if isinstance(value, str) else str(value))
        return total

    def searched(self, value: Any) -> Any:
        """What stands before the operator in: a text would be searched for it unseen."""
        return _refuse() if _tells(value) else value

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        return _refuse() if _tells(left) or _tells(right) else super().call_binop(context, operator, left, right)

    def getattr(self, obj: Any, attribute: str) -> Any:
        known = attribute in ("strip", "lstrip", "rstrip", "startswith", "endswith", "split")
        return _refuse() if isinstance(obj, _Slot) and not known else super().getattr(obj, attribute)

    def call(self, context: Any, function: Any, *args: Any, **named: Any) -> Any:
        """Macros hand contents on, and methods of a slot look after themselves; nothing else may be told one."""
        if isinstance(function, Macro):
            text = super().call(context, function, *args, **named)
            return _joined(_notes_of((args, named)), text) if isinstance(text, str) and _tells(text) else text
        own = getattr(function, "__self__", None)
        if own is not self and not isinstance(own, _Slot) and (_tells(args) or _tells(named)):
            raise NotPlainError
        return super().call(context, function, *args, **named)


def _notes_of(value: Any) -> _Notes:
    """The notes of a content in `value`."""
    if isinstance(value, _Slot):
        return value.notes
    members = [*value.values()] if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else []
    for member in members:
        if _tells(member):
            return _notes_of(member)
    raise NotPlainError


class _Seen(NodeTransformer):
    """Operators that read texts without a method of theirs become calls of the environment."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802  as Jinja calls it
        self.generic_visit(node)
        return _call("join", nodes.List(node.nodes), node.lineno)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if any(operand.op in ("in", "notin") for operand in node.ops):
            if len(node.ops) > 1:
                raise NotPlainError
            # `word in content` asks the slot; `content in text` would not.
            node.expr = _call("searched", node.expr, node.lineno)
        return node


def _call(name: str, argument: nodes.Expr, line: int) -> nodes.Call:
    call = nodes.Call(nodes.EnvironmentAttribute(name), [argument], [], None, None)
    call.set_lineno(line)
    return call


def _values(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments without the environment or context that some filters are given first."""
    return args[1:] if hasattr(function, "jinja_pass_arg") else args


def _watched_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def watched(*args: Any, **named: Any) -> Any:
        value, *rest = _values(function, args)
        if isinstance(value, _Slot):
            if name == "trim" and not named:
                return value.strip(*rest)
            return value if name == "string" else _refuse()
        safe = name in _LIST_FILTERS and not isinstance(value, str)
        if not safe and (_tells(value) or _tells(rest) or _tells(named)):
            raise NotPlainError
        return function(*args, **named)

    return watched


def _watched_test(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def watched(*args: Any, **named: Any) -> Any:
        values = _values(function, args)
        if not any(map(_tells, values)):
            return function(*args, **named)
        if name not in _KIND_TESTS or not isinstance(values[0], _Slot):
            # A list of messages is of its kind whatever they say.
            return function(*args, **named) if name in _KIND_TESTS else _refuse()
        plain = tuple(str.__str__(value) if value is values[0] else value for value in args)
        return function(*plain, **named)

    return watched
