"""A model that stays in memory and answers: JSON lines in, JSON lines out, until standard input ends.

<- {"prompt": "..."} or {"messages": [{"role", "content"}]}, with max_tokens, temperature, adapter (bool)
<- {"stop": true}
-> {"ready": true}, then for each request {"text": "..."} and {"done": true, "tokens": n, "seconds": s}
"""

from __future__ import annotations

import json
import queue
import sys
import threading
from pathlib import Path
from typing import Any

from engine.data import Message
from engine.errors import EngineError
from engine.events import Failed, Stage, to_line
from engine.generate import Speaker

_END = None


def talk(model: str, adapter: Path | None) -> int:
    """Answers requests one after the other. A request that can't be met is told as a failed event."""
    speaker = Speaker(model, adapter, lambda message: _write_line(to_line(Stage("model", message))))
    requests: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    stopped = threading.Event()
    threading.Thread(target=_listen, args=(requests, stopped), daemon=True).start()
    _write({"ready": True})
    while (request := requests.get()) is not _END:
        stopped.clear()
        try:
            _answer(speaker, request, stopped)
        except EngineError as error:
            _write_line(to_line(Failed.of(error)))
    return 0


def _listen(requests: queue.SimpleQueue[dict[str, Any] | None], stopped: threading.Event) -> None:
    """Reads while an answer is being written, so that a stop is heard at once."""
    for line in sys.stdin:
        try:
            request = json.loads(line)
        except ValueError:
            request = {}
        if isinstance(request, dict) and request.get("stop"):
            stopped.set()
        else:
            requests.put(request if isinstance(request, dict) else {})
    stopped.set()
    requests.put(_END)


def _answer(speaker: Speaker, request: dict[str, Any], stopped: threading.Event) -> None:
    try:
        given = request.get("messages") or [{"role": "user", "content": request["prompt"]}]
        messages = [Message(str(message["role"]), str(message["content"])) for message in given]
        max_tokens = max(1, int(request.get("max_tokens", 256)))
        temperature = max(0.0, float(request.get("temperature", 0.0)))
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError("That is no request for an answer.", "Send a prompt or messages.") from error
    with_adapter = bool(request.get("adapter", True))
    for piece in speaker.answer(messages, max_tokens, temperature, with_adapter, stopped.is_set):
        _write({"text": piece})
    _write({"done": True, "tokens": speaker.tokens, "seconds": round(speaker.seconds, 3)})


def _write(value: dict[str, Any]) -> None:
    _write_line(json.dumps(value, ensure_ascii=False))


def _write_line(line: str) -> None:
    print(line, flush=True)
