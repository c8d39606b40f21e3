"""Preference pairs: their shapes and flaws, what of them is trained, and how they are told."""

import json

import numpy as np
import pytest
from tokenizer_folders import CASES, KINDS, chatml, llama2

from engine.config import TrainConfig
from engine.data import (
    Comparison,
    Conversation,
    Message,
    Pair,
    Problem,
    Row,
    examine,
    load_dataset,
    load_rows,
    load_tokenizer,
    preview,
    preview_rows,
    report,
    split,
    tokenize,
)

SYSTEM = {"role": "system", "content": "Be kind."}
USER = {"role": "user", "content": "Name a tree."}
OAK = {"role": "assistant", "content": "Oak."}
ROSE = {"role": "assistant", "content": "Rose."}
MORE = {"role": "user", "content": "Another?"}
ELM = {"role": "assistant", "content": "Elm."}
IVY = {"role": "assistant", "content": "Ivy."}
PAIR = {"prompt": "Name a tree.", "chosen": "Oak.", "rejected": "Rose."}
# Says how long the conversation is, so prompts of conversations of other lengths differ.
COUNTING = "{{ messages | length }}\n{% for m in messages %}{{ m.role + ':' + m.content + '<|im_end|>\n' }}{% endfor %}"


@pytest.fixture(scope="module")
def counting(tmp_path_factory):
    return load_tokenizer(chatml(tmp_path_factory.mktemp("counting"), COUNTING))


@pytest.fixture(scope="module", params=KINDS)
def any_tokenizer(request, tmp_path_factory):
    return load_tokenizer(KINDS[request.param](tmp_path_factory.mktemp(request.param)))


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def pair_of(value, tokenizer, max_length=10_000):
    pair = tokenize(examine(Row(1, value), "orpo"), tokenizer, max_length)
    assert isinstance(pair, Pair)
    return pair


def learned(example, tokenizer):
    return tokenizer.decode(example.ids[example.trained])


def load(path, rows, tokenizer, max_length=10_000, objective="orpo"):
    return load_dataset(write(path, rows), tokenizer, max_length, objective)


def codes(dataset):
    return [(problem.line, problem.severity, problem.code) for problem in dataset.problems]


@pytest.mark.parametrize("objective", ["orpo", "dpo"])
@pytest.mark.parametrize(
    "value",
    [
        PAIR,
        {**PAIR, "score": 3, "completion": None, "messages": None},
        {"prompt": [USER], "chosen": "Oak.", "rejected": "Rose."},
        {"prompt": [USER], "chosen": [OAK], "rejected": [ROSE]},
        {"prompt": [USER], "chosen": [USER, OAK], "rejected": [USER, ROSE]},
        {"prompt": [USER], "chosen": [USER, OAK], "rejected": "Rose."},
        {"prompt": [USER], "chosen": [OAK], "rejected": [USER, ROSE]},
        {"prompt": "Name a tree.", "chosen": [USER, OAK], "rejected": [USER, ROSE]},
        {"prompt": "Name a tree.", "chosen": [OAK], "rejected": [ROSE]},
        {"chosen": [USER, OAK], "rejected": [USER, ROSE]},
        {"prompt": None, "chosen": [USER, OAK], "rejected": [USER, ROSE]},
        {"chosen": [USER, OAK], "rejected": [USER, ROSE], "messages": [USER, OAK]},
        {**PAIR, "completion": "Oak.", "text": "Oak."},
    ],
)
def test_all_shapes_of_a_pair_say_the_same(value, objective):
    found = examine(Row(4, value), objective)
    user, oak, rose = Message("user", "Name a tree."), Message("assistant", "Oak."), Message("assistant", "Rose.")
    assert found == Comparison(
        4,
        Conversation(4, "messages", (user, oak), "", context=1),
        Conversation(4, "messages", (user, rose), "", context=1),
    )
    assert found.prompt == "Name a tree."


