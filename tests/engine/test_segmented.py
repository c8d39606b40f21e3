"""Segmented backward: what must not change a gradient, what must, and the phases it tells of.

That losses and gradients are right at all is held by test_gradients.
"""

import numpy as np
import pytest
from tiny_models import write_llama
from tiny_stacks import adapted_stack, example

from engine.backend import mx, nn
from engine.data.batch import Layout, make_batch
from engine.data.tokenize import Pair
from engine.memory import PhaseMeter
from engine.models.folder import open_folder
from engine.models.load import load_stack
from engine.objectives import ORPO, SFT
from engine.segmented import Plan, loss_and_gradients, score

from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.utils import load_model

# Two float32 computations of the same sums in another order; measured worst 3e-6.
TOLERANCE = 1e-5

LEARN = SFT()
WHOLE, PIECES = Plan(2, kept=1), Plan(2, kept=0, tile=16, keep_attention=True)


def make_stack(path, **settings):
    return adapted_stack(write_llama(path, layers=5), **settings)


def rows(*lengths):
    random = np.random.default_rng(5)
    return [
        example(number, random.integers(3, 250, length).tolist(), length // 3) for number, length in enumerate(lengths)
    ]


def pairs(*lengths):
    """Pairs whose prompts are a third of the chosen row."""
    made = []
    for number, row in enumerate(rows(*lengths)):
        ids, prompt = row.ids.tolist(), len(row.ids) // 3
        made.append(Pair(number, row, example(number, ids[:prompt] + ids[: prompt - 1 : -1][:7], prompt)))
    return made


def step(stack, batches, plan, objective=LEARN, seed=0):
    """Loss and gradients of one optimizer step over several batches."""
    totals = objective.totals(batches[0].kinds)
    for batch in batches[1:]:
        totals += objective.totals(batch.kinds)
    loss, gradients = 0.0, {}
    for batch in batches:
        result = loss_and_gradients(
            stack, batch, lambda log_p, kinds=batch.kinds: objective(log_p, kinds, totals), plan, PhaseMeter(), seed
        )
        loss += result.loss
        gradients = {name: gradients.get(name, 0) + slope for name, slope in result.gradients.items()}
    return loss, gradients


def assert_same(got, wanted):
    assert got[0] == pytest.approx(wanted[0], rel=TOLERANCE)
    assert got[1].keys() == wanted[1].keys()
    for name, gradient in wanted[1].items():
        error = mx.linalg.norm(got[1][name] - gradient) / mx.linalg.norm(gradient)
        assert error.item() < TOLERANCE, name


@pytest.mark.parametrize("plan", [WHOLE, PIECES])
@pytest.mark.parametrize(("make", "objective"), [(rows, SFT()), (pairs, ORPO(0.3, "full"))], ids=["rows", "pairs"])
def test_how_rows_are_batched_and_laid_out_changes_nothing(make, objective, plan, tmp_path):
    stack, items = make_stack(tmp_path), make(40, 9, 30, 23, 64)
    expected = step(stack, [make_batch(items, Layout(prompts=True))], plan, objective)
    for pack, share in ((True, False), (False, True), (False, False)):
        layout = Layout(pack, share, prompts=True)
        assert_same(step(stack, [make_batch(items, layout)], plan, objective), expected)
        assert_same(step(stack, [make_batch(items[::-1], layout)], plan, objective), expected)
        batches = [make_batch(items[:2], layout), make_batch(items[2:], layout)]
        assert_same(step(stack, batches, plan, objective), expected)


@pytest.mark.parametrize("plan", [WHOLE, PIECES])
def test_a_row_is_not_touched_by_those_packed_with_it(plan, tmp_path):
    stack, items = make_stack(tmp_path), rows(40, 9, 150)
    alone = np.concatenate([np.array(score(stack, make_batch([item]), plan)) for item in items])
    np.testing.assert_allclose(np.array(score(stack, make_batch(items), plan)), alone, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("plans", [[Plan(0, kept=9), Plan(1, kept=1), Plan(2, kept=0)], [PIECES, Plan(3, 0, 16)]])
def test_dropout_is_drawn_again_as_it_was(plans, tmp_path):
    stack = make_stack(tmp_path, dropout=0.4)
    stack.model.train()
    batch = make_batch(rows(30, 20))
    expected = step(stack, [batch], plans[0], seed=11)
    for plan in plans[1:]:
        assert_same(step(stack, [batch], plan, seed=11), expected)
    assert step(stack, [batch], plans[0], seed=12)[0] != pytest.approx(expected[0], rel=1e-3)


def test_pieces_draw_dropout_as_their_own_forward_did(tmp_path):
    """Finite differences along a gradient see whether the backward's masks are those of the forward."""
    stack = make_stack(tmp_path, dropout=0.4)
    stack.model.train()
    batch = make_batch(rows(50))
    _, gradients = step(stack, [batch], PIECES, seed=3)
    name = "model.layers.2.mlp.down_proj.lora_a"
    values = dict(tree_flatten(stack.model.trainable_parameters()))
    length = mx.linalg.norm(gradients[name]).item()

    def loss(distance):
        stack.model.update(tree_unflatten([(name, values[name] + distance * gradients[name] / length)]))
        return step(stack, [batch], PIECES, seed=3)[0]

    # float32 losses of order 5 are good to 1e-6; over 0.1 that is 1e-5 of a slope, curvature adds the rest.
    assert (loss(0.05) - loss(-0.05)) / 0.1 == pytest.approx(length, rel=2e-2)


@pytest.mark.parametrize("plan", [WHOLE, PIECES, Plan(1, 0, 16), Plan(0, 9)])
def test_only_the_last_layers(plan, tmp_path):
    everything = step(make_stack(tmp_path), [make_batch(rows(30, 20))], plan)[1]
    stack = make_stack(tmp_path, last_layers=2)
    lower = [name for name in everything if int(name.split(".")[2]) < 3]
    found = step(stack, [make_batch(rows(30, 20))], plan)
    assert found[1].keys() == everything.keys() - set(lower)
    # A layer at a time, whose gradients are held to an unsegmented value_and_grad elsewhere.
    assert_same(found, step(stack, [make_batch(rows(30, 20))], Plan(1, 0, 16)))


@pytest.mark.parametrize("plan", [WHOLE, PIECES])
@pytest.mark.parametrize("targets", [["q_proj"], ["down_proj"]])
def test_adapters_in_one_piece_of_a_layer_alone(plan, targets, tmp_path):
    stack = make_stack(tmp_path, targets=targets)
    expected = step(stack, [make_batch(rows(30, 20))], Plan(0, kept=9))
    assert_same(step(stack, [make_batch(rows(30, 20))], plan), expected)


def test_phases_come_in_the_order_of_the_step(tmp_path):
    stack, batch = make_stack(tmp_path), make_batch(rows(30))
    objective = SFT()
    for plan, forward in ((Plan(2, kept=1), 3), (PIECES, 3)):
        meter = PhaseMeter()
        loss_and_gradients(
            stack, batch, lambda log_p: objective(log_p, batch.kinds, objective.totals(batch.kinds)), plan, meter, 0
        )
        names = [(phase.name, phase.segment) for phase in meter.phases]
        head = forward - 1 if plan.kept else forward
        assert names == [
            *[("forward", number) for number in range(forward)],
            ("head", head),
            *[("backward", number) for number in reversed(range(forward))],
        ]
        assert all(phase.peak_bytes > 0 for phase in meter.phases)


def test_the_stack_scores_as_mlx_lm_does(tmp_path):
    folder = write_llama(tmp_path, tied=False)
    model, _ = load_model(folder)
    (example,) = rows(200)
    ids = mx.array(example.ids)[None]
    logits = model(ids[:, :-1])
    expected = -np.array(nn.losses.cross_entropy(logits, ids[:, 1:]))[0][example.trained[1:]]
    got = score(load_stack(open_folder(folder)), make_batch([example]), Plan(1, 0, 64))
    np.testing.assert_allclose(np.array(got), expected, atol=1e-4, rtol=1e-5)
