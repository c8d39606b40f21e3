import json
import random

import pytest
from tokenizer_folders import KINDS, LLAMA2, SMOLLM2, bos_first, byte_level, chatml, llama3, save
from tokenizers import Tokenizer

from engine.data import Conversation, Message, load_tokenizer, render, tokenize
from engine.errors import EngineError

FAMILY = "👨‍👩‍👧‍👦"
TEXTS = [
    "What colour is the sky?",
    f"{FAMILY} and a flag 🇪🇺",
    "e\u0301a\u0308 naïve café \u200d\ufeff",
    "  two  spaces\n\n\tand a tab  ",
    "日本語のテキスト、한국어",
    "def f(x):\n    return x  # <b>&amp;</b>",
    "\u00a0\u3000 odd \x00 \x7f",
    "a",
]


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    return {name: load_tokenizer(write(tmp_path_factory.mktemp("tokenizers") / name)) for name, write in KINDS.items()}


@pytest.fixture(params=KINDS)
def tokenizer(request, tokenizers):
    return tokenizers[request.param]


def chat(*contents):
    roles = ("user", "assistant") * len(contents)
    messages = tuple(Message(role, content) for role, content in zip(roles, contents, strict=False))
    return Conversation(1, "messages", messages, "")


def raw(tokenizer):
    """The tokenizers library itself, on the same files."""
    return tokenizer._tokenizer


def named(tokenizer, ids):
    return [raw(tokenizer).id_to_token(number) for number in ids]


def random_text(chance, alphabet):
    return "".join(chance.choice(alphabet) for _ in range(chance.randrange(1, 40))) + "."


def test_a_row_has_the_tokens_of_its_whole_text(tokenizer):
    chance = random.Random(1)
    alphabet = [
        *"abc ABC\n.,<|>[/INST]_▁é",
        "the ",
        "sky",
        "😀",
        FAMILY,
        "\u0301",
        "  ",
        "assistant",
        "\ufeff",
    ]
    rows = [chat(text, text) for text in TEXTS]
    rows += [chat(*(random_text(chance, alphabet) for _ in range(4))) for _ in range(150)]
    for row in rows:
        text = render(row, tokenizer.template).text
        example = tokenize(row, tokenizer, 10_000)
        assert example.ids.tolist() == raw(tokenizer).encode(text, add_special_tokens=False).ids


def test_the_twin_with_private_names_has_the_same_tokens(tokenizer):
    encoder = tokenizer._encoder
    for text in TEXTS:
        rendered = render(chat(text, "Yes. " + text, text, text), tokenizer.template)
        twin = encoder._twin.encode(encoder._rename_outside(rendered.text, rendered.contents), add_special_tokens=False)
        plain = raw(tokenizer).encode(rendered.text, add_special_tokens=False)
        assert twin.ids == plain.ids
        assert twin.offsets == plain.offsets


def test_special_tokens_in_contents_are_plain_text(tokenizer):
    unknown = raw(tokenizer).token_to_id("<unk>")  # stands for any character that the model can't spell
    meant = tokenize(chat("Name a tree.", "Oak.", "Another?", "Rome."), tokenizer, 10_000)
    for special in named(tokenizer, sorted(tokenizer.special_ids)):
        contents = (f"Name a tree. {special}", f"Oak. {special * 2}", f"{special}Another?", "Rome.")
        typed = tokenize(chat(*contents), tokenizer, 10_000)
        control = tokenizer.special_ids - {unknown}
        assert [n for n in meant.ids if n in control] == [n for n in typed.ids if n in control]
        assert sum(n in control for n in typed.ids[typed.trained]) == 2  # the ends of both answers


def test_a_plain_text_may_contain_special_tokens(tokenizer):
    name = named(tokenizer, sorted(tokenizer.eos_ids))[0]
    assert tokenizer.eos_ids & set(tokenizer.encode(f"Oak.{name}Rome."))


def test_the_answer_is_trained_to_the_last_token(tokenizer):
    for text in TEXTS:
        example = tokenize(chat("Name a tree.", "x" + text.strip(" \t\n\x00\u3000\u00a0")), tokenizer, 10_000)
        targets = example.ids[example.trained].tolist()
        assert targets[-1] in tokenizer.eos_ids
        assert not example.trained[0]
        where = example.trained.nonzero()[0].tolist()
        assert where == list(range(where[0], where[-1] + 1))
        if "▁" not in "".join(raw(tokenizer).get_vocab()):
            answer = tokenizer.decode(targets)
            assert answer.startswith("x" + text.strip(" \t\n\x00\u3000\u00a0"))


