"""The commands that ask a model: score, generate."""

from __future__ import annotations

import argparse
from typing import Any

from engine.commands.common import config_of, print_json, to_stderr
from engine.errors import EngineError


def score(arguments: argparse.Namespace) -> int:
    """Tells each row's loss."""
    from engine.scoring import score_rows

    config = config_of(arguments)
    result = score_rows(config, arguments.adapter)
    if arguments.json:
        print_json(result)
    else:
        for row in result["rows"]:
            print(f"line {row['line']:,}: loss {row['loss']:.4f}, {_scored(row)}")
        print(f"loss {result['loss']:.4f}")
    return 0


def _scored(row: dict[str, Any]) -> str:
    if "tokens" in row:
        return f"{row['tokens']:,} tokens"
    better, worse = (row[f"{side}_logp"] / row[f"{side}_tokens"] for side in ("chosen", "rejected"))
    return f"log-probability a token: chosen {better:.3f}, rejected {worse:.3f}; log odds {row['log_odds']:.3f}"


def generate(arguments: argparse.Namespace) -> int:
    """Answers one prompt."""
    from engine.data import Message
    from engine.generate import Speaker

    if arguments.max_tokens < 1 or not arguments.temperature >= 0:
        raise EngineError("An answer needs at least one token and a temperature from 0.", "Give larger numbers.")
    speaker = Speaker(config_of(arguments).model, arguments.adapter, to_stderr)
    messages = [Message("user", arguments.prompt)]
    for piece in speaker.answer(messages, arguments.max_tokens, arguments.temperature):
        print(piece, end="", flush=True)
    print()
    return 0
