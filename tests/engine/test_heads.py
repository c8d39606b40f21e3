"""Every head against float64 NumPy: dense, tied and quantized, capped and scaled, at few tokens and many."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from engine.backend import mx, nn, on_cpu
from engine.heads import (
    FUSED_LOGITS_CPU,
    FUSED_LOGITS_GPU,
    Head,
    HeadPlan,
    choose_head,
    log_probabilities,
    unit_gradients,
)

KINDS = ["full", "chunked", "fused", "blocked"]
MODULES = ["linear", "bias", "embedding", "quantized linear", "quantized bias", "quantized embedding"]
# The last block of the vocabulary is a short one.
HIDDEN, VOCABULARY, BLOCK = 64, 200, 64

# float32 sums over 200 entries of order one: some hundred roundings of 6e-8.
TOLERANCE = 2e-5


def make_module(name, dtype=mx.float32):
    mx.random.seed(3)
    linear = "embedding" not in name
    module = nn.Linear(HIDDEN, VOCABULARY, bias="bias" in name) if linear else nn.Embedding(VOCABULARY, HIDDEN)
    module.weight = mx.random.normal(module.weight.shape) * 0.3
    if "bias" in name:
        module.bias = mx.random.normal((VOCABULARY,))
    module.set_dtype(dtype)
    return module.to_quantized(group_size=32, bits=4) if "quantized" in name else module


def plain(head):
    """Weight [vocabulary, hidden] and bias [vocabulary], float64."""
    module = head.module
    weight = module.weight
    if "scales" in module:
        parts = module.scales.astype(mx.float32), module.biases.astype(mx.float32)
        weight = mx.dequantize(weight, *parts, group_size=32, bits=4)
    bias = module.bias if "bias" in module else mx.zeros((weight.shape[0],))
    return (np.array(array.astype(mx.float32), np.float64) for array in (weight, bias))


def reference(head, hidden, targets):
    """log p of the targets and, at each hidden state, its gradient; float64."""
    weight, bias = plain(head)
    logits, slope = (hidden @ weight.T + bias) * head.scale, head.scale
    if head.softcap:
        slope = head.scale / np.cosh(logits / head.softcap) ** 2
        logits = head.softcap * np.tanh(logits / head.softcap)
    logits = logits - logits.max(-1, keepdims=True)
    softmax = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    log_p = logits[np.arange(len(targets)), targets] - np.log(np.exp(logits).sum(-1))
    return log_p, ((np.eye(len(weight))[targets] - softmax) * slope) @ weight


def draw(tokens, dtype=mx.float32):
    """Hidden states and targets, for MLX and for NumPy."""
    random = np.random.default_rng(tokens)
    hidden = mx.array(random.standard_normal((tokens, HIDDEN))).astype(dtype)
    targets = random.integers(0, VOCABULARY, tokens)
    return hidden, mx.array(targets), np.array(hidden.astype(mx.float32), np.float64), targets


def joined(pairs):
    log_p, units = zip(*pairs, strict=True)
    return tuple(np.array(mx.concatenate(list(side)).astype(mx.float32)) for side in (log_p, units))


@pytest.mark.parametrize(("softcap", "scale"), [(None, 1.0), (4.0, 1.0), (None, 0.4), (4.0, 1.7)])
@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("kind", KINDS)
def test_log_probabilities_and_unit_gradients(kind, module, softcap, scale):
    head = Head(make_module(module), softcap, scale)
    assert head.vocabulary == VOCABULARY
    for tokens in (1, 2, 3, 4, 5, 33):
        hidden, targets, *plain_draw = draw(tokens)
        log_p, units = reference(head, *plain_draw)
        for chunk in (1, 8, 64):
            plan = HeadPlan(kind, chunk, epsilon=0.0, block=BLOCK)
            pairs = unit_gradients(head, hidden, targets, plan)
            size = tokens if kind == "full" else chunk
            assert [len(values) for values, _ in pairs] == [min(size, tokens - n) for n in range(0, tokens, size)]
            got_log_p, got_units = joined(pairs)
            place = f"{tokens} tokens, chunk {chunk}"
            np.testing.assert_allclose(got_log_p, log_p, atol=TOLERANCE, err_msg=place)
            np.testing.assert_allclose(got_units, units, atol=TOLERANCE, err_msg=place)
            alone = log_probabilities(head, hidden, targets, plan)
            assert alone.dtype == mx.float32
            np.testing.assert_allclose(np.array(alone), log_p, atol=TOLERANCE, err_msg=place)


@pytest.mark.parametrize("kind", KINDS)
def test_unit_gradients_against_finite_differences(kind):
    head = Head(make_module("quantized bias"), softcap=4.0, scale=1.7)
    hidden, targets, plain_hidden, plain_targets = draw(7)
    _, units = joined(unit_gradients(head, hidden, targets, HeadPlan(kind, 3, 0.0, BLOCK)))
    direction, step = np.random.default_rng(0).standard_normal(plain_hidden.shape), 1e-5
    after, before = (reference(head, plain_hidden + s * direction, plain_targets)[0] for s in (step, -step))
    # The tolerance of each of 64 entries, times a direction of order one.
    np.testing.assert_allclose((units * direction).sum(-1), (after - before) / (2 * step), atol=64 * TOLERANCE)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("kind", KINDS)
def test_half_precision(kind, module):
    head = Head(make_module(module, mx.bfloat16), softcap=20.0)
    hidden, targets, *plain_draw = draw(33, mx.bfloat16)
    log_p, units = reference(head, *plain_draw)
    pairs = unit_gradients(head, hidden, targets, HeadPlan(kind, 16, 0.0, BLOCK))
    assert {(a.dtype, b.dtype) for a, b in pairs} == {(mx.float32, mx.bfloat16)}
    got_log_p, got_units = joined(pairs)
    # A logit below 12 is rounded to bfloat16 by up to 2^-9 of itself, twice with a bias: 0.05 at most, and so is
    # log p; a probability by 5 %, and rows below 1.2 weighed by probabilities by 0.06. The quantized product on the
    # CPU rounds its partial sums as well: twice that.
    rounding = 2 if "quantized" in module else 1
    np.testing.assert_allclose(got_log_p, log_p, atol=0.05 * rounding)
    np.testing.assert_allclose(got_units, units, atol=0.06 * rounding)


@pytest.mark.parametrize("module", MODULES)
def test_rows_and_own_logits_are_not_rounded_to_half_precision(module):
    head = Head(make_module(module, mx.bfloat16), softcap=20.0, scale=1.7)
    hidden, targets, plain_hidden, plain_targets = draw(33, mx.bfloat16)
    weight, bias = plain(head)
    rows = head.rows(targets)
    # One rounding to float32 of numbers below 1.2, then a sum of 64 products of order one.
    np.testing.assert_allclose(np.array(rows), weight[plain_targets], atol=1e-6)
    products = (plain_hidden * weight[plain_targets]).sum(-1) + bias[plain_targets]
    own = head.own_logits(hidden, targets, rows)
    np.testing.assert_allclose(np.array(own)[:, 0], 20 * np.tanh(1.7 * products / 20), atol=TOLERANCE)


def peaked(tokens):
    """A head of long rows, and hidden states that each point along the row of a likely token, mostly the target's."""
    module = nn.Embedding(VOCABULARY, HIDDEN)
    mx.random.seed(4)
    module.weight = mx.random.normal((VOCABULARY, HIDDEN))
    random = np.random.default_rng(5)
    likely = random.integers(0, VOCABULARY, tokens)
    targets = np.where(random.random(tokens) < 0.7, likely, random.integers(0, VOCABULARY, tokens))
    return module, module.weight[mx.array(likely)] * 0.3, mx.array(targets)


