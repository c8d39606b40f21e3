"""What each phase of a step takes of memory, part by part, in bytes: counted from the arrays that live in it.

The arrays are those of `engine.whole`, `engine.pieces`, `engine.attention_arithmetic` and `engine.heads`. Which are
alive at a time follows from the code there; how many live inside one evaluation was measured, array by array, on
models that differ in one width each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from engine.adapter_size import adapter_parameters
from engine.architecture import FLOAT32, Architecture
from engine.config import TrainConfig
from engine.events import Predicted
from engine.machine import computes_on_gpu
from engine.plans import TILE, Variant, row_limit

# What Python and its libraries hold beside MLX's arrays; a probe measures it.
PROGRAM_BYTES = 350 * 1024**2
# Queries that attention takes at a time on the CPU; a test holds it to engine.attention.BLOCK.
ATTENTION_BLOCK = 128
# Logits up to which the automatic head is the fused one, and what the blocked one takes of the vocabulary at a time;
# a test holds them to engine.heads.
FUSED_LOGITS_CPU, FUSED_LOGITS_GPU, HEAD_BLOCK = 2**20, 2**24, 4096


@dataclass(frozen=True)
class _Layer:
    """What one decoder layer takes for a batch: its arrays, and what lives at the most while it is walked."""

    attended: int  # what attention gave, with its log-sum-exps
    shared: int  # its keys and values, 0 where it has none of its own
    saved: int  # of its forward, for a recorded backward
    forward: int  # at work in pieces, its input not counted
    backward: int  # the same, and the gradient at its output not counted
    lean: int  # the same, with attention computed again
    recorded: int  # besides what is saved: going backward as a part of a recorded graph
    unrecorded: int  # going forward as a part of a graph that is not recorded


@dataclass(frozen=True)
class Sizes:
    """What a model's layers, boundaries, head and adapter take for rows of one length, in bytes."""

    shape: Architecture
    hidden: int  # a hidden state of the whole batch
    extras: int
    layers: tuple[_Layer, ...]
    donors: tuple[int, ...]  # the layers whose keys and values later layers use
    first_trained: int
    heads: dict[bool, int]  # at work in the head, by whether layers below it are recorded
    adapter: int  # its parameters once
    accumulates: bool

    @classmethod
    def of(cls, shape: Architecture, config: TrainConfig, longest: int) -> Sizes:
        """The sizes when every row of a batch brings `longest` tokens: of a pair both sides."""
        length = max(1, min(longest, row_limit(config)) - 1)
        tokens = config.batch_size * length
        adapted = min(config.last_layers or shape.layers, shape.layers)
        hidden = tokens * shape.hidden * shape.item_bytes
        return cls(
            shape=shape,
            hidden=hidden,
            extras=tokens * shape.extras * shape.item_bytes,
            layers=tuple(_layers(shape, config, length)),
            donors=_donors(shape),
            first_trained=0 if config.adapter else shape.layers - adapted,
            heads={kept: _head_bytes(shape, config, tokens, kept) + 3 * hidden for kept in (False, True)},
            adapter=FLOAT32 * adapter_parameters(shape, config),
            accumulates=config.accumulate > 1,
        )


def _layers(shape: Architecture, config: TrainConfig, length: int) -> Iterator[_Layer]:
    tokens, item = config.batch_size * length, shape.item_bytes
    at_once = tokens if config.pack else length
    tile = min(TILE, at_once) * (1 if config.pack else config.batch_size)
    # Packed rows are attended one after the other.
    scores = FLOAT32 * shape.heads * min(ATTENTION_BLOCK, length) * length
    scores *= 1 if config.pack else config.batch_size
    h = tokens * shape.hidden * item
    post_norms = max(0, shape.norms - 2)
    sums = FLOAT32 * tokens * shape.heads
    known: dict[object, _Layer] = {}
    for widths in shape.widths:
        if widths not in known:
            a, k, i = (tokens * width * item for width in (widths.queries, widths.keys, widths.inner))
            near = k or tokens * item * shape.kv_heads * widths.queries // shape.heads
            block = ATTENTION_BLOCK * widths.queries * item
            working = tile * item * (8.1 * widths.inner + (2.2 + 2 * post_norms) * shape.hidden)
            attending = 0.43 * a + 1.65 * near + 3.8 * scores + 0.53 * block
            normed_heads = (a + k) if shape.head_norms else 0
            saved = (4 + post_norms + bool(shape.extras)) * h + 3 * a + 2 * k + shape.gated * i + sums + normed_heads
            finish = max(3 * h + 2 * a + 2 * k + working, 4 * h + 3 * a + 2 * k) - 2 * h
            mix = 3 * a + 4 * near + 2 * sums + attending
            known[widths] = _Layer(
                attended=a + sums,
                shared=2 * k,
                saved=saved,
                forward=round(
                    max(
                        2 * a + 4 * k,
                        a + 2 * near + max(a + sums + 3.6 * scores, 2 * (a + sums)),
                        a + sums + h + max(h, tile * item * (3.65 * widths.inner + 3 * shape.hidden)),
                    )
                ),
                backward=round(max(2 * a + 4 * k + a + sums, finish + a + sums, mix)),
                lean=round(max(2 * a + 4 * k, finish + a + sums, mix)),
                recorded=round(
                    max(2.2 * i + (3.5 - post_norms) * h, 3.6 * h - saved + 4 * h + 6 * a + 5 * near + 2.1 * scores)
                ),
                unrecorded=round(max(2 * h + 4 * i, 1.5 * h + 1.5 * a + 3 * near + 1.2 * scores)),
            )
        yield known[widths]


