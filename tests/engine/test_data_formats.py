import csv
import io
import json
import re
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tokenizer_folders import CASES

from engine.data import Problem, Row, documents, folder_parts, open_source
from engine.data.tables import find_delimiter
from engine.errors import EngineError

# Each example opens files: 60 take about a second. The examples of a test share tmp_path: each writes its file anew.
few = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
# Names that are no known fields, so that rows come as they are.
objects = st.dictionaries(st.sampled_from(["a", "b", "c\n", 'd"', "é"]), values, max_size=4)


def read(path, data, **options):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return list(open_source(path, **options).rows())


def rows_or_refusal(path):
    try:
        return list(open_source(path).rows())
    except EngineError as refused:
        return refused


def told(rows):
    """Lines and values of rows, lines and codes of problems."""
    return [(row.line, row.value if isinstance(row, Row) else row.code) for row in rows]


# JSON arrays


def test_the_array_of_the_cases_is_read_with_its_lines():
    rows = list(open_source(CASES / "array.json").rows())
    assert [(row.line, row.value["completion"]) for row in rows] == [(2, "Blue."), (6, "Mercury."), (10, "Eight.")]


@given(st.lists(objects, max_size=5), st.sampled_from([None, 0, 1, 4]), st.booleans())
@few
def test_any_array_comes_back(tmp_path, rows, indent, is_ascii):
    source = json.dumps(rows, indent=indent, ensure_ascii=is_ascii)
    read_back = read(tmp_path / "data.json", source)
    assert [row.value for row in read_back] == rows
    lines = source.split("\n")
    assert all(lines[row.line - 1].lstrip(" [").startswith("{") for row in read_back)


@pytest.mark.parametrize("size", [1, 65_533, 65_534, 65_535, 65_536, 131_080, 1_000_000])
@pytest.mark.parametrize("text", ["x", "é😀", '\\"', "\\u00e9\\n"])
def test_rows_across_the_borders_of_chunks_come_back(tmp_path, size, text):
    source = '[{"a": "' + text * (size // len(text)) + '"},\n{"a": -12.5e3}]'
    first, second = read(tmp_path / "data.json", source)
    assert [first.value, second.value] == json.loads(source)
    assert (first.line, second.line) == (1, 2)


@pytest.mark.parametrize("name", ["data.json", "data.jsonl"])
def test_an_array_may_have_the_name_of_json_lines_and_the_other_way_round(tmp_path, name):
    rows = [{"text": "a"}, {"text": "b"}]
    for source in (json.dumps(rows), "\n".join(map(json.dumps, rows)), json.dumps(rows, indent=1)):
        assert [row.value for row in read(tmp_path / name, source)] == rows
    assert [row.value for row in read(tmp_path / "one.json", json.dumps(rows[0], indent=1))] == rows[:1]


ROWS = [{"text": "a", "meta": {"n": 1}}, {"text": "b", "meta": {"n": 2}}, {"text": "c", "meta": {"n": 3}}]


def test_a_broken_element_is_named_by_place_and_the_others_are_read(tmp_path):
    source = json.dumps(ROWS, indent=1).replace('"b",', '"b"')
    first, problem, third = read(tmp_path / "data.json", source)
    assert (first.line, third.line, third.value) == (2, 14, ROWS[2])
    assert (problem.line, problem.code, problem.column) == (8, "broken_json", 3)
    assert "at line 10, column 3" in problem.message


def test_what_a_broken_element_takes_with_it_is_said(tmp_path):
    first, problem = read(tmp_path / "data.json", json.dumps(ROWS).replace('"b",', '"b"'))
    assert first.value == ROWS[0]
    assert problem.message.endswith("What comes after it, up to line 1, is not read.")


@pytest.mark.parametrize("element", ["1", "null", '"a"', "[2]", "true"])
def test_elements_that_are_no_objects_are_named(tmp_path, element):
    rows = read(tmp_path / "data.json", f'[{{"text": "a"}},\n{element},\n{{"text": "b"}}]')
    assert told(rows) == [(1, {"text": "a"}), (2, "not_an_object"), (3, {"text": "b"})]


@pytest.mark.parametrize(
    "source",
    [
        '[{"text": "\\ud800"},\n{"text": "b"}]',
        '[{"text": "a\0"},\n{"text": "b"}]',
        b'[{"text": "\xe9"},\n{"text": "b"}]',
    ],
)
def test_undecoded_texts_of_an_array_cost_their_element_only(tmp_path, source):
    problem, row = read(tmp_path / "data.json", source)
    assert (problem.line, row.line) == (1, 2)


@pytest.mark.parametrize("end", range(0, 95, 5))
def test_an_array_that_breaks_off_is_said(tmp_path, end):
    whole = json.dumps(ROWS)
    rows = read(tmp_path / "data.json", "[" + whole[1 : end + 1])
    assert [row.value for row in rows[:-1]] == ROWS[: len(rows) - 1]
    assert isinstance(rows[-1], Problem)


def test_what_stands_after_the_array_is_named(tmp_path):
    assert told(read(tmp_path / "data.json", '[{"text": "a"}]\n{"text": "b"}')) == [
        (1, {"text": "a"}),
        (2, "broken_json"),
    ]


# Tables


def test_the_table_of_the_cases_is_read_with_its_lines():
    rows = list(open_source(CASES / "csv_quotes.csv").rows())
    assert [(row.line, row.value) for row in rows] == [
        (2, {"prompt": "Quote Hamlet, please", "completion": "To be, or not to be,\nthat is the question"}),
        (4, {"prompt": 'A comma, a "quote"', "completion": "fine"}),
    ]


def table(rows, delimiter=",", quoting=csv.QUOTE_MINIMAL, end="\r\n"):
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, quoting=quoting, lineterminator=end).writerows(rows)
    return text.getvalue()


