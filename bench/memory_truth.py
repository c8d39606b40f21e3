"""Predicted peaks against measured ones: `python -m bench.memory_truth [--cells N] [--model M]`.

Models with random weights, as wide as real ones and with fewer layers: Llama, Gemma 4 (windows,
shared keys and values, per-layer inputs) and Qwen 3 with a vocabulary of 151,936. Two real steps a cell; peaks are
MLX's own count, the model at rest included, and so is what they are compared with. "After" is after one probe of each
way to walk, at a third of the longest rows, as the app does it for a person's own model. Then, for each model, a
budget between two plans: the suggestion must fit it as measured, and the next faster plan must not.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from bench.measure import print_table
from engine import estimate
from engine.architecture import Architecture, architecture
from engine.backend import mx, nn, on_cpu
from engine.calibration import Correction, fitted
from engine.config import GB, TrainConfig
from engine.data.tokenize import Example, Item, Pair
from engine.memory import hold_to
from engine.models.adapter import add_adapter
from engine.models.folder import open_folder
from engine.models.load import load_stack
from engine.plans import TILE, Variant
from engine.steps import Steps, plan_of

from mlx.utils import tree_flatten
from mlx_lm.utils import _get_classes

_COMMON = {"max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "tie_word_embeddings": True}
MODELS = {
    "Llama": {
        **_COMMON, "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 8,
        "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49_152,
    },
    "Gemma 4": {
        **_COMMON, "model_type": "gemma4_text", "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8,
        "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 128, "global_head_dim": 256,
        "num_kv_shared_layers": 3, "sliding_window": 256, "sliding_window_pattern": 4, "use_double_wide_mlp": False,
        "vocab_size": 32_768, "vocab_size_per_layer_input": 32_768, "hidden_size_per_layer_input": 64,
    },
    "Qwen 3": {
        **_COMMON, "model_type": "qwen3", "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 6,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 151_936,
    },
}  # fmt: skip
# A GPU gets models and rows as large as those that it is bought for: of small ones it holds more at a time.
LARGER = {
    "Llama": {
        "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 8,
        "vocab_size": 128_256,
    },
    "Gemma 4": {
        "hidden_size": 2560, "intermediate_size": 10_240, "num_hidden_layers": 12, "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 256, "global_head_dim": 512, "num_kv_shared_layers": 5,
        "sliding_window": 512, "hidden_size_per_layer_input": 256,
    },
    "Qwen 3": {
        "hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 16, "num_key_value_heads": 8,
        "head_dim": 128,
    },
}  # fmt: skip
if not on_cpu():
    MODELS = {name: {**config, **LARGER[name]} for name, config in MODELS.items()}
# Rows, and tokens in each.
SIZES = [(1, 512), (4, 200), (1, 1500), (2, 900)] if on_cpu() else [(1, 2048), (4, 800), (1, 4096), (2, 2000)]
PAIRS = (2, 700) if on_cpu() else (2, 1600)
PROBED, LONGEST = SIZES[0], SIZES[2][1]


@dataclass(frozen=True)
class Cell:
    """A model, an objective, a batch, a plan."""

    model: str
    objective: str
    rows: int
    tokens: int
    variant: Variant

    @property
    def config(self) -> TrainConfig:
        return TrainConfig.from_mapping(
            {"objective": self.objective, "batch_size": self.rows, "max_length": 8192, "segment_size": "auto"}
        )


@dataclass(frozen=True)
class Truth:
    """A cell's prediction and measurement, in bytes, the model at rest included."""

    cell: Cell
    plan: estimate.Plan
    peak_bytes: int
    resting_bytes: int

    @property
    def predicted_bytes(self) -> int:
        return self.plan.peak_bytes - self.plan.parts["program"]


