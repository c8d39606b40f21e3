import errno
import importlib
import itertools
import json
import os
import random
import sys

import numpy as np
import pytest
from tokenizer_folders import KINDS, PHI3, SMOLLM2, chatml, llama3

from engine.config import TrainConfig
from engine.data import (
    Comparison,
    Conversation,
    Message,
    Problem,
    building,
    load_dataset,
    load_rows,
    load_tokenizer,
    preview_rows,
    usable_rows,
)
from engine.data import dataset as datasets
from engine.data import store as stores
from engine.data.bulk import tokenize_all
from engine.data.slots import NotPlainError, plain_layout
from engine.data.store import cache_folder
from engine.data.template import DEFAULT_TEMPLATE, ChatTemplate
from engine.data.tokenize import Pair, cut_to, tokenize_whole
from engine.errors import EngineError

LONG = "the river ran past the mill " * 20

HEADERS = (
    "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '<|im_end|>\n\n' + m['content'] | trim }}"
    "{{ '<|endoftext|>' }}{% endfor %}"
)
THINKING = (
    "{%- set ns = namespace(last=messages|length - 1) %}{%- for m in messages %}{%- set content = m.content %}"
    "{%- if m.role == 'assistant' and '</think>' in content %}{%- set content = content.split('</think>')[-1] %}"
    "{%- endif %}{{- '<|im_start|>' ~ m.role ~ '\n' ~ content.lstrip('\n') ~ '<|im_end|>\n' }}{%- endfor %}"
)
MACRO = (
    "{% macro say(role, content) %}<|im_start|>{{ role }}\n{{ content | trim }}<|im_end|>\n{% endmacro %}"
    "{% for m in messages %}{{ say(m.role, m.content) }}{% endfor %}"
)
LOOKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if 'sky' in m.content %}!{% endif %}{{ m.content }}<|im_end|>"
    "{% endfor %}"
)
PLAIN = {
    "smollm2": SMOLLM2,
    "headers": HEADERS,
    "thinking": THINKING,
    "macro": MACRO,
    "looking": LOOKING,
    "default": DEFAULT_TEMPLATE,
}
NOT_PLAIN = {
    "upper": "{{ messages[0].content | upper }}",
    "first letter": "{{ messages[0].content[0] }}",
    "length": "{{ messages[0].content | length }}",
    "equal": "{% if messages[0].content == 'Hi' %}Hello{% else %}{{ messages[0].content }}{% endif %}",
    "compared": "{% if messages[0].content < 'm' %}a{% endif %}{{ messages[0].content }}",
    "inside": "{% if messages[0].content in 'yes no' %}a{% endif %}{{ messages[0].content }}",
    "replaced": "{{ messages[0].content | replace('a', 'b') }}",
    "replaced by method": "{{ messages[0].content.replace('a', 'b') }}",
    "formatted": "{{ '%s' % messages[0].content }}",
    "formatted in a list": "{{ '%s%s' % ('a', messages[0].content) }}",
    "format": "{{ '{}'.format(messages[0].content) }}",
    "json": "{{ messages | tojson }}",
    "joined": "{{ messages | map(attribute='content') | join(' ') }}",
    "a block": "{% set text %}{{ messages[0].content }}{% endset %}{{ text | upper }}",
    "a macro's text": "{% macro say(x) %}{{ x }}{% endmacro %}{{ say(messages[0].content) | upper }}",
    "looked for across a seam": "{% if 'a b' in 'a ' + messages[0].content %}c{% endif %}{{ messages[0].content }}",
    "looped over": "{% for letter in messages[0].content %}{{ letter }}-{% endfor %}",
    "a word of many": "{{ messages[0].content.split()[0] }}",
    "stripped of letters": "{{ messages[0].content.strip('ab') }}",
    "a refusal": "{{ raise_exception('Not ' + messages[0].content) }}",
}
SCRAPS = [
    *"abc ABC.,'12/_é\n\t",
    " ",
    "  ",
    "\n\n",
    "the mill ",
    "What's ",
    " sky",
    "😀",
    "日本",
    "\u0301",
    "\xa0",
    "\x1c",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<|im",
    "_end|>",
]


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizers")
    own = {name: load_tokenizer(chatml(folder / name, template)) for name, template in PLAIN.items()}
    others = {name: load_tokenizer(make(folder / f"kind {name}")) for name, make in KINDS.items()}
    bos = load_tokenizer(llama3(folder / "bos", HEADERS))
    return {**own, **others, "bos": bos}


