"""What training would take of this machine's memory, predicted anew whenever a setting changes."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject, Signal

from engine import architecture, estimate, machine
from engine.config import TrainConfig
from engine.errors import EngineError


class Outlook(QObject):
    """The predicted plans for the settings in force. The arithmetic is quick, so it runs in the window.

    Signals:
        changed(): the plans, the budget or the suggestion are others now.
    """

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.machine = machine.machine()
        self.budget_bytes = 0
        self.plans: list[estimate.Plan] = []
        self.suggestion: estimate.Suggestion | None = None
        self.problem: EngineError | None = None
        self.longest = 0
        self._architecture: tuple[Path, architecture.Architecture] | None = None

    def follow(self, config: TrainConfig, folder: Path | None, longest: int) -> None:
        """Predicts for `config`, the model in `folder` (None: not here yet) and rows of `longest` tokens, or 0."""
        self.problem, self.plans, self.suggestion = None, [], None
        limit = estimate.row_limit(config)
        self.longest = min(longest, limit) if longest else limit
        self.budget_bytes = machine.budget_bytes(config, self.machine)
        if folder is not None:
            try:
                if self._architecture is None or self._architecture[0] != folder:
                    self._architecture = folder, architecture.architecture(folder)
                self.plans = list(estimate.plans(self._architecture[1], config, self.longest, self.budget_bytes))
                self.suggestion = estimate.suggest(self.plans, self.budget_bytes)
            except EngineError as error:
                self._architecture, self.problem = None, error
        self.changed.emit()

    def refresh_machine(self) -> None:
        """Looks again at how much memory is free."""
        self.machine = machine.machine()

    def plan(self, config: TrainConfig) -> estimate.Plan | None:
        """The plan that Start would take: the chosen segment size, or the suggested one."""
        size: int | None
        if isinstance(config.segment_size, str):
            size = self.suggestion.segment_size if self.suggestion else None
        else:
            layers = self._architecture[1].layers if self._architecture else 0
            size = config.segment_size if config.segment_size < layers else 0  # all of them are the whole model
        chosen = [plan for plan in self.plans if plan.segment_size == size]
        return chosen[0] if chosen else None
