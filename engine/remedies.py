"""What would lower the memory that a run needs: one setting at a time, each predicted anew, the best first."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from engine.adapter_size import adapter_parameters
from engine.architecture import Architecture
from engine.config import GB, PAIR_OBJECTIVES, SETTINGS, TrainConfig
from engine.estimate import Case, longest_that_fits, plans

_MOST = 6
# Below these a setting takes away more of what is learned, or of the speed, than it gives memory.
_LOWEST_RANK, _LOWEST_CHUNK = 4, 32
# Where the first LoRAs were put (Hu et al. 2021), and what has their place in families that have them in one.
_FEW_TARGETS = ("q_proj", "v_proj", "qkv_proj")


@dataclass(frozen=True)
class Remedy:
    """One setting with another value: what the leanest plan would take then, and how much less that is."""

    setting: str
    value: object
    peak_bytes: int
    saves_bytes: int
    fits: bool
    sentence: str


def remedies(case: Case) -> list[Remedy]:
    """What lowers the least peak that any plan can have: first what fits, then the rest.

    Of each setting it is the mildest value that fits, or else the one that gives most.
    """
    shape, config, budget_bytes = case.shape, case.config, case.budget_bytes
    parameters = adapter_parameters(shape, config)
    # What rests in memory was measured with the present adapter, and with no other.
    of_others = replace(case.correction, resting_bytes=None)

    @cache
    def least(changed: TrainConfig) -> int:
        correction = case.correction if adapter_parameters(shape, changed) == parameters else of_others
        # A budget of nothing makes each plan its leanest: what is compared is what can be saved, not what is spent.
        return min(
            one.peak_bytes for one in plans(replace(case, config=changed, budget_bytes=0, correction=correction))
        )

    before, found = least(config), []
    shorter = longest_that_fits(case) if before > budget_bytes else None
    for setting, values in _values(case, shorter).items():
        changed = [config.updated({setting: value}) for value in values]
        # The strongest first: where that does not fit, no other has to be looked at.
        chosen = changed[-1]
        if least(chosen) <= budget_bytes:
            chosen = next(one for one in changed if least(one) <= budget_bytes)
        value, peak = getattr(chosen, setting), least(chosen)
        if peak >= before:
            continue
        sentence = f"{_change(shape, config, setting, value)}: {_verdict(before, peak, budget_bytes)}"
        if setting == "batch_size":
            sentence += _as_many_rows(shape, config, chosen, lambda one: least(one) <= budget_bytes)
        found.append(Remedy(setting, value, peak, before - peak, peak <= budget_bytes, sentence))
    return sorted(found, key=lambda one: (not one.fits, -one.saves_bytes))[:_MOST]


def _values(case: Case, shorter: int | None) -> dict[str, list[Any]]:
    """Values to try by setting, the mildest first; `shorter` is the longest row that fits."""
    shape, config = case.shape, case.config
    values: dict[str, list[Any]] = {
        "batch_size": _halves(config.batch_size, 1),
        "max_length": [shorter] if shorter else _halves(min(case.longest, config.max_length), 8)[:1],
        "accumulate": [1] if config.accumulate > 1 else [],
        "head": [head for head in ("auto", "blocked") if head != config.head],
        "head_chunk": _halves(config.head_chunk, _LOWEST_CHUNK),
        "pack": [] if config.pack else [True],
        "prefix_shared": [True] if config.objective in PAIR_OBJECTIVES and not config.prefix_shared else [],
    }
    if not config.adapter:  # one to go on with keeps what it is
        adapted = min(config.last_layers or shape.layers, shape.layers)
        few = [name for name in _FEW_TARGETS if name in config.targets and name in _linear_names(shape)]
        values |= {
            "rank": _halves(config.rank, _LOWEST_RANK),
            "last_layers": _halves(adapted, math.ceil(shape.layers / 4)),
            "targets": [few] if few else [],
            "adapter_kind": ["lora"] if config.adapter_kind != "lora" else [],
        }
    return {setting: tried for setting, tried in values.items() if tried}


def _halves(number: int, lowest: int) -> list[int]:
    """A half of `number`, a quarter and so on, down to `lowest`."""
    return [number >> shift for shift in range(1, number.bit_length()) if number >> shift >= lowest]


def _linear_names(shape: Architecture) -> set[str]:
    return {one.name for one in shape.linears}


def _as_many_rows(
    shape: Architecture, config: TrainConfig, fewer: TrainConfig, fits: Callable[[TrainConfig], bool]
) -> str:
    """How a step goes on learning from as many rows, where that fits."""
    batches, rest = divmod(config.batch_size * config.accumulate, fewer.batch_size)
    if rest or not fits(replace(fewer, accumulate=batches)):
        return ""
    return f" With {_change(shape, config, 'accumulate', batches)} a step learns from as many rows as before."


def _verdict(before: int, peak: int, budget_bytes: int) -> str:
    less = f"{_size(before - peak)} less"
    if peak > budget_bytes:
        return f"{less}, still {_size(peak - budget_bytes)} too much."
    return f"{less}, which fits." if before > budget_bytes else f"{less}."


def _change(shape: Architecture, config: TrainConfig, name: str, value: Any) -> str:
    """The setting by its label, its new value and the present one."""
    setting = SETTINGS[name]
    unit = f" {setting.unit}" if setting.unit and setting.unit not in setting.label.lower() else ""
    now = _words(shape, name, getattr(config, name))
    return f"{setting.label} {_words(shape, name, value)} instead of {now}{unit}"


def _words(shape: Architecture, name: str, value: Any) -> str:
    setting = SETTINGS[name]
    match setting.kind:
        case "switch":
            return "on" if value else "off"
        case "choice":
            return setting.choice_labels[setting.choices.index(value)]
        case "names":
            there = [one for one in value if one in _linear_names(shape)]
            return ", ".join(there) if len(there) <= len(_FEW_TARGETS) else f"{len(there)} kinds"
    return "all" if name == "last_layers" and not value else f"{value:,}"


def _size(size: int) -> str:
    return f"{size / GB:.2f} GB" if size >= GB / 10 else f"{size / 1024**2:.1f} MB"
