"""A model's folder as it lies on disk: config.json and the safetensors headers, read without loading weights.

Folders come from strangers: sizes are checked before anything is read, paths must stay inside, and nothing
but JSON and safetensors is ever opened.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from engine.errors import EngineError

# model_type in config.json -> the family's name for people. Each has its decoder stack in models/.
FAMILIES = {
    "llama": "Llama",
    "mistral": "Mistral",
    "smollm3": "SmolLM3",
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
    "phi3": "Phi-3",
    "minicpm": "MiniCPM",
    "gemma3_text": "Gemma 3",
    "gemma3": "Gemma 3",
    "gemma4_text": "Gemma 4",
    "gemma4": "Gemma 4",
    "gemma4_unified": "Gemma 4",
}

# Parts of a model that mlx-lm leaves out.
_SENSES = frozenset(
    {"vision_tower", "multi_modal_projector", "audio_tower", "embed_audio", "embed_vision", "vision_embedder"}
)

_CONFIG_LIMIT = 16 * 1024**2
_HEADER_LIMIT = 256 * 1024**2
_ITEM_BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "U64": 64, "I32": 32, "U32": 32, "I16": 16,
    "U16": 16, "I8": 8, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8,
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """A tensor as its file's header declares it."""

    dtype: str  # safetensors' name, such as BF16
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class ModelFolder:
    """A folder with a config.json and weights; `tensors` reads the headers when first asked."""

    path: Path
    config: dict[str, Any]

    @property
    def model_type(self) -> str:
        return str(self.config.get("model_type", ""))

    @property
    def text_config(self) -> dict[str, Any]:
        """The settings of the language model itself; models that see keep them in a part of their own."""
        inner = self.config.get("text_config")
        if not isinstance(inner, dict):
            return self.config
        return {**inner, "vocab_size": self.config.get("vocab_size", inner.get("vocab_size"))}

    @property
    def family(self) -> str | None:
        """The family's name, or None where the engine has no decoder stack for it."""
        return FAMILIES.get(self.model_type)

    @property
    def weight_files(self) -> list[Path]:
        return sorted(self.path.glob("model*.safetensors"))

    @property
    def bytes(self) -> int:
        """Size of the weights on disk."""
        return sum(file.stat().st_size for file in self.weight_files)

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Those of the language model; what sees or hears is left out when it is loaded."""
        found = {name: tensor for file in self.weight_files for name, tensor in read_header(file).items()}
        return {name: tensor for name, tensor in found.items() if _SENSES.isdisjoint(name.split("."))}

    def check_usable(self) -> None:
        """EngineError unless the engine can train this model."""
        if self.family is None:
            known = ", ".join(dict.fromkeys(FAMILIES.values()))
            raise EngineError(
                f"Models of the kind {self.model_type or 'that its config.json leaves out'} can't be trained yet.",
                f"Choose a model of one of these families: {known}.",
            )
        if "model_file" in self.config or "auto_map" in self.config:
            raise EngineError(
                f"The model in {self.path} wants to run program code of its own.",
                "Choose a model without model_file or auto_map in its config.json: code from models is never run.",
            )
        if not self.weight_files:
            raise EngineError(f"The folder {self.path} has no weights in safetensors.", self._missing_hint())
        if not self.tensors:
            raise EngineError(f"The weights in {self.path} are empty.", "Fetch the model again.")

    def _missing_hint(self) -> str:
        if any(self.path.glob("*.bin")) or any(self.path.glob("*.pt*")):
            return "Choose a version of the model in safetensors: pickled weights (.bin, .pt) are never opened."
        return "Choose a folder with model.safetensors or model-00001-of-….safetensors in it."


def open_folder(path: Path) -> ModelFolder:
    """The model folder at `path`; EngineError where there is none or its config can't be read."""
    if not path.exists():
        raise EngineError(f"There is no model at {path}.", "Choose a model folder, or sample.")
    if not path.is_dir():
        raise EngineError(f"{path} is a file, not a model folder.", "Choose the folder that holds config.json.")
    config = path / "config.json"
    if not config.is_file():
        raise EngineError(
            f"The folder {path} is no model: it has no config.json.",
            "Choose a folder with config.json, tokenizer.json and model.safetensors.",
        )
    return ModelFolder(path, read_json(config))


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a model's folder; EngineError where it is too large, broken or no object."""
    try:
        if path.stat().st_size > _CONFIG_LIMIT:
            raise EngineError(f"{path} is too large to be a model's settings.", "Fetch the model again.")
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise EngineError(f"{path} can't be read: {error}.", "Fetch the model again.") from error
    if not isinstance(value, dict):
        raise EngineError(f"{path} holds no settings.", "Fetch the model again.")
    return value


def read_header(path: Path) -> dict[str, Tensor]:
    """The tensors that a safetensors file declares, held against the file's size."""
    cure = "Fetch the model again: the file is damaged or cut off."
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            prefix = file.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else size
            if length > min(_HEADER_LIMIT, size - 8):
                raise EngineError(f"{path} is not a whole safetensors file.", cure)
            header = json.loads(file.read(length))
        tensors = {name: _tensor(entry, size - 8 - length) for name, entry in header.items() if name != "__metadata__"}
    except OSError as error:
        raise EngineError(f"{path} can't be read: {error.strerror or error}.", "Check its place.") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise EngineError(f"The header of {path} makes no sense.", cure) from error
    return tensors


def _tensor(entry: dict[str, Any], available: int) -> Tensor:
    start, end = entry["data_offsets"]
    shape = tuple(int(side) for side in entry["shape"])
    count = 1
    for side in shape:
        count *= side
    if not 0 <= start <= end <= available or (end - start) * 8 != count * _ITEM_BITS[entry["dtype"]]:
        raise ValueError("a tensor does not fit its file")
    return Tensor(entry["dtype"], shape, end - start)
