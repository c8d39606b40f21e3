"""Rows as the model sees them, token by token."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.data.blocks import last_turn
from engine.data.check import examine
from engine.data.conversation import Conversation
from engine.data.dataset import Dataset, load_dataset
from engine.data.encoding import TextFile
from engine.data.items import Items
from engine.data.problems import Problem, in_file
from engine.data.read import Row
from engine.data.remarks import remarks
from engine.data.source import Source, open_source
from engine.data.store import Store
from engine.data.tokenize import Example, Pair, cut_to, tokenize_whole
from engine.data.tokenizer import TextTokenizer
from engine.errors import EngineError

MAX_RAW_CHARACTERS = 10_000  # of a line that is no row
ORDERS = ("longest", "shortest", "cut", "problem")

_WHOLE = 2**62  # a length that cuts nothing

Numbers = npt.NDArray[np.int64]


def preview(
    path: Path, tokenizer: TextTokenizer, max_length: int, row: int, objective: str = "sft", sft_scope: str = "full"
) -> dict[str, Any]:
    """What `preview --json` prints for a row, counted from 1 without blank lines; EngineError if there is
    none.
    """
    found = preview_rows(path, tokenizer, max_length, row, 1, objective, sft_scope)["rows"]
    if not found:
        raise EngineError(f"The data has no row {row:,}.", "Rows count from 1; choose one that there is.")
    return dict(found[0])


def preview_rows(
    path: Path,
    tokenizer: TextTokenizer,
    max_length: int,
    row: int,
    count: int,
    objective: str = "sft",
    sft_scope: str = "full",
    columns: str = "",
    trained_turns: str = "all",
    find: str = "",
    jump: str = "",
) -> dict[str, Any]:
    """Up to `count` rows from `row` on, as `rows`, and in `rows_total` how many there are to go through.

    `jump` is one of ORDERS to go through: by length, or only those that are cut or have a problem. `find` begins at the
    next row whose text holds it, letters from A to Z in either case; after the last row it goes on at the first, which
    `wrapped` says. Where no row holds it none comes back.

    A pair's tokens are the prompt, the chosen response and the rejected one. Where the two sides write their
    prompt in different tokens, the rejected side's prompt comes again before its response. ORPO learns the
    prompts of chosen rows too unless `sft_scope` is "response".
    """
    # No more than is shown is read of a file that was not checked yet, but for its rows' number.
    most = None if find or jump else max(0, row + count - 1)
    dataset = load_dataset(
        path, tokenizer, max_length, objective, columns=columns, trained_turns=trained_turns, most_rows=most
    )
    total = dataset.rows if dataset.is_whole else sum(1 for _ in open_source(path, columns).rows())
    order = _order(dataset, jump)
    first, wrapped = row - 1, False
    if find and first >= 0:
        asked, first = first, _next_with(dataset.rendered.store, find, order if jump else None, first)
        wrapped = first < asked
    shown = order[first : first + count].tolist() if first >= 0 else []
    show = _Preview(tokenizer, max_length, objective, objective == "orpo" and sft_scope == "full", trained_turns)
    known = _places(dataset.rendered.store.numbers, shown)
    others = dict(_raw_rows(open_source(path, columns), [number for number in shown if number not in known]))
    lines = dataset.rendered.store.lines
    rows = [
        {
            "line": int(lines[number]),
            "file": file,
            "row": number + 1,
            "rows": total,
            **(
                show.row(dataset.rendered, known[number], file)
                if number in known
                else show.raw(*_there(others, number))
            ),
        }
        for number, file in zip(shown, dataset.files_of(np.array(shown, np.int64)), strict=True)
    ]
    return {"rows_total": len(order) if dataset.is_whole else total, "wrapped": wrapped and bool(rows), "rows": rows}


def _order(dataset: Dataset, jump: str) -> Numbers:
    """The numbers of the file's rows, from 0 on, in the order to go through them."""
    rendered = dataset.rendered
    numbers = rendered.store.numbers.astype(np.int64)
    match jump:
        case "":
            return np.arange(dataset.rows)
        case "longest":
            return numbers[np.argsort(-dataset.lengths, kind="stable")]
        case "shortest":
            return numbers[np.argsort(dataset.lengths, kind="stable")]
        case "cut":
            return numbers[rendered.is_cut]
        case "problem":
            return np.flatnonzero(_marked(dataset))
    raise EngineError(f"Rows can't be gone through by {jump!r}.", f"Choose one of {', '.join(ORDERS)}.")


def _marked(dataset: Dataset) -> npt.NDArray[np.bool_]:
    """Which of the data's rows an error or a warning names, by their lines and files."""
    lines = dataset.rendered.store.lines
    files = dataset.files_of(np.arange(len(lines)))
    marked = np.zeros(len(lines), bool)
    for problem in dataset.problems:
        if problem.severity == "note" or not problem.line:
            continue
        here = np.flatnonzero(files == problem.file) if problem.file else slice(None)
        named = np.zeros(len(lines[here]), bool)
        for begin, end in problem.lines or ((problem.line, problem.line),):
            named |= (lines[here] >= begin) & (lines[here] <= end)
        marked[here] |= named
    return marked


def _places(numbers: npt.NDArray[np.int32], shown: list[int]) -> dict[int, int]:
    """The places of those of the `shown` that are among the ascending `numbers`."""
    places = dict(zip(shown, np.searchsorted(numbers, shown).tolist(), strict=True))
    return {number: place for number, place in places.items() if number in numbers[place : place + 1]}


