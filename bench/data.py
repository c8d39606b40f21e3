"""How fast data is checked and tokenized: 100,000 chat rows, about 100 MB, cold and from the cache.

    python -m bench.data [--model sample] [--rows 100000]

Prints a table for texts of few and of many different words: MB a second and the processors' seconds when the file is
new, seconds when it is known, and the most memory that the processes held. Every figure comes from a process of its
own and those that it starts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from engine.config import TrainConfig
from engine.data import load_rows, load_tokenizer
from engine.models.find import find_model

_WORDS = {"poor": 500, "rich": 60_000}
_SYLLABLES = ("ka", "re", "to", "mi", "sol", "ven", "da", "lu", "pra", "shi", "on", "er", "ing", "st", "qua", "ble")
_ENDS = (*[""] * 84, *[","] * 7, *["."] * 6, "?", ".\n\n", ":\n- ")


def write_rows(path: Path, rows: int, count: int) -> None:
    """Chats of one to three turns, the same whenever written, with `count` words as frequent as Zipf found them."""
    chance = random.Random(0)  # noqa: S311  the same file every time
    words = ["".join(chance.choices(_SYLLABLES, k=min(1 + n // 400, 4))) for n in range(count)]
    weights = [1 / rank for rank in range(1, count + 1)]
    frequent = chance.choices(words, weights, k=1_000_000)

    def text(size: int) -> str:
        begin = chance.randrange(len(frequent) - size)
        said = [word + chance.choice(_ENDS) for word in frequent[begin : begin + size]]
        return " ".join(said).strip() + "!"

    with path.open("w", encoding="utf-8") as file:
        for _ in range(rows):
            messages = [{"role": "system", "content": "You are a careful helper."}] if chance.random() < 0.3 else []
            for _ in range(chance.choice((1, 1, 2, 3))):
                messages.append({"role": "user", "content": text(chance.randrange(8, 50))})
                messages.append({"role": "assistant", "content": text(chance.randrange(16, 90))})
            file.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")


def measure(path: Path, model: str) -> dict[str, Any]:
    """Seconds from the file to rows that could be trained, by the clock and by the processor, and peak memory."""
    tokenizer = load_tokenizer(find_model(model).path)
    begun, busy = time.perf_counter(), sum(os.times()[:4])
    rows = load_rows(TrainConfig(data=str(path)), tokenizer)
    taken = {"seconds": time.perf_counter() - begun, "busy": sum(os.times()[:4]) - busy}
    # In KB on Linux, in bytes on macOS; of the processes that it started, the largest.
    peaks = [resource.getrusage(whose).ru_maxrss for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    peak = sum(peaks) * (1 if sys.platform == "darwin" else 1024)
    tokens = int(rows.dataset.examples.tokens().sum())
    return {**taken, "peak": peak, "tokens": tokens, "rows": len(rows.dataset.examples)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="sample")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)  # what a process that measures is told
    given = parser.parse_args()
    if given.file:
        print(json.dumps(measure(given.file, given.model)))
        return
    model = str(find_model(given.model).path)
    print(f"{given.rows:,} rows, {os.cpu_count()} cores")
    print(f"{'words':6}{'':6}{'MB':>6}{'seconds':>9}{'MB/s':>8}{'busy s':>9}{'peak MB':>9}{'tokens':>14}")
    for text, words in _WORDS.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "chat.jsonl"
            write_rows(path, given.rows, words)
            size = path.stat().st_size / 1e6
            for state in ("cold", "warm"):
                command = [sys.executable, "-m", "bench.data", "--file", str(path), "--model", model]
                answer = subprocess.run(
                    command, env={**os.environ, "TUNESMITH_HOME": folder}, check=True, capture_output=True, text=True
                )
                found = json.loads(answer.stdout)
                speed, peak = size / found["seconds"], found["peak"] / 1e6
                print(
                    f"{text:6}{state:6}{size:6.0f}{found['seconds']:9.2f}{speed:8.1f}{found['busy']:9.2f}"
                    f"{peak:9.0f}{found['tokens']:14,}"
                )


if __name__ == "__main__":
    main()
