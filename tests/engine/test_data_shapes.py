import json
import random

import pytest

from engine.data import Problem, Row, open_source
from engine.data.columns import guess, parse_columns
from engine.data.thumbs import verdict
from engine.errors import EngineError

USER = {"role": "user", "content": "Name a tree."}
ANSWER = {"role": "assistant", "content": "Oak."}
SYSTEM = {"role": "system", "content": "Answer in one word."}
CALL = {"name": "now", "arguments": {"zone": "UTC"}}
CALLING = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": CALL}]}
RESULT = {"role": "tool", "content": "12:00"}
PAIR = {"prompt": "Double it.", "chosen": "42", "rejected": "41"}
TOOLS = [{"type": "function", "function": {"name": "now"}}]


def opened(tmp_path, rows, columns=""):
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return open_source(path, columns)


def shaped(tmp_path, *rows, columns=""):
    return [row.value if isinstance(row, Row) else row.code for row in opened(tmp_path, rows, columns).rows()]


def turn(speaker, value):
    return {"from": speaker, "value": value}


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [SYSTEM, USER, ANSWER], "id": 3},
        {"messages": [USER, CALLING, RESULT, ANSWER], "tools": TOOLS},
        {"prompt": "a", "completion": "b", "source": "c", "context": "d"},
        {"prompt": "a", "messages": [USER, ANSWER], "chosen": [USER, ANSWER], "rejected": [USER, ANSWER]},
        {"prompt": "a", "chosen": "b", "rejected": "c", "score": 3},
        {"chosen": [USER, ANSWER], "rejected": [USER, ANSWER]},
        {"messages": None, "prompt": "a", "completion": "b", "chosen": None},
        {"prompt": "a", "completion": 3},
        {"prompt": "a"},
        {"colour": "red", "tokens": [1, 2]},
        {"messages": "no list"},
        {"messages": [3, None, "a", {"role": ["user"], "content": {}}]},
        {"text": None},
        {},
    ],
)
def test_rows_in_a_shape_of_their_own_or_in_none_come_as_they_are(tmp_path, row):
    assert shaped(tmp_path, row) == [row]


