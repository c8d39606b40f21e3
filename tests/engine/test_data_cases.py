"""What must happen with the files that people bring, each kind with several members, through the whole check."""

import csv
import io
import json

import pytest

from engine.config import TrainConfig
from engine.data import load_rows, preview, report
from engine.errors import EngineError

ROWS = [
    {"prompt": "Name a tree.", "completion": "Oak."},
    {"prompt": "Name a metal.", "completion": "Iron, naïve 👍."},
    {"prompt": "Capital of Italy?", "completion": 'Rome,\n"the city".'},
]
USER, ANSWER = {"role": "user", "content": "Name a tree."}, {"role": "assistant", "content": "Oak."}
GOOD = ROWS[0]
LONG = "the river ran past the mill " * 40


@pytest.fixture
def check(tokenizer, tmp_path):
    """Writes a file and reads it as `check` does."""

    def call(name, content, **settings):
        path = tmp_path / name
        path.write_bytes(content)
        return load_rows(TrainConfig.from_mapping({"data": str(path), **settings}), tokenizer)

    return call


def jsonl(rows, end="\n"):
    return "".join(json.dumps(row, ensure_ascii=False) + end for row in rows).encode()


def table(rows, delimiter=",", **style):
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter, **style)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def told(rows, *severities):
    severities = severities or ("error", "warning")
    return [(found.line, found.severity, found.code) for found in rows.problems if found.severity in severities]


def tokens(rows):
    return [item.ids.tolist() for item in rows.dataset.examples]


def lines(rows):
    return [item.line for item in rows.dataset.examples]


def only_error(rows):
    (found,) = [found for found in rows.problems if found.severity == "error"]
    assert found.message.endswith(".")
    assert found.fix.endswith(".")
    return found


@pytest.mark.parametrize(
    ("name", "content", "at"),
    [
        ("bom.jsonl", b"\xef\xbb\xbf" + jsonl(ROWS), [1, 2, 3]),
        ("crlf.jsonl", jsonl(ROWS, "\r\n"), [1, 2, 3]),
        ("bom_crlf.ndjson", b"\xef\xbb\xbf" + jsonl(ROWS, "\r\n"), [1, 2, 3]),
        ("blank.jsonl", b"\n \t\n" + jsonl(ROWS, "\n\n\n"), [3, 6, 9]),
        ("no_last_end.jsonl", jsonl(ROWS).rstrip(), [1, 2, 3]),
        ("utf_16.jsonl", jsonl(ROWS).decode().encode("utf-16"), [1, 2, 3]),
        ("utf_16_bare.jsonl", jsonl(ROWS).decode().encode("utf-16-le"), [1, 2, 3]),
        ("array.json", json.dumps(ROWS).encode(), [1, 1, 1]),
        ("array_lines.json", b"[\n" + b",\n".join(json.dumps(row).encode() for row in ROWS) + b"\n]\n", [2, 3, 4]),
        ("array_pretty.json", json.dumps(ROWS, indent=2).encode(), [2, 6, 10]),
        ("array_bom.json", b"\xef\xbb\xbf" + json.dumps(ROWS).encode("utf-8"), [1, 1, 1]),
        ("quotes.csv", table(ROWS), [2, 3, 4]),
        ("all_quotes.csv", table(ROWS, quoting=csv.QUOTE_ALL), [2, 3, 4]),
        ("semicolon.csv", table(ROWS, ";"), [2, 3, 4]),
        ("tabs.tsv", table(ROWS, "\t"), [2, 3, 4]),
        ("unix.csv", table(ROWS, lineterminator="\n"), [2, 3, 4]),
    ],
)
def test_rows_are_read_as_if_clean_and_lines_are_those_of_the_file(check, name, content, at):
    clean = check("clean.jsonl", jsonl(ROWS))
    rows = check(name, content)
    assert told(clean) == told(rows) == []
    assert tokens(rows) == tokens(clean)
    assert lines(rows) == at
    assert rows.dataset.rows == 3


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", b""),
        ("a.jsonl", b"\n \r\n\t\n"),
        ("a.jsonl", b"\xef\xbb\xbf"),
        ("a.json", b"[]"),
        ("a.json", b"[\n]\n"),
        ("a.csv", b"prompt,completion\n"),
        ("a.txt", b"\n\n"),
    ],
)
def test_a_file_without_rows_is_an_error(check, name, content):
    rows = check(name, content)
    assert told(rows) == [(0, "error", "empty")]
    assert only_error(rows).cure == ""
    assert rows.dataset.rows == 0


