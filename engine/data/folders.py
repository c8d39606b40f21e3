"""Files of data in a folder: which are trained and which are kept for validation."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from engine.data.problems import Problem, note
from engine.errors import EngineError

JSON = (".jsonl", ".ndjson", ".json")
TABLES = (".csv", ".tsv")
DOCUMENTS = (".txt", ".md", ".markdown")
FORMATS = (*JSON, *TABLES, ".parquet", *DOCUMENTS)

_TRAIN = ("train",)
_VALID = (("valid", "val", "dev", "eval"), ("test",))
_ABOUT = ("readme", "license", "licence", "changelog", "dataset_info", "requirements")
_MOST_NAMED = 8

Files = tuple[Path, ...]


def folder_parts(path: Path) -> tuple[Files, Files]:
    """The files to train with and those for validation, by name: valid..., else test....

    A file that is no folder is trained alone. In a folder, or else in its folder `data`, the files to train with are
    those named train..., or where there is none all that have no part's name. EngineError where there are none, or
    where they are of several kinds.
    """
    if not path.is_dir():
        return (path,), ()
    files = _data_files(path) or _data_files(path / "data")
    if (path / "config.json").exists():
        raise EngineError(f"The folder {path} is a model's, not one of data.", "Choose the folder with your data.")
    train = _named(files, _TRAIN)
    valid = next(filter(None, (_named(files, names) for names in _VALID)), ())
    if not train:
        parts = {file for names in _VALID for file in _named(files, names)}
        train = tuple(file for file in files if file not in parts)
    if not train:
        raise EngineError(
            f"The folder {path} has no file to train with.",
            f"Put a file named train into it, such as train.jsonl. Files are read that end in {', '.join(FORMATS)}.",
        )
    if len(kinds := sorted({file.suffix.lower() for file in train})) > 1:
        raise EngineError(
            f"The folder {path} has files of several kinds to train with: {', '.join(kinds)}.",
            "Choose one of the files, or leave one kind in the folder.",
        )
    return train, valid


def unread(path: Path, read: Iterable[Path]) -> Files:
    """The files of a folder of data that are not among those `read`; none where `path` is no folder."""
    if not path.is_dir():
        return ()
    known = {file.resolve() for file in read}
    return tuple(file for file in _data_files(path) or _data_files(path / "data") if file.resolve() not in known)


def unread_note(files: Files, has_valid: bool) -> Problem:
    """Names the files that are `unread`. `has_valid` says that a file to measure with was chosen by hand."""
    named = [file.name for file in files[:_MOST_NAMED]]
    last = f"{len(files) - _MOST_NAMED:,} more" if len(files) > _MOST_NAMED else named.pop()
    names = " and ".join(filter(None, (", ".join(named), last)))
    count = "1 file of the folder is" if len(files) == 1 else f"{len(files):,} files of the folder are"
    measured = "take the chosen validation file out" if has_valid else "begin its name with valid"
    return note(
        0,
        "not_read",
        f"{count} not read: {names}.",
        f"Begin a file's name with train to train with it too; to measure with one, {measured}.",
    )


def _data_files(folder: Path) -> Files:
    try:
        files = sorted(folder.iterdir()) if folder.is_dir() else []
    except OSError as cause:
        raise EngineError(
            f"The folder {folder} can't be read: {cause.strerror}.", "Check your rights to it."
        ) from cause
    return tuple(
        file
        for file in files
        if file.suffix.lower() in FORMATS
        and file.is_file()
        and not file.name.startswith(".")
        and not file.stem.lower().startswith(_ABOUT)
    )


def _named(files: Files, names: tuple[str, ...]) -> Files:
    """The files whose names are one of `names`, alone or before what is no letter: train-00001, validation_1."""
    return tuple(file for file in files if _part(file) in names)


def _part(file: Path) -> str:
    stem = file.stem.lower()
    letters = "".join(character if character.isalpha() else " " for character in stem).split()
    first = letters[0] if letters and stem[0].isalpha() else ""
    return {"training": "train", "validation": "valid"}.get(first, first)
