"""Single columns of a public table: its counts, and the Kalman step to noisy private ones."""

import numpy as np
import pandas as pd
import pytest
from column_tables import node_counts, reproducibly
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from sklearn_dpgen.preprocessing import PublicTable, TabularEncoder
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import _public_columns
from sklearn_dpgen.tables._column_trees import MAX_CELLS, ColumnTree, joined_cells
from sklearn_dpgen.tables._public_columns import (
    posterior_leaves,
    public_blocks,
    public_cells,
    public_leaves,
)

SCHEMA = Schema(
    {
        "job": Categorical(["baker", "nurse", "pilot"]),
        "pay": Numeric(0, 10, nullable=True),
        "sex": Categorical(["f", "m"]),
    }
)
FRAME = pd.DataFrame(
    {
        "pay": [1.0, 9.0, np.nan, 3.0],
        "job": ["pilot", "baker", "pilot", "judge"],
        "w": [1.0, 2.0, 3.0, 2.0],
    }
)


def encoder(n_bins=4):
    return TabularEncoder(SCHEMA, n_bins=n_bins).fit()


def rows(frame=FRAME, weights="w"):
    return PublicTable(frame, weights=weights).read(SCHEMA)


# Counts and blocks.


def test_counts_of_leaves_sum_to_the_effective_number_of_known_rows():
    job, pay, sex = public_leaves(rows(), encoder())
    # Of the judge the job is not known; weights 1, 2 and 3 count as 36/14 rows.
    assert_allclose(job, np.array([2, 0, 4]) / 6 * 36 / 14)
    # The bins are [0, 2.5), [2.5, 5), [5, 7.5) and [7.5, 10], then null.
    assert_allclose(pay, np.array([1, 2, 0, 2, 3]) / 8 * 64 / 18)
    assert_array_equal(sex, [0, 0])


def test_equal_weights_count_as_rows():
    leaves = public_leaves(rows(weights=None), encoder())
    assert_allclose(leaves[0], [1, 0, 2])
    assert_allclose(leaves[1], [1, 1, 0, 1, 1])
    # Shares are those of repeated rows.
    repeated = FRAME.loc[FRAME.index.repeat(FRAME["w"].astype(int))]
    found = [public_leaves(part, encoder()) for part in (rows(), rows(repeated, None))]
    for one, two in zip(*found, strict=True):
        assert_allclose(one / max(one.sum(), 1), two / max(two.sum(), 1))


def test_cells_that_are_not_known_have_no_block():
    blocks = [np.array([1, 0, 1]), np.array([0, 0, 1, 1, 2]), np.array([0, 1])]
    found = public_blocks(rows(), encoder(), blocks)
    assert_array_equal(found, [[1, 0, -1], [1, 1, -1], [1, 2, -1], [-1, 0, -1]])


# The posterior of one level.

COUNTED, EXPECTED, SAMPLING = (
    np.array(v) for v in ([130.0, 20.0, -7.0], [100.0, 30.0, 5.0], [9.0, 4.0, 1.0])
)
NOISE = 50.0


def conjugate(shift):
    """Return evidence, mean and variance of counts by the normal distribution, for one shift."""
    prior = shift**2 * EXPECTED**2 + SAMPLING
    logs = norm.logpdf(COUNTED, EXPECTED, np.sqrt(prior + NOISE)).sum()
    precision = 1 / prior + 1 / NOISE
    return logs, (EXPECTED / prior + COUNTED / NOISE) / precision, 1 / precision


@pytest.mark.parametrize("shift", [0.0, 0.2, 3.0])
def test_the_posterior_of_one_shift_is_conjugate(monkeypatch, shift):
    monkeypatch.setattr(_public_columns, "_SHIFTS", np.array([shift]))
    logs, means, variances = _public_columns.shifted(COUNTED, NOISE, EXPECTED, SAMPLING)
    found = conjugate(shift)
    # Without the constant of the density.
    assert logs == pytest.approx(found[0] + 1.5 * np.log(2 * np.pi))
    assert_allclose(means, found[1])
    assert_allclose(variances, found[2])


