"""A model's matrices as its safetensors headers declare them, packed ones by the size that they stand for."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from engine.errors import EngineError
from engine.models.folder import ModelFolder, Tensor

FLOATING = ("F16", "BF16", "F32")
# Bits and group sizes that MLX packs weights with, by the mode in config.json.
_PACKED = {
    "affine": ((1, 2, 3, 4, 5, 6, 8), (32, 64, 128)),
    "mxfp4": ((4,), (32,)),
    "mxfp8": ((8,), (32,)),
    "nvfp4": ((4,), (16,)),
}
_LAYER = re.compile(r"\blayers\.(\d+)\.")
# mlx-lm's own answer where a family's config does not say whether the head is the embedding.
TIED = frozenset({"llama", "mistral", "smollm3", "qwen2", "qwen3"})


@dataclass(frozen=True)
class Matrix:
    """A weight that multiplies, with the sizes it has unpacked; `experts` of them in one where a router chooses."""

    path: str
    layer: int | None  # None outside the decoder layers
    name: str
    inputs: int
    outputs: int
    experts: int | None = None


@dataclass(frozen=True)
class _Packing:
    bits: int
    group_size: int

    def __str__(self) -> str:
        return f"{self.bits} bits in groups of {self.group_size}"


def unknown(cause: str) -> EngineError:
    """The refusal to predict: the sentence `cause` says what can't be known."""
    return EngineError(
        cause,
        "Its memory can't be predicted from that. Measure it instead (Measure in the window, probe on the command "
        "line), or fetch the model again.",
        kind="unknown",
    )


def held(model: ModelFolder, first_shared: int) -> dict[str, Tensor]:
    """The tensors that stay when mlx-lm loads the model, by name.

    Layers from `first_shared` on are given the keys and values of an earlier one: files may hold theirs all the same.
    """
    tied = model.model_type in TIED and model.text_config.get("tie_word_embeddings", True)

    def stays(name: str) -> bool:
        if "rotary_emb" in name or (tied and name == "lm_head.weight"):
            return False
        if ".self_attn.k_" not in name and ".self_attn.v_" not in name:
            return True
        layer = _layer(name)
        return layer is None or layer < first_shared

    return {name: tensor for name, tensor in model.tensors.items() if stays(name)}


def matrices(model: ModelFolder, tensors: Mapping[str, Tensor]) -> list[Matrix]:
    """The matrices among `tensors`. EngineError(kind="unknown") where their packing is not what the config says."""
    declared = _quantization(model)
    if declared and not any(name.endswith(".scales") for name in tensors):
        raise unknown(
            f"The config.json in {model.path} says {declared}, and none of its weights has scales: they are "
            "not quantized."
        )
    found: list[Matrix] = []
    for name, tensor in tensors.items():
        path, _, last = name.rpartition(".")
        if last == "weight" and len(tensor.shape) >= 2:
            *experts, outputs, inputs = tensor.shape
            if f"{path}.scales" in tensors:
                inputs = _unpacked(model, tensor, tensors[f"{path}.scales"], declared, path)
            elif tensor.dtype not in FLOATING:
                raise unknown(
                    f"The weight {name} in {model.path} is of the type {tensor.dtype} and has no scales: nothing says "
                    "what its numbers stand for."
                )
            count = math.prod(experts) if experts else None
            found.append(Matrix(path, _layer(name), path.rpartition(".")[2], inputs, outputs, count))
        elif path.endswith(".experts") and len(tensor.shape) == 3:
            found += _fused_experts(name, last, *tensor.shape)
    return found


def _fused_experts(path: str, name: str, experts: int, outputs: int, inputs: int) -> list[Matrix]:
    """Hugging Face keeps all experts of a layer in one tensor, gate and up in the same; loading takes them apart."""
    if name == "gate_up_proj":
        return [Matrix(path, _layer(path), half, inputs, outputs // 2, experts) for half in ("gate_proj", "up_proj")]
    return [Matrix(path, _layer(path), name, inputs, outputs, experts)]


def _layer(name: str) -> int | None:
    found = _LAYER.search(name)
    return int(found[1]) if found else None


def _unpacked(model: ModelFolder, tensor: Tensor, scales: Tensor, declared: _Packing | None, path: str) -> int:
    """The inputs of a quantized matrix: its packed columns and its scales must tell the same number."""
    if declared is None:
        raise unknown(f"The weight {path} in {model.path} is quantized, and its config.json does not say how.")
    own = model.config["quantization"].get(path)
    packing = _checked(model, own) if isinstance(own, dict) else declared
    if tensor.dtype != "U32" or scales.shape[:-1] != tensor.shape[:-1]:
        raise unknown(
            f"The weight {path} in {model.path} is of the type {tensor.dtype} and the size {tensor.shape}, its scales "
            f"are of the size {scales.shape}: MLX does not quantize so."
        )
    by_columns, by_scales = tensor.shape[-1] * 32 // packing.bits, scales.shape[-1] * packing.group_size
    if by_columns != by_scales:
        raise unknown(
            f"The config.json in {model.path} says {packing}: by that the weight {path} takes {by_columns:,} "
            f"inputs by its size and {by_scales:,} by its scales."
        )
    return by_scales


def _quantization(model: ModelFolder) -> _Packing | None:
    """What config.json says of the packing in MLX's layout; None where it says that nothing is packed."""
    declared = model.config.get("quantization")
    if declared is not None:
        return _checked(model, declared)
    other = model.config.get("quantization_config") or model.text_config.get("quantization_config")
    if not other and not (model.path / "hf_quant_config.json").exists():
        return None
    method = other.get("quant_method") if isinstance(other, dict) else None
    raise unknown(
        f"The model in {model.path} is quantized by {shown(method) if method else 'a method it does not name'}, which "
        "is not MLX's own: how its weights will lie in memory is not known."
    )


def _checked(model: ModelFolder, declared: object) -> _Packing:
    values = declared if isinstance(declared, dict) else {}
    mode = values.get("mode", "affine")
    known = _PACKED.get(mode) if isinstance(mode, str) else None
    if known is None:
        raise unknown(f"The config.json in {model.path} says quantization mode {shown(mode)}, which is none of MLX's.")
    return _Packing(
        _of_mode(model, mode, "bits", values.get("bits"), known[0]),
        _of_mode(model, mode, "group_size", values.get("group_size"), known[1]),
    )


def _of_mode(model: ModelFolder, mode: str, name: str, value: object, choices: tuple[int, ...]) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value not in choices:
        said = f"says {name} {shown(value)}" if value is not None else f"does not say the {name}"
        wanted = " or ".join(map(str, choices))
        raise unknown(f"The config.json in {model.path} {said} of its quantization; {mode} has {wanted}.")
    return value


def shown(value: object) -> str:
    """`value` as a person may read it: what strangers write can be of any length."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
