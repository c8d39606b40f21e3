"""The heads over tokens and vocabularies: `python -m bench.heads [--tokens N ...] [--chunk N]`.

log p and unit gradients of random hidden states; random float32 weights on the CPU, bfloat16 on a GPU, dense and in
4 bits (on the CPU only with --bits 4: MLX's quantized product crawls there). Peaks are MLX's, above what rests in
memory. Ratios are to the fused head, from the same run; the best of `--repeat` runs counts.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.metadata import version

from bench.measure import Cost, measured, print_table
from engine.backend import mx, nn, on_cpu
from engine.heads import Head, HeadPlan, choose_head, unit_gradients
from engine.memory import PhaseMeter

SHAPES = {"SmolLM2": (49_152, 576), "Gemma": (262_144, 640)}
# More logits than this are too much for the full head: 16 GB with the copies that autograd makes.
FULL_LOGITS = 2**30


def build(vocabulary: int, hidden: int, bits: int) -> Head:
    mx.random.seed(0)
    module = nn.Embedding(vocabulary, hidden)
    # Of the size of a trained head over normed hidden states, so that logits spread by about 2.
    module.weight = mx.random.normal((vocabulary, hidden)) * (2 / hidden**0.5)
    module.set_dtype(mx.float32 if on_cpu() else mx.bfloat16)
    if bits < 16:
        module = module.to_quantized(group_size=64, bits=bits)
    mx.eval(module.parameters())
    return Head(module)


def step_of(head: Head, hidden: int, tokens: int, plan: HeadPlan) -> Callable[[PhaseMeter], object]:
    states = mx.random.normal((tokens, hidden)).astype(mx.float32 if on_cpu() else mx.bfloat16)
    targets = mx.random.randint(0, head.vocabulary, (tokens,))
    mx.eval(states, targets)

    def step(_: PhaseMeter) -> object:
        pairs = unit_gradients(head, states, targets, plan)
        for pair in pairs:
            mx.eval(pair)
        return pairs

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--tokens", type=int, nargs="*", default=[4, 16, 64, 256] if on_cpu() else [16, 64, 256, 1024, 4096]
    )
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--bits", type=int, nargs="*", default=[16] if on_cpu() else [16, 4])
    parser.add_argument("--blocks", type=int, nargs="*", default=[4096] if on_cpu() else [4096, 16_384])
    parser.add_argument("--chunk", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=2)
    arguments = parser.parse_args()
    print(f"{'CPU' if on_cpu() else mx.device_info()['device_name']}, MLX {version('mlx')}, chunk {arguments.chunk}\n")
    plans = {kind: HeadPlan(kind, arguments.chunk, epsilon=0.0) for kind in ("full", "chunked", "fused")}
    for block in arguments.blocks:
        plans[f"blocked {block:,}"] = HeadPlan("blocked", arguments.chunk, 0.0, block)
        plans[f"blocked {block:,}, epsilon 1e-5"] = HeadPlan("blocked", arguments.chunk, 1e-5, block)
    rows = []
    for name in arguments.shapes:
        vocabulary, hidden = SHAPES[name]
        for bits in arguments.bits:
            head = build(vocabulary, hidden, bits)
            for tokens in arguments.tokens:
                costs = {}
                for kind, plan in plans.items():
                    if plan.kind != "full" or tokens * vocabulary <= FULL_LOGITS:
                        step = step_of(head, hidden, tokens, plan)
                        runs = [measured(step, warm=1) for _ in range(arguments.repeat)]
                        costs[kind] = Cost(min(run.seconds for run in runs), max(run.gigabytes for run in runs))
                auto = choose_head("auto", arguments.chunk, 1e-5, tokens, vocabulary).kind
                rows += [
                    (f"{vocabulary:,} x {hidden}", bits, f"{tokens:,}", kind, *compared(cost, costs["fused"]), auto)
                    for kind, cost in costs.items()
                ]
    print_table(("head", "bits", "tokens", "kind", "ms", "ratio", "MB above resting", "ratio", "auto takes"), rows)


def compared(cost: Cost, base: Cost) -> tuple[str, ...]:
    return (
        f"{cost.seconds * 1000:.1f}",
        f"{cost.seconds / base.seconds:.2f}",
        f"{cost.gigabytes * 1024:.1f}",
        f"{cost.gigabytes / base.gigabytes:.2f}",
    )


if __name__ == "__main__":
    main()