def random_rows(seed, count):
    chance = random.Random(seed)

    def text():
        scraps = SCRAPS if chance.random() < 0.3 else SCRAPS[:-5]
        said = "".join(chance.choices(scraps, k=chance.randrange(1, 30)))
        return (said if chance.random() < 0.3 else said.strip()) or "x"

    def message(role):
        return Message(role, text(), is_context=role == "assistant" and chance.random() < 0.2)

    for line in range(1, count + 1):
        if chance.random() < 0.1:
            yield Conversation(line, "text", (), text())
            continue
        roles = ["system"] * (chance.random() < 0.3) + ["user", "assistant"] * chance.randrange(1, 4)
        context = chance.randrange(len(roles)) if chance.random() < 0.3 else 0
        yield Conversation(line, "messages", tuple(message(role) for role in roles), "", context)


def as_tuple(row):
    if isinstance(row, Problem):
        return row.code, row.message
    return row.ids.tolist(), row.trained.tolist()


def example_of(side):
    ids = np.frombuffer(side.ids, np.int32)
    trained = np.zeros(len(ids), bool)
    for begin, end in side.ranges:
        trained[begin:end] = True
    return ids.tolist(), trained.tolist()


@pytest.mark.parametrize("name", [*PLAIN, *KINDS, "bos"])
def test_rows_at_once_have_the_tokens_of_each_by_itself(tokenizers, name):
    tokenizer = tokenizers[name]
    rows = list(random_rows(1, 400))
    found = tokenize_all(rows, tokenizer) + tokenize_all(rows, tokenizer)  # new pieces, then known ones
    for row, side in zip(rows * 2, found, strict=True):
        slow = tokenize_whole(row, tokenizer)
        if isinstance(side, Problem):
            assert as_tuple(side) == as_tuple(slow)
        else:
            assert example_of(side) == as_tuple(slow)


@pytest.mark.parametrize("name", ["smollm2", "headers", "thinking", "macro"])
def test_most_rows_take_the_short_way(tokenizers, name):
    rows = [row for row in random_rows(2, 200) if not any("<" in message.content for message in row.messages)]
    stripped = [row for row in rows if all(message.content == message.content.strip() for message in row.messages)]
    found = tokenizers[name].forms.encode(stripped)
    long_way = [row for row, side in zip(stripped, found, strict=True) if side is None]
    # What the template or a tokenizer looks for may still be there by chance.
    assert len(long_way) < len(stripped) / 4


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_a_template_that_looks_at_contents_is_not_plain(name):
    template = ChatTemplate(NOT_PLAIN[name])
    with pytest.raises(NotPlainError):
        plain_layout(template.environment, template.source, template.values(), ("user", "assistant"))


def test_what_a_template_asks_of_contents_is_noted():
    template = ChatTemplate(THINKING)
    layout = plain_layout(template.environment, template.source, template.values(), ("user", "assistant"))
    assert layout.absent == {"</think>"}
    assert layout.stripped
    assert layout.literals == ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>\n")
    assert layout.fits(["a", "b"], layout.absent)
    for contents in (["a ", "b"], ["a", "x</think>b"], ["", "b"]):
        assert not layout.fits(contents, layout.absent)


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def pairs_and_rows(seed, count):
    chance = random.Random(seed)
    for _ in range(count):
        prompt, *answers = (" ".join(chance.choices(["mill", "river", "oak", "<|im_end|>"], k=chance.randrange(1, 40)))
                            for _ in range(3))  # fmt: skip
        yield (
            {"prompt": prompt, "chosen": answers[0], "rejected": answers[chance.randrange(2)]},
            {
                "prompt": prompt,
                "completion": answers[0],
            },
        )


