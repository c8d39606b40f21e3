"""Data mended by what a person pressed: a new file or folder beside the old one, which stays as it is."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from engine.config import TrainConfig
from engine.data.encoding import open_bytes
from engine.data.folders import Files, folder_parts, unread
from engine.data.mending import Mending, StoppedError
from engine.data.tokenizer import TextTokenizer
from engine.data.written import written_name
from engine.errors import EngineError

CURES = {
    "skip": "Leaves out the rows that can't be used or prefer nothing",
    "trim": "Shortens rows that are too long: last turns of a chat go whole, then sentences or words from the start of "
    "the question; answers that stay are whole",
    "convert": "Writes the text as UTF-8, without control characters and halves of characters",
    "dedupe": "Keeps one of the rows that say the same, the first",
}
_PIECE = 1 << 20  # bytes that are copied at a time
_MOST_NAMES = 1000


@dataclass(frozen=True)
class Fixed:
    """The new file or folder, its rows, and how many rows of the old one were changed and left out.

    `is_renamed` says that its fields have other names than the old one's: ours. `copied` counts the files of a folder
    that stand in the new one as they were.
    """

    path: Path
    rows: int
    changed: int
    left_out: int
    is_renamed: bool = False
    copied: int = 0


def apply(
    config: TrainConfig,
    cures: Collection[str],
    tokenizer: TextTokenizer,
    output: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Fixed | None:
    """Writes the rows of the config's data, mended by `cures`, as JSON lines; None when `stop` said so.

    Rows are written in the shapes of `engine.data.check`, under our names for the fields and with their others
    (`engine.data.shapes`), which counts as no change. `output` is by default "name (fixed).jsonl" beside the data.

    Of a folder "name (fixed)" is made: the files to train with are mended as one, each into a file of its name, unless
    no row of it is left. The folder's other files of data, for validation or not read, are copied as they are. But
    where columns are named by hand those for validation are mended too, by themselves: all fields have our names then.

    `progress` is told bytes done and in all. EngineError where a file can't be read or written, where `output` exists,
    where a row can't be kept and is not to be left out, and where none is left. What is written is there complete or
    not at all.
    """
    if unknown := set(cures) - set(CURES):
        offered = " ".join(f"{cure}: {does}." for cure, does in CURES.items())
        raise EngineError(f"There is no cure called {min(unknown)!r}.", f"Choose one of these. {offered}")
    source = Path(config.data).expanduser()
    parts, others = _files(source, bool(config.columns.strip()))
    if output is not None and output.exists():
        raise _taken(output)
    names = list(_names(source)) if output is None else [output]
    mending = Mending(config, cures, tokenizer)
    sizes = [*map(mending.size, parts), *(file.stat().st_size for file in others)]
    begins = itertools.accumulate(sizes, initial=0)

    def told(begin: int, done: int) -> None:
        if stop():
            raise StoppedError
        if progress is not None:
            progress(begin + done, sum(sizes))

    with _disk_errors(names[0].parent):
        work = Path(tempfile.mkdtemp(prefix=".tunesmith-", dir=names[0].parent))
        try:
            new = work / "new"
            new.mkdir()
            for files, begin in zip(parts, begins, strict=False):
                _mend(mending, files, new, partial(told, begin))
            for file, begin in zip(others, begins, strict=False):
                _copy(file, new / file.name, partial(told, begin))
            path = _put(new if source.is_dir() else new / written_name(source.name), names)
        except StoppedError:
            return None
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return Fixed(path, mending.rows, mending.changed, mending.left_out, mending.is_renamed, len(others))


def _files(source: Path, are_columns_given: bool) -> tuple[list[Files], Files]:
    """The files that are mended together, part by part, and those that are copied. EngineError for one that is gone."""
    train, valid = folder_parts(source)
    parts = [train, valid] if valid and are_columns_given else [train]
    for file in itertools.chain(*parts):
        open_bytes(file).close()
    return parts, unread(source, itertools.chain(*parts))


def _mend(mending: Mending, files: Files, new: Path, told: Callable[[int], None]) -> None:
    before = mending.rows
    mending.write(files, new, told)
    if mending.rows == before:
        where = f" in {files[0].name}" if len(files) == 1 else ""
        raise EngineError(f"No row would be left{where}.", "Mend the data by hand, or choose other data.")


def _copy(old: Path, new: Path, told: Callable[[int], None]) -> None:
    with open_bytes(old) as source, new.open("xb") as target:
        while piece := source.read(_PIECE):
            target.write(piece)
            told(source.tell())
        target.flush()
        os.fsync(target.fileno())


def _names(source: Path) -> Iterator[Path]:
    """The names that the new data may have beside the old, the first that is free being the one."""
    source = source if source.name.strip(".") else source.resolve()  # "." and ".." name nothing
    stem, ending = (source.name, "") if source.is_dir() else (source.stem, ".jsonl")
    for number in range(1, _MOST_NAMES):
        counted = f" {number}" if number > 1 else ""
        yield source.parent / f"{stem} (fixed{counted}){ending}"


def _put(written: Path, names: Sequence[Path]) -> Path:
    """Moves a file or a folder to the first of these names that is free."""
    make, unmake = (Path.mkdir, Path.rmdir) if written.is_dir() else (_make_file, Path.unlink)
    for path in names:
        try:
            make(path)  # the name is ours before anything moves there
        except FileExistsError:
            continue
        try:
            written.replace(path)
        except OSError:
            unmake(path)
            raise
        return path
    raise _taken(names[0])


def _make_file(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o644))


def _taken(path: Path) -> EngineError:
    return EngineError(f"{path} is there already.", "Choose another name: nothing is ever overwritten.")


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as cause:
        raise EngineError(
            f"The mended data can't be written to {folder}: {cause.strerror or cause}.",
            "Make room on the disk, or choose another place for it (output).",
            kind="disk",
        ) from cause
