"""SFT, ORPO and DPO against float64 NumPy written from the papers' formulas, and its finite differences."""

import functools
import operator

import numpy as np
import pytest

from engine.backend import mx
from engine.config import TrainConfig
from engine.data.targets import Part, Targets
from engine.objectives import DPO, NEAREST_TO_CERTAIN, ORPO, SFT, Totals, log1mexp, objective_of

OBJECTIVES = {
    "sft": SFT(),
    "orpo": ORPO(0.3, "full"),
    "orpo, response": ORPO(0.3, "response"),
    "dpo": DPO(0.2),
}
PAIRWISE = [name for name in OBJECTIVES if name != "sft"]

# float32 sums of up to some thousand terms, then a dozen operations: some ten roundings of 6e-8.
TOLERANCE = 2e-6


def draw(sizes, seed=0, scale=2.0):
    """log p and reference of rows whose prompt, chosen and rejected parts have these sizes, and their targets."""
    random = np.random.default_rng(seed)
    parts = np.concatenate([np.repeat([0, 1, 2], row) for row in sizes]).astype(np.int8)
    rows = np.repeat(np.arange(len(sizes)), [sum(row) for row in sizes]).astype(np.int32)
    # Of float32, so that both sides start from the same numbers.
    log_p, reference = (-random.exponential(scale, len(parts)).astype(np.float32) for _ in range(2))
    return log_p, reference, Targets(parts, rows)


def pairs_of(values, targets):
    """The chosen and the rejected values of each pair."""
    return [
        tuple(values[(targets.rows == row) & (targets.parts == part)] for part in (Part.CHOSEN, Part.REJECTED))
        for row in range(targets.rows.max() + 1)
    ]


def log_sigmoid(x):
    return -np.logaddexp(0, -x)


def margins(objective, log_p, reference, targets):
    """Log odds, or DPO's differences of rewards."""
    if isinstance(objective, DPO):
        return [objective.beta * (w.sum() - r.sum()) for w, r in pairs_of(log_p - reference, targets)]
    means = [(w.mean(), r.mean()) for w, r in pairs_of(log_p, targets)]
    means = [tuple(min(mean, NEAREST_TO_CERTAIN) for mean in pair) for pair in means]
    return [(lw - lr) - (np.log(-np.expm1(lw)) - np.log(-np.expm1(lr))) for lw, lr in means]


def loss_of(objective, log_p, reference, targets):
    """The whole loss, float64."""
    if isinstance(objective, SFT):
        return -log_p.mean()
    preference = -np.mean([log_sigmoid(margin) for margin in margins(objective, log_p, reference, targets)])
    if isinstance(objective, DPO):
        return preference
    if objective.scope == "full":
        likelihood = -log_p[targets.parts != Part.REJECTED].mean()
    else:
        likelihood = -np.mean([w.mean() for w, _ in pairs_of(log_p, targets)])
    return likelihood + objective.weight * preference


def slopes_of(objective, log_p, reference, targets):
    """Central differences of the loss; of each value a step of 1e-5 of its own size, so that log p stays below 0."""
    slopes = np.zeros(len(log_p))
    for index, value in enumerate(log_p):
        step, losses = 1e-5 * abs(value), []
        for moved in (value + step, value - step):
            changed = log_p.copy()
            changed[index] = moved
            losses.append(loss_of(objective, changed, reference, targets))
        slopes[index] = (losses[0] - losses[1]) / (2 * step)
    return slopes


def outcome_of(objective, log_p, reference, targets, totals=None):
    return objective(mx.array(log_p), targets, totals or objective.totals(targets), mx.array(reference))


SIZES = {
    "several": [(4, 3, 5), (2, 6, 2), (7, 1, 4)],
    "one token each": [(3, 1, 1)],
    "no prompts": [(0, 4, 9), (0, 2, 1)],
    "one pair": [(1, 20, 30)],
}


