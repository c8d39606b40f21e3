"""Predicted memory of a run, from the model's config and safetensors headers alone, and the segment size that fits.

First version: arithmetic for the Llama family, held against measured peaks in the tests. Plain Python: the
window moves its bars with it, without MLX and without loading a weight. All sizes are bytes.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from engine.config import GB, TrainConfig
from engine.errors import EngineError
from engine.models.folder import ModelFolder, Tensor, open_folder

FLOAT32 = 4
# Queries that attention takes at a time on the CPU; a test holds it to engine.attention.BLOCK.
ATTENTION_BLOCK = 128
# What we leave to the system and other programs when nothing else is said.
_MARGIN = 0.1
_SIZES = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)


@dataclass(frozen=True)
class Architecture:
    """The numbers of a model that its memory depends on."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    weight_bytes: int  # as they will be held in memory
    item_bytes: int  # of an activation


@dataclass(frozen=True)
class Plan:
    """The predicted peak for a segment size (0: the whole model at once) and what it is made of."""

    segment_size: int
    parts: dict[str, int]

    @property
    def peak_bytes(self) -> int:
        return sum(self.parts.values())


@dataclass(frozen=True)
class Suggestion:
    """The fastest segment size that fits, or None, with the reason in words."""

    segment_size: int | None
    reason: str


@dataclass(frozen=True)
class Machine:
    """This machine's memory: all of it, and what is free for us now."""

    name: str
    total_bytes: int
    available_bytes: int


def machine() -> Machine:
    """What this machine has, inside a container what the container may use."""
    memory = psutil.virtual_memory()
    total, available = memory.total, memory.available
    limit = _container_limit()
    if limit is not None and limit < total:
        total, available = limit, min(available, limit - psutil.Process().memory_info().rss)
    return Machine("This Mac" if sys.platform == "darwin" else "This machine", total, max(0, available))


def _container_limit() -> int | None:
    try:
        return int(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):
        return None


