import json
import random
import statistics
from dataclasses import fields

import numpy as np
import pytest
from tokenizer_folders import CASES, chatml, llama2, llama3

from engine.config import TrainConfig
from engine.data import (
    Problem,
    Rows,
    building,
    load_dataset,
    load_rows,
    load_tokenizer,
    preview,
    preview_rows,
    report,
    split,
    usable_rows,
)
from engine.errors import EngineError


def case(name, tokenizer, max_length=2048):
    return load_dataset(CASES / f"{name}.jsonl", tokenizer, max_length)


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def adds_up(dataset):
    named = {problem.line for problem in dataset.problems if problem.severity == "error" and problem.line}
    usable = {example.line for example in dataset.examples}
    assert not named & usable
    assert len(usable) == len(dataset.examples) == len(dataset.prompts)
    return len(usable) + len(named) == dataset.rows


def report_of(dataset):
    train, valid, sentence = split(dataset.prompts, 0)
    return report(Rows(dataset.examples.at(train), dataset.examples.at(valid), sentence, dataset))


def codes(dataset):
    return [(problem.line, problem.severity, problem.code) for problem in dataset.problems]


@pytest.mark.parametrize(
    ("name", "usable", "problems"),
    [
        ("bom", [1, 2, 3], []),
        ("crlf", [1, 2, 3], []),
        ("blank_lines", [1, 3, 5], []),
        ("empty", [], [(0, "error", "empty")]),
        ("latin1", [], [(1, "error", "encoding")]),
        ("null_completion", [1], [(2, "error", "null_field")]),
        ("empty_completion", [1], [(2, "error", "empty_field")]),
        ("mixed_schema", [1, 2, 3], []),
        ("broken_json", [1, 3], [(2, "error", "broken_json")]),
        ("unknown_role", [], [(1, "error", "unknown_role")]),
        ("no_assistant", [2], [(1, "error", "no_assistant")]),
        ("multi_turn", [1], []),
        ("one_row", [1], []),
        ("emoji", [1], []),
        ("duplicates", [1, 2, 3, 4], [(1, "warning", "duplicates")]),
        ("pair_shared_start", [], [(1, "error", "pair_row")]),
        ("pair_messages", [], [(1, "error", "pair_row")]),
        ("pair_identical", [], [(1, "error", "pair_row")]),
        ("pair_one_token", [], [(1, "error", "pair_row")]),
    ],
)
def test_cases(tokenizer, name, usable, problems):
    dataset = case(name, tokenizer)
    assert [example.line for example in dataset.examples] == usable
    assert codes(dataset) == problems
    assert adds_up(dataset)


def test_a_prompt_that_fills_the_row_is_named_with_what_would_hold_it(tokenizer):
    dataset = case("prompt_too_long", tokenizer, 128)
    assert codes(dataset) == [(1, "error", "nothing_to_train")]
    assert [example.line for example in dataset.examples] == [2]
    (problem,) = dataset.problems
    length = dataset.lengths[0]
    assert f"{length:,} tokens" in problem.message
    assert f"{length:,}" in problem.fix
    assert "128" in problem.message
    held = case("prompt_too_long", tokenizer, int(length))
    assert (codes(held), len(held.examples)) == ([], 2)


def test_duplicates_are_named_by_line(tokenizer, tmp_path):
    (problem,) = case("duplicates", tokenizer).problems
    assert "Lines 1, 2 and 3 " in problem.message
    row, other = {"prompt": "a", "completion": "b"}, {"prompt": "a", "completion": "c"}
    path = write(tmp_path / "a.jsonl", [row, other] * 2 + [row] * 40)
    first, second = load_dataset(path, tokenizer, 99).problems
    assert "and 22 more hold" in first.message
    assert "Lines 2 and 4 hold" in second.message


