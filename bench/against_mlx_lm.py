"""Step time and peak memory of one SFT step against mlx-lm's trainer: `python -m bench.against_mlx_lm [LENGTH ...]`.

SmolLM2-135M, rank 16 on all seven linears, one row, every token trained, float32 on the CPU. A step is loss,
gradients and AdamW, the same for all; peaks are MLX's, above what rests in memory. Ratios are to mlx-lm with
checkpointing, from the same run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from engine.backend import mx, nn
from engine.config import GB, TrainConfig
from engine.data import Example
from engine.data.batch import make_batch
from engine.memory import PhaseMeter
from engine.models.adapter import add_adapter
from engine.models.find import find_model
from engine.models.load import load_stack
from engine.optimizer import Optimizer
from engine.segmented import Plan, loss_and_gradients

from mlx.optimizers import AdamW
from mlx_lm.tuner.trainer import default_loss, grad_checkpoint

SIZES = (0, 1, 6)


def measured(step: Callable[[], float]) -> tuple[float, int, float]:
    """Seconds, peak bytes above resting, loss."""
    mx.clear_cache()
    resting = mx.get_active_memory()
    mx.reset_peak_memory()
    begun = time.perf_counter()
    loss = step()
    seconds = time.perf_counter() - begun
    return seconds, mx.get_peak_memory() - resting, loss


def main() -> None:
    lengths = [int(argument) for argument in sys.argv[1:]] or [256, 1024, 2048]
    config = TrainConfig()
    stack = load_stack(find_model("sample"))
    add_adapter(stack.model, config)
    results: dict[tuple[int, str], tuple[float, int, float]] = {}

    def segmented(length: int, size: int) -> Callable[[], float]:
        batch = make_batch([Example(1, tokens(length), np.ones(length, bool), 0)])
        optimizer = Optimizer(config, 10)

        def step() -> float:
            plan, meter, peak = Plan(size, config.head_chunk), PhaseMeter(), mx.get_peak_memory
            loss, gradients = loss_and_gradients(stack, batch, length - 1, plan, meter, 0)
            highest = max(meter.peak_bytes, peak())
            optimizer.update(stack.model, gradients, 1)
            held.append(max(highest, peak()))
            return loss / (length - 1)

        return step

    def by_mlx_lm(length: int) -> Callable[[], float]:
        ids, span = mx.array(tokens(length))[None], mx.array([[0, length]])
        optimizer = AdamW(1e-5)
        gradients_of = nn.value_and_grad(stack.model, default_loss)

        def step() -> float:
            (loss, _), gradients = gradients_of(stack.model, ids, span)
            optimizer.update(stack.model, gradients)
            mx.eval(stack.model.parameters(), optimizer.state, loss)
            return float(loss.item())

        return step

    for length in lengths:
        for size in SIZES:
            held: list[int] = []
            resting = mx.get_active_memory()
            seconds, _, loss = measured(segmented(length, size))
            results[length, f"segment size {size}"] = seconds, held[0] - resting, loss
        results[length, "mlx-lm"] = measured(by_mlx_lm(length))
    grad_checkpoint(stack.layers[0])
    for length in lengths:
        results[length, "mlx-lm, checkpointed"] = measured(by_mlx_lm(length))

    print("| tokens | trainer | s a step | ratio | GB above resting | ratio | loss |\n|---|---|---|---|---|---|---|")
    for length in lengths:
        base = results[length, "mlx-lm, checkpointed"]
        for (own, name), (seconds, peak, loss) in results.items():
            if own == length:
                ratios = seconds / base[0], peak / base[1]
                print(
                    f"| {length:,} | {name} | {seconds:.1f} | {ratios[0]:.2f} | {peak / GB:.3f} | {ratios[1]:.2f} "
                    f"| {loss:.4f} |"
                )


def tokens(length: int) -> np.ndarray:
    return np.random.default_rng(length).integers(0, 49_000, length).astype(np.int32)


if __name__ == "__main__":
    main()
