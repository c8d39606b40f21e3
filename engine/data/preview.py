"""Rows as the model sees them, token by token."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.data.check import examine
from engine.data.conversation import Comparison
from engine.data.problems import Problem
from engine.data.read import numbered_lines, open_data, parse_line
from engine.data.remarks import remarks
from engine.data.render import Rendered, render
from engine.data.tokenize import Example, Pair, cut_to, tokenize_rendered
from engine.data.tokenizer import TextTokenizer
from engine.errors import EngineError

MAX_RAW_CHARACTERS = 10_000  # of a line that is no row


def preview(
    path: Path, tokenizer: TextTokenizer, max_length: int, row: int, objective: str = "sft", sft_scope: str = "full"
) -> dict[str, Any]:
    """What `preview --json` prints for a row, counted from 1 without blank lines; EngineError if there is
    none.
    """
    found = preview_rows(path, tokenizer, max_length, row, 1, objective, sft_scope)
    if not found:
        raise EngineError(f"The data has no row {row:,}.", "Rows count from 1; choose one that there is.")
    return found[0]


def preview_rows(
    path: Path,
    tokenizer: TextTokenizer,
    max_length: int,
    row: int,
    count: int,
    objective: str = "sft",
    sft_scope: str = "full",
) -> list[dict[str, Any]]:
    """Up to `count` rows from `row` on. The others are counted, not parsed.

    A pair's tokens are the prompt, the chosen response and the rejected one. Where the two sides write their
    prompt in different tokens, the rejected side's prompt comes again before its response. ORPO learns the
    prompts of chosen rows too unless `sft_scope` is "response".
    """
    show = _Preview(tokenizer, max_length, objective, learns_prompts=objective == "orpo" and sft_scope == "full")
    found, rows = [], 0
    with open_data(path) as file:
        for line, raw in numbered_lines(file):
            rows += 1
            if row <= rows < row + count:
                found.append({"line": line, "row": rows, **show.line(line, raw)})
    return [{**shown, "rows": rows} for shown in found]


@dataclass(frozen=True)
class _Preview:
    """How rows are shown."""

    tokenizer: TextTokenizer
    max_length: int
    objective: str
    learns_prompts: bool

    def line(self, line: int, raw: bytes) -> dict[str, Any]:
        rendered = self._rendered(line, raw)
        if isinstance(rendered, Problem):
            text = raw[: 4 * MAX_RAW_CHARACTERS].decode("utf-8", "replace")[:MAX_RAW_CHARACTERS].strip()
            return {"text": text, "tokens": [], "problem": asdict(rendered)}
        sides = [tokenize_rendered(side, line, self.tokenizer) for side in rendered]
        item = sides[0] if len(sides) == 1 else Pair(line, *sides)
        kept = cut_to(item, self.max_length)
        problem = kept if isinstance(kept, Problem) else next(iter(remarks(kept)), None)
        tokens = self._pair(item) if isinstance(item, Pair) else self._row(item)
        if isinstance(kept, Problem):
            tokens = [{**token, "trained": False} for token in tokens]
        return {"text": rendered[0].text, "tokens": tokens, "problem": problem and asdict(problem)}

    def _rendered(self, line: int, raw: bytes) -> list[Rendered] | Problem:
        """The row's text, of a pair that of both sides."""
        parsed = parse_line(line, raw)
        row = parsed if isinstance(parsed, Problem) else examine(parsed, self.objective)
        if isinstance(row, Problem):
            return row
        texts = []
        for side in (row.chosen, row.rejected) if isinstance(row, Comparison) else (row,):
            text = render(side, self.tokenizer.template)
            if isinstance(text, Problem):
                return text
            texts.append(text)
        return texts

    def _row(self, example: Example) -> list[dict[str, Any]]:
        return self._tokens(
            example, ["response" if target else "prompt" for target in example.trained], example.trained
        )

    def _pair(self, pair: Pair) -> list[dict[str, Any]]:
        chosen, rejected = pair.chosen.trained, pair.rejected.trained
        if self.learns_prompts:
            chosen = chosen.copy()
            chosen[1 : _prompt_length(pair.chosen)] = True
        better = self._tokens(pair.chosen, _parts(pair.chosen, "chosen"), chosen)
        worse = self._tokens(pair.rejected, _parts(pair.rejected, "rejected"), rejected)
        return better + worse[pair.shared :]

    def _tokens(self, example: Example, parts: list[str], learned: npt.NDArray[np.bool_]) -> list[dict[str, Any]]:
        ids = example.ids.tolist()
        pieces = self.tokenizer.pieces(ids)
        return [
            {
                "id": number,
                "text": piece,
                "trained": target and place < self.max_length,
                "part": part,
                "cut": place >= self.max_length,
                "special": number in self.tokenizer.special_ids,
            }
            for place, (number, piece, part, target) in enumerate(
                zip(ids, pieces, parts, learned.tolist(), strict=True)
            )
        ]


def _prompt_length(side: Example) -> int:
    return int(side.trained.argmax()) if side.trained.any() else side.length


def _parts(side: Example, response: str) -> list[str]:
    """From its first trained token on all is the response: also a template's marks between and after its turns."""
    prompt = _prompt_length(side)
    return ["prompt"] * prompt + [response] * (side.length - prompt)