@pytest.mark.parametrize(
    ("value", "context", "lengths"),
    [
        ({"prompt": [SYSTEM, USER], "chosen": "Oak.", "rejected": [ROSE]}, 2, (3, 3)),
        ({"prompt": [USER, OAK, MORE], "chosen": [ELM], "rejected": "Ivy."}, 3, (4, 4)),
        ({"chosen": [SYSTEM, USER, OAK], "rejected": [SYSTEM, USER, ROSE]}, 2, (3, 3)),
        ({"chosen": [USER, OAK, MORE, ELM], "rejected": [USER, OAK, MORE, IVY]}, 3, (4, 4)),
        ({"chosen": [USER, OAK, MORE, ELM], "rejected": [USER, ROSE]}, 1, (4, 2)),
        ({"chosen": [USER, OAK, MORE, ELM], "rejected": [USER, ROSE, MORE, ELM]}, 1, (4, 4)),
        ({"prompt": [USER], "chosen": [OAK, MORE, ELM], "rejected": [ROSE]}, 1, (4, 2)),
        # The same conversation twice: its last answer is compared with itself.
        ({"chosen": [USER, OAK, MORE, ELM], "rejected": [USER, OAK, MORE, ELM]}, 3, (4, 4)),
        ({"chosen": [USER, OAK, MORE], "rejected": [USER, OAK, MORE]}, 1, (3, 3)),
    ],
)
def test_the_prompt_ends_before_the_answers_that_differ(value, context, lengths):
    found = examine(Row(1, value), "dpo")
    assert isinstance(found, Comparison), found.message
    for side, length in zip((found.chosen, found.rejected), lengths, strict=True):
        assert (side.context, len(side.messages)) == (context, length)
        assert side.messages[context].role == "assistant"
    assert found.chosen.messages[:context] == found.rejected.messages[:context]


@pytest.mark.parametrize(
    ("value", "code", "named"),
    [
        ({"prompt": "a", "completion": "b"}, "not_a_pair", "'prompt', 'completion'"),
        ({"messages": [USER, OAK]}, "not_a_pair", "'messages'"),
        ({"text": "a"}, "not_a_pair", "ORPO"),
        ({}, "not_a_pair", "none"),
        ({"question": "a", "good": "b"}, "not_a_pair", "'question', 'good'"),
        ({"prompt": "a", "chosen": "b"}, "missing_field", "'rejected'"),
        ({"prompt": "a", "rejected": "b"}, "missing_field", "'chosen'"),
        ({"prompt": "a", "completion": "b", "rejected": "c"}, "missing_field", "'chosen'"),
        ({**PAIR, "chosen": None}, "null_field", "'chosen'"),
        ({**PAIR, "chosen": None, "rejected": None}, "null_field", "'chosen'"),
        ({**PAIR, "rejected": None}, "null_field", "'rejected'"),
        ({**PAIR, "chosen": ""}, "empty_field", "'chosen'"),
        ({**PAIR, "rejected": " \n"}, "empty_field", "'rejected'"),
        ({**PAIR, "rejected": []}, "empty_field", "'rejected'"),
        ({**PAIR, "prompt": "\u3000"}, "empty_field", "'prompt'"),
        ({**PAIR, "prompt": []}, "empty_field", "'prompt'"),
        ({**PAIR, "rejected": [{"role": "assistant", "content": ""}]}, "empty_field", "rejected message 1"),
        ({**PAIR, "prompt": 3}, "wrong_type", "'prompt'"),
        ({**PAIR, "chosen": {"role": "assistant", "content": "a"}}, "wrong_type", "a list of messages"),
        ({**PAIR, "chosen": ["Oak."]}, "wrong_type", "chosen message 1"),
        ({**PAIR, "chosen": [{"role": "bot", "content": "a"}]}, "unknown_role", "'bot'"),
        ({**PAIR, "chosen": [USER]}, "no_assistant", "'chosen'"),
        ({"chosen": [USER, OAK], "rejected": [USER]}, "no_assistant", "'rejected'"),
        ({**PAIR, "prompt": [USER, OAK, MORE], "chosen": [USER, OAK, MORE]}, "no_assistant", "'chosen'"),
        ({**PAIR, "chosen": [OAK, ELM]}, "role_order", "chosen message 2"),
        ({**PAIR, "chosen": [OAK, SYSTEM]}, "role_order", "chosen message 2"),
        ({**PAIR, "rejected": [SYSTEM, ROSE]}, "role_order", "rejected message 2"),
        ({**PAIR, "prompt": [USER, OAK]}, "role_order", "ends with a message from assistant"),
        ({**PAIR, "prompt": [SYSTEM]}, "role_order", "ends with a message from system"),
        ({**PAIR, "prompt": [OAK, USER]}, "role_order", "begins with a message from assistant"),
        ({**PAIR, "prompt": [USER, MORE]}, "role_order", "prompt message 2"),
        ({"chosen": "Oak.", "rejected": "Rose."}, "no_prompt", "no 'prompt'"),
        ({"prompt": None, "chosen": "Oak.", "rejected": "Rose."}, "no_prompt", "no 'prompt'"),
        ({"chosen": [OAK], "rejected": [ROSE]}, "no_prompt", "no 'prompt'"),
        ({"chosen": [USER, OAK], "rejected": "Rose."}, "no_prompt", "no 'prompt'"),
        ({**PAIR, "chosen": [MORE, OAK]}, "prompts_differ", "'chosen'"),
        ({**PAIR, "rejected": [SYSTEM, USER, ROSE]}, "prompts_differ", "'rejected'"),
        ({"prompt": [SYSTEM, USER], "chosen": "Oak.", "rejected": [USER, ROSE]}, "prompts_differ", "'rejected'"),
        ({"chosen": [USER, OAK], "rejected": [MORE, ROSE]}, "prompts_differ", "message 1,"),
        ({"chosen": [SYSTEM, USER, OAK], "rejected": [USER, ROSE]}, "prompts_differ", "message 1,"),
        ({"chosen": [USER, OAK, MORE, ELM], "rejected": [USER, OAK, USER, ELM]}, "prompts_differ", "message 3,"),
        ({"chosen": [USER, OAK], "rejected": [USER, OAK, MORE, IVY]}, "prompts_differ", "message 3,"),
    ],
)
def test_every_flaw_is_named_where_it_is(value, code, named):
    problem = examine(Row(9, value), "orpo")
    assert isinstance(problem, Problem)
    assert (problem.line, problem.severity, problem.code) == (9, "error", code)
    assert problem.message.startswith("Line 9")
    assert named in problem.message
    assert problem.message.endswith(".")
    assert problem.fix.endswith(".")


