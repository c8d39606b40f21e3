"""One ORPO step against mlx-lm-lora's trainer: `python -m bench.orpo [--prompt TOKENS] [--response TOKENS]`.

SmolLM2-135M, rank 16 on all seven linears, one pair with the same prompt, float32 on the CPU. A step is loss and
gradients; the adapter is not moved, so that all see the same weights. mlx-lm-lora learns from responses alone, as we
do with `sft_scope` response: then the losses must agree. Peaks are MLX's, above what rests in memory. Ratios are to
mlx-lm-lora with checkpointing, from the same run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bench.measure import Cost, measured, print_table
from engine.backend import mx, nn
from engine.config import LINEAR_LAYERS, TrainConfig
from engine.data.batch import Layout, make_batch
from engine.data.tokenize import Example, Pair
from engine.memory import PhaseMeter
from engine.models.adapter import add_adapter
from engine.models.find import find_model
from engine.models.load import load_stack
from engine.models.stack import Stack
from engine.objectives import ORPO
from engine.plans import TILE
from engine.segmented import Plan, loss_and_gradients

try:
    # Only this comparison needs it: pip install mlx-lm-lora==5.10.0
    from mlx_lm_lora.trainer import orpo_trainer
except ImportError:
    orpo_trainer = None

PLANS = {
    "all activations kept": Plan(0, kept=30, head_chunk=64),
    "pieces, segments of 1, attention kept": Plan(1, kept=0, tile=TILE, keep_attention=True, head_chunk=64),
    "pieces, segments of 1": Plan(1, kept=0, tile=TILE, head_chunk=64),
    "pieces, segments of 6": Plan(6, kept=0, tile=TILE, head_chunk=64),
}
BASE = "mlx-lm-lora, checkpointed"
WEIGHT = 0.1
# float32 sums over 30 layers in another order; mlx-lm-lora averages over tokens in another order, too.
AGREEMENT = 1e-3


@dataclass(frozen=True)
class Result:
    """A trainer's step: what it learns of the chosen row, what it took, and the loss it found."""

    trainer: str
    scope: str
    cost: Cost
    loss: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompt", type=int, default=1500)
    parser.add_argument("--response", type=int, default=200, help="tokens of each of the two")
    parser.add_argument("--without-plain", action="store_true", help="leave out mlx-lm-lora without checkpointing")
    arguments = parser.parse_args()
    stack = load_stack(find_model("sample"))
    add_adapter(stack.model, TrainConfig.from_mapping({"targets": LINEAR_LAYERS[:7]}))
    pair = pair_of(arguments.prompt, arguments.response)
    results = [
        result(name, scope, by_us(stack, pair, plan, Layout(prompts=scope == "full"), scope))
        for scope in ("response", "full")
        for name, plan in PLANS.items()
    ]
    apart, plan = "pieces, segments of 6, prompt twice", PLANS["pieces, segments of 6"]
    results.append(result(apart, "response", by_us(stack, pair, plan, Layout(share=False), "response")))
    if orpo_trainer is None:
        print("mlx-lm-lora is not installed, so there is nothing to compare with: pip install mlx-lm-lora==5.10.0\n")
    else:
        if not arguments.without_plain:
            results.append(result("mlx-lm-lora", "response", by_mlx_lm_lora(stack, pair)))
        orpo_trainer.grad_checkpoint(stack.layers[0])
        results.append(result(BASE, "response", by_mlx_lm_lora(stack, pair)))
    print(f"prompt {arguments.prompt:,} tokens, responses {arguments.response:,} and {arguments.response:,}\n")
    print_results(results)


def print_results(results: list[Result]) -> None:
    base = next((one for one in results if one.trainer == BASE), None)
    print_table(
        ("trainer", "learns", "s a step", "ratio", "GB above resting", "ratio", "loss"),
        [
            (
                one.trainer,
                one.scope,
                f"{one.cost.seconds:.1f}",
                f"{one.cost.seconds / base.cost.seconds:.2f}" if base else "",
                f"{one.cost.gigabytes:.3f}",
                f"{one.cost.gigabytes / base.cost.gigabytes:.3f}" if base else "",
                f"{one.loss:.5f}",
            )
            for one in results
        ],
    )
    losses = [one.loss for one in results if one.scope == "response"]
    apart = max(losses) - min(losses)
    verdict = "agree" if apart <= AGREEMENT else "DISAGREE"
    print(f"\nThe losses of responses {verdict}: they differ by {apart:.1e} at most.")


def pair_of(prompt: int, response: int) -> Pair:
    """Random tokens: hardly any word of the vocabulary is unlikely enough for the blocked head to leave it out."""
    random = np.random.default_rng(prompt)
    first = random.integers(0, 49_000, prompt)

    def side() -> Example:
        ids = np.concatenate([first, random.integers(0, 49_000, response)]).astype(np.int32)
        return Example(1, ids, np.arange(len(ids)) >= prompt, 0)

    return Pair(1, side(), side())


def result(trainer: str, scope: str, step: Callable[[PhaseMeter], float]) -> Result:
    losses: list[float] = []
    cost = measured(lambda meter: losses.append(step(meter)))
    return Result(trainer, scope, cost, losses[-1])


def by_us(stack: Stack, pair: Pair, plan: Plan, layout: Layout, scope: str) -> Callable[[PhaseMeter], float]:
    batch = make_batch([pair], layout)
    objective = ORPO(WEIGHT, scope)
    totals = objective.totals(batch.kinds)

    def step(meter: PhaseMeter) -> float:
        found = loss_and_gradients(stack, batch, lambda log_p: objective(log_p, batch.kinds, totals), plan, meter, 0)
        return found.loss

    return step


def by_mlx_lm_lora(stack: Stack, pair: Pair) -> Callable[[PhaseMeter], float]:
    row = {
        "chosen": pair.chosen.ids,
        "rejected": pair.rejected.ids,
        "chosen_prompt_length": pair.shared,
        "rejected_prompt_length": pair.shared,
    }
    (batch,) = orpo_trainer.iterate_orpo_batches([row], batch_size=1, max_seq_length=pair.length)
    gradients_of = nn.value_and_grad(stack.model, orpo_trainer.orpo_loss_from_model)

    def step(_: PhaseMeter) -> float:
        # What its training loop evaluates after a step.
        (loss, *told), gradients = gradients_of(stack.model, *batch, beta=WEIGHT)
        mx.eval(loss, told, gradients)
        return float(loss.item())

    return step


if __name__ == "__main__":
    main()
