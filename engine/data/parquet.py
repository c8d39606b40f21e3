"""Parquet files: rows in batches, nested lists of structs as lists of objects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from engine.data.problems import Problem, error
from engine.data.read import Row
from engine.errors import EngineError

_BATCH_ROWS = 256


class ParquetFile:
    """A Parquet file, open. A row's "line" is its number, counted from 1."""

    def __init__(self, path: Path) -> None:
        try:
            # Without buffering ahead: a row group may be as large as the file.
            self._file = pq.ParquetFile(path, pre_buffer=False)
        except (pa.ArrowException, OSError) as cause:
            raise EngineError(
                f"The data {path.name} is no whole Parquet file: {_reason(cause)}.",
                "Copy or write it again; a part may be missing.",
            ) from cause
        self._size, self._done = path.stat().st_size, 0
        self._rows: int = self._file.metadata.num_rows

    def rows(self) -> Iterator[Row | Problem]:
        """The rows, streamed. Where a group of rows is broken each row from there to its end is a Problem."""
        end = 0
        for group in range(self._file.num_row_groups):
            end += self._file.metadata.row_group(group).num_rows
            try:
                for batch in self._file.iter_batches(_BATCH_ROWS, row_groups=[group], use_threads=False):
                    yield from self._of_batch(batch)
            except (pa.ArrowException, OSError) as cause:
                for line in range(self._done + 1, end + 1):
                    yield _lost(line, cause)
                self._done = end

    def _of_batch(self, batch: pa.RecordBatch) -> Iterator[Row | Problem]:
        try:
            values = batch.to_pylist()
        except (ValueError, OverflowError):  # which row it is shows one by one
            values = batch.to_struct_array()
        for value in values:
            self._done += 1
            yield Row(self._done, value) if isinstance(value, dict) else _row(self._done, value)

    def tell(self) -> int:
        """The bytes read so far, by the share of the rows."""
        return self._size * self._done // max(self._rows, 1)

    def close(self) -> None:
        self._file.close()


def _row(line: int, row: Any) -> Row | Problem:
    try:
        return Row(line, row.as_py())
    except (ValueError, OverflowError) as cause:  # bytes that are no UTF-8; a date that Python has none for
        what = "text that is not UTF-8" if isinstance(cause, UnicodeDecodeError) else "a value that can't be read"
        return error(line, "encoding", f"Row {line} holds {what}.", "Write the table again with texts in UTF-8.")


def _lost(line: int, cause: Exception) -> Problem:
    return error(
        line,
        "broken_parquet",
        f"Row {line} can't be read: {_reason(cause)}.",
        "Copy or write the file again; a part may be missing.",
    )


def _reason(cause: Exception) -> str:
    return str(cause).splitlines()[0].rstrip(". ")[:200] if str(cause) else type(cause).__name__