def test_what_a_pair_looks_like_is_said():
    problem = examine(Row(1, {"text": "a"}), "dpo")
    assert "DPO" in problem.message
    assert all(name in problem.fix for name in ("prompt", "chosen", "rejected"))


@pytest.mark.parametrize("objective", ["orpo", "dpo"])
@pytest.mark.parametrize(
    ("name", "problems"),
    [
        ("pair_shared_start", []),
        ("pair_messages", []),
        ("pair_one_token", []),
        ("pair_identical", [(1, "warning", "identical_pair")]),
        ("one_row", [(1, "error", "not_a_pair")]),
        ("multi_turn", [(1, "error", "not_a_pair")]),
        ("mixed_schema", [(line, "error", "not_a_pair") for line in (1, 2, 3)]),
        ("empty", [(0, "error", "empty")]),
        ("broken_json", [(1, "error", "not_a_pair"), (2, "error", "broken_json"), (3, "error", "not_a_pair")]),
    ],
)
def test_cases(tokenizer, name, problems, objective):
    dataset = load_dataset(CASES / f"{name}.jsonl", tokenizer, 2048, objective)
    assert codes(dataset) == problems
    errors = {line for line, severity, _ in problems if severity == "error" and line}
    assert len(dataset.examples) == dataset.rows - len(errors)


@pytest.mark.parametrize("prompt", ["Name a tree.", "Name <|im_end|> 😀.", "assistant"])
@pytest.mark.parametrize(
    ("chosen", "rejected"),
    [("Oak.", "Rose."), ("Yes", "No"), ("The sky is blue.", "The sky is red."), ("a", "a b c"), ("😀", "😃")],
)
def test_a_side_is_its_own_row_with_the_response_trained(any_tokenizer, prompt, chosen, rejected):
    pair = pair_of({"prompt": prompt, "chosen": chosen, "rejected": rejected}, any_tokenizer)
    for side, answer in ((pair.chosen, chosen), (pair.rejected, rejected)):
        alone = tokenize(examine(Row(1, {"prompt": prompt, "completion": answer})), any_tokenizer, 10_000)
        assert side.ids.tolist() == alone.ids.tolist()
        assert side.trained.tolist() == alone.trained.tolist()
        assert side.ids[side.trained][-1] in any_tokenizer.eos_ids


