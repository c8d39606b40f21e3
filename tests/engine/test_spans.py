"""Packed sequences: what sees what, where tokens stand, and that hidden key ranges are left out."""

import numpy as np
import pytest
from tiny_stacks import example

from engine.data.batch import Layout, make_batch
from engine.data.targets import Part
from engine.data.tokenize import Pair
from engine.spans import Forest, is_visible, plain

PAIR = Pair(1, example(1, [1, 2, 3, 10, 11], prompt=3), example(1, [1, 2, 3, 20], prompt=3))
ROW = example(1, [5, 6, 7, 8], prompt=2)


def reference(forest, spans, window):
    """Visibility from parents alone. `spans` are (start, end, parent)."""
    seen = np.zeros((forest.length, forest.length), bool)
    for number, (start, end, _) in enumerate(spans):
        lineage = number
        while lineage is not None:
            first, last, parent = spans[lineage]
            for query in range(start, end):
                seen[query, first : min(last, query + 1)] = True
            lineage = parent
    if window is not None:
        seen &= forest.positions[:, None] - forest.positions[None] < window
    return seen


TREES = {
    "one span": [(0, 7, None)],
    "two rows": [(0, 4, None), (4, 9, None)],
    "a pair": [(0, 5, None), (5, 8, 0), (8, 12, 0)],
    "a pair, an empty answer, a row": [(0, 5, None), (5, 5, 0), (5, 9, 0), (9, 12, None)],
    "answers to answers": [(0, 3, None), (3, 6, 0), (6, 8, 1), (8, 11, 1), (11, 14, 0), (14, 15, None)],
}


def forest_of(spans):
    length = spans[-1][1]
    positions, until = np.zeros(length, np.int32), np.zeros(length, np.int32)
    ends = [end for _, end, _ in spans]
    for number in reversed(range(len(spans))):
        parent = spans[number][2]
        if parent is not None:
            ends[parent] = max(ends[parent], ends[number])
    starts = []
    for start, end, parent in spans:
        starts.append(0 if parent is None else starts[parent] + spans[parent][1] - spans[parent][0])
        positions[start:end] = starts[-1] + np.arange(end - start)
    for (start, end, _), last in zip(spans, ends, strict=True):
        until[start:end] = last
    return Forest(positions, until)


@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("tree", TREES)
def test_who_sees_whom(tree, window):
    forest = forest_of(TREES[tree])
    places = np.arange(forest.length)
    expected = reference(forest, TREES[tree], window)
    np.testing.assert_array_equal(is_visible(forest, places, places, window), expected)
    for size in (1, 2, 5, 100):
        for block in forest.blocks(size, window):
            keys = np.concatenate([np.arange(first, last) for first, last in block.keys])
            part = expected[block.start : block.end]
            # Exactly the keys that some query of the block sees: no hidden range is computed, none is missed.
            np.testing.assert_array_equal(keys, np.flatnonzero(part.any(axis=0)))
            assert block.masked == (not part[:, keys].all())


def test_a_pair_shares_its_prompt():
    batch = make_batch([PAIR, ROW], Layout(prompts=True))
    (forest,) = batch.forests
    # prompt, chosen without its last token, rejected without its last (nothing is left), the row
    assert batch.ids.tolist() == [[1, 2, 3, 10, 5, 6, 7]]
    assert forest.positions.tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert forest.until.tolist() == [4, 4, 4, 4, 7, 7, 7]
    assert list(zip(batch.targets.tolist(), batch.places.tolist(), batch.kinds.parts.tolist(), strict=True)) == [
        (2, 0, Part.PROMPT),
        (3, 1, Part.PROMPT),
        (10, 2, Part.CHOSEN),
        (11, 3, Part.CHOSEN),
        (20, 2, Part.REJECTED),
        (7, 5, Part.CHOSEN),
        (8, 6, Part.CHOSEN),
    ]
    assert batch.kinds.rows.tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert batch.tokens == 7


def test_prompts_that_differ_become_two_roots():
    other = Pair(1, PAIR.chosen, example(1, [1, 9, 3, 20], prompt=3))
    batch = make_batch([other])
    assert batch.ids.tolist() == [[1, 2, 3, 10, 1, 9, 3]]
    assert batch.forests[0].until.tolist() == [4] * 4 + [7] * 3
    assert batch.targets.tolist() == [10, 11, 20]


def test_side_by_side_rows_stay_plain_and_padding_is_no_target():
    batch = make_batch([ROW, example(1, [1, 2, 3, 4, 5, 6], prompt=1)], Layout(pack=False))
    assert batch.ids.tolist() == [[5, 6, 7, 0, 0], [1, 2, 3, 4, 5]]
    assert all(forest.is_plain for forest in batch.forests)
    assert batch.targets.tolist() == [7, 8, 2, 3, 4, 5, 6]
    assert batch.places.tolist() == [1, 2, 5, 6, 7, 8, 9]
    assert batch.tokens == 8


def test_a_padded_pair_keeps_its_padding_apart():
    batch = make_batch([PAIR, example(1, list(range(1, 9)), prompt=1)], Layout(pack=False))
    assert batch.ids.shape == (2, 7)
    places = np.arange(7)
    seen = is_visible(batch.forests[0], places, places, None)
    assert not seen[:4, 4:].any()
    assert not seen[4:, :4].any()


def test_a_plain_row():
    assert plain(5).is_plain
    assert [block.keys for block in plain(5).blocks(2, 2)] == [((0, 2),), ((1, 4),), ((3, 5),)]
