"""Rows whose contents all stand by themselves: between the same tokens in every row of their form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spaced:
    """Contents in the order that a template writes them, of the messages `order`, and what stands between.

    `literals[i]` is the text before content i that no added token parts from it, `between[i]` are the tokens before it;
    after the last come those of the end. `trained[i]` are the bytes of the tokens behind content i that are trained
    with it, None where it isn't.
    """

    order: tuple[int, ...]
    literals: tuple[str, ...]
    between: tuple[bytes, ...]
    trained: tuple[int | None, ...]

    def parts(self, contents: Sequence[str], is_cut: Callable[[str, str], bool]) -> list[str] | None:
        """The texts to encode, None where tokens may go across the seam of a literal and a content."""
        parts = [contents[number] for number in self.order]
        return parts if all(map(is_cut, self.literals, parts)) else None

    def joined(self, parts: Sequence[bytes]) -> tuple[bytes, list[tuple[int, int]]]:
        """The row's tokens from those of its texts, and the ranges of them that are trained."""
        pieces: list[bytes] = []
        ranges: list[tuple[int, int]] = []
        size = 0
        for before, part, behind in zip(self.between, parts, self.trained, strict=False):
            pieces += (before, part)
            begins = max(1, (size + len(before)) // 4)  # nothing predicts the first token
            size += len(before) + len(part)
            if behind is not None and (size + behind) // 4 > begins:
                ranges.append((begins, (size + behind) // 4))
        pieces.append(self.between[-1])
        return b"".join(pieces), ranges
