import json
import re

import numpy as np
import pytest

from engine.data import Problem, Row, examine
from engine.data.conversation import Conversation, Message, fingerprint
from engine.data.personal import personal_data
from engine.data.problems import TOLD, ProblemList, error, in_file, line_ranges, lines_in_words, note, warning
from engine.data.remarks import duplicates, in_both, one_sided_lengths, text_remarks

USER = {"role": "user", "content": "Name a tree."}
ANSWER = {"role": "assistant", "content": "Oak."}
SYSTEM = {"role": "system", "content": "Answer in one word."}
CALL = {"type": "function", "function": {"name": "look_up", "arguments": {"tree": "oak"}}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "Quercus", "tool_call_id": "c1", "name": "look_up"}
SPECIALS = re.compile(r"<\|im_end\|>|</s>")


def test_each_shape_becomes_a_conversation():
    chat = examine(Row(1, {"messages": [SYSTEM, USER, ANSWER, USER]}))
    assert chat.kind == "messages"
    assert [message.role for message in chat.messages] == ["system", "user", "assistant", "user"]
    assert chat.prompt == "Answer in one word.\nName a tree."
    pair = examine(Row(2, {"prompt": " a ", "completion": " b\n", "id": 7}))
    assert pair.messages == (Message("user", " a "), Message("assistant", " b\n"))
    assert (pair.kind, pair.prompt) == ("prompt", " a ")
    text = examine(Row(3, {"text": "Once", "meta": None}))
    assert (text.kind, text.text, text.messages, text.line) == ("text", "Once", (), 3)


def test_a_null_field_counts_as_left_out_where_the_others_make_a_shape():
    row = {"messages": None, "prompt": "a", "completion": "b", "text": None, "chosen": None}
    assert examine(Row(1, row)).kind == "prompt"


@pytest.mark.parametrize(
    ("value", "code", "named"),
    [
        ({}, "unknown_shape", "none"),
        ({"question": "a", "answer": "b"}, "unknown_shape", "'question', 'answer'"),
        ({"conversations": [{"from": "human", "value": "a"}]}, "unknown_shape", "'conversations'"),
        ({"prompt": "a"}, "missing_field", "'completion'"),
        ({"completion": "a", "text": "b"}, "missing_field", "'prompt'"),
        ({"messages": [{"role": "user"}, ANSWER]}, "missing_field", "message 1, has no 'content'"),
        ({"messages": [{"content": "a"}, ANSWER]}, "missing_field", "'role'"),
        ({"prompt": "a", "completion": None}, "null_field", "'completion'"),
        ({"text": None}, "null_field", "'text'"),
        ({"messages": None}, "null_field", "'messages'"),
        ({"messages": [USER, {"role": "assistant", "content": None}]}, "null_field", "message 2"),
        ({"prompt": "", "completion": "a"}, "empty_field", "'prompt'"),
        ({"prompt": "a", "completion": " \n\t\u00a0"}, "empty_field", "'completion'"),
        ({"text": "\u3000"}, "empty_field", "'text'"),
        ({"text": "\u200b\ufeff\u2060"}, "empty_field", "'text'"),
        ({"messages": []}, "empty_field", "'messages'"),
        ({"messages": [{"role": "system", "content": ""}, USER, ANSWER]}, "empty_field", "message 1"),
        ({"prompt": 3, "completion": "a"}, "wrong_type", "'prompt'"),
        ({"prompt": [USER], "completion": [ANSWER]}, "wrong_type", "'prompt'"),
        ({"text": {"a": 1}}, "wrong_type", "'text'"),
        ({"messages": "hi"}, "wrong_type", "'messages'"),
        ({"messages": {"role": "user"}}, "wrong_type", "'messages'"),
        ({"messages": ["hi", ANSWER]}, "wrong_type", "message 1"),
        ({"messages": [{"role": 1, "content": "a"}]}, "wrong_type", "'role'"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]},
            "wrong_type",
            "'content'",
        ),
        ({"messages": [USER, {"role": "bot", "content": "a"}]}, "unknown_role", "'bot'"),
        ({"messages": [USER, {"role": "Assistant", "content": "a"}]}, "unknown_role", "'Assistant'"),
        ({"messages": [USER]}, "no_assistant", "no assistant"),
        ({"messages": [SYSTEM]}, "no_assistant", "no assistant"),
        ({"messages": [ANSWER, USER]}, "role_order", "message 1"),
        ({"messages": [USER, SYSTEM, ANSWER]}, "role_order", "message 2"),
        ({"messages": [SYSTEM, SYSTEM, USER, ANSWER]}, "role_order", "message 2"),
        ({"messages": [USER, USER, ANSWER]}, "role_order", "message 2"),
        ({"messages": [USER, ANSWER, ANSWER]}, "role_order", "message 3"),
        ({"messages": [USER, {**CALLING, "tool_calls": "look_up"}]}, "wrong_type", "'tool_calls'"),
        ({"messages": [USER, {**CALLING, "tool_calls": [{"name": 3}]}]}, "wrong_type", "'tool_calls'"),
        (
            {"messages": [USER, {**CALLING, "tool_calls": [{"name": "a", "arguments": "{"}]}]},
            "wrong_type",
            "'tool_calls'",
        ),
        ({"messages": [USER, {**CALLING, "tool_calls": []}]}, "null_field", "'content'"),
        ({"messages": [USER, RESULT, ANSWER]}, "role_order", "message 2, is from tool where assistant"),
        ({"messages": [USER, CALLING, ANSWER]}, "role_order", "message 3, is from assistant where tool"),
        ({"messages": [USER, CALLING, RESULT, USER]}, "role_order", "message 4"),
        ({"messages": [USER, ANSWER], "tools": "look_up"}, "wrong_type", "'tools'"),
        ({"prompt": "a", "completion": "b", "tools": [3]}, "wrong_type", "'tools'"),
        ({"prompt": "a", "chosen": "b", "rejected": "c"}, "pair_row", "SFT"),
        ({"chosen": [USER, ANSWER]}, "pair_row", "SFT"),
    ],
)
def test_every_flaw_is_named_where_it_is(value, code, named):
    problem = examine(Row(9, value))
    assert isinstance(problem, Problem)
    assert (problem.line, problem.severity, problem.code) == (9, "error", code)
    assert problem.message.startswith("Line 9")
    assert named in problem.message
    assert problem.message.endswith(".")
    assert problem.fix.endswith(".")


