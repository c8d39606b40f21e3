import pytest

from engine.data import Message, Problem, Row, examine

USER = {"role": "user", "content": "Name a tree."}
ANSWER = {"role": "assistant", "content": "Oak."}
SYSTEM = {"role": "system", "content": "Answer in one word."}


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
