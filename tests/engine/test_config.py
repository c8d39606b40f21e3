"""Settings: declared once, checked always, refused with a cure."""

import json

import pytest

from engine.config import SETTINGS, TrainConfig, load_config
from engine.errors import EngineError


def test_every_setting_explains_itself():
    for setting in SETTINGS.values():
        assert setting.label
        assert setting.help.endswith(".")
        assert setting.group in {"dataset", "model", "objective", "memory", "run"}
        if setting.default != "":
            assert setting.parse(setting.default) == setting.default


@pytest.mark.parametrize(
    "values",
    [
        {"rank": "x"}, {"rank": None}, {"rank": 2.5}, {"rank": 0}, {"rank": True}, {"segment_size": -1},
        {"segment_size": "automatic"}, {"objective": "rlhf"}, {"targets": []}, {"targets": "q_proj, nonsense"},
        {"data": 3}, {"learning_rate": "nan"}, {"learning_rate": 1e400}, {"rnk": 3}, {"": 1},
        {"rslora": 1}, {"rslora": "maybe"}, {"lora_plus": 0.5}, {"lora_plus": 65}, {"last_layers": -1},
        {"adapter_kind": "qlora"}, {"adapter": None},
    ],
)  # fmt: skip
def test_wrong_values_are_refused_with_a_cure(values):
    with pytest.raises(EngineError) as refusal:
        TrainConfig.from_mapping(values)
    assert refusal.value.message
    assert refusal.value.hint


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("On", True), (" yes ", True), ("no", False), ("FALSE", False)]
)
def test_switches_are_read_from_words(text, value):
    assert TrainConfig.from_mapping({"rslora": text}).rslora is value


def test_the_default_targets_are_the_linear_layers_of_attention_and_mlp():
    others = set(SETTINGS["targets"].choices) - set(TrainConfig().targets)
    assert others == {"per_layer_input_gate", "per_layer_projection"}


def test_the_nearest_name_is_offered():
    with pytest.raises(EngineError, match="Did you mean learning_rate"):
        TrainConfig.from_mapping({"lerning_rate": 1})


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_files_and_assignments(tmp_path, suffix):
    path = tmp_path / f"config{suffix}"
    values = {"rank": 8, "segment_size": "auto", "targets": ["v_proj", "q_proj"]}
    text = json.dumps(values) if suffix == ".json" else "\n".join(f"{k} = {json.dumps(v)}" for k, v in values.items())
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    config = load_config(path, ["rank=4", "data=a=b.jsonl", "memory_budget_gb=1.5"])
    assert (config.rank, config.segment_size, config.data, config.memory_budget_gb) == (4, "auto", "a=b.jsonl", 1.5)
    assert config.targets == ("q_proj", "v_proj")
    assert TrainConfig.from_mapping(json.loads(json.dumps(config.to_mapping()))) == config


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.toml", b"rank = "), ("a.json", b"{"), ("a.json", b"[1]"), ("a.toml", b"\xff"), ("a.json", b"[" * 100_000)],
)
def test_broken_files(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(EngineError):
        load_config(tmp_path / name)


def test_a_missing_file(tmp_path):
    with pytest.raises(EngineError, match="can't be read"):
        load_config(tmp_path / "none.toml")
    with pytest.raises(EngineError, match="sets nothing"):
        load_config(tmp_path / "none.toml", ["rank"]) if (tmp_path / "none.toml").write_text("") == 0 else None
