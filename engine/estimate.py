"""Predicted memory of a run, from the model's config and safetensors headers alone, and the segment size that fits.

First version: arithmetic over the model's widest layer, held against measured peaks in the tests. Plain Python: the
window moves its bars with it, without MLX and without loading a weight. All sizes are bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.architecture import FLOAT32, Architecture, architecture_of
from engine.config import GB, PAIR_OBJECTIVES, TrainConfig
from engine.errors import EngineError
from engine.machine import budget_bytes, computes_on_gpu, machine
from engine.models.adapter_folder import open_adapter
from engine.models.folder import ModelFolder

# Queries that attention takes at a time on the CPU; a test holds it to engine.attention.BLOCK.
ATTENTION_BLOCK = 128
# Logits up to which the automatic head is the fused one, and what the blocked one takes of the vocabulary at a time;
# a test holds them to engine.heads.
FUSED_LOGITS_CPU, FUSED_LOGITS_GPU, HEAD_BLOCK = 2**20, 2**24, 4096
# Tokens that a layer's pieces take at a time.
TILE = 512
_SIZES = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)


@dataclass(frozen=True)
class Plan:
    """The predicted peak of a plan and what it is made of; the fields before it are `engine.segmented.Plan`'s."""

    segment_size: int
    kept: int
    tile: int
    keep_attention: bool
    parts: dict[str, int]
    cost: float  # time, against other plans

    @property
    def peak_bytes(self) -> int:
        return sum(self.parts.values())


@dataclass(frozen=True)
class Suggestion:
    """The fastest segment size that fits, or None, with the reason in words."""

    segment_size: int | None
    reason: str


def adapter_parameters(shape: Architecture, config: TrainConfig) -> int:
    """Numbers in the adapter: rank * (inputs + outputs) of every adapted linear layer, with DoRA its outputs more.

    An adapter to continue from has its own number; EngineError where it can't be read.
    """
    if config.adapter:
        return _continued_parameters(Path(config.adapter).expanduser())
    first = shape.layers - min(config.last_layers or shape.layers, shape.layers)
    adapted = [one for one in shape.linears if one.name in config.targets and one.layer >= first]
    numbers = sum(one.experts * config.rank * (one.inputs + one.outputs) for one in adapted)
    return numbers + (sum(one.outputs for one in adapted) if config.adapter_kind == "dora" else 0)


@lru_cache(maxsize=8)
def _continued_parameters(folder: Path) -> int:
    return sum(math.prod(tensor.shape) for tensor in open_adapter(folder).tensors.values())


def row_limit(config: TrainConfig) -> int:
    """The most tokens that a row brings: each of a pair's sides is cut by itself."""
    return config.max_length * (2 if config.objective in PAIR_OBJECTIVES else 1)


@dataclass(frozen=True)
class _Sizes:
    """Bytes that the arrays of a step take, for rows of one length."""

    tokens: int
    hidden: int  # a hidden state of the whole batch
    attention: int  # queries, or what attention mixed
    keys: int  # keys or values
    sums: int  # log-sum-exps
    scores: int  # one block's
    saved: int  # what a recorded layer's backward needs of its forward
    recorded: int  # while a recorded layer goes backward
    tile: int  # while a tile of a layer's last piece goes backward
    logits: int  # of a chunk, counted, not in bytes
    adapter: int

    @classmethod
    def of(cls, shape: Architecture, config: TrainConfig, longest: int) -> _Sizes:
        length = max(1, min(longest, row_limit(config)) - 1)
        tokens, item = config.batch_size * length, shape.item_bytes
        attention, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        # Norms' inputs and outputs, q, k, v, the mixed heads twice (as heads and as rows), the log-sum-exp, five of
        # the MLP's width, the adapters' inner values.
        saved = item * (4 * shape.hidden + 3 * attention + 2 * keys + 5 * shape.intermediate)
        saved += FLOAT32 * (shape.heads + config.rank * len(config.targets))
        # One layer's backward, and a tile's with all that it records, measured.
        wide = item * (13 * shape.hidden + 8 * shape.intermediate)
        tile = item * (9 * shape.hidden + 15 * shape.intermediate)
        block = min(ATTENTION_BLOCK, length)
        return cls(
            tokens=tokens,
            hidden=tokens * shape.hidden * item,
            attention=tokens * attention * item,
            keys=tokens * keys * item,
            sums=tokens * shape.heads * FLOAT32,
            scores=FLOAT32 * (1 if config.pack else config.batch_size) * shape.heads * block * length,
            saved=tokens * saved,
            recorded=tokens * wide,
            tile=min(TILE * (1 if config.pack else 2 * config.batch_size), tokens) * tile,
            logits=min(config.head_chunk, tokens) * shape.vocabulary,
            adapter=FLOAT32 * adapter_parameters(shape, config),
        )