def test_shifts_are_averaged_by_their_evidence():
    parts = [conjugate(shift) for shift in (0, 0.03, 0.06, 0.12, 0.25, 0.5, 1, 2, 4)]
    evidence = np.exp([logs for logs, *_ in parts])
    logs, means, variances = _public_columns.shifted(COUNTED, NOISE, EXPECTED, SAMPLING)
    assert logs == pytest.approx(np.log(evidence.mean()) + 1.5 * np.log(2 * np.pi))
    weights = evidence / evidence.sum()
    assert_allclose(means, sum(w * mean for w, (_, mean, _) in zip(weights, parts, strict=True)))
    # The variance is that of a known shift.
    spread = sum(w * variance for w, (*_, variance) in zip(weights, parts, strict=True))
    assert_allclose(variances, spread)


# The posterior of all leaves.

TREES = [
    ColumnTree(4, is_flat=True),
    ColumnTree(12, nullable=True),
    ColumnTree(300, nullable=True, anchor=20),
    ColumnTree(5000),
]


def peaked(tree, at=0.3, null=0.1):
    """Return shares of leaves about one of them, then of null."""
    shares = np.exp(-np.abs(np.arange(tree.n_values) - at * tree.n_values) / (0.1 * tree.n_values))
    shares /= shares.sum()
    return np.append(shares * (1 - null), null) if tree.nullable else shares


def drawn(tree, shares, n, seed):
    """Return the leaves of drawn records."""
    return np.random.default_rng(seed).multinomial(n, shares).astype(float)


@reproducibly
@given(
    st.sampled_from(TREES),
    st.sampled_from([1e-3, 1.0, 30.0, 1e3, 1e6]),
    st.sampled_from([1, 30, 10_000]),
    st.sampled_from([0.3, 0.8]),
    st.integers(0, 2**32 - 1),
)
def test_counts_sum_to_the_records(tree, noise_scale, n_public, at, seed):
    private = drawn(tree, peaked(tree), 2000, seed)
    public = drawn(tree, peaked(tree, at), n_public, seed + 1)
    noise = noise_scale * np.random.default_rng(seed).normal(size=tree.n_cells)
    noisy, n_records = tree.counts(private) + noise, 1990.5
    found = posterior_leaves(tree, noisy, noise_scale, n_records, public)
    assume(found is not None)
    counts, variances = found
    assert len(counts) == len(variances) == tree.n_values + tree.nullable
    assert counts.sum() == pytest.approx(n_records)
    assert counts.min() >= 0
    assert variances.min() >= 0
    assert np.isfinite(variances).all()


def public_shares(tree, public):
    """Return the shares of leaves in a public table with one more row in each family of nodes."""

    def split(first, stop, level):
        """Return the shares of the leaves of a node of a level."""
        if level == 0:
            return np.ones(1)
        starts = tree.levels[level - 1]
        children = [s for s in starts if first <= s < stop]
        edges = [*children, stop]
        parts = []
        for low, high in zip(edges[:-1], edges[1:], strict=True):
            flat = (high - low) / (stop - first)
            share = (public[low:high].sum() + flat) / (public[first:stop].sum() + 1)
            parts.append(share * split(low, high, level - 1))
        return np.concatenate(parts)

    tops = [*tree.levels[-1], tree.n_values]
    n, null = tree.n_values, 0.05 * tree.n_values * tree.nullable
    parts = []
    for low, high in zip(tops[:-1], tops[1:], strict=True):
        share = (public[low:high].sum() + (high - low) / (n + null)) / (public.sum() + 1)
        parts.append(share * split(low, high, tree.n_levels - 1))
    if tree.nullable:
        parts.append([(public[n] + null / (n + null)) / (public.sum() + 1)])
    return np.concatenate(parts)


def families(tree, level):
    """Return the (first, stop) leaves of nodes by their parent; null is the leaf after all."""
    edges = [*tree.levels[level], tree.n_values]
    nodes = list(zip(edges[:-1], edges[1:], strict=True))
    if level == tree.n_levels - 1:
        return [nodes + [(tree.n_values, tree.n_values + 1)] * tree.nullable]
    above = [*tree.levels[level + 1], tree.n_values]
    pairs = zip(above[:-1], above[1:], strict=True)
    return [[n for n in nodes if low <= n[0] < high] for low, high in pairs]


