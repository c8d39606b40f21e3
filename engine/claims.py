"""What a model's config.json says of its sizes, each number checked by itself and held against the headers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.errors import EngineError
from engine.headers import TIED, Matrix, shown, unknown
from engine.models.folder import ModelFolder

# No model has more of anything that is counted here.
_MOST = 2**24


@dataclass(frozen=True)
class Claims:
    """The numbers in a model's config.json, by its names for them or shorter."""

    layers: int
    shared: int  # of these, the last ones, that are given the keys and values of earlier ones
    hidden: int
    vocabulary: int
    heads: int
    kv_heads: int
    global_kv_heads: int  # of full attention, where sliding attention has others; so with the next but one
    head_dim: int
    global_head_dim: int
    intermediate: int
    doubled: bool  # the layers that share have twice the intermediate size
    keys_are_values: bool  # in layers of full attention, which then have no v_proj
    experts: int
    expert_intermediate: int
    experts_a_token: int
    per_layer_input: int

    @property
    def widest_intermediate(self) -> int:
        return self.intermediate * (2 if self.doubled else 1)


def layers_of(model: ModelFolder) -> tuple[int, int]:
    """How many decoder layers there are, and how many of them share keys and values."""
    layers = _number(model, model.text_config, "num_hidden_layers")
    shared = _number(model, model.text_config, "num_kv_shared_layers", 0)
    if shared >= layers:
        raise unknown(
            f"The config.json in {model.path} says num_kv_shared_layers {shared:,} and num_hidden_layers {layers:,}: "
            "no layer would be left whose keys and values to share."
        )
    return layers, shared