def plan(
    shape: Architecture, config: TrainConfig, longest: int, size: int, kept: int, tile: int, keep_attention: bool
) -> Plan:
    """The predicted peak of one plan, when every row of a batch brings `longest` tokens: of a pair both sides."""
    sizes = _Sizes.of(shape, config, longest)
    below = shape.layers - kept
    segments = math.ceil(below / size) if below else 0
    hidden, shared = sizes.hidden, shape.donors * 2 * sizes.keys
    extras = sizes.tokens * shape.extras * shape.item_bytes
    fixed = {
        "weights": shape.weight_bytes,
        "adapter": 3 * sizes.adapter,  # parameters and both moments
        "extras": extras,
        "shared keys and values": shared,
    }
    attended = (sizes.attention + sizes.sums) if keep_attention else 0
    first = sizes.adapter if config.accumulate > 1 else 0  # gradients when the backward begins
    share = sizes.adapter // shape.layers
    if tile:
        inside = min(size, below) - 1
        around = 4 * sizes.attention + 2 * sizes.keys
        working = max(
            sizes.tile + around + 2 * hidden, round(3.7 * sizes.scores) + 5 * sizes.attention + 4 * sizes.keys + hidden
        )
    else:
        inside, working = 0, max(sizes.recorded, 5 * sizes.scores)
    boundaries = (segments + (below > 0)) * hidden
    phases = [
        # The head: the last hidden state, its rows picked and normed, unit gradients, the gradient.
        {
            "gradients": first,
            "boundaries": boundaries,
            "kept attention": below * attended,
            "segment": kept * sizes.saved,
            "head": _head_bytes(shape, config, sizes, kept) + 4 * hidden,
        },
        # The layers that keep their activations going backward.
        {
            "gradients": first + kept * share,
            "boundaries": boundaries,
            "kept attention": below * attended,
            "segment": kept * sizes.saved,
            "working": max(sizes.recorded, 5 * sizes.scores) if kept else 0,
        },
        # The uppermost of the other segments, where most boundaries wait.
        {
            "gradients": first + (kept + size) * share if below else 0,
            "boundaries": (segments + 1 + inside) * hidden if below else 0,
            "kept attention": below * attended,
            "segment": 0 if tile or not below else size * sizes.saved,
            "working": working if below else 0,
        },
        # The lowest segment, where most gradients wait.
        {
            "gradients": first + sizes.adapter,
            "boundaries": (2 + inside) * hidden,
            "kept attention": (inside + 1) * attended,
            "segment": 0 if tile or not below else size * sizes.saved,
            "working": working if below else 0,
        },
        {"gradients": first + 2 * sizes.adapter},  # the optimizer's update
    ]
    worst = max(phases, key=lambda parts: sum(parts.values()))
    parts = {name: bytes for name, bytes in {**fixed, **worst}.items() if bytes}
    return Plan(
        size, kept, tile, keep_attention, parts, _cost(shape, config, longest, size, kept, tile, keep_attention)
    )


def _head_bytes(shape: Architecture, config: TrainConfig, sizes: _Sizes, kept: int) -> int:
    """What a chunk of the head takes at its peak."""
    most = FUSED_LOGITS_GPU if computes_on_gpu() else FUSED_LOGITS_CPU
    automatic = "fused" if kept or sizes.logits <= most else "blocked"
    match automatic if config.head == "auto" else config.head:
        case "full":
            return 5 * FLOAT32 * sizes.tokens * shape.vocabulary
        case "blocked":
            block = 4 * HEAD_BLOCK if computes_on_gpu() else HEAD_BLOCK
            chunk = sizes.logits // shape.vocabulary
            return FLOAT32 * chunk * (2 * min(block, shape.vocabulary) + 4 * shape.hidden)
    return 4 * FLOAT32 * sizes.logits


def _cost(
    shape: Architecture, config: TrainConfig, longest: int, size: int, kept: int, tile: int, keep_attention: bool
) -> float:
    """How long a token takes to go through the plan, in token-wise forwards of one layer."""
    length = min(longest, row_limit(config))
    linear = sum(one.experts * one.inputs * one.outputs for one in shape.linears) / shape.layers
    attention = shape.heads * shape.head_dim * length
    # Recorded attention: MLX's exponentials on the CPU cost as much as some two thousand multiplications.
    slow = 1.0 if computes_on_gpu() else 1 + 2000 / shape.head_dim / 8
    mix, slow_mix = attention / linear, slow * attention / linear
    top = kept * (2 + 3.5 * slow_mix)
    below = shape.layers - kept
    again = (min(size, below) - 1) / max(1, min(size, below))
    if not tile:
        return top + below * (3 + 4.5 * slow_mix)
    if keep_attention:
        return top + below * (2.85 + 0.8 * again + 3.5 * mix)
    return top + below * (2.85 + again * (1 + mix) + 4.5 * mix)


def plans(shape: Architecture, config: TrainConfig, longest: int, budget_bytes: int) -> list[Plan]:
    """A plan for each segment size: the fastest that fits the budget, or the leanest. The whole model comes last."""
    sizes = [size for size in _SIZES if size < shape.layers]
    if not isinstance(config.segment_size, str) and 0 < config.segment_size < shape.layers:
        sizes = sorted({*sizes, config.segment_size})
    return [_best(_variants(shape, config, longest, size), budget_bytes) for size in [*sizes, 0]]


