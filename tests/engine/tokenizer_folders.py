"""Tiny real tokenizers, each a model's folder of one kind, for the tests of engine.data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CASES = Path(__file__).parent / "cases"

CORPUS = [
    "What colour is the sky on a clear day? Blue. Name a metal that is liquid at room temperature. Mercury.",
    "user assistant system You are a helpful AI assistant Name a tree. Oak. Capital of Italy? Rome.",
    "The river ran past the mill and the mill turned and the flour fell.",
] * 3

SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}"
    "{% set system = '<<SYS>>\n' + messages[0]['content'] + '\n<</SYS>>\n\n' %}"
    "{% set messages = messages[1:] %}{% else %}{% set system = '' %}{% endif %}"
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate') }}{% endif %}{% if message['role'] == 'user' %}"
    "{{ bos_token + '[INST] ' + ((system if loop.first else '') + message['content']).strip() + ' [/INST]' }}"
    "{% else %}{{ ' ' + message['content'].strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)
PHI3 = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
)


def chatml(folder: Path, template: str | None = SMOLLM2, **config: Any) -> Path:
    """Byte-level BPE and SmolLM2's template."""
    tokenizer = byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    named = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", **config}
    return save(tokenizer, folder, named if template is None else {**named, "chat_template": template})


def llama2(folder: Path, scheme: str = "first") -> Path:
    """SentencePiece-like BPE with byte fallback; spaces by Metaspace or by a normalizer ("legacy")."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    if scheme == "legacy":
        spaces = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        tokenizer.normalizer = normalizers.Sequence(spaces)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    fixed = ["<unk>", "<s>", "</s>"]
    tokenizer.train_from_iterator(CORPUS, bpe_trainer([*fixed, *(f"<0x{byte:02X}>" for byte in range(256))], []))
    tree = json.loads(tokenizer.to_str())
    tree["added_tokens"] = [token for token in tree["added_tokens"] if token["content"] in fixed]
    tokenizer = Tokenizer.from_str(json.dumps(tree))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.post_processor = bos_first("<s>", 1)
    return save(tokenizer, folder, {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": LLAMA2})


def phi3(folder: Path) -> Path:
    """Special tokens that swallow the whitespace after them, and an end-of-turn token that is not eos."""
    tokenizer = byte_level(["<|endoftext|>"])
    tree = json.loads(tokenizer.to_str())
    for name in ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>"):
        number = len(tree["model"]["vocab"]) + len(tree["added_tokens"]) - 1
        flags = {"single_word": False, "lstrip": False, "rstrip": True, "normalized": False, "special": True}
        tree["added_tokens"].append({"id": number, "content": name, **flags})
    tokenizer = Tokenizer.from_str(json.dumps(tree))
    return save(tokenizer, folder, {"eos_token": "<|endoftext|>", "chat_template": PHI3})


def unigram(folder: Path) -> Path:
    """A unigram model, which finds the names of special tokens in its own vocabulary."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    letters = sorted({*"".join(CORPUS), *"<>|_/[]é▁"})
    trainer = trainers.UnigramTrainer(
        vocab_size=200,
        special_tokens=["<unk>", "<|im_start|>", "<|im_end|>"],
        unk_token="<unk>",
        initial_alphabet=letters,
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return save(tokenizer, folder, {"eos_token": "<|im_end|>", "chat_template": SMOLLM2})


def llama3(folder: Path, template: str | None = None) -> Path:
    """Byte-level BPE that begins every text with a token of its own; a base model unless given a template."""
    tokenizer = byte_level(["<|begin|>", "<|end|>"])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), bos_first("<|begin|>", 0)])
    named = {"bos_token": "<|begin|>", "eos_token": "<|end|>"}
    return save(tokenizer, folder, named if template is None else {**named, "chat_template": template})


KINDS = {
    "chatml": chatml,
    "llama2": llama2,
    "llama2_always": lambda folder: llama2(folder, "always"),
    "llama2_legacy": lambda folder: llama2(folder, "legacy"),
    "phi3": phi3,
    "unigram": unigram,
    "base": llama3,
}


def byte_level(specials: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    tokenizer.train_from_iterator(CORPUS, bpe_trainer(specials, pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def bpe_trainer(specials: list[str], alphabet: list[str]) -> trainers.BpeTrainer:
    return trainers.BpeTrainer(vocab_size=450, special_tokens=specials, initial_alphabet=alphabet, show_progress=False)


def bos_first(name: str, number: int) -> processors.TemplateProcessing:
    return processors.TemplateProcessing(single=f"{name} $A", special_tokens=[(name, number)])


def save(tokenizer: Tokenizer, folder: Path, config: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
