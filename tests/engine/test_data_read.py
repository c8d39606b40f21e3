import json
import os

import pytest
from tokenizer_folders import CASES

from engine.data import Problem, Row, open_source
from engine.data import read as reading
from engine.data.encoding import MAX_LINE
from engine.errors import EngineError

GOOD = b'{"prompt": "a", "completion": "b"}'


def read(tmp_path, data, name="data.jsonl"):
    path = tmp_path / name
    path.write_bytes(data)
    return list(open_source(path).rows())


def only_problem(tmp_path, line):
    first, second, third = read(tmp_path, GOOD + b"\n" + line + b"\n" + GOOD)
    assert isinstance(first, Row)
    assert isinstance(third, Row)
    assert isinstance(second, Problem)
    assert (second.line, second.severity) == (2, "error")
    assert second.message.startswith("Line 2 ")
    assert second.fix
    return second


@pytest.mark.parametrize(("name", "lines"), [("bom", [1, 2, 3]), ("crlf", [1, 2, 3]), ("blank_lines", [1, 3, 5])])
def test_odd_files_are_read_as_if_clean(name, lines):
    source = open_source(CASES / f"{name}.jsonl")
    rows = list(source.rows())
    assert [row.line for row in rows] == lines
    assert [row.value["completion"] for row in rows] == ["Blue.", "Mercury.", "Eight."]
    assert source.notes == []
    assert source.bytes_done == source.bytes_total == (CASES / f"{name}.jsonl").stat().st_size


def test_byte_order_marks_of_joined_files_and_odd_line_ends(tmp_path):
    bom = b"\xef\xbb\xbf"
    rows = read(tmp_path, bom + GOOD + b"\r\n\r\n\t\r\n" + bom + GOOD + b"\n" + bom + b"\n" + GOOD, "x.NDJSON")
    assert [row.line for row in rows] == [1, 4, 6]
    assert all(row.value == json.loads(GOOD) for row in rows)


def test_line_separators_inside_texts_do_not_end_lines(tmp_path):
    text = "a\u2028b\u0085c\x0bd"
    (row,) = read(tmp_path, json.dumps({"text": text}, ensure_ascii=False).encode())
    assert row.value == {"text": text}


@pytest.mark.parametrize("name", ["data.jsonl", "data.json", "data.csv", "data.txt", "data.md"])
@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf\r\n \n"])
def test_an_empty_file_has_no_rows(tmp_path, name, data):
    assert read(tmp_path, data, name) == []


@pytest.mark.parametrize(
    ("encoding", "text", "named", "cure"),
    [("latin-1", "café", "Latin-1", "convert"), ("cp1252", "“café”", "Windows-1252", "convert")],
)
@pytest.mark.parametrize("name", ["data.jsonl", "data.json", "data.txt"])
def test_other_encodings_are_named_with_a_fix(tmp_path, encoding, text, named, cure, name):
    problem = read(tmp_path, ('{"text": "' + text + '"}\n').encode(encoding), name)[0]
    assert (problem.line, problem.code, problem.cure) == (1, "encoding", cure)
    assert named in problem.message
    assert "UTF-8" in problem.fix


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_read_and_noted(tmp_path, encoding):
    path = tmp_path / "data.jsonl"
    path.write_bytes('{"text": "café 😀\u2028"}\r\n\r\n{"text": "b"}\r\n'.encode(encoding))
    source = open_source(path)
    assert [(row.line, row.value["text"]) for row in source.rows()] == [(1, "café 😀\u2028"), (3, "b")]
    assert [(problem.severity, problem.code) for problem in source.notes] == [("note", "utf_16")]


def test_broken_utf_16_costs_its_lines_only(tmp_path):
    half = '{"text": "'.encode("utf-16-le") + b"\x3d\xd8" + '"}\n'.encode("utf-16-le")
    good = '{"text": "a"}\n'.encode("utf-16-le")
    first, second, third, cut = read(tmp_path, good + half + good + good[:-5])
    assert [first.line, third.line] == [1, 3]
    assert [(problem.line, problem.code) for problem in (second, cut)] == [(2, "encoding"), (4, "encoding")]


@pytest.mark.parametrize("encoding", ["utf-32", "utf-32-le", "utf-32-be"])
def test_utf_32_is_refused_by_name(tmp_path, encoding):
    with pytest.raises(EngineError, match="UTF-32"):
        read(tmp_path, '{"text": "a"}'.encode(encoding))


def test_the_first_bad_byte_is_named(tmp_path):
    problem = only_problem(tmp_path, b'{"text": "caf\xe9"}')
    assert problem.code == "encoding"
    assert "byte 14 is 0xE9" in problem.message


def test_a_zero_character_is_named(tmp_path):
    problem = only_problem(tmp_path, b'{"text": "a\0b"}')
    assert (problem.code, problem.cure) == ("encoding", "skip")
    assert "byte 12 is 0x00" in problem.message


@pytest.mark.parametrize(
    ("line", "column"),
    [(b'{"prompt": "a"', 15), (b'{"a": 1,}', 9), (b"{'a': 1}", 2), (b"hello", 1), (b'{"a": 1} {"a": 2}', 10)],
)
def test_broken_json_is_named_with_its_column(tmp_path, line, column):
    problem = only_problem(tmp_path, line)
    assert (problem.code, problem.column) == ("broken_json", column)
    assert f"column {column}:" in problem.message


