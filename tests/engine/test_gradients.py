"""Every family x objective x head x plan against one value_and_grad over mlx-lm's own forward, on tiny real models.

The reference knows nothing of spans, segments or heads: it runs each answer by itself in float64, takes
log-probabilities from whole logits and differentiates the objective's formula.
"""

import itertools

import numpy as np
import pytest
from tiny_families import CONFIGS, write_family
from tiny_stacks import adapted_stack, example

from engine.backend import mx, nn
from engine.config import TrainConfig
from engine.data.batch import Layout, make_batch
from engine.data.tokenize import Pair
from engine.memory import PhaseMeter
from engine.models.adapter import without_adapter
from engine.objectives import objective_of
from engine.segmented import Plan, loss_and_gradients, score

from mlx.utils import tree_flatten, tree_map, tree_unflatten

# float32 through up to seven layers against float64. A gradient is compared by its length, against the longest of its
# kind where it is nearly zero itself. The worst of all is off by 7e-6, and mlx-lm's own float32 by 8e-6.
TOLERANCE = 2e-5
# The experts' kernel knows no float64: two float32 computations are compared.
ONLY_FLOAT32 = "gemma4, K is V, experts"

PLANS = {
    "all kept": Plan(0, kept=99),
    "whole 1": Plan(1, kept=1),
    "whole 2, none kept": Plan(2, kept=0),
    "whole 3": Plan(3, kept=2),
    "pieces 1": Plan(1, kept=0, tile=16, keep_attention=True),
    "pieces 3": Plan(3, kept=0, tile=11),
    "pieces 2, two kept": Plan(2, kept=2, tile=64, keep_attention=True),
}
HEADS = ["full", "chunked", "fused", "blocked"]
OBJECTIVES = {
    "sft": {"objective": "sft"},
    "orpo": {"objective": "orpo", "orpo_lambda": 0.7},
    "orpo, response": {"objective": "orpo", "orpo_lambda": 0.7, "sft_scope": "response"},
    "dpo": {"objective": "dpo", "dpo_beta": 0.3},
}
LAYOUTS = list(itertools.product([True, False], [True, False]))