def cells(model: str) -> Iterator[Cell]:
    """Every way to walk with SFT at every size; the pair objectives with a part of them."""
    layers = int(str(MODELS[model]["num_hidden_layers"]))
    ways = [
        Variant(1, 1, 0, False), Variant(0, layers, 0, False), Variant(3, 0, TILE, True), Variant(3, 0, TILE, False),
        Variant(2, layers // 2, TILE, True),
    ]  # fmt: skip
    for rows, tokens in SIZES:
        for way in ways:
            yield Cell(model, "sft", rows, tokens, way)
    for objective, way in (("orpo", ways[1]), ("orpo", ways[2]), ("dpo", ways[0]), ("dpo", ways[3])):
        yield Cell(model, objective, *PAIRS, way)


def write_model(folder: Path, name: str) -> Path:
    """The model with random weights, in half precision on a GPU as real ones are."""
    folder.mkdir(parents=True)
    config = dict(MODELS[name])
    model_class, arguments = _get_classes(dict(config))
    mx.random.seed(0)
    model: nn.Module = model_class(arguments.from_dict(dict(config)))
    if not on_cpu():
        model.set_dtype(mx.bfloat16)
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())), {"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def items(cell: Cell, vocabulary: int) -> list[Item]:
    """Rows of random tokens, three quarters trained; pairs whose prompt is half of what they bring."""
    random = np.random.default_rng(cell.tokens)

    def example(ids: np.ndarray, prompt: int) -> Example:
        return Example(1, ids.astype(np.int32), np.arange(len(ids)) >= prompt, 0)

    def pair() -> Pair:
        prompt, answer = cell.tokens // 2, cell.tokens // 4
        shared = random.integers(3, vocabulary, prompt)
        sides = (np.concatenate([shared, random.integers(3, vocabulary, answer)]) for _ in range(2))
        return Pair(1, *(example(ids, prompt) for ids in sides))

    if cell.objective == "sft":
        return [example(random.integers(3, vocabulary, cell.tokens), cell.tokens // 4) for _ in range(cell.rows)]
    return [pair() for _ in range(cell.rows)]


def measure(folder: Path, shape: Architecture, cell: Cell) -> Truth:
    """Two steps of the cell; the second has all that later ones have."""
    gc.collect()
    mx.clear_cache()
    others = mx.get_active_memory()
    config = cell.config
    rows = items(cell, shape.vocabulary)
    plan = estimate.plan(shape, config, max(item.tokens for item in rows), cell.variant)
    hold_to(others + plan.limit_bytes, plan.parts["program"])
    stack = load_stack(open_folder(folder))
    add_adapter(stack.model, config)
    steps = Steps(config, stack, plan_of(config, cell.variant), 2)
    batches = steps.batches(rows)
    for number in (1, 2):
        steps.take(number, batches)
    mx.synchronize()
    return Truth(cell, plan, steps.peak_bytes - others, mx.get_active_memory() - others)


def learned(truths: list[Truth]) -> dict[str, Correction]:
    """What a probe of each way to walk would teach, by model."""
    points: dict[str, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for one in truths:
        if one.cell.objective == "sft" and (one.cell.rows, one.cell.tokens) == PROBED:
            rests = one.plan.parts["weights"] + one.plan.parts["adapter"]
            taken = one.peak_bytes - one.resting_bytes
            points[one.cell.model][one.plan.kind].append((one.predicted_bytes - rests, taken))
    return {
        model: Correction(lines={kind: fitted(found) for kind, found in kinds.items()})
        for model, kinds in points.items()
    }


def corrected(one: Truth, correction: Correction) -> int:
    """The prediction after calibration."""
    return max(
        sum(parts.values()) - parts["program"]
        for parts in (correction.applied(one.plan.kind, phase.parts) for phase in one.plan.phases)
    )


def check_suggestion(folder: Path, shape: Architecture, model: str) -> tuple[object, ...]:
    """A budget between two plans: what the suggestion and the next faster plan really take of it."""
    config = Cell(model, "sft", 1, LONGEST, Variant(0, 0, 0, False)).config
    plenty = estimate.plans(estimate.Case(shape, config, LONGEST, 1000 * GB))
    fastest = min(plenty, key=lambda one: one.cost)
    budget = round(0.97 * fastest.peak_bytes)
    chosen = min(
        (one for one in estimate.plans(estimate.Case(shape, config, LONGEST, budget)) if one.peak_bytes <= budget),
        key=lambda one: one.cost,
    )
    took = [
        measure(folder, shape, Cell(model, "sft", 1, LONGEST, one.variant)).peak_bytes + one.parts["program"]
        for one in (chosen, fastest)
    ]
    fits = took[0] <= budget < took[1]
    return (model, f"{budget / GB:.2f}", _named(chosen.variant), f"{took[0] / GB:.2f}", _named(fastest.variant),
            f"{took[1] / GB:.2f}", "holds" if fits else "FAILS")  # fmt: skip


def _named(way: Variant) -> str:
    size = f"{way.segment_size} layers" if way.segment_size else "all layers"
    return f"{size}, {way.kind}" + (f", {way.kept} kept" if way.kept and way.segment_size else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=1000, help="at most so many of each model")
    parser.add_argument("--model", action="append", choices=[*MODELS], help="just this one; can be given again")
    arguments = parser.parse_args()
    device = "CPU" if on_cpu() else mx.device_info()["device_name"]
    print(f"{device}, MLX {version('mlx')}")
    truths: list[Truth] = []
    suggestions = []
    with tempfile.TemporaryDirectory() as scratch:
        for model in arguments.model or MODELS:
            folder = write_model(Path(scratch) / model, model)
            shape = architecture(folder)
            for cell in list(cells(model))[: arguments.cells]:
                truths.append(one := measure(folder, shape, cell))
                print(f"{cell}: {one.predicted_bytes / one.peak_bytes:.3f}", file=sys.stderr, flush=True)
            suggestions.append(check_suggestion(folder, shape, model))
    corrections = learned(truths)
    rows, before, after = [], [], []
    for one in truths:
        again = corrected(one, corrections[one.cell.model])
        before.append(one.predicted_bytes / one.peak_bytes)
        after.append(again / one.peak_bytes)
        rows.append(
            (one.cell.model, one.cell.objective, one.cell.rows, f"{one.cell.tokens:,}", _named(one.cell.variant),
             f"{one.predicted_bytes / GB:.3f}", f"{one.peak_bytes / GB:.3f}", f"{before[-1]:.3f}", f"{after[-1]:.3f}")
        )  # fmt: skip
    print_table(
        ("model", "objective", "rows", "tokens", "plan", "predicted GB", "measured GB", "before", "after"), rows
    )
    print()
    for name, ratios in (("before", np.array(before)), ("after", np.array(after))):
        print(
            f"{len(ratios)} cells {name} calibration: {ratios.min():.3f} to {ratios.max():.3f}; beyond 5 %: "
            f"{int((abs(ratios - 1) > 0.05).sum())}, beyond 2 %: {int((abs(ratios - 1) > 0.02).sum())}, under by more "
            f"than 2 %: {int((ratios < 0.98).sum())}"
        )
    print()
    print_table(("model", "budget GB", "suggested", "took GB", "next faster", "took GB", "suggestion"), suggestions)


if __name__ == "__main__":
    main()
