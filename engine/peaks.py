"""What each phase of a step takes of memory, part by part, in bytes: counted from the arrays that live in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from engine.adapter_size import adapted_layers, adapter_parameters
from engine.architecture import FLOAT32, Architecture
from engine.config import TrainConfig
from engine.events import Predicted
from engine.layer_peaks import LayerPeaks, layer_peaks
from engine.machine import computes_on_gpu, is_nvidia
from engine.plans import Variant, row_limit

# What Python, its libraries and malloc hold beside MLX's arrays: 97 to 147 MB on Linux; a probe measures it anew. None
# of it is on an NVIDIA GPU, whose memory is what a budget there is of.
PROGRAM_BYTES = 0 if is_nvidia() else 160 * 1024**2
# Logits up to which the automatic head is the fused one, and what the blocked one takes of the vocabulary at a time;
# a test holds them to engine.heads.
FUSED_LOGITS_CPU, FUSED_LOGITS_GPU, HEAD_BLOCK = 2**20, 2**24, 4096


@dataclass(frozen=True)
class Sizes:
    """What a model's layers, boundaries, head and adapter take for rows of one length, in bytes."""

    shape: Architecture
    hidden: int  # a hidden state of the whole batch
    extras: int
    layers: tuple[LayerPeaks, ...]
    donors: tuple[int, ...]  # the layers whose keys and values later layers use
    first_trained: int
    heads: dict[bool, int]  # at work in the head, by whether layers below it are recorded
    ahead: dict[bool, int]  # by how much MLX ends above its limit, likewise
    adapter: int  # its parameters once
    accumulates: bool

    @classmethod
    def of(cls, shape: Architecture, config: TrainConfig, longest: int) -> Sizes:
        """The sizes when every row of a batch brings `longest` tokens: of a pair both sides."""
        length = max(1, min(longest, row_limit(config)) - 1)
        tokens = config.batch_size * length
        hidden = tokens * shape.hidden * shape.item_bytes
        heads = {kept: _head(shape, config, tokens, kept) for kept in (False, True)}
        widest = tokens * max(widths.inner for widths in shape.widths) * shape.item_bytes
        return cls(
            shape=shape,
            hidden=hidden,
            extras=tokens * shape.extras * shape.item_bytes,
            layers=tuple(layer_peaks(shape, config, length)),
            donors=_donors(shape),
            first_trained=shape.layers - adapted_layers(shape, config),
            heads={kept: work for kept, (work, _) in heads.items()},
            # On the CPU by what one operation makes. A GPU waits for each of the head's chunks; of what comes before
            # and after, a third of the widest array was measured.
            ahead={kept: widest // 3 if computes_on_gpu() else logits for kept, (_, logits) in heads.items()},
            adapter=FLOAT32 * adapter_parameters(shape, config),
            accumulates=config.accumulate > 1,
        )


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
    # The hidden states that wait at the starts of the first segments: of none, of one, and so on.
    starts = [*accumulate((one.stop > sizes.first_trained for one in segments), initial=0)]
    share = sizes.adapter // (shape.layers - sizes.first_trained)
    # On a GPU the adapter computes in the model's own dtype, in a copy.
    copies = sizes.adapter * shape.item_bytes // FLOAT32 if shape.item_bytes < FLOAT32 else 0
    waiting = sizes.adapter if sizes.accumulates else 0

    def saved(layers: range) -> int:
        """Of layers that are recorded; of those below the lowest trained one nothing is."""
        return sum(layer.saved for layer in sizes.layers[max(layers.start, sizes.first_trained) : layers.stop])

    top = saved(range(below, shape.layers))
    fixed = {
        "program": PROGRAM_BYTES,
        "weights": shape.weight_bytes,
        "adapter": 3 * sizes.adapter,  # parameters and both moments
    }
    if sizes.extras:
        fixed["extras"] = sizes.extras

    def phase(name: str, number: int, /, **parts: int) -> Predicted:
        named = {part.replace("_", " "): size for part, size in parts.items() if size > 0}
        return Predicted(name, number, {**fixed, **named})

    def shared(index: int, slopes: bool = False) -> int:
        """Keys and values that wait for layers above `index`, or their gradients besides."""
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
            boundaries=(starts[number + 1] + (len(segment) > 1)) * hidden
            if variant.tile
            else starts[number + 1] * hidden,
            kept_attention=keeps(segment.stop - 1),
            shared_keys_and_values=shared(segment.stop - 1),
            working=copies + max(layer.forward if variant.tile else layer.unrecorded for layer in at_work),
        )
    waits = starts[-1] * hidden
    common = {
        "gradients": waiting,
        "kept_attention": keeps(below),
        "shared_keys_and_values": shared(below),
    }
    head = sizes.heads[bool(kept)]
    if kept:
        yield phase(
            "forward",
            len(segments),
            **common,
            boundaries=waits + hidden,
            segment=top,
            working=copies + max(layer.top_forward for layer in sizes.layers[below:]),
        )
        yield phase("head", len(segments), **common, boundaries=waits + hidden, segment=top, head=copies + head)
        common["gradients"] += kept * share
        yield phase(
            "backward",
            len(segments),
            **common,
            boundaries=waits + 2 * hidden,
            segment=top,
            working=copies + max(layer.top_backward for layer in sizes.layers[below:]),
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
            boundaries=(starts[number + 1] + inside + 1) * hidden,
            kept_attention=keeps(segment.stop - 1),
            shared_keys_and_values=shared(segment.stop - 1, slopes=True),
            segment=0 if variant.tile else saved(segment),
            working=copies + working,
        )
    yield Predicted("update", 0, {**fixed, "gradients": waiting + 2 * sizes.adapter})


def _head(shape: Architecture, config: TrainConfig, tokens: int, kept: bool) -> tuple[int, int]:
    """What is at work in the head at its peak, and the logits that it has at a time, in bytes.

    `kept`: whether layers below it are being recorded.
    """
    arrays, logits = _logits(shape, config, tokens, kept)
    hidden = tokens * shape.hidden * shape.item_bytes
    if not computes_on_gpu():
        return arrays * logits + 4 * hidden, logits
    chunk = arrays * logits + round(2.25 * hidden)
    # Without recorded layers the gradient at all positions is made before the phase ends.
    return chunk if kept else max(chunk, 9 * hidden), logits


def _logits(shape: Architecture, config: TrainConfig, tokens: int, kept: bool) -> tuple[int, int]:
    """How many arrays as large as a chunk's logits the head has at its peak, and how large those are."""
    on_gpu, caps, chunk = computes_on_gpu(), int(shape.caps_logits), min(config.head_chunk, tokens)
    logits = FLOAT32 * chunk * shape.vocabulary
    most = FUSED_LOGITS_GPU if on_gpu else FUSED_LOGITS_CPU
    automatic = "fused" if kept or chunk * shape.vocabulary <= most else "blocked"
    match automatic if config.head == "auto" else config.head:
        case "full":
            return 4 + caps if on_gpu else 3 + 2 * caps, FLOAT32 * tokens * shape.vocabulary
        case "chunked":
            return 4 + caps, logits
        case "blocked":
            # A GPU is some blocks ahead of what it gives back.
            block = min(4 * HEAD_BLOCK if on_gpu else HEAD_BLOCK, shape.vocabulary)
            return 8 + caps if on_gpu else 2, FLOAT32 * chunk * (block + shape.hidden)
    return 4 + caps if on_gpu else 2, logits
