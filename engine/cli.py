"""The command line. Exit status 0: done; 2: the request can't be met; 1: our fault.

Modules that load MLX are imported by the commands that need them: check and preview start without it.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.commands import answers, data, memory
from engine.commands.common import STOPPED, StopSignal, config_of, print_json, say
from engine.config import SETTINGS, load_config
from engine.errors import EngineError
from engine.events import Failed, Stage, to_line
from engine.undisturbed import stay_undisturbed

Command = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status. A failure is told in words, as JSON where JSON was asked for."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    arguments = _parser().parse_args(argv)
    command: Command = arguments.command
    try:
        return command(arguments)
    except EngineError as error:
        failed = Failed.of(error)
    except BrokenPipeError:
        _stop_printing()  # whoever read us has gone
        return 1
    except KeyboardInterrupt:
        return STOPPED
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

    check = add("check", data.check, "says whether a data file can be learned from, line by line")
    add_data(check, "max_length", "valid", "seed", "sft_scope", "columns", "trained_turns")

    fix = add("fix", data.fix, "writes a mended copy of a data file or folder beside it")
    add_data(fix, "max_length", "sft_scope", "columns", "trained_turns")
    fix.add_argument(
        "--cure",
        action="append",
        required=True,
        help="skip leaves out rows that can't be used, trim shortens rows that are too long by whole turns and "
        "sentences, convert writes clean UTF-8, dedupe keeps one of rows that are the same; may be given several times",
    )
    fix.add_argument(
        "--output", type=Path, metavar="PATH", dest="fixed", help="the new file or folder (default: 'DATA (fixed)')"
    )

    preview = add("preview", data.preview, "shows rows as the model sees them, token by token")
    add_data(preview, "max_length", "sft_scope", "columns", "trained_turns")
    preview.add_argument("--row", type=int, default=1, metavar="R", help="which row, from 1")
    preview.add_argument("--count", type=int, metavar="C", help="so many rows from there on")
    preview.add_argument(
        "--find",
        default="",
        metavar="TEXT",
        help="from the next row on that holds this text, and from the first one again after the last",
    )
    preview.add_argument(
        "--jump", default="", metavar="ORDER", help="goes through rows by longest, shortest, cut or problem"
    )

    score = add("score", answers.score, "log-probabilities and loss of each row, without training")
    add_data(
        score, "max_length", "columns", "trained_turns", "batch_size", "orpo_lambda", "sft_scope", "dpo_beta", "head",
        "head_chunk", "head_epsilon",
    )  # fmt: skip
    score.add_argument("--adapter", type=Path, metavar="FOLDER", help="an adapter to put on the model")

    estimate = add("estimate", memory.estimate, "predicts memory for each segment size, without loading the model")
    add_config(estimate)

    probe = add("probe", memory.probe, "measures what plans take, by two real steps each in a process of its own")
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

    generate = add("generate", answers.generate, "answers a prompt", json_output=False)
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

    blocks = commands.add_parser("make-blocks")  # what a process that shares the work on a file is started with
    blocks.set_defaults(command=_make_blocks)
    blocks.add_argument("folder", type=Path)
    return parser


def _add_setting(parser: argparse.ArgumentParser, name: str) -> None:
    setting = SETTINGS[name]
    flag = "--" + name.replace("_", "-")
    parser.add_argument(flag, default=None, metavar=name.upper(), dest=name, help=setting.help)


def _train(arguments: argparse.Namespace) -> int:
    stopped = StopSignal(arguments.stop_on_eof)
    show = (lambda event: print(to_line(event), flush=True)) if arguments.events else say
    try:
        config = load_config(arguments.config, arguments.set)
        stay_undisturbed()
        from engine.trainer import train
    except EngineError as error:
        failed = Failed.of(error)
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


def _talk(arguments: argparse.Namespace) -> int:
    from engine.talk import talk

    return talk(config_of(arguments).model, arguments.adapter)


def _make_blocks(arguments: argparse.Namespace) -> int:
    from engine.data.crew import work

    return work(arguments.folder)


def _models(arguments: argparse.Namespace) -> int:
    from engine.models.find import models_here
    from engine.models.sample import ensure_sample

    if arguments.fetch:
        tell = (lambda message: print(to_line(Stage("model", message)), flush=True)) if arguments.json else print
        ensure_sample(tell)
    models = models_here()
    if arguments.json:
        print_json({"models": models})
    else:
        for model in models:
            state = model["reason"] or ("ready" if model["ready"] else "fetched when first used")
            print(f"{model['name']}  {model['family']}  {model['path']}  {state}")
    return 0