def _next_with(store: Store, text: str, order: Numbers | None, first: int) -> int:
    """The first place of `order` (None: the file's) whose row holds `text`, from `first` on and then from 0 on; behind
    its end where there is none.
    """
    pattern, numbers = re.compile(re.escape(text.encode("utf-8", "replace")), re.IGNORECASE), store.numbers
    if order is None:  # no more is looked through than is needed
        begin = int(np.searchsorted(numbers, first))
        places = chain(_holding(store, pattern, begin, len(numbers)), _holding(store, pattern, 0, begin))
        return next((int(numbers[place]) for place in places), len(store.lines))
    holds = np.zeros(len(store.lines), bool)
    holds[numbers[np.fromiter(_holding(store, pattern, 0, len(numbers)), np.int64)]] = True
    found = np.flatnonzero(holds[order])
    later = found[found >= first]
    return int(next(iter(later if len(later) else found), len(order)))


def _holding(store: Store, pattern: re.Pattern[bytes], begin: int, end: int) -> Iterator[int]:
    """The places of the store's rows from `begin` to `end` that hold the pattern in a side."""
    ends, sides = store.text_ends, store.sides
    at, last = int(ends[begin * sides]), int(ends[end * sides])
    while at < last and (match := pattern.search(store.texts.data, at, last)):
        side = int(np.searchsorted(ends, match.start(), side="right")) - 1
        if match.end() <= ends[side + 1]:
            yield side // sides
            at = int(ends[(side // sides + 1) * sides])
        else:  # over the border of two texts
            at = match.start() + 1


def _raw_rows(source: Source, numbers: list[int]) -> Iterator[tuple[int, tuple[str, Row | Problem]]]:
    """The rows of these numbers as the file has them."""
    last = max(numbers, default=-1)
    for number, row in enumerate(islice(source.rows(), last + 1)):
        if number in numbers:
            text = _as_json(row) if isinstance(row, Row) else _raw_line(source, row.line)
            yield number, (text[:MAX_RAW_CHARACTERS].strip(), row)


def _as_json(row: Row) -> str:
    """The row's text, with that of what only tables hold, such as dates; nothing where it is nested by the hundred."""
    try:
        return json.dumps(row.value, ensure_ascii=False, default=str)
    except RecursionError:
        return ""


def _there(others: dict[int, tuple[str, Row | Problem]], number: int) -> tuple[str, Row | Problem]:
    """A row as the file has it. EngineError where the file has changed since it was checked."""
    if number not in others:
        raise _changed()
    return others[number]


def _changed() -> EngineError:
    return EngineError("The data changed while it was shown.", "Choose the file again.")


def _raw_line(source: Source, line: int) -> str:
    """What stands there, "" where lines mean nothing."""
    if len(source.files) > 1 or source.files[0].suffix.lower() == ".parquet":
        return ""
    with closing(TextFile(source.files[0])) as file:
        text = next(islice(file.text(None), line - 1, None), "")
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@dataclass(frozen=True)
class _Preview:
    """How rows are shown."""

    tokenizer: TextTokenizer
    max_length: int
    objective: str
    learns_prompts: bool
    trained_turns: str

    def row(self, rows: Items, place: int, file: str) -> dict[str, Any]:
        """A row that has tokens."""
        store = rows.store
        item = Items(store, rows.rows, _WHOLE)[place]
        kept = cut_to(item, self.max_length)
        problem = kept if isinstance(kept, Problem) else next(iter(remarks(kept)), None)
        tokens = self._pair(item) if isinstance(item, Pair) else self._row(item)
        if isinstance(kept, Problem):
            tokens = [{**token, "trained": False} for token in tokens]
        text = store.text(int(rows.rows[place]) * store.sides)
        return {"text": text, "tokens": tokens, "problem": problem and asdict(in_file(problem, file))}

    def raw(self, text: str, row: Row | Problem) -> dict[str, Any]:
        """A row that has none, and why."""
        return {"text": text, "tokens": [], "problem": asdict(self._flaw(row))}

    def _flaw(self, row: Row | Problem) -> Problem:
        checked = row if isinstance(row, Problem) else examine(row, self.objective)
        if not isinstance(checked, Problem):
            if self.trained_turns == "last" and isinstance(checked, Conversation):
                checked = last_turn(checked)
            refused = tokenize_whole(checked, self.tokenizer)
            if isinstance(refused, Problem):
                return refused
        else:
            return checked
        raise _changed()

    def _row(self, example: Example) -> list[dict[str, Any]]:
        return self._tokens(
            example, ["response" if target else "prompt" for target in example.trained], example.trained
        )

    def _pair(self, pair: Pair) -> list[dict[str, Any]]:
        chosen, rejected = pair.chosen.trained, pair.rejected.trained
        if self.learns_prompts:
            chosen = chosen.copy()
            chosen[1 : _prompt_length(pair.chosen)] = True
        better = self._tokens(pair.chosen, _parts(pair.chosen, "chosen"), chosen)
        worse = self._tokens(pair.rejected, _parts(pair.rejected, "rejected"), rejected)
        return better + worse[pair.shared :]

    def _tokens(self, example: Example, parts: list[str], learned: npt.NDArray[np.bool_]) -> list[dict[str, Any]]:
        ids = example.ids.tolist()
        pieces = self.tokenizer.pieces(ids)
        return [
            {
                "id": number,
                "text": piece,
                "trained": target and place < self.max_length,
                "part": part,
                "cut": place >= self.max_length,
                "special": number in self.tokenizer.special_ids,
            }
            for place, (number, piece, part, target) in enumerate(
                zip(ids, pieces, parts, learned.tolist(), strict=True)
            )
        ]


def _prompt_length(side: Example) -> int:
    return int(side.trained.argmax()) if side.trained.any() else side.length


def _parts(side: Example, response: str) -> list[str]:
    """From its first trained token on all is the response: also a template's marks between and after its turns."""
    prompt = _prompt_length(side)
    return ["prompt"] * prompt + [response] * (side.length - prompt)
