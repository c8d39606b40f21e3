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


# Codes of the check's problems that say no more than that the objective does not fit.
MISFIT_CODES = ("pair_row", "not_a_pair")


def misfit_notice(data_format: str, objective: str) -> tuple[str, str]:
    """The cause and the cure of a misfit, for a card whose button is the cure."""
    held, read = _held(data_format == PAIRS), _held(objective in PAIR_OBJECTIVES)
    cure = objective_for(data_format, objective).upper()
    return f"Your data holds {held}, and {objective.upper()} learns from {read}.", f"{cure} learns from {held}."


def chosen_sentence(objective: str) -> str:
    """Says that `objective` was chosen because of the data."""
    return f"Your data holds {_held(objective in PAIR_OBJECTIVES)}, so {objective.upper()} is chosen."


def _held(pairs: bool) -> str:
    return "pairs" if pairs else "single answers"