@pytest.mark.parametrize("scale", [0.01, 2.0, 30.0])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_loss_slopes_and_preference(objective, sizes, scale):
    log_p, reference, targets = draw(sizes, seed=len(sizes), scale=scale)
    outcome = outcome_of(objective, log_p, reference, targets)
    plain, plain_reference = log_p.astype(np.float64), reference.astype(np.float64)
    assert outcome.loss.dtype == outcome.slopes.dtype == mx.float32
    assert outcome.loss.item() == pytest.approx(loss_of(objective, plain, plain_reference, targets), rel=TOLERANCE)
    slopes = slopes_of(objective, plain, plain_reference, targets)
    # sigmoid of a margin near 100 has the margin's rounding as relative error; the differences' own is 1e-7.
    np.testing.assert_allclose(np.array(outcome.slopes), slopes, rtol=3e-5, atol=1e-6 * np.abs(slopes).max())
    if isinstance(objective, SFT):
        assert outcome.preference is None
        return
    expected = np.array(margins(objective, plain, plain_reference, targets))
    means = np.array([(w.mean(), r.mean()) for w, r in pairs_of(plain, targets)])
    preferred = expected > 0 if isinstance(objective, DPO) else means[:, 0] > means[:, 1]
    sums = [preferred.sum(), expected.sum(), *means.sum(0)]
    assert outcome.preference.dtype == mx.float32
    np.testing.assert_allclose(np.array(outcome.preference), sums, rtol=TOLERANCE, atol=1e-5)


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_thousands_of_tokens(objective):
    log_p, reference, targets = draw([(3000, 4000, 2500), (10, 5000, 7000)])
    # A reference near the model: DPO's difference is small beside the sums of thousands.
    reference = (log_p + 0.001 * (reference + 2)).astype(np.float32)
    outcome = outcome_of(objective, log_p, reference, targets)
    plain, plain_reference = log_p.astype(np.float64), reference.astype(np.float64)
    # Of single differences near 0.001, each known to float32's rounding of log p.
    assert outcome.loss.item() == pytest.approx(loss_of(objective, plain, plain_reference, targets), rel=1e-5)
    direction, step = np.random.default_rng(1).standard_normal(len(log_p)), 1e-5
    after, before = (loss_of(objective, plain + s * direction, plain_reference, targets) for s in (step, -step))
    assert np.array(outcome.slopes, np.float64) @ direction == pytest.approx((after - before) / (2 * step), rel=1e-4)