@pytest.mark.parametrize("max_length", [25, 30, 35])
def test_cut_rows_say_by_how_much(tokenizer, max_length):
    dataset = case("multi_turn", tokenizer, max_length)
    whole = case("multi_turn", tokenizer).examples[0]
    if not dataset.examples:
        assert codes(dataset) == [(1, "error", "nothing_to_train")]
        return
    (example,) = dataset.examples
    assert example.ids.tolist() == whole.ids[:max_length].tolist()
    assert example.trained.tolist() == whole.trained[:max_length].tolist()
    assert example.cut == len(whole.ids) - max_length
    assert codes(dataset) == [(1, "warning", "cut")]
    assert f"last {example.cut:,} are" in dataset.problems[0].message
    assert (example.ids.dtype, example.trained.dtype) == (np.int32, bool)


def test_a_text_of_one_token_trains_nothing(tmp_path):
    tokenizer = load_tokenizer(chatml(tmp_path, eos_token=None))
    dataset = load_dataset(write(tmp_path / "a.jsonl", [{"text": "a"}, {"text": "aa"}]), tokenizer, 99)
    assert codes(dataset)[0] == (1, "error", "nothing_to_train")
    assert adds_up(dataset)


def test_a_model_without_template_is_named_where_it_matters(tmp_path):
    base = load_tokenizer(llama3(tmp_path))
    assert codes(case("one_row", base)) == [(0, "warning", "default_template")]
    assert codes(case("multi_turn", base)) == [(0, "warning", "default_template")]
    assert codes(load_dataset(write(tmp_path / "a.jsonl", [{"text": "a b"}]), base, 99)) == []
    rows = [{"prompt": "a", "completion": "b"}, {"text": "a b"}]
    assert codes(load_dataset(write(tmp_path / "a.jsonl", rows), base, 99)) == [(0, "warning", "default_template")]
    pairs = load_dataset(CASES / "pair_messages.jsonl", base, 99, "dpo")
    assert codes(pairs) == [(0, "warning", "default_template")]


def test_the_format_is_named(tokenizer, tmp_path):
    assert case("one_row", tokenizer).format == "prompt/completion"
    assert case("multi_turn", tokenizer).format == "messages"
    assert case("mixed_schema", tokenizer).format == "mixed"
    assert case("empty", tokenizer).format == "unknown"
    assert load_dataset(write(tmp_path / "a.jsonl", [{"text": "a"}]), tokenizer, 99).format == "text"