def test_the_roles_and_shapes_that_there_are_are_said():
    role = examine(Row(1, {"messages": [{"role": "bot", "content": "a"}]}))
    assert all(name in role.fix for name in ("system", "user", "assistant"))
    shape = examine(Row(1, {"instruction": "a"}))
    assert all(name in shape.fix for name in ("messages", "prompt", "completion", "text"))


def test_tool_calls_and_their_answers_are_kept():
    tools = [{"type": "function", "function": {"name": "look_up"}}]
    chat = examine(Row(1, {"messages": [USER, CALLING, RESULT, ANSWER], "tools": tools}))
    calling, result = chat.messages[1:3]
    assert (calling.content, json.loads(calling.calls)) == ("", [CALL])
    assert (result.role, result.content) == ("tool", "Quercus")
    assert json.loads(result.call) == {"tool_call_id": "c1", "name": "look_up"}
    assert json.loads(chat.tools) == tools
    pair = examine(Row(1, {"prompt": [USER], "chosen": [CALLING], "rejected": [ANSWER], "tools": tools}), "dpo")
    assert json.loads(pair.chosen.tools) == json.loads(pair.rejected.tools) == tools
    assert json.loads(pair.chosen.messages[1].calls) == [CALL]


@pytest.mark.parametrize(
    ("call", "read"),
    [
        ({"name": "f"}, {"type": "function", "function": {"name": "f", "arguments": {}}}),
        (
            {"name": "f", "arguments": '{"a": 1}'},
            {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}},
        ),
        (
            {"id": "c1", "function": {"name": "f", "arguments": ""}},
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {}}},
        ),
    ],
)
def test_tool_calls_are_read_in_all_ways_that_services_write_them(call, read):
    chat = examine(Row(1, {"messages": [USER, {"role": "assistant", "tool_calls": [call]}]}))
    assert json.loads(chat.messages[1].calls) == [read]


def test_half_a_character_in_arguments_of_a_tool_is_a_problem():
    call = {"name": "f", "arguments": '{"a": "\\ud83d"}'}
    problem = examine(Row(1, {"messages": [USER, {"role": "assistant", "tool_calls": [call]}]}))
    assert (problem.code, problem.line) == ("wrong_type", 1)


def remark_codes(value, objective="sft"):
    return [(found.severity, found.code) for found in next(text_remarks([examine(Row(7, value), objective)], SPECIALS))]


