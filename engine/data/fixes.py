"""Data mended by what a person pressed: a new file beside the old one, which stays as it is."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine.config import TrainConfig
from engine.data.encoding import open_bytes
from engine.data.mending import Mending, StoppedError
from engine.data.tokenizer import TextTokenizer
from engine.errors import EngineError

CURES = {
    "skip": "Leaves out the rows that can't be used or prefer nothing",
    "trim": "Shortens rows that are too long: last turns of a chat go whole, then sentences or words from the start of "
    "the question; answers that stay are whole",
    "convert": "Writes the text as UTF-8, without control characters and halves of characters",
    "dedupe": "Keeps one of the rows that say the same, the first",
}
_WRITTEN = ".written"


@dataclass(frozen=True)
class Fixed:
    """The new file, its rows, and how many rows of the old one were changed and left out.

    `is_renamed` says that its fields have other names than the old one's: ours.
    """

    path: Path
    rows: int
    changed: int
    left_out: int
    is_renamed: bool = False


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
    (`engine.data.shapes`), which counts as no change. `output` is by default
    "name (fixed).jsonl" beside the data. `progress` is told bytes done and in all. EngineError where the file can't
    be read or written, where `output` exists, where a row can't be kept and is not to be left out, and where none
    is left. What is written is there complete or not at all.
    """
    if unknown := set(cures) - set(CURES):
        offered = " ".join(f"{cure}: {does}." for cure, does in CURES.items())
        raise EngineError(f"There is no cure called {min(unknown)!r}.", f"Choose one of these. {offered}")
    source = Path(config.data).expanduser()
    open_bytes(source).close()
    wanted = _given(source, output)
    folder = wanted.parent
    with _disk_errors(folder):
        work = Path(tempfile.mkdtemp(prefix=".tunesmith-", dir=folder))
        try:
            mending = Mending(config, cures, tokenizer, progress, stop)
            with (work / _WRITTEN).open("w", encoding="utf-8", newline="\n") as file:
                mending.write(source, work, file)
                file.flush()
                os.fsync(file.fileno())
            if not mending.rows:
                raise EngineError("No row would be left.", "Mend the file by hand, or choose another one.")
            path = _put(work / _WRITTEN, wanted, numbered=output is None)
        except StoppedError:
            return None
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return Fixed(path, mending.rows, mending.changed, mending.left_out, mending.is_renamed)


def _given(source: Path, output: Path | None) -> Path:
    if output is None:
        return source.with_name(f"{source.stem} (fixed).jsonl")
    if output.exists():
        raise EngineError(f"{output} is there already.", "Choose another name: nothing is ever overwritten.")
    return output


def _put(written: Path, wanted: Path, numbered: bool) -> Path:
    """Moves the file to its name; where that is taken and may be `numbered`, to the first one that is free."""
    for number in range(1, 1000):
        path = wanted if number == 1 else wanted.with_stem(f"{wanted.stem[:-1]} {number})")
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o644))  # the name is ours before anything moves there
        except FileExistsError:
            if not numbered:
                break
            continue
        try:
            written.replace(path)
        except OSError:
            path.unlink()
            raise
        return path
    raise EngineError(f"{wanted} is there already.", "Choose another name: nothing is ever overwritten.")


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