# A record of blank cells is no row: the first cell always says something.
cells = st.tuples(texts.map("x".__add__), texts, texts)


@given(
    st.lists(cells, min_size=1, max_size=6),
    st.sampled_from([",", "\t", ";", "|", "^"]),
    # With line feeds alone the writer leaves a carriage return in a text without quotation marks.
    st.sampled_from([(csv.QUOTE_MINIMAL, "\r\n"), (csv.QUOTE_ALL, "\r\n"), (csv.QUOTE_ALL, "\n")]),
)
@few
@example([("x", "a\r\nb\n\nc", '""')], ",", (csv.QUOTE_MINIMAL, "\r\n"))
def test_any_table_comes_back(tmp_path, rows, delimiter, writing):
    names, (quoting, end) = ["number", "answer given", "place"], writing
    source = table([names, *rows], delimiter, quoting, end)
    assert find_delimiter(source) == delimiter
    read_back = read(tmp_path / "data.csv", source)
    assert [tuple(row.value.values()) for row in read_back] == rows
    before = 1
    for row, record in zip(read_back, rows, strict=True):
        assert row.line == before + 1
        before += len(re.findall("\r\n|\r|\n", table([record], delimiter, quoting, end)))


@pytest.mark.parametrize(("delimiter", "name"), [("\t", "a.tsv"), (";", "a.csv"), ("|", "a.csv"), ("~", "a.csv")])
def test_the_delimiter_is_found_among_others_in_texts(tmp_path, delimiter, name):
    rows = [["prompt", "completion"], ["a, b; c", "d | e, f"], ["g, h", "i\nj; k, l"], ["m", "n"]]
    rows = [[cell.replace(delimiter, " ") for cell in row] for row in rows]
    assert [list(row.value.values()) for row in read(tmp_path / name, table(rows, delimiter))] == rows[1:]


@pytest.mark.parametrize("delimiter", "!#$%&*+:=?@`")
def test_any_other_mark_delimits_where_it_parts_known_names_or_all_records(tmp_path, delimiter):
    path = tmp_path / "a.csv"
    rows = [["prompt", "completion"], ["Why, then;", f'"{delimiter} 1:2"'], ["What; is, it", "This."]]
    path.write_text("".join(delimiter.join(row) + "\n" for row in rows))
    first, second = open_source(path).rows()
    assert first.value["completion"] == f"{delimiter} 1:2"
    assert second.value == {"prompt": "What; is, it", "completion": "This."}
    path.write_text(path.read_text().replace("prompt", "frage").replace("completion", "antwort"))
    assert open_source(path).column_names == ("frage", "antwort")


@pytest.mark.parametrize(
    "text",
    [
        "text\na: b\nc: d\n",
        "te:xt\na\nb: c\n",
        "text:\na:\nb:\n",
        "te:xt\n",
        "text!\na\n",
        "Text (English)\nOak (a tree) grows.\n",
        "text [en]\na\n",
        "question & answer\na & b\nc\n",
        "a-b\nc-d\n",
        "a b\nc d\n",
    ],
)
def test_a_mark_in_the_texts_of_one_column_is_no_delimiter(text):
    assert find_delimiter(text) == ","


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_tables_of_spreadsheet_programs_are_read(tmp_path, encoding):
    source = "text;;\r\n\r\nGrüße 😀;;\r\n ;;\r\nb;;\r\n"
    rows = read(tmp_path / "data.csv", source.encode(encoding))
    assert told(rows) == [(3, {"text": "Grüße 😀"}), (5, {"text": "b"})]


