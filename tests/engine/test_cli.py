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
        lines = done.stdout.splitlines(keepends=True)
        # On a busy machine word of progress comes before the answer.
        return "".join(line for line in lines if not line.startswith('{"event": "stage", "name": "data"'))

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


@pytest.mark.parametrize("case", ["pair_shared_start", "pair_messages", "pair_one_token", "pair_identical"])
def test_check_takes_pairs_for_the_objectives_that_need_them(run, model, case):
    data = CASES / f"{case}.jsonl"
    report = json.loads(run("check", data, "--model", model, "--objective", "orpo", "--json"))
    assert (report["rows"], report["usable"], report["format"]) == (1, 1, "preference")
    assert [problem["code"] for problem in report["problems"]] == ["identical_pair"] * (case == "pair_identical")
    refused = json.loads(run("check", data, "--model", model, "--json", status=2))
    assert (refused["usable"], refused["format"]) == (0, "preference")
    assert refused["problems"][0]["code"] == "pair_row"


def test_check_reads_the_validation_file_too(run, model, tmp_path):
    data, own = write_rows(tmp_path / "a.jsonl", 6), write_rows(tmp_path / "own.jsonl", 3)
    report = json.loads(run("check", data, "--model", model, "--valid", own, "--json"))
    assert [problem["code"] for problem in report["problems"]] == ["in_both"] * 3
    assert report["split"] == {"train": 6, "valid": 3}
    own.write_text(own.read_text().replace("plus", "and") + '{"prompt": "a"}\n')
    report = json.loads(run("check", data, "--model", model, "--valid", own, "--json", status=2))
    assert (report["rows"], report["usable"]) == (6, 6)
    (problem,) = report["problems"]
    assert (problem["line"], problem["severity"]) == (4, "error")
    assert problem["message"].startswith("own.jsonl: Line 4 ")
    assert "own.jsonl, line 4: error: Line 4 " in run("check", data, "--model", model, "--valid", own, status=2)
    pairs = CASES / "pair_messages.jsonl"
    report = json.loads(run("check", pairs, "--model", model, "--objective", "dpo", "--valid", own, "--json", status=2))
    assert {problem["code"] for problem in report["problems"]} == {"not_a_pair"}


def test_preview_shows_both_answers_of_a_pair(run, model):
    arguments = ("preview", CASES / "pair_messages.jsonl", "--model", model, "--objective", "orpo")
    shown = json.loads(run(*arguments, "--json"))
    prompt = [token for token in shown["tokens"] if token["part"] == "prompt"]
    assert [token["trained"] for token in prompt] == [False] + [True] * (len(prompt) - 1)
    assert all(token["special"] == (token["text"] in ("<|im_start|>", "<|im_end|>")) for token in shown["tokens"])
    shown = json.loads(run(*arguments, "--sft-scope", "response", "--json"))
    assert not any(token["trained"] for token in shown["tokens"] if token["part"] == "prompt")
    for part, answer in (("chosen", "Hello, good to see you."), ("rejected", "What do you want?")):
        said = [token["text"] for token in shown["tokens"] if token["trained"] and token["part"] == part]
        assert "".join(said) == f"{answer}<|im_end|>"
    text = run(*arguments, "--sft-scope", "response")
    assert "assistant\n\nchosen:\n[[Hello, good to see you.<|im_end|>]]\n" in text
    assert "\nrejected:\n[[What do you want?<|im_end|>]]\n" in text
    full = run(*arguments)
    assert "<|im_start|>[[user\nGreet me." in full
    assert "assistant\n]]\nchosen:\n[[Hello, good to see you.<|im_end|>]]\n" in full


def test_preview_searches_on_from_the_first_row_and_says_so(run, model, tmp_path):
    arguments = ("preview", write_rows(tmp_path / "a.jsonl", 4), "--model", model, "--row", 3)
    text = run(*arguments, "--find", "1 plus 1")
    assert text.startswith("No row from 3 to the last holds it; from the first one on:\nrow 2 of 4, line 2; ")
    assert json.loads(run(*arguments, "--find", "1 plus 1", "--json"))["wrapped"]
    nothing = json.loads(run(*arguments, "--find", "nowhere", "--json", status=2))
    assert nothing["message"] == "No row holds 'nowhere'."
    page = json.loads(run(*arguments, "--find", "nowhere", "--count", 2, "--json"))
    assert (page["rows"], page["wrapped"]) == ([], False)


def test_score_reads_columns_and_turns_as_the_others_do(run, model, tmp_path):
    turns = [{"role": role, "content": word} for role, word in zip(["user", "assistant"] * 2, "abcd", strict=True)]
    data = tmp_path / "a.jsonl"
    data.write_text(json.dumps({"talk": turns}) + "\n")
    scored = [
        json.loads(
            run("score", data, "--model", model, "--columns", "messages=talk", "--trained-turns", turns, "--json")
        )
        for turns in ("all", "last")
    ]
    assert [answer["rows"][0]["tokens"] for answer in scored] == [4, 2]


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
    assert report["suggested"]["segment_size"] in (1, 2, 0)
    assert "predicted" in report["suggested"]["reason"]


def test_estimate_tells_of_rows_as_long_as_the_settings_allow(run, model, tmp_path):
    data, config = tmp_path / "short.jsonl", tmp_path / "config.json"
    data.write_text('{"prompt": "What?", "completion": "That."}\n' * 4)
    settings = {"model": model, "memory_budget_gb": 2, "max_length": 600, "segment_size": 1}
    config.write_text(json.dumps({**settings, "data": str(data)}))
    report = json.loads(run("estimate", "--config", config, "--json"))
    longer = report["at_max_length"]
    assert report["length"] < longer["length"] == 600
    peaks = [[plan["peak_bytes"] for plan in plans] for plans in (report["plans"], longer["plans"])]
    assert all(long > short for short, long in zip(*peaks, strict=True))
    assert "600 tokens, the most that max_length allows" in run("estimate", "--config", config)
    config.write_text(json.dumps(settings))
    assert json.loads(run("estimate", "--config", config, "--json"))["at_max_length"] is None
    assert "max_length" not in run("estimate", "--config", config)


def test_estimate_says_what_would_help_where_nothing_fits(run, model, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model": model, "memory_budget_gb": 0.15, "rank": 512, "batch_size": 4}))
    words = run("estimate", "--config", config)
    assert "budget 0.15 GB" in words
    _, cures = words.split("Nothing fits: ")[1].split("What would help:\n")
    remedies = json.loads(run("estimate", "--config", config, "--json"))["remedies"]
    assert remedies
    assert all(one["sentence"] in line for one, line in zip(remedies, cures.strip().splitlines(), strict=True))
    settings = [line.split()[1] for line in cures.splitlines()]
    for setting in settings:  # as they stand there they can be used
        assert run("estimate", "--config", config, "--set", setting)


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
