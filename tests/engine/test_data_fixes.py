"""Data mended into a new file: what each cure does, what it refuses, and that the old file stays."""

import importlib
import json
import subprocess
import sys
import threading
import tracemalloc

import numpy as np
import pytest
from tiny_models import write_llama

from engine.config import TrainConfig
from engine.data import Row, examine, load_rows, report, tokenize
from engine.data import convert as convert_module
from engine.data.convert import clean, convert
from engine.data.fixes import CURES, apply
from engine.data.shorten import shortened
from engine.errors import EngineError

GOOD = {"prompt": "Name a tree.", "completion": "Oak."}
LONG = "the river ran past the mill " * 40


def jsonl(*rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def fix(path, tokenizer, *cures, output=None, **settings):
    before = path.read_bytes()
    names = sorted(path.parent.iterdir())
    try:
        return apply(TrainConfig.from_mapping({"data": str(path), **settings}), cures, tokenizer, output)
    finally:
        assert path.read_bytes() == before  # the old file stays as it is, whatever happens
        assert all(name in path.parent.iterdir() for name in names)
        assert not any(name.name.startswith(".") for name in path.parent.iterdir())  # nothing half is left behind


def rows_of(fixed):
    text = fixed.path.read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    assert len(rows) == fixed.rows
    return rows


def length(value, tokenizer, objective="sft"):
    return tokenize(examine(Row(1, value), objective), tokenizer, 10**6).length


def test_skip_leaves_out_what_cannot_be_used_and_keeps_the_order(tokenizer, tmp_path):
    path = tmp_path / "a.jsonl"
    other = {"prompt": "Two?", "completion": "Zwei, naïve 👍"}
    bad = [{"prompt": "x", "completion": ""}, {"messages": [{"role": "bot", "content": "a"}]}, {"a": 1}]
    too_long = {"prompt": LONG, "completion": "Yes."}
    path.write_bytes(jsonl(GOOD, bad[0]) + b'{"prompt": \n\n' + jsonl(bad[1], too_long, other, bad[2]) + b"\xff\n")
    fixed = fix(path, tokenizer, "skip", max_length=64)
    assert fixed.path == tmp_path / "a (fixed).jsonl"
    assert rows_of(fixed) == [GOOD, other]
    assert (fixed.rows, fixed.changed, fixed.left_out) == (2, 0, 6)


def test_the_fields_of_a_foreign_row_stay_beside_ours(tokenizer, tmp_path):
    path = tmp_path / "a.jsonl"
    turns = [{"from": "human", "value": "Name a tree."}, {"from": "gpt", "value": "Oak."}]
    path.write_bytes(jsonl({"id": 7, "conversations": turns, "body": "c"}, {"conversations": []}))
    fixed = fix(path, tokenizer, "skip")
    chat = [{"role": "user", "content": "Name a tree."}, {"role": "assistant", "content": "Oak."}]
    assert rows_of(fixed) == [{"messages": chat, "id": 7}]
    assert (fixed.changed, fixed.left_out, fixed.is_renamed) == (0, 1, True)


def test_a_pair_that_prefers_nothing_is_left_out(tokenizer, tmp_path):
    path = tmp_path / "a.jsonl"
    pair = {"prompt": "a", "chosen": "b", "rejected": "c"}
    path.write_bytes(jsonl(pair, {**pair, "rejected": "b"}))
    assert rows_of(fix(path, tokenizer, "skip", objective="dpo")) == [pair]


@pytest.mark.parametrize("cures", [("dedupe",), ("trim",), ("convert", "dedupe")])
def test_a_row_that_cannot_be_written_is_refused_unless_it_is_to_be_left_out(tokenizer, tmp_path, cures):
    path = tmp_path / "a.jsonl"
    path.write_bytes(jsonl(GOOD) + b"{\n" + jsonl(GOOD))
    with pytest.raises(EngineError, match="Line 2 ") as caught:
        fix(path, tokenizer, *cures)
    assert "skip" in caught.value.hint
    assert list(tmp_path.iterdir()) == [path]
    assert fix(path, tokenizer, *cures, "skip").left_out == 1 + ("dedupe" in cures)


def test_a_flawed_row_that_can_be_read_is_kept_unless_it_is_to_be_left_out(tokenizer, tmp_path):
    path = tmp_path / "a.jsonl"
    flawed = {"prompt": "a", "completion": None}
    path.write_bytes(jsonl(flawed, GOOD, GOOD))
    assert rows_of(fix(path, tokenizer, "dedupe")) == [flawed, GOOD]


def test_dedupe_keeps_the_first_of_rows_that_say_the_same(tokenizer, tmp_path):
    path = tmp_path / "a.jsonl"
    chat = {"messages": [{"role": "user", "content": "Name a tree."}, {"role": "assistant", "content": "Oak."}]}
    other = {"prompt": "Name a tree.", "completion": "Elm."}
    path.write_bytes(jsonl(GOOD, other, chat, {**GOOD, "id": 3}, other))
    fixed = fix(path, tokenizer, "dedupe")
    assert rows_of(fixed) == [GOOD, other]
    assert (fixed.changed, fixed.left_out) == (0, 3)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.jsonl", jsonl({"text": "Grüße – “so”"}).decode().encode("cp1252"), "Grüße – “so”"),
        ("a.jsonl", jsonl({"text": "naïve"}).decode().encode("latin-1"), "naïve"),
        ("a.jsonl", jsonl({"text": "naïve 👍"}).decode().encode("utf-16"), "naïve 👍"),
        ("a.jsonl", jsonl({"text": "naïve 👍"}).decode().encode("utf-16-be"), "naïve 👍"),
        ("a.jsonl", jsonl({"text": "naïve 👍"}).decode().encode("utf-32"), "naïve 👍"),
        ("a.jsonl", jsonl({"text": "naïve 👍"}).decode().encode("utf-8-sig"), "naïve 👍"),
        ("a.jsonl", b'{"text": "half \\ud83d, whole \\ud83d\\udc4d, \\\\ud83d"}', "half \ufffd, whole 👍, \\ud83d"),
        ("a.jsonl", b'{"text": "a\\u0000b\\u001b[0m\\tc"}', "ab[0m\tc"),
        ("a.jsonl", b'{"text": "a\x01b\x00c"}', "abc"),
        ("a.csv", "text\nnaïve\n".encode("cp1252"), "naïve"),
        ("a.json", jsonl({"text": "naïve"}).decode().encode("latin-1"), "naïve"),
    ],
)
def test_convert_writes_clean_utf_8(tokenizer, tmp_path, name, content, expected):
    path = tmp_path / name
    path.write_bytes(content)
    assert rows_of(fix(path, tokenizer, "convert")) == [{"text": expected}]


