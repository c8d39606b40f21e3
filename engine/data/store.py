"""Tokens on disk: a data file's rows at full length, as flat arrays that are mapped into memory, never read whole.

A store is a folder in the cache: `meta.json` and a file of raw numbers for each array. It is written under another
name and renamed when whole. What is damaged counts as missing.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt

from engine.data.blocks import Block
from engine.data.cache import cache_folder, in_the_making, make_room, remove
from engine.errors import EngineError

MAX_CACHE_BYTES = 4 * 1024**3  # of all stores together; those not used for longest go first

_ARRAYS = {
    "ids": np.int32,
    "ends": np.int64,
    "ranges": np.int32,
    "range_ends": np.int64,
    "texts": np.uint8,
    "text_ends": np.int64,
    "common": np.int32,
    "numbers": np.int32,
    "prompts": np.uint8,
    "contents": np.uint8,
    "lines": np.int32,
}
_BUFFER_BYTES = 1024**2
_META = "meta.json"


@dataclass(frozen=True)
class Store:
    """The rows of a file that could be rendered, each of one side or, where `meta["pairs"]`, of two: chosen, rejected.

    Side s has the tokens `ids[ends[s] : ends[s + 1]]`, the UTF-8 text `texts[text_ends[s] : text_ends[s + 1]]` and
    trains the tokens `ranges[range_ends[s] : range_ends[s + 1]]`, starts and ends counted from its first one.
    Row r is number `numbers[r]` of the file, from 0 on; both sides of a pair begin with the same `common[r]` tokens.
    `prompts` and `contents` [rows, 16] are the same for rows of the same prompt and the same words.
    `lines` are those of all rows of the file, also of such that could not be rendered.
    """

    ids: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int64]
    ranges: npt.NDArray[np.int32]
    range_ends: npt.NDArray[np.int64]
    texts: npt.NDArray[np.uint8]
    text_ends: npt.NDArray[np.int64]
    common: npt.NDArray[np.int32]
    numbers: npt.NDArray[np.int32]
    prompts: npt.NDArray[np.uint8]
    contents: npt.NDArray[np.uint8]
    lines: npt.NDArray[np.int32]
    meta: dict[str, Any]

    @property
    def sides(self) -> int:
        """Sides of a row: 1 or 2."""
        return 2 if self.meta["pairs"] else 1

    def text(self, side: int) -> str:
        """What the model reads of a side, at its full length."""
        return self.texts[self.text_ends[side] : self.text_ends[side + 1]].tobytes().decode()


class StoreWriter:
    """A store in the making. Use it as a context: what was not kept by then is gone, except to those who have it open.

    EngineError(kind="disk") where the disk refuses.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._files: dict[str, BinaryIO] = {}
        self._ends = dict.fromkeys(("ends", "range_ends", "text_ends"), 0)
        self._rows = 0

    def __enter__(self) -> Self:
        try:
            self._folder = self._stack.enter_context(in_the_making())
            for name in _ARRAYS:
                self._files[name] = (self._folder / name).open("wb", _BUFFER_BYTES)
            for name in self._ends:
                self._files[name].write(bytes(8))
        except OSError as cause:
            self._stack.close()
            raise _refusal(cause) from cause
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            try:
                file.close()
            except OSError:
                continue  # a full disk refuses the buffer once more; the folder goes anyway
        self._stack.close()

    def add(self, block: Block) -> None:
        """The next rows of the data."""
        self._write("numbers", np.frombuffer(block.numbers, np.int32) + np.int32(self._rows))
        self._rows += block.rows
        for name, sizes in (("ends", block.sizes), ("range_ends", block.range_sizes), ("text_ends", block.text_sizes)):
            ends = self._ends[name] + np.cumsum(np.frombuffer(sizes, np.int32), dtype=np.int64)
            self._ends[name] = int(ends[-1]) if len(ends) else self._ends[name]
            self._write(name, ends)
        for name in ("lines", "common", "ranges", "prompts", "contents", "ids", "texts"):
            self._write(name, getattr(block, name))

    def finish(self, meta: dict[str, Any], key: str | None) -> Store:
        """The store, kept under `key` if one is given."""
        try:
            for file in self._files.values():
                file.close()
            sizes = {name: (self._folder / name).stat().st_size for name in _ARRAYS}
            (self._folder / _META).write_text(json.dumps({**meta, "sizes": sizes}), encoding="utf-8")
        except OSError as cause:
            raise _refusal(cause) from cause
        store = _read(self._folder)
        if key is not None:
            _keep(self._folder, cache_folder() / key)
        return store

    def _write(self, name: str, data: bytes | npt.NDArray[Any]) -> None:
        try:
            self._files[name].write(data if isinstance(data, bytes) else data.tobytes())
        except OSError as cause:
            raise _refusal(cause) from cause


def find_store(key: str) -> Store | None:
    """The store that was kept under `key`, None where there is none that is whole. A damaged one is removed."""
    folder = cache_folder() / key
    try:
        folder.stat()
    except OSError:
        return None  # what another process puts there from now on is not to be removed
    try:
        store = _read(folder)
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        remove(folder)
        return None
    except OSError:
        return None  # no damage: too many files are open, or the disk is away for a moment
    with suppress(OSError):
        os.utime(folder)  # the last use
    return store


def drop_store(key: str) -> None:
    """Forgets the store that was kept under `key`; whoever has it open may use it on."""
    remove(cache_folder() / key)


def _read(folder: Path) -> Store:
    """ValueError, KeyError, TypeError or OSError for what is no whole store."""
    meta = json.loads((folder / _META).read_text(encoding="utf-8"))
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name, kind in _ARRAYS.items():
        size = (folder / name).stat().st_size
        if size != meta["sizes"][name]:
            raise ValueError(f"{name} has {size} bytes")
        arrays[name] = np.memmap(folder / name, kind, mode="r") if size else np.empty(0, kind)
    for name, width in (("ranges", 2), ("prompts", 16), ("contents", 16)):
        arrays[name] = arrays[name].reshape(-1, width)
    for name, ends in (("ids", "ends"), ("ranges", "range_ends"), ("texts", "text_ends")):
        if len(arrays[name]) != arrays[ends][-1] or len(arrays[ends]) != len(arrays["ends"]):
            raise ValueError(f"{name} and {ends} disagree")
    return Store(**arrays, meta=meta)


def _keep(folder: Path, place: Path) -> None:
    try:
        folder.rename(place)
    except OSError:
        return  # another process was faster, or the disk refuses: the store is used all the same, once
    make_room(place, MAX_CACHE_BYTES)


def _refusal(cause: OSError) -> EngineError:
    return EngineError(
        f"The tokens can't be written to {cache_folder()}: {cause.strerror}.",
        "Make room on the disk, or choose another place with TUNESMITH_HOME.",
        kind="disk",
    )