@pytest.mark.parametrize(
    ("row", "canonical"),
    [
        # ShareGPT
        (
            {
                "conversations": [
                    turn("system", "Answer in one word."),
                    turn("human", "Name a tree."),
                    turn("gpt", "Oak."),
                ]
            },
            {"messages": [SYSTEM, USER, ANSWER]},
        ),
        ({"conversations": [USER, ANSWER], "system": SYSTEM["content"]}, {"messages": [SYSTEM, USER, ANSWER]}),
        (
            {"conversations": [SYSTEM, USER, ANSWER], "system": SYSTEM["content"]},
            {"messages": [SYSTEM, USER, ANSWER]},
        ),
        (
            {
                "conversations": [
                    turn("human", "Name a tree."),
                    turn("function_call", json.dumps(CALL)),
                    turn("observation", "12:00"),
                    turn("gpt", "Oak."),
                ],
                "tools": json.dumps(TOOLS),
            },
            {"messages": [USER, CALLING, RESULT, ANSWER], "tools": TOOLS},
        ),
        ({"conversations": [turn("alien", "a")]}, {"messages": [{"role": "alien", "content": "a"}]}),
        (
            {"conversations": [turn("function_call", "no call")]},
            {"messages": [{"role": "function_call", "content": "no call"}]},
        ),
        # content parts
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "Name "}, "a ", {"text": "tree."}]},
                    ANSWER,
                ]
            },
            {"messages": [USER, ANSWER]},
        ),
        # instruction, input and output; question and answer
        ({"instruction": "a", "input": "b", "output": "c"}, {"prompt": "a\n\nb", "completion": "c"}),
        ({"instruction": "a", "input": " ", "output": "c"}, {"prompt": "a", "completion": "c"}),
        ({"instruction": "", "input": "b", "output": "c"}, {"prompt": "b", "completion": "c"}),
        ({"instruction": "a", "context": "b", "response": "c"}, {"prompt": "a\n\nb", "completion": "c"}),
        (
            {"instruction": "a", "input": "", "output": "c", "text": "### Instruction: a"},
            {"prompt": "a", "completion": "c"},
        ),
        ({"input": "a", "output": "b"}, {"prompt": "a", "completion": "b"}),
        ({"Question": "a", "Answer ": "b", "topic": "c"}, {"prompt": "a", "completion": "b", "topic": "c"}),
        ({"query": "a", "response": None}, {"prompt": "a", "completion": None}),
        (
            {"system_prompt": "Answer in one word.", "question": "Name a tree.", "response": "Oak."},
            {"messages": [SYSTEM, USER, ANSWER]},
        ),
        (
            {"instruction": "Name a tree.", "output": "Oak.", "history": [["Name a tree.", "Oak."]], "system": ""},
            {"messages": [USER, ANSWER, USER, ANSWER]},
        ),
        *(
            (
                {"instruction": "Name a tree.", "output": "Oak.", "history": history},
                {"messages": [USER, ANSWER, USER, ANSWER]},
            )
            for history in (
                [USER, ANSWER],
                [turn("human", "Name a tree."), turn("gpt", "Oak.")],
                json.dumps([["Name a tree.", "Oak."]]),
            )
        ),
        *(
            ({"instruction": "a", "input": None, "output": "c", "history": nothing}, {"prompt": "a", "completion": "c"})
            for nothing in (None, [], "", "[]", " ")
        ),
        ({"prompt": [SYSTEM, USER], "completion": [ANSWER]}, {"messages": [SYSTEM, USER, ANSWER]}),
        ({"prompt": [USER], "completion": "Oak."}, {"messages": [USER, ANSWER]}),
        ({"content": "a", "title": "b", "Label": "c"}, {"text": "a", "title": "b"}),
        # preferences
        ({"question": "a", "chosen": "b", "rejected": "c"}, {"prompt": "a", "chosen": "b", "rejected": "c"}),
        (
            {"conversations": None, "prompt": "a", "chosen": turn("gpt", "Oak."), "rejected": turn("gpt", "No.")},
            {"prompt": "a", "chosen": [ANSWER], "rejected": [{"role": "assistant", "content": "No."}]},
        ),
        (
            {"prompt": "Name a tree.", "system": "Answer in one word.", "chosen": "b", "rejected": "c"},
            {"prompt": [SYSTEM, USER], "chosen": "b", "rejected": "c"},
        ),
        (
            {"system": SYSTEM["content"], "chosen": [USER, ANSWER], "rejected": [USER, CALLING]},
            {"chosen": [SYSTEM, USER, ANSWER], "rejected": [SYSTEM, USER, CALLING]},
        ),
        (
            {"instruction": "Name a tree.", "history": [["Name a tree.", "Oak."]], "chosen": "b", "rejected": "c"},
            {"prompt": [USER, ANSWER, USER], "chosen": "b", "rejected": "c"},
        ),
        (
            {"prompt": None, "system": SYSTEM["content"], "chosen": [USER, ANSWER], "rejected": [USER, CALLING]},
            {"chosen": [SYSTEM, USER, ANSWER], "rejected": [SYSTEM, USER, CALLING]},
        ),
        (
            {
                "conversations": [turn("human", "Name a tree.")],
                "chosen": turn("gpt", "Oak."),
                "rejected": turn("gpt", "No."),
            },
            {"prompt": [USER], "chosen": [ANSWER], "rejected": [{"role": "assistant", "content": "No."}]},
        ),
        # columns that hold JSON, as tables have them
        ({"messages": json.dumps([USER, ANSWER])}, {"messages": [USER, ANSWER]}),
        ({"prompt": "a", "completion": "[1, 2]"}, {"prompt": "a", "completion": "[1, 2]"}),
    ],
)
def test_foreign_shapes_become_ours(tmp_path, row, canonical):
    assert shaped(tmp_path, row) == [canonical]


ALPACA = {"instruction": "Double it.", "output": "42"}


