"""Any corruption of any file: never a traceback, and every row is either usable or named by an error."""

import csv
import io
import json
import shutil

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tokenizer_folders import chatml, llama2

from engine.config import TrainConfig
from engine.data import Comparison, Conversation, Problem, Row, examine, load_rows, load_tokenizer, report
from engine.data.cache import cache_folder
from engine.data.columns import guess
from engine.data.conversation import fingerprint
from engine.data.fixes import CURES, apply
from engine.data.personal import personal_data
from engine.data.plain import plain_row
from engine.data.read import parse_line
from engine.data.shapes import OUR_ANSWER, OUR_CHAT, canonical
from engine.data.shaping import Shaper
from engine.errors import EngineError

# The same examples in every run: a failure anywhere is one that can be seen again.
settings.register_profile(
    "bounded",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("bounded")

MAX_LENGTH = 96
SCRAPS = [b"\xff", b"\n", b"\r", b"\0", b"{", b"}", b"[", b'"', b"'", b"\\", b"\\ud800", b"[[[", b"<|im_end|>", b"</s>",
          b"null", b",", b";", b"\t", b"\xef\xbb\xbf", b"\xe2\x80", b"1e999", b"NaN", b"\x85"]  # fmt: skip

words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12) | st.sampled_from(
    [
        "Oak.",
        "naïve",
        "👍🏽",
        "<|im_end|>",
        "a,b",
        'say "x"',
        "two\nlines",
        "</s>",
        "</think>",
        "ada@lovelace.org",
        "qzContent0zq",
    ]
)
said = st.lists(words, min_size=1, max_size=4).map(" ".join)


def turn(role):
    return said.map(lambda text: {"role": role, "content": text})


chats = st.lists(st.tuples(turn("user"), turn("assistant")), min_size=1, max_size=3).map(
    lambda turns: {"messages": [message for pair in turns for message in pair]}
)
foreign_chats = chats.map(
    lambda chat: {"conversations": [{"from": turn["role"], "value": turn["content"]} for turn in chat["messages"]]}
)
flat = {
    "sft": [
        st.fixed_dictionaries({"prompt": said, "completion": said}),
        st.fixed_dictionaries({"instruction": said, "input": said, "output": said}),
        st.fixed_dictionaries({"text": said}),
    ],
    "orpo": [st.fixed_dictionaries({"prompt": said, "chosen": said, "rejected": said})],
}
nested = {
    "sft": [chats, foreign_chats],
    "orpo": [
        st.tuples(chats, turn("assistant")).map(
            lambda pair: {"chosen": pair[0]["messages"], "rejected": [*pair[0]["messages"][:-1], pair[1]]}
        )
    ],
}


