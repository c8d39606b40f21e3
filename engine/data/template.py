"""Chat templates: the Jinja text in a model's folder that writes messages the way the model knows them.

The dialect is that of Hugging Face's tokenizers. A template is a program by a stranger, so it runs in Jinja's
sandbox with a bound on its work and its output.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.data.conversation import Message
from engine.errors import EngineError

# For models without a template of their own. Headings on lines of their own: the answer then begins at
# a token boundary, the same in training and in generation.
DEFAULT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message.role == 'system' %}{{ message.content + '\\n\\n' }}"
    "{% elif message.role == 'user' %}{{ 'User:\\n' + message.content + '\\n\\n' }}"
    "{% else %}{{ 'Assistant:\\n' + message.content + eos_token + '\\n\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:\\n' }}{% endif %}"
)

MAX_OUTPUT = 256 * 1024**2  # characters
MAX_TURNS = 250_000  # of loops and macro calls in one rendering


class ChatTemplate:
    """A compiled template.

    `ends` are the tokens that end an assistant's turn: those given, and the one that the template itself
    writes there. `now` is the time that it may write. EngineError for a source that is not a template.
    """

    def __init__(
        self,
        source: str,
        *,
        bos_token: str = "",
        eos_token: str = "",
        ends: Iterable[str] = (),
        added_tokens: Sequence[str] = (),
        is_default: bool = False,
        now: datetime | None = None,
    ) -> None:
        self.source = source
        self.bos_token = bos_token
        self.eos_token = eos_token
        self.added_tokens = tuple(added_tokens)
        self.is_default = is_default
        # One clock for all renderings: a row rendered twice over midnight must come out the same.
        self.environment = TemplateEnvironment(now or datetime.now())
        try:
            self._template = self.environment.from_string(source)
        except (jinja2.TemplateError, RecursionError, ValueError, MemoryError, SyntaxError) as cause:
            raise EngineError(
                f"The model's chat template can't be read: {cause}.",
                "Mend chat_template in the model's folder.",
            ) from cause
        self.ends = frozenset({eos_token, *ends, self._closing_token(added_tokens)} - {""})

    def values(self, tools: str = "", add_generation_prompt: bool = False) -> dict[str, Any]:
        """What the template is told beside the messages. `tools` is JSON text, "" for none."""
        return {
            "add_generation_prompt": add_generation_prompt,
            "bos_token": self.bos_token,
            "eos_token": self.eos_token,
            "tools": json.loads(tools) if tools else None,
            "documents": None,
        }

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = False, tools: str = "") -> str:
        """The text of `messages`, and the start of an answer if asked; EngineError where it refuses."""
        values = {**self.values(tools, add_generation_prompt), "messages": [_as_dict(message) for message in messages]}
        self.environment.turns = 0
        pieces, size = [], 0
        try:
            for piece in self._template.generate(values):
                pieces.append(piece)
                size += len(piece)
                if size > MAX_OUTPUT:
                    raise OverflowError(f"it wrote more than {MAX_OUTPUT:,} characters")
        except Exception as cause:  # a template is a program: it can raise anything
            reason = str(cause).strip().rstrip(".") or type(cause).__name__
            raise EngineError(
                f"The model's chat template refuses this conversation: {reason}.",
                "Change the row to what the template takes, or choose another model.",
            ) from cause
        return "".join(pieces)

    def _closing_token(self, added_tokens: Sequence[str]) -> str:
        """The token that the template writes after an answer, "" if none."""
        try:
            text = self.render([Message("user", "qzAsk"), Message("assistant", "qzAnswer")])
        except EngineError:
            return ""
        header, _, after = text.partition("qzAnswer")
        after = after.lstrip()
        closing = max((token for token in added_tokens if after.startswith(token)), key=len, default="")
        # Some templates open the next answer unasked: the token that opened this one is a header, not an end.
        opening = max(added_tokens, key=header.rfind, default="")
        return "" if closing == opening and closing in header else closing


def _as_dict(message: Message) -> dict[str, Any]:
    """The message as templates know it."""
    value: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.calls:
        value["tool_calls"] = json.loads(message.calls)
    return value | (json.loads(message.call) if message.call else {})


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Jinja as Hugging Face sets it up, and with a count of the turns that loops and macros take."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, LoopControlExtension])
        self.turns = 0
        self.filters["tojson"] = _to_json
        self.globals["raise_exception"] = _refuse
        self.globals["strftime_now"] = now.strftime

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        repeated: list[nodes.For | nodes.Macro | nodes.CallBlock] = [
            *tree.find_all(nodes.For),
            *tree.find_all(nodes.Macro),
            *tree.find_all(nodes.CallBlock),
        ]
        for node in repeated:
            count = nodes.ExprStmt(nodes.Call(nodes.EnvironmentAttribute("count_turn"), [], [], None, None))
            node.body.insert(0, count.set_lineno(node.lineno))
        return tree

    def count_turn(self) -> None:
        """Called by every turn of a loop and every call of a macro; OverflowError after MAX_TURNS."""
        self.turns += 1
        if self.turns > MAX_TURNS:
            raise OverflowError(f"it took more than {MAX_TURNS:,} turns of its loops")


class _GenerationTag(Extension):
    """`{% generation %}`, with which some templates mark answers: its body is written as it is."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(value: Any, indent: int | None = None, ensure_ascii: bool = False, **options: Any) -> str:
    # Jinja's own filter escapes for HTML.
    return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii, **options)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
