"""The bounded head against float64 NumPy: dense, tied and quantized, at few tokens and many."""

import numpy as np
import pytest

from engine.backend import mx, nn
from engine.heads import log_probabilities_and_gradients, target_log_probabilities

HIDDEN, VOCABULARY = 64, 192


def make_head(kind):
    mx.random.seed(3)
    module = nn.Embedding(VOCABULARY, HIDDEN) if "embedding" in kind else nn.Linear(HIDDEN, VOCABULARY, bias=False)
    module.weight = mx.random.normal(module.weight.shape) * 0.3
    if "quantized" not in kind:
        return module, np.array(module.weight, np.float64)
    module = module.to_quantized(group_size=32, bits=4)
    dense = mx.dequantize(module.weight, module.scales, module.biases, group_size=32, bits=4)
    return module, np.array(dense, np.float64)


@pytest.mark.parametrize("kind", ["linear", "embedding", "quantized linear", "quantized embedding"])
@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5, 33])
@pytest.mark.parametrize("chunk", [1, 8, 64])
def test_values_and_gradients(kind, tokens, chunk):
    head, weight = make_head(kind)
    random = np.random.default_rng(tokens)
    hidden = random.standard_normal((tokens, HIDDEN)).astype(np.float32)
    targets = random.integers(0, VOCABULARY, tokens)
    weights = random.standard_normal(tokens).astype(np.float32)
    pieces = log_probabilities_and_gradients(head, mx.array(hidden), mx.array(targets), mx.array(weights), chunk)
    logits = hidden.astype(np.float64) @ weight.T
    logits -= logits.max(-1, keepdims=True)
    softmax = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    expected = np.log(softmax[np.arange(tokens), targets])
    slope = (np.eye(VOCABULARY)[targets] - softmax) * weights[:, None] @ weight
    # float32 sums over 192 entries of order one: a few roundings of 6e-8 each.
    np.testing.assert_allclose(np.concatenate([np.array(p) for p, _ in pieces]), expected, atol=2e-5)
    np.testing.assert_allclose(np.concatenate([np.array(g) for _, g in pieces]), slope, atol=2e-5)
    alone = target_log_probabilities(head, mx.array(hidden), mx.array(targets), chunk)
    np.testing.assert_allclose(np.array(alone), expected, atol=2e-5)


def test_a_certain_target_has_no_gradient_and_an_impossible_one_is_finite():
    head = nn.Linear(2, 3, bias=False)
    head.weight = mx.array([[100.0, 0.0], [0.0, 0.0], [-100.0, 0.0]])
    hidden, targets = mx.array([[3.0, 0.0], [3.0, 0.0]]), mx.array([0, 2])
    ((log_p, slope),) = log_probabilities_and_gradients(head, hidden, targets, mx.ones(2), 8)
    assert log_p.tolist() == [0.0, -600.0]
    assert np.isfinite(np.array(slope)).all()
    assert np.array(slope)[0].tolist() == [0.0, 0.0]
