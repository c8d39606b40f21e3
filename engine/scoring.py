"""What a model thinks of rows: log-probabilities and loss, without training."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from engine.backend import mx
from engine.config import PAIR_OBJECTIVES, TrainConfig
from engine.data import load_tokenizer
from engine.data.batch import batches_of, layout_of
from engine.data.rows import load_rows
from engine.data.targets import Part, Targets
from engine.errors import EngineError
from engine.models.adapter import load_adapter
from engine.models.find import find_model
from engine.models.load import load_stack
from engine.objectives import ORPO, objective_of, totals_of
from engine.plans import TILE
from engine.reference import Reference
from engine.segmented import Plan, score


def score_rows(config: TrainConfig, adapter: Path | None) -> dict[str, Any]:
    """What `score --json` prints: each usable row's line and `loss` by itself, `loss` of the objective over all of
    them, the data's `problems`.

    A row has `logp` (sum over its trained tokens) and `tokens` (their count); a pair has both for each side, as
    `chosen_` and `rejected_`, and its `log_odds`.
    """
    folder = find_model(config.model)
    dataset = load_rows(config, load_tokenizer(folder.path)).dataset
    if not dataset.examples:
        first = next(problem for problem in dataset.problems if problem.severity == "error")
        raise EngineError(first.message, first.fix)
    stack = load_stack(folder)
    if adapter is not None:
        load_adapter(stack.model, adapter)
    stack.model.eval()
    plan = Plan(1, 0, TILE, head=config.head, head_chunk=config.head_chunk, head_epsilon=config.head_epsilon)
    objective, layout = objective_of(config), layout_of(config)
    reference = Reference(stack, plan, continued=False) if objective.needs_reference else None
    batches = batches_of(dataset.examples, config.batch_size, layout)
    totals = totals_of(objective, [batch.kinds for _, batch in batches])
    rows, loss = [], 0.0
    for part, batch in batches:
        log_p = score(stack, batch, plan)
        before = reference(batch, part) if reference else None
        loss += float(np.array(objective(log_p, batch.kinds, totals, before).loss))
        for number, item in enumerate(part):
            own = mx.array(np.flatnonzero(batch.kinds.rows == number))
            kinds = batch.kinds.of_row(number)
            alone = objective(log_p[own], kinds, objective.totals(kinds), None if before is None else before[own])
            row = {"line": item.line, "loss": float(np.array(alone.loss))}
            pair = config.objective in PAIR_OBJECTIVES
            rows.append(row | (_pair(log_p[own], kinds) if pair else _single(log_p[own])))
    return {"rows": rows, "loss": loss, "problems": [asdict(problem) for problem in dataset.problems]}


def _single(log_p: mx.array) -> dict[str, Any]:
    return {"logp": float(np.array(log_p).sum(dtype=np.float64)), "tokens": log_p.size}


def _pair(log_p: mx.array, kinds: Targets) -> dict[str, Any]:
    values, odds = np.array(log_p, np.float64), ORPO(weight=1.0, scope="response")
    chosen, rejected = values[kinds.parts == Part.CHOSEN], values[kinds.parts == Part.REJECTED]
    outcome = odds(log_p, kinds, odds.totals(kinds))
    return {
        "chosen_logp": float(chosen.sum()),
        "rejected_logp": float(rejected.sum()),
        "chosen_tokens": len(chosen),
        "rejected_tokens": len(rejected),
        "log_odds": float(np.array(outcome.preference)[1]),
    }
