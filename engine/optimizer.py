"""How the adapter moves: AdamW, with warm-up, a schedule and a limit on the gradient's length."""

from __future__ import annotations

import math
from collections.abc import Callable

from engine.backend import mx, nn
from engine.config import TrainConfig

from mlx.optimizers import AdamW, MultiOptimizer, clip_grad_norm
from mlx.utils import tree_unflatten

# A schedule ends at this share of the learning rate: the last steps still learn.
_FLOOR = 0.1


def warmup_steps(config: TrainConfig, steps: int) -> int:
    """Steps over which the learning rate rises; "auto" is a twentieth of all, at most 100."""
    return min(math.ceil(steps / 20), 100) if isinstance(config.warmup, str) else config.warmup


def learning_rate(config: TrainConfig, step: int, steps: int) -> float:
    """The learning rate of `step` (from 1 to `steps`): linear warm-up from zero, then the schedule down to a tenth."""
    warmup = warmup_steps(config, steps)
    if step <= warmup:
        return config.learning_rate * step / warmup
    done = (step - warmup) / max(1, steps - warmup)
    match config.schedule:
        case "cosine":
            share = _FLOOR + (1 - _FLOOR) * (1 + math.cos(math.pi * done)) / 2
        case "linear":
            share = 1 - (1 - _FLOOR) * done
        case _:
            share = 1.0
    return config.learning_rate * share


class Optimizer:
    """AdamW (Loshchilov and Hutter 2019) over the adapter's parameters, moments in float32.

    B learns at `lora_plus` times the rate of the others (LoRA+, Hayou et al. 2024). DoRA's m does not decay.
    """

    def __init__(self, config: TrainConfig, steps: int) -> None:
        self._config = config
        self._steps = steps
        self._of_b, others = _adamw(config, config.weight_decay), _adamw(config, config.weight_decay)
        # m starts at the size of the model's weights: pulled towards zero it would shrink the model itself.
        of_m = _adamw(config, 0.0)
        self._all = MultiOptimizer([self._of_b, of_m, others], [_is_named("lora_b"), _is_named("m")])

    def update(self, model: nn.Module, gradients: dict[str, mx.array], step: int) -> tuple[float, float]:
        """Moves the parameters once. Returns A's learning rate and the whole gradient's length before the limit."""
        tree = tree_unflatten(list(gradients.items()))
        limit = self._config.max_grad_norm or math.inf
        tree, norm = clip_grad_norm(tree, limit)
        rate = learning_rate(self._config, step, self._steps)
        self._all.learning_rate = rate
        self._of_b.learning_rate = rate * self._config.lora_plus
        self._all.update(model, tree)
        mx.eval(model.trainable_parameters(), self._all.state, norm)
        return rate, float(norm.item())


def _adamw(config: TrainConfig, weight_decay: float) -> AdamW:
    return AdamW(config.learning_rate, weight_decay=weight_decay, bias_correction=True)


def _is_named(leaf: str) -> Callable[[str, mx.array], bool]:
    return lambda name, array: name.rsplit(".", 1)[-1] == leaf