@pytest.mark.parametrize("max_length", [8, 24, 33, 60, 5000])
@pytest.mark.parametrize("objective", ["sft", "orpo"])
def test_a_cut_view_counts_what_its_items_hold(tokenizers, tmp_path, objective, max_length):
    path = write(tmp_path / "a.jsonl", [both[objective == "sft"] for both in pairs_and_rows(3, 80)])
    dataset = load_dataset(path, tokenizers["smollm2"], max_length, objective)
    whole = load_dataset(path, tokenizers["smollm2"], 10**6, objective).rendered
    assert len(whole) == 80
    cut = [cut_to(item, max_length) for item in whole]
    usable = [item for item in cut if not isinstance(item, Problem)]
    items = dataset.examples
    assert [item.line for item in items] == [item.line for item in usable] == items.lines.tolist()
    assert items.tokens().tolist() == [item.tokens for item in usable]
    assert items.tokens(shared=False).tolist() == [item.tokens_apart for item in usable]
    assert items.trained.sum(axis=1).tolist() == [item.trained_tokens for item in usable]
    assert items.lengths.max(axis=1, initial=0).tolist() == [item.length for item in usable]
    assert items.is_cut.tolist() == [item.cut > 0 for item in usable]
    for mine, other in zip(items, usable, strict=True):
        for side, same in zip(sides(mine), sides(other), strict=True):
            assert side.ids.tolist() == same.ids.tolist()
            assert side.trained.tolist() == same.trained.tolist()
            assert side.cut == same.cut
    if objective == "orpo":
        same = [item.chosen.ids.tolist() == item.rejected.ids.tolist() for item in usable]
        assert items.is_identical.tolist() == same
    named = {line for problem in dataset.problems if problem.severity == "error" for line in lines_of(problem)}
    assert named == {item.line for item in cut if isinstance(item, Problem)}
    told = sum(problem.rows for problem in dataset.problems if problem.code == "cut")
    assert told == sum((side.cut > 0) for item in usable for side in sides(item))


def sides(item):
    return (item.chosen, item.rejected) if isinstance(item, Pair) else (item,)


def lines_of(problem):
    if problem.lines:
        return itertools.chain.from_iterable(range(first, last + 1) for first, last in problem.lines)
    return [problem.line]


def test_many_rows_that_are_cut_are_all_named(tokenizers, tmp_path):
    rows = [{"prompt": "a", "completion": "the mill " * (40 if n % 3 else 1)} for n in range(600)]
    dataset = load_dataset(write(tmp_path / "a.jsonl", rows), tokenizers["smollm2"], 60)
    cut = [problem for problem in dataset.problems if problem.code == "cut"]
    assert len(cut) == 101
    assert sorted(line for problem in cut for line in lines_of(problem)) == [n + 1 for n in range(600) if n % 3]


def test_the_second_opening_reads_the_store(tokenizers, tmp_path):
    path = write(tmp_path / "a.jsonl", [{"prompt": "Name a tree.", "completion": f"Oak {n}."} for n in range(9)])
    told = []
    first = load_dataset(path, tokenizers["smollm2"], 500, progress=lambda *at: told.append(at))
    assert told
    told.clear()
    again = load_dataset(path, tokenizers["smollm2"], 60, progress=lambda *at: told.append(at))
    assert not told
    assert [item.ids[:60].tolist() for item in first.examples] == [item.ids.tolist() for item in again.examples]
    assert len(list(cache_folder().iterdir())) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda path, given: path.write_text(path.read_text().replace("Oak", "Elm")),
        lambda path, given: given.update(trained_turns="last"),
        lambda path, given: given.update(columns="prompt=completion, completion=prompt"),
        lambda path, given: given.update(objective="dpo"),
    ],
)
def test_what_changes_tokens_is_another_store(tokenizers, tmp_path, change):
    path = write(tmp_path / "a.jsonl", [{"prompt": "Name a tree.", "completion": "Oak."}])
    given = {}
    load_dataset(path, tokenizers["smollm2"], 50)
    change(path, given)
    load_dataset(path, tokenizers["smollm2"], 50, **given)
    load_dataset(path, tokenizers["headers"], 50)
    assert len(list(cache_folder().iterdir())) == 3