@pytest.mark.parametrize(
    ("answer", "codes"),
    [
        ("Oak.\n\tYes.\r\n", []),
        ("Oak\x00.", [("warning", "control_character")]),
        ("\x1b[1mOak", [("warning", "control_character")]),
        ("Oak\x9d", [("warning", "control_character")]),
        ("\ufffdsterreich", [("warning", "lost_character")]),
        ("Oak.<|im_end|>", [("warning", "special_token")]),
        ("x</s>", [("warning", "special_token")]),
        ("<|im_start|>", []),  # of another model
        ("Write to ada@lovelace.org.", [("note", "personal_email")]),
        ("The key is AKIA" + "A1B2" * 4, [("note", "personal_key")]),
        (
            "\x01</s> ada@lovelace.org",
            [("warning", "control_character"), ("warning", "special_token"), ("note", "personal_email")],
        ),
    ],
)
def test_what_is_odd_in_a_text_is_told(answer, codes):
    assert remark_codes({"prompt": "a", "completion": answer}) == codes
    assert remark_codes({"messages": [USER, {"role": "assistant", "content": answer}]}) == codes
    assert remark_codes({"prompt": "a", "chosen": "b", "rejected": answer}, "orpo") == codes
    assert (
        remark_codes({"prompt": [{"role": "user", "content": answer}], "chosen": "b", "rejected": "c"}, "dpo") == codes
    )
    # No template marks the ends of a plain text: there special tokens are meant.
    assert remark_codes({"text": answer}) == [found for found in codes if found[1] != "special_token"]
    for problem in next(text_remarks([examine(Row(7, {"prompt": "a", "completion": answer}))], SPECIALS)):
        assert problem.line == 7
        assert problem.message.startswith("Line 7 ")
        assert problem.message.endswith(".")
        assert problem.fix.endswith(".")
        assert not re.search(r"lovelace|A1B2", problem.message)  # what is private is not repeated


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("a.b+c@mail.co.uk", ["email"]),
        ("mailto:ada@lovelace.org?x", ["email"]),
        ("ada@example.com, bob@example.org, eve@mail.example", []),
        ("ada@example.com and ada@lovelace.org", ["email"]),
        ("@property\ndef f(self): return a @ b.c", []),
        ("5 apples @ 2.50 each, user@host", []),
        ("sk-" + "a1" * 12, ["key"]),
        ("sk-proj-" + "Ab1_" * 8, ["key"]),
        ("ghp_" + "a" * 36, ["key"]),
        ("hf_" + "Q" * 34, ["key"]),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE", ["key"]),
        ("-----BEGIN PUBLIC KEY-----", []),
        ("risk-based and task-oriented", []),
        ("sk-short", []),
        ("AKIA is a prefix", []),
        ("ada@lovelace.org AIza" + "x" * 35, ["email", "key"]),
        ("@" * 5000 + "a." * 5000, []),
    ],
)
def test_personal_data_is_told_from_text_that_looks_alike(text, kinds):
    assert personal_data(text) == kinds


@pytest.mark.parametrize(
    ("lines", "ranges", "words"),
    [
        ([], (), None),
        ([4], ((4, 4),), "4"),
        ([4, 4], ((4, 4),), "4"),
        ([1, 2, 3, 5], ((1, 3), (5, 5)), "1 to 3 and 5"),
        ([1, 3, 5], ((1, 1), (3, 3), (5, 5)), "1, 3 and 5"),
        (
            [*range(2, 42, 2)],
            tuple((n, n) for n in range(2, 42, 2)),
            "2, 4, 6, 8, 10, 12, 14, 16 and 12 more",
        ),
    ],
)
def test_lines_as_ranges_and_in_words(lines, ranges, words):
    assert line_ranges(lines) == ranges
    if words is not None:
        assert lines_in_words(ranges) == words


@pytest.mark.parametrize("make", [error, warning, note])
@pytest.mark.parametrize("count", [1, 2, 100, 101, 102, 5000])
def test_many_problems_of_a_kind_are_counted_and_every_line_is_named(make, count):
    lines = [3 * n for n in range(1, count + 1)]
    found = ProblemList(make(line, "a", f"Line {line} is odd.", "Mend it.") for line in lines)
    found.add(make(1, "b", "Line 1 is odder.", "Mend it."))
    listed = found.listed()
    told = TOLD[listed[0].severity]
    assert len(listed) == min(count, told) + (count > told) + 1
    named = [line for problem in listed if problem.code == "a" for line in every_line(problem)]
    assert sorted(named) == lines
    assert sum(problem.rows for problem in listed) == count + 1
    if count > told:
        last = listed[-1]
        assert (last.line, last.rows) == (3 * (told + 1), count - told)
        assert last.message.startswith(f"{count - told:,} more row")
        assert len(last.message) < 200


def every_line(problem):
    ranges = problem.lines or ((problem.line, problem.line),)
    return [line for first, last in ranges for line in range(first, last + 1)]


def test_problems_of_two_severities_or_cures_are_counted_apart():
    rows = [make(n, "a", "m.", "f.") for n in range(1, 301) for make in (error, warning)]
    listed = ProblemList(rows).listed()
    assert [(one.severity, one.rows, one.cure) for one in listed[200:]] == [
        ("error", 200, "skip"),
        ("warning", 200, ""),
    ]