def _donors(shape: Architecture) -> tuple[int, ...]:
    """The last layer of each width among those with keys and values of their own."""
    last = {widths.queries: index for index, widths in enumerate(shape.widths) if widths.keys}
    return tuple(sorted(last.values())[-shape.donors :]) if shape.donors else ()


def phases(sizes: Sizes, variant: Variant) -> Iterator[Predicted]:
    """Every phase of a step in its order, the optimizer's update last."""
    shape, hidden = sizes.shape, sizes.hidden
    kept, size = variant.kept, variant.segment_size or shape.layers
    below = shape.layers - kept
    segments = [range(start, min(start + size, below)) for start in range(0, below, size)]
    attended = [0, *accumulate(layer.attended for layer in sizes.layers)]
    attended = [sum_ - attended[min(sizes.first_trained, below)] for sum_ in attended]
    share = sizes.adapter // (shape.layers - sizes.first_trained)
    # On a GPU the adapter computes in the model's own dtype, in a copy.
    copies = sizes.adapter * shape.item_bytes // FLOAT32 if shape.item_bytes < FLOAT32 else 0
    waiting = sizes.adapter if sizes.accumulates else 0
    top = sum(layer.saved for layer in sizes.layers[below:])
    fixed = {
        "program": PROGRAM_BYTES,
        "weights": shape.weight_bytes,
        "adapter": 3 * sizes.adapter,  # parameters and both moments
        "extras": sizes.extras,
    }

    def phase(name: str, number: int, /, **parts: int) -> Predicted:
        named = {part.replace("_", " "): size for part, size in parts.items() if size > 0}
        return Predicted(name, number, {**fixed, **named})

    def boundaries(segment: int) -> int:
        """The hidden states that wait at the start of this segment and of those below it."""
        return sum(one.stop > sizes.first_trained for one in segments[: segment + 1])

    def shared(index: int, slopes: bool = False) -> int:
        """Keys and values that wait for layers above `index`, or their gradients besides."""
        if index >= shape.layers:
            return 0
        return sum(sizes.layers[one].shared for one in sizes.donors if one <= index) * (2 if slopes else 1)

    def keeps(index: int) -> int:
        """What attention gave in the layers below `index`, where it is kept."""
        return max(0, attended[index]) if variant.keep_attention else 0

    for number, segment in enumerate(segments):
        at_work = sizes.layers[segment.start : segment.stop]
        yield phase(
            "forward",
            number,
            gradients=waiting,
            boundaries=(boundaries(number) + (len(segment) > 1)) * hidden
            if variant.tile
            else boundaries(number) * hidden,
            kept_attention=keeps(segment.stop - 1),
            shared_keys_and_values=shared(segment.stop - 1),
            working=copies + max(layer.forward if variant.tile else layer.unrecorded for layer in at_work),
        )
    waits = boundaries(len(segments)) * hidden
    common = {
        "gradients": waiting,
        "kept_attention": keeps(below),
        "shared_keys_and_values": shared(below),
    }
    head = sizes.heads[bool(kept)] + hidden
    if kept:
        yield phase("forward", len(segments), **common, boundaries=waits + hidden, segment=top, working=copies + hidden)
        yield phase("head", len(segments), **common, boundaries=waits + hidden, segment=top, head=copies + head)
        common["gradients"] += kept * share
        yield phase(
            "backward",
            len(segments),
            **common,
            boundaries=waits + 2 * hidden,
            segment=top,
            working=copies + max(layer.recorded for layer in sizes.layers[below:]),
        )
    else:
        yield phase("head", len(segments), **common, boundaries=waits, head=copies + head)
    for number in reversed(range(len(segments))):
        segment = segments[number]
        if segment.stop <= sizes.first_trained:
            break
        at_work = sizes.layers[segment.start : segment.stop]
        done = shape.layers - max(segment.start, sizes.first_trained)
        inside = len(segment) - 1 if variant.tile else 0
        if variant.tile:
            working = max(layer.backward if variant.keep_attention else layer.lean for layer in at_work)
        else:
            working = max(layer.recorded for layer in at_work)
        yield phase(
            "backward",
            number,
            gradients=waiting + done * share,
            boundaries=(boundaries(number) + inside + 1) * hidden,
            kept_attention=keeps(segment.stop - 1),
            shared_keys_and_values=shared(segment.stop - 1, slopes=True),
            segment=0 if variant.tile else sum(layer.saved for layer in at_work),
            working=copies + working,
        )
    yield Predicted("update", 0, {**fixed, "gradients": waiting + 2 * sizes.adapter})


def _head_bytes(shape: Architecture, config: TrainConfig, tokens: int, kept: bool) -> int:
    """What a chunk of the head takes at its peak, its logits' twofold as they are and as their gradients."""
    chunk = min(config.head_chunk, tokens)
    logits = FLOAT32 * chunk * shape.vocabulary
    most = FUSED_LOGITS_GPU if computes_on_gpu() else FUSED_LOGITS_CPU
    automatic = "fused" if kept or chunk * shape.vocabulary <= most else "blocked"
    match automatic if config.head == "auto" else config.head:
        case "full":
            return 4 * FLOAT32 * tokens * shape.vocabulary
        case "chunked":
            return 4 * logits
        case "blocked":
            block = min(4 * HEAD_BLOCK if computes_on_gpu() else HEAD_BLOCK, shape.vocabulary)
            return 2 * FLOAT32 * chunk * (block + shape.hidden)
    return 2 * logits