def test_a_line_that_moves_to_the_next_file_is_named_there(tokenizers, tmp_path):
    first, second = tmp_path / "train-1.jsonl", tmp_path / "train-2.jsonl"
    write(first, [{"prompt": "Name a tree.", "completion": "Oak."}, {"prompt": "Name two."}])
    write(second, [{"prompt": "Name a river.", "completion": "Elbe."}])

    def flawed():
        problems = load_dataset(tmp_path, tokenizers["smollm2"], 50).problems
        return [(problem.file, problem.line) for problem in problems if problem.severity == "error"]

    assert flawed() == [("train-1.jsonl", 2)]
    *kept, moved = first.read_bytes().splitlines(keepends=True)
    first.write_bytes(b"".join(kept))
    second.write_bytes(moved + second.read_bytes())
    assert flawed() == [("train-2.jsonl", 1)]


def test_two_builds_of_the_packaged_program_share_no_tokens(tokenizers, tmp_path, monkeypatch):
    path = write(tmp_path / "a.jsonl", [{"prompt": "Name a tree.", "completion": "Oak."}])
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    for build in ("one", "another", "one"):
        program = tmp_path / build / "Tunesmith"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"the code of {build} build")
        monkeypatch.setattr(sys, "executable", str(program))
        load_dataset(path, tokenizers["smollm2"], 50)
    assert len(list(cache_folder().iterdir())) == 2


@pytest.mark.parametrize("damage", ["cut", "gone", "meta", "folder"])
def test_a_damaged_store_is_made_anew(tokenizers, tmp_path, damage):
    path = write(tmp_path / "a.jsonl", [{"prompt": "Name a tree.", "completion": f"Oak {n}."} for n in range(9)])
    whole = [item.ids.tolist() for item in load_dataset(path, tokenizers["smollm2"], 50).examples]
    (folder,) = cache_folder().iterdir()
    match damage:
        case "cut":
            (folder / "ids").write_bytes((folder / "ids").read_bytes()[:-4])
        case "gone":
            (folder / "ends").unlink()
        case "meta":
            (folder / "meta.json").write_text('{"rows": 9}')
        case "folder":
            (folder / "meta.json").write_text("[")
    assert [item.ids.tolist() for item in load_dataset(path, tokenizers["smollm2"], 50).examples] == whole
    assert [entry.name for entry in cache_folder().iterdir()] == [folder.name]


@pytest.mark.parametrize("cause", [errno.EMFILE, errno.EIO, errno.ENOENT])
def test_a_store_that_cannot_be_read_now_or_comes_meanwhile_is_not_removed(tokenizers, tmp_path, monkeypatch, cause):
    load_dataset(write(tmp_path / "a.jsonl", [{"text": "The mill."}]), tokenizers["smollm2"], 50)
    (folder,) = cache_folder().iterdir()
    if cause == errno.ENOENT:
        elsewhere = folder.rename(tmp_path / "elsewhere")

    def read(place):
        if cause == errno.ENOENT:
            elsewhere.rename(place)  # by another process
        raise OSError(cause, os.strerror(cause))

    with monkeypatch.context() as patch:
        patch.setattr(stores, "_read", read)
        assert stores.find_store(folder.name) is None
    if cause == errno.ENOENT and not folder.exists():
        elsewhere.rename(folder)
    assert stores.find_store(folder.name).meta["rows"] == 1