def jsonl(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def table(delimiter):
    def write(rows):
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()

    return write


WRITERS = {
    "a.jsonl": jsonl,
    "a.json": json.dumps,
    "b.json": lambda rows: json.dumps(rows, indent=1, ensure_ascii=False),
    "a.csv": table(","),
    "b.csv": table(";"),
    "a.tsv": table("\t"),
    "a.txt": lambda rows: "\n\n".join(str(value) for row in rows for value in row.values()),
    "a.md": lambda rows: "".join(f"# Part\n\n{value}\n\n" for row in rows for value in row.values()),
}


@st.composite
def good_files(draw):
    """A name, an objective and the text of a file of that kind."""
    name = draw(st.sampled_from(sorted(WRITERS)))
    objective = "sft" if name[-3:] in ("txt", ".md") else draw(st.sampled_from(["sft", "orpo"]))
    shapes = flat[objective] + (nested[objective] if "json" in name else [])
    rows = draw(st.lists(draw(st.sampled_from(shapes)), min_size=1, max_size=6))
    return name, objective, WRITERS[name](rows)


@st.composite
def corrupted_files(draw):
    """The same with bytes replaced, cut out, put in and repeated, and perhaps in another encoding."""
    name, objective, text = draw(good_files())
    encoding = draw(
        st.sampled_from(["utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32", "cp1252"])
    )
    data = bytearray(text.encode(encoding, "replace"))
    for _ in range(draw(st.integers(0, 6))):
        place = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 3)):
            case 0:
                data[place : place + 1] = bytes([draw(st.integers(0, 255))])
            case 1:
                del data[place : place + draw(st.integers(1, 40))]
            case 2:
                data[place:place] = draw(st.sampled_from(SCRAPS))
            case 3:
                data[place:place] = data[draw(st.integers(0, len(data))) :][: draw(st.integers(0, 60))]
    return name, objective, bytes(data)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    return [load_tokenizer(make(tmp_path_factory.mktemp(make.__name__))) for make in (chatml, llama2)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def read(path, objective, tokenizer):
    """The rows of a file, None where it is refused in words."""
    config = TrainConfig(data=str(path), objective=objective, max_length=MAX_LENGTH)
    try:
        return config, load_rows(config, tokenizer)
    except EngineError as refusal:
        in_words(refusal)
        return config, None
    finally:
        shutil.rmtree(cache_folder(), ignore_errors=True)  # the cache looks through all that is in it, each time


def in_words(refusal):
    assert refusal.kind == "request"
    assert refusal.message.endswith(".")
    assert refusal.hint.endswith(".")


def add_up(rows):
    """Every row that was read is usable or named by an error."""
    dataset = rows.dataset
    errors = [found for found in rows.problems if found.severity == "error" and found.line]
    assert dataset.rows == len(dataset.examples) + sum(found.rows for found in errors)
    for found in rows.problems:
        assert found.message.endswith(".")
        assert found.fix.endswith(".")
        assert found.cure in ("", *CURES)
        assert found.column >= 0
    for item in dataset.examples:
        assert item.trained_tokens
        assert item.length <= MAX_LENGTH


@settings(max_examples=120)
@given(file=good_files())
def test_good_files_have_no_unreadable_row(tokenizers, folder, file):
    name, objective, text = file
    path = folder / name
    path.write_bytes(text.encode())
    _, rows = read(path, objective, tokenizers[0])
    assert rows is not None
    add_up(rows)
    unreadable = {"broken_json", "not_an_object", "encoding", "ragged", "broken_quotes", "lone_surrogate", "wrong_type"}
    assert not unreadable & {found.code for found in rows.problems if "\0" not in text}


@settings(max_examples=200)
@given(file=corrupted_files(), which=st.integers(0, 1))
def test_any_corruption_is_a_problem_of_its_row(tokenizers, folder, file, which):
    name, objective, data = file
    path = folder / name
    path.write_bytes(data)
    _, rows = read(path, objective, tokenizers[which])
    if rows is None:
        return
    add_up(rows)
    json.dumps(report(rows), allow_nan=False).encode()


@settings(max_examples=80)
@given(file=corrupted_files())
def test_what_is_mended_by_all_cures_has_no_errors_left(tokenizers, folder, file):
    name, objective, data = file
    path = folder / name
    path.write_bytes(data)
    config = TrainConfig(data=str(path), objective=objective, max_length=MAX_LENGTH)
    try:
        fixed = apply(config, CURES, tokenizers[0])
    except EngineError as refusal:
        in_words(refusal)
        return
    _, rows = read(fixed.path, objective, tokenizers[0])
    fixed.path.unlink()
    assert rows.dataset.rows == fixed.rows == len(rows.dataset.examples)
    found = {problem.code for problem in rows.problems}
    assert not found & {"control_character", "duplicates", "identical_pair"}


values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | words,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "tool_calls", "function", "name", "arguments", "type", "text", "from", "id"]
            )
            | words,
            inner | st.sampled_from(["system", "user", "assistant", "tool"]),
            max_size=4,
        )
    ),
    max_leaves=24,
)
FIELDS = ["messages", "prompt", "completion", "text", "chosen", "rejected", "tools", "other"]


@settings(max_examples=400)
@given(
    value=st.dictionaries(st.sampled_from(FIELDS), values, max_size=4),
    objective=st.sampled_from(["sft", "orpo", "dpo"]),
)
def test_any_value_is_a_conversation_or_a_problem(value, objective):
    found = examine(Row(3, value), objective)
    assert found.line == 3
    if isinstance(found, Problem):
        assert (found.severity, found.cure) == ("error", "skip")
        assert found.message.startswith("Line 3")
    else:
        assert isinstance(found, Conversation if objective == "sft" else Comparison)
        assert fingerprint(found) == fingerprint(examine(Row(9, value), objective))


