"""Whether an answer says what the data says."""

from __future__ import annotations

import json


def same_answer(answer: str, expected: str) -> bool:
    """Equal as text, or as JSON where both are JSON: spaces and the order of names don't matter there."""
    if answer.strip() == expected.strip():
        return True
    try:
        return bool(json.loads(answer) == json.loads(expected))
    except ValueError:
        return False