def _variants(shape: Architecture, config: TrainConfig, longest: int, size: int) -> list[Plan]:
    """The ways to walk segments of `size` layers."""

    def variant(kept: int, tile: int, keep_attention: bool) -> Plan:
        return plan(shape, config, longest, size, kept, tile, keep_attention)

    if not size:
        return [variant(shape.layers, 0, False)]
    quarters = sorted({shape.layers * quarter // 4 for quarter in range(4)})
    # A head that computes as it goes can't be part of a recorded graph.
    records = config.head != "blocked"
    pieces = [variant(kept, TILE, True) for kept in quarters if records or not kept]
    last = shape.layers - (math.ceil(shape.layers / size) - 1) * size
    return [variant(last if records else 0, 0, False), *pieces, variant(0, TILE, False)]


def _best(variants: list[Plan], budget_bytes: int) -> Plan:
    fitting = [one for one in variants if one.peak_bytes <= budget_bytes]
    return min(fitting, key=lambda one: one.cost) if fitting else min(variants, key=lambda one: one.peak_bytes)


def suggest(plans: list[Plan], budget_bytes: int) -> Suggestion:
    """The fastest of `plans` that fits."""
    fitting = [plan for plan in plans if plan.peak_bytes <= budget_bytes]
    budget = f"{_gb(budget_bytes)} GB"
    if not fitting:
        least = min(plans, key=lambda plan: plan.peak_bytes)
        return Suggestion(
            None,
            f"Nothing fits: even {_name(least)} would need {_gb(least.peak_bytes)} of {budget}. Raise the budget, or "
            "lower the rows at a time or the longest row.",
        )
    best = min(fitting, key=lambda plan: (plan.cost, plan.peak_bytes))
    reason = f"{_name(best).capitalize()}: {_gb(best.peak_bytes)} of {budget}, predicted."
    faster = [plan for plan in plans if plan.cost < best.cost]
    if faster:
        nearest = min(faster, key=lambda plan: plan.peak_bytes)
        reason += f" Faster would be {_name(nearest)}, which would need {_gb(nearest.peak_bytes)} GB."
    else:
        reason += " No other is faster, by prediction."
    return Suggestion(best.segment_size, reason)


def choose(shape: Architecture, config: TrainConfig, longest: int, budget_bytes: int) -> Plan:
    """The plan a run takes. EngineError where it would not fit the budget, with what would."""
    all_plans = plans(shape, config, longest, budget_bytes)
    if isinstance(config.segment_size, str):
        size = suggest(all_plans, budget_bytes).segment_size
        leanest = min(all_plans, key=lambda one: one.peak_bytes)
        chosen = next((one for one in all_plans if one.segment_size == size), leanest)
    else:
        size = config.segment_size if config.segment_size < shape.layers else 0
        chosen = next(one for one in all_plans if one.segment_size == size)
    if chosen.peak_bytes <= budget_bytes:
        return chosen
    fits = longest_that_fits(shape, config, longest, budget_bytes)
    cure = f"Set the longest row (max_length) to {fits:,} tokens or less, " if fits else "Take a smaller model, "
    raise EngineError(
        f"Training would need {_gb(chosen.peak_bytes)} GB, by prediction, and the budget is "
        f"{_gb(budget_bytes)} GB ({_name(chosen)}).",
        cure + "lower the rows at a time (batch_size), or raise the memory budget.",
        kind="memory",
    )


def longest_that_fits(shape: Architecture, config: TrainConfig, longest: int, budget_bytes: int) -> int | None:
    """The largest max_length up to the present one that some plan fits the budget with; None where none does."""
    low, high = 0, min(longest, config.max_length)
    while low < high:
        middle = (low + high + 1) // 2
        shorter = plans(shape, replace(config, max_length=middle), longest, budget_bytes)
        if min(one.peak_bytes for one in shorter) <= budget_bytes:
            low = middle
        else:
            high = middle - 1
    return low if low >= 8 else None


def report(config: TrainConfig, model: ModelFolder, longest: int) -> dict[str, Any]:
    """What `estimate --json` prints, for rows that bring up to `longest` tokens."""
    budget = budget_bytes(config, machine())
    all_plans = plans(architecture_of(model), config, longest, budget)
    suggestion = suggest(all_plans, budget)
    return {
        "budget_bytes": budget,
        "length": min(longest, row_limit(config)),
        "plans": [
            {"segment_size": one.segment_size, "peak_bytes": one.peak_bytes, "parts": one.parts} for one in all_plans
        ],
        "suggested": {"segment_size": suggestion.segment_size, "reason": suggestion.reason},
    }


def _gb(size: int) -> str:
    """GB to two digits after the point: with one, what does not fit can read like what does."""
    return f"{size / GB:.2f}"


def _name(plan: Plan) -> str:
    return f"segment size {plan.segment_size}" if plan.segment_size else "the whole model at once"