def claims_of(model: ModelFolder, matrices: Sequence[Matrix]) -> Claims:
    """The numbers, those that the headers contradict refused by EngineError(kind="unknown")."""
    config = model.text_config
    if isinstance(model.config.get("text_config"), dict):
        # What a model that sees leaves out of it are its family's own numbers: the headers tell them.
        config = _told(model, matrices) | {name: value for name, value in config.items() if value is not None}
    layers, shared = layers_of(model)
    hidden, heads = _number(model, config, "hidden_size"), _number(model, config, "num_attention_heads")
    several = config.get("num_global_key_value_heads") is not None  # then the other kind has no default
    kv_heads = _number(model, config, "num_key_value_heads", None if several else heads)
    dim = _number(model, config, "head_dim", hidden // heads)
    global_kv_heads = _number(model, config, "num_global_key_value_heads", kv_heads)
    keys_are_values = bool(config.get("attention_k_eq_v"))
    has_experts = bool(config.get("enable_moe_block"))
    claims = Claims(
        layers=layers,
        shared=shared,
        hidden=hidden,
        vocabulary=_number(model, config, "vocab_size"),
        heads=heads,
        kv_heads=kv_heads,
        global_kv_heads=global_kv_heads if keys_are_values else kv_heads,
        head_dim=dim,
        global_head_dim=_number(model, config, "global_head_dim", 0) or dim,
        intermediate=_number(model, config, "intermediate_size"),
        doubled=bool(shared and config.get("use_double_wide_mlp", True)),
        keys_are_values=keys_are_values,
        experts=_number(model, config, "num_experts") if has_experts else 0,
        expert_intermediate=_number(model, config, "moe_intermediate_size", 0),
        experts_a_token=_number(model, config, "top_k_experts") if has_experts else 0,
        per_layer_input=_number(model, config, "hidden_size_per_layer_input", 0),
    )
    for name, number in (("num_key_value_heads", kv_heads), ("num_global_key_value_heads", global_kv_heads)):
        if heads % number:
            raise unknown(
                f"The config.json in {model.path} says num_attention_heads {heads:,} and {name} {number:,}: the heads "
                "can't share those evenly."
            )
    if claims.experts_a_token > claims.experts:
        raise unknown(
            f"The config.json in {model.path} says top_k_experts {claims.experts_a_token:,} and num_experts "
            f"{claims.experts:,}: a token can't go through more than there are."
        )
    _check_layers(model, claims, matrices)
    _check_widths(model, claims, matrices)
    return claims


def _number(model: ModelFolder, config: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = config.get(name)
    if value is None:
        if default is not None:
            return default
        raise unknown(f"The config.json in {model.path} does not say its {name}.")
    least = 0 if default == 0 else 1
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        raise unknown(
            f"The config.json in {model.path} says {name} {shown(value)}, which is no whole number from {least} to "
            f"{_MOST:,}."
        )
    return value


def _told(model: ModelFolder, matrices: Sequence[Matrix]) -> dict[str, int]:
    """The numbers that follow from the headers alone: heads where these are normed, by the norm's size."""
    first = {one.name: one for one in matrices if one.layer in (0, None)}
    norm = next((t for name, t in model.tensors.items() if name.endswith("layers.0.self_attn.q_norm.weight")), None)
    told = {"vocab_size": first["embed_tokens"].outputs} if "embed_tokens" in first else {}
    if norm and math.prod(norm.shape) and "q_proj" in first and "k_proj" in first:
        dim = norm.shape[0]
        told |= {
            "head_dim": dim,
            "num_attention_heads": first["q_proj"].outputs // dim,
            "num_key_value_heads": first["k_proj"].outputs // dim,
        }
    return told


def _check_layers(model: ModelFolder, claims: Claims, matrices: Sequence[Matrix]) -> None:
    """Each layer must be there, and whole: one of several files may be missing."""
    numbers = {one.layer for one in matrices if one.layer is not None}
    if numbers != set(range(claims.layers)):
        raise _contradiction(model, f"num_hidden_layers {claims.layers:,}", f"{len(numbers):,} layers")
    # Experts stand beside a dense matrix of the same name.
    found = Counter((one.name, one.experts is not None) for one in matrices if one.layer is not None)
    for (name, routed), count in _expected(claims, fused=("qkv_proj", False) in found).items():
        if found[name, routed] != count:
            said = f"num_hidden_layers {claims.layers:,}"
            said += f" and num_kv_shared_layers {claims.shared:,}" if name in ("k_proj", "v_proj") else ""
            kind = f"{name} of experts" if routed else name
            raise _contradiction(model, said, f"{found[name, routed]:,} layers with a {kind}, not {count:,}")


def _expected(claims: Claims, fused: bool) -> dict[tuple[str, bool], int]:
    """How many layers have a matrix, by its name and whether it is of experts."""
    names = ["o_proj", "down_proj"]
    names += ["qkv_proj", "gate_up_proj"] if fused else ["q_proj", "gate_proj", "up_proj"]
    names += ["per_layer_input_gate", "per_layer_projection"] if claims.per_layer_input else []
    expected = {(name, False): claims.layers for name in names}
    if claims.experts:
        expected |= {(name, True): claims.layers for name in ("gate_proj", "up_proj", "down_proj")}
    if not fused:
        own = ["k_proj"] if claims.keys_are_values else ["k_proj", "v_proj"]
        expected |= {(name, False): claims.layers - claims.shared for name in own}
    return expected


@dataclass(frozen=True)
class _Width:
    """What one side of a matrix may be, with the words of the config that say so."""

    words: str
    values: tuple[int, ...]


def _check_widths(model: ModelFolder, claims: Claims, matrices: Sequence[Matrix]) -> None:
    if not any(one.name == "embed_tokens" for one in matrices):
        raise _contradiction(model, f"vocab_size {claims.vocabulary:,}", "no embed_tokens")
    # Other families fall back on the embedding.
    untied = model.model_type in TIED and model.text_config.get("tie_word_embeddings") is False
    if untied and not any(one.name == "lm_head" for one in matrices):
        raise _contradiction(model, "tie_word_embeddings false", "no lm_head")
    size = f"intermediate_size {claims.intermediate:,}"
    usual = _widths(claims, claims.intermediate, size)
    sharing = _widths(
        claims,
        claims.widest_intermediate,
        size + f" doubled in num_kv_shared_layers {claims.shared:,}" * claims.doubled,
    )
    experts = _widths(claims, claims.expert_intermediate, f"moe_intermediate_size {claims.expert_intermediate:,}")
    met: dict[_Width, set[int]] = {}
    for one in matrices:
        if one.experts is not None and one.experts != claims.experts:
            raise _contradiction(model, f"num_experts {claims.experts:,}", f"{one.experts:,} in {one.path}")
        shares = one.layer is not None and one.layer >= claims.layers - claims.shared
        widths = experts if one.experts is not None else sharing if shares else usual
        sides = widths.get(one.name, ())
        for side, width, actual in zip(("inputs", "outputs"), sides, (one.inputs, one.outputs), strict=False):
            if actual not in width.values:
                raise _contradiction(model, width.words, f"{actual:,} {side} in {one.path}")
            met.setdefault(width, set()).add(actual)
    for width, found in met.items():
        if found != set(width.values):
            sizes = " and ".join(f"{one:,}" for one in sorted(found))
            raise _contradiction(model, width.words, f"only sides of {sizes} where these belong")


def _widths(claims: Claims, intermediate: int, size: str) -> dict[str, tuple[_Width, _Width]]:
    """Inputs and outputs of a decoder layer's matrices, and of those around the layers, by their names."""
    # Sliding and full attention, where these differ.
    kinds = tuple(dict.fromkeys(((claims.kv_heads, claims.head_dim), (claims.global_kv_heads, claims.global_head_dim))))
    dim = "head_dim " + " or ".join(f"{dim:,}" for _, dim in kinds)
    kv_heads = "num_key_value_heads " + " or ".join(f"{kv:,}" for kv, _ in kinds)
    hidden = _Width(f"hidden_size {claims.hidden:,}", (claims.hidden,))
    vocabulary = _Width(f"vocab_size {claims.vocabulary:,}", (claims.vocabulary,))
    queries = _Width(f"num_attention_heads {claims.heads:,} with {dim}", tuple(claims.heads * dim for _, dim in kinds))
    keys = _Width(f"{kv_heads} to {queries.words}", tuple(kv * dim for kv, dim in kinds))
    together = _Width(keys.words, tuple((claims.heads + 2 * kv) * dim for kv, dim in kinds))
    inner = _Width(size, (intermediate,))
    both = _Width(size, (2 * intermediate,))
    words = f"hidden_size_per_layer_input {claims.per_layer_input:,}"
    beside = _Width(words, (claims.per_layer_input,))
    all_beside = _Width(f"{words} in {claims.layers:,} layers", (claims.per_layer_input * claims.layers,))
    return {
        "embed_tokens": (hidden, vocabulary),
        "lm_head": (hidden, vocabulary),
        "q_proj": (hidden, queries),
        "k_proj": (hidden, keys),
        "v_proj": (hidden, keys),
        "qkv_proj": (hidden, together),
        "o_proj": (queries, hidden),
        "gate_proj": (hidden, inner),
        "up_proj": (hidden, inner),
        "gate_up_proj": (hidden, both),
        "down_proj": (inner, hidden),
        "per_layer_input_gate": (hidden, beside),
        "per_layer_projection": (beside, hidden),
        "per_layer_model_projection": (hidden, all_beside),
    }


def _contradiction(model: ModelFolder, said: str, found: str) -> EngineError:
    return unknown(f"The config.json in {model.path} says {said}, and its weights have {found}.")
