"""One SFT step of a model of Gemma 4 e4b's shape: `python -m bench.e4b LENGTH ... [--lean LENGTH ...]`.

Random 4-bit weights, rank 16 on seven linears of 42 layers, one row, the last three quarters of it trained. Meant for
a GPU: the weights alone are 4 GB. Peaks are MLX's, above what rests in memory with the adapter; lean plans run
under a memory limit a little above that, as a budget sets it, so that a peak measures need and not run-ahead. Ratios
are to one vjp a layer (segment size 1, walked whole), from the same run.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable
from importlib.metadata import version

import numpy as np

from bench.measure import Cost, measured, print_table
from engine.backend import mx, nn, on_cpu
from engine.config import GB, LINEAR_LAYERS, TrainConfig
from engine.data.batch import Batch, make_batch
from engine.data.tokenize import Example
from engine.memory import PhaseMeter
from engine.models.adapter import add_adapter
from engine.models.gemma4 import Gemma4Stack
from engine.objectives import SFT
from engine.segmented import Plan, loss_and_gradients

from mlx.utils import tree_flatten
from mlx_lm.models import gemma4_text
from mlx_lm.tuner.trainer import default_loss, grad_checkpoint

SHAPE = {
    "hidden_size": 2560,
    "num_hidden_layers": 42,
    "intermediate_size": 10_240,
    "num_attention_heads": 8,
    "head_dim": 256,
    "global_head_dim": 512,
    "num_key_value_heads": 2,
    "num_kv_shared_layers": 18,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "use_double_wide_mlp": False,
}
# Each with the memory limit above resting, in GB, that it runs under, as a budget would set it.
PLANS = {
    "whole, segments of 1": (Plan(1, kept=0, head_chunk=512), 100.0),
    "pieces of 4,096, segments of 1": (Plan(1, kept=0, tile=4096, head_chunk=512), 100.0),
    "pieces of 2,048, segments of 6": (Plan(6, kept=0, tile=2048, head_chunk=512), 1.0),
    "pieces of 1,024, segments of 6": (Plan(6, kept=0, tile=1024, head_chunk=256), 1.0),
}


def build() -> Gemma4Stack:
    """The model in bfloat16 and 4 bits, with an adapter."""
    mx.random.seed(0)
    model = gemma4_text.Model(gemma4_text.ModelArgs.from_dict({"model_type": "gemma4_text", **SHAPE}))
    model.set_dtype(mx.bfloat16)
    nn.quantize(model, 64, 4)
    for _, array in tree_flatten(model.parameters()):
        mx.eval(array)
    model.freeze()
    add_adapter(model, TrainConfig.from_mapping({"rank": 16, "targets": LINEAR_LAYERS[:7]}))
    mx.eval(model.parameters())
    gc.collect()
    mx.clear_cache()
    return Gemma4Stack(model)


def row(length: int) -> Batch:
    ids = np.random.default_rng(length).integers(0, 200_000, length + 1).astype(np.int32)
    return make_batch([Example(1, ids, np.arange(length + 1) > length // 4, 0)])


def by_us(stack: Gemma4Stack, batch: Batch, plan: Plan) -> Callable[[PhaseMeter], object]:
    objective = SFT()
    totals = objective.totals(batch.kinds)

    def step(meter: PhaseMeter) -> None:
        result = loss_and_gradients(stack, batch, lambda log_p: objective(log_p, batch.kinds, totals), plan, meter, 0)
        mx.eval(result.gradients)

    return step


def by_mlx_lm(stack: Gemma4Stack, batch: Batch) -> Callable[[PhaseMeter], object]:
    ids = mx.array(np.append(batch.ids[0], batch.targets[-1]))[None]
    span = mx.array([[ids.shape[1] // 4, ids.shape[1]]])
    gradients_of = nn.value_and_grad(stack.model, default_loss)

    def step(_: PhaseMeter) -> None:
        mx.eval(gradients_of(stack.model, ids, span))

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lengths", nargs="*", type=int, default=[8192, 4096])
    parser.add_argument("--plans", nargs="*", default=list(PLANS), metavar="NAME")
    parser.add_argument("--lean", nargs="*", type=int, default=[], metavar="LENGTH", help="by the last plan only, once")
    parser.add_argument("--mlx-lm", nargs="*", type=int, default=[], metavar="LENGTH", help="also by it, checkpointed")
    arguments = parser.parse_args()
    stack = build()
    resting = mx.get_active_memory()
    print(
        f"{'CPU' if on_cpu() else mx.device_info()['device_name']}, MLX {version('mlx')}, resting {resting / GB:.2f} GB"
    )
    results: list[tuple[int, str, Cost]] = []

    def measure(length: int, name: str, warm: int) -> None:
        plan, limit = PLANS[name]
        mx.set_memory_limit(resting + int(limit * GB))
        results.append((length, name, measured(by_us(stack, row(length), plan), warm)))
        print(*results[-1], flush=True)

    for length in arguments.lengths:
        for name in arguments.plans:
            measure(length, name, warm=1)
    for length in arguments.lean:
        measure(length, list(PLANS)[-1], warm=0)
    if arguments.mlx_lm:
        mx.set_memory_limit(resting + 100 * GB)
        grad_checkpoint(stack.layers[0])
        for length in arguments.mlx_lm:
            results.append((length, "mlx-lm, checkpointed", measured(by_mlx_lm(stack, row(length)), warm=1)))
    base = {length: cost for length, name, cost in results if name == "whole, segments of 1"}
    print()
    print_table(
        ("tokens", "plan", "s", "ratio", "GB above resting", "ratio"),
        [
            (
                f"{length:,}",
                name,
                f"{cost.seconds:.2f}",
                f"{cost.seconds / base[length].seconds:.2f}" if length in base else "",
                f"{cost.gigabytes:.2f}",
                f"{cost.gigabytes / base[length].gigabytes:.2f}" if length in base else "",
            )
            for length, name, cost in sorted(results, key=lambda result: result[0])
        ],
    )


if __name__ == "__main__":
    main()
