"""Memory measured: two real steps of a plan or two in a child process, and for which settings the answer holds."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.answers import Measured
from app.job import Job
from engine.config import GB, TrainConfig
from engine.estimate import Plan
from engine.events import Failed, Stage
from engine.plans import Variant

# An answer stays true when these change: memory does not depend on them, or, as with segment size and budget, each
# size has an answer of its own and the budget is what it is held against.
_UNRELATED = frozenset({
    "segment_size", "memory_budget_gb", "output", "seed", "scale", "rslora", "lora_plus", "orpo_lambda", "dpo_beta",
    "epochs", "steps", "learning_rate", "schedule", "warmup", "weight_decay", "max_grad_norm", "evaluate_every",
})  # fmt: skip


class Probing(Job):
    """Runs `probe` and keeps its last answer, together with the settings that it was made for.

    Signals:
        ended(): it was answered, stopped or failed; the child is gone, and with it the memory that it held.
    """

    ended = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.stage: Stage | None = None
        self.failure: Failed | None = None
        self._answers: list[Measured] = []
        self._about: dict[str, Any] = {}
        self._walks: dict[int, Variant] = {}
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def start(self, config: TrainConfig, budget_bytes: int, plans: Sequence[Plan]) -> None:
        """Measures `config` within `budget_bytes`; `plans` are those in sight, so that the answer finds its bar."""
        if self.busy:
            return
        self.stage, self.failure, self._answers = None, None, []
        self._about, self._walks = _about(config), {plan.segment_size: plan.variant for plan in plans}
        self._scratch = tempfile.TemporaryDirectory(prefix="tunesmith-")
        settings = Path(self._scratch.name) / "config.json"
        # Auto would be taken anew by the child, which may find other memory free and then walk other plans.
        pinned = replace(config, memory_budget_gb=budget_bytes / GB)
        settings.write_text(json.dumps(pinned.to_mapping()), encoding="utf-8")
        self._begin("probe", "--config", str(settings), "--json", "--stop-on-eof")

    def answers(self, config: TrainConfig) -> list[Measured]:
        """What was measured, if it was for the settings in `config`."""
        return self._answers if _about(config) == self._about else []

    def failure_of(self, config: TrainConfig) -> Failed | None:
        """How measuring failed, if it was with the settings in `config`."""
        return self.failure if _about(config) == self._about else None

    def outdated(self, config: TrainConfig) -> bool:
        """Whether there is an answer, but for other settings."""
        return bool(self._answers) and not self.answers(config)

    def of_plan(self, config: TrainConfig, plan: Plan) -> Measured | None:
        """What was measured of this plan. None also where its segment size was walked in another way."""
        if self._walks.get(plan.segment_size) != plan.variant:
            return None
        return next((one for one in self.answers(config) if one.segment_size == plan.segment_size), None)

    def _progressed(self, stage: Stage) -> None:
        self.stage = stage
        self.changed.emit()

    def _answered(self, answer: dict[str, Any]) -> None:
        plans = [Measured.read(plan) for plan in answer.get("plans", [])]
        self._answers = [plan for plan in plans if plan.measured_bytes or plan.died]
        self._end()

    def _failed(self, failure: Failed) -> None:
        self.failure = failure
        self._end()

    def _end(self) -> None:
        self._let_go()
        self.ended.emit()
        self.changed.emit()

    def _let_go(self) -> None:
        if self._scratch:
            self._scratch.cleanup()
        self._scratch = self.stage = None
        super()._let_go()


def _about(config: TrainConfig) -> dict[str, Any]:
    return {item.name: getattr(config, item.name) for item in fields(config) if item.name not in _UNRELATED}
