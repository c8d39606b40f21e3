"""What looks like personal data in a text: e-mail addresses and keys to services."""

from __future__ import annotations

import re
from typing import Literal

Kind = Literal["email", "key"]

NAMES: dict[Kind, str] = {"email": "an e-mail address", "key": "a secret key"}

# From its @ on: a pattern that begins with a fixed character is searched for a hundred times as fast.
_EMAIL = re.compile(r"@(?<=[\w.+-]@)(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w-])")
# Addresses that exist to be shown (RFC 2606).
_SHOWN = re.compile(r"@(?:[\w-]+\.)*(?:example(?:\.(?:com|net|org))?|test|invalid|localhost)", re.IGNORECASE)

# How keys of widely used services begin, each pattern from a sign on that few words hold.
_KEY_STARTS = (
    re.compile(r"_(?:(?<=[sr]k_)live_|(?<=gh[pos]_)|(?<=github_)pat_|(?<=hf_)|(?<=npm_))"),
    re.compile(r"-(?:(?<=sk-)|(?<=glpat-)|(?<=xox[bp]-)|----BEGIN )"),
    re.compile(r"A(?:KIA|SIA|Iza)"),
)
_KEY = re.compile(
    r"(?<![\w-])(?:"
    r"sk-(?:[a-z]{2,12}-)?[A-Za-z0-9_-]{20,}|[sr]k_live_[A-Za-z0-9]{16,}|A(?:KI|SI)A[A-Z0-9]{16}\b|AIza[\w-]{35}|"
    r"gh[pos]_[A-Za-z0-9]{36}|github_pat_\w{22,}|glpat-[\w-]{20}|hf_[A-Za-z0-9]{30,}|xox[bp]-[\w-]{20,}|"
    r"npm_[A-Za-z0-9]{36}|-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----)"
)


def personal_data(text: str) -> list[Kind]:
    """The kinds that the text seems to hold. A guess by form: it misses some and may take other text for one."""
    found: list[Kind] = []
    if any(not _SHOWN.fullmatch(match[0]) for match in _EMAIL.finditer(text)):
        found.append("email")
    if _may_hold_key(text) and _KEY.search(text):
        found.append("key")
    return found


def may_hold_personal_data(text: str) -> bool:
    """False for a text that holds none for sure: by signs that are searched for fast, also in many texts at once."""
    return "@" in text or _may_hold_key(text)


def _may_hold_key(text: str) -> bool:
    return any(start.search(text) for start in _KEY_STARTS)
