"""An adapter's folder as it lies on disk: its settings and the header of its weights, read without MLX.

The layout is mlx_lm's, whoever made it: adapters.safetensors and adapter_config.json. Folders come from strangers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import EngineError
from engine.models.folder import Tensor, read_header, read_json

WEIGHTS = "adapters.safetensors"
SETTINGS = "adapter_config.json"
KINDS = {"lora": "LoRA", "dora": "DoRA"}

_RANK_LIMIT = 65_536
_FLOATING = ("F32", "F16", "BF16")


@dataclass(frozen=True)
class AdapterSettings:
    """What an adapter is, but for its weights. `scale` is the factor at which it acts."""

    kind: str  # one of KINDS
    rank: int
    scale: float
    dropout: float
    keys: tuple[str, ...] | None  # names of the adapted layers inside a decoder layer; None: all linear ones
    layers: int  # so many decoder layers, the last ones; 0: all


@dataclass(frozen=True)
class AdapterFolder:
    """An adapter's settings and the tensors that its weights file declares."""

    path: Path
    settings: AdapterSettings
    tensors: dict[str, Tensor]

    @property
    def name(self) -> str:
        """Its folder's name, with the run's before it: a run's own is always called adapter."""
        return "/".join(self.path.absolute().parts[-2:])


def open_adapter(path: Path) -> AdapterFolder:
    """The adapter in a folder, or whose weights file `path` is. EngineError where there is none that can be used."""
    folder = path.parent if path.name == WEIGHTS else path
    if not (folder / SETTINGS).is_file() or not (folder / WEIGHTS).is_file():
        raise EngineError(f"There is no adapter in {folder}.", f"Choose a folder with {WEIGHTS} and {SETTINGS} in it.")
    try:
        values, tensors = read_json(folder / SETTINGS), read_header(folder / WEIGHTS)
    except EngineError as error:
        raise EngineError(error.message, "Copy the adapter anew or choose another one: a file is damaged.") from error
    if values.get("fine_tune_type") == "full":
        raise EngineError(
            f"The folder {folder} holds a full fine-tune, not an adapter.",
            "Choose an adapter made with LoRA or DoRA.",
        )
    try:
        if not tensors:
            raise ValueError("it is empty")
        if any(tensor.dtype not in _FLOATING for tensor in tensors.values()):
            raise ValueError("its weights are no floating-point numbers")
        return AdapterFolder(folder, _settings(values), tensors)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        missing = f"it does not say its {error.args[0]}" if isinstance(error, KeyError) else error
        raise EngineError(
            f"The adapter in {folder} makes no sense: {missing}.",
            f"Choose an adapter whose {SETTINGS} and {WEIGHTS} are as they were written.",
        ) from error


def _settings(values: dict[str, Any]) -> AdapterSettings:
    kind = values.get("fine_tune_type", "lora")
    if kind not in KINDS:
        raise ValueError(f"its kind is {kind}, not one of {', '.join(KINDS)}")
    parameters = values["lora_parameters"]
    rank, scale = int(parameters["rank"]), float(parameters["scale"])
    dropout = float(parameters.get("dropout", 0.0))
    if not 1 <= rank <= _RANK_LIMIT or not math.isfinite(scale) or not 0 <= dropout < 1:
        raise ValueError("its rank, scale or dropout is none")
    keys = parameters.get("keys")
    if keys is not None and (not isinstance(keys, list) or not all(isinstance(key, str) for key in keys)):
        raise ValueError("its keys are no names")
    # For mlx_lm -1 stands for all layers, as 0 does.
    layers = max(0, int(values["num_layers"]))
    return AdapterSettings(kind, rank, scale, dropout, None if keys is None else tuple(keys), layers)
