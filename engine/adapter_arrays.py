"""What an adapter adds to the arrays of a layer's forward and backward, in bytes, counted from its formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.adapter_size import adapted_layers, continued
from engine.architecture import Architecture, Linear
from engine.config import LINEAR_LAYERS, TrainConfig
from engine.models.adapter_folder import AdapterSettings

_INTO_ATTENTION = ("q_proj", "k_proj", "v_proj", "qkv_proj")
# Of what a tile's backward keeps for the adapter, so much is alive at its peak; measured.
_DROPPED, _UNSCALED = 0.9, 0.5


@dataclass(frozen=True)
class AdapterArrays:
    """Of one decoder layer, beside what a layer takes whose linear ones all have a LoRA without dropout."""

    saved: int = 0  # of its forward, for a recorded backward
    finishing: int = 0  # at work in all that comes after attention, going backward
    working: int = 0  # at work in one linear layer


def adapter_arrays(shape: Architecture, config: TrainConfig, tokens: int) -> list[AdapterArrays]:
    """Each layer's, for a batch of so many tokens. EngineError where an adapter to continue from can't be read."""
    made = _settings(shape, config)
    of_layer: list[list[Linear]] = [[] for _ in range(shape.layers)]
    for one in shape.linears:
        of_layer[one.layer].append(one)
    return [_arrays(shape, made, linears, tokens) for linears in of_layer]


def _arrays(shape: Architecture, made: AdapterSettings, linears: Sequence[Linear], tokens: int) -> AdapterArrays:
    """`linears` are all of a layer."""
    adapted = [one for one in linears if _is_adapted(one, made, shape.layers)]
    weights = [one.inputs * one.outputs * shape.item_bytes for one in adapted] if made.kind == "dora" else []
    item = tokens * shape.item_bytes

    def inputs(ones: Sequence[Linear]) -> int:
        """What they compute from; several from the same."""
        return sum({_source(one): one.inputs for one in ones if one.experts == 1}.values())

    def dropped(ones: Sequence[Linear]) -> int:
        """Each one's own input with zeros, and its mask as numbers; the input itself is of no further use."""
        return sum(2 * one.inputs for one in ones) - inputs(ones) if made.dropout else 0

    def unscaled(ones: Sequence[Linear]) -> int:
        """What each gave before DoRA's m scaled it."""
        return sum(one.outputs for one in ones) if made.kind == "dora" else 0

    after = [one for one in adapted if one.name not in _INTO_ATTENTION]
    products = made.rank * len(adapted)  # A x of each
    # Only A's gradient needs an input. A bare layer is counted with those of these.
    unused = inputs([one for one in linears if one.name in LINEAR_LAYERS]) - inputs(adapted)
    unpacked = sum(weights) if shape.is_quantized else 0  # their products' backward needs them
    return AdapterArrays(
        saved=(dropped(adapted) + unscaled(adapted) + products - unused) * item + unpacked,
        finishing=round((_DROPPED * dropped(after) + _UNSCALED * unscaled(after)) * item),
        working=2 * max(weights, default=0),  # W + B A and its squares
    )


def _source(one: Linear) -> str:
    """What the layer computes from, as far as it is common to several."""
    if one.name in _INTO_ATTENTION:
        return "attention's norm"
    return "the MLP's norm" if one.name in ("gate_proj", "up_proj", "gate_up_proj") else one.name


def _is_adapted(one: Linear, made: AdapterSettings, layers: int) -> bool:
    names = None if made.keys is None else {key.rpartition(".")[2] for key in made.keys}
    return (names is None or one.name in names) and one.layer >= layers - (made.layers or layers)


def _settings(shape: Architecture, config: TrainConfig) -> AdapterSettings:
    if config.adapter:
        return replace(continued(config).settings, dropout=config.dropout)
    return AdapterSettings(
        config.adapter_kind,
        config.rank,
        config.scale,
        config.dropout,
        tuple(config.targets),
        adapted_layers(shape, config),
    )