odd = said | values
turns = chats.map(lambda chat: chat["messages"])
besides = st.fixed_dictionaries(
    {},
    optional={
        "input": odd,
        "system_prompt": odd,
        "history": odd | st.lists(st.lists(words, max_size=3), max_size=3) | turns,
        "functions": values,
        "id": values,
    },
)
foreign_rows = st.one_of(
    st.fixed_dictionaries({"instruction": odd | turns, "output": odd}),
    st.fixed_dictionaries({"conversations": values | turns}),
    st.fixed_dictionaries({"question": odd | turns, "chosen": odd, "rejected": odd}),
    st.fixed_dictionaries({"chosen": turns, "rejected": turns}),
    st.fixed_dictionaries({"dialog": turns, "response_a": said, "response_b": said, "winner": st.sampled_from("abc")}),
)


def texts_in(value):
    """All texts of a value but for blank ones; none of one that holds an object, whose fields have own names."""
    if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(part, dict) for part in value)):
        return []
    if isinstance(value, list):
        return [text for part in value for text in texts_in(part)]
    return [value] if isinstance(value, str) and value.strip() else []


def said_by(value):
    if isinstance(value, dict):
        return [text for part in value.values() for text in said_by(part)]
    return [text for part in value for text in said_by(part)] if isinstance(value, list) else [str(value)]


@settings(max_examples=200)
@given(row=foreign_rows, more=besides, objective=st.sampled_from(["sft", "orpo"]))
@example(row={"instruction": "Double it.", "output": "42"}, more={"input": 21}, objective="sft")
@example(row={"instruction": "a", "output": "b"}, more={"history": ["A", "B", "C"]}, objective="sft")
@example(row={"chosen": [], "rejected": []}, more={"system_prompt": "S", "history": [["A", "B"]]}, objective="orpo")
def test_what_a_foreign_row_holds_beside_its_shape_is_read_or_named(row, more, objective):
    value = {**row, **more}
    columns = guess([name for name, part in value.items() if part is not None]) or guess(value)
    found = canonical(Row(3, value), columns)
    checked = found if isinstance(found, Problem) else examine(found, objective)
    if isinstance(checked, Problem):
        assert (checked.line, checked.severity, checked.cure) == (3, "error", "skip")
        assert checked.message.startswith("Line 3")
        return
    texts = "\n".join(said_by(found.value))
    for field in {"input", "system", "history"} & columns.keys():
        part = value.get(columns[field])
        assert part is None or isinstance(part, str | list)
        assert all(text in texts for text in texts_in(part))
    if "id" in value:
        assert found.value["id"] is value["id"]


@settings(max_examples=200)
@given(text=st.text(max_size=200), place=st.integers(0, 200))
def test_an_address_is_found_wherever_it_stands(text, place):
    inside = f"{text[:place]} ada@lovelace.org {text[place:]}"
    assert "email" in personal_data(inside)


answer = said | st.sampled_from(["", " ", "\u200b", '[{"role": "user"}]', "a\\b", "\ud800"])
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": answer | values},
        optional={"weight": st.sampled_from([0, 1]), "name": words, "tool_calls": values},
    ),
    max_size=5,
)
plain_rows = st.one_of(
    chats,
    st.fixed_dictionaries({"messages": messages}, optional={"id": words, "tools": values}),
    st.fixed_dictionaries({"prompt": answer | values, "completion": answer}, optional={"id": words, "input": words}),
)


@settings(max_examples=600)
@given(
    value=plain_rows, mark=st.sampled_from(["", ' "role"', '"messages": [], ', '"completion": "x", ']), data=st.data()
)
def test_the_short_way_to_a_plain_row_comes_out_where_the_long_one_does(value, mark, data):
    text = json.dumps(
        value, ensure_ascii=data.draw(st.booleans()), separators=data.draw(st.sampled_from([None, (",", ":")]))
    )
    text = text[:1] + mark + text[1:]
    for columns in (guess(value), OUR_CHAT, OUR_ANSWER):
        if (short := plain_row(5, text, columns)) is not None:
            row = parse_line(5, text)
            assert isinstance(row, Row)
            assert short == examine(Shaper(columns, are_given=False, is_table=False).shaped(row))


def test_plain_rows_take_the_short_way():
    chat = {"messages": [{"role": "user", "content": 'Say "a".'}, {"role": "assistant", "content": "a\n"}]}
    assert plain_row(1, json.dumps(chat), OUR_CHAT) == examine(Row(1, chat))
    pair = {"prompt": "é", "completion": "👍🏽"}
    assert plain_row(1, json.dumps(pair), OUR_ANSWER) == examine(Row(1, pair))
    assert plain_row(1, json.dumps(pair), OUR_CHAT) is None
