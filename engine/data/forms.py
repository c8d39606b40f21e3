"""Rows of one shape to token ids without rendering each: their template's text is laid out once.

Where the template takes contents as plain slots (`slots`) and pieces of a text have the tokens of the whole (`pieces`),
a row's tokens are its layout's special tokens and the pieces between them. The result is that of `tokenize`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from engine.data.conversation import Conversation
from engine.data.cuts import SPACE_SIGN
from engine.data.pieces import NEAR, PieceEncoder
from engine.data.slots import Layout, plain_layout
from engine.data.spaced import Spaced
from engine.data.specials import names_pattern
from engine.data.template import ChatTemplate

_MAX_FORMS = 4096  # sequences of roles, and what of them is learned
_MAX_CUTS = 100_000
_BLANK = " \n\t" + SPACE_SIGN
_REASONING = frozenset({"<think>", "</think>"})  # `render` follows what stands between them


class Side(NamedTuple):
    """A conversation at its full length: int32 ids, the ranges of them that are trained, and its text."""

    ids: bytes
    ranges: Sequence[tuple[int, int]]
    text: str


class _Planned(NamedTuple):
    """A stretch of one row: `head`, a text or two with `joint` between them, `token`.

    A trained range begins after the head, or after the joint's first characters.
    """

    head: bytes
    joint: tuple[str, int] | None
    token: bytes
    is_trained: bool


class _Stretch(NamedTuple):
    """Text up to the next added token: literals, and message numbers where contents stand. `token` is b"" at the end.

    The first part is a literal, "" if need be; `apart` is how the stretch is planned where it is a text of its own,
    None if it never is. A trained range begins at `seam` of the parts, -1 for none, and lasts until after `token`.
    """

    parts: tuple[str | int, ...]
    token: bytes
    seam: int
    apart: _Planned | None


class _Plan(NamedTuple):
    """A row's text and its stretches; of those without contents the tokens. `parts` are the texts of the others."""

    text: str
    parts: list[str]
    stretches: list[_Planned | bytes] | Spaced


@dataclass(frozen=True)
class _Form:
    """Rows of one sequence of roles and the same of them to learn.

    `spaced` where every content can be a text of its own.
    """

    layout: Layout
    stretches: tuple[_Stretch | bytes, ...]
    spaced: Spaced | None