@dataclass(frozen=True, eq=False)
class WatchedHead(Head):
    """A head that notes how many slopes went into each product on the way back."""

    slopes: list[int] = field(default_factory=list)

    def back(self, slopes, part=slice(None)):
        self.slopes.append(slopes.size)
        return super().back(slopes, part)


@pytest.mark.parametrize("softcap", [None, 30.0])
@pytest.mark.parametrize("epsilon", [1e-2, 1e-5])
def test_epsilon_leaves_out_only_probabilities_below_it(epsilon, softcap):
    module, hidden, targets = peaked(32)
    plain_hidden, plain_targets = np.array(hidden, np.float64), np.array(targets)
    log_p, units = reference(Head(module, softcap), plain_hidden, plain_targets)
    watched = {}
    for limit in (0.0, epsilon):
        head = WatchedHead(module, softcap)
        got_log_p, got_units = joined(unit_gradients(head, hidden, targets, HeadPlan("blocked", 16, limit, block=8)))
        watched[limit] = sum(head.slopes)
        # Whatever is left out of the gradient counts in log p.
        np.testing.assert_allclose(got_log_p, log_p, rtol=1e-5, atol=TOLERANCE)
    assert watched[0.0] == 32 * VOCABULARY
    assert watched[epsilon] < 0.7 * watched[0.0]
    # p of every entry for every token; those below epsilon bound the error, times their rows.
    every = np.stack([reference(head, plain_hidden, np.full(32, v))[0] for v in range(VOCABULARY)], axis=1)
    small = np.where(np.exp(every) < epsilon, np.exp(every), 0)
    error = np.abs(got_units - units)
    assert (error <= small @ np.abs(np.array(module.weight, np.float64)) + TOLERANCE).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_certain_target_has_no_gradient_and_an_impossible_one_is_finite(kind):
    head = Head(nn.Linear(2, 3, bias=False))
    head.module.weight = mx.array([[100.0, 0.0], [0.0, 0.0], [-100.0, 0.0]])
    hidden, targets = mx.array([[3.0, 0.0], [3.0, 0.0]]), mx.array([0, 2])
    for epsilon in (0.0, 1e-5):
        plan = HeadPlan(kind, 8, epsilon, block=2)
        log_p, units = joined(unit_gradients(head, hidden, targets, plan))
        assert log_p.tolist() == [0.0, -600.0]
        assert units.tolist() == [[0.0, 0.0], [-200.0, 0.0]]
        assert log_probabilities(head, hidden, targets, plan).tolist() == [0.0, -600.0]