def test_progress_reaches_the_end_and_stop_ends_early(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(building, "BYTES", 1)  # a line at a time
    path = write(tmp_path / "a.jsonl", [{"text": f"row {n}"} for n in range(20)])
    told = []
    load_dataset(path, tokenizer, 99, progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1] == (path.stat().st_size, path.stat().st_size)
    path = write(tmp_path / "b.jsonl", [{"text": f"other {n}"} for n in range(20)])  # not one that is known already
    answers = iter([False] * 5 + [True])
    assert load_dataset(path, tokenizer, 99, stop=lambda: next(answers)).rows == 5


@pytest.mark.parametrize("most", [None, 7])
def test_answers_that_wait_for_a_partner_tell_progress_and_can_be_stopped(tokenizer, tmp_path, monkeypatch, most):
    monkeypatch.setattr(building, "BYTES", 1)
    rows = [{"prompt": f"{n} of {most}", "completion": "mill " * 2000, "label": n == 5} for n in range(20)]
    path = write(tmp_path / "a.jsonl", [*rows, {**rows[5], "label": False}])
    asked, told, size = [], [], path.stat().st_size
    settings = {"objective": "dpo", "progress": lambda *at: told.append(at), "most_rows": most}
    # The hash asks once, then each row that is read does: before the first could be given.
    known = load_dataset(path, tokenizer, 99, stop=lambda: len(asked) > 10 or asked.append(1), **settings)
    assert (known.rows, known.is_whole) == (0, False)
    assert told == sorted(told)
    assert len({done for done, _ in told if done < size}) > 5
    told.clear()
    known = load_dataset(path, tokenizer, 99, **settings)
    assert (known.rows, known.is_whole, len(known.examples)) == ((20, True, 1) if most is None else (7, False, 1))
    assert told == sorted(told)


def test_a_large_file_tells_how_far_it_is_and_asks_before_its_rows_are_read(tokenizer, tmp_path):
    path = tmp_path / "a.jsonl"
    row = json.dumps({"text": "a"}) + "\n"
    path.write_text(row * 3 + " " * (9 * 1024**2) + "\n" + row)
    size, told, answers = path.stat().st_size, [], iter([False, True])
    known = load_dataset(path, tokenizer, 99, progress=lambda *at: told.append(at), stop=lambda: next(answers, True))
    assert (known.rows, known.is_whole) == (0, False)
    assert len(told) == 2
    assert 0 < told[0][0] < told[1][0] < size == told[1][1]
    told.clear()
    assert load_dataset(path, tokenizer, 99, progress=lambda *at: told.append(at)).rows == 4
    assert told == sorted(told)
    assert told[-1] == (size, size)
    told.clear()
    assert load_dataset(path, tokenizer, 99, progress=lambda *at: told.append(at)).is_whole  # known by now
    assert len(told) == 2


@pytest.mark.parametrize(("most", "rows", "is_whole"), [(0, 0, False), (3, 3, False), (4, 4, True), (None, 4, True)])
def test_no_more_rows_are_read_than_asked_for(tokenizer, tmp_path, most, rows, is_whole):
    path = write(tmp_path / "a.jsonl", [{"text": f"{n} of {most}"} for n in range(4)])
    dataset = load_dataset(path, tokenizer, 99, most_rows=most)
    assert (dataset.rows, dataset.is_whole) == (rows, is_whole)
    assert load_dataset(path, tokenizer, 99).rows == 4  # the part is not kept as the whole


def test_any_corruption_is_a_problem_of_its_line(tmp_path):
    tokenizers = [load_tokenizer(chatml(tmp_path / "chatml")), load_tokenizer(llama2(tmp_path / "llama2"))]
    chance = random.Random(3)
    clean = b"".join(
        (CASES / f"{name}.jsonl").read_bytes()
        for name in (
            "one_row",
            "multi_turn",
            "emoji",
            "mixed_schema",
            "crlf",
            "unknown_role",
            "pair_messages",
        )
    )
    scraps = [
        b"\xff",
        b"\n",
        b"\r",
        b"\0",
        b"{",
        b"}",
        b'"',
        b"\\",
        b"\\ud800",
        b"[[[",
        b"<|im_end|>",
        b"</s>",
        b"null",
    ]
    path = tmp_path / "data.jsonl"
    for turn in range(120):
        data = bytearray(clean)
        for _ in range(chance.randrange(1, 12)):
            place = chance.randrange(len(data))
            match chance.randrange(4):
                case 0:
                    data[place] = chance.randrange(256)
                case 1:
                    del data[place : place + chance.randrange(1, 30)]
                case 2:
                    data[place:place] = chance.choice(scraps)
                case 3:
                    data[place:place] = data[chance.randrange(len(data)) :][: chance.randrange(60)]
        path.write_bytes(data)
        tokenizer = tokenizers[turn % 2]
        dataset = load_dataset(path, tokenizer, 64)
        assert adds_up(dataset)
        for example in dataset.examples:
            assert example.trained.any()
            assert not example.trained[0]
            assert len(example.ids) == len(example.trained) <= 64
        json.dumps(report_of(dataset)).encode()
        for shown in preview_rows(path, tokenizer, 64, 1, dataset.rows)["rows"]:
            json.dumps(shown, ensure_ascii=False).encode()


def test_report(tokenizer, tmp_path):
    dataset = case("prompt_too_long", tokenizer, 128)
    found = report_of(dataset)
    (example,) = dataset.examples
    assert found["problems"][0]["code"] == "nothing_to_train"
    assert set(found["problems"][0]) == {f.name for f in fields(Problem)}
    del found["problems"], found["cures"]
    length = len(example.ids)
    assert found == {
        "rows": 2,
        "usable": 1,
        "format": "prompt/completion",
        "tokens": {"median": length, "p95": length, "max": length, "total": length},
        "trained_tokens": int(example.trained.sum()),
        "truncated_rows": 0,
        "rows_without_targets": 1,
        "split": {"train": 1, "valid": 0},
        "split_text": "Too few rows to set some aside: the one row is trained, none measured.",
        "longest": int(dataset.lengths[0]),
        "largest": length,
        "largest_apart": length,
        "lengths": found["lengths"],
        "files": [str(dataset.path)],
        "columns": {"names": ["prompt", "completion"], "used": {"prompt": "prompt", "completion": "completion"}},
    }
    sizes = np.load(found["lengths"])
    assert sizes[:, :2].sum(axis=1).tolist() == dataset.lengths.tolist()
    assert sizes[:, 2].tolist() == [1, 2]
    path = write(tmp_path / "a.jsonl", [{"text": "the mill " * (1 + n % 50)} for n in range(250)])
    dataset = load_dataset(path, tokenizer, 40)
    found = report_of(dataset)
    assert found["split"] == {"train": 240, "valid": 10}
    kept = [len(example.ids) for example in dataset.examples]
    assert abs(found["tokens"]["median"] - statistics.median(kept)) <= 0.5
    assert found["tokens"]["max"] == 40 < found["longest"]
    assert found["tokens"]["total"] == sum(kept)
    assert found["truncated_rows"] == sum(example.cut > 0 for example in dataset.examples) > 0
    assert report_of(case("empty", tokenizer))["longest"] == 0


@pytest.mark.parametrize(("rows", "aside"), [(0, 0), (1, 0), (49, 0), (50, 5), (199, 19), (200, 10), (2000, 100)])
def test_split_sizes_and_sentence(rows, aside):
    train, valid, sentence = split([str(n) for n in range(rows)], seed=0)
    assert (len(train), len(valid)) == (rows - aside, aside)
    assert sorted([*train, *valid]) == list(range(rows))
    assert list(train) == sorted(train)
    assert list(valid) == sorted(valid)
    assert sentence.endswith(".")
    if rows == 49:
        assert sentence == "Too few rows to set some aside: all 49 are trained, none measured."
    if aside:
        assert f"{aside:,} of {rows:,} rows" in sentence


def test_split_is_seeded():
    keys = [str(n) for n in range(100)]
    first, again, other = (split(keys, seed)[1].tolist() for seed in (1, 1, 2))
    assert first == again != other


def test_split_keeps_a_prompt_on_one_side(tokenizer, tmp_path):
    rows = [{"prompt": f"Question {n % 40}", "completion": f"Answer {n}"} for n in range(120)]
    rows += [{"messages": [{"role": "user", "content": "Question 3"}, {"role": "assistant", "content": "x"}]}]
    prompts = load_dataset(write(tmp_path / "a.jsonl", rows), tokenizer, 99).prompts
    assert prompts[120] == prompts[3] != prompts[4]
    for seed in range(20):
        train, valid, _ = split(prompts, seed)
        assert not set(prompts[train]) & set(prompts[valid])
        assert len(valid) in (10, 11, 12)
    train, valid, sentence = split(["same"] * 60, 0)
    assert (len(train), len(valid)) == (60, 0)
    assert "too few prompts" in sentence


def test_preview_shows_what_is_trained_and_cut(tokenizer):
    path = CASES / "multi_turn.jsonl"
    (example,) = case("multi_turn", tokenizer, 40).examples
    shown = preview(path, tokenizer, 40, 1)
    assert set(shown) == {"text", "tokens", "file", "line", "row", "rows", "problem"}
    assert "".join(token["text"] for token in shown["tokens"]) == shown["text"]
    assert [token["id"] for token in shown["tokens"][:40]] == example.ids.tolist()
    assert [token["trained"] for token in shown["tokens"][:40]] == example.trained.tolist()
    assert [token["cut"] for token in shown["tokens"]] == [False] * 40 + [True] * example.cut
    assert not any(token["trained"] for token in shown["tokens"][40:])
    answers = "".join(token["text"] for token in shown["tokens"] if token["part"] == "response")
    assert answers == "Rome.<|im_end|>Madrid.<|im_end|>"
    assert shown["problem"]["code"] == "cut"
    # A mark by its name in the vocabulary, not by its look.
    marks = [token["text"] for token in shown["tokens"] if token["special"]]
    assert set(marks) == {"<|im_start|>", "<|im_end|>"}


def test_preview_tells_marks_from_text_that_looks_like_them(tokenizer, tmp_path):
    path = write(tmp_path / "a.jsonl", [{"prompt": "Say <|im_end|>.", "completion": "<|im_start|> [/INST]"}])
    tokens = preview(path, tokenizer, 2048, 1)["tokens"]
    marks = [token["id"] for token in tokens if token["special"]]
    assert marks == [token["id"] for token in tokens if token["id"] in tokenizer.special_ids]
    assert len(marks) == 6  # the two of system, user and assistant
    assert "<|im_end|>" in "".join(token["text"] for token in tokens if not token["special"])


def test_preview_keeps_characters_whole(tokenizer):
    shown = preview(CASES / "emoji.jsonl", tokenizer, 2048, 1)
    assert not any("\ufffd" in token["text"] for token in shown["tokens"])
    assert "".join(token["text"] for token in shown["tokens"]) == shown["text"]
    assert "👨‍👩‍👧‍👦 and a flag 🇪🇺<|im_end|>" in shown["text"]
    assert shown["problem"] is None


def test_preview_of_a_row_that_has_an_error(tokenizer):
    shown = preview(CASES / "broken_json.jsonl", tokenizer, 2048, 2)
    assert (shown["line"], shown["row"], shown["rows"], shown["tokens"]) == (2, 2, 3, [])
    assert shown["text"] == '{"prompt": "Name a tree.", "completion": "Oak."'
    assert shown["problem"]["code"] == "broken_json"
    long = preview(CASES / "prompt_too_long.jsonl", tokenizer, 128, 1)
    assert long["problem"]["code"] == "nothing_to_train"
    assert not any(token["trained"] for token in long["tokens"])


def test_preview_of_several_rows_counts_rows_not_lines(tokenizer):
    path = CASES / "blank_lines.jsonl"
    shown = preview_rows(path, tokenizer, 2048, 2, 5)["rows"]
    assert [(item["row"], item["line"], item["rows"]) for item in shown] == [(2, 3, 3), (3, 5, 3)]
    assert preview_rows(path, tokenizer, 2048, 4, 5) == {"rows_total": 3, "rows": [], "wrapped": False}
    for row in (0, 4, -1):
        with pytest.raises(EngineError, match="no row"):
            preview(path, tokenizer, 2048, row)


def test_own_validation_rows_are_read_by_the_same_rules(tokenizer, tmp_path):
    data = write(tmp_path / "a.jsonl", [{"prompt": f"{n}?", "completion": "a"} for n in range(60)])
    own = write(tmp_path / "own.jsonl", [{"prompt": "b?", "completion": "b"}, {"prompt": "c?"}])
    config = TrainConfig(data=str(data))
    rows = load_rows(config, tokenizer)
    assert (len(rows.train), len(rows.valid), rows.valid_dataset, rows.problems) == (54, 6, None, ())
    assert rows.largest(TrainConfig()) == max(example.tokens for example in rows.dataset.examples)
    assert usable_rows(config, tokenizer).sentence == rows.sentence
    config = TrainConfig(data=str(data), valid=str(own))
    rows = load_rows(config, tokenizer)
    assert (len(rows.train), len(rows.valid)) == (60, 1)
    assert rows.sentence == "1 row of own.jsonl is measured, never trained."
    (problem,) = rows.problems
    assert problem.message.startswith("own.jsonl: Line 2 has no 'completion'")
    found = report(rows)
    assert (found["rows"], found["usable"], found["split"]) == (60, 60, {"train": 60, "valid": 1})
    assert [(item["line"], item["code"]) for item in found["problems"]] == [(2, "missing_field")]
    with pytest.raises(EngineError, match=r"own\.jsonl: Line 2"):
        usable_rows(config, tokenizer)


def test_no_row_with_an_error_is_dropped_in_silence(tokenizer, tmp_path):
    data = write(tmp_path / "a.jsonl", [{"prompt": "a?"}, {"prompt": "b?", "completion": "b"}, {"text": 3}])
    with pytest.raises(EngineError, match="Line 1 ") as caught:
        usable_rows(TrainConfig(data=str(data)), tokenizer)
    assert "1 more row has errors" in caught.value.hint