@pytest.mark.parametrize(
    ("chosen", "rejected"),
    [
        ("The sky is blue.", "The sky is red."),
        ("The mill turned.", "The mill turned and the flour fell."),
        ("Blue. ", "Blue. Mercury."),
        ("👨‍👩‍👧‍👦 and a flag", "👨‍👩‍👧 and a flag"),
    ],
)
def test_responses_that_begin_alike_are_compared_whole(tokenizer, chosen, rejected):
    pair = pair_of({"prompt": "What colour?", "chosen": chosen, "rejected": rejected}, tokenizer)
    assert learned(pair.chosen, tokenizer) == chosen + "<|im_end|>"
    assert learned(pair.rejected, tokenizer) == rejected + "<|im_end|>"
    start = pair.shared
    assert pair.chosen.ids[start] == pair.rejected.ids[start]
    assert pair.chosen.trained[start]
    assert not pair.chosen.trained[:start].any()


@pytest.mark.parametrize("chosen", ["Yes", "No", "a", "é"])
def test_responses_of_few_tokens_are_whole(tokenizer, chosen):
    pair = pair_of({"prompt": "Say.", "chosen": chosen, "rejected": "What do you want to hear?"}, tokenizer)
    assert learned(pair.chosen, tokenizer) == chosen + "<|im_end|>"
    assert 2 <= pair.chosen.trained_tokens <= 4


def test_answers_inside_the_prompt_are_prompt(tokenizer):
    pair = pair_of({"chosen": [USER, OAK, MORE, ELM], "rejected": [USER, OAK, MORE, IVY]}, tokenizer)
    assert learned(pair.chosen, tokenizer) == "Elm.<|im_end|>"
    assert learned(pair.rejected, tokenizer) == "Ivy.<|im_end|>"
    assert pair.shared == int(pair.chosen.trained.argmax())
    several = pair_of({"prompt": [USER], "chosen": [OAK, MORE, ELM], "rejected": [ROSE]}, tokenizer)
    assert learned(several.chosen, tokenizer) == "Oak.<|im_end|>Elm.<|im_end|>"


def test_a_weight_in_the_prompt_makes_no_difference():
    read_only = {**OAK, "weight": 0}
    for value in (
        {"chosen": [USER, read_only, MORE, ROSE], "rejected": [USER, OAK, MORE, OAK]},
        {"prompt": [USER, read_only, MORE], "chosen": [USER, OAK, MORE, ROSE], "rejected": "Oak."},
    ):
        found = examine(Row(1, value), "orpo")
        assert isinstance(found, Comparison)
        assert (found.chosen.context, found.chosen.answers, found.rejected.answers) == (3, (3,), (3,))


def test_prompts_of_other_tokens_are_not_shared(counting):
    assert pair_of(PAIR, counting).shared > 0
    pair = pair_of({"prompt": [USER], "chosen": [OAK, MORE, ELM], "rejected": [ROSE]}, counting)
    assert pair.shared == 0
    assert pair.tokens == pair.chosen.length + pair.rejected.length
    assert learned(pair.rejected, counting) == "Rose.<|im_end|>"


@pytest.mark.parametrize("side", ["chosen", "rejected"])
def test_each_side_is_cut_on_its_own_and_named(tokenizer, tmp_path, side):
    value = {**PAIR, side: "The mill turned. " * 30}
    whole = pair_of(value, tokenizer)
    dataset = load(tmp_path / "a.jsonl", [value], tokenizer, 60)
    (pair,) = dataset.examples
    long, short = (pair.chosen, pair.rejected) if side == "chosen" else (pair.rejected, pair.chosen)
    assert (long.length, long.cut, short.cut) == (60, whole.length - 60, 0)
    assert pair.cut == long.cut
    assert codes(dataset)[-1] == (1, "warning", "cut")
    message = dataset.problems[-1].message
    assert message.startswith(f"Line 1's {side} answer is")
    assert f"{whole.length:,} tokens long" in message
    assert f"last {long.cut:,} are" in message
    assert dataset.lengths.tolist() == [whole.length]


