"""One SFT step against mlx-lm's trainer: `python -m bench.against_mlx_lm [LENGTH ...]`.

SmolLM2-135M, rank 16 on all seven linears, one row, every token trained, float32 on the CPU. A step is loss and
gradients; the adapter is not moved, so that all see the same weights. Peaks are MLX's, above what rests in memory.
Ratios are to mlx-lm with checkpointing, from the same run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from bench.measure import Cost, measured, print_table
from engine.backend import mx, nn
from engine.config import LINEAR_LAYERS, TrainConfig
from engine.data.batch import make_batch
from engine.data.tokenize import Example
from engine.memory import PhaseMeter
from engine.models.adapter import add_adapter
from engine.models.find import find_model
from engine.models.load import load_stack
from engine.models.stack import Stack
from engine.objectives import SFT
from engine.plans import TILE
from engine.segmented import Plan, loss_and_gradients

from mlx_lm.tuner.trainer import default_loss, grad_checkpoint

PLANS = {
    "all activations kept": Plan(0, kept=30, head_chunk=64),
    "whole, segments of 1": Plan(1, kept=1, head_chunk=64),
    "whole, segments of 6": Plan(6, kept=6, head_chunk=64),
    "pieces, segments of 1, attention kept": Plan(1, kept=0, tile=TILE, keep_attention=True, head_chunk=64),
    "pieces, segments of 1": Plan(1, kept=0, tile=TILE, head_chunk=64),
    "pieces, segments of 6": Plan(6, kept=0, tile=TILE, head_chunk=64),
}
BASE = "mlx-lm, checkpointed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lengths", nargs="*", type=int, default=[256, 1024, 2048])
    parser.add_argument("--without-plain", action="store_true", help="leave out mlx-lm without checkpointing")
    arguments = parser.parse_args()
    stack = load_stack(find_model("sample"))
    add_adapter(stack.model, TrainConfig.from_mapping({"targets": LINEAR_LAYERS[:7]}))
    results: list[tuple[int, str, Cost]] = []
    for length in arguments.lengths:
        results += [(length, name, measured(by_us(stack, length, plan))) for name, plan in PLANS.items()]
        if not arguments.without_plain:
            results.append((length, "mlx-lm", measured(by_mlx_lm(stack, length))))
    grad_checkpoint(stack.layers[0])
    results += [(length, BASE, measured(by_mlx_lm(stack, length))) for length in arguments.lengths]
    base = {length: cost for length, name, cost in results if name == BASE}
    print_table(
        ("tokens", "trainer", "s a step", "ratio", "GB above resting", "ratio"),
        [
            (
                f"{length:,}",
                name,
                f"{cost.seconds:.1f}",
                f"{cost.seconds / base[length].seconds:.2f}",
                f"{cost.gigabytes:.3f}",
                f"{cost.gigabytes / base[length].gigabytes:.2f}",
            )
            for length, name, cost in sorted(results, key=lambda result: result[0])
        ],
    )


def tokens(length: int) -> np.ndarray:
    return np.random.default_rng(length).integers(0, 49_000, length).astype(np.int32)


def by_us(stack: Stack, length: int, plan: Plan) -> Callable[[PhaseMeter], object]:
    batch = make_batch([Example(1, tokens(length), np.arange(length) > 0, 0)])
    objective = SFT()
    totals = objective.totals(batch.kinds)

    def step(meter: PhaseMeter) -> None:
        loss_and_gradients(stack, batch, lambda log_p: objective(log_p, batch.kinds, totals), plan, meter, 0)

    return step


def by_mlx_lm(stack: Stack, length: int) -> Callable[[PhaseMeter], object]:
    ids, span = mx.array(tokens(length))[None], mx.array([[0, length]])
    gradients_of = nn.value_and_grad(stack.model, default_loss)

    def step(_: PhaseMeter) -> None:
        mx.eval(gradients_of(stack.model, ids, span))

    return step


if __name__ == "__main__":
    main()
