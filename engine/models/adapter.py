"""LoRA adapters by mlx-lm's layers: put on, saved and read back in the layout that mlx_lm loads."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from engine.backend import mx, nn
from engine.config import TrainConfig
from engine.errors import EngineError
from engine.models.folder import read_json

from mlx.utils import tree_flatten
from mlx_lm.tuner.lora import LoRALinear
from mlx_lm.tuner.utils import linear_to_lora_layers

_WEIGHTS = "adapters.safetensors"
_SETTINGS = "adapter_config.json"


def add_adapter(model: nn.Module, config: TrainConfig) -> None:
    """Puts fresh adapters on the layers that `config.targets` names and makes them all that is trained.

    B starts at zero, so the model answers as before; A is drawn from `config.seed`.
    """
    names = {name for name, _ in model.layers[0].named_modules()}
    keys = sorted(name for name in names if name.rsplit(".", 1)[-1] in config.targets)
    if not keys:
        raise EngineError("The model has none of the layers named in targets.", "Choose among the layers that it has.")
    mx.random.seed(config.seed)
    parameters = {"rank": config.rank, "scale": config.scale, "dropout": config.dropout, "keys": keys}
    _convert(model, len(model.layers), parameters)
    mx.eval(model.trainable_parameters())


def save_adapter(model: nn.Module, config: TrainConfig, model_name: str, folder: Path) -> None:
    """Writes adapters.safetensors and adapter_config.json into `folder`."""
    weights = dict(tree_flatten(model.trainable_parameters()))
    try:
        mx.save_safetensors(str(folder / _WEIGHTS), weights, {"format": "mlx"})
    except RuntimeError as error:  # MLX's word for a full disk
        raise OSError(str(error)) from error
    layers: Any = model.layers
    keys = sorted(name for name, module in layers[0].named_modules() if isinstance(module, LoRALinear))
    settings = {
        "fine_tune_type": "lora",
        "model": model_name,
        "num_layers": len(layers),
        "lora_parameters": {
            "rank": config.rank,
            "scale": config.scale,
            "dropout": config.dropout,
            "keys": keys,
        },
    }
    (folder / _SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def load_adapter(model: nn.Module, folder: Path) -> None:
    """Puts the adapter in `folder` on a frozen model. EngineError where it is no adapter, or another model's."""
    if not (folder / _SETTINGS).is_file() or not (folder / _WEIGHTS).is_file():
        raise EngineError(
            f"There is no adapter in {folder}.", f"Choose a folder with {_WEIGHTS} and {_SETTINGS} in it."
        )
    settings = read_json(folder / _SETTINGS)
    try:
        if settings.get("fine_tune_type", "lora") != "lora":
            raise ValueError(f"its type is {settings['fine_tune_type']}, not lora")
        parameters = dict(settings["lora_parameters"])
        parameters["rank"] = int(parameters["rank"])
        parameters["scale"] = float(parameters["scale"])
        parameters["dropout"] = float(parameters.get("dropout", 0.0))
        if not 1 <= parameters["rank"] <= 65_536 or not math.isfinite(parameters["scale"]):
            raise ValueError("its rank or scale makes no sense")
        _convert(model, int(settings["num_layers"]), parameters)
        weights: Any = mx.load(str(folder / _WEIGHTS))
        expected = dict(tree_flatten(model.trainable_parameters()))
        if {name: array.shape for name, array in weights.items()} != {
            name: array.shape for name, array in expected.items()
        }:
            raise ValueError("its layers are not this model's")
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise EngineError(
            f"The adapter in {folder} can't be put on this model: {error}.",
            "Choose the model that it was made with.",
        ) from error
    model.load_weights(list(weights.items()), strict=False)
    mx.eval(model.parameters())


def adapter_layers(model: nn.Module) -> list[LoRALinear]:
    """Every adapted linear layer of the model."""
    return [module for _, module in model.named_modules() if isinstance(module, LoRALinear)]


def _convert(model: nn.Module, layers: int, parameters: dict[str, Any]) -> None:
    linear_to_lora_layers(model, layers, parameters)
    for module in adapter_layers(model):
        module.unfreeze(keys=["lora_a", "lora_b"], recurse=False)