def test_a_side_with_nothing_left_to_train_is_named(tokenizer, counting, tmp_path):
    value = {**PAIR, "prompt": "The mill turned. " * 30}
    start, length = pair_of(value, tokenizer).shared, pair_of(value, tokenizer).chosen.length
    dataset = load(tmp_path / "a.jsonl", [value], tokenizer, start)
    assert codes(dataset) == [(1, "error", "nothing_to_train")]
    assert dataset.problems[0].message.startswith("Line 1's chosen answer is")
    assert f"{start:,}" in dataset.problems[0].message
    assert f"{length:,}" in dataset.problems[0].fix
    assert len(load(tmp_path / "a.jsonl", [value], tokenizer, start + 1).examples) == 1
    # The chosen side counts 2 messages, the rejected one 10, which is a token more in front of its answer.
    turns = [ROSE, MORE] * 5
    uneven = {"prompt": [USER], "chosen": [OAK], "rejected": turns[:9]}
    start = int(pair_of(uneven, counting).chosen.trained.argmax())
    dataset = load(tmp_path / "b.jsonl", [uneven], counting, start + 1)
    assert codes(dataset) == [(1, "error", "nothing_to_train")]
    assert dataset.problems[0].message.startswith("Line 1's rejected answer is")


def test_a_pair_of_the_same_answers_stays_usable_with_a_warning(tokenizer, tmp_path):
    rows = [
        {"prompt": "Say yes.", "chosen": "Yes.", "rejected": "Yes."},
        {"prompt": [USER], "chosen": [OAK], "rejected": "Oak."},
        {"chosen": [USER, OAK, MORE, ELM], "rejected": [USER, OAK, MORE, ELM]},
        {**PAIR, "rejected": "Oak. "},
    ]
    dataset = load(tmp_path / "a.jsonl", rows, tokenizer)
    assert codes(dataset) == [(line, "warning", "identical_pair") for line in (1, 2, 3)]
    assert len(dataset.examples) == 4
    assert learned(dataset.examples[2].rejected, tokenizer) == "Elm.<|im_end|>"


def test_answers_that_differ_only_where_they_are_cut_are_the_same(tokenizer, tmp_path):
    start = "The mill turned. " * 30
    dataset = load(tmp_path / "a.jsonl", [{**PAIR, "chosen": start + "a", "rejected": start + "b"}], tokenizer, 70)
    assert [code for _, _, code in codes(dataset)] == ["cut", "cut", "identical_pair"]
    assert "as far as they are kept" in dataset.problems[-1].message
    assert "max_length" in dataset.problems[-1].fix


def test_duplicates_have_the_same_prompt_and_both_answers(tokenizer, tmp_path):
    same = {"prompt": [USER], "chosen": [OAK], "rejected": [USER, ROSE]}
    swapped = {**PAIR, "chosen": "Rose.", "rejected": "Oak."}
    rows = [PAIR, {**PAIR, "rejected": "Ivy."}, swapped, {**PAIR, "prompt": "Name a plant."}, same]
    dataset = load(tmp_path / "a.jsonl", rows, tokenizer)
    assert codes(dataset) == [(1, "warning", "duplicates")]
    assert "Lines 1 and 5 hold" in dataset.problems[0].message
    assert len(set(dataset.prompts)) == 2


def test_split_keeps_a_prompt_on_one_side(tokenizer, tmp_path):
    rows = [{"prompt": f"{n % 40}?", "chosen": f"Yes, {n}", "rejected": f"No, {n}"} for n in range(120)]
    dataset = load(tmp_path / "a.jsonl", rows, tokenizer)
    for seed in range(10):
        train, valid, _ = split(dataset.prompts, seed)
        assert len(valid) == 12
        assert not set(train % 40) & set(valid % 40)
        assert sorted([*train, *valid]) == list(range(120))