@pytest.mark.parametrize("scope", ["full", "response"])
@pytest.mark.parametrize("rejected", [0.0, -1e-9, -1e-6, -1.0, -700.0])
@pytest.mark.parametrize("chosen", [0.0, -1e-9, -1e-6, -1.0, -700.0])
def test_orpo_at_the_ends_of_log_p(chosen, rejected, scope):
    objective = ORPO(0.5, scope)
    targets = Targets(np.array([1, 1, 2], np.int8), np.zeros(3, np.int32))
    log_p = np.array([chosen, chosen, rejected], np.float32)
    outcome = outcome_of(objective, log_p, log_p, targets)
    plain = log_p.astype(np.float64)
    (margin,) = margins(objective, plain, plain, targets)
    assert outcome.loss.item() == pytest.approx(loss_of(objective, plain, plain, targets), rel=1e-5)
    assert outcome.preference.tolist() == pytest.approx([float(chosen > rejected), margin, chosen, rejected], rel=1e-5)
    # The slope at the bound where log p is above it, with the formula's own derivative: finite everywhere.
    pull = np.exp(log_sigmoid(-margin))
    by_chosen, by_rejected = (0.5 * pull / -np.expm1(min(mean, NEAREST_TO_CERTAIN)) for mean in plain[1:])
    expected = [-(by_chosen + 1) / 2, -(by_chosen + 1) / 2, by_rejected]
    np.testing.assert_allclose(np.array(outcome.slopes), expected, rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("margin", [-5000.0, -50.0, 0.0, 50.0, 5000.0])
def test_dpo_at_the_ends_of_the_margin(margin):
    targets = Targets(np.array([1, 2], np.int8), np.zeros(2, np.int32))
    reference = np.array([-6000.0, -6000.0], np.float32)
    outcome = outcome_of(DPO(2.0), reference + np.array([margin, 0], np.float32), reference, targets)
    assert outcome.loss.item() == pytest.approx(np.logaddexp(0, -2 * margin), rel=TOLERANCE)
    slope = 2 * np.exp(log_sigmoid(-2 * margin))
    np.testing.assert_allclose(np.array(outcome.slopes), [-slope, slope], rtol=TOLERANCE, atol=1e-37)
    assert outcome.preference.tolist() == [margin > 0, 2 * margin, margin - 6000, -6000]


@pytest.mark.parametrize("value", [0.0, -1e-9, -3.0, -700.0])
@pytest.mark.parametrize("name", PAIRWISE)
def test_an_identical_pair_prefers_neither(name, value):
    targets = Targets(np.array([1, 1, 2, 2], np.int8), np.zeros(4, np.int32))
    log_p = np.full(4, value, np.float32)
    outcome = outcome_of(OBJECTIVES[name], log_p, log_p, targets)
    preferred, margin, *_ = outcome.preference.tolist()
    assert (preferred, margin) == (0, 0)
    assert np.isfinite(np.array(outcome.slopes)).all()
    assert np.isfinite(outcome.loss.item())


@pytest.mark.parametrize("name", PAIRWISE)
def test_a_swapped_pair_has_the_opposite_margin(name):
    log_p, reference, targets = draw([(0, 5, 3)])
    swapped = Targets((3 - targets.parts).astype(np.int8), targets.rows)
    one, other = (
        outcome_of(OBJECTIVES[name], log_p, reference, side).preference.tolist() for side in (targets, swapped)
    )
    assert other == [1 - one[0], pytest.approx(-one[1], rel=TOLERANCE), one[3], one[2]]


def test_orpo_without_weight_is_sft_over_prompts_and_chosen_responses():
    log_p, reference, targets = draw(SIZES["several"])
    orpo = outcome_of(ORPO(0.0, "full"), log_p, reference, targets)
    own = targets.parts != Part.REJECTED
    sft = outcome_of(SFT(), log_p[own], reference[own], Targets(targets.parts[own], targets.rows[own]))
    assert orpo.loss.item() == pytest.approx(sft.loss.item(), rel=TOLERANCE)
    np.testing.assert_array_equal(np.array(orpo.slopes)[own], np.array(sft.slopes))
    assert not np.array(orpo.slopes)[~own].any()


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_shares_of_two_batches_add_up_to_one_batch(objective):
    sizes = SIZES["several"]
    log_p, reference, targets = draw(sizes)
    whole = outcome_of(objective, log_p, reference, targets)
    cut = sum(sizes[0])
    sides = [
        (log_p[:cut], reference[:cut], Targets(targets.parts[:cut], targets.rows[:cut])),
        (log_p[cut:], reference[cut:], Targets(targets.parts[cut:], targets.rows[cut:] - 1)),
    ]
    totals = functools.reduce(operator.add, (objective.totals(side) for _, _, side in sides))
    assert totals == objective.totals(targets)
    shares = [outcome_of(objective, *side, totals=totals) for side in sides]
    assert sum(share.loss.item() for share in shares) == pytest.approx(whole.loss.item(), rel=TOLERANCE)
    slopes = np.concatenate([np.array(share.slopes) for share in shares])
    np.testing.assert_allclose(slopes, np.array(whole.slopes), rtol=TOLERANCE)
    if whole.preference is not None:
        sums = sum(np.array(share.preference) for share in shares)
        np.testing.assert_allclose(sums, np.array(whole.preference), rtol=TOLERANCE)


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_the_order_of_targets_and_rows_changes_nothing(objective):
    log_p, reference, targets = draw(SIZES["several"])
    whole = outcome_of(objective, log_p, reference, targets)
    random = np.random.default_rng(9)
    order, names = random.permutation(len(log_p)), random.permutation(3).astype(np.int32)
    mixed = Targets(targets.parts[order], names[targets.rows[order]])
    outcome = outcome_of(objective, log_p[order], reference[order], mixed)
    assert outcome.loss.item() == pytest.approx(whole.loss.item(), rel=TOLERANCE)
    np.testing.assert_allclose(np.array(outcome.slopes), np.array(whole.slopes)[order], rtol=TOLERANCE)


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_it_can_stand_inside_a_transformation(objective):
    log_p, reference, targets = draw(SIZES["several"])

    def traced(log_p):
        outcome = objective(log_p, targets, objective.totals(targets), mx.array(reference))
        return outcome.loss, outcome.slopes

    # vmap refuses any evaluation inside it.
    loss, slopes = mx.vmap(traced)(mx.array(log_p)[None])
    plain = outcome_of(objective, log_p, reference, targets)
    assert loss.tolist() == [pytest.approx(plain.loss.item(), rel=TOLERANCE)]
    np.testing.assert_allclose(np.array(slopes[0]), np.array(plain.slopes), rtol=TOLERANCE)


def test_totals():
    _, _, targets = draw(SIZES["several"])
    assert SFT().totals(targets) == Totals(tokens=34, pairs=0)
    assert ORPO(0.1, "full").totals(targets) == Totals(tokens=23, pairs=3)
    assert ORPO(0.1, "response").totals(targets) == Totals(tokens=0, pairs=3)
    assert DPO(0.1).totals(targets) == Totals(tokens=0, pairs=3)


def test_log1mexp_on_both_sides_of_minus_ln_2():
    x = -np.concatenate([np.geomspace(1e-30, 80, 400), [np.log(2), 700.0]]).astype(np.float32)
    plain = x.astype(np.float64)
    expected = np.where(plain > -1, np.log(-np.expm1(plain)), np.log1p(-np.exp(np.minimum(plain, -1))))
    # MLX's e^x on the CPU is off by up to 3e-6 far from 0; below float32's smallest normal number it is 0.
    np.testing.assert_allclose(np.array(log1mexp(mx.array(x))), expected, rtol=1e-5, atol=1e-37)


def test_the_settings_name_an_objective():
    assert objective_of(TrainConfig()) == SFT()
    assert objective_of(TrainConfig(objective="orpo", orpo_lambda=0.4, sft_scope="response")) == ORPO(0.4, "response")
    assert objective_of(TrainConfig(objective="dpo", dpo_beta=0.3)) == DPO(0.3)
    assert [objective_of(TrainConfig(objective=name)).needs_reference for name in ("sft", "orpo", "dpo")] == [0, 0, 1]


def test_dpo_refuses_to_go_without_its_reference():
    log_p, _, targets = draw([(0, 2, 2)])
    with pytest.raises(ValueError, match="reference"):
        DPO(0.1)(mx.array(log_p), targets, Totals(0, 1))
