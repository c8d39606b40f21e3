"""Blockwise attention over spans against float64 NumPy, forward and backward, and against finite differences."""

import numpy as np
import pytest

from engine import attention, attention_arithmetic, attention_kernel, heads, layer_peaks, peaks
from engine.attention import Sight, attend, backward, forward, inner_product
from engine.backend import mx
from engine.config import TrainConfig
from engine.spans import Forest, is_visible, plain

# float32 against float64 over sums of up to 300 terms of order one: 1e-5 is some hundred roundings.
TOLERANCE = 1e-5


def reference(q, k, v, scale, visible):
    """Plain softmax attention; what each query sees comes as [batch, 1, length, length]."""
    groups = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, groups, axis=1), np.repeat(v, groups, axis=1)
    scores = np.where(visible, scale * q @ k.swapaxes(-1, -2), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return weights, weights @ v, k, v


def reference_gradients(q, k, v, slope, scale, visible):
    weights, _, wide_k, wide_v = reference(q, k, v, scale, visible)
    of_weights = slope @ wide_v.swapaxes(-1, -2)
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdims=True)) * scale
    batch, heads, length, width = k.shape

    def folded(array):
        return array.reshape(batch, heads, -1, length, width).sum(2)

    return of_scores @ wide_k, folded(of_scores.swapaxes(-1, -2) @ q), folded(weights.swapaxes(-1, -2) @ slope)


def pair(prompt, chosen, rejected):
    """A prompt with two answers."""
    positions = [np.arange(prompt + chosen), np.arange(prompt, prompt + rejected)]
    until = np.repeat(
        [prompt + chosen + rejected, prompt + chosen, prompt + chosen + rejected], [prompt, chosen, rejected]
    )
    return Forest(np.concatenate(positions).astype(np.int32), until.astype(np.int32))


def packed(*lengths):
    """Rows one after another."""
    positions = np.concatenate([np.arange(length) for length in lengths])
    return Forest(positions.astype(np.int32), np.repeat(np.cumsum(lengths), lengths).astype(np.int32))


LAYOUTS = {
    "plain": (plain(300), plain(300)),
    "short": (plain(60), plain(60)),
    "a pair": (pair(150, 90, 60),),
    "packed": (packed(130, 1, 40, 129),),
    "packed short": (packed(20, 30),),
    "a batch of trees": (pair(200, 1, 99), plain(300), packed(7, 293)),
}


@pytest.mark.parametrize("window", [None, 1, 40, 128, 200])
@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 2), (4, 4)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_output_and_gradients(layout, heads, kv_heads, window, monkeypatch):
    forests = LAYOUTS[layout]
    batch, length = len(forests), forests[0].length
    random = np.random.default_rng(length)
    q = random.standard_normal((batch, heads, length, 8))
    k, v = (random.standard_normal((batch, kv_heads, length, 8)) for _ in range(2))
    slope = random.standard_normal(q.shape)
    arrays = [mx.array(array.astype(np.float32)) for array in (q, k, v)]
    of_output = mx.array(slope.astype(np.float32))
    sight = Sight(0.3, window, forests)
    places = np.arange(length)
    visible = np.stack([is_visible(forest, places, places, window) for forest in forests])[:, None]
    expected = reference(q, k, v, 0.3, visible)[1]
    wanted = reference_gradients(q, k, v, slope, 0.3, visible)

    def check(output, gradients):
        np.testing.assert_allclose(np.array(output), expected, atol=TOLERANCE * np.abs(expected).max())
        for got, gradient in zip(gradients, wanted, strict=True):
            np.testing.assert_allclose(np.array(got), gradient, atol=TOLERANCE * max(1, np.abs(gradient).max()))

    (output,), gradients = mx.vjp(lambda q, k, v: attend(q, k, v, sight), arrays, [of_output])
    check(output, gradients)
    output, sums = forward(*arrays, sight)
    check(output, backward(*arrays, sums, inner_product(of_output, output), of_output, sight))
    # What a GPU does, block by block, is right on the CPU too.
    monkeypatch.setattr(attention_kernel, "SIZES", (96,))
    for row, forest in enumerate(forests):
        part = [array[row : row + 1] for array in (*arrays, of_output)]
        for now in (True, False):
            mixed, nothing = attention_kernel.forward(*part[:3], sight, forest, now)
            np.testing.assert_allclose(np.array(mixed)[0], expected[row], atol=TOLERANCE * np.abs(expected).max())
            slopes = attention_kernel.backward(
                *part[:3], nothing, nothing, part[3], sight=sight, forest=forest, now=now
            )
            for got, gradient in zip(slopes, wanted, strict=True):
                np.testing.assert_allclose(
                    np.array(got)[0], gradient[row], atol=TOLERANCE * max(1, np.abs(gradient).max())
                )


