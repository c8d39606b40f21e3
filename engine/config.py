"""Every setting, declared once: the command line, the files, the window's forms and the docs derive from it."""

from __future__ import annotations

import difflib
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from engine.errors import EngineError

# Memory as it is printed on the Mac's box and shown by Activity Monitor.
GB = 1024**3

Kind = Literal["text", "path", "integer", "number", "choice", "names", "switch"]

_SWITCH_WORDS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}

# Named by a choice of `objective`; the others learn from single answers.
PAIR_OBJECTIVES = ("orpo", "dpo")

# By their names in mlx-lm; the last two are what some families have in place of q, k and v, and of gate and up.
LINEAR_LAYERS = (
    "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "qkv_proj", "gate_up_proj",
)  # fmt: skip
_PER_LAYER_INPUT_LAYERS = ("per_layer_input_gate", "per_layer_projection")


@dataclass(frozen=True)
class Setting:
    """How one setting is named, explained, checked and shown. `low` and `high` are inclusive."""

    name: str
    kind: Kind
    default: Any
    label: str
    help: str
    group: str  # dataset | model | objective | memory | run
    unit: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    choice_labels: tuple[str, ...] = ()
    word: str = ""  # a word allowed in place of a number, such as "auto"
    advanced: bool = True
    objectives: tuple[str, ...] = ()  # only these use it; empty: all do

    def parse(self, value: Any) -> Any:
        """`value`, given as text or as its own type, as this setting holds it; EngineError where it can't be."""
        match self.kind:
            case "integer" | "number":
                return self._number(value)
            case "names":
                return self._names(value)
            case "switch":
                return self._switch(value)
        text = str(value) if isinstance(value, (str, Path)) else None
        if text is None:
            raise self._refusal(value, "a text")
        if self.kind == "choice" and text not in self.choices:
            raise self._refusal(value, "one of " + ", ".join(self.choices))
        return text

    def _number(self, value: Any) -> Any:
        if self.word and value == self.word:
            return value
        whole = self.kind == "integer"
        wanted = ("a whole number" if whole else "a number") + self._range()
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise self._refusal(value, wanted)
        try:
            number = float(value)
        except ValueError:
            raise self._refusal(value, wanted) from None
        if not math.isfinite(number) or (whole and number != int(number)):
            raise self._refusal(value, wanted)
        if (self.low is not None and number < self.low) or (self.high is not None and number > self.high):
            raise self._refusal(value, wanted)
        return int(number) if whole else number

    def _names(self, value: Any) -> tuple[str, ...]:
        parts = value.replace(",", " ").split() if isinstance(value, str) else value
        wanted = "one or more of " + ", ".join(self.choices)
        if not isinstance(parts, Sequence) or not parts:
            raise self._refusal(value, wanted)
        if any(part not in self.choices for part in parts):
            raise self._refusal(value, wanted)
        return tuple(name for name in self.choices if name in parts)

    def _switch(self, value: Any) -> bool:
        if isinstance(value, bool):
            return value
        word = value.strip().lower() if isinstance(value, str) else value
        if word not in _SWITCH_WORDS:
            raise self._refusal(value, "true or false")
        return _SWITCH_WORDS[word]

    def _range(self) -> str:
        low = None if self.low is None else f"{self.low:,g}"
        high = None if self.high is None else f"{self.high:,g}"
        words = f" or {self.word}" if self.word else ""
        if low is not None and high is not None:
            return f" from {low} to {high}{words}"
        return (f" of at least {low}" if low is not None else "") + words

    def _refusal(self, value: Any, wanted: str) -> EngineError:
        shown = "nothing" if value in (None, "") else repr(value)
        return EngineError(
            f"{self.label} ({self.name}) can't be {shown}.",
            f"Give it {wanted}, for example {self._example()}.",
        )

    def _example(self) -> str:
        if self.kind == "switch":
            return "true"
        value = self.default or (self.choices[0] if self.choices else "a name")
        return ", ".join(value) if isinstance(value, tuple) else str(value)


def _setting(kind: Kind, default: Any, label: str, group: str, help: str, **rest: Any) -> Any:
    return field(default=default, metadata={"kind": kind, "label": label, "group": group, "help": help, **rest})