@pytest.mark.parametrize(
    ("long", "short", "how_many", "of", "warned"),
    [
        (300, 40, 6, 10, True),
        (300, 40, 5, 10, False),  # half is not most
        (300, 80, 10, 10, False),  # not four times as long
        (399, 99, 10, 10, False),  # four times as long is not over four times
        (400, 99, 10, 10, True),
        (67, 3, 10, 10, False),  # 64 tokens longer is not over 64
        (68, 3, 10, 10, True),
    ],
)
@pytest.mark.parametrize("side", ["chosen", "rejected"])
def test_pairs_that_teach_length_are_warned_of_once(tokenizer, tmp_path, long, short, how_many, of, warned, side):
    other = {"chosen": "rejected", "rejected": "chosen"}[side]
    # A digit is a token, and the end of the turn is one more.
    rows = [{"prompt": f"{n}?", side: "1" * (long if n < how_many else short), other: "2" * short} for n in range(of)]
    dataset = load(tmp_path / "a.jsonl", rows, tokenizer)
    assert codes(dataset) == ([(0, "warning", "one_sided_lengths")] if warned else [])
    if warned:
        assert f"{how_many} of {of} pairs" in dataset.problems[0].message
        assert ("longer" if side == "chosen" else "shorter") in dataset.problems[0].message


def test_lengths_that_lean_to_both_sides_teach_nothing(tokenizer, tmp_path):
    sides = [("1" * 300, "2"), ("1", "2" * 300)]
    rows = [{"prompt": f"{n}?", "chosen": sides[n % 2][0], "rejected": sides[n % 2][1]} for n in range(10)]
    assert codes(load(tmp_path / "a.jsonl", rows, tokenizer)) == []


@pytest.mark.parametrize("objective", ["sft", "orpo", "dpo"])
def test_the_format_is_told_under_any_objective(tokenizer, tmp_path, objective):
    def format_of(rows):
        return load(tmp_path / "a.jsonl", rows, tokenizer, objective=objective).format

    both = {"messages": [USER, OAK], "chosen": [USER, OAK], "rejected": [USER, ROSE]}
    assert format_of([PAIR, {"chosen": [USER, OAK], "rejected": [USER, ROSE]}]) == "preference"
    assert format_of([{**PAIR, "chosen": None}]) == "preference" if objective != "sft" else "prompt/completion"
    assert format_of([{"text": "a"}]) == "text"
    assert format_of([{"messages": [USER, OAK]}]) == "messages"
    assert format_of([PAIR, {"prompt": "a", "completion": "b"}]) == "mixed"
    assert format_of([both]) == ("messages" if objective == "sft" else "preference")
    assert format_of([{"question": "a"}]) == "unknown"


def test_report_counts_both_sides(tokenizer, counting, tmp_path):
    uneven = {"prompt": [USER], "chosen": [OAK, MORE, ELM], "rejected": [ROSE]}
    for use, value in ((tokenizer, PAIR), (tokenizer, uneven), (counting, uneven)):
        path = write(tmp_path / "a.jsonl", [value])
        pair = pair_of(value, use)
        config = TrainConfig(data=str(path), objective="dpo")
        found = report(load_rows(config, use))
        longer = max(len(pair.chosen.ids), len(pair.rejected.ids))
        assert (found["rows"], found["usable"], found["format"]) == (1, 1, "preference")
        assert (found["longest"], found["tokens"]["max"]) == (longer, longer)
        assert np.load(found["lengths"])[:, :2].sum() == longer
        assert found["tokens"]["total"] == len(pair.chosen.ids) + len(pair.rejected.ids) - pair.shared
        assert found["trained_tokens"] == pair.chosen.trained.sum() + pair.rejected.trained.sum()
        assert found["truncated_rows"] == 0
    value = {**PAIR, "chosen": "The mill turned. " * 30, "rejected": "The river ran. " * 30}
    path = write(tmp_path / "a.jsonl", [value])
    config = TrainConfig(data=str(path), objective="orpo", max_length=60)
    found = report(load_rows(config, tokenizer))
    assert (found["truncated_rows"], found["tokens"]["max"]) == (1, 60)
    assert found["longest"] == pair_of(value, tokenizer).length


def parts(shown):
    """The tokens' texts by runs of one part."""
    runs = []
    for token in shown["tokens"]:
        if not runs or runs[-1][0] != token["part"]:
            runs.append((token["part"], ""))
        runs[-1] = (token["part"], runs[-1][1] + token["text"])
    return runs


def trained_text(shown):
    return "".join(token["text"] for token in shown["tokens"] if token["trained"])