def test_the_cache_is_bounded_and_the_oldest_goes_first(tokenizers, tmp_path, monkeypatch):
    def open_file(number):
        path = write(tmp_path / f"{number}.jsonl", [{"text": f"The mill {number}."}])
        return load_dataset(path, tokenizers["smollm2"], 50).examples

    open_file(0)
    (first,) = cache_folder().iterdir()
    size = sum(file.stat().st_size for file in first.iterdir())
    monkeypatch.setattr(stores, "MAX_CACHE_BYTES", int(2.5 * size))
    open_file(1)
    os.utime(first, (1, 1))
    kept = open_file(2)
    assert not first.exists()
    assert len(list(cache_folder().iterdir())) == 2
    assert len(kept[0].ids)


def test_a_stopped_reading_is_not_kept(tokenizers, tmp_path, monkeypatch):
    monkeypatch.setattr(building, "BYTES", 1)  # a line at a time
    path = write(tmp_path / "a.jsonl", [{"text": f"The mill {n}."} for n in range(9)])
    answers = iter([False] * 4 + [True])
    dataset = load_dataset(path, tokenizers["smollm2"], 50, stop=lambda: next(answers))
    assert (dataset.rows, len(dataset.examples)) == (4, 4)
    assert [item.line for item in dataset.examples] == [1, 2, 3, 4]
    assert list(cache_folder().iterdir()) == []


def test_an_answer_of_weight_0_is_read_and_not_learned(tokenizers, tmp_path):
    def row(*weights):
        texts = ("What is oak?", "A tree.", "And elm?", "Another.")
        told = [{"role": role, "content": text} for role, text in zip(("user", "assistant") * 2, texts, strict=True)]
        for number, weight in zip((1, 3), weights, strict=True):
            told[number] |= {} if weight is None else {"weight": weight}
        return {"messages": told}

    weights = [(None, None), (1, 1.0), (0, 1), (None, 0), (0, None), (False, True), (0, 0), (0.5, 1), (0, "0")]
    path = write(tmp_path / "a.jsonl", [row(*one) for one in weights])
    data = load_dataset(path, tokenizers["smollm2"], 500)
    rows = preview_rows(path, tokenizers["smollm2"], 500, 1, 6)["rows"]
    learned = ["".join(token["text"] for token in row["tokens"] if token["trained"]) for row in rows]
    first, second = "A tree.<|im_end|>", "Another.<|im_end|>"
    assert learned == [first + second, first + second, second, first, second, second]
    found = {one.line: one.code for one in data.problems if one.severity == "error"}
    assert found == {7: "nothing_to_train", 8: "weight", 9: "weight"}
    same = [one.lines for one in data.problems if one.code == "duplicates"]
    assert same == [((1, 2),), ((3, 3), (5, 6))]


def test_only_the_last_turn_is_trained_when_asked(tokenizers, tmp_path):
    turns = [{"role": role, "content": text} for role, text in zip(["user", "assistant"] * 2, "abcd", strict=True)]
    path, tokenizer = write(tmp_path / "a.jsonl", [{"messages": turns}]), tokenizers["smollm2"]
    every, last = (load_dataset(path, tokenizer, 99, trained_turns=which).examples[0] for which in ("all", "last"))
    assert tokenizer.decode(every.ids[every.trained]) == "b<|im_end|>d<|im_end|>"
    assert tokenizer.decode(last.ids[last.trained]) == "d<|im_end|>"
    assert every.ids.tolist() == last.ids.tolist()


def test_flawed_rows_are_left_out_knowingly(tokenizers, tmp_path):
    path = write(tmp_path / "a.jsonl", [{"prompt": "a", "completion": "b"}, {"prompt": "c"}, {"text": 3}])
    rows = usable_rows(TrainConfig(data=str(path), skip_flawed=True), tokenizers["smollm2"])
    assert [item.line for item in rows.train] == [1]
    assert rows.sentence.endswith("2 rows that can't be used are left out.")


@pytest.mark.parametrize("skip_flawed", [True, False])
@pytest.mark.parametrize(("name", "said"), [("train", "The file has no rows."), ("valid", "valid.jsonl: The file has")])
def test_a_file_without_rows_is_refused_also_where_flawed_rows_are_left_out(
    tokenizers, tmp_path, name, said, skip_flawed
):
    good = [{"prompt": f"{n}?", "completion": "a"} for n in range(3)]
    data, valid = (write(tmp_path / f"{one}.jsonl", [] if one == name else good) for one in ("train", "valid"))
    config = TrainConfig(data=str(data), valid=str(valid), skip_flawed=skip_flawed)
    with pytest.raises(EngineError, match=said):
        usable_rows(config, tokenizers["smollm2"])


