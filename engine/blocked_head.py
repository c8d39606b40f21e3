"""The blocked head: a chunk of tokens against a block of the vocabulary at a time, in one pass over the weight.

As flash attention goes over keys (Dao et al. 2022), with the target apart from the others:

    m' = max(m, max z_v)    s' = s e^(m - m') + sum of e^(z_v - m')    g' = g e^(m - m') + sum of e^(z_v - m') z'_v W_v

for v in the block but not the target; m starts as the target's own logit. At the end p_v = e^(z_v - m) / total and

    d log p / d h = (1 - p_y) z'_y W_y - g / total

where z'_v is the slope of cap and scale at z_v. The total so far never exceeds the final one, so a probability by it is
an upper bound: where it is below epsilon for all of a block, the token's second product is left out (after cut
cross-entropy, Wijmans et al. 2024). Such entries still count in s, so log p is exact for any epsilon.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.backend import mx
from engine.logits import Head, Softmax

Ints = npt.NDArray[np.integer]


def log_probabilities(head: Head, hidden: mx.array, targets: mx.array, block: int) -> mx.array:
    """log p of the targets, float32 [tokens], evaluated by blocks of `block` entries of the vocabulary."""
    known, softmax = np.array(targets), _own(head, hidden, targets, head.rows(targets))
    for part in _parts(head, block):
        softmax = _with_part(head, hidden, known, part, softmax)[0]
        mx.eval(softmax.highest, softmax.others)
    return softmax.log_p


def unit_gradients(
    head: Head, hidden: mx.array, targets: mx.array, block: int, epsilon: float
) -> tuple[mx.array, mx.array]:
    """log p of the targets and its gradient at each hidden state, [tokens, hidden] in its dtype; evaluated.

    Every probability that is left out of the gradient is below `epsilon`; 0 leaves out nothing.
    """
    known, rows = np.array(targets), head.rows(targets)
    softmax, mixed = _own(head, hidden, targets, rows), mx.zeros(rows.shape)
    for part in _parts(head, block):
        softmax, mixed = _mixed(head, hidden, known, part, softmax, mixed, epsilon)
        # Before the next block, so that one block's logits are gone when another's come.
        mx.eval(softmax.highest, softmax.others, mixed)
    share = head.before_cap(softmax.others / softmax.total, softmax.own)
    log_p, unit = softmax.log_p, (share * rows - mixed / softmax.total).astype(hidden.dtype)
    mx.eval(log_p, unit)
    return log_p, unit


def _parts(head: Head, block: int) -> list[slice]:
    return [slice(start, min(start + block, head.vocabulary)) for start in range(0, head.vocabulary, block)]


def _own(head: Head, hidden: mx.array, targets: mx.array, rows: mx.array) -> Softmax:
    """The softmax before the first block: of the targets alone."""
    own = head.own_logits(hidden, targets, rows)
    return Softmax(own, highest=own, others=mx.zeros(own.shape))


def _with_part(
    head: Head, hidden: mx.array, targets: Ints, part: slice, softmax: Softmax
) -> tuple[Softmax, mx.array, mx.array]:
    """The softmax with one more part of the vocabulary; that part's exp(z - highest), targets 0, and its logits."""
    logits = head.logits(hidden, part)
    highest = mx.maximum(softmax.highest, logits.max(axis=-1, keepdims=True))
    powers = mx.exp(logits - highest)
    inside = np.flatnonzero((targets >= part.start) & (targets < part.stop))
    if len(inside):
        powers[mx.array(inside), mx.array(targets[inside] - part.start)] = 0.0
    others = softmax.others * mx.exp(softmax.highest - highest) + powers.sum(axis=-1, keepdims=True)
    return Softmax(softmax.own, highest, others), powers, logits


def _mixed(
    head: Head, hidden: mx.array, targets: Ints, part: slice, before: Softmax, mixed: mx.array, epsilon: float
) -> tuple[Softmax, mx.array]:
    """The softmax, and the sum of e^(z_v - highest) z'_v W_v, with one more part of the vocabulary."""
    softmax, powers, logits = _with_part(head, hidden, targets, part, before)
    mixed = mixed * mx.exp(before.highest - softmax.highest)
    likely = powers.max(axis=-1) / softmax.total[:, 0] >= epsilon
    tokens = np.flatnonzero(np.array(likely)) if epsilon else np.arange(len(targets))
    if len(tokens) == 0:
        return softmax, mixed
    if len(tokens) < len(targets):
        index = mx.array(tokens)
        slopes = head.before_cap(powers[index], logits[index]).astype(hidden.dtype)
        return softmax, mixed.at[index].add(head.back(slopes, part))
    slopes = head.before_cap(powers, logits).astype(hidden.dtype)
    return softmax, mixed + head.back(slopes, part)