def budget_bytes(config: TrainConfig, machine: Machine) -> int:
    """What training may take: the setting, or what is free now less a tenth of the machine."""
    if not isinstance(config.memory_budget_gb, str):
        return int(config.memory_budget_gb * GB)
    return max(GB // 4, machine.available_bytes - int(_MARGIN * machine.total_bytes))


def computes_on_gpu() -> bool:
    """Whether MLX computes on a GPU here, told without loading it."""
    return sys.platform == "darwin" or any(importlib.util.find_spec(name) for name in ("mlx_cuda_12", "mlx_cuda_13"))


def architecture(folder: Path) -> Architecture:
    """Reads the model's numbers. EngineError where its config lacks one: nothing is made up."""
    return architecture_of(open_folder(folder))


def architecture_of(model: ModelFolder) -> Architecture:
    """The same, from a folder that is open already."""
    model.check_usable()
    config = model.config
    hidden, heads = _number(model, "hidden_size"), _number(model, "num_attention_heads")
    item = _item_bytes(model)
    return Architecture(
        layers=_number(model, "num_hidden_layers"),
        hidden=hidden,
        intermediate=_number(model, "intermediate_size"),
        heads=heads,
        kv_heads=_number(model, "num_key_value_heads") if config.get("num_key_value_heads") else heads,
        head_dim=_number(model, "head_dim") if config.get("head_dim") else hidden // heads,
        vocabulary=_number(model, "vocab_size"),
        weight_bytes=sum(_held_bytes(tensor, item) for tensor in model.tensors.values()),
        item_bytes=item,
    )


def _number(model: ModelFolder, name: str) -> int:
    value = model.config.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise EngineError(
            f"The config.json in {model.path} does not say its {name}.",
            "Fetch the model again; without that number its memory can't be predicted.",
        )
    return value


def _item_bytes(model: ModelFolder) -> int:
    """Activations are float32 on the CPU; on a GPU they have the dtype of most of the floating weights."""
    half = any(tensor.dtype in ("F16", "BF16") for tensor in model.tensors.values())
    return 2 if computes_on_gpu() and half else FLOAT32


def _held_bytes(tensor: Tensor, item_bytes: int) -> int:
    if tensor.dtype in ("F16", "BF16", "F32"):
        return math.prod(tensor.shape) * item_bytes
    return tensor.bytes


def adapter_parameters(shape: Architecture, config: TrainConfig) -> int:
    """Numbers in the adapter: rank * (inputs + outputs) of every adapted linear layer."""
    attention, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    sides = {
        "q_proj": shape.hidden + attention,
        "k_proj": shape.hidden + keys,
        "v_proj": shape.hidden + keys,
        "o_proj": attention + shape.hidden,
        "gate_proj": shape.hidden + shape.intermediate,
        "up_proj": shape.hidden + shape.intermediate,
        "down_proj": shape.intermediate + shape.hidden,
    }
    return shape.layers * config.rank * sum(sides[name] for name in config.targets)


def plan(shape: Architecture, config: TrainConfig, longest: int, size: int) -> Plan:
    """The predicted peak with segments of `size` layers, when every row of a batch is `longest` tokens long."""
    length = max(1, min(longest, config.max_length) - 1)
    tokens, item = config.batch_size * length, shape.item_bytes
    adapter = FLOAT32 * adapter_parameters(shape, config)
    segments = math.ceil(shape.layers / size) if size else 1
    last = shape.layers - (segments - 1) * size if size else shape.layers
    whole = size or shape.layers
    hidden = tokens * shape.hidden * item
    attention, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    # What the backward of a layer needs of its forward: norms' inputs and outputs, q, k, v, the mixed heads
    # twice (as heads and as rows), the log-sum-exp, five of the MLP's width, the adapters' inner values.
    layer = item * tokens * (4 * shape.hidden + 3 * attention + 2 * keys + 5 * shape.intermediate)
    layer += FLOAT32 * tokens * (shape.heads + config.rank * len(config.targets))
    scores = 0 if computes_on_gpu() else config.batch_size * shape.heads * min(ATTENTION_BLOCK, length) * length
    working = max(
        item * tokens * (13 * shape.hidden + 8 * shape.intermediate),  # one layer's backward, measured
        5 * FLOAT32 * scores,
    )
    head = 4 * FLOAT32 * min(config.head_chunk, tokens) * shape.vocabulary + 3 * hidden
    fixed = {"weights": shape.weight_bytes, "adapter": 3 * adapter}  # parameters and both moments
    gradients = adapter if config.accumulate == 1 else 2 * adapter
    phases = [
        {
            "gradients": gradients - adapter,
            "boundaries": segments * hidden,
            "segment": last * layer,
            "head": head,
        },
        {
            "gradients": gradients - adapter,
            "boundaries": segments * hidden,
            "segment": last * layer,
            "working": working,
        },
        {"gradients": gradients, "boundaries": 2 * hidden, "segment": whole * layer, "working": working},
        {"gradients": 2 * adapter},  # the optimizer's update
    ]
    worst = max(phases, key=lambda parts: sum(parts.values()))
    return Plan(size, {**fixed, **{name: bytes for name, bytes in worst.items() if bytes}})


def plans(shape: Architecture, config: TrainConfig, longest: int) -> list[Plan]:
    """Plans from the leanest to the fastest: small segments first, the whole model last."""
    sizes = [size for size in _SIZES if size < shape.layers]
    if not isinstance(config.segment_size, str) and 0 < config.segment_size < shape.layers:
        sizes = sorted({*sizes, config.segment_size})
    return [plan(shape, config, longest, size) for size in [*sizes, 0]]


def suggest(plans: list[Plan], budget_bytes: int) -> Suggestion:
    """The fastest of `plans` that fits, by `plans`' own order."""
    fitting = [plan for plan in plans if plan.peak_bytes <= budget_bytes]
    budget = f"{budget_bytes / GB:.1f} GB"
    if not fitting:
        least = min(plans, key=lambda plan: plan.peak_bytes)
        return Suggestion(
            None, f"Nothing fits: even {_name(least)} would need {least.peak_bytes / GB:.1f} of {budget}."
        )
    best = fitting[-1]
    reason = f"{_name(best).capitalize()}: {best.peak_bytes / GB:.1f} of {budget}, predicted."
    larger = plans[plans.index(best) + 1 :]
    if larger:
        reason += f" {_name(larger[0]).capitalize()} would need {larger[0].peak_bytes / GB:.1f} GB."
    else:
        reason += " Everything fits, so nothing is computed twice."
    return Suggestion(best.segment_size, reason)


def choose(shape: Architecture, config: TrainConfig, longest: int, budget_bytes: int) -> Plan:
    """The plan a run takes. EngineError where it would not fit the budget, with what would."""
    all_plans = plans(shape, config, longest)
    if isinstance(config.segment_size, str):
        size = suggest(all_plans, budget_bytes).segment_size
        chosen = next((one for one in all_plans if one.segment_size == size), all_plans[0])
    else:
        size = config.segment_size if config.segment_size < shape.layers else 0
        chosen = plan(shape, config, longest, size)
    if chosen.peak_bytes <= budget_bytes:
        return chosen
    fits = longest_that_fits(shape, config, longest, budget_bytes)
    cure = f"Set the longest row (max_length) to {fits:,} tokens or less, " if fits else "Take a smaller model, "
    raise EngineError(
        f"Training would need {chosen.peak_bytes / GB:.1f} GB, by prediction, and the budget is "
        f"{budget_bytes / GB:.1f} GB ({_name(chosen)}).",
        cure + "lower the rows at a time (batch_size), or raise the memory budget.",
        kind="memory",
    )


def longest_that_fits(shape: Architecture, config: TrainConfig, longest: int, budget_bytes: int) -> int | None:
    """The largest max_length up to `longest` that the leanest plan fits the budget with; None where none does."""
    low, high = 0, min(longest, config.max_length)
    while low < high:
        middle = (low + high + 1) // 2
        if plan(shape, config, middle, 1).peak_bytes <= budget_bytes:
            low = middle
        else:
            high = middle - 1
    return low if low >= 8 else None


def report(config: TrainConfig, model: ModelFolder, longest: int) -> dict[str, Any]:
    """What `estimate --json` prints, for rows of up to `longest` tokens."""
    budget = budget_bytes(config, machine())
    all_plans = plans(architecture_of(model), config, longest)
    suggestion = suggest(all_plans, budget)
    return {
        "budget_bytes": budget,
        "length": min(longest, config.max_length),
        "plans": [
            {"segment_size": one.segment_size, "peak_bytes": one.peak_bytes, "parts": one.parts} for one in all_plans
        ],
        "suggested": {"segment_size": suggestion.segment_size, "reason": suggestion.reason},
    }


def _name(plan: Plan) -> str:
    return f"segment size {plan.segment_size}" if plan.segment_size else "the whole model at once"
