"""Plain text and Markdown as rows: passages cut between paragraphs and before headings, never inside a word."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine.data.encoding import BYTE_ORDER_MARK, MAX_LINE, TextFile
from engine.data.problems import Problem
from engine.data.read import Row, huge

PASSAGE = 4000  # characters, about a thousand tokens of English
_LONGEST_BLOCK = 256 * 1024  # characters: a file without blank lines is one paragraph, and never held whole

_HEADING = re.compile(r" {0,3}#{1,6}\s")
_FENCE = re.compile(r" {0,3}(```|~~~)")
SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])\s*")
_WORD = re.compile(r"\S")
WORD_END = re.compile(r"\s+")

Block = tuple[int, str]  # the line that it begins on, its text


def read_passages(file: TextFile, size: int, is_markdown: bool) -> Iterator[Row | Problem]:
    """Passages of up to `size` characters, as {"text": ...}, with the lines that they begin on.

    Whole paragraphs are put together while they fit. In Markdown a heading begins a passage once half of one is full
    and stays with what it is the heading of, and a fenced block counts as one paragraph. A longer paragraph is cut
    after a line, else a sentence, else a word; a single word that is longer stays whole.
    """
    held: list[str] = []
    first = length = 0
    for block in _blocks(file, is_markdown):
        if isinstance(block, Problem):
            if held:
                yield _passage(first, held)
            held, length = [], 0
            yield block
            continue
        for line, text in _pieces(block, size):
            opens = is_markdown and 2 * length >= size and _HEADING.match(text)
            if held and (opens or length + len(text) > size):
                yield _passage(first, held)
                held, length = [], 0
            first = first if held else line
            held.append(text)
            length += len(text)
    if held:
        yield _passage(first, held)


def _passage(line: int, texts: list[str]) -> Row:
    return Row(line, {"text": "".join(texts).strip("\n")})


def _blocks(file: TextFile, is_markdown: bool) -> Iterator[Block | Problem]:
    """Paragraphs with the blank lines after them."""
    text = file.text(None)
    block: list[str] = []
    first = line = length = 0
    in_fence = in_heading = after_blank = False
    while raw := text.readline(MAX_LINE + 1):
        line += 1
        rest = raw
        while len(rest) > MAX_LINE and not rest.endswith("\n"):
            rest = text.readline(MAX_LINE + 1)
        whole = huge(line) if len(raw) > MAX_LINE else file.whole(line, raw.lstrip(BYTE_ORDER_MARK))
        if isinstance(whole, Problem):
            if block:
                yield first, "".join(block)
            block, length, in_fence = [], 0, False
            yield whole
            continue
        raw = whole
        blank = not raw.strip()
        heading = is_markdown and not in_fence and bool(_HEADING.match(raw))
        ends = not blank and not in_fence and not in_heading and (after_blank or heading)
        if block and (ends or length > _LONGEST_BLOCK):
            yield first, "".join(block)
            block, length = [], 0
        if block or not blank:
            first = first if block else line
            block.append(raw)
            length += len(raw)
        if not blank:
            in_heading = heading
        if is_markdown and _FENCE.match(raw):
            in_fence = not in_fence
        after_blank = blank
    if block:
        yield first, "".join(block)


def _pieces(block: Block, size: int) -> Iterator[Block]:
    line, text = block
    at, end = 0, len(text.rstrip())
    while end - at > size:
        cut = _cut(text, at, size)
        yield line, text[at:cut]
        line, at = line + text.count("\n", at, cut), cut
    if at < end:
        yield line, text[at:]


def _cut(text: str, at: int, size: int) -> int:
    """Where to cut a text after `at` where it is longer than `size`: the last place that fits, of the best kind."""
    begin = _WORD.search(text, at).start()  # type: ignore[union-attr]  # it doesn't end in blanks
    if newline := text.rfind("\n", begin, at + size) + 1:
        return newline
    for border in (SENTENCE_END, WORD_END):
        ends = [match.end() for match in border.finditer(text, begin, at + size + 1)]
        if places := [end for end in ends if begin < end <= at + size]:
            return places[-1]
    after = WORD_END.search(text, max(begin, at + size))
    return after.end() if after else len(text)