def test_convert_says_how_many_rows_it_changed(tokenizer, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(jsonl(GOOD, {"text": "naïve"}) + '{"text": "naïve"}\n'.encode("latin-1") + b'{"text": "\\u0001a"}')
    fixed = fix(path, tokenizer, "convert")
    assert (fixed.rows, fixed.changed, fixed.left_out) == (4, 2, 0)


def test_bytes_in_an_unknown_encoding_are_not_guessed_at(tokenizer, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "\x81\x8d"}\n' + jsonl(GOOD))
    with pytest.raises(EngineError, match="Line 1 is not UTF-8"):
        fix(path, tokenizer, "convert")
    assert rows_of(fix(path, tokenizer, "convert", "skip")) == [GOOD]


def test_conversion_keeps_lines_and_their_ends(tmp_path):
    old, new = tmp_path / "a.csv", tmp_path / "b.csv"
    old.write_bytes(b"a,b\r\n\xe9,1\r\n\r\nx,\\ud83d\r\n")
    assert convert(old, new, lambda done: None) == {2}
    assert new.read_bytes() == "a,b\r\né,1\r\n\r\nx,\\ud83d\r\n".encode()  # an escape of JSON means nothing in a table


def test_cleaning_reaches_every_text_of_a_value():
    value = {"a\x00": ["b\x1f", {"c": "\x7fd\n"}, 3, None, True]}
    assert clean(value) == {"a": ["b", {"c": "d\n"}, 3, None, True]}


@pytest.mark.parametrize("most", [56, 64, 200])
@pytest.mark.parametrize(
    ("value", "objective"),
    [
        ({"prompt": LONG, "completion": "Yes."}, "sft"),
        ({"messages": [{"role": "user", "content": LONG}, {"role": "assistant", "content": "Yes."}]}, "sft"),
        ({"prompt": LONG, "chosen": "Yes.", "rejected": "No, never."}, "orpo"),
        ({"prompt": [{"role": "user", "content": LONG}], "chosen": "Yes.", "rejected": "No."}, "dpo"),
    ],
)
def test_trim_shortens_the_start_of_the_prompt_and_keeps_the_answer(tokenizer, tmp_path, value, objective, most):
    path = tmp_path / "a.jsonl"
    path.write_bytes(jsonl(value))
    fixed = fix(path, tokenizer, "trim", max_length=most, objective=objective)
    (row,) = rows_of(fixed)
    assert (fixed.changed, fixed.left_out) == (1, 0)
    assert length(row, tokenizer, objective) <= most
    asked = row.get("prompt", row.get("messages"))
    kept = asked if isinstance(asked, str) else asked[0]["content"]
    assert f" {LONG}".endswith(f" {kept}")  # no word is cut in two
    assert {name: row[name] for name in row if name not in ("prompt", "messages")} == {
        name: value[name] for name in value if name not in ("prompt", "messages")
    }
    # One more word would be one too many.
    longer = LONG[LONG[: -len(kept) - 1].rfind(" ") + 1 :]
    again = {**value, "prompt": longer} if isinstance(asked, str) else None
    assert again is None or length(again, tokenizer, objective) > most


def turns_of(count, *, words=12):
    """A system message and so many exchanges."""
    turns = [{"role": "system", "content": "Be kind."}]
    for number in range(count):
        question = f"{number}? {'mill ' * words}"
        turns += [{"role": "user", "content": question}, {"role": "assistant", "content": f"{number}!"}]
    return turns


@pytest.mark.parametrize("asked", [True, False])
def test_trim_leaves_out_the_last_turns_whole_and_an_answer_stays_last(tokenizer, tmp_path, asked):
    turns = turns_of(6)
    path = tmp_path / "a.jsonl"
    path.write_bytes(jsonl({"messages": [*turns, *[{"role": "user", "content": "And then?"}] * asked]}))
    (row,) = rows_of(fix(path, tokenizer, "trim", max_length=160))
    kept = row["messages"]
    assert 3 <= len(kept) < len(turns)
    assert kept == turns[: len(kept)]
    assert kept[-1]["role"] == "assistant"
    assert length(row, tokenizer) <= 160
    assert length({"messages": turns[: len(kept) + 2]}, tokenizer) > 160


def test_what_trim_leaves_of_a_chat_ends_on_an_answer_that_is_learned(tokenizer, tmp_path):
    turns = turns_of(3)
    turns[4]["weight"] = 0
    whole = length({"messages": turns[:5]}, tokenizer)
    path = tmp_path / "a.jsonl"
    path.write_bytes(jsonl({"messages": turns}))
    (row,) = rows_of(fix(path, tokenizer, "trim", max_length=whole))
    assert row == {"messages": turns[:3]}


def test_trim_leaves_out_the_oldest_messages_of_a_pairs_prompt(tokenizer, tmp_path):
    prompt = [*turns_of(6), {"role": "user", "content": "Which?"}]
    path = tmp_path / "a.jsonl"
    path.write_bytes(jsonl({"prompt": prompt, "chosen": "This.", "rejected": "That one."}))
    (row,) = rows_of(fix(path, tokenizer, "trim", max_length=160, objective="dpo"))
    kept = row["prompt"]
    assert 3 <= len(kept) < len(prompt)
    assert kept == [prompt[0], *prompt[-len(kept) + 1 :]]
    assert kept[1]["role"] == "user"
    assert length(row, tokenizer, "dpo") <= 160
    assert (row["chosen"], row["rejected"]) == ("This.", "That one.")


def user(text):
    return {"role": "user", "content": text}


CALLED = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "now"}}]}
TOLD = {"role": "tool", "content": "12:00"}
YES = {"role": "assistant", "content": "Yes."}