def test_a_validation_file_of_flawed_rows_alone_is_refused(tokenizers, tmp_path):
    data = write(tmp_path / "a.jsonl", [{"prompt": "a", "completion": "b"}, {"prompt": "c"}])
    valid = write(tmp_path / "b.jsonl", [{"prompt": "d"}])
    with pytest.raises(EngineError, match=r"b\.jsonl: Line 1 has no 'completion'") as refused:
        usable_rows(TrainConfig(data=str(data), valid=str(valid), skip_flawed=True), tokenizers["smollm2"])
    assert "No row is left to measure with" in refused.value.hint


def test_a_folder_brings_its_own_validation_rows(tokenizers, tmp_path):
    write(tmp_path / "train.jsonl", [{"prompt": f"{n}?", "completion": "a"} for n in range(60)])
    for name in ("valid-1", "valid-2"):
        write(
            tmp_path / f"{name}.jsonl", [{"prompt": f"{name}?", "completion": "b"}, {"prompt": "3?", "completion": "a"}]
        )
    rows = load_rows(TrainConfig(data=str(tmp_path)), tokenizers["smollm2"])
    assert (len(rows.train), len(rows.valid)) == (60, 4)
    assert rows.sentence == "4 rows of valid-1.jsonl and valid-2.jsonl are measured, never trained."
    found = [(problem.file, problem.line) for problem in rows.problems if problem.code == "in_both"]
    assert found == [("valid-1.jsonl", 2), ("valid-2.jsonl", 2)]
    assert "is line 4 of train.jsonl too" in next(one.message for one in rows.problems if one.code == "in_both")


