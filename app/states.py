"""The states a panel can be in: a word, and a shape so that colour never says it alone."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """Each value is the word that a person reads."""

    READY = "ready"
    FITS = "fits"
    NEEDS_YOU = "needs you"
    WRONG = "wrong"
    TOO_BIG = "does not fit"
    BUSY = "looking"
    NOTE = "to know"

    @property
    def good(self) -> bool:
        return self in (State.READY, State.FITS)


@dataclass(frozen=True)
class Standing:
    """A panel's state and the sentence behind it, shown where Start says why it is off."""

    state: State
    reason: str = ""