@pytest.mark.parametrize("value", [21, 2.5, True, False, ["21"], {"a": "b"}])
@pytest.mark.parametrize(
    ("row", "name"), [(ALPACA, "input"), (ALPACA, "context"), (ALPACA, "system"), (PAIR, "system_prompt")]
)
def test_what_belongs_to_a_prompt_and_is_no_text_is_named(tmp_path, row, name, value):
    first, odd = opened(tmp_path, [{**row, name: "A text."}, {**row, name: value}]).rows()
    assert first.value != row
    assert (odd.line, odd.code) == (2, "wrong_type")
    assert odd.message == f"Line 2 has a {name!r} that is not a text."


@pytest.mark.parametrize(
    "history", [["A", "B", "C"], [["A"]], [["A", "B", "C"]], [["A", "B"], USER], [["A", "B"], "C"], {"a": "b"}, "A", 3]
)
@pytest.mark.parametrize("row", [ALPACA, PAIR])
def test_a_history_that_cannot_be_read_is_named(tmp_path, row, history):
    (odd,) = opened(tmp_path, [{**row, "history": history}]).rows()
    assert (odd.line, odd.code) == (1, "wrong_type")
    assert "neither a list of messages nor one of pairs" in odd.message


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [SYSTEM, USER, ANSWER]},
        {"prompt": [SYSTEM, USER], "completion": [ANSWER]},
        {"prompt": [SYSTEM, USER], "chosen": "a", "rejected": "b"},
        {"chosen": [SYSTEM, USER, ANSWER], "rejected": [SYSTEM, USER, ANSWER]},
    ],
)
def test_two_system_messages_are_named_and_one_of_them_can_be_left_out(tmp_path, row):
    (odd,) = opened(tmp_path, [{**row, "system": "Other."}]).rows()
    assert (odd.line, odd.code) == (1, "two_systems")
    assert odd.message.startswith("Line 1 has a 'system' and another system message")


def test_an_input_beside_a_chat_is_named(tmp_path):
    (odd,) = opened(tmp_path, [{"question": [USER], "context": "In Japan.", "answer": "Oak."}]).rows()
    assert (odd.code, odd.message.split(" beside")[0]) == ("no_place", "Line 1 has a text in 'context'")


@pytest.mark.parametrize(
    "part",
    [{"type": "{0}"}, {"type": "image_url", "image_url": {}}, {"type": "text"}, {"type": 3, "text": "a"}, 7, None],
)
def test_parts_that_are_no_text_are_named(tmp_path, part):
    first, second, third = opened(
        tmp_path, [{"text": "a"}, {"messages": [{"role": "user", "content": [part]}, ANSWER]}, {"text": "b"}]
    ).rows()
    assert (second.line, second.code) == (2, "part_type")
    assert [first.value, third.value] == [{"text": "a"}, {"text": "b"}]


def test_each_row_of_a_mixed_file_is_read_by_its_own_names(tmp_path):
    rows = [{"question": "a", "answer": "b"}, {"text": "c"}, {"conversations": [turn("human", "d")]}, {"question": "e"}]
    source = opened(tmp_path, [rows[0], *rows])
    assert source.columns == {"prompt": "question", "completion": "answer"}
    assert source.column_names == ("question", "answer", "text", "conversations")
    assert [row.value for row in source.rows()][1:] == [
        {"prompt": "a", "completion": "b"},
        {"text": "c"},
        {"messages": [{"role": "user", "content": "d"}]},
        {"prompt": "e"},
    ]


def test_an_empty_cell_of_a_table_is_nothing(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("text,prompt,completion\n,a,b\nc,,\n,d,\n")
    rows = list(open_source(path).rows())
    assert [row.value for row in rows] == [
        {"prompt": "a", "completion": "b"},
        {"text": "c"},
        {"prompt": "d", "completion": ""},
    ]


# Guesses and columns by hand


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (["question", "query", "answer"], {}),
        (["question", "answer", "reply"], {}),
        (["prompt", "question", "completion", "answer"], {"prompt": "prompt", "completion": "completion"}),
        (["instruction", "input", "output"], {"prompt": "instruction", "input": "input", "completion": "output"}),
        (["question", "context", "answer"], {"prompt": "question", "input": "context", "completion": "answer"}),
        (["document", "body"], {}),
        (["a", "b"], {}),
    ],
)
def test_columns_are_guessed_only_where_one_could_be_meant(names, columns):
    assert guess(names) == columns
    assert guess(reversed(names)) == columns


