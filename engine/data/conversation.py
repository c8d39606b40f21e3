"""What a row says, in one form for all shapes of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: str
    content: str


@dataclass(frozen=True)
class Conversation:
    """A row in one form: `messages` for chats and for prompt and completion, `text` for plain text.

    The first `context` messages are never trained, whoever speaks: a pair's prompt.
    """

    line: int
    kind: Literal["messages", "prompt", "text"]
    messages: tuple[Message, ...]
    text: str
    context: int = 0

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
    def prompt(self) -> str:
        """What stands before the first answer."""
        return self.chosen.prompt
