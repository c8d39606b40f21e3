"""The command line. Exit status 0: done; 2: the request can't be met; 1: our fault.

Modules that load MLX are imported by the commands that need them: check and preview start without it.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.config import GB, SETTINGS, TrainConfig, load_config
from engine.errors import EngineError
from engine.events import Evaluated, Event, Failed, Finished, Saved, Stage, Started, Step, Warned, to_line

Command = Callable[[argparse.Namespace], int]

_STOPPED = 130  # exit status of a process that Ctrl-C ended
_SECONDS_BETWEEN_STAGES = 0.25


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status. A failure is told in words, as JSON where JSON was asked for."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    arguments = _parser().parse_args(argv)
    command: Command = arguments.command
    try:
        return command(arguments)
    except EngineError as error:
        failed = Failed(error.kind, error.message, error.hint)
    except BrokenPipeError:
        _stop_printing()  # whoever read us has gone
        return 1
    except KeyboardInterrupt:
        return _STOPPED
    except Exception:  # noqa: BLE001  the one place where any fault becomes a sentence
        failed = Failed(
            "internal",
            "Something went wrong in Tunesmith itself.",
            "Please report the details.",
            traceback.format_exc(),
        )
    return _tell_failure(failed, as_json=getattr(arguments, "json", False) or command is _talk)


def _tell_failure(failed: Failed, as_json: bool) -> int:
    if as_json:
        print(to_line(failed), flush=True)
    else:
        print(f"{failed.message}\n{failed.hint}\n{failed.details}".rstrip(), file=sys.stderr)
    return 1 if failed.kind == "internal" else 2


def _stop_printing() -> None:
    """What is still printed goes nowhere: Python would complain when it flushes stdout at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tunesmith", description="Fine-tunes language models on this machine.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Command, help: str, json_output: bool = True) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=help, description=help, allow_abbrev=False)
        one.set_defaults(command=command)
        if json_output:
            one.add_argument("--json", action="store_true", help="print one JSON object")
        return one

    def add_data(one: argparse.ArgumentParser, *names: str) -> None:
        one.add_argument("data", help=SETTINGS["data"].help)
        for name in ("model", "objective", *names):
            _add_setting(one, name)

    def add_config(one: argparse.ArgumentParser) -> None:
        one.add_argument("--config", type=Path, required=True, metavar="FILE", help="settings in TOML or JSON")
        one.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="a setting in place of the file's",
        )

    check = add("check", _check, "says whether a data file can be learned from, line by line")
    add_data(check, "max_length", "valid", "seed", "sft_scope", "columns", "trained_turns")

    fix = add("fix", _fix, "writes a mended copy of a data file beside it")
    add_data(fix, "max_length", "sft_scope", "columns", "trained_turns")
    fix.add_argument(
        "--cure",
        action="append",
        required=True,
        help="skip leaves out rows that can't be used, trim shortens rows that are too long, convert writes clean "
        "UTF-8, dedupe keeps one of rows that are the same; may be given several times",
    )
    fix.add_argument("--output", type=Path, metavar="FILE", dest="fixed", help="the new file (default: 'DATA (fixed)')")

    preview = add("preview", _preview, "shows rows as the model sees them, token by token")
    add_data(preview, "max_length", "sft_scope", "columns", "trained_turns")
    preview.add_argument("--row", type=int, default=1, metavar="R", help="which row, from 1")
    preview.add_argument("--count", type=int, metavar="C", help="so many rows from there on")
    preview.add_argument("--find", default="", metavar="TEXT", help="from the next row on that holds this text")
    preview.add_argument(
        "--jump", default="", metavar="ORDER", help="goes through rows by longest, shortest, cut or problem"
    )

    score = add("score", _score, "log-probabilities and loss of each row, without training")
    add_data(
        score, "max_length", "batch_size", "orpo_lambda", "sft_scope", "dpo_beta", "head", "head_chunk", "head_epsilon"
    )
    score.add_argument("--adapter", type=Path, metavar="FOLDER", help="an adapter to put on the model")

    estimate = add("estimate", _estimate, "predicts memory for each segment size, without loading the model")
    add_config(estimate)

    probe = add("probe", _probe, "measures what plans take, by two real steps each in a process of its own")
    add_config(probe)
    probe.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[],
        metavar="N",
        help="segment sizes to measure, 0 the whole model (default: the suggested and the chosen one)",
    )
    probe.add_argument("--stop-on-eof", action="store_true", help="stop when standard input ends")
    probe.add_argument("--child", help=argparse.SUPPRESS)  # what the process for one plan is told

    train = add("train", _train, "trains an adapter", json_output=False)
    add_config(train)
    train.add_argument("--events", action="store_true", help="print one JSON line an event")
    train.add_argument("--stop-on-eof", action="store_true", help="stop and save when standard input ends")

    generate = add("generate", _generate, "answers a prompt", json_output=False)
    _add_setting(generate, "model")
    generate.add_argument("--adapter", type=Path, metavar="FOLDER", help="an adapter to put on the model")
    generate.add_argument("--prompt", required=True, metavar="TEXT")
    generate.add_argument("--max-tokens", type=int, default=256, metavar="N")
    generate.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0 takes the likeliest token")

    talk = add("talk", _talk, "keeps a model in memory and answers requests, a JSON line each", json_output=False)
    _add_setting(talk, "model")
    talk.add_argument("--adapter", type=Path, metavar="FOLDER", help="an adapter to put on the model")

    models = add("models", _models, "lists the models on this machine")
    models.add_argument("--fetch", choices=["sample"], help="fetch the sample model first")
    return parser