@pytest.mark.parametrize("other", [b'{"text": "a"}', b'{"text": "\xff"}'])
def test_what_is_wrong_with_a_line_hangs_on_no_other(tmp_path, other):
    found = read(tmp_path, b'{"prompt": "a", "completion": "b\r\n' + other + b"\r\n")[0]
    assert (found.code, found.column) == ("broken_json", 31)
    assert "no closing quotation mark" in found.message


def test_a_long_line_is_a_problem_whatever_it_begins_with(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_LINE", 100)
    found = read(tmp_path, b" " * 150 + GOOD + b"\n" + GOOD + b"\n")
    assert (found[0].line, found[0].code, found[1].line) == (1, "huge_line", 2)


@pytest.mark.parametrize(
    "about", [{"by": {"id": "b"}}, ["a", "b", [{"c": "d"}]], {"function": {"name": "f"}}, 'a \\ "b"']
)
def test_names_are_counted_at_any_depth(about):
    value = {"text": "a", "about": about, "n": 1}
    text = json.dumps(value)
    assert reading._may_repeat_a_name(text, value) == ("\\\\" in text)
    assert reading._may_repeat_a_name(text[:-1] + ', "n": 2}', {**value, "n": 2})


@pytest.mark.parametrize("line", [b"[" * 200_000, b'{"a":' * 200_000, b'{"a": ' + b"9" * 5_000 + b"}"])
def test_depth_and_length_beyond_reading_are_problems(tmp_path, line):
    assert only_problem(tmp_path, line).code == "broken_json"


@pytest.mark.parametrize("line", [b"[1]", b'"a"', b"1", b"1.5", b"true", b"null", b"NaN"])
def test_other_values_than_objects_are_problems(tmp_path, line):
    assert only_problem(tmp_path, line).code == "not_an_object"


@pytest.mark.parametrize("text", [b"\\ud800", b"a\\uDFFFb", b"\\udc00\\ud800"])
def test_half_characters_are_problems(tmp_path, text):
    problem = only_problem(tmp_path, b'{"text": "' + text + b'"}')
    assert problem.code == "lone_surrogate"
    assert problem.column == 11 + (text[:1] == b"a")


@pytest.mark.parametrize(
    "line",
    [
        b'{"text": "a", "text": "b"}',
        b'{"prompt": "a", "completion":"b", "prompt" : "a"}',
        b'{"messages": [{"role": "user", "content": "a", "role": "assistant"}]}',
        b'{"text": "a", "about": {"by": {"name": 1, "name": 2}}}',
    ],
)
def test_a_name_that_comes_twice_is_a_problem(tmp_path, line):
    problem = only_problem(tmp_path, line)
    assert problem.code == "repeated_field"
    assert any(f"'{name}'" in problem.message for name in ("text", "prompt", "role", "name"))


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b'{"text": "\\ud83d\\ude00"}', {"text": "😀"}),
        (b'{"text": "a", "about": {"text": "\\":"}}', {"text": "a", "about": {"text": '":'}}),
        (b'{"text": "a", "score": Infinity}', {"text": "a", "score": float("inf")}),
    ],
)
def test_odd_but_harmless_json_is_read(tmp_path, line, value):
    assert read(tmp_path, line)[0].value == value


def test_a_huge_line_is_refused_and_the_next_is_read(tmp_path):
    path = tmp_path / "data.jsonl"
    with path.open("wb") as file:
        file.write(b'{"text": "')
        file.seek(MAX_LINE + 10)
        file.write(b"\n" + GOOD)
    problem, row = open_source(path).rows()
    assert (problem.line, problem.code) == (1, "huge_line")
    assert row.line == 2


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("data", "jsonl"),
        ("data.jsonl.gz", "Unpack"),
        ("data.XLSX", "CSV"),
        ("a.pdf", "plain text"),
        ("a.arrow", "Parquet"),
    ],
)
def test_other_formats_are_refused_by_name_with_what_to_do(tmp_path, name, cure):
    with pytest.raises(EngineError) as refused:
        read(tmp_path, GOOD, name)
    assert cure in refused.value.hint


@pytest.mark.parametrize(
    ("start", "kind"), [(b"PAR1", "Parquet"), (b"PK\x03\x04", "zip archive"), (b"\x1f\x8b", "gzip archive")]
)
@pytest.mark.parametrize("name", ["data.jsonl", "data.csv", "data.txt"])
def test_files_of_another_kind_than_their_name_says_are_refused(tmp_path, start, kind, name):
    with pytest.raises(EngineError, match=kind):
        read(tmp_path, start + b"\x14\0\0\0" + bytes(range(256)), name)


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    for name in ("pipe.jsonl", "missing.jsonl", "zero\0.jsonl", "x" * 300 + ".jsonl"):
        with pytest.raises(EngineError):
            list(open_source(tmp_path / name).rows())


def test_reading_can_be_stopped_and_tells_how_far_it_is(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_bytes((GOOD + b"\n") * 20_000)
    source = open_source(path)
    rows = source.rows()
    told = [source.bytes_done for _ in zip(range(10_000), rows, strict=False)]
    rows.close()
    assert told == sorted(told)
    # Text is decoded ahead by a buffer of at most 64 KB.
    assert abs(told[-1] - source.bytes_total / 2) < 70_000
