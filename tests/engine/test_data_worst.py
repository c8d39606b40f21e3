"""The worst that can be opened: refused or named in words, never a traceback and never a wait without end."""

import datetime
import json
import os
import random
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.config import TrainConfig
from engine.data import load_rows, preview_rows, report
from engine.data.cache import cache_folder
from engine.data.fixes import CURES, apply
from engine.errors import EngineError

GOOD = '{"prompt": "a", "completion": "b"}\n'
DAY = datetime.date(2024, 2, 29)
WORD = "word " * 10


def nested(depth):
    return "[" * depth + "]" * depth


def parquet(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path.read_bytes()


def half_of(path):
    whole = parquet(path, text=[f"{number} {WORD}" for number in range(1000)])
    return whole[: len(whole) // 2]


FILES = {
    "nothing": ("a.jsonl", b""),
    "noise": ("a.jsonl", random.Random(3).randbytes(200_000)),
    "noise in a table": ("a.csv", random.Random(4).randbytes(200_000)),
    "noise in a list": ("a.json", b"[" + random.Random(5).randbytes(200_000)),
    "noise in a text": ("a.md", random.Random(6).randbytes(200_000)),
    "noise in a Parquet file": ("a.parquet", random.Random(7).randbytes(200_000)),
    "zeros": ("a.jsonl", bytes(500_000)),
    "one quotation mark": ("a.csv", b'prompt,completion\na,b\n"c,d\n' + b"e,f\n" * 5000),
    "quotation marks only": ("a.csv", b"prompt,completion\n" + b'"' * 100_001),
    "brackets only": ("a.json", b"[" * 300_000),
    "nested by the thousand": ("a.jsonl", f'{{"text": {nested(10_000)}}}\n{GOOD}'.encode()),
    "a list nested by the thousand": ("a.json", f'[{{"text": {nested(10_000)}}}, {GOOD}]'.encode()),
    "objects nested by the thousand": ("a.jsonl", ('{"a":' * 10_000 + "1" + "}" * 10_000 + f"\n{GOOD}").encode()),
    "a column for each of many": (
        "a.csv",
        (",".join(map("c{}".format, range(30_000))) + "\n" + "1," * 29_999 + "1\n").encode(),
    ),
    "a field for each of many": ("a.jsonl", json.dumps({f"c{n}": n for n in range(100_000)}).encode()),
    "many lines that are nothing": ("a.jsonl", b"{\n" * 20_000),
}
FILES |= {
    f"{field} nested by {depth}": (
        "a.jsonl",
        (GOOD[:-2] + f', "{field}": {nested(depth)}, "b": "\\u00e4"}}\n').encode() * 2,
    )
    for depth in (200, 480, 800, 950)
    for field in ("note", "tools", "prompt", "messages", "chosen", "label")
}


def all_of(config, tokenizer):
    """What the commands do with the data, as far as they come; the refusal that ended it, if any."""
    rows = load_rows(config, tokenizer)
    dataset = rows.dataset
    errors = sum(found.rows for found in rows.problems if found.severity == "error" and found.line)
    assert dataset.rows == len(dataset.examples) + errors
    json.dumps(report(rows), allow_nan=False).encode()
    for jump in ("", "problem"):
        page = preview_rows(dataset.path, tokenizer, config.max_length, 1, 4, config.objective, jump=jump)
        json.dumps(page, allow_nan=False).encode()
    return rows


def in_words(refusal):
    assert refusal.message.endswith(".")
    assert refusal.hint.endswith(".")
    assert refusal.kind == "request"


@pytest.mark.parametrize("objective", ["sft", "dpo"])
@pytest.mark.parametrize("kind", FILES)
def test_files_that_are_no_data_are_refused_or_named(tokenizer, tmp_path, kind, objective):
    name, content = FILES[kind]
    path = tmp_path / name
    path.write_bytes(content)
    config = TrainConfig(data=str(path), objective=objective)
    try:
        all_of(config, tokenizer)
    except EngineError as refusal:
        in_words(refusal)
    try:
        fixed = apply(config, CURES, tokenizer)
    except EngineError as refusal:
        in_words(refusal)
    else:
        again = all_of(TrainConfig(data=str(fixed.path), objective=objective), tokenizer)
        assert again.dataset.rows == len(again.dataset.examples) == fixed.rows


def test_a_parquet_file_cut_in_half_is_refused(tokenizer, tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(half_of(path))
    with pytest.raises(EngineError, match="no whole Parquet file") as caught:
        load_rows(TrainConfig(data=str(path)), tokenizer)
    in_words(caught.value)


@pytest.mark.parametrize(
    "columns",
    [
        {"prompt": ["a"], "completion": [DAY]},
        {"prompt": [[["a"]]], "completion": [[["b"], ["c"]]]},
        {"messages": [[{"role": "user", "content": [["a"]]}]]},
        {"messages": [[{"role": DAY, "content": "a"}]]},
        {"prompt": [DAY, DAY], "completion": [b"\xff", b"b"], "label": [True, False]},
        {"prompt": ["a", "a"], "completion": [DAY, DAY], "label": [True, False]},
        {"chosen": [[DAY]], "rejected": [[b"\xff"]]},
        {"text": [DAY], "more": [{"a": [b"\xff"]}]},
        {"text": [None], "none": pa.nulls(1)},
    ],
)
@pytest.mark.parametrize("objective", ["sft", "dpo"])
def test_values_that_only_tables_hold_are_named(tokenizer, tmp_path, columns, objective):
    path = tmp_path / "a.parquet"
    parquet(path, **columns)
    config = TrainConfig(data=str(path), objective=objective)
    rows = all_of(config, tokenizer)
    assert not rows.dataset.examples
    assert any(found.severity == "error" for found in rows.problems)
    with pytest.raises(EngineError, match="No row would be left") as caught:
        apply(config, CURES, tokenizer)
    in_words(caught.value)


def test_what_only_tables_hold_beside_a_good_row_does_no_harm(tokenizer, tmp_path):
    path = tmp_path / "a.parquet"
    parquet(path, text=["One.", "One."], day=[DAY, DAY], raw=[b"\xff", b"\xff"], number=[float("nan"), 1.0])
    config = TrainConfig(data=str(path))
    assert len(all_of(config, tokenizer).dataset.examples) == 2
    fixed = apply(config, ["dedupe"], tokenizer)
    assert json.loads(fixed.path.read_text())["day"] == "2024-02-29"


def empty(folder):
    folder.mkdir()


def of_empty_files(folder):
    folder.mkdir()
    for name in ("train.jsonl", "valid.jsonl"):
        (folder / name).touch()


def of_noise(folder):
    folder.mkdir()
    (folder / "train.bin").write_bytes(bytes(100))


def of_folders(folder):
    (folder / "train.jsonl").mkdir(parents=True)


def of_a_loop(folder):
    folder.mkdir()
    (folder / "train.jsonl").symlink_to("valid.jsonl")
    (folder / "valid.jsonl").symlink_to("train.jsonl")


def loop(path):
    path.symlink_to(path.name)


def dangling(path):
    path.symlink_to("nowhere")


def below_a_file(path):
    path.parent.joinpath("file").write_text(GOOD)
    path.symlink_to("file/a.jsonl")


def pipe(path):
    os.mkfifo(path)


def of_a_pipe(folder):
    folder.mkdir()
    os.mkfifo(folder / "train.jsonl")


@pytest.mark.parametrize(
    "make",
    [empty, of_noise, of_folders, of_a_loop, of_a_pipe, loop, dangling, below_a_file, pipe],
    ids=lambda make: make.__name__,
)
@pytest.mark.parametrize("name", ["data.jsonl", "data.csv", "data.parquet", "data"])
def test_what_is_no_file_is_refused(tokenizer, tmp_path, make, name):
    path = tmp_path / name
    make(path)
    for work in (lambda config: load_rows(config, tokenizer), lambda config: apply(config, CURES, tokenizer)):
        with pytest.raises(EngineError) as caught:
            work(TrainConfig(data=str(path)))
        in_words(caught.value)


def test_a_folder_of_empty_files_has_no_rows(tokenizer, tmp_path):
    of_empty_files(tmp_path / "data")
    rows = all_of(TrainConfig(data=str(tmp_path / "data")), tokenizer)
    assert {found.code for found in rows.problems} == {"empty"}


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet", "folder"])
def test_what_may_not_be_read_is_refused(tokenizer, tmp_path, name):
    path = tmp_path / name
    path.mkdir() if name == "folder" else path.write_text(GOOD)
    path.chmod(0)
    with pytest.raises(EngineError) as caught:
        load_rows(TrainConfig(data=str(path)), tokenizer)
    path.chmod(0o700)
    in_words(caught.value)


@pytest.mark.parametrize("change", ["grown", "cut", "gone", "replaced"])
def test_a_file_may_change_while_it_is_read(tokenizer, tmp_path, change):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"{n}", "completion": "b"}) + "\n" for n in range(3000)))
    told = []

    def progress(done, total):
        if told:
            return
        told.append(done)
        match change:
            case "grown":
                with path.open("a") as file:
                    file.write(GOOD * 100)
            case "cut":
                os.truncate(path, 20_000)
            case "gone":
                path.unlink()
            case "replaced":
                path.unlink()
                path.write_text('{"text": "other"}\n')

    rows = load_rows(TrainConfig(data=str(path)), tokenizer, progress)
    assert told
    dataset = rows.dataset
    errors = sum(found.rows for found in rows.problems if found.severity == "error")
    assert dataset.rows == len(dataset.examples) + errors > 0
    assert [folder for folder in cache_folder().iterdir() if folder.is_dir()] == []  # not kept as what the file held


def test_many_read_the_same_file_at_once(tokenizer, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(GOOD * 50)
    found = []
    work = [
        threading.Thread(target=lambda: found.append(load_rows(TrainConfig(data=str(path)), tokenizer)))
        for _ in range(6)
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert [rows.dataset.rows for rows in found] == [50] * 6
