"""One SFT step of a model of Gemma 4 e4b's shape: `python -m bench.e4b [--plans] LENGTH ...`.

Random 4-bit weights, rank 16 on seven linears of 42 layers, one row, the last three quarters of it trained. Meant for
a GPU: the weights alone are 4 GB. Peaks are MLX's, above what rests in memory with the adapter; the memory limit is
set a little above that, as a budget does, so that a peak measures need and not run-ahead. Ratios are to one vjp a
layer (segment size 1, walked whole), from the same run.
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
PLANS = {
    "whole, segments of 1": Plan(1, kept=0, head="fused", head_chunk=128),
    "pieces, segments of 1": Plan(1, kept=0, tile=4096, head="fused", head_chunk=128),
    "pieces of 2,048, segments of 6": Plan(6, kept=0, tile=2048, head="fused", head_chunk=64),
    "pieces of 1,024, segments of 6": Plan(6, kept=0, tile=1024, head="fused", head_chunk=64),
    "pieces of 512, segments of 7": Plan(7, kept=0, tile=512, head="fused", head_chunk=32),
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
    parser.add_argument("lengths", nargs="*", type=int, default=[2048, 4096, 8192])
    parser.add_argument("--plans", nargs="*", default=list(PLANS), metavar="NAME")
    parser.add_argument(
        "--mlx-lm", type=int, nargs="*", default=[], metavar="LENGTH", help="also by mlx-lm, checkpointed"
    )
    parser.add_argument("--limit-gb", type=float, default=1.0, help="memory limit above resting")
    arguments = parser.parse_args()
    stack = build()
    resting = mx.get_active_memory()
    print(f"{mx.default_device()}, {'CPU' if on_cpu() else mx.device_info()['device_name']}, MLX {version('mlx')}")
    print(f"resting {resting / GB:.2f} GB; memory limit {arguments.limit_gb} GB above\n")
    mx.set_memory_limit(resting + int(arguments.limit_gb * GB))
    results: list[tuple[int, str, Cost]] = []
    for length in arguments.lengths:
        for name in arguments.plans:
            cost = measured(by_us(stack, row(length), PLANS[name]), warm=1)
            results.append((length, name, cost))
            print(f"{length} {name}: {cost}", flush=True)
    if arguments.mlx_lm:
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
            for length, name, cost in results
        ],
    )


if __name__ == "__main__":
    main()