@pytest.mark.parametrize(
    ("held", "own", "names", "count"),
    [
        (["train", "extra", "valid", "test"], "", "extra.jsonl and test.jsonl", "2 files of the folder are"),
        (["train", "extra", "valid", "test"], "valid", "extra.jsonl and test.jsonl", "2 files of the folder are"),
        (["train", "extra", "valid"], "extra", "valid.jsonl", "1 file of the folder is"),
        (["a", "b", "test"], "", "", ""),
        (["train", *(f"x{n}" for n in range(10))], "", "x0.jsonl, x1.jsonl, x2.jsonl, x3.jsonl, x4.jsonl, x5.jsonl, "
         "x6.jsonl, x7.jsonl and 2 more", "10 files of the folder are"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("inside", ["", "data"])
def test_files_of_a_folder_that_are_not_read_are_named(tokenizers, tmp_path, held, own, names, count, inside):
    folder = tmp_path / "corpus" / inside
    folder.mkdir(parents=True)
    for name in held:
        write(folder / f"{name}.jsonl", [{"prompt": f"{name}?", "completion": "Yes."}])
    valid = str(folder / f"{own}.jsonl") if own else ""
    rows = load_rows(TrainConfig(data=str(tmp_path / "corpus"), valid=valid), tokenizers["smollm2"])
    found = [(one.severity, one.line, one.message) for one in rows.problems if one.code == "not_read"]
    assert found == ([("note", 0, f"{count} not read: {names}.")] if names else [])
    assert len(usable_rows(TrainConfig(data=str(tmp_path / "corpus"), valid=valid), tokenizers["smollm2"]).train)


@pytest.fixture
def parts(tmp_path):
    """A folder of two files: both have an error in line 2 and a cut row in line 4, and share a row."""
    folder = tmp_path / "parts"
    folder.mkdir()
    for name in ("train-1", "train-2"):
        rows = [{"prompt": f"{name} {n}?", "completion": "Yes."} for n in range(6)]
        rows[1], rows[5] = {"prompt": "x"}, {"prompt": "Both?", "completion": "Yes."}
        rows[3]["prompt"] = f"{name} {LONG}"
        write(folder / f"{name}.jsonl", rows)
    return folder


def test_every_remark_on_a_folder_names_its_file(tokenizers, parts):
    with (parts / "train-2.jsonl").open("a") as file:
        file.write('{"prompt": "ada@lovelace.org", "completion": "a\\u0007"}\n{')
    found = load_dataset(parts, tokenizers["smollm2"], 100).problems
    assert [(one.file, one.line, one.code) for one in found] == [
        ("train-1.jsonl", 2, "missing_field"),
        ("train-1.jsonl", 4, "nothing_to_train"),
        ("train-1.jsonl", 6, "duplicates"),
        ("train-2.jsonl", 2, "missing_field"),
        ("train-2.jsonl", 4, "nothing_to_train"),
        ("train-2.jsonl", 6, "duplicates"),
        ("train-2.jsonl", 7, "control_character"),
        ("train-2.jsonl", 7, "personal_email"),
        ("train-2.jsonl", 8, "broken_json"),
    ]
    assert all(one.message.startswith(f"{one.file}: Line {one.line}") for one in found)
    same = next(one for one in found if one.code == "duplicates")
    assert same.message == (
        "train-1.jsonl: Line 6 holds a row that is in train-2.jsonl too and counts 2 times as much as others."
    )
    assert (same.rows, same.lines) == (1, ((6, 6),))


def test_of_many_flaws_in_a_folder_the_rest_is_counted_file_by_file(tokenizers, tmp_path):
    for name in ("a", "b"):
        write(tmp_path / f"{name}.jsonl", [{"prompt": f"{name} {n} {LONG}", "completion": "x"} for n in range(70)])
    found = load_dataset(tmp_path, tokenizers["smollm2"], 40).problems
    (rest,) = [one for one in found if one.rows > 1]
    assert len(found) == 101
    assert (rest.file, rest.rows, rest.lines) == ("b.jsonl", 40, ((31, 70),))
    assert rest.message.startswith("b.jsonl: 40 more rows")


def test_rows_of_a_folder_are_shown_with_their_files_and_only_those_with_a_problem(tokenizers, parts):
    (parts / "train-2.jsonl").write_text(json.dumps({"prompt": "Good?", "completion": "Yes."}) + "\n" * 3)

    def shown(**asked):
        page = preview_rows(parts, tokenizers["smollm2"], 100, 1, 50, **asked)
        return [(row["file"], row["line"], bool(row["problem"])) for row in page["rows"]]

    with (parts / "train-2.jsonl").open("a") as file:
        file.writelines(json.dumps({"prompt": f"Good {n}?", "completion": "Yes."}) + "\n" for n in range(4))
    assert shown(jump="problem") == [("train-1.jsonl", 2, True), ("train-1.jsonl", 4, True)]
    assert shown()[-1] == ("train-2.jsonl", 7, False)
    row = preview_rows(parts, tokenizers["smollm2"], 100, 4, 1)["rows"][0]
    assert row["problem"]["message"].startswith("train-1.jsonl: Line 4 ")


def test_rows_can_be_found_and_gone_through(tokenizers, tmp_path):
    rows = [{"prompt": f"Number {n}?", "completion": "the mill " * (n % 7) + f"Ünd {n}."} for n in range(1, 31)]
    rows[11] = {"prompt": "no answer"}
    path = write(tmp_path / "a.jsonl", rows)

    def numbers(row=1, count=50, length=40, **asked):
        page = preview_rows(path, tokenizers["smollm2"], length, row, count, **asked)
        assert page["rows_total"] >= len(page["rows"])
        return [shown["row"] for shown in page["rows"]]

    assert numbers(row=1, count=2, find="number 2") == [2, 3]
    assert numbers(row=3, count=2, find="ünd 2"[1:]) == [20, 21]
    assert numbers(row=22, count=1, find="?<|im_end|>") == [22]
    assert numbers(find="not there") == []
    assert numbers(row=25, count=1, find="number 2") == [25]
    lengths = load_dataset(path, tokenizers["smollm2"], 40).lengths.tolist()
    known = [n for n in range(1, 31) if n != 12]
    assert numbers(jump="longest", length=5000) == [
        known[place] for place in sorted(range(29), key=lambda place: -lengths[place])
    ]
    assert numbers(jump="shortest", length=5000)[0] == known[lengths.index(min(lengths))]
    cut = [known[place] for place in range(29) if lengths[place] > 40]
    assert numbers(jump="cut") == cut
    assert numbers(jump="problem") == sorted([*cut, 12])
    assert numbers(jump="cut", length=5000) == []
    assert numbers(row=2, count=1, jump="cut", find="mill") == cut[1:2]


def test_a_page_of_rows_looks_for_no_problems_but_of_those_rows(tokenizers, parts, monkeypatch):
    def looked_for(*_):
        raise AssertionError

    monkeypatch.setattr(datasets, "_of_the_tokens", looked_for)
    for asked in ({}, {"jump": "longest"}, {"jump": "cut"}, {"find": "Both"}):
        assert preview_rows(parts, tokenizers["smollm2"], 100, 1, 5, **asked)["rows"]
    with pytest.raises(AssertionError):
        preview_rows(parts, tokenizers["smollm2"], 100, 1, 5, jump="problem")


@pytest.mark.parametrize(
    ("row", "sought", "found", "wrapped"),
    [
        (3, "Row 4", [4], False),
        (5, "Row 4", [4], True),
        (99, "Row 4", [4], True),
        (1, "no", [], False),
        (99, "no", [], False),
    ],
)
def test_a_search_goes_on_from_the_first_row_and_says_so(tokenizers, tmp_path, row, sought, found, wrapped):
    path = write(tmp_path / "a.jsonl", [{"prompt": f"Row {n}?", "completion": "Yes."} for n in range(1, 8)])
    page = preview_rows(path, tokenizers["smollm2"], 40, row, 1, find=sought)
    assert [shown["row"] for shown in page["rows"]] == found
    assert page["wrapped"] == wrapped


def test_a_file_that_changes_while_it_is_shown_is_said(tokenizers, tmp_path, monkeypatch):
    path = write(tmp_path / "a.jsonl", [{"prompt": "a", "completion": "b"}, {"prompt": "c"}])
    dataset = load_dataset(path, tokenizers["smollm2"], 40)
    monkeypatch.setattr(importlib.import_module("engine.data.preview"), "load_dataset", lambda *_, **__: dataset)
    write(path, [{"prompt": "a", "completion": "b"}])
    with pytest.raises(EngineError, match="changed while"):
        preview_rows(path, tokenizers["smollm2"], 40, 2, 1)


@pytest.mark.parametrize("jump", ["", "longest"])
def test_a_search_looks_into_each_text_by_itself(tokenizers, tmp_path, jump):
    path = write(tmp_path / "a.jsonl", [{"text": text} for text in ("first", ">> second", "third >>")])

    def found(row, text):
        page = preview_rows(path, tokenizers["smollm2"], 40, row, 1, find=text, jump=jump)
        return [shown["line"] for shown in page["rows"]]

    assert found(1, "<|im_end|>>>") == []  # the end of a text, and the next one's beginning
    assert {line for row in (1, 2, 3) for line in found(row, ">>")} == {2, 3}
    assert found(1, ">> SECOND") == [2]


def test_a_pair_keeps_both_sides(tokenizers):
    both = [Conversation(1, "messages", (Message("user", "a"), Message("assistant", text)), "", 1) for text in "bc"]
    pair = tokenize_whole(Comparison(1, *both), tokenizers["smollm2"])
    found = tokenize_all(both, tokenizers["smollm2"])
    assert [example_of(side) for side in found] == [as_tuple(pair.chosen), as_tuple(pair.rejected)]


def test_phi3_takes_the_long_way(tokenizers):
    assert PHI3 in tokenizers["phi3"].template.source
    assert tokenizers["phi3"].forms is None  # its special tokens swallow spaces