def literal_posterior(tree, noisy, scale, n, public):
    """Return counts and variances of leaves, level by level and node by node."""
    sizes = [len(starts) + tree.nullable for starts in tree.levels]
    given = np.split(noisy, np.cumsum(sizes)[:-1])
    parents, null = [(n, 0.0)], []
    for level in range(tree.n_levels - 1, -1, -1):
        groups, rows = families(tree, level), []
        for (whole, _), nodes in zip(parents, groups, strict=True):
            total = sum(public[low:high].sum() for low, high in nodes)
            width = {a: 0.05 * tree.n_values if a == tree.n_values else b - a for a, b in nodes}
            for low, high in nodes:
                flat = width[low] / sum(width.values())
                share = (public[low:high].sum() + flat) / (total + 1)
                variance = whole**2 * share * (1 - share) / (total + 2)
                rows.append((whole * share, variance, share))
        expected, sampling, shares = np.array(rows).T
        counted = given[level][: len(rows)]
        # Children of a node below the noise keep the public shares.
        pairs = zip(parents, groups, strict=True)
        live = np.concatenate([np.full(len(nodes), whole > scale) for (whole, _), nodes in pairs])
        logs, gains = [], []
        for shift in (0, 0.03, 0.06, 0.12, 0.25, 0.5, 1, 2, 4):
            prior = shift**2 * expected**2 + sampling
            logs.append(norm.logpdf(counted, expected, np.sqrt(prior + scale**2))[live].sum())
            gains.append(prior / (prior + scale**2))
        weights = np.exp(np.array(logs) - max(logs))
        gain = weights @ np.array(gains) / weights.sum()
        means = np.where(live, expected + gain * (counted - expected), expected)
        spread = np.where(live, gain * scale**2, sampling)
        found, place = [], 0
        for (whole, variance), nodes in zip(parents, groups, strict=True):
            own = slice(place, place + len(nodes))
            place += len(nodes)
            free = max(spread[own].sum(), 1e-300)
            moved = means[own] + (whole - means[own].sum()) * spread[own] / free
            moved = np.maximum(moved, 0)
            moved = moved * whole / moved.sum()
            found += zip(moved, spread[own] + shares[own] ** 2 * variance, strict=True)
        if level == tree.n_levels - 1 and tree.nullable:
            null = [found.pop()]
        parents = found
    return np.array([*parents, *null]).T


@pytest.mark.parametrize("tree", TREES[:3], ids=lambda tree: str(tree.n_values))
def test_each_level_is_a_kalman_step(tree):
    private, public = drawn(tree, peaked(tree), 3000, 1), drawn(tree, peaked(tree), 20_000, 2)
    noisy = tree.counts(private) + 15 * np.random.default_rng(0).normal(size=tree.n_cells)
    counts, variances = posterior_leaves(tree, noisy, 15.0, 3010.0, public)
    expected, spread = literal_posterior(tree, noisy, 15.0, 3010.0, public)
    assert_allclose(counts, expected, atol=1e-6)
    assert_allclose(variances, spread, rtol=1e-6)


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: str(tree.n_values))
def test_under_much_noise_the_public_shares_stay(tree):
    public = drawn(tree, peaked(tree), 500, 0)
    shares = public_shares(tree, public)
    uniform = public_shares(tree, 0 * public)
    # Counts that are so far on the side of the public shares are likelier with them.
    noisy = tree.counts(1000 * shares + 1e7 * (shares - uniform))
    counts, _ = posterior_leaves(tree, noisy, 1e7, 1000.0, public)
    assert_allclose(counts, 1000 * shares, rtol=1e-2)


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: str(tree.n_values))
def test_under_little_noise_the_counts_stay(tree):
    private = drawn(tree, peaked(tree), 20_000, 1)
    public = 1e6 * peaked(tree)
    counts, variances = posterior_leaves(tree, tree.counts(private), 1e-3, 20_000.0, public)
    assert_allclose(counts, private, atol=0.05)
    assert variances.max() < 1e-3


