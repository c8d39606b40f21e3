"""Answers from a model, with its adapter or without: by mlx-lm's generation, token by token."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

from engine.backend import mx
from engine.data import Message, load_tokenizer
from engine.models.adapter import load_adapter, without_adapter
from engine.models.find import find_model
from engine.models.load import load_stack

from mlx_lm.generate import generate_step
from mlx_lm.sample_utils import make_sampler


class Speaker:
    """A model in memory that answers. `adapter` is a folder with an adapter to put on it."""

    def __init__(self, model: str, adapter: Path | None, tell: Callable[[str], None] = lambda message: None) -> None:
        folder = find_model(model, tell)
        self.tokenizer = load_tokenizer(folder.path)
        self.model = load_stack(folder).model
        if adapter is not None:
            load_adapter(self.model, adapter)
        self.model.eval()
        self.tokens = 0  # of the latest answer
        self.seconds = 0.0

    def answer(
        self,
        messages: list[Message],
        max_tokens: int = 256,
        temperature: float = 0.0,
        with_adapter: bool = True,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[str]:
        """Pieces of the answer as they come, never half a character. Ends at the end of turn or `max_tokens`."""
        prompt = mx.array(self.tokenizer.prompt_ids(messages))
        decoder = self.tokenizer.stream()
        begun, self.tokens = time.perf_counter(), 0
        with nullcontext() if with_adapter else without_adapter(self.model):
            steps = generate_step(prompt, self.model, max_tokens=max_tokens, sampler=make_sampler(temperature))
            for token, _ in steps:
                if int(token) in self.tokenizer.eos_ids or stop():
                    break
                self.tokens += 1
                if piece := decoder.add(int(token)):
                    yield piece
            if piece := decoder.finish():
                yield piece
        self.seconds = time.perf_counter() - begun
