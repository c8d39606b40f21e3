from itertools import groupby, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.data.alike import grouped, keys, repeated
from engine.data.problems import line_ranges

# Halves that other digests share, and ends in zeros.
HALVES = st.sampled_from([bytes(8), b"\0" * 7 + b"a", b"a" + bytes(7), b"abcdefgh"])
DIGESTS = st.lists(st.tuples(HALVES, HALVES).map(b"".join), max_size=12)


@given(DIGESTS, st.data())
def test_rows_of_the_same_digest_are_found(digests, data):
    array = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 16)
    rows = sorted(data.draw(st.sets(st.sampled_from(range(len(digests)))))) if digests else []
    chosen = [digests[row] for row in rows]
    places, groups, sizes = repeated(array, np.array(rows, np.int64))
    assert places.tolist() == [place for place, digest in enumerate(chosen) if chosen.count(digest) > 1]
    assert sizes[groups].tolist() == [chosen.count(chosen[place]) for place in places]
    of_group = dict(zip(groups.tolist(), [chosen[place] for place in places], strict=True))
    assert [of_group[group] for group in groups.tolist()] == [chosen[place] for place in places]
    assert len(set(of_group.values())) == len(of_group)


@given(DIGESTS)
def test_equal_ones_are_a_group(digests):
    array = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 16)
    order, borders = grouped(keys(array, np.arange(len(digests))))
    groups = [order[begin:end].tolist() for begin, end in pairwise(borders)]
    in_order = sorted(range(len(digests)), key=digests.__getitem__)
    assert groups == [list(group) for _, group in groupby(in_order, key=digests.__getitem__)]


@pytest.mark.parametrize(
    ("lines", "ranges"),
    [
        ([], ()),
        ([4], ((4, 4),)),
        ([1, 2, 3], ((1, 3),)),
        ([1, 1, 2, 5, 7, 7, 8], ((1, 2), (5, 5), (7, 8))),
    ],
)
def test_lines_that_follow_each_other_are_a_range(lines, ranges):
    assert line_ranges(lines) == ranges