class FormEncoder:
    """Tokens of rows that are known to be plain; None for all others.

    `added` are the tokenizer's added tokens, `bos` what stands before a plain text.
    """

    def __init__(
        self, template: ChatTemplate, pieces: PieceEncoder, added: Mapping[str, int], bos: Sequence[int]
    ) -> None:
        self._template, self._pieces = template, pieces
        self._bos = np.array(bos, np.int32).tobytes()
        self._tokens = {name: np.array([number], np.int32).tobytes() for name, number in added.items()}
        # Names of whitespace alone are found in pieces, as other text is.
        self._added = re.compile(f"({names_pattern(name for name in added if name.strip(_BLANK)).pattern})")
        self._forms: dict[tuple[tuple[str, ...], int, tuple[bool, ...]], _Form | None] = {}
        self._cuts: dict[tuple[str, str], bool] = {}

    def encode(self, rows: Sequence[Conversation]) -> list[Side | None]:
        """Each row at its full length."""
        plans = self._plans(rows)
        encoded = iter(self._pieces.encode([part for plan in plans if plan for part in plan.parts]))
        return [self._side(plan, list(itertools.islice(encoded, len(plan.parts)))) if plan else None for plan in plans]

    def _plans(self, rows: Sequence[Conversation]) -> list[_Plan | None]:
        # What no text holds is in none of them.
        whole = "\0".join([message.content for row in rows for message in row.messages])
        held: dict[frozenset[str], list[str]] = {}

        def held_of(absent: frozenset[str]) -> list[str]:
            if absent not in held:
                held[absent] = [word for word in absent if word in whole]
            return held[absent]

        return [self._plan(row, held_of) for row in rows]

    def _plan(self, row: Conversation, held_of: Callable[[frozenset[str]], list[str]]) -> _Plan | None:
        if row.kind == "text":
            return self._text_plan(row.text)
        roles, contents, calls, results, silent = zip(*row.messages, strict=True)
        if row.tools or any(calls) or any(results):
            return None
        form = self._form(row, roles, silent)
        if form is None or not form.layout.fits(contents, held_of(form.layout.absent)):
            return None
        text = form.layout.text(contents)
        if form.spaced and (spaced := form.spaced.parts(contents, self._is_cut)) is not None:
            return _Plan(text, spaced, form.spaced)
        parts: list[str] = []
        stretches = [one if isinstance(one, bytes) else self._planned(one, contents, parts) for one in form.stretches]
        return _Plan(text, parts, stretches)

    def _text_plan(self, text: str) -> _Plan | None:
        """A plain text is trained whole, with the end-of-text token behind it."""
        end = self._template.eos_token
        if self._added.search(text) or (end and end not in self._tokens):
            return None
        return _Plan(text + end, [text], [_Planned(self._bos, None, self._tokens.get(end, b""), is_trained=True)])

    def _side(self, plan: _Plan, parts: Sequence[bytes | None]) -> Side | None:
        """The row's tokens from those of its parts; None where a part names a special token."""
        if isinstance(plan.stretches, Spaced):
            whole = [part for part in parts if part is not None]
            return Side(*plan.stretches.joined(whole), plan.text) if len(whole) == len(parts) else None
        pieces: list[bytes] = []
        ranges: list[tuple[int, int]] = []
        size = 0
        waiting = iter(parts)
        for stretch in plan.stretches:
            if isinstance(stretch, bytes):
                pieces.append(stretch)
                size += len(stretch)
                continue
            head, joint, token, is_trained = stretch
            if (first := next(waiting)) is None:
                return None
            begins = size + len(head)
            pieces += (head, first)
            size = begins + len(first)
            if joint is not None:
                seam, after = self._pieces.encode_seam(*joint), next(waiting)
                if seam is None or after is None:
                    return None
                pieces += (seam[0], after)
                begins = size + 4 * seam[1]
                size += len(seam[0]) + len(after)
            pieces.append(token)
            size += len(token)
            begins = max(1, begins // 4)  # nothing predicts the first token
            if is_trained and size // 4 > begins:
                ranges.append((begins, size // 4))
        return Side(b"".join(pieces), ranges, plan.text)

    def _form(self, row: Conversation, roles: tuple[str, ...], silent: tuple[bool, ...]) -> _Form | None:
        key = roles, row.context, silent
        if key not in self._forms:
            if len(self._forms) >= _MAX_FORMS:
                self._forms.clear()
            self._forms[key] = self._new_form(roles, row.answers)
        return self._forms[key]

    def _new_form(self, roles: tuple[str, ...], answers: tuple[int, ...]) -> _Form | None:
        template = self._template
        try:
            layout = plain_layout(template.environment, template.source, template.values(), roles)
        except Exception:  # noqa: BLE001  a template can raise anything; `render` tells what of each row
            return None
        if sorted(layout.order) != list(range(len(roles))) or not template.ends <= self._tokens.keys():
            return None
        stretches = [self._stretch(parts, name, answers) for parts, name in self._cut(layout)]
        merged: list[_Stretch | bytes] = []
        for stretch in stretches:
            if stretch is None:
                return None
            last = merged[-1] if merged else None
            if isinstance(stretch, bytes) and isinstance(last, bytes):
                merged[-1] = last + stretch
            else:
                merged.append(stretch)
        return _Form(replace(layout, absent=layout.absent | _REASONING), tuple(merged), _spaced(merged))

    def _cut(self, layout: Layout) -> list[tuple[list[str | int], str]]:
        """The layout's parts between added tokens, each with the name of the token after it."""
        stretches: list[tuple[list[str | int], str]] = []
        parts: list[str | int] = []
        for literal, number in itertools.zip_longest(layout.literals, layout.order):
            for place, piece in enumerate(self._added.split(literal)):
                if place % 2:
                    stretches.append((parts, piece))
                    parts = []
                elif piece:
                    parts.append(piece)
            if number is not None:
                parts.append(number)
        return [*stretches, (parts, "")]

    def _stretch(self, parts: list[str | int], name: str, answers: Collection[int]) -> _Stretch | bytes | None:
        """The stretch, its tokens if it has no contents; None where offsets alone tell where its answer ends."""
        first = next((place for place, part in enumerate(parts) if isinstance(part, int)), len(parts))
        literal, rest = "".join(map(str, parts[:first])), parts[first:]
        seams = [place for place, part in enumerate(rest, 1) if part in answers]
        if seams:
            behind = "".join([str(part) for part in rest[seams[0] :]])
            if len(seams) > 1 or behind.strip() or (name not in self._template.ends if name else behind):
                return None
        token = self._tokens.get(name, b"")
        (head,) = self._pieces.encode([literal])
        if not rest:
            return None if head is None else head + token  # None for a special token of whitespace
        seam = seams[0] if seams else -1
        apart = None if head is None or seam > 1 else _Planned(head, None, token, is_trained=seam == 1)
        return _Stretch((literal, *rest), token, seam, apart)

    def _planned(self, stretch: _Stretch, contents: Sequence[str], parts: list[str]) -> _Planned:
        """The stretch of a row; its texts come to `parts`."""
        texts = [contents[part] if isinstance(part, int) else part for part in stretch.parts]
        literal, rest = texts[0], "".join(texts[1:])
        if stretch.apart and self._is_cut(literal, rest):
            parts.append(rest)
            return stretch.apart
        if stretch.seam < 0:
            parts.append(literal + rest)
            return _Planned(b"", None, stretch.token, is_trained=False)
        before, after = "".join(texts[: stretch.seam]), "".join(texts[stretch.seam :])
        # Tokens may go across the seam: the pieces on both sides are taken as one.
        begin, end = self._pieces.joint(before, after)
        parts += (before[:begin], after[end:])
        joint = before[begin:] + after[:end], len(before) - begin
        return _Planned(b"", joint, stretch.token, is_trained=True)

    def _is_cut(self, literal: str, text: str) -> bool:
        """Whether the text after a literal is a text of its own for sure."""
        seam = literal, text[:NEAR]
        known = self._cuts.get(seam)
        if known is None:
            if len(self._cuts) >= _MAX_CUTS:
                self._cuts.clear()
            known = self._cuts[seam] = not literal or self._pieces.is_cut(literal, text)
        return known


def _spaced(stretches: Sequence[_Stretch | bytes]) -> Spaced | None:
    """What all rows of these stretches have in common where their contents are texts of their own; None else."""
    order, literals, between, trained = list[int](), list[str](), [b""], list[int | None]()
    for stretch in stretches:
        if isinstance(stretch, bytes):
            between[-1] += stretch
            continue
        literal, *rest = stretch.parts
        if stretch.apart is None or len(rest) != 1 or not isinstance(rest[0], int):
            return None
        order.append(rest[0])
        literals.append(str(literal))
        between[-1] += stretch.apart.head
        trained.append(len(stretch.token) if stretch.apart.is_trained else None)
        between.append(stretch.token)
    return Spaced(tuple(order), tuple(literals), tuple(between), tuple(trained))
