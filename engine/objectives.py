"""SFT, ORPO and DPO as functions of the targets' log-probabilities, with their slopes d loss / d log p written out.

The head gives the gradient of each target's own log p; an objective says how much of it the loss takes. Everything
is lazy float32: nothing is evaluated, so that an objective can stand inside a graph that is being recorded.

An optimizer step can hold several batches. Each one's loss is divided by the `Totals` of the whole step, so the
shares and their gradients add up, however the rows were batched.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from engine.backend import mx
from engine.config import TrainConfig
from engine.data.targets import Part, Targets

# Mean log-probabilities are taken to be at most this in ORPO's odds p / (1 - p), which are infinite at p = 1: float32
# tells no p apart between 1 - 2^-24 and 1. The slopes there are those at the bound, so they stay finite and keep
# their sign.
NEAREST_TO_CERTAIN = -(2.0**-24)

_LN_2 = 0.6931471805599453


@dataclass(frozen=True)
class Totals:
    """What a whole optimizer step divides by: tokens (0 where an objective divides by pairs alone) and pairs."""

    tokens: int
    pairs: int

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.tokens + other.tokens, self.pairs + other.pairs)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What an objective makes of a batch.

    `loss` is the batch's share of the step's loss, a scalar; `slopes` is its derivative at each target's log p,
    float32 [targets]. `preference` holds sums over the batch's pairs, float32 [4]: preferred (0 or 1), margin, mean
    log p a token of the chosen response, and of the rejected one; None without pairs.
    """

    loss: mx.array
    slopes: mx.array
    preference: mx.array | None


@dataclass(frozen=True)
class SFT:
    """Cross-entropy, the mean over all targets of the step."""

    needs_reference: ClassVar[bool] = False

    def totals(self, targets: Targets) -> Totals:
        """What this batch adds to the step's totals."""
        return Totals(tokens=len(targets.parts), pairs=0)

    def __call__(self, log_p: mx.array, targets: Targets, totals: Totals, reference: mx.array | None = None) -> Outcome:
        """From log p, float32 [targets]; `reference` is not used."""
        return Outcome(-log_p.sum() / totals.tokens, mx.full(log_p.shape, -1 / totals.tokens), None)


@dataclass(frozen=True)
class ORPO:
    """Odds ratio preference optimization (Hong et al. 2024): NLL + weight * mean over pairs of -log sigmoid(log odds).

    With lw and lr the mean log p a token of chosen and rejected response,

        log odds = (lw - lr) - (log(1 - e^lw) - log(1 - e^lr))        d log odds / d lw = 1 / (1 - e^lw)

    `scope` says what the NLL is: "full", as in the paper, the mean over all prompt and chosen targets of the step;
    "response" the mean over pairs of -lw. The margin is the log odds.
    """

    weight: float
    scope: str
    needs_reference: ClassVar[bool] = False

    def totals(self, targets: Targets) -> Totals:
        """What this batch adds to the step's totals."""
        tokens = int((targets.parts != Part.REJECTED).sum()) if self.scope == "full" else 0
        return Totals(tokens, _pairs(targets))

    def __call__(self, log_p: mx.array, targets: Targets, totals: Totals, reference: mx.array | None = None) -> Outcome:
        """From log p, float32 [targets]; `reference` is not used."""
        chosen, rejected = _Responses(targets, Part.CHOSEN), _Responses(targets, Part.REJECTED)
        mean_chosen, mean_rejected = chosen.sums(log_p) / chosen.counts, rejected.sums(log_p) / rejected.counts
        lw, lr = mx.minimum(mean_chosen, NEAREST_TO_CERTAIN), mx.minimum(mean_rejected, NEAREST_TO_CERTAIN)
        log_odds = (lw - lr) - (log1mexp(lw) - log1mexp(lr))
        preference_loss, slope = _negative_log_sigmoid(log_odds)
        of_chosen = self.weight * slope / -mx.expm1(lw)
        of_rejected = self.weight * slope / mx.expm1(lr)
        if self.scope == "full":
            share = mx.array((targets.parts != Part.REJECTED).astype(np.float32)) / totals.tokens
            likelihood_loss, slopes = -(log_p * share).sum(), -share
        else:
            likelihood_loss, slopes = -mean_chosen.sum() / totals.pairs, mx.zeros(log_p.shape)
            of_chosen = of_chosen - 1
        slopes = slopes + chosen.spread(of_chosen / chosen.counts / totals.pairs)
        slopes = slopes + rejected.spread(of_rejected / rejected.counts / totals.pairs)
        loss = likelihood_loss + self.weight * preference_loss.sum() / totals.pairs
        return Outcome(loss, slopes, _preference(mean_chosen > mean_rejected, log_odds, mean_chosen, mean_rejected))


