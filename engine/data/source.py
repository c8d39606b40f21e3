"""What a person opens: a file or a folder of them, as rows in one shape, streamed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Protocol

from engine.data.arrays import looks_like_array, read_array
from engine.data.columns import Columns, guess, parse_columns
from engine.data.documents import PASSAGE, read_passages
from engine.data.encoding import TextFile, open_bytes
from engine.data.folders import DOCUMENTS, FORMATS, TABLES, folder_parts
from engine.data.problems import Problem, note
from engine.data.read import RawLines, Row, of_file, raw_lines
from engine.data.shaping import Shaper
from engine.data.tables import read_table
from engine.data.thumbs import paired, verdict
from engine.errors import EngineError

_PEEKED_ROWS = 200
_PEEKED_BYTES = 8 * 1024**2
_STREAMED = 2048  # characters of a file's lines at a time, where rows are streamed

_INSTEAD = {
    **dict.fromkeys((".xlsx", ".xls", ".ods", ".numbers"), "Save the sheet as CSV in the program that it is from."),
    **dict.fromkeys((".gz", ".zip", ".bz2", ".xz", ".zst", ".7z", ".tar"), "Unpack it first."),
    **dict.fromkeys(
        (".docx", ".doc", ".pdf", ".rtf", ".odt", ".pages", ".html", ".epub"), "Save it as plain text (.txt)."
    ),
    **dict.fromkeys((".arrow", ".feather"), "Save the table as Parquet."),
}


class _File(Protocol):
    def tell(self) -> int: ...

    def close(self) -> None: ...


class Source:
    """Rows of one file, or of those of a folder, told apart by `Row.file`.

    `columns` maps our fields to the file's columns, as they were given or guessed from the first rows ({}: no
    shape was found). `column_names` are those of the first rows. `notes` are on the files as a whole and stand for no
    row; some are known only once all rows are read.
    """

    def __init__(self, files: tuple[Path, ...], columns: str, passage: int, is_folder: bool) -> None:
        self.files, self._passage, self._is_folder = files, passage, is_folder
        self.bytes_total = sum(_size(file) for file in files)
        self.bytes_done = 0
        self.notes = list(filter(None, map(_utf_16, files)))
        self.shaper = Shaper({}, bool(columns.strip()), is_table=files[0].suffix.lower() in TABLES)
        peeked = self._peek()
        self.column_names = tuple(dict.fromkeys(name for row in peeked for name in row.value))
        if self.shaper.are_given:
            self.shaper.columns = parse_columns(columns, self.column_names, files[0].name)
        else:
            common = Counter(self.shaper.names(row) for row in peeked).most_common(1)
            self.shaper.columns = guess(common[0][0]) if common else {}
        self._has_thumbs = self.shaper.are_given or self._are_verdicts(peeked)
        if "label" in self.columns and not self._has_thumbs:
            del self.columns["label"]

    @property
    def columns(self) -> Columns:
        return self.shaper.columns

    def rows(self) -> Iterator[Row | Problem]:
        """All rows in the files' order, streamed, in a shape that is checked; an error stands for a row.

        What has no shape comes as it is. EngineError where the disk fails.
        """
        return (row for row in self.steps() if row is not None)

    def steps(self) -> Iterator[Row | Problem | None]:
        """The same, with None each time that a row was read which comes later, with another one or as an error."""
        if "label" in self.columns:
            return paired(self._raw_rows(), self.columns, self.shaper.are_given, self._tell)
        return (row if isinstance(row, Problem) else self.shaper.shaped(row) for row in self._raw_rows())

    def portions(self, characters: int) -> Iterator[Row | Problem | RawLines | None]:
        """The steps, but lines of JSON as they are, so many characters at a time; `shaper` reads them."""
        if "label" in self.columns:
            yield from self.steps()
            return
        for one in self._raw(characters):
            yield self.shaper.shaped(one) if isinstance(one, Row) else one

    def _raw_rows(self) -> Iterator[Row | Problem]:
        for one in self._raw(_STREAMED):
            if isinstance(one, RawLines):
                yield from one.rows()
            else:
                yield one

    def _raw(self, characters: int) -> Iterator[Row | Problem | RawLines]:
        done = 0
        for path in self.files:
            file, held = _opened(path, self._passage, characters)
            with closing(file):
                try:
                    for one in held:
                        self.bytes_done = done + file.tell()
                        yield of_file(one, path.name if self._is_folder else "")
                except OSError as cause:
                    raise EngineError(
                        f"The data {path.name} can't be read on: {cause.strerror or cause}.",
                        "Copy it to this machine's disk.",
                    ) from cause
            done += _size(path)
            self.bytes_done = done

    def _tell(self, found: Problem) -> None:
        """One more of `notes`, in place of the one of the same kind that an earlier reading told."""
        self.notes = [*(one for one in self.notes if one.code != found.code), found]

    def _peek(self) -> list[Row]:
        file, held = _opened(self.files[0], self._passage, _STREAMED)
        rows = (row for one in held for row in (one.rows() if isinstance(one, RawLines) else (one,)))
        peeked = []
        with closing(file):
            for row in islice(rows, _PEEKED_ROWS):
                if isinstance(row, Row):
                    peeked.append(row)
                if file.tell() > _PEEKED_BYTES:
                    break
        return peeked

    def _are_verdicts(self, rows: list[Row]) -> bool:
        name = self.columns.get("label", "")
        return all(verdict(row.value[name]) is not None for row in rows if name in row.value)


def open_source(path: Path, columns: str = "", passage: int = PASSAGE, files: tuple[Path, ...] = ()) -> Source:
    """The rows of a file, or of a folder's files to train with (`folder_parts`), in whose place `files` can stand.

    `columns` names columns by hand, as in "prompt=question, completion=answer". `passage` is the most characters
    of a passage of a document. EngineError where a file can't be opened, is of no known format or lacks a column that
    is named.
    """
    try:
        return Source(files or folder_parts(path)[0], columns, passage, path.is_dir())
    except (OSError, ValueError) as cause:  # ValueError: a zero character in the name
        reason = cause.strerror if isinstance(cause, OSError) else cause
        raise EngineError(f"The data {path} can't be read: {reason}.", "Check its name and place.") from cause


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _utf_16(path: Path) -> Problem | None:
    if path.suffix.lower() not in FORMATS or path.suffix.lower() == ".parquet":
        return None
    with closing(TextFile(path)) as file:
        if file.encoding == "utf-8":
            return None
    return note(0, "utf_16", f"The file {path.name} is UTF-16 text and was read as that.", "Nothing needs to be done.")


def _opened(path: Path, passage: int, characters: int) -> tuple[_File, Iterator[Row | Problem | RawLines]]:
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise EngineError(
            f"The data {path.name} is not in a format that can be read.",
            _INSTEAD.get(suffix, f"Use a file that ends in one of {', '.join(FORMATS)}."),
        )
    if suffix == ".parquet":
        open_bytes(path).close()  # a pipe by that name would be waited for
        from engine.data.parquet import ParquetFile  # loading pyarrow takes 0.2 s that other files needn't wait for

        table = ParquetFile(path)
        return table, table.rows()
    file = TextFile(path)
    if suffix in TABLES:
        return file, read_table(file)
    if suffix in DOCUMENTS:
        return file, read_passages(file, passage, is_markdown=suffix != ".txt")
    is_array = looks_like_array(file.head(), name_says_json=suffix == ".json")
    return file, read_array(file) if is_array else raw_lines(file, characters)