def no_longer_than(characters):
    return lambda value: len(json.dumps(value, ensure_ascii=False)) <= characters


@pytest.mark.parametrize(
    ("text", "room", "kept"),
    [
        ("One two. Three four? Five six seven eight.", 29, "Five six seven eight."),  # a word more would fit
        ("One two.\n\nThree four five six seven.", 28, "Three four five six seven."),
        ("one two three four five six seven eight nine", 20, "six seven eight nine"),  # no sentence begins there
        ("A sentence of words that never ends. Is it so, my?", 46, "of words that never ends. Is it so, my?"),
        (
            "まず一文です。次の文はもっと長いです。そして最後の文です、終わります。",
            20,
            "そして最後の文です、終わります。",
        ),
        ("x" * 60, 20, None),  # a single word stays whole
    ],
)
def test_a_text_is_cut_where_a_sentence_or_a_word_begins(text, room, kept):
    bare = len(json.dumps({"prompt": "", "completion": "Yes."}))
    found = shortened({"prompt": text, "completion": "Yes."}, no_longer_than(bare + room))
    assert (found and found["prompt"]) == kept


@pytest.mark.parametrize(
    ("turns", "kept"),
    [
        # A call of a tool is no end, and its answer stays with it.
        ([user("a"), CALLED, TOLD, YES, user("b" * 200), CALLED, TOLD, YES], [user("a"), CALLED, TOLD, YES]),
        # Where the first question alone is too long its end is kept, with what answers it.
        ([user("word " * 40 + "is it so now?"), YES, user("b"), YES], [user("word word is it so now?"), YES]),
        # An answer too long by itself goes with its question.
        ([user("a"), {**YES, "content": "b" * 200}, user("c"), YES, user("d"), YES], [user("c"), YES, user("d"), YES]),
        ([user("a"), {**YES, "content": "b" * 200}], None),
    ],
)
def test_a_chat_is_shortened_by_whole_turns(turns, kept):
    most = len(json.dumps({"messages": kept})) if kept else 100
    found = shortened({"messages": turns}, no_longer_than(most))
    assert (found and found["messages"]) == kept


