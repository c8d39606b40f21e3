"""Many rows to tokens at once: the short way where a row allows it, all cores for the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.data.conversation import Conversation
from engine.data.forms import Side
from engine.data.problems import Problem
from engine.data.render import Rendered, render
from engine.data.tokenize import trained_tokens
from engine.data.tokenizer import TextTokenizer


def tokenize_all(rows: Sequence[Conversation], tokenizer: TextTokenizer) -> list[Side | Problem]:
    """Each row's tokens, the same as `tokenize` gives it; a Problem where the template refuses it."""
    forms = tokenizer.forms
    found: list[Side | Problem | None] = list(forms.encode(rows)) if forms else [None] * len(rows)
    missing = [number for number, side in enumerate(found) if side is None]
    rendered: dict[int, Rendered] = {}
    for number in missing:
        text = render(rows[number], tokenizer.template)
        if isinstance(text, Problem):
            found[number] = text
        else:
            rendered[number] = text
    encoded = tokenizer.encode_all(list(rendered.values()))
    for (number, text), (ids, offsets) in zip(rendered.items(), encoded, strict=True):
        ranges = _ranges(trained_tokens(text, ids, offsets, tokenizer))
        found[number] = Side(ids.tobytes(), ranges, text.text)
    return [side for side in found if side is not None]


def _ranges(trained: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(trained, prepend=False, append=False))
    return [(int(start), int(end)) for start, end in edges.reshape(-1, 2)]