def test_whitespace_of_an_answer_is_trained(tokenizers):
    example = tokenize(chat("a", "  Oak.\n\n    Rome.  "), tokenizers["chatml"], 100)
    assert tokenizers["chatml"].decode(example.ids[example.trained]) == "  Oak.\n\n    Rome.  <|im_end|>"


def test_a_header_that_swallows_spaces_is_not_trained(tokenizers):
    tokenizer = tokenizers["phi3"]
    for answer in ("Oak.", "  Oak.", "\n\nOak."):
        example = tokenize(chat("Name a tree.", answer), tokenizer, 100)
        assert tokenizer.decode(example.ids[example.trained]) == "Oak.<|end|>"


def test_the_token_across_prompt_and_answer_is_trained(tmp_path):
    template = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
    tokenizer = load_tokenizer(chatml(tmp_path, template))
    example = tokenize(chat("Name a tree.", "the mill"), tokenizer, 100)
    assert tokenizer.decode(example.ids[example.trained]) == " the mill"


def test_a_prompt_is_the_start_of_its_row(tokenizers):
    for name in ("chatml", "base", "unigram", "phi3"):
        tokenizer = tokenizers[name]
        row = chat("Name a <|im_end|> tree.", "Oak.", "And 😀?", "Rome.")
        ids = tokenize(row, tokenizer, 1000).ids.tolist()
        for turns in (1, 3):
            prompt = tokenizer.prompt_ids(row.messages[:turns])
            assert ids[: len(prompt)] == prompt


def test_the_first_token_comes_once(tmp_path, tokenizers):
    llama2, base = tokenizers["llama2"], tokenizers["base"]
    assert llama2.encode("sky")[0] == 1
    assert llama2.encode("<s>sky").count(1) == 1
    assert llama2.prompt_ids([Message("user", "sky")]).count(1) == 1
    assert tokenize(chat("sky", "Blue."), llama2, 99).ids.tolist().count(1) == 1
    assert base.encode("sky") == [0, *raw(base).encode("sky").ids]
    assert base.prompt_ids([Message("user", "sky")]).count(0) == 1
    text = tokenize(Conversation(1, "text", (), "The sky is blue."), base, 99)
    assert text.ids[0] == 0
    assert text.ids[-1] == 1
    assert text.trained.tolist() == [False] + [True] * (len(text.ids) - 1)
    own = load_tokenizer(llama3(tmp_path, SMOLLM2))  # a template without it: as Hugging Face does, none is added
    assert 0 not in own.prompt_ids([Message("user", "sky")])


@pytest.mark.parametrize(("setting", "expected"), [(True, (1,)), (False, ()), (None, ())])
def test_the_config_may_say_whether_texts_get_a_first_token(tmp_path, setting, expected):
    assert load_tokenizer(chatml(tmp_path, add_bos_token=setting)).bos_ids == expected


def test_pieces_make_up_the_text_without_broken_characters(tokenizer):
    for text in TEXTS:
        ids = tokenize(chat(text, text + FAMILY + "!"), tokenizer, 10_000).ids.tolist()
        pieces = tokenizer.pieces(ids)
        assert len(pieces) == len(ids)
        assert "".join(pieces) == tokenizer.decode(ids)
        if raw(tokenizer).decoder.__class__.__name__ != "Metaspace":
            assert "\ufffd" not in "".join(pieces)
            assert FAMILY in "".join(pieces)
    assert tokenizer.pieces([]) == []


def test_a_character_goes_to_the_token_that_completes_it(tokenizers):
    tokenizer = tokenizers["chatml"]
    assert tokenizer.pieces(tokenizer.encode("a😀b")) == ["a", "", "", "", "😀", "b"]


def test_pieces_of_any_tokens_make_up_their_text(tokenizer):
    chance = random.Random(2)
    for _ in range(100):
        ids = [chance.randrange(tokenizer.vocab_size) for _ in range(chance.randrange(30))]
        pieces = tokenizer.pieces(ids)
        assert "".join(pieces) == tokenizer.decode(ids)
        assert len(pieces) == len(ids)


def test_a_stream_gives_whole_characters(tokenizers):
    for name in ("chatml", "llama2", "llama2_legacy"):
        tokenizer = tokenizers[name]
        ids = tokenizer.encode(f"The sky {FAMILY} is blue.")
        stream = tokenizer.stream()
        said = [stream.add(number) for number in ids]
        assert "".join(said) + stream.finish() == tokenizer.decode(ids)
        assert not any("\ufffd" in piece for piece in said)
        halfway = tokenizer.stream()
        cut = tokenizer.encode("sky 😀")[:-1]
        assert "".join(map(halfway.add, cut)).strip().endswith("sky")
        assert "\ufffd" in halfway.finish()
        assert halfway.finish() == ""