@pytest.mark.parametrize(
    ("text", "encoding", "named", "cure"),
    [
        ("naïve", "latin-1", "Latin-1", "convert"),
        ("naïve – “so”", "cp1252", "Windows-1252", "convert"),
        ("\x81\x8d", "latin-1", "not known", "skip"),
    ],
)
@pytest.mark.parametrize("line", [1, 2, 5])
def test_another_encoding_is_named_with_its_line_and_a_cure(check, text, encoding, named, cure, line):
    content = jsonl([GOOD] * (line - 1)) + jsonl([{"text": text}]).decode().encode(encoding) + jsonl([GOOD])
    rows = check("a.jsonl", content)
    found = only_error(rows)
    assert (found.line, found.code, found.cure) == (line, "encoding", cure)
    assert named in found.message
    assert "UTF-8" in found.fix
    assert line not in lines(rows)
    assert len(lines(rows)) == line


@pytest.mark.parametrize("empty", [None, "", " \n\t", "\u200b"])
@pytest.mark.parametrize(
    ("row", "objective"),
    [
        (lambda value: {"prompt": "a", "completion": value}, "sft"),
        (lambda value: {"text": value}, "sft"),
        (lambda value: {"messages": [USER, {"role": "assistant", "content": value}]}, "sft"),
        (lambda value: {"prompt": "a", "chosen": value, "rejected": "b"}, "orpo"),
        (lambda value: {"prompt": "a", "chosen": "b", "rejected": value}, "dpo"),
    ],
)
def test_an_answer_that_is_missing_is_an_error_of_its_row(check, row, empty, objective):
    rows = check("a.jsonl", jsonl([row("fine"), row(empty), row("good")]), objective=objective)
    assert told(rows, "error") == [(2, "error", "null_field" if empty is None else "empty_field")]
    assert only_error(rows).cure == "skip"
    assert lines(rows) == [1, 3] if objective == "sft" else len(rows.dataset.examples) == 2


@pytest.mark.parametrize(
    ("second", "third", "format"),
    [
        ({"messages": [USER, ANSWER, USER]}, {"text": "Oak is a tree."}, "mixed"),
        ({"text": "Oak is a tree."}, {"prompt": "a", "completion": "b"}, "mixed"),
        ({"question": "a", "answer": "b"}, {"instruction": "a", "input": "", "output": "c"}, "prompt/completion"),
        ({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}, {"text": "b"}, "mixed"),
    ],
)
def test_rows_of_several_shapes_count_each_by_its_own(check, second, third, format):
    rows = check("a.jsonl", jsonl([GOOD, second, third]))
    assert told(rows) == []
    assert lines(rows) == [1, 2, 3]
    assert rows.dataset.format == format


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ('{"prompt": "a", "completion": "b"', 34),
        ('{"prompt": "a" "completion": "b"}', 16),
        ('{"prompt": "a", completion: "b"}', 17),
        ("{'prompt': 'a'}", 2),
        ('{"prompt": "a", "completion": "b}', 31),
        ('{"prompt": "a"}}', 16),
        ("prompt", 1),
    ],
)
def test_broken_json_is_named_by_line_and_column(check, line, column):
    rows = check("a.jsonl", jsonl([GOOD]) + line.encode() + b"\n" + jsonl([GOOD]))
    found = only_error(rows)
    assert (found.line, found.code, found.column) == (2, "broken_json", column)
    assert f"column {column}" in found.message
    assert lines(rows) == [1, 3]


@pytest.mark.parametrize("value", ["[1]", "3", "null", '"text"', "true"])
def test_a_line_that_is_no_object_is_an_error(check, value):
    rows = check("a.jsonl", jsonl([GOOD]) + value.encode() + b"\n" + jsonl([GOOD]))
    assert told(rows, "error") == [(2, "error", "not_an_object")]


@pytest.mark.parametrize("role", ["bot", "Assistant", "moderator", "narrator 2"])
def test_an_unknown_role_is_named_with_those_that_there_are(check, role):
    rows = check("a.jsonl", jsonl([{"messages": [USER, {"role": role, "content": "Oak."}]}]))
    found = only_error(rows)
    assert (found.line, found.code) == (1, "unknown_role")
    assert repr(role) in found.message
    assert all(name in found.fix for name in ("system", "user", "assistant"))


