"""What a row says, in one form for all shapes of rows."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal, NamedTuple


class Message(NamedTuple):
    """One turn of a conversation.

    `calls` is the JSON text of the list of tool calls that an assistant makes, `call` that of a tool message's other
    fields, which say whose result it is; "" where there are none. As texts they keep a message hashable. An answer
    that `is_context` is read and not learned, as OpenAI's "weight": 0 says it.
    """

    role: str
    content: str
    calls: str = ""
    call: str = ""
    is_context: bool = False


@dataclass(frozen=True)
class Conversation:
    """A row in one form: `messages` for chats and for prompt and completion, `text` for plain text.

    The first `context` messages are never trained, whoever speaks: a pair's prompt. `tools` is the JSON text of the
    list of tools that the assistant may call, "" for none.
    """

    line: int
    kind: Literal["messages", "prompt", "text"]
    messages: tuple[Message, ...]
    text: str
    context: int = 0
    tools: str = ""

    @property
    def sides(self) -> tuple[Conversation, ...]:
        """Itself: a pair has two."""
        return (self,)

    @property
    def answers(self) -> tuple[int, ...]:
        """The numbers of the messages that are learned."""
        told = enumerate(self.messages)
        return tuple([n for n, one in told if one.role == "assistant" and n >= self.context and not one.is_context])

    @property
    def prompt(self) -> str:
        """What stands before the first answer; the whole of a plain text."""
        turns = []
        for message in self.messages:
            if message.role == "assistant":
                break
            turns.append(message.content)
        return "\n".join(turns) or self.text


@dataclass(frozen=True)
class Comparison:
    """A preference pair's row: two conversations with the same `context` messages, the prompt."""

    line: int
    chosen: Conversation
    rejected: Conversation

    @property
    def sides(self) -> tuple[Conversation, ...]:
        """Both conversations."""
        return (self.chosen, self.rejected)

    @property
    def prompt(self) -> str:
        """What stands before the first answer."""
        return self.chosen.prompt


def fingerprint(row: Conversation | Comparison) -> bytes:
    """16 bytes that are the same for rows that say the same, in whatever shape."""
    parts: list[str] = []
    for side in row.sides:
        parts += (str(side.context), side.tools, side.text)
        for role, content, calls, _, is_context in side.messages:
            parts += (role, content, calls)
            if is_context:
                parts.append("context")  # nobody's role
    said = "\0".join(parts)
    if said.count("\0") >= len(parts):  # it could be cut up in two ways
        said = "\0".join([",".join(map(str, map(len, parts))), said])
    return hashlib.blake2b(said.encode(), digest_size=16).digest()