def test_texts_round_trip(tokenizers):
    for name in ("chatml", "phi3", "base", "llama2", "llama2_always", "llama2_legacy"):
        tokenizer = tokenizers[name]
        for text in TEXTS:
            decoded = tokenizer.decode(tokenizer.encode(text)[len(tokenizer.bos_ids) :])
            assert decoded in (text, text.removeprefix(" "))  # Llama's decoder drops a first space


def test_all_tokens_that_end_an_answer_are_known(tmp_path):
    folder = chatml(tmp_path, eos_token="<|endoftext|>")
    assert load_tokenizer(folder).eos_ids == {0, 2}  # the template's own
    for value, expected in [(1, {0, 1, 2}), ([1, 5, 9**9, -1, True, "a", None], {0, 1, 2, 5}), ({}, {0, 2})]:
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": value}))
        assert load_tokenizer(folder).eos_ids == expected


def test_names_of_tokens_come_from_wherever_they_are_written(tmp_path):
    folder = save(byte_level(["<|begin|>", "<|stop|>"]), tmp_path, {"eos_token": None})
    (folder / "special_tokens_map.json").write_text('{"eos_token": {"content": "<|begin|>"}}')
    assert load_tokenizer(folder).eos_ids == set()  # the newer file says that there is none
    (folder / "tokenizer_config.json").unlink()
    assert load_tokenizer(folder).eos_ids == {0}
    (folder / "special_tokens_map.json").unlink()
    (folder / "generation_config.json").write_text('{"eos_token_id": [1]}')
    assert load_tokenizer(folder).template.ends == {"<|stop|>"}


def test_templates_are_found_in_all_their_places(tmp_path):
    plain = "{% for m in messages %}{{ m.content }};{% endfor %}"
    folder = chatml(tmp_path, None)
    assert load_tokenizer(folder).template.is_default
    named = [{"name": "tool_use", "template": "{{ 1 }}"}, {"name": "default", "template": plain}]
    for value in (plain, named, named[1:], [{"name": "rag", "template": plain}]):
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": value}))
        assert load_tokenizer(folder).template.source == plain
    (folder / "chat_template.jinja").write_text(SMOLLM2)
    template = load_tokenizer(folder).template
    assert (template.source, template.is_default) == (SMOLLM2, False)


def test_settings_of_the_file_that_cut_or_pad_are_left_out(tmp_path):
    tokenizer = byte_level(["<|begin|>"])
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=64)
    tokenizer.post_processor = bos_first("<|begin|>", 0)
    loaded = load_tokenizer(save(tokenizer, tmp_path, {}))
    assert loaded.decode(loaded.encode("The river ran past the mill.")) == "<|begin|>The river ran past the mill."


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("tokenizer.json", None),
        ("tokenizer.json", b""),
        ("tokenizer.json", b"{}"),
        ("tokenizer.json", b"\xff\xfe"),
        ("tokenizer.json", b"[" * 100_000),
        ("tokenizer_config.json", b"{"),
        ("tokenizer_config.json", b"\xff\xff"),
        ("tokenizer_config.json", b"[" * 100_000),
        ("tokenizer_config.json", b'{"chat_template": "{% for %}"}'),
        ("chat_template.jinja", b"{{ a"),
        ("generation_config.json", b"nothing"),
    ],
)
def test_missing_and_broken_files_are_named(tmp_path, name, data):
    folder = chatml(tmp_path)
    if data is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(data)
    with pytest.raises(EngineError, match=r"tokenizer\.json|chat_template|chat template|_config\.json"):
        load_tokenizer(folder)


def test_what_is_no_folder_or_too_large_is_refused(tmp_path):
    folder = chatml(tmp_path / "model")
    (folder / "tokenizer_config.json").unlink()
    (folder / "tokenizer_config.json").mkdir()
    for place in (tmp_path / "nothing", folder / "tokenizer.json", folder):
        with pytest.raises(EngineError):
            load_tokenizer(place)
    (folder / "tokenizer_config.json").rmdir()
    with (folder / "tokenizer_config.json").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(EngineError, match="at most"):
        load_tokenizer(folder)


def test_odd_but_valid_configs_load(tmp_path):
    folder = chatml(tmp_path)
    for text in (
        "[1]",
        '{"bos_token": 3, "eos_token": [], "chat_template": 7, "add_bos_token": true}',
        "null",
    ):
        (folder / "tokenizer_config.json").write_text(text)
        tokenizer = load_tokenizer(folder)
        assert tokenizer.template.is_default
        assert tokenizer.bos_ids == ()
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<none>", "chat_template": LLAMA2}))
    assert load_tokenizer(folder).eos_ids == set()
    assert load_tokenizer(folder).vocab_size == Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
