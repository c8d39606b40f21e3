"""The command line in real processes: its JSON, its words, its exit status."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import write_llama, write_rows

CASES = Path(__file__).with_name("cases")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(write_llama(tmp_path_factory.mktemp("model"), layers=3))


@pytest.fixture
def run(tmp_path):
    def call(*arguments, status=0):
        argv = [sys.executable, "-m", "engine", *map(str, arguments)]
        environment = {"TUNESMITH_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == status, done.stderr + done.stdout
        assert "Traceback" not in done.stdout + done.stderr
        return done.stdout

    return call


def test_check_tells_of_rows_tokens_and_split(run, model, tmp_path):
    report = json.loads(run("check", write_rows(tmp_path / "a.jsonl", 60), "--model", model, "--json"))
    assert (report["rows"], report["usable"], report["problems"]) == (60, 60, [])
    assert report["split"] == {"train": 54, "valid": 6}
    assert report["format"] == "prompt/completion"
    assert report["trained_tokens"] < report["tokens"]["total"]
    assert {"median", "p95", "max", "total"} <= report["tokens"].keys()


@pytest.mark.parametrize("case", ["null_completion", "broken_json", "unknown_role", "latin1", "empty", "no_assistant"])
def test_check_names_lines_and_exits_with_two(run, model, case):
    report = json.loads(run("check", CASES / f"{case}.jsonl", "--model", model, "--json", status=2))
    errors = [problem for problem in report["problems"] if problem["severity"] == "error"]
    assert errors
    assert all(problem["message"] and problem["fix"] for problem in errors)


def test_preview_marks_what_is_trained(run, model, tmp_path):
    data = write_rows(tmp_path / "a.jsonl", 3)
    shown = json.loads(run("preview", data, "--model", model, "--row", 3, "--json"))
    assert shown["line"] == 3
    assert "".join(token["text"] for token in shown["tokens"]) == shown["text"]
    assert "".join(token["text"] for token in shown["tokens"] if token["trained"]) == "4.<|im_end|>"
    pages = json.loads(run("preview", data, "--model", model, "--count", 2, "--json"))
    assert (pages["rows_total"], len(pages["rows"])) == (3, 2)
    assert "[[4.<|im_end|>]]" in run("preview", data, "--model", model, "--row", 3)


def test_score_then_train_then_score_again(run, model, tmp_path):
    data, config = write_rows(tmp_path / "a.jsonl", 12), tmp_path / "config.toml"
    config.write_text(f'model = "{model}"\ndata = "{data}"\nsteps = 12\nlearning_rate = 0.02\n')
    before = json.loads(run("score", data, "--model", model, "--json"))
    assert [row["line"] for row in before["rows"]] == list(range(1, 13))
    total = sum(row["tokens"] for row in before["rows"])
    assert before["loss"] == pytest.approx(-sum(row["logp"] for row in before["rows"]) / total)
    out = run("train", "--config", config, "--set", f"output={tmp_path / 'run'}", "--events")
    events = [json.loads(line) for line in out.splitlines()]
    assert events[-1]["event"] == "finished"
    step = next(event for event in events if event["event"] == "step")
    keys = {"step", "loss", "learning_rate", "grad_norm", "tokens", "tokens_per_second", "peak_bytes", "phases"}
    assert keys <= step.keys()
    assert step["loss"] > 0
    after = json.loads(run("score", data, "--model", model, "--adapter", tmp_path / "run" / "adapter", "--json"))
    assert after["loss"] < 0.8 * before["loss"]
    adapter = tmp_path / "run" / "adapter"
    assert run("generate", "--model", model, "--adapter", adapter, "--prompt", "What?", "--max-tokens", 5)
    run("train", "--config", config, "--set", f"output={tmp_path / 'run'}", status=2)


def test_estimate_lists_plans_and_suggests_one(run, model, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model": model, "memory_budget_gb": 2}))
    report = json.loads(run("estimate", "--config", config, "--set", "max_length=600", "--json"))
    assert report["budget_bytes"] == 2 * 1024**3
    assert [plan["segment_size"] for plan in report["plans"]] == [1, 2, 0]
    assert all(plan["peak_bytes"] == sum(plan["parts"].values()) for plan in report["plans"])
    assert report["suggested"]["segment_size"] == 0
    assert "predicted" in report["suggested"]["reason"]


def test_models_lists_the_sample_first(run):
    first = json.loads(run("models", "--json"))["models"][0]
    assert first["name"] == "sample"
    assert first["ready"] is False


def test_talk_answers_until_its_input_ends(model, tmp_path):
    requests = [{"prompt": "Hi", "max_tokens": 4}, {"nonsense": 1}, {"prompt": "Hi", "max_tokens": 4, "adapter": False}]
    argv = [sys.executable, "-m", "engine", "talk", "--model", model]
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run(argv, input=lines, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert answers[0] == {"ready": True}
    assert sum("done" in answer for answer in answers) == 2
    assert sum(answer.get("event") == "failed" for answer in answers) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "/nowhere.jsonl", "--json"],
        ["check", "/nowhere.jsonl", "--model", "/nowhere", "--json"],
        ["check", "/nowhere.jsonl", "--max-length", "many", "--json"],
        ["preview", "/nowhere.jsonl", "--row", "0", "--json"],
        ["estimate", "--config", "/nowhere.toml", "--json"],
        ["train", "--config", "/nowhere.toml", "--events"],
        ["talk", "--adapter", "/nowhere"],
        ["score", "/nowhere.jsonl", "--objective", "orpo", "--json"],
    ],
)
def test_failures_are_one_object_with_cause_and_cure(run, model, arguments):
    if "--model" not in arguments and arguments[0] not in ("estimate", "train"):
        arguments = [*arguments, "--model", model]
    failed = json.loads(run(*arguments, status=2))
    assert failed["event"] == "failed"
    assert failed["message"]
    assert failed["hint"]
