"""Tokens by pieces are the tokenizer's own on every text, for the ways of splitting that known models have."""

import json
import random
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_folders import CORPUS
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from engine.data import pieces
from engine.data.cuts import sure_cuts
from engine.data.pieces import piece_encoder
from engine.data.specials import names_pattern

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
LLAMA3 = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{REST}"
QWEN2 = LLAMA3.replace("{1,3}", "")
GPT_OSS = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*{CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{REST}"
)
DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
    + REST
)
GPT2 = [pre_tokenizers.ByteLevel(add_prefix_space=False)]


def by_pattern(*patterns):
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]


# How each splits, and the pieces of TEXT.
TEXT = "Well, I'm in.\n\nNext:\n- two  (2.5) é!"
SPLITS = {
    "gpt2": GPT2,
    "smollm2": [pre_tokenizers.Digits(individual_digits=True), *GPT2],
    "llama3": by_pattern(LLAMA3),
    "qwen2": by_pattern(QWEN2),
    "gpt-oss": by_pattern(GPT_OSS),
    "deepseek": by_pattern(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK),
}
AT_LINES = "Well|,| I'm| in|.\n|\nNext|:|\n-| two | (2.5)| é!"
AT_SPACES = "Well,| I'm| in.|\n\n|Next:|\n|-| two|  (2.5)| é!"
PIECES = {"gpt2": AT_LINES, "smollm2": AT_LINES, "gemma": AT_SPACES, "gemma without lines": AT_SPACES}
OTHERS = "Well|,| I'm| in|.\n\n|Next|:\n-| two | (2.5)| é!"
KINDS = [*SPLITS, "gemma", "gemma without lines"]
SCRAPS = [*"abzAZ012.,:;!?()\"'/_-\\<>|[]{}`~@#é中あ\u0301\u00a0\x1c\u2028 \n\r\t", "'s", "'LL", "  ", "\n\n", "\r\n",
          " a", ". ", ".\n\n", " the", "don't", "e.g.", "▁", "▁▁", "<h1>", "</s>", "<|end|>", "😀"]  # fmt: skip
texts = st.lists(st.sampled_from(SCRAPS) | st.text(max_size=2), max_size=24).map("".join)


def tokenizer_of(steps, added=()):
    """Byte-level BPE with merges of all sorts of characters."""
    chance = random.Random(0)
    odd = ["".join(chance.choices(SCRAPS[:-6], k=60)) for _ in range(300)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=1200, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([*CORPUS, *odd], trainer)
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.add_tokens(list(added))
    return tokenizer


def gemma(added=("\n", "\n\n", "\n\n\n", "▁▁", "<h1>")):
    """A SentencePiece-like tokenizer: merges within words only, and nothing that splits a text."""
    chance = random.Random(0)
    odd = ["".join(chance.choices([scrap for scrap in SCRAPS[:-6] if "\n" not in scrap], k=60)) for _ in range(300)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    fixed = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=1200, special_tokens=fixed, show_progress=False)
    tokenizer.train_from_iterator([*CORPUS, *odd], trainer)
    tree = json.loads(tokenizer.to_str())
    tree["added_tokens"] = tree["added_tokens"][:1]
    tree["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    split = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer = Tokenizer.from_str(json.dumps({**tree, "pre_tokenizer": None}))
    tokenizer.pre_tokenizer = split
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in added])
    return tokenizer


@pytest.fixture(scope="module")
def encoders():
    tokenizers = {name: tokenizer_of(steps) for name, steps in SPLITS.items()}
    tokenizers |= {"gemma": gemma(), "gemma without lines": gemma(added=())}
    return {name: (one, piece_encoder(one, names_pattern(["<|end|>"]))) for name, one in tokenizers.items()}


def encode(encoder, text):
    (ids,) = encoder.encode([text])
    return None if ids is None else np.frombuffer(ids, np.int32).tolist()


@pytest.mark.parametrize("name", KINDS)
def test_a_text_is_cut_wherever_its_tokenizer_splits_for_sure(encoders, name):
    assert "|".join(sure_cuts(encoders[name][0]).all.split(TEXT)) == PIECES.get(name, OTHERS)


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=400, derandomize=True, database=None, deadline=None)
@given(text=texts)
def test_pieces_have_the_tokens_of_the_text(encoders, name, text):
    tokenizer, encoder = encoders[name]
    if "<|end|>" in text:
        assert encode(encoder, text) is None
    else:
        assert encode(encoder, text) == tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize(("least", "portion"), [(0, pieces._PORTION), (0, 1), (pieces.ARROW_WORDS, 7)])