@pytest.mark.parametrize(
    ("setting", "columns"),
    [
        ("prompt=q, completion=first, second", None),
        ('prompt=q,"completion=first, second"', {"prompt": "q", "completion": "first, second"}),
        (" prompt = q , completion=a=b ", {"prompt": "q", "completion": "a=b"}),
        ("prompt=q", {"prompt": "q", "completion": "answer"}),
        ("chosen=q, rejected=answer", {"chosen": "q", "rejected": "answer"}),
        ("text=q,", {"text": "q"}),
        ("label=q, prompt=a=b", {"label": "q", "prompt": "a=b", "completion": "answer"}),
    ],
)
def test_columns_are_named_by_hand(setting, columns):
    names = ["q", "answer", "first, second", "a=b"]
    if columns is None:
        with pytest.raises(EngineError, match="'first'"):
            parse_columns(setting, names, "The file")
    else:
        assert parse_columns(setting, names, "The file") == columns


CHAT = ("conversations", "functions", "system_prompt")
TASK = ("instruction", "context", "history", "answer", "rating", "tools", "reply")
JUDGED = ("question", "dialog", "response_a", "response_b", "preference", "system")


@pytest.mark.parametrize(
    ("names", "setting", "columns"),
    [
        (CHAT, "messages=conversations", dict(zip(("messages", "tools", "system"), CHAT, strict=True))),
        (CHAT, "system=", dict(zip(("messages", "tools"), CHAT, strict=False))),
        (CHAT, "messages=conversations, tools= , system=", {"messages": "conversations"}),
        (
            TASK,
            "completion=reply",
            {"prompt": TASK[0], "input": "context", "history": "history", "tools": "tools", "completion": "reply"},
        ),
        (TASK, "completion=reply, input=, history=, tools=", {"prompt": TASK[0], "completion": "reply"}),
        (
            TASK,
            "prompt=rating, completion=reply, tools=",
            {"prompt": "rating", "completion": "reply", "history": TASK[2]},
        ),
        (
            JUDGED,
            "answer_a=response_b, answer_b=response_a, messages=dialog",
            {
                "answer_a": JUDGED[3],
                "answer_b": JUDGED[2],
                "messages": "dialog",
                "winner": JUDGED[4],
                "system": "system",
            },
        ),
    ],
)
def test_what_is_not_named_by_hand_is_found_by_its_name_unless_none_is_meant(names, setting, columns):
    assert parse_columns(setting, names, "The file") == columns


def test_a_prompt_and_a_chat_before_two_answers_are_named(tmp_path):
    row = {"prompt": "a", "dialog": [USER], "chosen": "b", "rejected": "c"}
    by_hand = "prompt=prompt, messages=dialog, chosen=chosen, rejected=rejected"
    assert shaped(tmp_path, row, columns=by_hand) == ["no_place"]


@pytest.mark.parametrize(
    ("setting", "cause", "hint"),
    [
        ("prompt=, completion=reply", "'completion' make no row", "prompt and completion"),
        ("prompt=question, completion=gone", "data.jsonl has no column 'gone'", "'question', 'reply'"),
        ("promt=question", "'promt=question', which names no field", "prompt, completion"),
        ("question", "'question', which names no field", "FIELD=COLUMN"),
        ("rejected=reply", "'rejected' make no row", "chosen and rejected"),
        ("text=question, prompt=reply", "make no row", "prompt and completion"),
        (",", "make no row", "prompt and completion"),
    ],
)
def test_columns_that_cannot_be_are_refused_with_those_there_are(tmp_path, setting, cause, hint):
    with pytest.raises(EngineError, match=cause) as refused:
        opened(tmp_path, [{"question": "a", "reply": "b"}], setting)
    assert hint in refused.value.hint


