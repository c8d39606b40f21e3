"""The check's codes in words, for a line that stands for many rows of one kind."""

from __future__ import annotations

from app import words
from app.answers import Problem

# What follows "412 rows". A code that is not here is told by its own name.
_MANY = {
    "broken_json": "are no readable JSON",
    "huge_line": "are too long to be one row",
    "encoding": "are not written in UTF-8",
    "not_an_object": "are no JSON objects",
    "ragged": "have more or fewer fields than there are columns",
    "broken_quotes": "have quotation marks that don't match",
    "broken_parquet": "can't be read from the Parquet file",
    "unknown_shape": "have no shape that can be trained",
    "pair_row": "are pairs, which learning from answers can't use",
    "not_a_pair": "are no pairs, which this objective needs",
    "missing_field": "lack a field",
    "null_field": "have null in a field that is needed",
    "empty_field": "have an empty field",
    "wrong_type": "hold a value of the wrong kind",
    "part_type": "hold a part that is no text",
    "no_place": "hold a text that their shape has no place for",
    "two_systems": "have two different system messages",
    "unknown_role": "have a role that no template knows",
    "weight": "have a message that is to be learned in part",
    "role_order": "have turns out of order",
    "no_assistant": "have no answer to learn",
    "no_prompt": "have no prompt before the answers",
    "prompts_differ": "have answers to different prompts",
    "no_verdict": "have no thumb up or down",
    "unpaired": "have a thumb, and their prompt no answer of the other kind",
    "tie": "prefer neither of their answers",
    "no_winner": "don't say which of their answers is better",
    "template": "are refused by the model's template",
    "nothing_to_train": "would train nothing, because they are cut before the answer begins",
    "cut": "are cut off",
    "duplicates": "say the same as another",
    "in_both": "are in the training and the validation data",
    "identical_pair": "have two equal answers",
    "control_character": "hold control characters",
    "lost_character": "hold characters that were lost",
    "lone_surrogate": "hold half characters",
    "special_token": "hold the model's own marks in their text",
    "personal_email": "hold what looks like an e-mail address",
    "personal_key": "hold what looks like a key or password",
}

# The cure of many rows, where each one's own names a number.
_CURES = {
    "cut": "Set the longest row higher to keep more of them: Lengths shows what that takes.",
    "nothing_to_train": "Set the longest row higher, or shorten their prompts: Lengths shows what that takes.",
}


def kind_in_words(first: Problem, rows: int) -> str:
    """What `rows` rows have in common, of whose problems `first` is the first."""
    told = words.plural(rows, "row")
    known = _MANY.get(first.code)
    return f"{told} {known}" if known else f"{told}: {first.code.replace('_', ' ')}"


def cure_in_words(first: Problem, rows: int) -> str:
    """What helps all of these rows."""
    return _CURES.get(first.code, first.fix) if rows > 1 else first.fix
