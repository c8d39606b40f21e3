"""A file that several processes share comes out as one process makes it, whatever becomes of the others."""

import json
import os
import random
import signal

import pytest
from tokenizer_folders import chatml

from engine.data import crew as crews
from engine.data import load_dataset, load_tokenizer, open_source
from engine.data.blocks import BlockMaker
from engine.data.crew import SHARED_BYTES, Crew
from engine.data.shaping import Shaper
from engine.data.store import cache_folder

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }} {{ strftime_now('%H:%M:%S.%f') }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor %}"
)


SHAPER = Shaper({"prompt": "prompt", "completion": "completion"}, are_given=False, is_table=False)


@pytest.fixture(autouse=True)
def two_workers(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 3)  # on any machine


@pytest.fixture
def tokenizer(tmp_path):
    return load_tokenizer(chatml(tmp_path / "model", TEMPLATE))


def write(path, count):
    """Rows of which every fifth has something to say about: errors, remarks, rows that come again."""
    chance = random.Random(4)
    odd = ["{", '{"prompt": "a"}', '{"text": "\\ud83d"}', '{"messages": []}', "[" * 600, "", '{"text": ' + "[" * 400]
    odd[-1] += "]" * 400 + "}"
    said = ["write to ada@lovelace.org", "a \x07 bell", "<|im_end|>", "it is\ufffd lost", "the mill"]
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            if chance.random() < 0.1:
                file.write(chance.choice(odd) + "\n")
                continue
            words = " ".join(
                chance.choices(["mill", "river,", "oak.\n\nThe", f"n{number}", "é"], k=chance.randrange(1, 60))
            )
            completion = chance.choice(said) if chance.random() < 0.1 else words
            file.write(json.dumps({"prompt": words[:30].strip() or "x", "completion": completion}) + "\n")
    return path


def parts_of(path, size=1500):
    """The file in parts, every other one as lines that are still to be read; the number of each as the bytes read."""
    portions = open_source(path).portions(size)
    return [(SHAPER.rows(one) if number % 2 else one, number) for number, one in enumerate(portions)]


def handed_out(crew, parts, send=lambda number: None):
    """The parts, once every worker has begun; `send` is told the number of each before it is taken."""
    for worker in crew.workers:
        worker.listen(wait=True)
    for number, part in enumerate(parts):
        send(number)
        yield part


def blocks(tokenizer, parts, size, ends=None):
    """What a crew makes, and how much each worker took part; the first one gets the signal that `ends` names."""
    with Crew(BlockMaker(tokenizer, "sft", "all", SHAPER), size) as crew:

        def send(number):
            if ends and number in (0, 5):  # it stands still, with parts of its own, before it ends
                os.kill(crew.workers[0].process.pid, ends if number else signal.SIGSTOP)

        found = list(crew.blocks(handed_out(crew, parts, send)))
        return found, [worker.taken for worker in crew.workers]


def test_blocks_are_the_same_and_in_order(tokenizer, tmp_path):
    parts = parts_of(write(tmp_path / "a.jsonl", 1200))
    alone, nobody = blocks(tokenizer, parts, SHARED_BYTES - 1)
    assert nobody == []
    shared, taken = blocks(tokenizer, parts, SHARED_BYTES)
    assert min(taken) > 1
    assert shared == alone
    assert [done for _, done in shared] == list(range(len(parts)))
    assert {problem.code for block, _ in alone for problem in block.problems} >= {"special_token", "broken_json"}


def test_what_a_worker_leaves_is_done_here(tokenizer, tmp_path):
    parts = parts_of(write(tmp_path / "a.jsonl", 1200))
    alone, _ = blocks(tokenizer, parts, 0)
    shared, taken = blocks(tokenizer, parts, SHARED_BYTES, signal.SIGKILL)
    assert shared == alone
    assert taken[0] == 0 < taken[1]


def test_a_worker_with_other_files_takes_no_part(tokenizer, tmp_path):
    parts = parts_of(write(tmp_path / "a.jsonl", 400))
    alone, _ = blocks(tokenizer, parts, 0)
    chatml(tmp_path / "model", "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}")
    shared, taken = blocks(tokenizer, parts, SHARED_BYTES)
    assert (shared, taken) == (alone, [0, 0])


def test_no_worker_and_no_file_outlives_the_crew(tokenizer, tmp_path):
    parts = parts_of(write(tmp_path / "a.jsonl", 400))
    with Crew(BlockMaker(tokenizer, "sft", "all", SHAPER), SHARED_BYTES) as crew:
        next(crew.blocks(handed_out(crew, parts)))
    assert [worker.process.poll() for worker in crew.workers] == [-signal.SIGKILL] * 2
    assert list(cache_folder().iterdir()) == []


@pytest.mark.slow
def test_a_store_is_the_same_byte_for_byte(tokenizer, tmp_path, monkeypatch):
    path = write(tmp_path / "a.jsonl", 60_000)

    def store(threshold):
        monkeypatch.setattr(crews, "SHARED_BYTES", threshold)
        monkeypatch.setenv("TUNESMITH_HOME", str(tmp_path / f"home {threshold}"))
        told = []
        dataset = load_dataset(path, tokenizer, 500, progress=lambda *at: told.append(at))
        (folder,) = cache_folder().iterdir()
        return {file.name: file.read_bytes() for file in folder.iterdir()}, told, dataset.problems

    assert store(0) == store(10**12)