def test_columns_by_hand_go_for_all_rows(tmp_path):
    rows = [{"text": "a", "title": "b"}, {"text": "c"}]
    assert shaped(tmp_path, *rows, columns="prompt=title, completion=text") == [
        {"prompt": "b", "completion": "a"},
        {"completion": "c"},
    ]


# Thumbs


def test_thumbs_are_paired_where_a_prompt_has_both(tmp_path):
    rows = [
        {"prompt": "a", "completion": "good a", "label": True},
        {"prompt": "b", "completion": "bad b", "label": False},
        {"prompt": "a", "completion": "also good a", "label": True},
        {"prompt": "b", "completion": "good b", "label": True},
        {"prompt": "a", "completion": "bad a", "label": False},
        {"prompt": "c", "completion": "good c", "label": True},
        {"prompt": "c", "completion": None, "label": False},
        {"prompt": "c", "completion": "?", "label": "maybe"},
    ]
    source = opened(tmp_path, rows[:6])
    assert source.columns == {"prompt": "prompt", "completion": "completion", "label": "label"}
    first, second, *alone = source.rows()
    (told,) = source.notes
    assert (told.line, told.severity, told.code) == (0, "note", "thumbs")
    assert "2 of 3 prompts have both, and 2 pairs come of it" in told.message
    assert (first.line, first.value) == (4, {"prompt": "b", "chosen": "good b", "rejected": "bad b"})
    assert (second.line, second.value) == (5, {"prompt": "a", "chosen": "also good a", "rejected": "bad a"})
    assert [(row.line, row.code) for row in alone] == [(1, "unpaired"), (6, "unpaired")]
    assert "thumb down" in alone[0].message


@pytest.mark.parametrize(("rows", "said"), [(1, "the one prompt doesn't"), (3, "none of the 3 prompts")])
def test_thumbs_without_a_pair_say_what_they_are(tmp_path, rows, said):
    source = opened(tmp_path, [{"prompt": str(n), "completion": "x", "label": True} for n in range(rows)])
    assert [row.code for row in source.rows()] == ["unpaired"] * rows
    assert len(list(source.rows())) == rows  # once more
    (told,) = source.notes
    assert (told.severity, told.code) == ("warning", "thumbs")
    assert said in told.message


