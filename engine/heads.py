"""The bounded head: log-probabilities of targets and their gradients, without [tokens, vocabulary] logits.

A chunk of tokens at a time. With z = W h the logits of a token and y its target,

    log p = z_y - logsumexp(z)        d log p / d h = W^T (onehot(y) - softmax(z))

so one pass over the logits gives both: two matrix products a chunk and no recorded graph through them.
"""

from __future__ import annotations

from typing import Any

from engine.backend import mx, nn


def target_log_probabilities(head: nn.Module, hidden: mx.array, targets: mx.array, chunk: int) -> mx.array:
    """log p of each target, float32 [tokens], from normed hidden states [tokens, hidden]."""
    pieces = []
    for start in range(0, hidden.shape[0], chunk):
        logits = _logits(head, hidden[start : start + chunk])
        pieces.append(_picked(logits, targets[start : start + chunk]) - mx.logsumexp(logits, axis=-1))
        mx.eval(pieces[-1])
    return mx.concatenate(pieces)


def log_probabilities_and_gradients(
    head: nn.Module, hidden: mx.array, targets: mx.array, weights: mx.array, chunk: int
) -> list[tuple[mx.array, mx.array]]:
    """log p of the targets, and the gradient of sum(weights * log p) at the hidden states, chunk by chunk.

    `hidden` is [tokens, hidden] after the final norm, `targets` and `weights` are [tokens]. A chunk's pair is
    float32 [chunk] and [chunk, hidden] in the dtype of `hidden`. Nothing is evaluated here: the caller
    evaluates one pair after the other, outside any transformation, or an asynchronous device would hold the
    logits of many chunks at the same time.
    """
    return [
        _chunk(head, hidden[part], targets[part, None], weights[part, None])
        for part in (slice(start, start + chunk) for start in range(0, hidden.shape[0], chunk))
    ]


def _chunk(head: nn.Module, hidden: mx.array, target: mx.array, weight: mx.array) -> tuple[mx.array, mx.array]:
    # One exponential over the vocabulary for both results.
    logits = _logits(head, hidden)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    powers = mx.exp(shifted)
    total = powers.sum(axis=-1, keepdims=True)
    log_p = mx.take_along_axis(shifted, target, axis=-1) - mx.log(total)
    # weight * (onehot - softmax): the softmax everywhere, then the target's own entry put right.
    slope = powers * (-weight / total)
    slope = mx.put_along_axis(slope, target, weight * (1 - mx.exp(log_p)), axis=-1)
    return log_p[:, 0], _through_weight(head, slope.astype(hidden.dtype))


def _logits(head: nn.Module, hidden: mx.array) -> mx.array:
    """float32: half precision loses the tail of the sum over the vocabulary."""
    module: Any = head
    project = module.as_linear if hasattr(module, "as_linear") else module
    logits: mx.array = project(hidden)
    return logits.astype(mx.float32)


def _picked(logits: mx.array, targets: mx.array) -> mx.array:
    return mx.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]


def _through_weight(head: nn.Module, slope: mx.array) -> mx.array:
    """[tokens, vocabulary] times the head's weight [vocabulary, hidden], quantized or dense."""
    module: Any = head
    if isinstance(head, (nn.QuantizedLinear, nn.QuantizedEmbedding)):
        out: mx.array = mx.quantized_matmul(
            slope,
            module.weight,
            scales=module.scales,
            biases=module.get("biases"),
            transpose=False,
            group_size=module.group_size,
            bits=module.bits,
            mode=module.mode,
        )
        return out
    dense: mx.array = slope @ module.weight
    return dense