@pytest.mark.parametrize("name", ["pair_shared_start", "pair_messages", "pair_one_token", "pair_identical"])
def test_preview_shows_prompt_and_both_answers(tokenizer, name):
    path = CASES / f"{name}.jsonl"
    shown = preview(path, tokenizer, 2048, 1, "dpo")
    (pair,) = load_dataset(path, tokenizer, 2048, "dpo").examples
    runs = parts(shown)
    assert [part for part, _ in runs] == ["prompt", "chosen", "rejected"]
    assert runs[0][1] + runs[1][1] == shown["text"]
    ids = [token["id"] for token in shown["tokens"]]
    assert ids == [*pair.chosen.ids.tolist(), *pair.rejected.ids[pair.shared :].tolist()]
    assert [token["trained"] for token in shown["tokens"]] == [
        *pair.chosen.trained.tolist(),
        *pair.rejected.trained[pair.shared :].tolist(),
    ]
    assert (shown["problem"] or {}).get("code") == ("identical_pair" if name == "pair_identical" else None)
    assert all(token["special"] == (token["id"] in tokenizer.special_ids) for token in shown["tokens"])


def test_preview_shows_both_prompts_where_they_differ(counting, tmp_path):
    value = {"prompt": [USER], "chosen": [OAK, MORE, ELM], "rejected": [ROSE]}
    shown = preview(write(tmp_path / "a.jsonl", [value]), counting, 2048, 1, "dpo")
    assert parts(shown) == [
        ("prompt", "4\nuser:Name a tree.<|im_end|>\nassistant:"),
        ("chosen", "Oak.<|im_end|>\nuser:Another?<|im_end|>\nassistant:Elm.<|im_end|>\n"),
        ("prompt", "2\nuser:Name a tree.<|im_end|>\nassistant:"),
        ("rejected", "Rose.<|im_end|>\n"),
    ]
    assert trained_text(shown) == "Oak.<|im_end|>Elm.<|im_end|>Rose.<|im_end|>"


def test_preview_marks_the_prompt_where_orpo_learns_it(tokenizer, counting, tmp_path):
    path = write(tmp_path / "a.jsonl", [PAIR])
    for objective, scope in (("dpo", "full"), ("dpo", "response"), ("orpo", "response")):
        assert trained_text(preview(path, tokenizer, 2048, 1, objective, scope)) == "Oak.<|im_end|>Rose.<|im_end|>"
    shown = preview(path, tokenizer, 2048, 1, "orpo", "full")
    prompt = [token for token in shown["tokens"] if token["part"] == "prompt"]
    assert [token["trained"] for token in prompt] == [False] + [True] * (len(prompt) - 1)
    # Of the chosen row only: a prompt that the rejected row writes anew is not learned.
    uneven = write(tmp_path / "b.jsonl", [{"prompt": [USER], "chosen": [OAK, MORE, ELM], "rejected": [ROSE]}])
    shown = preview(uneven, counting, 2048, 1, "orpo", "full")
    assert trained_text(shown).endswith("Elm.<|im_end|>Rose.<|im_end|>")
    assert trained_text(shown).count("Name a tree.") == 1
    assert "Another?" not in trained_text(shown)


def test_preview_strikes_what_is_cut_and_trains_nothing_of_an_error(tokenizer, tmp_path):
    path = write(tmp_path / "a.jsonl", [{**PAIR, "rejected": "The mill turned. " * 30}])
    pair = pair_of({**PAIR, "rejected": "The mill turned. " * 30}, tokenizer)
    shown = preview(path, tokenizer, 60, 1, "orpo")
    assert sum(token["cut"] for token in shown["tokens"]) == pair.rejected.length - 60
    assert not any(token["cut"] and token["trained"] for token in shown["tokens"])
    assert shown["problem"]["code"] == "cut"
    shown = preview(path, tokenizer, 8, 1, "orpo")
    assert shown["problem"]["code"] == "nothing_to_train"
    assert trained_text(shown) == ""
    assert preview(path, tokenizer, 60, 1)["problem"]["code"] == "pair_row"
    assert preview(CASES / "one_row.jsonl", tokenizer, 60, 1, "dpo")["problem"]["code"] == "not_a_pair"


