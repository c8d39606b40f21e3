"""A child program that speaks like `python -m engine`, in milliseconds and without MLX.

The name of the data file says how it behaves: "killed" dies while training, "errors" has bad lines, "slow"
trains until it is told to stop, "long" has long prompts, "own" repeats a pair's prompt before each answer,
"broken" prints a traceback instead of an answer, "warned" warns of memory twice. A probe of "slow" data goes on until
it is stopped, of "greedy" data it runs out of memory, of "unfit" data it is refused. "opening" is read until it is
stopped, "columns" has names of its own, "short" has rows that would train nothing when cut, and "flawed" has many
kinds of problems; a fix of "stuck" data goes on until it is stopped. "unseen" rows can't be shown before there is a
file "seen" beside them. Whether the rows are answers or pairs it sees for
itself.
"""

import json
import os
import signal
import struct
import sys
import threading
import time
import zlib
from pathlib import Path

SAMPLE = {
    "name": "sample", "family": "llama", "supported": True, "reason": "", "layers": 30,
    "parameters": 134_515_008, "bytes": 269_000_000,
}  # fmt: skip


def say(**message):
    print(json.dumps(message), flush=True)


def option(arguments, name, default=""):
    """A flag's value, as argparse takes it: one that begins with a dash must stand behind "="."""
    if name in arguments:
        value = arguments[arguments.index(name) + 1]
        if value.startswith("-"):
            sys.exit(f"expected one argument after {name}")
        return value
    return next((one.partition("=")[2] for one in arguments if one.startswith(f"{name}=")), default)


def fail(message, hint):
    say(event="failed", kind="request", message=message, hint=hint, details="")
    return 2


def files_of(path):
    return sorted(Path(path).glob("train*")) if Path(path).is_dir() else [Path(path)]


def rows_of(path):
    lines = [line for file in files_of(path) for line in file.read_text(encoding="utf-8").splitlines()]
    return [json.loads(line) for line in lines if line.strip()]


def read(arguments):
    """The rows, of a file with names of its own by the columns that were given."""
    given = dict(pair.split("=") for pair in option(arguments, "--columns").split(",") if pair)
    return [row | {field: row[name] for field, name in given.items()} for row in rows_of(arguments[0])], given


def write_lengths(path, lengths):
    """An array of int32 as NumPy writes it, without the time that NumPy takes to load."""
    header = f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({len(lengths)}, 3), }}"
    header += " " * (117 - len(header)) + "\n"  # 128 bytes with what stands before it
    numbers = [number for row in lengths for number in row]
    data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    path.write_bytes(data + struct.pack(f"<{len(numbers)}i", *numbers))
    return str(path)


def row_lengths(arguments, rows):
    """Prompt and response of each row, and its line; the response of every tenth row begins late."""
    late = 300 if "short" in Path(arguments[0]).name else 0
    return [(30 + number % 30 + late * (number % 10 == 0), 20 + number % 40, number + 1) for number in range(rows)]


def home():
    return Path(os.environ["TUNESMITH_HOME"])


def models(arguments):
    folder = home() / "models" / "sample"
    if "--fetch" in arguments:
        for done in (10, 50, 93):
            say(
                event="stage",
                name="fetch",
                message=f"Fetching the sample model, {done} of 93 MB",
                done=done,
                total=93,
            )
        folder.mkdir(parents=True, exist_ok=True)
    say(models=[{**SAMPLE, "path": str(folder), "ready": folder.is_dir()}])
    return 0


