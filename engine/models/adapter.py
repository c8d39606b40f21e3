"""Adapters by mlx-lm's layers: put on, left out, saved and read back in the layout that mlx_lm loads.

LoRA (Hu et al. 2021): y = W x + scale B A x. DoRA (Liu et al. 2024): y = m / |W + scale B A| * (W x + scale B A x),
|.| the norm of each output's weights, which the gradient takes for a constant. mlx-lm's lora_a and lora_b are the
transposes of A and B.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from engine.backend import mx, nn
from engine.config import SETTINGS as TRAIN_SETTINGS
from engine.config import TrainConfig
from engine.errors import EngineError
from engine.models.adapter_folder import (
    KINDS,
    SETTINGS,
    WEIGHTS,
    AdapterFolder,
    AdapterSettings,
    open_adapter,
)

from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear
from mlx_lm.tuner.dora import DoRALinear
from mlx_lm.tuner.lora import LoRALinear, LoRASwitchLinear
from mlx_lm.tuner.utils import linear_to_lora_layers

AdaptedLayer: TypeAlias = LoRALinear | LoRASwitchLinear | DoRALinear

_ADAPTED = (LoRALinear, LoRASwitchLinear, DoRALinear)
_EXPERTS = (SwitchLinear, QuantizedSwitchLinear)
_LINEAR = (nn.Linear, nn.QuantizedLinear, *_EXPERTS)


def add_adapter(model: nn.Module, config: TrainConfig) -> str | None:
    """Puts on a fresh adapter, or the one to continue from, and makes it all that is trained.

    A fresh one leaves the model's answers as they are: B is zero; A is drawn from `config.seed`. With rsLoRA
    (Kalajdzievski 2023) it acts at scale / sqrt(rank). Returns a sentence for the person where an adapter to
    continue from takes the place of settings. EngineError where the adapter does not fit the model.
    """
    model.freeze()
    mx.random.seed(config.seed)
    if config.adapter:
        opened = open_adapter(Path(config.adapter).expanduser())
        _restore(model, opened, replace(opened.settings, dropout=config.dropout))
        return _continuing(model, opened)
    count = len(model.layers)
    if config.last_layers > count:
        raise EngineError(
            f"The model has {count} decoder layers, so an adapter can't be put on the last {config.last_layers}.",
            f"Set the last layers (last_layers) to {count} or less; 0 stands for all.",
        )
    settings = AdapterSettings(
        kind=config.adapter_kind,
        rank=config.rank,
        scale=config.scale / math.sqrt(config.rank) if config.rslora else config.scale,
        dropout=config.dropout,
        keys=_keys(model, config),
        layers=config.last_layers,
    )
    _convert(model, settings)
    _evaluate(model)
    return None


def load_adapter(model: nn.Module, folder: Path) -> None:
    """Puts the adapter in `folder` on a frozen model. EngineError where it is no adapter, or another model's."""
    opened = open_adapter(folder)
    _restore(model, opened, opened.settings)


def save_adapter(model: nn.Module, config: TrainConfig, model_name: str, folder: Path) -> None:
    """Writes adapters.safetensors and adapter_config.json into `folder`: what the model's adapter is by itself."""
    weights = dict(tree_flatten(model.trainable_parameters()))
    try:
        mx.save_safetensors(str(folder / WEIGHTS), weights, {"format": "mlx"})
    except RuntimeError as error:  # MLX's word for a full disk
        raise OSError(str(error)) from error
    made = _settings_of(model)
    settings = {
        "fine_tune_type": made.kind,
        "model": model_name,
        "objective": config.objective,
        "targets": _targets(made.keys or ()),
        "num_layers": made.layers,
        "lora_parameters": {"rank": made.rank, "scale": made.scale, "dropout": made.dropout, "keys": made.keys},
    }
    # The scale of an adapter that was continued is its own, however it once came about.
    if not config.adapter:
        settings["rslora"] = config.rslora
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


@contextmanager
def without_adapter(model: nn.Module) -> Iterator[None]:
    """The model as it was before its adapter, bit for bit; the same adapted layers are put back at the end."""
    adapted = _adapted(model)
    model.update_modules(tree_unflatten([(name, layer.linear) for name, layer in adapted]))
    try:
        yield
    finally:
        model.update_modules(tree_unflatten(adapted))


def _adapted(model: nn.Module) -> list[tuple[str, AdaptedLayer]]:
    return [(name, module) for name, module in model.named_modules() if isinstance(module, _ADAPTED)]