def _add_setting(parser: argparse.ArgumentParser, name: str) -> None:
    setting = SETTINGS[name]
    flag = "--" + name.replace("_", "-")
    parser.add_argument(flag, default=None, metavar=name.upper(), dest=name, help=setting.help)


def _config(arguments: argparse.Namespace) -> TrainConfig:
    """The settings a command was given by flags; the others keep their defaults."""
    given = {name: value for name, value in vars(arguments).items() if name in SETTINGS and value is not None}
    return TrainConfig.from_mapping(given)


def _check(arguments: argparse.Namespace) -> int:
    from engine.data import load_rows, load_tokenizer, report
    from engine.data.batch import layout_of

    config, stopped = _config(arguments), _StopSignal(on_eof=False)
    tokenizer, told = load_tokenizer(_find(config).path), _data_stages(arguments.json, "Reading the data")
    rows = load_rows(config, tokenizer, told, stopped)
    if stopped():
        return _STOPPED
    result = report(config, rows, layout_of(config).prompts)
    if arguments.json:
        _print_json(result)
    else:
        print(f"{result['usable']:,} of {result['rows']:,} rows can be used ({result['format']}).")
        for problem in rows.problems:
            print(f"line {problem.line}: {problem.severity}: {problem.message} {problem.fix}")
        tokens = result["tokens"]
        print(
            f"{tokens['total']:,} tokens, {result['trained_tokens']:,} of them trained; "
            f"a row has {tokens['median']:,} (median) to {tokens['max']:,}."
        )
        print(rows.sentence)
        for cure in result["cures"]:
            print(f"{cure['label']}: fix --cure {cure['cure']}")
    return 2 if any(problem.severity == "error" for problem in rows.problems) else 0


def _fix(arguments: argparse.Namespace) -> int:
    from engine.data import load_tokenizer
    from engine.data.fixes import apply

    config, stopped = _config(arguments), _StopSignal(on_eof=False)
    tokenizer, told = load_tokenizer(_find(config).path), _data_stages(arguments.json, "Mending the data")
    fixed = apply(config, arguments.cure, tokenizer, arguments.fixed, told, stopped)
    if fixed is None:
        return _STOPPED
    if arguments.json:
        _print_json({**asdict(fixed), "path": str(fixed.path)})
    else:
        print(f"{fixed.rows:,} rows, {fixed.changed:,} of them changed; {fixed.left_out:,} left out: {fixed.path}")
    return 0