def check(arguments):
    data = Path(arguments[0])
    if not data.exists():
        return fail(f"There is no file {data}.", "Choose another one.")
    if "broken" in data.name:
        raise RuntimeError("a mistake of the engine's")
    if "opening" in data.name:
        for done in range(1, 1_000_000):
            say(event="stage", name="data", message="Reading the data", done=min(done, 900) * 1_000_000, total=10**9)
            time.sleep(0.02)
    found, given = read(arguments)
    rows, pairs = len(found), sum("chosen" in row for row in found)
    wants_pairs = option(arguments, "--objective", "sft") != "sft"
    named = "columns" not in data.name or given
    problems = [
        problem(line, "not_a_pair" if wants_pairs else "pair_row", f"Line {line} is of the wrong kind.")
        for line, row in enumerate(found, start=1)
        if ("chosen" in row) != wants_pairs
    ]
    if not named:
        problems = [problem(line, "unknown_shape", f"Line {line} has no shape.") for line in range(1, rows + 1)]
    if "errors" in data.name:
        problems.append(problem(2, "missing_completion", "Line 2 has no 'completion'.", cure="skip"))
    if "flawed" in data.name:
        problems += flaws()
    lengths, limit = row_lengths(arguments, rows), int(option(arguments, "--max-length"))
    untrained = [line for prompt, _, line in lengths if prompt >= limit]
    problems += [problem(line, "nothing_to_train", f"Line {line} would train nothing.") for line in untrained]
    flawed = {one["line"] for one in problems if one["severity"] == "error"}
    cures = {one["cure"] for one in problems} - {""}
    valid = max(1, rows // 10)
    say(
        rows=rows, usable=rows - len(flawed), problems=problems,
        format="preference" if pairs == rows else "mixed" if pairs else "prompt/completion" if named else "unknown",
        tokens={"median": 60, "p95": 70, "max": 90, "total": 60 * rows}, trained_tokens=25 * rows,
        truncated_rows=0, rows_without_targets=len(untrained), split={"train": rows - valid, "valid": valid},
        split_text=f"{valid} rows are set aside to measure with and never trained.",
        longest=90, largest=90, largest_apart=120,
        columns={"names": list(found[0]), "used": given or {name: name for name in found[0] if named}},
        cures=[{"cure": cure, "label": LABELS[cure], "rows": 1} for cure in LABELS if cure in cures],
        files=[str(file) for file in files_of(data)],
        lengths=write_lengths(home() / f"lengths-{os.getpid()}.npy", lengths),
    )  # fmt: skip
    return 2 if flawed else 0


LABELS = {"skip": "Leave out 1 row", "trim": "Trim 12 rows", "dedupe": "Remove 2 duplicates"}


def problem(line, code, message, severity="error", cure="", column=0, fix="Mend it.", lines=()):
    return {
        "line": line, "severity": severity, "code": code, "message": message, "fix": fix, "cure": cure,
        "column": column, "lines": lines, "rows": sum(last - first + 1 for first, last in lines) or 1,
    }  # fmt: skip


def flaws():
    """Problems of six kinds: two errors, three warnings of which one tells of many rows, and a note."""
    many = [problem(line, "cut", f"Line {line} is cut by {line} tokens.", "warning", "trim") for line in range(4, 8)]
    return [
        problem(9, "personal_email", "Line 9 holds what looks like an e-mail address.", "note"),
        *many,
        problem(8, "cut", "408 more rows of the same kind.", "warning", "trim", lines=[[8, 415]]),
        problem(5, "duplicates", "Lines 5 and 6 hold the same row.", "warning", "dedupe", lines=[[5, 6]]),
        problem(3, "broken_json", "A comma is missing.", cure="skip", column=17),
        problem(2, "unknown_role", "Line 2 has the role 'bot'.", cure="skip"),
        problem(7, "special_token", "Line 7 holds a mark of the model's.", "warning"),
    ]


def fix(arguments):
    data = Path(arguments[0])
    say(event="stage", name="fix", message="Writing a new file", done=1, total=2)
    if "stuck" in data.name:
        threading.Event().wait()
    lines = data.read_text(encoding="utf-8").splitlines()
    new = data.with_name(f"{data.stem.replace('errors', 'mended')} (fixed).jsonl")
    if "unfit" in data.name:
        return fail("The disk is full.", "Make room and try again.")
    new.write_text("".join(line + "\n" for line in lines[:1] + lines[2:]), encoding="utf-8")
    say(path=str(new), rows=len(lines) - 1, changed=0, left_out=1)
    return 0


def token(text, part="prompt", trained=None, cut=False):
    trained = part != "prompt" if trained is None else trained
    special = text.startswith("<|")
    # The same text is the same token, as with a tokenizer.
    number = zlib.crc32(text.encode())
    return {"id": number, "text": text, "trained": trained, "part": part, "cut": cut, "special": special}


def turn(text, part):
    return [token(word + " ", part) for word in text.split()] + [token("<|im_end|>", part)]


def preview(arguments):
    (rows, _), first = read(arguments), int(option(arguments, "--row", "1"))
    repeat = 1000 if "long" in Path(arguments[0]).name else 1
    found = []
    if "unseen" in Path(arguments[0]).name and not Path(arguments[0]).with_name("seen").exists():
        return fail("The rows can't be shown.", "Try again.")
    order, count = list(enumerate(rows, start=1)), int(option(arguments, "--count", "1"))
    if jump := option(arguments, "--jump"):
        order = order[::-1] if jump == "longest" else order[1:2] if jump == "cut" else []
    wrapped = False
    if sought := option(arguments, "--find"):
        holding = [number for number, row in order if sought in json.dumps(row)]
        later = [number for number in holding if number >= first]
        wrapped, first = bool(holding) and not later, next(iter(later or holding), len(rows) + 1)
    for number, row in order[first - 1 : first - 1 + count]:
        if "prompt" not in row:
            found.append({"text": json.dumps(row), "tokens": [], "line": number, "row": number, "problem": "No shape."})
            continue
        tokens = [token("<|im_start|>"), token("user\n"), *turn(row["prompt"], "prompt")[:-1] * repeat]
        tokens += [token("<|im_end|>"), token("\n"), token("<|im_start|>"), token("assistant\n")]
        if "chosen" in row:
            own = tokens if "own" in Path(arguments[0]).name else []
            tokens = tokens + turn(row["chosen"], "chosen") + own + turn(row["rejected"], "rejected")
        else:
            tokens += turn(row["completion"], "response")
        tokens += [token("cut off", trained=False, cut=True)] * (number == 2 and "chosen" not in row)
        found.append({"text": "", "tokens": tokens, "line": number, "row": number, "rows": len(rows), "problem": None})
    say(rows_total=len(order), wrapped=wrapped, rows=found)
    return 0


def train(arguments):
    config = json.loads(Path(option(arguments, "--config")).read_text())
    stopped = []
    threading.Thread(target=lambda: (sys.stdin.read(), stopped.append(True)), daemon=True).start()
    name = Path(config["data"]).name
    run = home() / "runs" / f"run-{os.getpid()}"
    (run / "adapter").mkdir(parents=True)
    say(event="stage", name="load", message="Loading the model", done=0, total=0)
    steps = config["steps"] or 40
    gigabyte = 1024**3
    order = [("forward", k) for k in range(6)] + [("head", 0)] + [("backward", k) for k in range(5, -1, -1)]
    program = {"program": gigabyte // 5, "weights": gigabyte // 2}
    predicted = [
        {"name": part, "segment": k, "parts": {**program, "head" if part == "head" else "segment": gigabyte}}
        for part, k in order
    ]
    say(
        event="started", run=str(run), steps=steps, segment_size=5, segments=6, budget_bytes=2 * gigabyte,
        resting_bytes=gigabyte // 2, predicted_peak_bytes=int(1.7 * gigabyte), train_rows=90, valid_rows=10,
        split="10 rows are set aside.", trainable_parameters=1_000_000,
        program_bytes=gigabyte // 5, predicted=predicted,
    )  # fmt: skip
    step, loss, preference = 0, 3.0, None
    while step < steps and not stopped:
        step += 1
        loss = 0.3 + 2.7 * 0.93**step + 0.12 * ((step * 7919) % 13 / 13 - 0.5)
        if config["objective"] != "sft":
            preference = {
                "accuracy": min(1.0, 0.5 + 0.01 * step), "margin": 0.05 * step - 0.2,
                "chosen_logp": -1.0 + 0.005 * step, "rejected_logp": -1.1 - 0.01 * step,
            }  # fmt: skip
        if "killed" in name and step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        peaks = [int(gigabyte * (0.6 + 0.02 * k)) for k in range(6)]
        phases = [{"name": "forward", "segment": k, "peak_bytes": peak} for k, peak in enumerate(peaks)]
        phases += [{"name": "head", "segment": 0, "peak_bytes": int(gigabyte * 0.95)}]
        phases += [
            {"name": "backward", "segment": k, "peak_bytes": int(gigabyte * (1.1 + 0.04 * k))} for k in range(5, -1, -1)
        ]
        say(
            event="step", step=step, steps=steps, loss=loss, learning_rate=2e-4 * (1 - step / steps / 2),
            grad_norm=0.71, tokens=240, trained_tokens=100, tokens_per_second=420.0, seconds=0.05,
            peak_bytes=int(gigabyte * 1.3), active_bytes=gigabyte, cache_bytes=0, process_bytes=2 * gigabyte,
            swap_bytes=int(gigabyte * 0.01 * step), phases=phases, preference=preference,
        )  # fmt: skip
        if "warned" in name and step in (3, 6):
            say(event="warned", message=f"Memory is short at step {step}.", hint="Close other programs.")
        if step % 5 == 0:
            say(event="evaluated", step=step, loss=loss + 0.1, rows=10, trained_tokens=250, preference=preference)
        if "slow" in name:
            time.sleep(0.02)
    say(event="saved", step=step, path=str(run / "adapter"))
    say(
        event="finished", step=step, steps=steps, stopped=bool(stopped), run=str(run),
        adapter=str(run / "adapter" / "adapters.safetensors"),
        first_loss=2.8, last_loss=loss, seconds=4.2, peak_bytes=int(gigabyte * 1.3),
    )  # fmt: skip
    return 0


def probe(arguments):
    config = json.loads(Path(option(arguments, "--config")).read_text())
    name, size = Path(config["data"]).name, config["segment_size"]
    size = 6 if size == "auto" else size
    say(event="stage", name="probe", message=f"Measuring segment size {size}", done=0, total=1)
    if "unfit" in name:
        return fail("The rows can't be measured.", "Choose other data.")
    if "slow" in name:
        sys.stdin.read()
    megabyte = 1024**2
    plan = {"segment_size": size, "peak_bytes": 300 * megabyte, "parts": {}, "kind": "pieces"}
    measured = {"predicted_bytes": 310 * megabyte, "measured_bytes": 290 * megabyte, "seconds": 1.9}
    died = {"predicted_bytes": 310 * megabyte, "died": "Its process was ended because memory ran out."}
    say(
        budget_bytes=int(config["memory_budget_gb"] * 1024**3), length=90, calibrated=True,
        plans=[plan | (died if "greedy" in name else measured), {**plan, "segment_size": 1}],
        suggested={"segment_size": size, "reason": ""}, remedies=[],
    )  # fmt: skip
    return 0


def talk(arguments):
    say(ready=True)
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("stop"):
            continue
        if message["prompt"] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        tuned = message["adapter"] and option(arguments, "--adapter")
        text = '{"name": "Clara", "guests": 3, "day": "Saturday", "time": "18:30"}' if tuned else "I am a model."
        for word in text.split(" "):
            say(text=word if word == text.split(" ")[0] else " " + word)
        say(done=True, tokens=8, seconds=0.1)
    return 0


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    answers = {
        "models": models,
        "check": check,
        "preview": preview,
        "fix": fix,
        "probe": probe,
        "train": train,
        "talk": talk,
    }
    sys.exit(answers[command](rest))
