"""A model's tokenizer: text to token ids and back, with the model's chat template and its special tokens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding, Tokenizer

from engine.data.conversation import Message
from engine.data.forms import FormEncoder
from engine.data.pieces import piece_encoder
from engine.data.render import Rendered, render_prompt
from engine.data.specials import SpecialsEncoder, names_pattern
from engine.data.stream import StreamDecoder
from engine.data.template import DEFAULT_TEMPLATE, ChatTemplate
from engine.errors import EngineError

MAX_TOKENIZER_BYTES = 256 * 1024**2
MAX_CONFIG_BYTES = 16 * 1024**2

_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
)

Encoded = tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]


class TextTokenizer:
    """What `load_tokenizer` makes of a model's folder.

    `bos_ids` are put before a plain text (none for many models). `eos_ids` end an answer: those that the
    model's files name and the one its chat template writes after an answer. `fingerprint` is another wherever a row
    could get other tokens. `special_names` finds the names of special tokens in a text. `folder` is where its files
    lie.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        bos_ids: Iterable[int],
        eos_ids: Iterable[int],
        fingerprint: str = "",
        folder: Path | None = None,
    ) -> None:
        self.template = template
        self.fingerprint, self.folder = fingerprint, folder
        self.bos_ids = tuple(bos_ids)
        ends = (tokenizer.token_to_id(token) for token in template.ends)
        self.eos_ids = frozenset(eos_ids) | {number for number in ends if number is not None}
        self.vocab_size = tokenizer.get_vocab_size(with_added_tokens=True)
        self._tokenizer = tokenizer
        specials = {
            token.content: number
            for number, token in tokenizer.get_added_tokens_decoder().items()
            if token.special or number in self.eos_ids
        }
        self.special_ids = frozenset(specials.values())
        self.special_names = names_pattern(specials)
        self._encoder = SpecialsEncoder(tokenizer, specials)

    def encode(self, text: str) -> list[int]:
        """The tokens of a plain text, behind `bos_ids` unless it starts so. Special tokens in it count."""
        return list(self.encode_rendered(Rendered(text, (), (), with_bos=True))[0].tolist())

    def encode_rendered(self, rendered: Rendered) -> Encoded:
        """Token ids [tokens] and the characters each stands for, as starts and ends [tokens, 2].

        Special tokens count outside of `rendered.contents` only. A character of several tokens is in the
        range of each.
        """
        return self.encode_all([rendered])[0]

    def encode_all(self, rendered: Sequence[Rendered]) -> list[Encoded]:
        """`encode_rendered` of each; many at a time use all cores."""
        encodings = self._encoder.encode([(one.text, one.contents) for one in rendered])
        return [self._with_bos(*pair) for pair in zip(rendered, encodings, strict=True)]

    def _with_bos(self, rendered: Rendered, encoding: Encoding) -> Encoded:
        ids, offsets = encoding.ids, encoding.offsets
        bos = self.bos_ids if rendered.with_bos and tuple(ids[: len(self.bos_ids)]) != self.bos_ids else ()
        return (
            np.array([*bos, *ids], np.int32),
            np.array([(0, 0)] * len(bos) + offsets, np.int64).reshape(-1, 2),
        )

    @cached_property
    def forms(self) -> FormEncoder | None:
        """The short way to the tokens of rows that are plain; None where this tokenizer allows none."""
        pieces = piece_encoder(self._tokenizer, self.special_names)
        added = {token.content: number for number, token in self._tokenizer.get_added_tokens_decoder().items()}
        return FormEncoder(self.template, pieces, added, self.bos_ids) if pieces else None

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, special tokens by their names."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def stream(self) -> StreamDecoder:
        """A decoder for tokens that come one by one."""
        return StreamDecoder(self.decode)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The text of each token; together they are `decode(ids)`.

        A character of several tokens goes whole to the one that completes it, the others get "".
        """
        stream, text = self.stream(), self.decode(ids)
        ends = np.cumsum([len(stream.add(number)) for number in ids], dtype=int).tolist()
        ends[-1:] = [len(text)] if ends else []
        return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """The tokens that ask the model to answer `messages`. EngineError where its template refuses them."""
        rendered = render_prompt(messages, self.template)
        return list(self.encode_rendered(rendered)[0].tolist())


def load_tokenizer(folder: Path, now: datetime | None = None) -> TextTokenizer:
    """The tokenizer in a model's folder, laid out as Hugging Face does; EngineError if missing or broken.

    Reads files of fixed names only: tokenizer.json, and where there are any tokenizer_config.json,
    special_tokens_map.json, generation_config.json and chat_template.jinja. `now` is its chat template's time.
    """
    tokenizer, bos_ids = _read_tokenizer(folder / "tokenizer.json")
    config = {
        **_read_json(folder / "special_tokens_map.json"),
        **_read_json(folder / "tokenizer_config.json"),
    }
    # Rows get their first token by hand; this processor would also trim the spaces off the offsets of tokens.
    tokenizer.post_processor = None

    bos = _token_name(config.get("bos_token"))
    if not bos and bos_ids:
        bos = tokenizer.id_to_token(bos_ids[0]) or ""
    if isinstance(config.get("add_bos_token"), bool):
        number = tokenizer.token_to_id(bos)
        bos_ids = [number] if config["add_bos_token"] and number is not None else []
    eos = _token_name(config.get("eos_token"))
    eos_ids = _token_ids(_read_json(folder / "generation_config.json").get("eos_token_id"), tokenizer)
    ends = [tokenizer.id_to_token(number) or "" for number in eos_ids]
    if not eos and ends:
        eos = ends[0]
    # Named in the config but not declared in tokenizer.json: otherwise they would be cut up as text.
    tokenizer.add_special_tokens([name for name in (bos, eos) if tokenizer.token_to_id(name) is not None])

    source = _template_source(folder, config)
    template = ChatTemplate(
        DEFAULT_TEMPLATE if source is None else source,
        bos_token=bos if source is not None or bos_ids else "",
        eos_token=eos,
        ends=ends,
        added_tokens=[token.content for token in tokenizer.get_added_tokens_decoder().values()],
        is_default=source is None,
        now=now,
    )
    return TextTokenizer(tokenizer, template, bos_ids, eos_ids, _fingerprint(folder, template), folder.absolute())


def _fingerprint(folder: Path, template: ChatTemplate) -> str:
    digest = hashlib.blake2b(version("tokenizers").encode(), digest_size=16)
    for name in _FILES:
        data = _read_file(folder / name, MAX_TOKENIZER_BYTES)
        digest.update(f"{name} {None if data is None else len(data)}".encode() + (data or b""))
    if "strftime_now" in template.source:  # a row then has other tokens every day
        digest.update(template.environment.now.date().isoformat().encode())
    return digest.hexdigest()


def _read_tokenizer(path: Path) -> tuple[Tokenizer, list[int]]:
    """The tokenizer, and the special tokens that it would put before a text."""
    data = _read_file(path, MAX_TOKENIZER_BYTES)
    if data is None:
        raise EngineError(f"The model has no {path.name} in {path.parent}.", "Choose a complete model folder.")
    try:
        tokenizer = Tokenizer.from_str(data.decode("utf-8"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        encoding = tokenizer.encode("a")
    except Exception as cause:  # the library raises plain exceptions
        raise EngineError(f"The model's {path.name} can't be read: {cause}.", "Download the model again.") from cause
    added = encoding.special_tokens_mask
    return tokenizer, encoding.ids[: added.index(0) if 0 in added else 0]


def _read_json(path: Path) -> dict[str, Any]:
    data = _read_file(path, MAX_CONFIG_BYTES)
    try:
        values = {} if data is None else json.loads(data)
    except (ValueError, RecursionError) as cause:
        raise EngineError(
            f"The model's {path.name} is not valid JSON: {cause}.", "Download the model again."
        ) from cause
    return values if isinstance(values, dict) else {}


def _read_file(path: Path, limit: int) -> bytes | None:
    """The file's bytes, None where there is none."""
    try:
        if not path.exists():
            return None
        if not path.is_file() or path.stat().st_size > limit:
            raise EngineError(
                f"The model's {path.name} is not a file of at most {limit // 1024**2} MB.",
                "Download the model again.",
            )
        return path.read_bytes()
    except OSError as cause:
        raise EngineError(
            f"The model's {path.name} can't be read: {cause.strerror}.", "Check the folder's permissions."
        ) from cause


def _template_source(folder: Path, config: dict[str, Any]) -> str | None:
    data = _read_file(folder / "chat_template.jinja", MAX_CONFIG_BYTES)
    if data is not None:
        return data.decode("utf-8", "replace")
    source = config.get("chat_template")
    if isinstance(source, list):
        named = {item.get("name"): item.get("template") for item in source if isinstance(item, dict)}
        source = named.get("default", next(iter(named.values()), None))
    return source if isinstance(source, str) else None


def _token_name(value: Any) -> str:
    name = value.get("content") if isinstance(value, dict) else value
    return name if isinstance(name, str) else ""


def _token_ids(value: Any, tokenizer: Tokenizer) -> list[int]:
    numbers = value if isinstance(value, list) else [value]
    return [
        number
        for number in numbers
        if isinstance(number, int)
        and not isinstance(number, bool)
        and 0 <= number < tokenizer.get_vocab_size()
        and tokenizer.id_to_token(number) is not None
    ]
