"""Rows that are alike, found by the digests of what they say or ask, with few bytes a row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Digests = npt.NDArray[np.uint8]  # [rows, 16]
Keys = npt.NDArray[np.bytes_]


def keys(digests: Digests, rows: Ints) -> Keys:
    """The digests of these rows as values that can be compared and sorted, [rows]."""
    # numpy's bytes end before trailing zeros: equal ones are equal all the same.
    return np.ascontiguousarray(digests[rows]).reshape(-1).view("S16")


def repeated(digests: Digests, rows: Ints) -> tuple[Ints, Ints, Ints]:
    """The places in `rows` of those whose digest others of them have too, each one's group, and the groups' sizes.

    Halves of digests find those that may be: most data repeats little, and whole ones are compared for these only.
    """
    halves = digests.view(np.uint64)[:, 0][rows]
    in_order = np.sort(halves)
    twice = in_order[1:][in_order[1:] == in_order[:-1]]
    del in_order
    if not len(twice):
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
    found = twice[np.minimum(np.searchsorted(twice, halves), len(twice) - 1)] == halves
    places = np.flatnonzero(found)
    _, groups, sizes = np.unique(keys(digests, rows[places]), return_inverse=True, return_counts=True)
    more = sizes[groups] > 1
    return places[more], groups[more], sizes


def grouped(values: npt.NDArray[np.generic]) -> tuple[npt.NDArray[np.int32], Ints]:
    """The places of `values` in their order, equal ones by place, and where each group of equal ones begins, and the
    end.
    """
    order = np.argsort(values, kind="stable").astype(np.int32)
    in_order = values[order]
    begins = np.flatnonzero(in_order[1:] != in_order[:-1]) + 1
    del in_order
    return order, np.concatenate([[0], begins, [len(values)]]) if len(values) else np.zeros(1, np.int64)