def _linears(model: nn.Module, last: int, wanted: Callable[[str], bool]) -> list[tuple[str, nn.Module]]:
    """The linear layers of the last decoder layers (0: of all), by their name inside one: not all have the same."""
    layers: Any = model.layers
    return [
        (name, module)
        for layer in layers[-last:]
        for name, module in layer.named_modules()
        if isinstance(module, _LINEAR) and wanted(name)
    ]


def _keys(model: nn.Module, config: TrainConfig) -> tuple[str, ...]:
    def is_target(name: str) -> bool:
        return name.rsplit(".", 1)[-1] in config.targets

    keys = {name for name, _ in _linears(model, config.last_layers, is_target)}
    if keys:
        return tuple(sorted(keys))
    has = _targets(name for name, _ in _linears(model, config.last_layers, lambda name: True))
    choices = [name for name in TRAIN_SETTINGS["targets"].choices if name in has]
    raise EngineError(
        f"The model has none of the layers to adapt (targets): {', '.join(config.targets)}.",
        f"Choose among those that it has: {', '.join(choices)}.",
    )


def _targets(keys: Iterable[str]) -> list[str]:
    return sorted({key.rsplit(".", 1)[-1] for key in keys})


def _convert(model: nn.Module, settings: AdapterSettings) -> None:
    keys = settings.keys
    linears = _linears(model, settings.layers, lambda name: keys is None or name in keys)
    if settings.kind == "dora":
        _check_dora(linears)
    parameters = {
        "rank": settings.rank,
        "scale": settings.scale,
        "dropout": settings.dropout,
        "keys": {name for name, _ in linears},
    }
    linear_to_lora_layers(model, settings.layers, parameters, use_dora=settings.kind == "dora")


def _check_dora(linears: list[tuple[str, nn.Module]]) -> None:
    for name, module in linears:
        if isinstance(module, _EXPERTS):
            raise EngineError(
                f"DoRA can't be put on a mixture of experts ({name}).", "Choose LoRA as the adapter kind."
            )
        # mlx-lm counts 32 // bits numbers to a word, for its loader too: the wrong width where bits don't divide 32.
        bits = module.bits if isinstance(module, nn.QuantizedLinear) else 32
        if 32 % bits:
            raise EngineError(
                f"DoRA can't be put on weights of {bits} bits ({name}).",
                "Choose LoRA as the adapter kind, or a version of the model in 4 or 8 bits.",
            )


def _restore(model: nn.Module, opened: AdapterFolder, settings: AdapterSettings) -> None:
    outside = sorted({name for name, _ in model.named_modules()}.intersection(settings.keys or ()))
    if outside:
        raise EngineError(
            f"The adapter in {opened.path} also changes {outside[0]}, outside of the decoder layers.",
            "Choose an adapter of decoder layers only.",
        )
    _convert(model, settings)
    expected = {name: array.shape for name, array in tree_flatten(model.trainable_parameters())}
    found = {name: tensor.shape for name, tensor in opened.tensors.items()}
    if found != expected:
        odd = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        raise EngineError(
            f"The adapter in {opened.path} was made for another model: {odd[0]} does not fit.",
            "Choose the model that it was made with.",
        )
    weights: Any = mx.load(str(opened.path / WEIGHTS))
    # float32: half precision loses the small steps of training.
    model.load_weights([(name, array.astype(mx.float32)) for name, array in weights.items()], strict=False)
    _evaluate(model)


def _evaluate(model: nn.Module) -> None:
    for _, array in tree_flatten(model.trainable_parameters()):
        mx.eval(array)  # one by one: DoRA's m needs its layer's weights unpacked, not all at once


def _settings_of(model: nn.Module) -> AdapterSettings:
    layers: Any = model.layers
    adapted = [_adapted(layer) for layer in layers]
    first = next(index for index, found in enumerate(adapted) if found)
    example = adapted[first][0][1]
    by_output = isinstance(example, LoRASwitchLinear)  # its lora_a is [experts, rank, inputs]
    return AdapterSettings(
        kind="dora" if isinstance(example, DoRALinear) else "lora",
        rank=example.lora_a.shape[-2 if by_output else -1],
        scale=example.scale,
        dropout=1 - example.dropout._p_1,
        keys=tuple(sorted({name for found in adapted for name, _ in found})),
        layers=len(adapted) - first,
    )


def _continuing(model: nn.Module, opened: AdapterFolder) -> str:
    made, count = _settings_of(model), len(model.layers)
    layers = f"all {count} layers" if made.layers == count else f"the last {made.layers} of {count} layers"
    return (
        f"Continuing from {opened.name}: {KINDS[made.kind]}, rank {made.rank}, scale {made.scale:g}, "
        f"{', '.join(_targets(made.keys or ()))} in {layers}, as it was made."
    )