@pytest.mark.parametrize(
    "turns", [[USER], [{"role": "system", "content": "a"}, USER], [{"role": "system", "content": "a"}]]
)
def test_a_chat_that_nobody_answers_trains_nothing(check, turns):
    rows = check("a.jsonl", jsonl([{"messages": turns}, {"messages": [USER, ANSWER]}]))
    assert told(rows) == [(1, "error", "no_assistant")]
    assert lines(rows) == [2]
    assert report(rows)["rows_without_targets"] == 1


@pytest.mark.parametrize("turns", ["all", "last"])
@pytest.mark.parametrize("answers", [["Oak."], ["Oak.", "Elm."], ["Oak.", "Elm.", "Ivy."]])
def test_all_turns_or_the_last_are_trained_with_their_ends_and_never_the_template(check, tokenizer, turns, answers):
    chat = [turn for n, said in enumerate(answers) for turn in (
        {"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": said})]  # fmt: skip
    (item,) = check("a.jsonl", jsonl([{"messages": chat}]), trained_turns=turns).dataset.examples
    learned = answers if turns == "all" else answers[-1:]
    assert tokenizer.decode(item.ids[item.trained].tolist()) == "".join(f"{said}<|im_end|>" for said in learned)


@pytest.mark.parametrize("most", [48, 64, 128])
def test_a_prompt_that_fills_the_row_is_named_with_what_would_hold_it(check, most):
    content = jsonl([{"prompt": LONG, "completion": "Yes."}, GOOD])
    rows = check("a.jsonl", content, max_length=most)
    found = only_error(rows)
    assert (found.line, found.code) == (1, "nothing_to_train")
    assert lines(rows) == [2]
    whole = int(max(item.length for item in check("a.jsonl", content).dataset.examples))
    assert f"{whole:,} tokens" in found.message
    assert f"{most}" in found.message
    assert f"{whole:,}" in found.fix
    assert told(check("a.jsonl", content, max_length=whole), "error") == []


@pytest.mark.parametrize("rows", [1, 2, 49])
def test_few_rows_train_without_validation_and_it_is_said(check, rows):
    found = check("a.jsonl", jsonl([{"prompt": f"{n}?", "completion": "a"} for n in range(rows)]))
    assert (len(found.train), len(found.valid)) == (rows, 0)
    assert "none measured" in found.sentence
    assert told(found) == []


@pytest.mark.parametrize(
    ("chosen", "rejected"),
    [("Oak and elm.", "Oak and ivy."), ("Oak.", "Oak. Or so."), ("a", "b"), ("Yes", "No, never, not at all")],
)
@pytest.mark.parametrize("as_messages", [False, True])
def test_responses_are_compared_whole_and_the_prompt_is_masked(check, tokenizer, chosen, rejected, as_messages):
    pair = {"prompt": "Name a tree.", "chosen": chosen, "rejected": rejected}
    if as_messages:
        pair = {side: [USER, {"role": "assistant", "content": pair[side]}] for side in ("chosen", "rejected")}
    rows = check("a.jsonl", jsonl([pair]), objective="orpo")
    assert told(rows) == []
    (item,) = rows.dataset.examples
    for side, said in ((item.chosen, chosen), (item.rejected, rejected)):
        assert tokenizer.decode(side.ids[side.trained].tolist()) == f"{said}<|im_end|>"


@pytest.mark.parametrize("objective", ["orpo", "dpo"])
@pytest.mark.parametrize(
    "pair",
    [
        {"prompt": "a", "chosen": "b", "rejected": "b"},
        {"chosen": [USER, ANSWER], "rejected": [USER, ANSWER]},
        {"prompt": "Name a tree.", "chosen": "Oak.", "rejected": [ANSWER]},
    ],
)
def test_a_pair_with_nothing_to_prefer_is_warned_of(check, pair, objective):
    rows = check("a.jsonl", jsonl([pair]), objective=objective)
    assert told(rows) == [(1, "warning", "identical_pair")]
    assert len(rows.dataset.examples) == 1


@pytest.mark.parametrize(
    "text", ["👨‍👩‍👧‍👦 and a flag 🇪🇺", "日本語と한국어", "e\u0301\u0323 combined", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "שלום עולם"]
)
def test_any_script_comes_back_whole(check, tokenizer, tmp_path, text):
    rows = check("a.jsonl", jsonl([{"prompt": text, "completion": text}]))
    assert told(rows) == []
    (item,) = rows.dataset.examples
    assert tokenizer.decode(item.ids[item.trained].tolist()) == f"{text}<|im_end|>"
    shown = preview(tmp_path / "a.jsonl", tokenizer, 2048, 1)
    assert "".join(token["text"] for token in shown["tokens"]) == shown["text"]
    assert "\ufffd" not in shown["text"]


