"""The numbers of a model that its memory depends on, from its config and safetensors headers alone."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.errors import EngineError
from engine.machine import computes_on_gpu
from engine.models.folder import ModelFolder, Tensor, open_folder

FLOAT32 = 4


@dataclass(frozen=True)
class Linear:
    """A linear layer that an adapter can be put on; `experts` of them in one where a router chooses."""

    layer: int
    name: str
    inputs: int
    outputs: int
    experts: int = 1


@dataclass(frozen=True)
class Architecture:
    """The numbers of a model that its memory depends on; where layers differ, those of the widest."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    weight_bytes: int  # as they will be held in memory
    item_bytes: int  # of an activation
    extras: int = 0  # numbers a token that every layer is given besides the hidden state, over all layers
    donors: int = 0  # layers whose keys and values later layers use too
    linears: tuple[Linear, ...] = ()


def architecture(folder: Path) -> Architecture:
    """Reads the model's numbers. EngineError where its config lacks one: nothing is made up."""
    return architecture_of(open_folder(folder))


def architecture_of(model: ModelFolder) -> Architecture:
    """The same, from a folder that is open already."""
    model.check_usable()
    config = model.text_config
    hidden, heads, layers = (
        _number(model, name) for name in ("hidden_size", "num_attention_heads", "num_hidden_layers")
    )
    kv_heads = _number(model, "num_key_value_heads", heads)
    dim = max(_number(model, "head_dim", hidden // heads), _number(model, "global_head_dim", 0))
    item = _item_bytes(model)
    shared = _number(model, "num_kv_shared_layers", 0)
    doubled = shared and config.get("use_double_wide_mlp", True)  # Gemma 4's layers that share keys and values
    return Architecture(
        layers=layers,
        hidden=hidden,
        intermediate=_number(model, "intermediate_size") * (2 if doubled else 1),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        vocabulary=_number(model, "vocab_size"),
        weight_bytes=sum(_held_bytes(tensor, item) for tensor in model.tensors.values()),
        item_bytes=item,
        extras=layers * _number(model, "hidden_size_per_layer_input", 0),
        donors=2 if shared else 0,  # the last layer of each kind of attention
        linears=tuple(_linears(model)),
    )


def _number(model: ModelFolder, name: str, default: int | None = None) -> int:
    value = model.text_config.get(name)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < (0 if default == 0 else 1):
        raise EngineError(
            f"The config.json in {model.path} does not say its {name}.",
            "Fetch the model again; without that number its memory can't be predicted.",
        )
    return value


def _linears(model: ModelFolder) -> Iterator[Linear]:
    """The linear layers of the decoder layers, from the headers: of quantized ones the scales tell the inputs."""
    for name, tensor in model.tensors.items():
        found = re.search(r"\blayers\.(\d+)\..*?(\w+)\.weight$", name)
        if found is None or len(tensor.shape) < 2:
            continue
        *experts, outputs, inputs = tensor.shape
        scales = model.tensors.get(name.removesuffix("weight") + "scales")
        if scales is not None:
            inputs = scales.shape[-1] * model.group_size
        yield Linear(int(found[1]), found[2], inputs, outputs, math.prod(experts))


def _item_bytes(model: ModelFolder) -> int:
    """Activations are float32 on the CPU; on a GPU they have the dtype of most of the floating weights."""
    half = any(tensor.dtype in ("F16", "BF16") for tensor in model.tensors.values())
    return 2 if computes_on_gpu() and half else FLOAT32


def _held_bytes(tensor: Tensor, item_bytes: int) -> int:
    if tensor.dtype in ("F16", "BF16", "F32"):
        return math.prod(tensor.shape) * item_bytes
    return tensor.bytes