def test_a_public_table_that_is_absurd_is_left_out():
    tree = TREES[2]
    noise = np.random.default_rng(0).normal(size=tree.n_cells)
    noisy = tree.counts(np.full(301, 10_000 / 301)) + 5 * noise
    far = np.where(np.arange(301) == 7, 10_000.0, 0.0)
    assert posterior_leaves(tree, noisy, 5.0, 10_000.0, far) is None
    assert public_cells(tree, noisy, 5.0, 10_000.0, far) is None
    # The same is kept if it is where the records are.
    noisy = tree.counts(far) + 5 * noise
    assert posterior_leaves(tree, noisy, 5.0, 10_000.0, far) is not None


def test_a_shifted_public_table_is_followed_where_it_is_right():
    """Errors are smaller than those of either table."""
    tree, n, scale = TREES[1], 400, 20.0
    truth = peaked(tree)
    public = 5000 * (0.9 * truth + 0.1 * peaked(tree, at=0.6))
    errors = np.zeros(3)
    for seed in range(40):
        noise = scale * np.random.default_rng(seed).normal(size=tree.n_cells)
        noisy = tree.counts(n * truth) + noise
        counts, _ = posterior_leaves(tree, noisy, scale, float(n), public)
        cells = tree.cells(noisy, scale, float(n))
        for i, shares in enumerate((counts / n, public / public.sum(), cells.shares)):
            errors[i] += np.abs(shares - truth).sum() / 2 / 40
    assert errors[0] < errors[1] + 0.002
    assert errors[0] < 0.8 * errors[2]


# Cells.


@reproducibly
@given(st.sampled_from(TREES), st.integers(0, 2**32 - 1))
def test_cells_are_a_partition(tree, seed):
    private = drawn(tree, peaked(tree), 3000, seed)
    noise = 3 * np.random.default_rng(seed).normal(size=tree.n_cells)
    public = drawn(tree, peaked(tree), 5000, seed + 1)
    found = public_cells(tree, tree.counts(private) + noise, 3.0, 3000.0, public)
    assume(found is not None)
    starts, shares, variances = found
    assert starts[0] == 0
    assert (np.diff(starts) > 0).all()
    assert len(starts) <= max(MAX_CELLS, tree.n_values * (tree.n_levels == 1))
    assert len(shares) == len(variances) == len(starts) + tree.nullable
    assert shares.sum() == pytest.approx(1)
    assert shares.min() >= 0
    assert variances.min() >= 0
    counts, spread = posterior_leaves(tree, tree.counts(private) + noise, 3.0, 3000.0, public)
    for values, sums, total in ((counts, shares, 3000), (spread, variances, 3000**2)):
        cells = np.add.reduceat(values[: tree.n_values], starts)
        expected = np.append(cells, values[tree.n_values :]) / total
        assert_allclose(sums, expected, rtol=1e-9)


def test_without_noise_or_without_known_cells_there_is_no_prior():
    tree = TREES[1]
    noisy, public = tree.counts(13 * peaked(tree)), 100 * peaked(tree)
    assert public_cells(tree, noisy, 0.0, 13.0, public) is None
    assert public_cells(tree, noisy, 1.0, 13.0, 0 * public) is None
    assert public_cells(tree, noisy, 1.0, 13.0, public) is not None


def test_a_spike_has_a_cell_of_its_own():
    tree = ColumnTree(5000)
    counts = 10_000 * peaked(tree)
    counts[[700, 4100]] += [800, 60]
    starts = joined_cells(tree, counts, np.ones(5000), counts.sum(), np.ones(5000, dtype=bool))
    assert len(starts) <= MAX_CELLS
    widths = dict(zip(starts, np.diff(np.append(starts, 5000)), strict=True))
    assert widths[700] == widths[4100] == 1
    # No cell of several leaves has much of the records.
    sums = np.add.reduceat(counts, starts)
    assert sums[[w > 1 for w in widths.values()]].max() < 0.03 * counts.sum()


def test_nodes_are_counted_as_private_ones_are():
    """The trees of the tests are those of the package: codes of leaves give their counts."""
    codes = np.random.default_rng(0).integers(301, size=50)
    leaves = np.bincount(codes, minlength=301).astype(float)
    assert_array_equal(TREES[2].counts(leaves), node_counts(TREES[2], codes))
