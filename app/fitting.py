"""Whether an objective can learn from the data, and which one can."""

from __future__ import annotations

from engine.config import PAIR_OBJECTIVES

# The check's word for rows of a prompt with a chosen and a rejected answer.
PAIRS = "preference"
_UNSURE = ("", "mixed", "unknown")


def objective_for(data_format: str, objective: str) -> str:
    """`objective` where it can learn from data of this format or nothing is sure, else the one that can."""
    if data_format in _UNSURE or (data_format == PAIRS) == (objective in PAIR_OBJECTIVES):
        return objective
    return "orpo" if data_format == PAIRS else "sft"


def misfit(data_format: str, objective: str) -> str:
    """Why `objective` can't learn from data of this format, with what can; empty where it can."""
    if objective_for(data_format, objective) == objective:
        return ""
    if data_format == PAIRS:
        return "Your data holds pairs: choose ORPO or DPO."
    return "Your data holds single answers: choose SFT."


def chosen_sentence(objective: str) -> str:
    """Says that `objective` was chosen because of the data."""
    held = "pairs" if objective in PAIR_OBJECTIVES else "single answers"
    return f"Your data holds {held}, so {objective.upper()} is chosen."
