"""The numbers of a model that its memory depends on, from its config and safetensors headers alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from engine.claims import Claims, claims_of, layers_of
from engine.headers import FLOATING, held, matrices
from engine.machine import computes_on_gpu
from engine.models.folder import ModelFolder, Tensor, open_folder

FLOAT32 = 4
# Arrays of the MLP's width that its backward needs where its activation is SiLU.
GATED = 5


@dataclass(frozen=True)
class Linear:
    """A linear layer that an adapter can be put on; `experts` of them in one where a router chooses."""

    layer: int
    name: str
    inputs: int
    outputs: int
    experts: int = 1


@dataclass(frozen=True)
class Widths:
    """How wide a decoder layer's arrays are, in numbers a token."""

    queries: int
    keys: int  # or values; 0 where the layer uses those of an earlier one
    inner: int  # the MLP's; with experts, of those that a token goes through
    routed: int = 0  # a hidden state for each of these experts


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
    widths: tuple[Widths, ...] = ()  # of each layer
    norms: int = 2  # in a layer, of hidden states
    head_norms: int = 0  # in a layer, of queries and keys
    gated: int = GATED  # arrays of the MLP's width that its backward needs
    caps_logits: bool = False  # by a tanh
    is_quantized: bool = False  # some linear layers' weights are held in fewer bits than they compute with

    @cached_property
    def linear_numbers(self) -> int:
        """Weights in the linear layers of the decoder layers, all together."""
        return sum(one.experts * one.inputs * one.outputs for one in self.linears)


def architecture(folder: Path) -> Architecture:
    """Reads the model's numbers. EngineError(kind="unknown") where its files don't tell them, or contradict them."""
    return architecture_of(open_folder(folder))


def architecture_of(model: ModelFolder) -> Architecture:
    """The same, from a folder that is open already."""
    model.check_usable()
    layers, shared = layers_of(model)
    tensors = held(model, layers - shared)
    weights = matrices(model, tensors)
    claims = claims_of(model, weights)
    item = _item_bytes(model)
    linears = tuple(
        Linear(one.layer, one.name, one.inputs, one.outputs, one.experts or 1)
        for one in weights
        if one.layer is not None
    )
    in_a_layer = {name.rpartition(".layers.")[2].partition(".")[2] for name in tensors if ".layers." in name}
    return Architecture(
        layers=layers,
        hidden=claims.hidden,
        intermediate=claims.widest_intermediate,
        heads=claims.heads,
        kv_heads=claims.kv_heads,
        head_dim=max(claims.head_dim, claims.global_head_dim),
        vocabulary=claims.vocabulary,
        weight_bytes=sum(_held_bytes(tensor, item) for tensor in tensors.values()),
        item_bytes=item,
        extras=layers * claims.per_layer_input,
        donors=2 if shared else 0,  # the last layer of each kind of attention
        linears=linears,
        widths=tuple(_widths(layer, claims) for layer in _by_layer(linears, layers)),
        norms=sum(name.endswith("norm.weight") and "self_attn" not in name for name in in_a_layer),
        # GELU by its tanh formula keeps two more than SiLU.
        gated=GATED + 2 if model.model_type.startswith("gemma") else GATED,
        caps_logits=bool(model.text_config.get("final_logit_softcapping", model.model_type.startswith("gemma4"))),
        is_quantized=any(one.layer is not None and f"{one.path}.scales" in tensors for one in weights),
        head_norms=sum(name.endswith(("q_norm.weight", "k_norm.weight")) for name in in_a_layer),
    )


def _by_layer(linears: tuple[Linear, ...], layers: int) -> list[dict[str, Linear]]:
    found: list[dict[str, Linear]] = [{} for _ in range(layers)]
    for one in linears:
        # The dense MLP beside experts has the same names.
        key = one.name if one.experts == 1 else f"experts.{one.name}"
        found[one.layer][key] = one
    return found


def _widths(layer: dict[str, Linear], claims: Claims) -> Widths:
    queries = layer["o_proj"].inputs
    if "qkv_proj" in layer:
        keys = (layer["qkv_proj"].outputs - queries) // 2
    else:
        keys = layer["k_proj"].outputs if "k_proj" in layer else 0
    inner = layer["down_proj"].inputs if "down_proj" in layer else 0
    if not claims.experts:
        return Widths(queries, keys, inner)
    chosen = claims.experts_a_token
    return Widths(queries, keys, inner + chosen * claims.expert_intermediate, chosen * claims.hidden)


def _item_bytes(model: ModelFolder) -> int:
    """Activations are float32 on the CPU; on a GPU they are as wide as the narrowest floating weights."""
    half = any(tensor.dtype in ("F16", "BF16") for tensor in model.tensors.values())
    return 2 if computes_on_gpu() and half else FLOAT32


def _held_bytes(tensor: Tensor, item_bytes: int) -> int:
    if tensor.dtype in FLOATING:
        return math.prod(tensor.shape) * item_bytes
    return tensor.bytes
