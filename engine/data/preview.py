"""Rows as the model sees them, token by token."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.data.check import examine
from engine.data.dataset import cut_warning
from engine.data.problems import Problem
from engine.data.read import numbered_lines, open_data, parse_line
from engine.data.render import Rendered, render
from engine.data.tokenize import Example, cut_to, tokenize_rendered
from engine.data.tokenizer import TextTokenizer
from engine.errors import EngineError

MAX_RAW_CHARACTERS = 10_000  # of a line that is no row


def preview(path: Path, tokenizer: TextTokenizer, max_length: int, row: int) -> dict[str, Any]:
    """What `preview --json` prints for a row, counted from 1 without blank lines; EngineError if there is
    none.
    """
    found = preview_rows(path, tokenizer, max_length, row, count=1)
    if not found:
        raise EngineError(f"The data has no row {row:,}.", "Rows count from 1; choose one that there is.")
    return found[0]


def preview_rows(path: Path, tokenizer: TextTokenizer, max_length: int, row: int, count: int) -> list[dict[str, Any]]:
    """Up to `count` rows from `row` on. The others are counted, not parsed."""
    found, rows = [], 0
    with open_data(path) as file:
        for line, raw in numbered_lines(file):
            rows += 1
            if row <= rows < row + count:
                found.append({"line": line, "row": rows, **_preview_line(line, raw, tokenizer, max_length)})
    return [{**shown, "rows": rows} for shown in found]


def _preview_line(line: int, raw: bytes, tokenizer: TextTokenizer, max_length: int) -> dict[str, Any]:
    parsed = parse_line(line, raw)
    conversation = parsed if isinstance(parsed, Problem) else examine(parsed)
    rendered = conversation if isinstance(conversation, Problem) else render(conversation, tokenizer.template)
    if isinstance(rendered, Problem):
        text = raw[: 4 * MAX_RAW_CHARACTERS].decode("utf-8", "replace")[:MAX_RAW_CHARACTERS].strip()
        return {"text": text, "tokens": [], "problem": asdict(rendered)}
    example = tokenize_rendered(rendered, line, tokenizer)
    kept = cut_to(example, max_length)
    problem = kept if isinstance(kept, Problem) else cut_warning(kept) if kept.cut else None
    return _shown(rendered, example, tokenizer, max_length, problem)


def _shown(
    rendered: Rendered,
    example: Example,
    tokenizer: TextTokenizer,
    max_length: int,
    problem: Problem | None,
) -> dict[str, Any]:
    ids = example.ids.tolist()
    targets = zip(ids, tokenizer.pieces(ids), example.trained.tolist(), strict=True)
    tokens = [
        {
            "id": number,
            "text": piece,
            "trained": target and place < max_length,
            "part": "response" if target else "prompt",
            "cut": place >= max_length,
        }
        for place, (number, piece, target) in enumerate(targets)
    ]
    return {"text": rendered.text, "tokens": tokens, "problem": problem and asdict(problem)}