def test_a_table_of_one_column_and_one_of_an_index(tmp_path):
    assert told(read(tmp_path / "a.csv", 'text\n"a, b"\nc\n')) == [(2, {"text": "a, b"}), (3, {"text": "c"})]
    (row,) = read(tmp_path / "b.csv", ",text\n0,a\n")
    assert row.value == {"column 1": "0", "text": "a"}


def test_spaces_after_delimiters_do_not_hide_quotation_marks(tmp_path):
    rows = read(tmp_path / "data.csv", 'prompt, completion\n"a, b", "c, d"\ne, f\n')
    assert told(rows) == [(2, {"prompt": "a, b", "completion": "c, d"}), (3, {"prompt": "e", "completion": "f"})]


@pytest.mark.parametrize("record", ["a", "a,b,c", "a,b,,,d", "a, b, c"])
def test_ragged_records_are_named(tmp_path, record):
    rows = read(tmp_path / "data.csv", f"prompt,completion\n1,2\n{record}\n3,4\n")
    assert [(row.line, row.code) for row in rows if isinstance(row, Problem)] == [(3, "ragged")]
    assert "2 columns" in rows[1].message


@pytest.mark.parametrize("record", ['"a" b,c', '"a,c', 'a,"c'])
def test_broken_quotes_cost_one_line_and_the_next_are_read(tmp_path, record):
    rows = read(tmp_path / "data.csv", f'prompt,completion\n1,2\n{record}\n3,"4"\n5,6\n')
    assert rows[1].code == "broken_quotes"
    assert rows[1].line == 3
    assert [row.value["prompt"] for row in rows if isinstance(row, Row)] == ["1", "3", "5"]


def test_a_table_that_is_not_utf_8_names_its_rows(tmp_path):
    rows = read(tmp_path / "data.csv", "prompt,completion\na,b\nc,é\nd\0,e\n".encode("cp1252"))
    assert [row.code for row in rows[1:]] == ["encoding", "encoding"]
    assert "Latin-1" in rows[1].message


@pytest.mark.parametrize(
    "first", ["What colour is the sky?,Blue.", "1,2", "-1.5,a", "a\u00a0" * 40 + ",b", '"two\nlines",b']
)
def test_a_first_line_that_names_no_columns_is_said(tmp_path, first):
    with pytest.raises(EngineError, match="names no columns") as refused:
        read(tmp_path / "data.csv", f"{first}\nName a metal.,Iron\n")
    assert "prompt,completion" in refused.value.hint


def test_two_columns_of_one_name_are_refused(tmp_path):
    with pytest.raises(EngineError, match="'text'"):
        read(tmp_path / "data.csv", "text,text\na,b\n")


# Parquet


def parquet(path, rows, **options):
    pq.write_table(pa.Table.from_pylist(rows), path, **options)
    return list(open_source(path).rows())


@given(st.lists(st.tuples(texts, texts, st.none() | st.integers(-9, 9)), min_size=1, max_size=6), st.integers(1, 4))
@few
def test_any_parquet_table_comes_back(tmp_path, rows, group):
    rows = [{"a": first, "b\n": [{"c": second}], "d": number} for first, second, number in rows]
    read_back = parquet(tmp_path / "data.parquet", rows, row_group_size=group)
    assert told(read_back) == list(enumerate(rows, start=1))


def test_chats_in_parquet_lose_the_fields_that_only_others_have(tmp_path):
    call = {"type": "function", "function": {"name": "now", "arguments": "{}"}}
    chats = [
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
        [{"role": "user", "content": "c"}, {"role": "assistant", "content": "", "tool_calls": [call]}],
    ]
    path = tmp_path / "data.parquet"
    part = pa.struct([("name", pa.string()), ("arguments", pa.string())])
    calls = pa.list_(pa.struct([("type", pa.string()), ("function", part)]))
    message = pa.struct([("role", pa.string()), ("content", pa.string()), ("tool_calls", calls)])
    pq.write_table(pa.table({"messages": pa.array(chats, pa.list_(message))}), path)
    assert [row.value["messages"] for row in open_source(path).rows()] == chats