@pytest.mark.parametrize("kind", ["fused", "blocked"])
@pytest.mark.parametrize(("dtype", "relative"), [(mx.float32, 1e-5), (mx.bfloat16, 2**-6)])
def test_a_nearly_certain_target_keeps_its_digits(kind, dtype, relative):
    # Logits 16, 0 and -16, exact in both dtypes: 1 - p is 1.1e-7, which onehot - softmax would lose. bfloat16 rounds
    # three times by 2^-8.
    head = Head(nn.Linear(1, 3, bias=False))
    head.module.weight = mx.array([[16.0], [0.0], [-16.0]], dtype)
    plan = HeadPlan(kind, 1, epsilon=0.0, block=2)
    hidden, targets = mx.ones((1, 1), dtype), mx.array([0])
    log_p, units = reference(head, np.ones((1, 1)), np.array([0]))
    got_log_p, got_units = joined(unit_gradients(head, hidden, targets, plan))
    np.testing.assert_allclose(got_log_p, log_p, rtol=1e-5)
    np.testing.assert_allclose(got_units, units, rtol=relative)
    np.testing.assert_allclose(np.array(log_probabilities(head, hidden, targets, plan)), log_p, rtol=1e-5)


LARGE, TOKENS, CHUNK = 65_536, 256, 32
CHUNK_BYTES = 4 * CHUNK * LARGE


def large_head():
    head = Head(nn.Embedding(LARGE, 16))
    hidden, targets = mx.random.normal((TOKENS, 16)), mx.random.randint(0, LARGE, (TOKENS,))
    mx.eval(head.module.parameters(), hidden, targets)
    return head, hidden, targets


def peak_above_resting(step):
    mx.clear_cache()
    resting = mx.get_active_memory()
    mx.reset_peak_memory()
    kept = step()
    peak = mx.get_peak_memory() - resting
    del kept
    return peak


@pytest.mark.parametrize("kind", ["chunked", "fused", "blocked"])
@pytest.mark.parametrize("gradients", [True, False])
def test_memory_is_bounded_by_the_chunk_and_blocked_by_its_block(kind, gradients):
    head, hidden, targets = large_head()
    plan = HeadPlan(kind, CHUNK, epsilon=1e-5)

    def step():
        if not gradients:
            return log_probabilities(head, hidden, targets, plan)
        pairs = unit_gradients(head, hidden, targets, plan)
        for pair in pairs:
            mx.eval(pair)
        return pairs

    peak = peak_above_resting(step)
    if kind == "blocked":
        # Logits and powers of one block, and little besides; never of two.
        assert peak < 3 * 4 * CHUNK * plan.block
    else:
        # Logits and what is made of them; never of two chunks together.
        assert CHUNK_BYTES <= peak < 5 * CHUNK_BYTES


@pytest.mark.parametrize("kind", ["full", "chunked", "fused"])
def test_what_can_be_recorded_evaluates_nothing(kind):
    head, hidden, targets = large_head()
    assert peak_above_resting(lambda: unit_gradients(head, hidden, targets, HeadPlan(kind, CHUNK, 0.0))) < 1024


def test_auto_is_fused_for_few_logits_and_blocked_for_many():
    most = FUSED_LOGITS_CPU if on_cpu() else FUSED_LOGITS_GPU
    vocabulary = most // 16
    assert choose_head("auto", 256, 1e-5, 16, vocabulary) == HeadPlan("fused", 256, 1e-5)
    assert choose_head("auto", 256, 1e-5, 17, vocabulary) == HeadPlan("blocked", 256, 1e-5)
    # What counts is held at the same time: a chunk.
    assert choose_head("auto", 16, 1e-5, 5000, vocabulary).kind == "fused"


@pytest.mark.parametrize("kind", KINDS)
def test_a_named_head_is_taken_as_it_is(kind):
    for tokens in (1, 100_000):
        assert choose_head(kind, 64, 0.0, tokens, 262_144) == HeadPlan(kind, 64, 0.0)


@pytest.mark.parametrize("kind", ["full", "fused", "blocked"])
def test_a_large_vocabulary_keeps_its_digits(kind):
    """MLX's own sum on the CPU loses 3e-5 over so many terms; a mean log p of thousands of tokens would show it."""
    random = np.random.default_rng(0)
    weight = (random.standard_normal((49_152, 64)) / 8).astype(np.float32)
    hidden, targets = random.standard_normal((6, 64)).astype(np.float32), random.integers(0, 49_152, 6)
    head = nn.Linear(64, 49_152, bias=False)
    head.weight = mx.array(weight)
    logits = hidden.astype(np.float64) @ weight.T.astype(np.float64)
    expected = logits[np.arange(6), targets] - np.log(np.exp(logits).sum(-1))
    plan = HeadPlan(kind, 6, epsilon=0.0)
    got, _ = joined(unit_gradients(Head(head), mx.array(hidden), mx.array(targets), plan))
    # Of values near 11, some twenty roundings of float32.
    np.testing.assert_allclose(np.array(got), expected, atol=2e-5)
