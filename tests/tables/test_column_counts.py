"""Counts that are not negative, from noisy ones."""

import numpy as np
import pytest
from column_tables import noisy, reproducibly
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.tables._column_counts import interval_counts, posterior_counts

# Categories.


def test_categories_without_noise_come_back():
    counts = np.array([5.0, 0.0, 95.0])
    found, variances = posterior_counts(counts, 0.0, 100.0)
    assert_array_equal(found, counts)
    assert_array_equal(variances, 0)


def labels(kind, n_labels):
    shares = {
        "falling": 1 / np.arange(1, n_labels + 1) ** 1.2,
        "even": np.ones(n_labels),
        "one": np.append(3 * n_labels, np.ones(n_labels - 1)),
    }[kind]
    return shares / shares.sum()


def clipped(counts, n_records):
    counts = np.maximum(counts, 0)
    return counts * n_records / counts.sum()


@pytest.mark.parametrize("kind", ["falling", "even", "one"])
@pytest.mark.parametrize("n_labels", [12, 270])
def test_shares_of_labels_are_nearer_than_those_that_are_clipped(n_labels, kind):
    rng = np.random.default_rng(0)
    exact = rng.multinomial(3000, labels(kind, n_labels))
    ours, others = [], []
    for seed in range(10):
        counts = noisy(exact.astype(float), 40.0, seed)
        found, _ = posterior_counts(counts, 40.0, 3000.0)
        assert found.sum() == pytest.approx(3000)
        assert (found > 0).all()
        ours.append(np.abs(found - exact).sum())
        others.append(np.abs(clipped(counts, 3000) - exact).sum())
    assert np.mean(ours) < np.mean(others)


def test_labels_far_beyond_noise_are_as_they_were():
    counts = np.array([1000.0, 3000.0, 6000.0])
    found, _ = posterior_counts(counts + 20, 10.0, 10_000.0)
    assert_allclose(found, counts)


# Intervals.


def lognormal(scale, n_records=3000):
    """Return the expected counts of a lognormal law in powers of two, and in no others."""
    k = np.arange(18)
    shares = np.exp(-0.5 * ((k - 8) * np.log(2) / scale) ** 2)
    return n_records * shares / shares.sum()


def even(n_records=3000):
    shares = 2.0 ** np.arange(18) * (np.arange(18) < 11)
    return n_records * shares / shares.sum()


LAWS = {"lognormal 0.6": lognormal(0.6), "lognormal 1.2": lognormal(1.2), "even": even()}


def found_counts(exact, noise_scale, seed, total=None):
    noised = noisy(exact, noise_scale, seed)
    sides = np.ones(len(exact), dtype=int)
    total = exact.sum() if total is None else total
    return noised, *interval_counts(noised, noise_scale, total, sides, 1)


@pytest.mark.parametrize("law", LAWS)
def test_counts_of_intervals_are_nearer_than_noisy_ones(law):
    exact, ours, clipped, far = LAWS[law], [], [], []
    for seed in range(20):
        noised, found, _ = found_counts(exact, 50.0, seed)
        assert found.sum() == pytest.approx(3000)
        ours.append(np.abs(found - exact).sum())
        clipped.append(np.abs(np.maximum(noised, 0) - exact).sum())
        far.append(np.abs(found - exact)[13:].sum())
    assert np.mean(ours) < 0.6 * np.mean(clipped)
    # Where no records are, there is less than a hundredth of one of those that noise makes.
    assert np.mean(far) < 15
    assert np.mean(clipped) > 200


@pytest.mark.parametrize("law", LAWS)
def test_little_noise_changes_little(law):
    exact = LAWS[law]
    assert_allclose(found_counts(exact, 0.0, 0)[1], exact)
    for seed in range(5):
        _, found, occupied = found_counts(exact, 1.0, seed)
        assert np.abs(found - exact).max() < 5
        assert occupied[exact > 30].all()
        assert not occupied[exact < 1e-3].any()


def test_what_is_not_log_concave_is_found_too():
    """Two heaps, near one another and far apart, and one in a plain."""
    for where, plain in (([4, 6], 0), ([2, 15], 0), ([9], 200)):
        exact = np.full(18, float(plain))
        exact[where] += 5000
        for seed in range(5):
            _, found, _ = found_counts(exact, 20.0, seed)
            assert np.abs(found - exact).max() < 6 * 20.0


def test_sides_are_fitted_apart():
    """A law that rises towards zero from both sides, and is not log-concave across it."""
    half = lognormal(0.7, 1500)
    exact, sides = np.concatenate([half[::-1], [0], half]), np.repeat([-1, 0, 1], [18, 1, 18])
    gaps, mirrored = [], []
    for seed in range(10):
        noised = noisy(exact, 40.0, seed)
        found, occupied = interval_counts(noised, 40.0, 3000.0, sides, 1)
        gaps.append(np.abs(found - exact).sum())
        # Either side is the other one in a mirror.
        other, same = interval_counts(noised[::-1], 40.0, 3000.0, sides, 1)
        mirrored.append(np.abs(other[::-1] - found).max())
        assert_array_equal(same[::-1], occupied)
    assert np.mean(gaps) < 0.25 * 3000
    assert np.max(mirrored) < 1


def test_what_the_total_lacks_is_found():
    """Three hundred records that no interval shows, beside many in one."""
    exact = np.append(2700, lognormal(0.8, 300))
    sides, found = np.repeat([0, 1], [1, 18]), []
    for seed in range(10):
        noised = noisy(exact, 50.0, seed)
        found.append(interval_counts(noised, 50.0, 3000.0, sides, 1)[0][1:].sum())
    assert_allclose(np.mean(found), 300, atol=60)


@reproducibly
@given(
    st.integers(1, 40),
    st.sampled_from([0.0, 1e-9, 1.0, 1e3, 1e9]),
    st.sampled_from([0.0, 1.0, 1e4]),
    st.integers(0, 2**32 - 1),
)
def test_counts_of_any_intervals(size, noise_scale, total, seed):
    rng = np.random.default_rng(seed)
    sides = np.sort(rng.integers(-1, 2, size=size))
    noised = total * rng.dirichlet(np.full(size, 0.3)) + noise_scale * rng.normal(size=size)
    before = noised.copy()
    counts, occupied = interval_counts(noised, noise_scale, total, sides, 2)
    assert_array_equal(noised, before)
    assert counts.shape == occupied.shape == (size,)
    assert (counts >= 0).all()
    assert_allclose(counts.sum(), total, rtol=1e-6, atol=1e-9)
