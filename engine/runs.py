"""A run's folder: config.json, events.jsonl and adapter/, written so that a crash leaves no half file."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import platformdirs

from engine.config import TrainConfig
from engine.errors import EngineError
from engine.events import Event, to_line


def home_folder() -> Path:
    """Where models and runs are kept: TUNESMITH_HOME, or the user's data folder."""
    own = os.environ.get("TUNESMITH_HOME")
    return Path(own) if own else platformdirs.user_data_path("Tunesmith", appauthor=False)


def runs_folder() -> Path:
    """Where runs go that were given no folder of their own."""
    return home_folder() / "runs"


def is_run(folder: Path) -> bool:
    """Whether a folder is a run's."""
    return (folder / "config.json").is_file() and (folder / "events.jsonl").is_file()


def new_run_folder(config: TrainConfig) -> Path:
    """Creates the run's folder: `config.output`, or a new one named by data and time. Never one in use."""
    if config.output:
        folder = Path(config.output).expanduser()
        with _disk_errors(folder):
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise EngineError(
                    f"The run folder {folder} is already in use.",
                    "Choose another one with output: nothing is ever overwritten.",
                )
            folder.mkdir(parents=True, exist_ok=True)
        return folder.resolve()
    base = re.sub(r"[^\w.-]+", "-", Path(config.data).stem).strip("-.") or "run"
    stamp = datetime.now().astimezone().strftime("%Y-%m-%d %H.%M.%S")
    with _disk_errors(runs_folder()):
        for count in range(1, 1000):
            folder = runs_folder() / (f"{base} {stamp}" + (f" ({count})" if count > 1 else ""))
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
            return folder
    raise EngineError(f"No new folder could be made in {runs_folder()}.", "Look whether it can be written to.")


class RunFolder:
    """Writes what a run leaves behind. Every method raises EngineError(kind="disk") when the disk refuses."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def adapter(self) -> Path:
        return self.path / "adapter"

    def write_config(self, config: TrainConfig) -> None:
        with _disk_errors(self.path):
            write_whole(self.path / "config.json", json.dumps(config.to_mapping(), indent=2) + "\n")

    def append(self, event: Event) -> None:
        with _disk_errors(self.path), (self.path / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(to_line(event) + "\n")

    def replace_adapter(self, write: Callable[[Path], None]) -> None:
        """`write(folder)` fills a new folder, which then takes the place of adapter/ in one move."""
        with _disk_errors(self.path):
            new = Path(tempfile.mkdtemp(prefix=".adapter-", dir=self.path))
            try:
                new.chmod(0o755)
                write(new)
                for file in new.iterdir():
                    _sync(file)
                old = self.path / ".adapter-old"
                shutil.rmtree(old, ignore_errors=True)
                if self.adapter.exists():
                    self.adapter.rename(old)
                new.rename(self.adapter)
                _sync(self.path)
                shutil.rmtree(old, ignore_errors=True)
            finally:
                shutil.rmtree(new, ignore_errors=True)


def write_whole(path: Path, text: str) -> None:
    """Writes a file that is there complete or not at all."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        _sync(Path(name))
        Path(name).chmod(0o644)
        Path(name).replace(path)
        _sync(path.parent)
    finally:
        Path(name).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EngineError(
            f"{path} could not be written: {error.strerror or error}.",
            "Make room on the disk or choose another run folder, then start again.",
            kind="disk",
        ) from error