def test_thumbs_of_several_files_name_theirs_and_find_each_other(tmp_path):
    for name, labels in (("train-1", (True, "?", True)), ("train-2", (False, False))):
        rows = [
            {"prompt": f"{number % 2}", "completion": f"{name}", "label": label} for number, label in enumerate(labels)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = open_source(tmp_path, "prompt=prompt, completion=completion, label=label")
    odd, pair, *alone = source.rows()
    assert (odd.code, odd.file, odd.line) == ("no_verdict", "train-1.jsonl", 2)
    assert (pair.file, pair.line, pair.value["chosen"]) == ("train-2.jsonl", 1, "train-1")
    assert [(one.file, one.line) for one in alone] == [("train-1.jsonl", 1), ("train-2.jsonl", 2)]
    assert all(one.message.startswith(f"{one.file}: Line ") for one in (odd, *alone))


def test_labels_that_are_missing_or_odd_after_the_first_rows_are_named(tmp_path):
    rows = [{"prompt": str(number), "completion": "x", "label": number % 2 == 0} for number in range(200)]
    rows += [{"prompt": "a", "completion": "b", "label": "maybe"}, {"prompt": "a", "completion": None, "label": True}]
    found = list(opened(tmp_path, rows).rows())
    assert [(row.line, row.code) for row in found[:1]] == [(201, "no_verdict")]
    assert found[1].value == {"prompt": "a", "completion": None, "label": True}
    assert len(found) == 202


def test_chats_with_thumbs_are_paired_by_their_messages(tmp_path):
    bad = {"role": "assistant", "content": "No."}
    rows = [
        {"prompt": [USER], "completion": [bad], "label": False},
        {"prompt": [USER], "completion": [ANSWER], "label": True},
    ]
    assert shaped(tmp_path, *rows) == [{"prompt": [USER], "chosen": [ANSWER], "rejected": [bad]}]


@pytest.mark.parametrize("labels", [(0, 1), (3, 5), ("sports", "politics"), (True, "unsure"), (None, None)])
def test_labels_that_are_no_thumbs_pair_nothing(tmp_path, labels):
    rows = [{"prompt": "a", "completion": str(label), "label": label} for label in labels]
    assert shaped(tmp_path, *rows) == rows


def test_numbers_are_thumbs_where_the_column_is_named_by_hand(tmp_path):
    rows = [{"prompt": "a", "completion": "b", "score": 1}, {"prompt": "a", "completion": "c", "score": -1}]
    columns = "prompt=prompt, completion=completion, label=score"
    assert shaped(tmp_path, *rows, columns=columns) == [{"prompt": "a", "chosen": "b", "rejected": "c"}]


@pytest.mark.parametrize("good", [True, "true", "Thumbs Up", "👍", "up", "liked"])
@pytest.mark.parametrize("bad", [False, "FALSE", "thumbs_down", "👎", "down", "disliked"])
def test_verdicts_in_words(good, bad):
    assert (verdict(good), verdict(bad)) == (True, False)


@pytest.mark.parametrize(
    ("value", "number"), [(1, True), (0, False), ("-1", False), (1.0, True), (2, None), ("", None)]
)
def test_verdicts_in_numbers(value, number):
    assert verdict(value) is None
    assert verdict(value, with_numbers=True) is number


def test_any_order_of_thumbs_gives_as_many_pairs_as_there_can_be(tmp_path):
    rng = random.Random(5)
    votes = [(rng.randrange(20), rng.random() < 0.5) for _ in range(300)]
    rows = [
        {"question": f"q{prompt}", "answer": f"{number} {'good' if good else 'bad'}", "thumbs": good}
        for number, (prompt, good) in enumerate(votes)
    ]
    found = list(opened(tmp_path, rows).rows())
    pairs = [row for row in found if isinstance(row, Row)]
    assert len(pairs) == sum(min(votes.count((prompt, True)), votes.count((prompt, False))) for prompt in range(20))
    assert len(found) - len(pairs) == len(rows) - 2 * len(pairs)
    used = [pair.value[side] for pair in pairs for side in ("chosen", "rejected")]
    assert len(set(used)) == len(used)
    for pair in pairs:
        assert pair.value["chosen"].endswith("good")
        assert pair.value["rejected"].endswith("bad")
        for side in ("chosen", "rejected"):
            assert pair.value["prompt"] == rows[int(pair.value[side].split()[0])]["question"]
    alone = [problem.line for problem in found if isinstance(problem, Problem)]
    assert alone == sorted(alone)


# Pairs in foreign dress

AB = {"prompt": "Name a tree.", "response_a": "Oak.", "response_b": "Rose."}
OAK_WINS = {"prompt": "Name a tree.", "chosen": "Oak.", "rejected": "Rose."}
ROSE_WINS = {"prompt": "Name a tree.", "chosen": "Rose.", "rejected": "Oak."}


@pytest.mark.parametrize(
    ("winner", "pair"),
    [
        *((name, OAK_WINS) for name in ("a", "A", " a ", "model_a", "response_a", "Response A", "answer-a")),
        *((name, ROSE_WINS) for name in ("b", "Model B", "response_b", "assistant_b")),
        *((name, "tie") for name in ("tie", "Tie (bothbad)", "both", "neither", "draw")),
        *((name, "no_winner") for name in ("c", "", None, 1, 0, True, "not_a", "response_ab", ["a"])),
    ],
)
def test_of_two_answers_the_winner_is_chosen_and_what_is_none_is_named(tmp_path, winner, pair):
    assert shaped(tmp_path, {**AB, "winner": winner}) == [pair]


@pytest.mark.parametrize(
    ("row", "pair"),
    [
        ({"answer_0": "x", "answer_1": "y", "question": "a", "better_response_id": 0}, ("x", "y")),
        ({"response_0": "x", "response_1": "y", "prompt": "a", "better_response_id": "1.0"}, ("y", "x")),
        ({"output_a": "x", "output_b": "y", "instruction": "a", "preference": "output_b"}, ("y", "x")),
    ],
)
def test_the_names_of_two_answers_are_understood(tmp_path, row, pair):
    assert shaped(tmp_path, row) == [{"prompt": "a", "chosen": pair[0], "rejected": pair[1]}]


def test_two_whole_chats_with_a_winner_are_a_pair(tmp_path):
    rose = {"role": "assistant", "content": "Rose."}
    row = {"conversation_a": [USER, rose], "conversation_b": [USER, ANSWER], "winner": "model_b", "turn": 1}
    assert shaped(tmp_path, row) == [{"chosen": [USER, ANSWER], "rejected": [USER, rose], "turn": 1}]


def test_two_answers_named_by_hand(tmp_path):
    rows = [{"q": "a", "left": "x", "right": "y", "best": best} for best in ("left", "right", "middle")]
    found = opened(tmp_path, rows, "prompt=q, answer_a=left, answer_b=right, winner=best").rows()
    first, second, odd = found
    assert [(row.value["chosen"], row.value["rejected"]) for row in (first, second)] == [("x", "y"), ("y", "x")]
    assert odd.message == "Line 3 doesn't say which of its answers is better: its 'best' is 'middle'."
    assert "'left' or 'right'" in odd.fix


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({"prompt": "a", "response_a": "x", "response_b": "y"}, "no_winner"),
        ({"prompt": "a", "response_a": "x", "winner": "a"}, "missing_field"),
    ],
)
def test_two_answers_without_a_winner_or_one_answer_are_named(tmp_path, row, code):
    assert shaped(tmp_path, {**AB, "winner": "a"}, {**AB, "winner": "b"}, row)[2] == code