@dataclass(frozen=True)
class TrainConfig:
    """All settings of a run. Build it with `from_mapping` or `load`: they check every value."""

    data: str = _setting(
        "path", "", "Data", "dataset",
        "The file or folder to learn from: JSON lines, a JSON array, CSV, Parquet, text or Markdown, with messages, "
        "prompt and completion, text, or prompt, chosen and rejected.",
        advanced=False,
    )  # fmt: skip
    valid: str = _setting(
        "path", "", "Validation data", "dataset",
        "A file of your own to measure with. Empty: some rows are set aside from the data and never trained.",
    )  # fmt: skip
    max_length: int = _setting(
        "integer", 2048, "Longest row", "dataset",
        "Rows are cut after this many tokens. Longer keeps more of each row and takes more memory.",
        unit="tokens", low=8, high=1_048_576,
    )  # fmt: skip
    columns: str = _setting(
        "text", "", "Columns", "dataset",
        "Which column of your file is which, as in prompt=question, completion=answer; system= says that none is. The "
        "others, and all where this is empty, are found by their names.",
    )  # fmt: skip
    trained_turns: str = _setting(
        "choice", "all", "Learned turns", "dataset",
        "Which of the assistant's turns in a chat are learned: all of them, or only the last, with those before it "
        "read as context.",
        choices=("all", "last"), choice_labels=("All turns", "Last turn"),
    )  # fmt: skip
    skip_flawed: bool = _setting(
        "switch", False, "Leave out flawed rows", "dataset",
        "Trains without the rows that can't be used, and says how many. Off: a run starts only when every row can be.",
    )  # fmt: skip
    model: str = _setting(
        "path", "sample", "Model", "model",
        "A model folder on this machine, or sample: SmolLM2 135M Instruct.",
        advanced=False,
    )  # fmt: skip
    rank: int = _setting(
        "integer", 16, "Adapter rank", "model",
        "How much the adapter can learn. Higher learns finer detail, takes more memory and may learn by heart.",
        low=1, high=1024,
    )  # fmt: skip
    scale: float = _setting(
        "number", 2.0, "Adapter scale", "model",
        "How strongly the adapter acts on the model. Higher learns faster and is less steady.",
        low=0.001, high=1000,
    )  # fmt: skip
    dropout: float = _setting(
        "number", 0.0, "Adapter dropout", "model",
        "Share of the adapter's inputs left out at random while training. Higher resists learning by heart.",
        low=0.0, high=0.9,
    )  # fmt: skip
    targets: tuple[str, ...] = _setting(
        "names", LINEAR_LAYERS, "Adapted layers", "model",
        "Which linear layers of a decoder layer get an adapter; names that the model lacks are passed over. Fewer "
        "take less memory and learn less.",
        choices=LINEAR_LAYERS + _PER_LAYER_INPUT_LAYERS,
    )  # fmt: skip
    last_layers: int = _setting(
        "integer", 0, "Last layers only", "model",
        "How many decoder layers get an adapter, counted from the last. Fewer take less time and memory and learn "
        "less. 0: all of them.",
        unit="layers", low=0, high=10_000,
    )  # fmt: skip
    adapter_kind: str = _setting(
        "choice", "lora", "Adapter kind", "model",
        "DoRA learns the size of each output's weights apart from their direction: often a little better at low "
        "ranks. It takes more memory and a fifth to a half more time, most on short rows.",
        choices=("lora", "dora"), choice_labels=("LoRA", "DoRA"),
    )  # fmt: skip
    rslora: bool = _setting(
        "switch", False, "Rank-stabilized scale", "model",
        "Divides the adapter scale by the square root of the rank (rsLoRA), so that one scale suits every rank. "
        "Choose a higher scale with it.",
    )  # fmt: skip
    lora_plus: float = _setting(
        "number", 1.0, "LoRA+ ratio", "model",
        "How many times faster the adapter's second matrix learns than its first (LoRA+). 1: both alike. Its authors "
        "advise 16, with a lower learning rate.",
        low=1.0, high=64.0,
    )  # fmt: skip
    adapter: str = _setting(
        "path", "", "Continue from", "model",
        "An adapter of this model to go on with, made here or by mlx_lm: its folder or its adapters.safetensors. It "
        "keeps its own kind, rank, scale and layers. Empty: a new one.",
    )  # fmt: skip
    objective: str = _setting(
        "choice", "sft", "Objective", "objective",
        "Learn from answers: write the responses in your data. Prefer better answers: from pairs of a better and a "
        "worse response; ORPO learns the better one as well, DPO only moves away from the worse, near the old model.",
        choices=("sft", "orpo", "dpo"),
        choice_labels=("Learn from answers (SFT)", "Prefer better answers (ORPO)", "Prefer better answers (DPO)"),
        advanced=False,
    )  # fmt: skip
    orpo_lambda: float = _setting(
        "number", 0.1, "Preference weight", "objective",
        "How much ORPO minds which of two answers is better, beside learning the better one. 0 learns answers only.",
        low=0.0, high=100.0, objectives=("orpo",), advanced=False,
    )  # fmt: skip
    sft_scope: str = _setting(
        "choice", "full", "Learned text", "objective",
        "What ORPO learns of the better answer's row: prompt and response, as in the paper, or the response alone.",
        choices=("full", "response"), choice_labels=("Prompt and response", "Response only"), objectives=("orpo",),
    )  # fmt: skip
    dpo_beta: float = _setting(
        "number", 0.1, "Closeness", "objective",
        "How closely DPO stays to the model as it was. Lower lets it move further for the better answers.",
        low=0.001, high=100.0, objectives=("dpo",), advanced=False,
    )  # fmt: skip
    epochs: float = _setting(
        "number", 3.0, "Passes over the data", "objective",
        "How often each row is learned. More fits the data closer; too many learn it by heart. "
        "Not used when steps are given.",
        unit="epochs", low=0.01, high=1000, advanced=False,
    )  # fmt: skip
    steps: int = _setting(
        "integer", 0, "Steps", "objective",
        "How many optimizer steps to take. 0: as many as the passes over the data need.",
        unit="steps", low=0, high=10_000_000,
    )  # fmt: skip
    learning_rate: float = _setting(
        "number", 2e-4, "Learning rate", "objective",
        "How far each step moves the adapter. Higher learns faster; too high and the loss jumps or climbs.",
        low=1e-8, high=1.0, advanced=False,
    )  # fmt: skip
    schedule: str = _setting(
        "choice", "cosine", "Schedule", "objective",
        "How the learning rate goes on after warm-up: cosine falls to a tenth smoothly, linear in a straight line.",
        choices=("cosine", "linear", "constant"), choice_labels=("Cosine", "Linear", "Constant"),
    )  # fmt: skip
    warmup: int | str = _setting(
        "integer", "auto", "Warm-up", "objective",
        "Steps over which the learning rate rises from zero. Auto: a twentieth of all steps, at most 100.",
        unit="steps", low=0, high=1_000_000, word="auto",
    )  # fmt: skip
    batch_size: int = _setting(
        "integer", 4, "Rows at a time", "objective",
        "Rows that go through the model together. More is faster on a GPU and takes more memory.",
        unit="rows", low=1, high=4096,
    )  # fmt: skip
    accumulate: int = _setting(
        "integer", 1, "Batches a step", "objective",
        "Batches whose gradients are added up before the adapter moves. More is steadier and slower a step.",
        unit="batches", low=1, high=4096,
    )  # fmt: skip
    weight_decay: float = _setting(
        "number", 0.01, "Weight decay", "objective",
        "Pulls the adapter's weights towards zero. Higher forgets what the data does not repeat.",
        low=0.0, high=10.0,
    )  # fmt: skip
    max_grad_norm: float = _setting(
        "number", 1.0, "Gradient limit", "objective",
        "Longer gradients are shortened to this, so one odd batch can't spoil the run. 0: no limit.",
        low=0.0, high=1e6,
    )  # fmt: skip
    evaluate_every: int | str = _setting(
        "integer", "auto", "Measure every", "objective",
        "Steps between two looks at the validation rows. Auto: five times in a run. 0: never.",
        unit="steps", low=0, high=1_000_000, word="auto",
    )  # fmt: skip
    seed: int = _setting(
        "integer", 0, "Seed", "objective",
        "Decides the order of the rows, the split and the adapter's first values. Same seed, same run.",
        low=0, high=2**31 - 1,
    )  # fmt: skip
    memory_budget_gb: float | str = _setting(
        "number", "auto", "Memory budget", "memory",
        "What training may take of this machine's memory, the model included. Auto: what is free now, with a margin.",
        unit="GB", low=0.1, high=4096, word="auto", advanced=False,
    )  # fmt: skip
    segment_size: int | str = _setting(
        "integer", "auto", "Segment size", "memory",
        "How many layers go backward together. The bars show what each size takes: small ones keep more between "
        "segments, large ones more inside one. 0: the whole model at once. Auto: the fastest that fits.",
        unit="layers", low=0, high=10_000, word="auto", advanced=False,
    )  # fmt: skip
    prefix_shared: bool = _setting(
        "switch", True, "Share prompts", "memory",
        "Goes through the prompt of a pair once for both of its answers. The result is the same, in less time and "
        "memory.", objectives=PAIR_OBJECTIVES,
    )  # fmt: skip
    pack: bool = _setting(
        "switch", True, "Pack rows", "memory",
        "Lays the rows of a batch one after another instead of side by side, so that no padding is computed. The "
        "result is the same.",
    )  # fmt: skip
    head: str = _setting(
        "choice", "auto", "Head", "memory",
        "How the scores over the vocabulary are computed; all ways give the same result. Auto takes the fastest that "
        "keeps memory small.",
        choices=("auto", "full", "chunked", "fused", "blocked"),
        choice_labels=("Auto", "Full", "Chunked", "Fused", "Blocked"),
    )  # fmt: skip
    head_epsilon: float = _setting(
        "number", 1e-5, "Head epsilon", "memory",
        "The blocked head leaves out words of the vocabulary less likely than this in its gradient. 0 is exact.",
        low=0.0, high=0.01,
    )  # fmt: skip
    head_chunk: int = _setting(
        "integer", 256, "Head chunk", "memory",
        "Tokens whose vocabulary scores are held at the same time. Smaller takes less memory.",
        unit="tokens", low=1, high=65_536,
    )  # fmt: skip
    output: str = _setting(
        "path", "", "Run folder", "run",
        "Where the run is written. Empty: a new folder among your runs.",
    )  # fmt: skip

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> TrainConfig:
        """A config of checked values; names not given keep their defaults. EngineError for the first wrong one."""
        return cls(**{name: setting_named(name).parse(value) for name, value in values.items()})

    def updated(self, values: Mapping[str, Any]) -> TrainConfig:
        """This config with some settings changed, checked like `from_mapping`."""
        return replace(self, **{name: setting_named(name).parse(value) for name, value in values.items()})

    def to_mapping(self) -> dict[str, Any]:
        """Plain JSON values by name."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


SETTINGS: dict[str, Setting] = {
    item.name: Setting(name=item.name, default=item.default, **item.metadata) for item in fields(TrainConfig)
}


def setting_named(name: str) -> Setting:
    """The declaration of `name`; EngineError that offers the nearest name where there is none."""
    if name in SETTINGS:
        return SETTINGS[name]
    near = difflib.get_close_matches(name, SETTINGS, n=1)
    raise EngineError(
        f"There is no setting called {name!r}.",
        f"Did you mean {near[0]}?" if near else "The settings are: " + ", ".join(sorted(SETTINGS)) + ".",
    )


def parse_assignments(assignments: Sequence[str]) -> dict[str, str]:
    """`["rank=8", "data=a.jsonl"]` as names and texts."""
    pairs = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise EngineError(f"{assignment!r} sets nothing.", "Write NAME=VALUE, for example rank=8.")
        pairs[name.strip()] = value.strip()
    return pairs


def load_config(path: Path, assignments: Sequence[str] = ()) -> TrainConfig:
    """The config in a TOML or JSON file, with `NAME=VALUE` assignments on top."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise EngineError(
            f"The config {path} can't be read: {error.strerror or error}.", "Check its name and place."
        ) from error
    except UnicodeDecodeError as error:
        raise EngineError(f"The config {path} is not UTF-8 text.", "Save it as UTF-8.") from error
    try:
        values = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except (json.JSONDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        kind = "JSON" if path.suffix.lower() == ".json" else "TOML"
        raise EngineError(f"The config {path} is not valid {kind}: {error}.", "Mend that line.") from error
    if not isinstance(values, dict):
        raise EngineError(f"The config {path} holds no settings.", 'Write them by name, for example {"rank": 8}.')
    return TrainConfig.from_mapping({**values, **parse_assignments(assignments)})