def _data_stages(as_json: bool, message: str) -> Callable[[int, int], None]:
    """Tells how far a file is read, as JSON a few times a second; people are told nothing."""
    told = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal told
        if as_json and time.monotonic() - told >= _SECONDS_BETWEEN_STAGES:
            told = time.monotonic()
            print(to_line(Stage("data", message, done, total)), flush=True)

    return tell


def _preview(arguments: argparse.Namespace) -> int:
    from engine.data import load_tokenizer, preview_rows

    config = _config(arguments)
    tokenizer, data = load_tokenizer(_find(config).path), Path(config.data).expanduser()
    if arguments.row < 1 or (arguments.count is not None and arguments.count < 1):
        raise EngineError("Rows count from 1.", "Ask for row 1 or a later one, and for at least one.")
    length, count = config.max_length, arguments.count or 1
    settings = (config.objective, config.sft_scope, config.columns, config.trained_turns)
    page = preview_rows(data, tokenizer, length, arguments.row, count, *settings, arguments.find, arguments.jump)
    rows = page["rows"]
    if not rows and arguments.count is None:
        raise EngineError("The data has no such row.", "Rows count from 1; choose one that there is.")
    if arguments.json and arguments.count is None:
        _print_json({**rows[0], "rows_total": page["rows_total"]})
    elif arguments.json:
        _print_json(page)
    else:
        for row in rows:
            print(f"row {row['row']:,} of {row['rows']:,}, line {row['line']:,}; what is trained stands in [[ ]]")
            print(_marked(row["tokens"]) or row["text"])
            if row["problem"]:
                print(f"{row['problem']['message']} {row['problem']['fix']}")
    return 0


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


def _score(arguments: argparse.Namespace) -> int:
    from engine.scoring import score_rows

    config = _config(arguments)
    result = score_rows(config, arguments.adapter)
    if arguments.json:
        _print_json(result)
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


def _estimate(arguments: argparse.Namespace) -> int:
    from engine.data import load_rows, load_tokenizer
    from engine.estimate import report
    from engine.plans import row_limit

    config = load_config(arguments.config, arguments.set)
    model, largest = _find(config), 0
    if config.data:
        largest = load_rows(config, load_tokenizer(model.path)).largest(config)
    result = report(config, model, largest or row_limit(config))
    if arguments.json:
        _print_json(result)
        return 0
    print(f"budget {result['budget_bytes'] / GB:.1f} GB; predicted peaks for rows of {result['length']:,} tokens:")
    for plan in result["plans"]:
        size = plan["segment_size"] or "off"
        fits = "" if plan["peak_bytes"] <= result["budget_bytes"] else "  does not fit"
        print(f"  segment size {size!s:>3}: {plan['peak_bytes'] / GB:6.2f} GB{fits}")
    if result["calibrated"]:
        print("These follow what was measured of this model on this machine.")
    print(result["suggested"]["reason"])
    return 0


def _probe(arguments: argparse.Namespace) -> int:
    from engine.plans import Variant
    from engine.probe import probe

    config = load_config(arguments.config, arguments.set)
    if arguments.child:
        from engine.measurement import measure

        task = json.loads(arguments.child)
        limit, allowed = task.pop("limit_bytes"), task.pop("allowed_bytes")
        measure(config, Variant(**task), limit, allowed)
        return 0
    tell = (lambda stage: print(to_line(stage), flush=True)) if arguments.json else _say
    result = probe(config, arguments.sizes, tell, _StopSignal(arguments.stop_on_eof))
    if arguments.json:
        _print_json(result)
        return 0
    print("segment size   predicted    measured    a step")
    for plan in result["plans"]:
        if "measured_bytes" in plan:
            predicted = f"{plan['predicted_bytes'] / GB:.2f} GB" if "predicted_bytes" in plan else "-"
            measured, seconds = f"{plan['measured_bytes'] / GB:.2f} GB", f"{plan['seconds']:.1f} s"
            print(f"{plan['segment_size'] or 'off'!s:>12}{predicted:>12}{measured:>12}{seconds:>10}")
        elif "died" in plan:
            print(plan["died"])
    if result["calibrated"]:
        print("This is kept: predictions for this model on this machine now follow what was measured.")
    print(result["suggested"]["reason"])
    return 0