@pytest.mark.parametrize(
    "again", [GOOD, {"messages": [USER, ANSWER]}, {**GOOD, "id": 4}, {"question": "Name a tree.", "answer": "Oak."}]
)
def test_rows_that_say_the_same_are_warned_of_with_their_lines(check, again):
    rows = check("a.jsonl", jsonl([GOOD, ROWS[1], again]))
    (found,) = [found for found in rows.problems if found.severity != "note"]
    assert (found.line, found.severity, found.code, found.cure) == (1, "warning", "duplicates", "dedupe")
    assert "Lines 1 and 3 " in found.message
    assert lines(rows) == [1, 2, 3]


def test_rows_that_are_trained_and_measured_are_warned_of(check, tmp_path):
    own = tmp_path / "own.jsonl"
    own.write_bytes(jsonl([ROWS[2], {"prompt": "New?", "completion": "Yes."}, {"messages": [USER, ANSWER]}]))
    rows = check("a.jsonl", jsonl(ROWS), valid=str(own))
    assert told(rows) == [(1, "warning", "in_both"), (3, "warning", "in_both")]
    assert all(found.message.startswith("own.jsonl: Line ") for found in rows.problems if found.severity != "note")


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("Oak.<|im_end|>\n<|im_start|>user", ("warning", "special_token", "")),
        ("Oak\x00", ("warning", "control_character", "convert")),
        ("\ufffdak", ("warning", "lost_character", "")),
        ("Write to ada@lovelace.org.", ("note", "personal_email", "")),
        ("sk-" + "a1" * 12, ("note", "personal_key", "")),
    ],
)
def test_odd_texts_are_told_and_trained(check, answer, found):
    content = "".join(json.dumps(row) + "\n" for row in [GOOD, {"prompt": "a", "completion": answer}])
    rows = check("a.jsonl", content.encode())
    (problem,) = rows.problems
    assert (problem.line, problem.severity, problem.code, problem.cure) == (2, *found)
    assert lines(rows) == [1, 2]


@pytest.mark.parametrize("text", ['"\\ud83d"', '"a \\udc4d b"', '"\\ud83d\\ud83d\\udc4d"'])
def test_half_a_character_is_an_error_of_its_row(check, text):
    rows = check("a.jsonl", jsonl([GOOD]) + f'{{"text": {text}}}\n'.encode() + jsonl([ROWS[1]]))
    assert told(rows, "error") == [(2, "error", "lone_surrogate")]
    assert lines(rows) == [1, 3]


def test_a_hundred_thousand_flaws_are_told_in_a_few_sentences_and_all_their_lines(check):
    rows = check("a.jsonl", b'{"prompt": "a"}\n' * 3000 + b"{\n" * 2000 + jsonl([GOOD]))
    errors = [found for found in rows.problems if found.severity == "error"]
    assert len(errors) == 202
    assert sum(found.rows for found in errors) == 5000 == rows.dataset.rows - 1
    fields, broken = [found for found in errors if found.lines]
    assert (fields.lines, broken.lines) == (((101, 3000),), ((3101, 5000),))
    assert "2,900 more rows" in fields.message


@pytest.mark.parametrize(
    ("row", "code"), [({"prompt": LONG, "completion": "a"}, "nothing_to_train"), ({"text": LONG}, "cut")]
)
def test_of_many_rows_that_are_too_long_every_one_is_counted(check, row, code):
    rows = check("a.jsonl", jsonl([row] * 250 + [GOOD]), max_length=48)
    found = [problem for problem in rows.problems if problem.code == code]
    assert len(found) == 101
    assert sum(problem.rows for problem in found) == 250
    assert max(found, key=lambda problem: problem.rows).lines == ((101, 250),)


@pytest.mark.parametrize("name", ["a.xlsx", "a.docx", "a.jsonl.gz", "a.pdf", "a"])
def test_a_file_of_another_kind_is_refused_in_words(check, name):
    with pytest.raises(EngineError) as caught:
        check(name, b"PK\x03\x04 whatever")
    assert name in caught.value.message
    assert caught.value.hint.endswith(".")
