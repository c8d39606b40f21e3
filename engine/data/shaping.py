"""Rows of a file in one shape, by the columns that were found or chosen for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from engine.data.columns import Columns, guess
from engine.data.conversation import Conversation
from engine.data.plain import plain_row
from engine.data.problems import Problem
from engine.data.read import RawLines, Row
from engine.data.shapes import canonical

_MAX_GUESSES = 1024  # a row can have names of its own

# Rows in a shape that is checked, or the lines that they are still in.
Held = Sequence[Row | Problem] | RawLines


@dataclass
class Shaper:
    """`columns` maps our fields to the file's columns. Rows that differ are guessed by their own names, unless the
    columns `are_given`. In a table an empty cell is nothing.
    """

    columns: Columns
    are_given: bool
    is_table: bool
    _guesses: dict[tuple[str, ...], Columns] = field(default_factory=dict, init=False, repr=False, compare=False)

    def rows(self, held: Held, may_be_plain: bool = False) -> Sequence[Row | Problem | Conversation]:
        """The rows of a file's lines in such a shape; rows as they are: they have theirs.

        Where they `may_be_plain`, what the plainest say, which needs no check.
        """
        if not isinstance(held, RawLines):
            return held
        found: list[Row | Problem | Conversation] = []
        for one in held.lines():
            if isinstance(one, Problem):
                found.append(one)
                continue
            row = (may_be_plain and plain_row(*one, self.columns)) or held.row(*one)
            found.append(self.shaped(row) if isinstance(row, Row) else row)
        return found

    def shaped(self, row: Row) -> Row | Problem:
        """The row in a shape that is checked; as it is where it has none."""
        columns = self.columns if self.are_given else self._columns_of(row)
        if self.is_table and columns and "" in row.value.values():
            held = {name: cell for name, cell in row.value.items() if cell or name in columns.values()}
            row = replace(row, value=held)
        return canonical(row, columns)

    def names(self, row: Row) -> tuple[str, ...]:
        """The names of the fields that hold something: a table has no other sign for nothing than an empty cell."""
        if self.is_table:
            return tuple([name for name, value in row.value.items() if value is not None and value != ""])
        return tuple([name for name, value in row.value.items() if value is not None])

    def _columns_of(self, row: Row) -> Columns:
        names = self.names(row)
        if names not in self._guesses:
            if len(self._guesses) >= _MAX_GUESSES:
                self._guesses.clear()
            self._guesses[names] = guess(names) or guess(row.value) or self.columns
        return self._guesses[names]
