"""The commands about memory: estimate, probe."""

from __future__ import annotations

import argparse
import json
from typing import Any

from engine.commands.common import StopSignal, find, print_json, say
from engine.config import GB, load_config
from engine.events import to_line
from engine.undisturbed import stay_undisturbed


def estimate(arguments: argparse.Namespace) -> int:
    """Predicts memory by segment size."""
    from engine.data import load_rows, load_tokenizer
    from engine.estimate import report
    from engine.plans import row_limit

    config = load_config(arguments.config, arguments.set)
    model, largest = find(config), 0
    if config.data:
        largest = load_rows(config, load_tokenizer(model.path)).largest(config)
    result = report(config, model, largest or row_limit(config))
    if arguments.json:
        print_json(result)
        return 0
    print(f"budget {result['budget_bytes'] / GB:.2f} GB; predicted peaks for rows of {result['length']:,} tokens:")
    for plan in result["plans"]:
        size = plan["segment_size"] or "off"
        fits = "" if plan["peak_bytes"] <= result["budget_bytes"] else "  does not fit"
        print(f"  segment size {size!s:>3}: {plan['peak_bytes'] / GB:6.2f} GB{fits}")
    if longer := result["at_max_length"]:
        peaks = ", ".join(f"{plan['peak_bytes'] / GB:.2f}" for plan in longer["plans"])
        print(f"With rows of {longer['length']:,} tokens, the most that max_length allows: {peaks} GB.")
    if result["calibrated"]:
        print("These follow what was measured of this model on this machine.")
    _print_suggestion(result)
    return 0


def probe(arguments: argparse.Namespace) -> int:
    """Measures plans by real steps."""
    from engine.plans import Variant
    from engine.probe import probe

    config = load_config(arguments.config, arguments.set)
    if arguments.child:
        stay_undisturbed()
        from engine.measurement import measure

        task = json.loads(arguments.child)
        limit, allowed = task.pop("limit_bytes"), task.pop("allowed_bytes")
        measure(config, Variant(**task), limit, allowed)
        return 0
    tell = (lambda stage: print(to_line(stage), flush=True)) if arguments.json else say
    result = probe(config, arguments.sizes, tell, StopSignal(arguments.stop_on_eof))
    if arguments.json:
        print_json(result)
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
    _print_suggestion(result)
    return 0


def _print_suggestion(result: dict[str, Any]) -> None:
    """The suggestion with its reason; where nothing fits, what would help, in the order of what it gives."""
    print(result["suggested"]["reason"])
    if result["remedies"]:
        print("What would help:")
    for remedy in result["remedies"]:
        print(f"  --set {remedy['setting']}={_given(remedy['value'])}  {remedy['sentence']}")


def _given(value: object) -> str:
    """A setting's value as --set takes it."""
    if isinstance(value, str):
        return value
    return ",".join(value) if isinstance(value, (list, tuple)) else json.dumps(value)