def _train(arguments: argparse.Namespace) -> int:
    stopped = _StopSignal(arguments.stop_on_eof)
    show = (lambda event: print(to_line(event), flush=True)) if arguments.events else _say
    try:
        config = load_config(arguments.config, arguments.set)
        from engine.trainer import train
    except EngineError as error:
        failed = Failed(error.kind, error.message, error.hint)
        if not arguments.events:
            return _tell_failure(failed, as_json=False)
        show(failed)
        return 2
    status = 0
    for event in train(config, stopped):
        if isinstance(event, Failed):
            status = 1 if event.kind == "internal" else 2
        try:
            show(event)
        except BrokenPipeError:
            # Whoever read us has gone, as when the window dies: the run stops and saves, unheard.
            _stop_printing()
            stopped.ask()
    return status


def _say(event: Event) -> None:
    """An event as a line for people."""
    match event:
        case Stage():
            print(event.message)
        case Started():
            size = f"segments of {event.segment_size} layers" if event.segment_size else "all layers at once"
            known = f"predicted peak {event.predicted_peak_bytes / GB:.1f} of " if event.predicted else "budget "
            print(
                f"{event.steps:,} steps over {event.train_rows:,} rows, {size}; "
                f"{known}{event.budget_bytes / GB:.1f} GB. {event.split}"
            )
        case Step():
            print(
                f"step {event.step:,}/{event.steps:,}: loss {event.loss:.4f}, {event.tokens_per_second:,.0f} tokens/s, "
                f"peak {event.peak_bytes / GB:.2f} GB"
            )
        case Warned():
            print(f"{event.message}\n{event.hint}", file=sys.stderr)
        case Evaluated():
            print(f"step {event.step:,}: validation loss {event.loss:.4f}")
        case Saved():
            print(f"saved {event.path}")
        case Finished():
            how = "stopped" if event.stopped else "finished"
            print(f"{how} after {event.step:,} steps, {event.seconds:,.0f} s: {event.adapter}")
        case Failed():
            print(f"{event.message}\n{event.hint}\n{event.details}".rstrip(), file=sys.stderr)


class _StopSignal:
    """True once we were asked to stop: by Ctrl-C, SIGTERM or, if wanted, the end of standard input."""

    def __init__(self, on_eof: bool) -> None:
        self._on_eof = on_eof
        self._asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.ask)

    def ask(self, *_: Any) -> None:
        """From now on it is true."""
        self._asked = True

    def __call__(self) -> bool:
        if self._on_eof and not self._asked:
            readable, _, _ = select.select([0], [], [], 0)
            self._asked = bool(readable) and not os.read(0, 4096)
        return self._asked


def _generate(arguments: argparse.Namespace) -> int:
    from engine.data import Message
    from engine.generate import Speaker

    if arguments.max_tokens < 1 or not arguments.temperature >= 0:
        raise EngineError("An answer needs at least one token and a temperature from 0.", "Give larger numbers.")
    speaker = Speaker(_config(arguments).model, arguments.adapter, _to_stderr)
    messages = [Message("user", arguments.prompt)]
    for piece in speaker.answer(messages, arguments.max_tokens, arguments.temperature):
        print(piece, end="", flush=True)
    print()
    return 0


def _talk(arguments: argparse.Namespace) -> int:
    from engine.talk import talk

    return talk(_config(arguments).model, arguments.adapter)


def _models(arguments: argparse.Namespace) -> int:
    from engine.models.find import models_here
    from engine.models.sample import ensure_sample

    if arguments.fetch:
        tell = (lambda message: print(to_line(Stage("model", message)), flush=True)) if arguments.json else print
        ensure_sample(tell)
    models = models_here()
    if arguments.json:
        _print_json({"models": models})
    else:
        for model in models:
            state = model["reason"] or ("ready" if model["ready"] else "fetched when first used")
            print(f"{model['name']}  {model['family']}  {model['path']}  {state}")
    return 0


def _find(config: TrainConfig) -> Any:
    from engine.models.find import find_model

    return find_model(config.model, _to_stderr)


def _to_stderr(message: str) -> None:
    print(message, file=sys.stderr)


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, allow_nan=False))
