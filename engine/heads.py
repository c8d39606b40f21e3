"""Bounded heads: log p of targets and its gradients at the hidden states, without [tokens, vocabulary] logits.

With z a token's logits, y its target and p the softmax,

    odds = logsumexp(z_v, v != y) - z_y        log p = -log(1 + e^odds)        1 - p_y = 1 / (1 + e^-odds)

    d log p / d z_y = 1 - p_y        d log p / d z_v = -p_v

The target is kept apart from all others since for a near-certain one, 1 - p_y is a difference of nearly equal
numbers. A token's unit gradient is the gradient of its own log p at its hidden state: times d loss / d log p it is
the gradient of any objective, so one pass over the logits is enough, with two matrix products a chunk of tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine import blocked_head
from engine.backend import compute_now, mx, on_cpu
from engine.logits import Head, Softmax

__all__ = ["Head", "HeadPlan", "choose_head", "log_probabilities", "unit_gradients"]

# log p of a chunk's targets, float32 [chunk], and their unit gradients [chunk, hidden].
Unit = tuple[mx.array, mx.array]

# Up to so many logits at a time (tokens times vocabulary) "auto" takes the fused head, above it the blocked one. On the
# CPU, where bench/heads.py finds them equally fast: with more, blocks win by staying in the processor's cache. On a
# GPU, which small blocks leave idle, what the fused head may take: 64 MB, three to four times over.
FUSED_LOGITS_CPU = 2**20
FUSED_LOGITS_GPU = 2**24


@dataclass(frozen=True)
class HeadPlan:
    """How a head goes over tokens. All kinds give the same result.

    full: all tokens at once, by autograd. chunked: `chunk` tokens at a time, by autograd. fused: the same with the
    gradient written out. blocked: besides, `block` entries of the vocabulary at a time, without those whose
    probability is below `epsilon` in the gradient (0: with all).
    """

    kind: str
    chunk: int
    epsilon: float
    block: int = 4096

    def chunks(self, tokens: int) -> list[slice]:
        """The tokens that are computed at a time."""
        size = tokens if self.kind == "full" else self.chunk
        return [slice(start, min(start + size, tokens)) for start in range(0, tokens, size)]


def choose_head(kind: str, chunk: int, epsilon: float, tokens: int, vocabulary: int) -> HeadPlan:
    """The plan for so many tokens: `kind` as it is, or for "auto" the faster one that keeps memory small."""
    if kind == "auto":
        most = FUSED_LOGITS_CPU if on_cpu() else FUSED_LOGITS_GPU
        kind = "fused" if min(tokens, chunk) * vocabulary <= most else "blocked"
    block = HeadPlan.block if on_cpu() else 4 * HeadPlan.block  # small ones leave a GPU idle
    return HeadPlan(kind, chunk, epsilon, block)


def log_probabilities(head: Head, hidden: mx.array, targets: mx.array, plan: HeadPlan) -> mx.array:
    """log p of each target, float32 [tokens], from normed hidden states [tokens, hidden]. No gradients.

    Evaluated chunk by chunk.
    """
    found = []
    for part in plan.chunks(len(targets)):
        if plan.kind == "blocked":
            log_p = blocked_head.log_probabilities(head, hidden[part], targets[part], plan.block)
        else:
            *_, softmax = _powers(head, hidden[part], targets[part, None])
            log_p = softmax.log_p
        compute_now(log_p)
        found.append(log_p)
    return mx.concatenate(found)


def unit_gradients(head: Head, hidden: mx.array, targets: mx.array, plan: HeadPlan) -> list[Unit]:
    """For each chunk of tokens log p, float32 [chunk], and its gradient at each hidden state, [chunk, hidden].

    `hidden` is [tokens, hidden] after the final norm; the gradient is in its dtype. Only the blocked head evaluates
    anything, since it decides by values. With the others the caller evaluates one pair after the other, outside
    any transformation, or an asynchronous device would hold the logits of many chunks at the same time.
    """
    unit = _KINDS[plan.kind]
    return [unit(head, hidden[part], targets[part], plan) for part in plan.chunks(len(targets))]


def _by_autograd(head: Head, hidden: mx.array, targets: mx.array, plan: HeadPlan) -> Unit:
    def log_p(hidden: mx.array) -> mx.array:
        logits = head.logits(hidden)
        highest = mx.stop_gradient(logits.max(axis=-1, keepdims=True))
        own = mx.take_along_axis(logits, targets[:, None], axis=-1)
        return (own - highest - mx.log(_total(mx.exp(logits - highest))))[:, 0]

    (values,), (slopes,) = mx.vjp(log_p, [hidden], [mx.ones(targets.shape)])
    return values, slopes


def _fused(head: Head, hidden: mx.array, targets: mx.array, plan: HeadPlan) -> Unit:
    target = targets[:, None]
    logits, powers, softmax = _powers(head, hidden, target)
    slopes = powers * (-1 / softmax.total)
    slopes = mx.put_along_axis(slopes, target, softmax.others / softmax.total, axis=-1)
    return softmax.log_p, head.back(head.before_cap(slopes, logits).astype(hidden.dtype))


def _powers(head: Head, hidden: mx.array, target: mx.array) -> tuple[mx.array, mx.array, Softmax]:
    """Logits, exp(logits - highest) with 0 at each token's target [tokens, 1], and their sums."""
    logits = head.logits(hidden)
    highest = logits.max(axis=-1, keepdims=True)
    powers = mx.put_along_axis(mx.exp(logits - highest), target, mx.array(0.0), axis=-1)
    own = mx.take_along_axis(logits, target, axis=-1)
    return logits, powers, Softmax(own, highest, _total(powers))


def _total(powers: mx.array) -> mx.array:
    """Sums over the vocabulary, [tokens, 1], by a product: MLX's own sum on the CPU is off by 3e-5 at 49,152 terms."""
    return powers @ mx.ones((powers.shape[-1], 1))


def _blocked(head: Head, hidden: mx.array, targets: mx.array, plan: HeadPlan) -> Unit:
    return blocked_head.unit_gradients(head, hidden, targets, plan.block, plan.epsilon)


_KINDS: dict[str, Callable[[Head, mx.array, mx.array, HeadPlan], Unit]] = {
    "full": _by_autograd,
    "chunked": _by_autograd,
    "fused": _fused,
    "blocked": _blocked,
}
