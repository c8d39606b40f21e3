"""What training would take of this machine's memory, predicted anew whenever a setting changes."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.remedysearch import RemedySearch
from engine import architecture, estimate, machine
from engine.calibration import NO_CORRECTION, Correction, correction_for
from engine.config import TrainConfig
from engine.errors import EngineError
from engine.plans import row_limit
from engine.remedies import Remedy

# The share of the machine's memory by which another free amount is worth moving the bars for: programs take and give
# back a little all the time.
_NOTICEABLE = 0.02


class Outlook(QObject):
    """The predicted plans for the settings in force. The arithmetic is quick, so it runs in the window.

    Signals:
        changed(): the plans, the budget, the suggestion or the remedies are others now.
    """

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.machine = machine.machine()
        self.budget_bytes = 0
        self.plans: list[estimate.Plan] = []
        self.suggestion: estimate.Suggestion | None = None
        self.remedies: list[Remedy] = []  # what would help, where nothing fits
        self.correction: Correction = NO_CORRECTION
        self.problem: EngineError | None = None
        self.longest = 0
        self._architecture: tuple[Path, architecture.Architecture] | None = None
        self._search = RemedySearch(self)
        self._search.found.connect(self._take_remedies)

    @property
    def unknown(self) -> bool:
        """Whether the model is of a kind whose memory can only be measured."""
        return self.problem is not None and self.problem.kind == "unknown"

    @property
    def nothing_fits(self) -> bool:
        """Whether no plan is predicted to stay within the budget."""
        return self.suggestion is not None and self.suggestion.segment_size is None

    def follow(self, config: TrainConfig, folder: Path | None, longest: int) -> None:
        """Predicts for `config`, the model in `folder` (None: not here yet) and rows of `longest` tokens, or 0."""
        self.problem, self.plans, self.suggestion, self.correction = None, [], None, NO_CORRECTION
        limit = row_limit(config)
        self.longest = min(longest, limit) if longest else limit
        self.budget_bytes = machine.budget_bytes(config, self.machine)
        if folder is not None:
            try:
                self._predict(config, folder)
            except EngineError as error:
                self._architecture, self.problem = None, error
        self._seek_remedies(config)
        self.changed.emit()

    def close(self) -> None:
        """Ends a search under way."""
        self._search.close()

    def refresh_machine(self) -> bool:
        """Looks again at how much memory is free. False, and nothing taken over, where it is about as much."""
        found = machine.machine()
        moved = abs(found.available_bytes - self.machine.available_bytes)
        swapped = abs(found.swap_bytes - self.machine.swap_bytes)
        if max(moved, swapped) < _NOTICEABLE * found.total_bytes:
            return False
        self.machine = found
        return True

    def plan(self, config: TrainConfig) -> estimate.Plan | None:
        """The plan that Start would take: the chosen segment size, or the suggested one."""
        return self._taken(config, self.plans, self.suggestion)

    def foresee(self, config: TrainConfig, longest: int) -> estimate.Plan | None:
        """The plan for other settings of the same model and rows of `longest` tokens; the leanest where none fits."""
        if self._architecture is None or self.problem:
            return None
        found = estimate.plans(self._case(self._architecture[1], config, longest))
        taken = self._taken(config, found, estimate.suggest(found, self.budget_bytes))
        return taken or min(found, key=lambda plan: plan.peak_bytes)

    def _taken(
        self, config: TrainConfig, plans: list[estimate.Plan], suggestion: estimate.Suggestion | None
    ) -> estimate.Plan | None:
        size: int | None
        if isinstance(config.segment_size, str):
            size = suggestion.segment_size if suggestion else None
        else:
            layers = self._architecture[1].layers if self._architecture else 0
            size = config.segment_size if config.segment_size < layers else 0  # all of them are the whole model
        return next((plan for plan in plans if plan.segment_size == size), None)

    def _predict(self, config: TrainConfig, folder: Path) -> None:
        if self._architecture is None or self._architecture[0] != folder:
            self._architecture = folder, architecture.architecture(folder)
        shape = self._architecture[1]
        self.correction = correction_for(shape, config)
        self.plans = estimate.plans(self._case(shape, config, self.longest))
        self.suggestion = estimate.suggest(self.plans, self.budget_bytes)

    def _case(self, shape: architecture.Architecture, config: TrainConfig, longest: int) -> estimate.Case:
        return estimate.Case(shape, config, longest, self.budget_bytes, self.correction)

    def _seek_remedies(self, config: TrainConfig) -> None:
        """Those of a moment ago stand until the new ones are there, unless something fits now."""
        if self.nothing_fits and self._architecture:
            self._search.ask(self._case(self._architecture[1], config, self.longest))
        else:
            self.remedies = []
            self._search.ask(None)

    def _take_remedies(self, found: list[Remedy]) -> None:
        self.remedies = found
        self.changed.emit()