@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=100, derandomize=True, database=None, deadline=None)
@given(many=st.lists(texts, max_size=8))
def test_texts_at_once_have_the_tokens_of_each(encoders, name, least, portion, many):
    tokenizer, encoder = encoders[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "ARROW_WORDS", least)
        patch.setattr(pieces, "_PORTION", portion)
        found = encoder.encode(many)
    for text, ids in zip(many, found, strict=True):
        if "<|end|>" in text:
            assert ids is None
        else:
            assert np.frombuffer(ids, np.int32).tolist() == tokenizer.encode(text, add_special_tokens=False).ids


def test_a_long_text_takes_little_more_room_than_its_tokens(encoders, monkeypatch):
    monkeypatch.setattr(pieces, "_PORTION", 64 * 1024)
    _, encoder = encoders["gpt2"]
    text = "it is a b c d e f " * 200_000
    encode(encoder, text[:100])
    tracemalloc.start()
    (ids,) = encoder.encode([text])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * len(ids) + len(text)


def test_all_rare_spaces_are_known_by_their_bytes():
    beyond_ascii = [chr(n) for n in range(0x80, 0x110000) if not 0xD800 <= n < 0xE000]
    found = pieces._RARE_SPACE.findall("".join(beyond_ascii).encode())
    assert [rare.decode() for rare in found] == [one for one in beyond_ascii if one.isspace() or one == "▁"]


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=200, derandomize=True, database=None, deadline=None)
@given(before=texts, after=texts.filter(bool))
def test_a_seam_is_found_in_its_piece(encoders, name, before, after):
    tokenizer, encoder = encoders[name]
    if "<|end|>" in before + after:
        return
    begin, end = encoder.joint(before, after)
    joint = before[begin:] + after[:end]
    ids, known = encoder.encode_seam(joint, len(before) - begin)
    first, last = encoder.encode([before[:begin], after[end:]])
    whole = tokenizer.encode(before + after, add_special_tokens=False)
    assert np.frombuffer(first + ids + last, np.int32).tolist() == whole.ids
    assert len(first) // 4 + known == sum(stop <= len(before) for _, stop in whole.offsets)


@pytest.mark.parametrize(
    ("name", "is_cut"),
    [("a.b", False), ("<tool>", True), ("x\ny", None), ("two words", None)],
)
def test_no_added_token_is_cut(name, is_cut):
    tokenizer = tokenizer_of(GPT2, [AddedToken(name, normalized=False)])
    encoder = piece_encoder(tokenizer, names_pattern(["<|end|>"]))
    if is_cut is None:
        assert encoder is None
        return
    assert (len(sure_cuts(tokenizer).all.split("Well, so")) == 3) == is_cut
    for text in (f"so {name}.", f"x{name}y", f"{name}\n{name}", f"Well, {name}, so"):
        assert encode(encoder, text) == tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize(
    "pattern",
    [
        r"\w+,?|[^\w\s]+|\s+",  # a word takes its comma
        r"\s*\w+|[^\w\s]+|\s+",  # all of the space before a word
        r"(?<=a )b|\w+|\s+|[^\w\s]",  # what stands before the space
    ],
)
def test_a_cut_that_is_not_sure_is_not_made(pattern):
    tokenizer = tokenizer_of(by_pattern(pattern))
    encoder = piece_encoder(tokenizer, names_pattern(["<|end|>"]))
    chance = random.Random(1)
    for _ in range(300):
        text = "".join(chance.choices(SCRAPS[:-1], k=20)).replace("<|end|>", "")
        if encoder is not None:
            assert encode(encoder, text) == tokenizer.encode(text, add_special_tokens=False).ids


def test_what_is_known_is_bounded(encoders, monkeypatch):
    tokenizer, encoder = encoders["gpt2"]
    monkeypatch.setattr(pieces, "MAX_PIECES", 200)
    for number in range(0, 4000, 40):
        text = " ".join(str(n) for n in range(number, number + 40)) + "x" * 500
        assert encode(encoder, text) == tokenizer.encode(text, add_special_tokens=False).ids
    states = [*vars(encoder).values(), *vars(encoder._words).values()]
    held = [word for words in states if isinstance(words, dict) for word in words]
    assert len(held) < 400
    assert not any(len(word) > 100 for word in held)


def test_long_words_leave_no_tokens(encoders):
    tokenizer, _ = encoders["gpt2"]
    encoder = piece_encoder(tokenizer, names_pattern(["<|end|>"]))
    encoder.encode(["it is"])
    tokens = encoder._words._ids.tolist()
    texts = [f"it {long} is" for long in ("x" * 500, "<|end|>" * 20, "xyz" * 80)]
    for _ in range(2):
        found = encoder.encode(texts)
        assert found[1] is None
        for text, ids in zip(texts[::2], found[::2], strict=True):
            assert np.frombuffer(ids, np.int32).tolist() == tokenizer.encode(text, add_special_tokens=False).ids
    assert encoder._words._ids.tolist() == tokens
