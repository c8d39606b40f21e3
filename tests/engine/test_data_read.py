import json
import os

import pytest
from tokenizer_folders import CASES

from engine.data import Problem, Row, read_rows
from engine.data.read import MAX_LINE_BYTES
from engine.errors import EngineError

GOOD = b'{"prompt": "a", "completion": "b"}'


def read(tmp_path, data, name="data.jsonl"):
    path = tmp_path / name
    path.write_bytes(data)
    return list(read_rows(path))


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
    rows = list(read_rows(CASES / f"{name}.jsonl"))
    assert [row.line for row in rows] == lines
    assert [row.value["completion"] for row in rows] == ["Blue.", "Mercury.", "Eight."]


def test_byte_order_marks_of_joined_files_and_odd_line_ends(tmp_path):
    bom = b"\xef\xbb\xbf"
    rows = read(tmp_path, bom + GOOD + b"\r\n\r\n\t\r\n" + bom + GOOD + b"\n" + bom + b"\n" + GOOD, "x.NDJSON")
    assert [row.line for row in rows] == [1, 4, 6]
    assert all(row.value == json.loads(GOOD) for row in rows)


def test_line_separators_inside_texts_do_not_end_lines(tmp_path):
    text = "a\u2028b\u0085c\x0bd"
    (row,) = read(tmp_path, json.dumps({"text": text}, ensure_ascii=False).encode())
    assert row.value == {"text": text}


def test_an_empty_file_has_no_rows(tmp_path):
    assert read(tmp_path, b"") == []
    assert read(tmp_path, b"\xef\xbb\xbf\r\n \n") == []


@pytest.mark.parametrize(
    ("encoding", "text", "named"),
    [
        ("latin-1", "café", "Latin-1"),
        ("cp1252", "“café”", "Windows-1252"),
        ("utf-16", "café", "UTF-16"),
        ("utf-16-le", "café", "UTF-16"),
        ("utf-16-be", "café", "UTF-16"),
        ("utf-32", "café", "UTF-32"),
    ],
)
def test_other_encodings_are_named_with_a_fix(tmp_path, encoding, text, named):
    problem = read(tmp_path, ('{"text": "' + text + '"}\n').encode(encoding))[0]
    assert (problem.line, problem.code) == (1, "encoding")
    assert named in problem.message
    assert "UTF-8" in problem.fix


def test_the_first_bad_byte_is_named(tmp_path):
    problem = only_problem(tmp_path, b'{"text": "caf\xe9"}')
    assert problem.code == "encoding"
    assert "byte 14 is 0xE9" in problem.message


@pytest.mark.parametrize(
    ("line", "column"),
    [(b'{"prompt": "a"', 15), (b'{"a": 1,}', 9), (b"{'a': 1}", 2), (b"hello", 1), (b'{"a": 1} {"a": 2}', 10)],
)
def test_broken_json_is_named_with_its_column(tmp_path, line, column):
    problem = only_problem(tmp_path, line)
    assert problem.code == "broken_json"
    assert f"column {column}:" in problem.message


@pytest.mark.parametrize("line", [b"[" * 200_000, b'{"a":' * 200_000, b'{"a": ' + b"9" * 5_000 + b"}"])
def test_depth_and_length_beyond_reading_are_problems(tmp_path, line):
    assert only_problem(tmp_path, line).code == "broken_json"


@pytest.mark.parametrize("line", [b"[1]", b'"a"', b"1", b"1.5", b"true", b"null", b"NaN"])
def test_other_values_than_objects_are_problems(tmp_path, line):
    assert only_problem(tmp_path, line).code == "not_an_object"


@pytest.mark.parametrize("text", [b"\\ud800", b"a\\uDFFFb", b"\\udc00\\ud800"])
def test_half_characters_are_problems(tmp_path, text):
    assert only_problem(tmp_path, b'{"text": "' + text + b'"}').code == "lone_surrogate"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b'{"text": "\\ud83d\\ude00"}', {"text": "😀"}),
        (b'{"text": "a", "text": "b"}', {"text": "b"}),
        (b'{"text": "a", "score": Infinity}', {"text": "a", "score": float("inf")}),
    ],
)
def test_odd_but_harmless_json_is_read(tmp_path, line, value):
    assert read(tmp_path, line)[0].value == value


def test_a_huge_line_is_refused_and_the_next_is_read(tmp_path):
    path = tmp_path / "data.jsonl"
    with path.open("wb") as file:
        file.write(b'{"text": "')
        file.seek(2 * MAX_LINE_BYTES + 10)
        file.write(b"\n" + GOOD)
    problem, row = read_rows(path)
    assert (problem.line, problem.code) == (1, "huge_line")
    assert row.line == 2


@pytest.mark.parametrize("name", ["data.csv", "data.json", "data.parquet", "data", "data.jsonl.gz"])
def test_other_formats_are_refused_by_name(tmp_path, name):
    with pytest.raises(EngineError, match=r"\.jsonl or \.ndjson"):
        read(tmp_path, GOOD, name)


def test_what_is_no_file_is_refused(tmp_path):
    (tmp_path / "folder.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")
    for name in ("folder.jsonl", "pipe.jsonl", "missing.jsonl", "zero\0.jsonl", "x" * 300 + ".jsonl"):
        with pytest.raises(EngineError):
            list(read_rows(tmp_path / name))