def test_the_reference_against_finite_differences():
    random = np.random.default_rng(0)
    q, k, v, slope = (random.standard_normal((1, 2, 12, 4)) for _ in range(4))
    places = np.arange(12)
    visible = is_visible(pair(5, 4, 3), places, places, 5)[None, None]
    for number, gradient in enumerate(reference_gradients(q, k, v, slope, 0.5, visible)):
        arrays = [q, k, v]
        direction = random.standard_normal(arrays[number].shape)
        step = 1e-6

        def value(sign, number=number, arrays=arrays, direction=direction, step=step):
            moved = [array + sign * step * direction * (place == number) for place, array in enumerate(arrays)]
            return (reference(*moved, 0.5, visible)[1] * slope).sum()

        assert (value(1) - value(-1)) / (2 * step) == pytest.approx((gradient * direction).sum(), rel=1e-6)


def test_memory_grows_with_length_not_with_its_square():
    def peak(length):
        q, sight = mx.random.normal((1, 4, length, 16)), Sight(0.25, 256, (plain(length),))
        mx.eval(q)
        mx.clear_cache()
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        mx.eval(mx.vjp(lambda q: attend(q, q, q, sight), [q], [q]))
        return mx.get_peak_memory() - before

    assert peak(4096) < 2.5 * peak(2048)


def test_padding_behind_a_row_changes_nothing():
    mx.random.seed(0)
    arrays = [mx.random.normal(shape) for shape in ((2, 4, 37, 16), (2, 2, 37, 16), (2, 2, 37, 16))]
    slope = mx.random.normal((2, 4, 37, 16))

    def results(multiple):
        return mx.vjp(lambda *qkv: attention_kernel.whole(*qkv, 0.25, multiple), arrays, [slope])

    (plain,), plain_slopes = results(1)
    (padded,), padded_slopes = results(32)
    for a, b in zip([plain, *plain_slopes], [padded, *padded_slopes], strict=True):
        assert a.shape == b.shape
        # Sums of up to 37 float32 products, in another order.
        assert np.allclose(np.array(a), np.array(b), atol=2e-6)


def test_the_estimate_knows_the_engine_s_sizes():
    assert layer_peaks.ATTENTION_BLOCK == attention_arithmetic.BLOCK
    assert layer_peaks.FUSED_HEAD_DIM == attention.FUSED_HEAD_DIM
    assert layer_peaks.FUSED_LENGTHS == attention_kernel.CUDA_LENGTHS
    limits = layer_peaks.BLOCK_SIZES, layer_peaks.BLOCK_SCORES_BYTES
    assert limits == (attention_kernel.SIZES, attention_kernel.SCORES_BYTES)
    known = peaks.FUSED_LOGITS_CPU, peaks.FUSED_LOGITS_GPU, peaks.HEAD_BLOCK
    assert known == (heads.FUSED_LOGITS_CPU, heads.FUSED_LOGITS_GPU, heads.HeadPlan.block)


@pytest.mark.parametrize(("rows", "length"), [(1, 2047), (1, 700), (4, 799), (2, 1999), (16, 100)])
@pytest.mark.parametrize("heads", [2, 32])
def test_the_estimate_knows_the_scores_of_a_block(rows, length, heads):
    queries = mx.zeros((1, heads, rows * length, 64), mx.bfloat16)
    blocks = attention_kernel.blocks_for(queries, packed(*[length] * rows), None)
    found = attention_kernel.scores_bytes(blocks, heads)
    config = TrainConfig.from_mapping({"batch_size": rows})
    assert layer_peaks.block_scores(heads, config, length, queries.nbytes) == found