HUMAN = "\n\nHuman: Name a tree."
DIALOGUE = f"{HUMAN}\n\nAssistant: Oak.\n\nHuman: Another?\n\nAssistant:"
TURNS = [USER, ANSWER, {"role": "user", "content": "Another?"}]


def said(text):
    return {"role": "assistant", "content": text}


@pytest.mark.parametrize(
    ("row", "pair"),
    [
        (
            {"chosen": f"{DIALOGUE} Elm.", "rejected": f"{DIALOGUE} Ivy.\n\nIt climbs."},
            {"chosen": [*TURNS, said("Elm.")], "rejected": [*TURNS, said("Ivy.\n\nIt climbs.")]},
        ),
        (
            {"prompt": DIALOGUE, "chosen": " Elm.", "rejected": " Ivy."},
            {"prompt": TURNS, "chosen": " Elm.", "rejected": " Ivy."},
        ),
        (
            {"prompt": DIALOGUE, "chosen": f"{DIALOGUE} Elm.", "rejected": f"{DIALOGUE} Ivy."},
            {"prompt": TURNS, "chosen": [*TURNS, said("Elm.")], "rejected": [*TURNS, said("Ivy.")]},
        ),
        *(
            (
                {"chosen": f"{before}{DIALOGUE.strip()} Elm.", "rejected": f"{before}{DIALOGUE.strip()} Ivy."},
                {"chosen": [*TURNS, said("Elm.")], "rejected": [*TURNS, said("Ivy.")]},
            )
            for before in ("", " ", "\r\n", "\u2028", "\x0b\n\n")
        ),
        (
            {
                "chosen": f"{DIALOGUE} Elm.".replace("\n", "\r\n"),
                "rejected": f"{DIALOGUE} Ivy.\n\nIt climbs.".replace("\n", "\r\n"),
            },
            {"chosen": [*TURNS, said("Elm.")], "rejected": [*TURNS, said("Ivy.\r\n\r\nIt climbs.")]},
        ),
        # What only looks alike stays as it is.
        *(
            (row, row)
            for row in (
                {"prompt": "a", "chosen": "Human: b", "rejected": "c"},
                {"prompt": "Human: b\n\nAssistant: c", "completion": "d"},
                {"prompt": "a", "chosen": "Say\n\nHuman: b\n\nAssistant: c", "rejected": "c"},
            )
        ),
    ],
)
def test_transcripts_of_human_and_assistant_become_messages(tmp_path, row, pair):
    assert shaped(tmp_path, row) == [pair]