SCRAPS = [
    b"\xff",
    b"\n",
    b"\0",
    b"{",
    b'"',
    b"null",
    b"[]",
    b'"chosen": null, ',
    b'"prompt": 3, ',
    b"</s>",
    b"<|im_end|>",
    b"assistant",
    b"system",
]


@pytest.mark.parametrize("seed", range(40))
def test_any_corruption_is_a_problem_of_its_line(tmp_path, seed):
    chance = np.random.default_rng(seed)
    values = [
        PAIR,
        {"chosen": [USER, OAK, MORE, ELM], "rejected": [USER, OAK, MORE, IVY]},
        {"prompt": [SYSTEM, USER], "chosen": [SYSTEM, USER, OAK], "rejected": "Rose 😀."},
        {"prompt": "a" * 70, "chosen": "b", "rejected": "c" * 90},
        {**PAIR, "rejected": "Oak."},
        {"prompt": "a", "completion": "b"},
    ]
    data = bytearray("".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values * 2).encode())
    for _ in range(chance.integers(1, 12)):
        place = int(chance.integers(len(data)))
        match chance.integers(4):
            case 0:
                data[place] = int(chance.integers(256))
            case 1:
                del data[place : place + int(chance.integers(1, 30))]
            case 2:
                data[place:place] = SCRAPS[chance.integers(len(SCRAPS))]
            case 3:
                data[place:place] = data[int(chance.integers(len(data))) :][: int(chance.integers(60))]
    path = tmp_path / "data.jsonl"
    path.write_bytes(data)
    tokenizer = load_tokenizer((chatml, llama2)[seed % 2](tmp_path))
    for objective in ("sft", "orpo", "dpo"):
        dataset = load_dataset(path, tokenizer, 64, objective)
        usable = {item.line for item in dataset.examples}
        wrong = {problem.line for problem in dataset.problems if problem.severity == "error" and problem.line}
        assert not usable & wrong
        assert len(dataset.examples) == len(usable) == len(dataset.prompts)
        assert dataset.rows == len(usable) + len(wrong)
        for item in dataset.examples:
            assert isinstance(item, Pair) == (objective != "sft")
            for side in (item.chosen, item.rejected) if isinstance(item, Pair) else (item,):
                assert side.trained.any()
                assert not side.trained[0]
                assert len(side.ids) == len(side.trained) <= 64
        for shown in preview_rows(path, tokenizer, 64, 1, dataset.rows, objective)["rows"]:
            failed = (shown["problem"] or {}).get("severity") == "error"
            assert failed == (shown["line"] in wrong)
            json.dumps(shown, ensure_ascii=False).encode()


def test_transcripts_are_trained_from_their_last_answers_on(tokenizer, tmp_path):
    start = "\n\nHuman: Name a tree.\n\nAssistant: Oak.\n\nHuman: Another?\n\nAssistant: "
    dataset = load(tmp_path / "a.jsonl", [{"chosen": f"{start}Elm.", "rejected": f"{start}Ivy."}], tokenizer)
    (pair,) = dataset.examples
    assert all(
        learned(side, tokenizer).startswith(text) for side, text in ((pair.chosen, "Elm."), (pair.rejected, "Ivy."))
    )
    assert pair.shared == int(pair.chosen.trained.argmax())
    assert "Oak." in tokenizer.decode(pair.chosen.ids[: pair.shared])
    assert (dataset.rows, dataset.format, dataset.problems) == (1, "preference", ())


@pytest.mark.parametrize(
    ("rows", "pairs"),
    [
        ([{"prompt": "a", "completion": "b", "label": True}] * 2, 0),
        ([{"prompt": "a", "completion": "b", "label": value} for value in (True, False)], 1),
        ([{"prompt": "a", "response_a": "b", "response_b": "c", "winner": "tie"}] * 3, 0),
    ],
)
@pytest.mark.parametrize("objective", ["sft", "dpo"])
def test_what_is_meant_as_a_preference_is_called_one_also_where_no_row_is(tokenizer, tmp_path, rows, pairs, objective):
    dataset = load(tmp_path / "a.jsonl", rows, tokenizer, objective=objective)
    assert dataset.format == "preference"
    assert len(dataset.examples) == (pairs if objective == "dpo" else 0)