@pytest.mark.parametrize(
    "value",
    [
        {"text": LONG},  # nothing in it is a prompt
        {"prompt": "a", "completion": LONG},  # an answer is never cut by us
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": LONG}]},
    ],
)
def test_what_trim_cannot_make_fit_stays_as_it_is(tokenizer, tmp_path, value):
    path = tmp_path / "a.jsonl"
    path.write_bytes(jsonl(value))
    fixed = fix(path, tokenizer, "trim", max_length=32)
    assert rows_of(fixed) == [value]
    assert fixed.changed == 0


def test_shortening_leaves_other_shapes_alone():
    for value in ({}, {"text": "a"}, {"prompt": None}, {"messages": []}, {"messages": [{"role": "user"}]}):
        assert shortened(value, lambda row: True) is None


def test_all_cures_together(tokenizer, tmp_path):
    path = tmp_path / "a.jsonl"
    content = jsonl(GOOD, {"prompt": LONG, "completion": "Yes."}, GOOD, {"prompt": "x"}) + b"{\n"
    path.write_bytes(content + '{"prompt": "naïve?", "completion": "Yes."}\n'.encode("latin-1"))
    fixed = fix(path, tokenizer, *CURES, max_length=64)
    rows = rows_of(fixed)
    assert [row["completion"] for row in rows] == ["Oak.", "Yes.", "Yes."]
    assert rows[2]["prompt"] == "naïve?"
    assert (fixed.changed, fixed.left_out) == (2, 3)