def test_many_problems_of_a_kind_are_counted_file_by_file():
    found = ProblemList(
        in_file(error(line, "a", f"Line {line} is odd.", "Mend it."), f"{name}.jsonl")
        for name in "xyz"
        for line in range(1, 61)
    )
    *told, first, second = found.listed()
    assert len(told) == TOLD["error"]
    assert told[0].message == "x.jsonl: Line 1 is odd."
    assert [(one.file, one.lines, one.rows) for one in (first, second)] == [
        ("y.jsonl", ((41, 60),), 20),
        ("z.jsonl", ((1, 60),), 60),
    ]
    assert second.message.startswith("z.jsonl: 60 more rows of the same kind: lines 1 to 60.")


def test_duplicates_name_their_lines_however_many_groups_there_are():
    one = duplicates([2, 3, 9])
    assert (one.line, one.cure, one.lines, one.rows) == (2, "dedupe", ((2, 3), (9, 9)), 3)
    assert one.message.startswith("Lines 2, 3 and 9 hold")
    listed = ProblemList(duplicates([2 * n, 1000 + 2 * n]) for n in range(1, 201)).listed()
    assert sorted(line for found in listed for line in every_line(found)) == [*range(2, 402, 2), *range(1002, 1402, 2)]


def test_rows_that_are_trained_and_measured_are_named_by_both_lines():
    def known(line):
        return fingerprint(examine(Row(line, {"prompt": f"{line % 7}", "completion": "a"})))

    rows = {known(line): (line, "" if line < 3 else "train-1.jsonl") for line in (1, 2, 3)}
    measured = [(known(line), line, "valid.jsonl" if line > 9 else "") for line in range(4, 12)]
    found = list(in_both(rows, measured))
    assert [problem.line for problem in found] == [8, 9, 10]  # 1, 2 and 3 once more
    assert [problem.code for problem in found] == ["in_both"] * 3
    assert found[1].message.startswith("Line 9 is line 2 of the training data too")
    assert found[2].message.startswith("valid.jsonl: Line 10 is line 3 of train-1.jsonl too")


def test_a_fingerprint_tells_what_a_row_says_and_not_how_it_is_written():
    chat = {"messages": [USER, ANSWER], "id": 1}
    same = examine(Row(1, chat)), examine(Row(9, {"prompt": USER["content"], "completion": ANSWER["content"]}))
    assert fingerprint(same[0]) == fingerprint(same[1])
    others = [
        {"messages": [USER, ANSWER, USER]},
        {"messages": [SYSTEM, USER, ANSWER]},
        {"messages": [USER, {**ANSWER, "tool_calls": [CALL]}]},
        {"messages": [USER, ANSWER], "tools": [{"name": "f"}]},
        {"text": "Name a tree.Oak."},
    ]
    prints = {fingerprint(examine(Row(1, value))) for value in [chat, *others]}
    assert len(prints) == 6
    assert all(len(one) == 16 for one in prints)


def test_a_zero_in_a_text_doesn_t_make_two_messages_of_it():
    turns = [Message("user", "a"), Message("assistant", "b"), Message("user", "c"), Message("assistant", "d")]
    joined = [turns[0], Message("assistant", "\0".join(["b", "", "user", "c", "", "assistant", "d"]))]
    apart, together = (fingerprint(Conversation(1, "messages", tuple(said), "")) for said in (turns, joined))
    assert apart != together


@pytest.mark.parametrize(
    ("sizes", "preferred"),
    [
        ([], None),
        ([(10, 10)] * 9, None),
        ([(100, 20)] * 6 + [(10, 10)] * 5, "longer"),
        ([(100, 20)] * 5 + [(10, 10)] * 5, None),  # half of them
        ([(20, 100)] * 6 + [(10, 10)] * 5, "shorter"),
        ([(80, 20)] * 9, None),  # four times as long, not more
        ([(60, 3)] * 9, None),  # a few tokens only
    ],
)
def test_pairs_that_mostly_prefer_length_are_warned_of(sizes, preferred):
    problem = one_sided_lengths(np.array(sizes, np.int32).reshape(-1, 2))
    if preferred is None:
        assert problem is None
    else:
        assert (problem.line, problem.code) == (0, "one_sided_lengths")
        assert f"is much {preferred} than" in problem.message


def test_rows_that_share_a_line_are_all_counted():
    listed = ProblemList(error(1, "a", "Line 1 is odd.", "Mend it.") for _ in range(300)).listed()
    assert sum(problem.rows for problem in listed) == 300
    assert (listed[-1].rows, listed[-1].lines) == (200, ((1, 1),))


def test_a_problem_names_its_file_where_there_are_several():
    found = examine(Row(4, {"prompt": "a"}, "train-2.jsonl"))
    assert (found.message, found.file) == ("train-2.jsonl: Line 4 has no 'completion'.", "train-2.jsonl")
    assert in_file(found, "other.jsonl") == found
    assert examine(Row(4, {"prompt": "a", "completion": "b"}, "train-2.jsonl")).line == 4