def test_values_that_cannot_be_read_cost_their_row_only(tmp_path):
    path = tmp_path / "data.parquet"
    broken = pa.array([b"a", b"\xe9", b"c"]).cast(pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": broken}), path)
    assert told(open_source(path).rows()) == [(1, {"text": "a"}), (2, "encoding"), (3, {"text": "c"})]


def test_broken_parquet_files_are_refused_or_named(tmp_path):
    path, cut = tmp_path / "data.parquet", tmp_path / "cut.parquet"
    rows = [{"text": f"{number} " * 50} for number in range(600)]
    parquet(path, rows, row_group_size=100, compression="gzip")
    whole = path.read_bytes()
    for size in (0, 3, 8, len(whole) // 2, len(whole) - 1):
        cut.write_bytes(whole[:size])
        with pytest.raises(EngineError, match="no whole Parquet file"):
            open_source(cut)
    third = pq.ParquetFile(path).metadata.row_group(2).column(0)
    begin, size = third.dictionary_page_offset, third.total_compressed_size
    path.write_bytes(whole[:begin] + b"\xff" * size + whole[begin + size :])
    read_back = list(open_source(path).rows())
    assert [row.line for row in read_back] == list(range(1, 601))
    assert [row.value for row in read_back if isinstance(row, Row)] == rows[:200] + rows[300:]
    assert {row.code for row in read_back if isinstance(row, Problem)} == {"broken_parquet"}


# Documents


@given(
    st.lists(st.text("ab .!\n#`。", min_size=1, max_size=60), max_size=30).map("".join),
    st.integers(8, 60),
    st.sampled_from(["a.txt", "a.md"]),
)
@few
@example("。" + "a" * 20 + "。b", 8, "a.txt")
@example("aa。" + "b" * 20, 8, "a.txt")
def test_passages_hold_all_words_whole(tmp_path, text, size, name):
    rows = read(tmp_path / name, text, passage=size)
    passages = [row.value["text"] for row in rows]
    # A sentence may end without a space after it in scripts that have none: there alone a "word" may be cut.
    assert [word for passage in passages for word in re.findall("[^\\s。]+", passage)] == re.findall("[^\\s。]+", text)
    lines = text.split("\n")
    for row in rows:
        passage = row.value["text"]
        assert passage.strip()
        assert passage.split("\n")[0] in lines[row.line - 1]
        assert len(passage.strip()) <= size or not re.search(r"\s", passage.strip()[:size])


def test_passages_end_between_paragraphs_and_before_headings(tmp_path):
    text = "# One\n\nFirst.\n\nSecond is longer.\n\n## Two\n\nThird.\n\n```\n# no heading\n\ncode\n```\n"
    rows = read(tmp_path / "a.md", text, passage=48)
    assert told(rows) == [
        (1, {"text": "# One\n\nFirst.\n\nSecond is longer."}),
        (7, {"text": "## Two\n\nThird.\n\n```\n# no heading\n\ncode\n```"}),
    ]


def test_long_paragraphs_are_cut_after_sentences_then_words(tmp_path):
    rows = read(tmp_path / "a.txt", "One two. Three four five.\r\nSix seven eight nine ten", passage=16)
    assert [(row.line, row.value["text"].strip()) for row in rows] == [
        (1, "One two."),
        (1, "Three four"),
        (1, "five."),
        (2, "Six seven eight"),
        (2, "nine ten"),
    ]


@pytest.mark.parametrize("parts", [1, 2, 2.5, 3])
def test_a_huge_line_of_a_document_is_one_problem_and_the_next_lines_are_read(tmp_path, monkeypatch, parts):
    monkeypatch.setattr(documents, "MAX_LINE", 40)
    (tmp_path / "a.txt").write_text("Before.\n" + "x" * int(parts * 41) + "\n\nAfter.\n" + "y" * 39 + "\n")
    first, huge, last = open_source(tmp_path / "a.txt").rows()
    assert (first.line, first.value) == (1, {"text": "Before."})
    assert (huge.line, huge.code) == (2, "huge_line")
    assert (last.line, last.value) == (4, {"text": "After.\n" + "y" * 39})


def test_a_document_that_is_not_utf_8_names_its_lines(tmp_path):
    rows = read(tmp_path / "a.txt", "one\ncafé\n\ntwo".encode("latin-1"))
    assert told(rows) == [(1, {"text": "one"}), (2, "encoding"), (4, {"text": "two"})]


# Folders


def files_in(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"text": "' + name + '"}\n')
    return folder


def names(files):
    return [file.name for file in files]


@pytest.mark.parametrize(
    ("held", "train", "valid"),
    [
        (["train.jsonl", "valid.jsonl", "test.jsonl"], ["train.jsonl"], ["valid.jsonl"]),
        (["data/train.jsonl", "data/test.jsonl"], ["train.jsonl"], ["test.jsonl"]),
        (
            ["train-1.json", "train-2.json", "validation-1.json"],
            ["train-1.json", "train-2.json"],
            ["validation-1.json"],
        ),
        (["Training.jsonl", "val.csv", "README.md"], ["Training.jsonl"], ["val.csv"]),
        (["cats.jsonl", "dogs.jsonl", "dev.jsonl", ".hidden.jsonl"], ["cats.jsonl", "dogs.jsonl"], ["dev.jsonl"]),
        (["trainers.jsonl", "tested.jsonl"], ["tested.jsonl", "trainers.jsonl"], []),
    ],
)
def test_the_parts_of_a_folder_are_found_by_name(tmp_path, held, train, valid):
    parts = folder_parts(files_in(tmp_path, *held))
    assert (names(parts[0]), names(parts[1])) == (train, valid)


@pytest.mark.parametrize(
    ("held", "cause"),
    [
        ([], "no file to train with"),
        (["test.jsonl"], "no file to train with"),
        (["a.txt", "b.jsonl"], r"\.jsonl, \.txt"),
        (["config.json", "tokenizer.json"], "model's"),
    ],
)
def test_folders_without_a_clear_part_to_train_are_refused(tmp_path, held, cause):
    with pytest.raises(EngineError, match=cause):
        open_source(files_in(tmp_path, *held))


def test_rows_of_several_files_name_theirs(tmp_path):
    files_in(tmp_path, "train-1.jsonl", "train-2.jsonl")
    with (tmp_path / "train-2.jsonl").open("a") as file:
        file.write("{")
    source = open_source(tmp_path)
    first, second, problem = source.rows()
    assert [(row.line, row.file) for row in (first, second)] == [(1, "train-1.jsonl"), (1, "train-2.jsonl")]
    assert problem.message.startswith("train-2.jsonl: Line 2 ")
    assert source.bytes_done == source.bytes_total


# Size

LONG = "word " * 200
LARGE = {
    "a.jsonl": lambda number: json.dumps({"text": f"{number} {LONG}"}) + "\n",
    "a.json": lambda number: ("," if number else "[") + json.dumps({"text": f"{number} {LONG}"}) + "\n",
    "a.csv": lambda number: f'{number},"{LONG}\nb"\n' if number else "prompt,completion\n",
    "a.txt": lambda number: f"{number} {LONG}\n",
    "a.md": lambda number: f"{LONG}\n\n" if number else "```\nan endless fence\n",
    "votes.jsonl": lambda number: (
        json.dumps({"prompt": f"a{number % 2_500}", "completion": LONG, "label": number < 2_500}) + "\n"
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_file_is_never_held_whole(tmp_path, name):
    path = tmp_path / name
    with path.open("w") as file:
        file.writelines(map(LARGE[name], range(5_000)))
    tracemalloc.start()
    rows = sum(1 for _ in open_source(path).rows())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rows > 1_000
    # Of 5 MB: buffers of 64 KB, the 200 first rows, one paragraph of 256 KB and its pieces, or the waiting prompts.
    assert peak < 2_000_000


# Corruption

GOOD = {
    "data.jsonl": "\n".join(map(json.dumps, ROWS)).encode(),
    "data.json": json.dumps(ROWS, indent=1).encode(),
    "data.csv": table([["prompt", "completion"], *([f"a{n}", "b, c\nd"] for n in range(9))]).encode(),
    "data.md": b"# One\n\nSome text.\n\n```\ncode\n```\n\n" * 5,
}


@pytest.mark.parametrize("name", GOOD)
@given(data=st.data())
@few
def test_corrupted_files_give_rows_and_problems_never_a_traceback(tmp_path, name, data):
    damaged = bytearray(GOOD[name])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(damaged)))
        damaged[place : place + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=4))
    path = tmp_path / name
    path.write_bytes(damaged)
    rows = rows_or_refusal(path)
    if isinstance(rows, EngineError):
        assert rows.hint
        return
    lines = [row.line for row in rows]
    assert lines == sorted(lines)
    assert all(row.message and row.fix and row.severity == "error" for row in rows if isinstance(row, Problem))
    assert rows or not damaged.strip(b" \t\r\n\0[],")


@given(place=st.integers(0, 4_000), junk=st.binary(min_size=1, max_size=40))
@few
def test_corrupted_parquet_files_never_give_a_traceback(tmp_path, place, junk):
    path = tmp_path / "data.parquet"
    if not path.exists():
        parquet(path, [{"text": f"{number} " * 20} for number in range(400)], row_group_size=64)
    whole = path.read_bytes()
    place %= len(whole)
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(whole[:place] + junk + whole[place + len(junk) :])
    rows = rows_or_refusal(damaged)
    assert rows.hint if isinstance(rows, EngineError) else len(rows) == 400