def test_a_foreign_table_becomes_rows_under_our_names(tokenizer, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('question,answer\n"Name a tree.","Oak."\n"Name a tree.","Oak."\n')
    assert rows_of(fix(path, tokenizer, "dedupe", columns="prompt=question, completion=answer")) == [GOOD]


def test_no_file_is_ever_written_over(tokenizer, tmp_path):
    path = tmp_path / "a.v2.jsonl"
    path.write_bytes(jsonl(GOOD))
    names = [fix(path, tokenizer, "dedupe").path.name for _ in range(3)]
    assert names == ["a.v2 (fixed).jsonl", "a.v2 (fixed 2).jsonl", "a.v2 (fixed 3).jsonl"]
    for output in (path, tmp_path / names[0]):
        with pytest.raises(EngineError, match="is there already"):
            fix(path, tokenizer, "dedupe", output=output)
    own = tmp_path / "own.jsonl"
    assert fix(path, tokenizer, "dedupe", output=own).path == own


def test_two_at_a_time_get_two_names(tokenizer, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(jsonl(GOOD))
    config, found = TrainConfig(data=str(path)), []
    threads = [threading.Thread(target=lambda: found.append(apply(config, ["dedupe"], tokenizer))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({fixed.path for fixed in found}) == 8
    assert all(rows_of(fixed) == [GOOD] for fixed in found)


@pytest.mark.parametrize("cures", [["dedupe"], ["convert"]])
def test_stopping_leaves_nothing_behind(tokenizer, tmp_path, cures):
    path = tmp_path / "a.jsonl"
    path.write_bytes(jsonl(*({"text": f"row {n}"} for n in range(20))))
    answers = iter([False] * 5 + [True])
    assert apply(TrainConfig(data=str(path)), cures, tokenizer, stop=lambda: next(answers)) is None
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("cures", [["dedupe"], ["convert", "skip"]])
def test_progress_rises_to_the_end(tokenizer, tmp_path, cures):
    path = tmp_path / "a.jsonl"
    path.write_bytes(jsonl(*({"text": f"row {n}"} for n in range(20))))
    told = []
    apply(TrainConfig(data=str(path)), cures, tokenizer, progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]
    assert len({total for _, total in told}) == 1


@pytest.mark.parametrize(
    ("prepare", "cures", "message"),
    [
        (lambda folder: folder / "none", ["skip"], "has no file to train with"),
        (lambda folder: folder / "all bad", ["skip"], r"No row would be left\."),
        (lambda folder: folder / "one bad", ["skip"], r"No row would be left in train\.jsonl\."),
        (lambda folder: folder / "one bad", ["dedupe"], r"train\.jsonl: Line 1 "),
        (lambda folder: folder / "missing.jsonl", ["skip"], "can't be"),
        (lambda folder: folder / "bad.jsonl", ["skip"], "No row would be left"),
        (lambda folder: folder / "bad.jsonl", ["polish"], "no cure called 'polish'"),
    ],
)
def test_what_cannot_be_done_is_said(tokenizer, tmp_path, prepare, cures, message):
    (tmp_path / "bad.jsonl").write_bytes(b"{\n")
    for name, files in (("none", []), ("all bad", ["a", "b"]), ("one bad", ["train", "valid"])):
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / f"{file}.jsonl").write_bytes(b"{\n")
    before = content(tmp_path)
    with pytest.raises(EngineError, match=message) as caught:
        apply(TrainConfig(data=str(prepare(tmp_path))), cures, tokenizer)
    assert caught.value.hint.endswith(".")
    assert content(tmp_path) == before


def test_a_folder_that_cannot_be_written_to_is_said(tokenizer, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(jsonl(GOOD))
    with pytest.raises(EngineError, match="can't be written") as caught:
        apply(TrainConfig(data=str(path)), ["dedupe"], tokenizer, tmp_path / "nowhere" / "b.jsonl")
    assert caught.value.kind == "disk"


@pytest.fixture
def reported(tokenizer):
    """What `check` tells of a file."""

    def call(path, **settings):
        config = TrainConfig.from_mapping({"data": str(path), **settings})
        return report(load_rows(config, tokenizer))

    return call


@pytest.mark.parametrize(
    ("rows", "settings", "cures"),
    [
        ([GOOD], {}, []),
        ([GOOD, {"prompt": "a"}], {}, [("skip", "Leave out 1 flawed row", 1)]),
        ([GOOD, {"prompt": "a"}, {"a": "b"}], {}, [("skip", "Leave out all 2 flawed rows", 2)]),
        ([GOOD, GOOD, GOOD], {}, [("dedupe", "Leave out 2 repeated rows", 2)]),
        ([{"text": "a\x00"}], {}, [("convert", "Convert 1 row to clean UTF-8", 1)]),
        (
            [{"prompt": LONG, "completion": "Yes."}],
            {"max_length": 64},
            [("skip", "Leave out 1 flawed row", 1), ("trim", "Shorten up to 1 row by turns and sentences", 1)],
        ),
        ([{"text": LONG}], {"max_length": 64}, []),  # cut, and nothing but its end could be left out
        (
            [{"prompt": "a", "chosen": "b", "rejected": "b"}],
            {"objective": "dpo"},
            [("skip", "Leave out 1 flawed row", 1)],
        ),
    ],
)
def test_cures_that_would_help_are_offered_and_help(tokenizer, reported, tmp_path, rows, settings, cures):
    path = tmp_path / "a.jsonl"
    path.write_bytes("".join(json.dumps(row) + "\n" for row in [*rows, {**GOOD, "prompt": "Another?"}]).encode())
    if settings.get("objective"):
        path.write_bytes(jsonl(*rows, {"prompt": "a", "chosen": "b", "rejected": "c"}))
    offered = reported(path, **settings)["cures"]
    assert [(cure["cure"], cure["label"], cure["rows"]) for cure in offered] == cures
    if offered:
        fixed = fix(path, tokenizer, *(cure["cure"] for cure in reversed(offered)), **settings)
        assert reported(fixed.path, **settings)["cures"] == []


def test_a_cure_that_would_leave_no_row_is_not_offered(reported, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(jsonl({"prompt": "a"}, {"a": "b"}))
    assert reported(path)["cures"] == []


def content(folder):
    """What lies in a folder at any depth."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.fixture
def folder(tmp_path):
    """Makes a folder of files; those under "home" are no data."""

    def make(files, name="some.data"):
        for file, data in files.items():
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return tmp_path / name

    return make


def fix_folder(path, tokenizer, *cures, **settings):
    """The result, and what the new folder holds."""
    before = content(path)
    progress, stop = settings.pop("progress", None), settings.pop("stop", lambda: False)
    config = TrainConfig.from_mapping({"data": str(path), **settings})
    try:
        fixed = apply(config, cures, tokenizer, progress=progress, stop=stop)
    finally:
        assert content(path) == before
        assert not any(other.name.startswith(".") for other in path.parent.iterdir())
    return fixed, content(fixed.path) if fixed else {}


ELM = {"prompt": "Another tree?", "completion": "Elm."}
BAD = {"prompt": "x"}


@pytest.mark.parametrize(
    ("files", "cures", "new"),
    [
        # A row that says the same counts across files, and a file of which no row is left isn't written.
        (
            {"train-1.jsonl": jsonl(GOOD, BAD), "train-2.jsonl": jsonl(GOOD), "train-3.jsonl": jsonl(ELM, GOOD)},
            ["skip", "dedupe"],
            {"train-1.jsonl": [GOOD], "train-3.jsonl": [ELM]},
        ),
        # What is kept for validation, or not read, is as it was; what is no data stays behind.
        (
            {
                "train.jsonl": jsonl(GOOD, BAD),
                "valid.jsonl": jsonl(BAD, ELM),
                "test.csv": b"prompt,completion\na,b\n",
                "more.txt": b"Words.\n",
                "README.md": b"About.\n",
                "picture.png": b"...",
            },
            ["skip"],
            {
                "train.jsonl": [GOOD],
                "valid.jsonl": jsonl(BAD, ELM),
                "test.csv": b"prompt,completion\na,b\n",
                "more.txt": b"Words.\n",
            },
        ),
        # Tables and texts become JSON lines, from a folder in the folder too.
        (
            {"data/train.csv": b"question,answer\nName a tree.,Oak.\nx,\n", "data/dev.csv": b"question,answer\na,b\n"},
            ["skip"],
            {"train.jsonl": [GOOD], "dev.csv": b"question,answer\na,b\n"},
        ),
        (
            {"a.txt": b"One.", "b.txt": b"Two.\x01"},
            ["convert"],
            {"a.jsonl": [{"text": "One."}], "b.jsonl": [{"text": "Two."}]},
        ),
        # Of two names that differ in the letters of their endings no row is lost.
        ({"a.jsonl": jsonl(ELM), "a.JSONL": jsonl(GOOD)}, ["dedupe"], {"a.jsonl": [GOOD, ELM]}),
        # A pair stands where its second half was, and one without a partner goes.
        (
            {
                "train-1.jsonl": jsonl({**GOOD, "label": True}, {**ELM, "label": True}),
                "train-2.jsonl": jsonl({**GOOD, "completion": "No.", "label": False}),
            },
            ["skip"],
            {"train-2.jsonl": [{"prompt": GOOD["prompt"], "chosen": "Oak.", "rejected": "No."}]},
        ),
    ],
)
def test_a_folder_is_mended_into_another_one(tokenizer, folder, reported, files, cures, new):
    path = folder(files)
    objective = "dpo" if b"label" in b"".join(files.values()) else "sft"
    fixed, found = fix_folder(path, tokenizer, *cures, objective=objective)
    assert fixed.path == path.with_name("some.data (fixed)")
    assert found == {name: jsonl(*data) if isinstance(data, list) else data for name, data in new.items()}
    assert fixed.rows == sum(len(rows) for rows in new.values() if isinstance(rows, list))
    assert fixed.copied == sum(isinstance(rows, bytes) for rows in new.values())
    before, after = reported(path, objective=objective), reported(fixed.path, objective=objective)
    assert {*cures} <= {cure["cure"] for cure in before["cures"]} | {"dedupe"}
    assert (after["cures"], after["usable"]) == ([], fixed.rows)
    assert before["rows"] - fixed.left_out == fixed.rows


def test_a_folder_by_columns_that_were_named_by_hand_needs_no_naming_again(tokenizer, folder, reported):
    rows = jsonl({"q": "Name a tree.", "a": "Oak."}, {"q": "x", "a": ""})
    path = folder({"train.jsonl": rows, "valid.jsonl": rows, "more.jsonl": rows})
    fixed, found = fix_folder(path, tokenizer, "skip", "dedupe", columns="prompt=q, completion=a")
    assert found == {"train.jsonl": jsonl(GOOD), "valid.jsonl": jsonl(GOOD), "more.jsonl": rows}
    assert (fixed.rows, fixed.left_out, fixed.is_renamed, fixed.copied) == (2, 2, True, 1)
    told = reported(fixed.path)
    assert (told["usable"], told["split"]) == (1, {"train": 1, "valid": 1})
    assert [problem["code"] for problem in told["problems"]] == ["not_read", "in_both"]


def test_no_folder_is_ever_written_over(tokenizer, folder, monkeypatch):
    path = folder({"a.jsonl": jsonl(GOOD)})
    path.with_name("some.data (fixed)").mkdir()
    names = [fix_folder(path, tokenizer, "dedupe")[0].path.name for _ in range(2)]
    assert names == ["some.data (fixed 2)", "some.data (fixed 3)"]
    with pytest.raises(EngineError, match="is there already"):
        apply(TrainConfig(data=str(path)), ["dedupe"], tokenizer, path)
    monkeypatch.chdir(path)  # which has a name even so
    assert apply(TrainConfig(data="."), ["dedupe"], tokenizer).path == path.with_name("some.data (fixed 4)")
    own = path.with_name("own")
    assert apply(TrainConfig(data=str(path)), ["dedupe"], tokenizer, own).path == own
    assert content(own) == content(path)


@pytest.mark.parametrize("cures", [["dedupe"], ["convert", "skip"]])
def test_a_folder_tells_progress_to_the_end_and_can_be_stopped_at_any_point(tokenizer, folder, cures):
    rows = jsonl(*({"text": f"row {n}"} for n in range(5)))
    thumbs = jsonl(*({**GOOD, "prompt": f"{n}", "label": True} for n in range(5)))
    path = folder({"train-1.jsonl": rows, "train-2.jsonl": thumbs, "valid.jsonl": rows, "test.jsonl": rows})
    told = []
    fix_folder(path, tokenizer, *cures, progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]
    assert len({total for _, total in told}) == 1
    before = content(path.parent)
    for steps in range(len(told)):
        answers = iter([False] * steps)
        assert fix_folder(path, tokenizer, *cures, stop=lambda: next(answers, True)) == (None, {})  # noqa: B023
    assert content(path.parent) == before


def test_lengths_are_told_in_a_file_of_their_own(reported, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("question,answer\na,b\n" + f"a,{LONG}\n,c\n")
    found = reported(path, max_length=64)
    sizes = np.load(found["lengths"])
    assert (sizes.dtype, sizes.shape) == (np.int32, (2, 3))
    assert sizes[:, 2].tolist() == [2, 3]
    assert sizes[1, 0] == sizes[0, 0]  # the prompts
    assert sizes[1, :2].sum() == found["longest"]
    assert found["columns"] == {"names": ["question", "answer"], "used": {"prompt": "question", "completion": "answer"}}


def test_old_lengths_leave_the_cache(reported, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.import_module("engine.data.report"), "MAX_LENGTHS_BYTES", 1000)
    path = tmp_path / "a.jsonl"
    for rows in range(1, 20):
        path.write_bytes(jsonl(*({"text": f"{n}"} for n in range(rows))))
        last = reported(path)["lengths"]
    kept = list((tmp_path / "home" / "cache" / "lengths").iterdir())
    assert 1 < len(kept) < 19
    assert sum(file.stat().st_size for file in kept) <= 1000
    assert last in map(str, kept)


def test_a_list_in_one_line_is_converted_in_parts(tmp_path):
    old, new = tmp_path / "a.json", tmp_path / "b.json"
    rows = [{"text": f"{number} naïve 👍, {'word ' * 200}"} for number in range(8_000)]
    rows[4_000] = {"text": "half \ud83d, whole \U0001f44d"}
    old.write_text(json.dumps(rows), encoding="utf-8")
    tracemalloc.start()
    assert convert(old, new, lambda done: None) == {1}
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    rows[4_000] = {"text": "half \ufffd, whole \U0001f44d"}
    assert json.loads(new.read_text(encoding="utf-8")) == rows
    assert peak < old.stat().st_size  # 8 MB; parts are of 1


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16", "utf-32"])
def test_characters_and_escapes_across_parts_stay_whole(tmp_path, monkeypatch, encoding):
    monkeypatch.setattr(convert_module, "_PIECE", 7)
    old, new = tmp_path / "a.json", tmp_path / "b.json"
    text = '[{"text": "naïve, \\ud83d\\udc4d, Grüße, \\u00e4"},\r\n {"text": "b,b"}]'
    old.write_bytes(text.encode(encoding))
    convert(old, new, lambda done: None)
    assert new.read_bytes() == text.encode()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(write_llama(tmp_path_factory.mktemp("llama"), layers=1))


def run(tmp_path, *arguments, status=0):
    """The last line that the command line prints, which is its answer; before it come stages."""
    environment = {"TUNESMITH_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    argv = [sys.executable, "-m", "engine", *map(str, arguments), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == status, done.stderr + done.stdout
    *stages, answer = map(json.loads, done.stdout.splitlines())
    assert all((stage["event"], stage["name"]) == ("stage", "data") for stage in stages)
    return answer


def test_the_command_line_mends_what_check_found(model, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(jsonl(GOOD, GOOD, {"prompt": "a"}) + '{"text": "naïve"}\n'.encode("latin-1"))
    found = run(tmp_path, "check", path, "--model", model, status=2)
    assert (found["rows"], found["usable"]) == (4, 2)
    cures = [part for cure in found["cures"] for part in ("--cure", cure["cure"])]
    assert cures == ["--cure", "skip", "--cure", "convert", "--cure", "dedupe"]
    fixed = run(tmp_path, "fix", path, "--model", model, *cures)
    assert fixed == {
        "path": str(tmp_path / "a (fixed).jsonl"),
        "rows": 2,
        "changed": 1,
        "left_out": 2,
        "is_renamed": False,
        "copied": 0,
    }
    again = run(tmp_path, "check", fixed["path"], "--model", model)
    assert (again["rows"], again["usable"], again["cures"]) == (2, 2, [])


def test_the_command_line_refuses_in_words(model, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(jsonl(GOOD))
    for arguments in (("--cure", "polish"), ("--cure", "skip", "--output", path)):
        failed = run(tmp_path, "fix", path, "--model", model, *arguments, status=2)
        assert failed["event"] == "failed"
        assert failed["hint"].endswith(".")


# The command line as it is, but that it tells of every block of rows.
CHATTY = "import sys, engine.cli as cli; cli._SECONDS_BETWEEN_STAGES = 0; sys.exit(cli.main(sys.argv[1:]))"


@pytest.mark.parametrize("command", [["check"], ["fix", "--cure", "dedupe"], ["fix", "--cure", "convert"]])
def test_stages_are_told_and_a_stop_leaves_nothing_behind(model, tmp_path, command):
    path = tmp_path / "a.jsonl"
    path.write_bytes(jsonl(*({"prompt": f"{n}?", "completion": LONG} for n in range(20_000))))
    argv = [sys.executable, "-c", CHATTY, command[0], str(path), "--model", model, *command[1:], "--json"]
    environment = {"TUNESMITH_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment) as child:
        stage = json.loads(child.stdout.readline())
        child.terminate()
        rest = [json.loads(line) for line in child.stdout]
    assert child.returncode == 130
    assert (stage["event"], stage["name"]) == ("stage", "data")
    assert 0 < stage["done"] < stage["total"]
    assert all(line.get("event") == "stage" for line in rest)  # no answer: it would tell of a part only
    assert [file.name for file in tmp_path.iterdir() if file.name != "home"] == ["a.jsonl"]
    kept = [file for file in (tmp_path / "home").rglob("*") if file.is_file() and "tokens" in file.parts]
    assert kept == []
