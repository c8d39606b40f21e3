"""Attention forward and backward, ours against MLX's own kernel: `python -m bench.attention [LENGTH ...]`.

Causal, causal with a window of 512, and a prompt with two answers (which MLX's kernel can only do through a mask);
float32 on the CPU, bfloat16 on a GPU. GB above the inputs; ratios to MLX's kernel in the same run.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import numpy as np

from bench.measure import Cost, measured, print_table
from engine import attention
from engine.backend import mx, on_cpu
from engine.memory import PhaseMeter
from engine.spans import Forest, is_visible, plain

WINDOW = 512


def pair(length: int) -> Forest:
    """A prompt of three quarters and two answers of an eighth each."""
    prompt, answer = length * 3 // 4, length // 8
    positions = np.concatenate([np.arange(prompt + answer), np.arange(prompt, prompt + answer)])
    until = np.repeat([length, prompt + answer, length], [prompt, answer, answer])
    return Forest(positions.astype(np.int32), until.astype(np.int32))


def ours(arrays: list[mx.array], slope: mx.array, sight: attention.Sight) -> Callable[[PhaseMeter], object]:
    queries, keys, values = arrays

    def step(_: PhaseMeter) -> None:
        output, sums = attention.forward(queries, keys, values, sight)
        mx.eval(output, sums)
        inner = attention.inner_product(slope, output)
        mx.eval(attention.backward(queries, keys, values, sums, inner, slope, sight))

    return step


def built_in(arrays: list[mx.array], slope: mx.array, sight: attention.Sight) -> Callable[[PhaseMeter], object]:
    (forest,) = sight.forests
    mask: str | mx.array = "causal"
    if not forest.is_plain or sight.window is not None:
        places = np.arange(forest.length, dtype=np.int32)
        mask = mx.array(is_visible(forest, places, places, sight.window))

    def attend(queries: mx.array, keys: mx.array, values: mx.array) -> mx.array:
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=sight.scale, mask=mask)

    def step(_: PhaseMeter) -> None:
        mx.eval(mx.vjp(attend, arrays, [slope]))

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lengths", nargs="*", type=int, default=[4096])
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--dims", nargs="*", type=int, default=[64])
    arguments = parser.parse_args()
    dtype = mx.float32 if on_cpu() else mx.bfloat16
    rows = []
    for length in arguments.lengths:
        kinds = {"causal": (plain(length), None), "window 512": (plain(length), WINDOW), "pair": (pair(length), None)}
        for dim in arguments.dims:
            for name, (forest, window) in kinds.items():
                shapes = [arguments.heads, arguments.kv_heads, arguments.kv_heads, arguments.heads]
                *arrays, slope = [mx.random.normal((1, heads, length, dim)).astype(dtype) for heads in shapes]
                mx.eval(arrays, slope)
                sight = attention.Sight(1 / math.sqrt(dim), window, (forest,))
                base = measured(built_in(arrays, slope, sight), warm=1)
                for who, cost in (("MLX's kernel", base), ("ours", measured(ours(arrays, slope, sight), warm=1))):
                    rows.append((f"{length:,}", dim, name, who, *_against(cost, base)))
    print_table(("length", "head dim", "what", "by", "s", "ratio", "GB", "ratio"), rows)


def _against(cost: Cost, base: Cost) -> tuple[str, ...]:
    seconds, gigabytes = cost.seconds / base.seconds, cost.gigabytes / base.gigabytes
    return f"{cost.seconds:.3f}", f"{seconds:.2f}", f"{cost.gigabytes:.3f}", f"{gigabytes:.2f}"


if __name__ == "__main__":
    main()
