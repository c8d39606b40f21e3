"""The commands about data: check, fix, preview."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.commands.common import STOPPED, StopSignal, config_of, find, print_json
from engine.errors import EngineError
from engine.events import Stage, to_line

_SECONDS_BETWEEN_STAGES = 0.25


def check(arguments: argparse.Namespace) -> int:
    """Says what of a file can be learned from."""
    from engine.data import load_rows, load_tokenizer, report
    from engine.data.batch import layout_of

    config, stopped = config_of(arguments), StopSignal(on_eof=False)
    tokenizer, told = load_tokenizer(find(config).path), _data_stages(arguments.json, "Reading the data")
    rows = load_rows(config, tokenizer, told, stopped)
    if stopped():
        return STOPPED
    result = report(rows, layout_of(config).prompts)
    if arguments.json:
        print_json(result)
    else:
        print(f"{result['usable']:,} of {result['rows']:,} rows can be used ({result['format']}).")
        for problem in rows.problems:
            message = problem.message.removeprefix(f"{problem.file}: ")
            print(f"{_place(problem.file, problem.line)}{problem.severity}: {message} {problem.fix}")
        tokens = result["tokens"]
        print(
            f"{tokens['total']:,} tokens, {result['trained_tokens']:,} of them trained; "
            f"a row has {tokens['median']:,} (median) to {tokens['max']:,}."
        )
        print(rows.sentence)
        for cure in result["cures"]:
            print(f"{cure['label']}: fix --cure {cure['cure']}. {cure['does']}")
    return 2 if any(problem.severity == "error" for problem in rows.problems) else 0


def fix(arguments: argparse.Namespace) -> int:
    """Writes a mended copy of a file or a folder."""
    from engine.data import load_tokenizer
    from engine.data.fixes import apply

    config, stopped = config_of(arguments), StopSignal(on_eof=False)
    tokenizer, told = load_tokenizer(find(config).path), _data_stages(arguments.json, "Mending the data")
    fixed = apply(config, arguments.cure, tokenizer, arguments.fixed, told, stopped)
    if fixed is None:
        return STOPPED
    if arguments.json:
        print_json({**asdict(fixed), "path": str(fixed.path)})
    else:
        print(f"{fixed.rows:,} rows, {fixed.changed:,} of them changed; {fixed.left_out:,} left out: {fixed.path}")
        if fixed.is_renamed:
            print("Its fields have Tunesmith's names.")
        if fixed.copied:
            others = "1 other file was" if fixed.copied == 1 else f"{fixed.copied:,} other files were"
            print(f"{others} copied unchanged.")
    return 0


def preview(arguments: argparse.Namespace) -> int:
    """Shows rows token by token."""
    from engine.data import load_tokenizer, preview_rows

    config = config_of(arguments)
    tokenizer, data = load_tokenizer(find(config).path), Path(config.data).expanduser()
    if arguments.row < 1 or (arguments.count is not None and arguments.count < 1):
        raise EngineError("Rows count from 1.", "Ask for row 1 or a later one, and for at least one.")
    length, count = config.max_length, arguments.count or 1
    settings = (config.objective, config.sft_scope, config.columns, config.trained_turns)
    page = preview_rows(data, tokenizer, length, arguments.row, count, *settings, arguments.find, arguments.jump)
    rows = page["rows"]
    if not rows and not (arguments.json and arguments.count):
        if arguments.find:
            raise EngineError(f"No row holds {arguments.find!r}.", "Look for a part of it, or for other words.")
        raise EngineError("The data has no such row.", "Rows count from 1; choose one that there is.")
    if arguments.json and arguments.count is None:
        print_json({**rows[0], "rows_total": page["rows_total"], "wrapped": page["wrapped"]})
    elif arguments.json:
        print_json(page)
    else:
        if page["wrapped"]:
            print(f"No row from {arguments.row:,} to the last holds it; from the first one on:")
        for row in rows:
            place = _place(row["file"], row["line"]).removesuffix(": ")
            print(f"row {row['row']:,} of {row['rows']:,}, {place}; what is trained stands in [[ ]]")
            print(_marked(row["tokens"]) or row["text"])
            if row["problem"]:
                print(f"{row['problem']['message']} {row['problem']['fix']}")
    return 0


def _place(file: str, line: int) -> str:
    """ "train.jsonl, line 3: ", and nothing of what is not there."""
    named = ", ".join(filter(None, (file, f"line {line:,}" if line else "")))
    return f"{named}: " if named else ""


def _marked(tokens: list[dict[str, Any]]) -> str:
    """Tokens as text with marks around what is trained, a pair's answers under headings."""
    text, inside, part = "", False, ""
    for token in tokens:
        trained = token["trained"] and not token["cut"]
        begins = token["part"] != part and {token["part"], part} & {"chosen", "rejected"}
        if inside and (begins or not trained):
            text, inside = text + "]]", False
        if begins:
            text += f"\n{token['part']}:\n"
        if trained and not inside:
            text, inside = text + "[[", True
        text, part = text + token["text"], token["part"]
    return text + ("]]" if inside else "")


def _data_stages(as_json: bool, message: str) -> Callable[[int, int], None]:
    """Tells how far a file is read, as JSON a few times a second; people are told nothing."""
    told = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal told
        if as_json and time.monotonic() - told >= _SECONDS_BETWEEN_STAGES:
            told = time.monotonic()
            print(to_line(Stage("data", message, done, total)), flush=True)

    return tell
