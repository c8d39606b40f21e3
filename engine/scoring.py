"""What a model thinks of rows: log-probabilities and loss, without training."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from engine.config import TrainConfig
from engine.data import load_dataset, load_tokenizer
from engine.data.batch import make_batch
from engine.errors import EngineError
from engine.models.adapter import load_adapter
from engine.models.find import find_model
from engine.models.load import load_stack
from engine.segmented import score


def score_rows(config: TrainConfig, adapter: Path | None) -> dict[str, Any]:
    """What `score --json` prints: for each usable row its line, `logp` (sum over its trained tokens), `tokens`
    (their count) and `loss` (-logp / tokens); `loss` over all of them by token; the data's `problems`.
    """
    folder = find_model(config.model)
    dataset = load_dataset(Path(config.data).expanduser(), load_tokenizer(folder.path), config.max_length)
    if not dataset.examples:
        first = dataset.problems[0]
        raise EngineError(first.message, first.fix)
    stack = load_stack(folder)
    if adapter is not None:
        load_adapter(stack.model, adapter)
    stack.model.eval()
    rows = []
    for start in range(0, len(dataset.examples), config.batch_size):
        examples = dataset.examples[start : start + config.batch_size]
        batch = make_batch(examples)
        log_p = score(stack, batch, config.head_chunk).astype(np.float64)
        for number, example in enumerate(examples):
            own = log_p[batch.target_rows == number]
            logp, tokens = float(own.sum()), len(own)
            rows.append({"line": example.line, "loss": -logp / tokens, "logp": logp, "tokens": tokens})
    total = sum(row["tokens"] for row in rows)
    return {
        "rows": rows,
        "loss": -sum(row["logp"] for row in rows) / total,
        "problems": [asdict(problem) for problem in dataset.problems],
    }
