"""From what a person calls a model to its folder, and what there is on this machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from engine.errors import EngineError
from engine.models import sample
from engine.models.folder import ModelFolder, open_folder


def find_model(name: str, tell: Callable[[str], None] = lambda message: None) -> ModelFolder:
    """The usable model that `name` means: a folder, or "sample", which is fetched the first time.

    `tell` hears of what takes long. EngineError where there is no such model or the engine can't train it.
    """
    if name == "sample":
        folder = open_folder(sample.ensure_sample(tell))
    else:
        path = Path(name).expanduser()
        if not path.exists() and re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise EngineError(
                f"There is no model folder {name}.",
                "If you mean a model on Hugging Face, fetch it first and give its folder here.",
            )
        folder = open_folder(path.resolve())
    folder.check_usable()
    return folder


def describe(folder: ModelFolder, name: str) -> dict[str, Any]:
    """A model as `models --json` lists it; `reason` says why it can't be used where it can't."""
    reason = ""
    try:
        folder.check_usable()
    except EngineError as error:
        reason = str(error)
    return {
        "name": name,
        "path": str(folder.path),
        "family": folder.family or folder.model_type,
        "supported": not reason,
        "reason": reason,
        "layers": folder.text_config.get("num_hidden_layers"),
        "bytes": folder.bytes,
        "ready": True,
    }


def models_here() -> list[dict[str, Any]]:
    """The sample first, then the model folders in Hugging Face's cache."""
    if sample.is_ready():
        first = describe(open_folder(sample.sample_folder()), "sample")
    else:
        first = {
            "name": "sample",
            "path": str(sample.sample_folder()),
            "family": "Llama",
            "supported": True,
            "reason": "",
            "layers": 30,
            "bytes": None,
            "ready": False,
        }
    return [first, *(describe(folder, name) for name, folder in _cached_folders())]


def _cached_folders() -> Iterator[tuple[str, ModelFolder]]:
    from huggingface_hub import CacheNotFound, scan_cache_dir

    try:
        repos = scan_cache_dir().repos
    except (CacheNotFound, OSError):
        return
    for repo in sorted(repos, key=lambda repo: repo.repo_id):
        if repo.repo_type != "model" or not repo.revisions:
            continue
        newest = max(repo.revisions, key=lambda revision: revision.last_modified)
        try:
            yield repo.repo_id, open_folder(newest.snapshot_path)
        except EngineError:
            continue  # a cached tokenizer or a half-fetched repository is no model
