"""Blockwise attention against float64 NumPy, forward and backward, and against finite differences."""

import numpy as np
import pytest

from engine import attention, estimate
from engine.attention import attend
from engine.backend import mx

# float32 against float64 over sums of up to 300 terms of order one: 1e-5 is some hundred roundings.
TOLERANCE = 1e-5


def reference(q, k, v, scale, window):
    """Plain softmax attention and its gradient for the cotangent of ones weighted by `q`'s own values."""
    groups, length = q.shape[1] // k.shape[1], q.shape[2]
    k, v = np.repeat(k, groups, axis=1), np.repeat(v, groups, axis=1)
    row, column = np.arange(length)[:, None], np.arange(length)[None]
    visible = (row >= column) & (row < column + (window or length + 1))
    scores = np.where(visible, scale * q @ k.swapaxes(-1, -2), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return weights, weights @ v, k, v


def reference_gradients(q, k, v, slope, scale, window):
    weights, _, wide_k, wide_v = reference(q, k, v, scale, window)
    of_weights = slope @ wide_v.swapaxes(-1, -2)
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdims=True)) * scale
    batch, heads, length, width = k.shape

    def folded(array):
        return array.reshape(batch, heads, -1, length, width).sum(2)

    return of_scores @ wide_k, folded(of_scores.swapaxes(-1, -2) @ q), folded(weights.swapaxes(-1, -2) @ slope)


@pytest.mark.parametrize("window", [None, 1, 40, 128, 200])
@pytest.mark.parametrize(("heads", "kv_heads", "length"), [(6, 2, 300), (4, 4, 129), (3, 1, 257), (2, 2, 60)])
def test_output_and_gradients(heads, kv_heads, length, window):
    random = np.random.default_rng(length)
    q = random.standard_normal((2, heads, length, 8))
    k, v = (random.standard_normal((2, kv_heads, length, 8)) for _ in range(2))
    slope = random.standard_normal(q.shape)
    arrays = [mx.array(array.astype(np.float32)) for array in (q, k, v)]
    outputs, gradients = mx.vjp(
        lambda q, k, v: attend(q, k, v, 0.3, window), arrays, [mx.array(slope.astype(np.float32))]
    )
    expected = reference(q, k, v, 0.3, window)[1]
    np.testing.assert_allclose(np.array(outputs[0]), expected, atol=TOLERANCE * np.abs(expected).max())
    for got, wanted in zip(gradients, reference_gradients(q, k, v, slope, 0.3, window), strict=True):
        np.testing.assert_allclose(np.array(got), wanted, atol=TOLERANCE * max(1, np.abs(wanted).max()))


def test_the_reference_against_finite_differences():
    random = np.random.default_rng(0)
    q, k, v, slope = (random.standard_normal((1, 2, 12, 4)) for _ in range(4))
    for number, gradient in enumerate(reference_gradients(q, k, v, slope, 0.5, 5)):
        arrays = [q, k, v]
        direction = random.standard_normal(arrays[number].shape)
        step = 1e-6

        def value(sign, number=number, arrays=arrays, direction=direction, step=step):
            moved = [array + sign * step * direction * (place == number) for place, array in enumerate(arrays)]
            return (reference(*moved, 0.5, 5)[1] * slope).sum()

        assert (value(1) - value(-1)) / (2 * step) == pytest.approx((gradient * direction).sum(), rel=1e-6)


def test_memory_grows_with_length_not_with_its_square():
    def peak(length):
        q = mx.random.normal((1, 4, length, 16))
        mx.eval(q)
        mx.clear_cache()
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        mx.eval(mx.vjp(lambda q: attend(q, q, q, 0.25, 256), [q], [q]))
        return mx.get_peak_memory() - before

    assert peak(4096) < 2.5 * peak(2048)


def test_the_estimate_knows_the_block():
    assert estimate.ATTENTION_BLOCK == attention.BLOCK