@dataclass(frozen=True)
class DPO:
    """Direct preference optimization (Rafailov et al. 2023): mean over pairs of -log sigmoid(margin).

    margin = beta * ((cw - rw) - (cl - rl)), with c and r a response's summed log p under the model and under the
    reference, w chosen, l rejected.
    """

    beta: float
    needs_reference: ClassVar[bool] = True

    def totals(self, targets: Targets) -> Totals:
        """What this batch adds to the step's totals."""
        return Totals(tokens=0, pairs=_pairs(targets))

    def __call__(self, log_p: mx.array, targets: Targets, totals: Totals, reference: mx.array | None = None) -> Outcome:
        """From log p of the same targets under model and reference, float32 [targets] each."""
        if reference is None:
            raise ValueError("DPO compares with a reference")
        chosen, rejected = _Responses(targets, Part.CHOSEN), _Responses(targets, Part.REJECTED)
        # Token by token: the sums are large, and the difference that matters is small beside them.
        gains = log_p - reference
        margin = self.beta * (chosen.sums(gains) - rejected.sums(gains))
        losses, slope = _negative_log_sigmoid(margin)
        of_chosen = self.beta * slope / totals.pairs
        means = [side.sums(log_p) / side.counts for side in (chosen, rejected)]
        return Outcome(
            loss=losses.sum() / totals.pairs,
            slopes=chosen.spread(of_chosen) + rejected.spread(-of_chosen),
            preference=_preference(margin > 0, margin, *means),
        )


Objective = SFT | ORPO | DPO


def objective_of(config: TrainConfig) -> Objective:
    """The objective that a run's settings name."""
    match config.objective:
        case "orpo":
            return ORPO(config.orpo_lambda, config.sft_scope)
        case "dpo":
            return DPO(config.dpo_beta)
    return SFT()


def totals_of(objective: Objective, batches: Iterable[Targets]) -> Totals:
    """What all the batches of an optimizer step, or of a look at rows, hold together."""
    return functools.reduce(operator.add, map(objective.totals, batches))


def log1mexp(x: mx.array) -> mx.array:
    """log(1 - e^x) for x < 0, to float32's precision on both sides of -ln 2 (Mächler 2012)."""
    return mx.where(x > -_LN_2, mx.log(-mx.expm1(x)), mx.log1p(-mx.exp(x)))


def _negative_log_sigmoid(x: mx.array) -> tuple[mx.array, mx.array]:
    """-log sigmoid(x) and its derivative; both finite for any x."""
    return mx.logaddexp(-x, 0.0), -mx.sigmoid(-x)


class _Responses:
    """The chosen or the rejected responses of a batch's pairs, in the order of the pairs' numbers."""

    def __init__(self, targets: Targets, part: Part) -> None:
        own, pairs = targets.parts == part, _pairs(targets)
        counts = np.bincount(targets.rows[own], minlength=pairs)
        places = np.zeros((pairs, counts.max()), np.int32)
        self._filled = np.arange(counts.max()) < counts[:, None]
        # Sorted by row, stably, the targets fill one response after the other.
        places[self._filled] = np.flatnonzero(own)[np.argsort(targets.rows[own], kind="stable")]
        self._places, self._own, self._rows = places, own, targets.rows
        self.counts = mx.array(counts.astype(np.float32))

    def sums(self, values: mx.array) -> mx.array:
        """Sums of [targets] over each response, [pairs]."""
        # By rows of a table, not scattered one by one: a long sum keeps its last digits, and its order.
        return mx.where(mx.array(self._filled), values[mx.array(self._places)], 0.0).sum(axis=1)

    def spread(self, values: mx.array) -> mx.array:
        """Each response's value of [pairs] at its own targets, 0 elsewhere: [targets]."""
        return mx.where(mx.array(self._own), values[mx.array(self._rows)], 0.0)


def _pairs(targets: Targets) -> int:
    return int(targets.rows.max()) + 1


def _preference(preferred: mx.array, margin: mx.array, chosen: mx.array, rejected: mx.array) -> mx.array:
    return mx.stack([part.astype(mx.float32).sum() for part in (preferred, margin, chosen, rejected)])
