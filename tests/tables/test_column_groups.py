"""Groups of categories, and the shapes of tables of them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.tables._marginals import balanced_shape, group_categories, group_sums

reproducibly = settings(deadline=None, max_examples=150, derandomize=True)
WEIGHTS = st.lists(st.integers(0, 1000), min_size=1, max_size=60).filter(any)


@reproducibly
@given(WEIGHTS, st.integers(1, 70), st.booleans(), st.integers(0, 59))
def test_groups_of_any_shares(weights, n_groups, is_ordered, edge):
    shares = np.array(weights) / sum(weights)
    edge = edge if edge < len(shares) else 0
    groups = group_categories(shares, n_groups, is_ordered=is_ordered, edge=edge)
    assert groups.shape == shares.shape
    # All numbers from 0 are there, and no more than was asked for.
    assert_array_equal(np.unique(groups), np.arange(groups.max() + 1))
    assert groups.max() < n_groups
    if n_groups > 1 and len(shares) > 1:
        assert groups.max() >= 1
    if is_ordered:
        assert (np.diff(groups) >= 0).all()
    if n_groups >= len(shares):
        assert_array_equal(groups, np.arange(len(shares)))
    assert_allclose(group_sums(shares, groups).sum(), 1)


@pytest.mark.parametrize("n_groups", [2, 3, 7, 20])
def test_even_shares_have_even_groups(n_groups):
    sums = group_sums(
        np.full(1000, 1e-3), group_categories(np.full(1000, 1e-3), n_groups, is_ordered=True)
    )
    assert len(sums) == n_groups
    assert_allclose(sums, 1 / n_groups, atol=2e-3)
    shares = np.random.default_rng(0).dirichlet(np.ones(1000))
    sums = group_sums(shares, group_categories(shares, n_groups, is_ordered=True))
    assert len(sums) == n_groups
    assert np.abs(sums - 1 / n_groups).max() <= shares.max()


def test_a_heavy_value_has_a_group_of_its_own():
    shares = np.full(101, 0.004)
    shares[37] = 0.6
    for is_ordered in (True, False):
        groups = group_categories(shares, 6, is_ordered=is_ordered)
        assert (groups == groups[37]).sum() == 1
    # Labels have no neighbours: the heavy ones are apart, the others go together as listed.
    labels = group_categories(np.array([0.05, 0.5, 0.05, 0.3, 0.05, 0.05]), 4, is_ordered=False)
    assert labels.tolist() == [2, 0, 2, 1, 3, 3]
    ordered = group_categories(np.array([0.05, 0.5, 0.05, 0.3, 0.05, 0.05]), 4, is_ordered=True)
    assert (np.diff(ordered) >= 0).all()


@pytest.mark.parametrize("n_groups", range(2, 9))
def test_a_group_begins_at_the_edge(n_groups):
    """Where both sides have records, whatever their shares."""
    rng = np.random.default_rng(n_groups)
    crossed = 0
    for _ in range(20):
        shares = rng.dirichlet(np.ones(40))
        shares[:15] *= 0.6 * shares[15:].sum() / shares[:15].sum()
        shares /= shares.sum()
        groups = group_categories(shares, n_groups, is_ordered=True, edge=15)
        assert groups[14] < groups[15]
        assert groups.max() < n_groups
        without = group_categories(shares, n_groups, is_ordered=True)
        crossed += without[14] == without[15]
    assert crossed > 5
    # Hardly a record is below: no group is spent on it.
    shares = np.append(np.full(15, 1e-5), np.full(25, 0.04))
    groups = group_categories(shares, n_groups, is_ordered=True, edge=15)
    assert groups[14] == groups[15]


@reproducibly
@given(st.lists(st.integers(1, 300), min_size=1, max_size=3), st.floats(0.1, 1e6))
def test_shapes_of_tables(sizes, n_cells):
    shape = balanced_shape(sizes, n_cells)
    assert len(shape) == len(sizes)
    assert all(min(2, size) <= k <= size for k, size in zip(shape, sizes, strict=True))
    assert math.prod(shape) <= max(n_cells, 2 ** len(sizes)) * (1 + 1e-6)
    # Columns share alike: one has fewer groups than another only if it is smaller.
    for k, size in zip(shape, sizes, strict=True):
        assert k == size or k >= max(shape) - 1 or k == 2 or k**2 >= max(shape)


def test_some_shapes():
    assert balanced_shape([64, 64], 16) == (4, 4)
    assert balanced_shape([64, 2, 64], 32) == (4, 2, 4)
    assert balanced_shape([2, 64], 32) == (2, 16)
    assert balanced_shape([5, 5], 1) == (2, 2)
    assert balanced_shape([1, 9], 100) == (1, 9)