def rows_for(objective):
    random = np.random.default_rng(5)

    def draw(count):
        return random.integers(3, 250, count).tolist()

    if objective == "sft":
        return [example(n, draw(length), length // 3) for n, length in enumerate((40, 9, 150, 23))]
    shared, other = draw(30), draw(12)
    return [
        Pair(1, example(1, shared + draw(14), 30), example(1, shared + draw(25), 30)),
        Pair(2, example(2, other + draw(1), 12), example(2, other + draw(7), 12)),  # an answer of one token
        Pair(3, example(3, draw(21), 10), example(3, draw(17), 11)),  # prompts that differ
    ]


def log_p(model, one, trained):
    ids = mx.array(one.ids)[None]
    logits = model(ids[:, :-1])[0]
    values = mx.take_along_axis(logits, ids[0, 1:, None], axis=-1)[:, 0] - mx.logsumexp(logits, axis=-1)
    return values[mx.array(np.flatnonzero(trained[1:]))]


def reference_loss(model, items, config, references):
    """The objective's formula, plainly."""
    if config.objective == "sft":
        values = mx.concatenate([log_p(model, item, item.trained) for item in items])
        return -values.mean()
    terms, likelihoods = [], []
    for item, reference in zip(items, references, strict=True):
        chosen, rejected = (log_p(model, side, side.trained) for side in (item.chosen, item.rejected))
        if config.objective == "dpo":
            margin = config.dpo_beta * ((chosen.sum() - reference[0]) - (rejected.sum() - reference[1]))
            terms.append(mx.logaddexp(0.0, -margin))
            continue
        everything = np.arange(len(item.chosen.ids)) > 0
        scope = log_p(model, item.chosen, everything) if config.sft_scope == "full" else chosen.mean()[None]
        likelihoods.append(scope)
        lw, lr = chosen.mean(), rejected.mean()
        odds = lw - lr - (mx.log1p(-mx.exp(lw)) - mx.log1p(-mx.exp(lr)))
        terms.append(config.orpo_lambda * mx.logaddexp(0.0, -odds))
    loss = mx.stack(terms).mean()
    return loss - mx.concatenate(likelihoods).mean() if likelihoods else loss


def reference_model(folder):
    """mlx-lm's model with the same adapter in float64, its quantized layers as the numbers that they stand for."""
    model = adapted_stack(folder).model
    dense = [(name, dequantized(module)) for name, module in model.named_modules() if hasattr(module, "bits")]
    model.update_modules(tree_unflatten(dense))
    model.update(tree_map(lambda array: array.astype(mx.float64), model.parameters()))
    return model


def dequantized(module):
    weight = mx.dequantize(module.weight, module.scales, module.biases, group_size=module.group_size, bits=module.bits)
    outputs, inputs = weight.shape
    if isinstance(module, nn.QuantizedEmbedding):
        dense = nn.Embedding(outputs, inputs)
    else:
        dense = nn.Linear(inputs, outputs, bias="bias" in module)
        if "bias" in module:
            dense.bias = module.bias
    dense.weight = weight
    dense.freeze()
    return dense


def expected(model, items, config):
    references = []
    if config.objective == "dpo":
        with without_adapter(model):
            references = [
                tuple(log_p(model, side, side.trained).sum() for side in (item.chosen, item.rejected)) for item in items
            ]
            mx.eval(references)
    parameters = model.trainable_parameters()

    def loss(parameters):
        model.update(parameters)
        return reference_loss(model, items, config, references or items)

    value, gradients = mx.value_and_grad(loss)(parameters)
    model.update(parameters)
    mx.eval(value, gradients)
    return value.item(), {name: value.astype(mx.float64) for name, value in tree_flatten(gradients)}


def computed(stack, items, config, plan, layout):
    batch, objective = make_batch(items, layout), objective_of(config)
    totals, reference = objective.totals(batch.kinds), None
    if objective.needs_reference:
        with without_adapter(stack.model):
            reference = score(stack, batch, plan)
    return loss_and_gradients(
        stack, batch, lambda values: objective(values, batch.kinds, totals, reference), plan, PhaseMeter(), 0
    )


def worst_error(got, wanted):
    assert got.keys() == wanted.keys()
    scale = {
        kind: max(mx.linalg.norm(value).item() for name, value in wanted.items() if name.endswith(kind))
        for kind in ("lora_a", "lora_b")
    }
    return max(
        mx.linalg.norm(got[name] - value).item() / max(mx.linalg.norm(value).item(), 1e-2 * scale[name[-6:]])
        for name, value in wanted.items()
    )


def with_head(plan, head):
    return Plan(plan.segment_size, plan.kept, plan.tile, plan.keep_attention, head, head_chunk=16, head_epsilon=0.0)


def check(folder, family, bits, objective, cases):
    write_family(folder, family, bits)
    stack = adapted_stack(folder)
    items, config = rows_for(objective), TrainConfig.from_mapping(OBJECTIVES[objective])
    model = stack.model if family == ONLY_FLOAT32 else reference_model(folder)
    loss, gradients = expected(model, items, config)
    prompts = config.objective == "orpo" and config.sft_scope == "full"
    for number, (plan, head) in enumerate(cases):
        pack, share = LAYOUTS[number % len(LAYOUTS)]
        result = computed(stack, items, config, with_head(PLANS[plan], head), Layout(pack, share, prompts))
        place = f"{plan}, {head}, pack={pack}, share={share}"
        assert result.loss == pytest.approx(loss, rel=TOLERANCE), place
        assert worst_error(result.gradients, gradients) < TOLERANCE, place


MATRIX = list(itertools.product(CONFIGS, [None, 4], OBJECTIVES))
QUICK = [(family, bits, objective) for family, bits, objective in MATRIX if not bits or objective == "orpo"]


@pytest.mark.parametrize(("family", "bits", "objective"), QUICK)
def test_every_plan_with_one_head_each(family, bits, objective, tmp_path):
    """Which head is with which plan moves on from case to case, so that the matrix has every pair many times."""
    start = QUICK.index((family, bits, objective))
    check(tmp_path, family, bits, objective, [(plan, HEADS[(start + n) % 4]) for n, plan in enumerate(PLANS)])


@pytest.mark.slow
@pytest.mark.parametrize(("family", "bits", "objective"), MATRIX)
def test_every_plan_with_every_head(family, bits, objective, tmp_path):
    check(tmp_path, family, bits, objective, list(itertools.product(PLANS, HEADS)))
