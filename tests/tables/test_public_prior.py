"""A public table as a prior: weights of its rows, copies of columns, agreement, and ridges."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_tables import measurements_of, reproducibly, whole
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from sklearn_dpgen.tables import _public_prior
from sklearn_dpgen.tables._log_linear_fit import CopiedColumn
from sklearn_dpgen.tables._marginals import Marginal, marginal_counts
from sklearn_dpgen.tables._public_prior import (
    PublicAgreement,
    PublicPrior,
    agreements,
    pooled_ridges,
    public_agreements,
    tilted_weights,
)
from sklearn_dpgen.tables._releases import NoisyMarginal

# Weights.


def dependent(n=20_000, seed=0):
    """Return codes of three columns: the second follows the first, the third is independent."""
    rng = np.random.default_rng(seed)
    a = rng.choice(3, p=[0.6, 0.3, 0.1], size=n)
    b = np.where(rng.uniform(size=n) < 0.7, a % 2, rng.integers(2, size=n))
    return np.column_stack([a, b, rng.integers(4, size=n)])


WANTED = [np.array([0.2, 0.3, 0.5]), np.array([0.5, 0.5]), np.array([0.1, 0.2, 0.3, 0.4])]
EXACT = [np.full(len(s), 1e-9) for s in WANTED]


def shares_of(codes, weights, column, size):
    known = codes[:, column] >= 0
    found = np.bincount(codes[known, column], weights[known], minlength=size)
    return found / found.sum()


def size_of(weights):
    return weights.sum() ** 2 / (weights**2).sum()


def near_shares(codes, base):
    """Return shares a fifth of the way from those of the rows to the wanted ones."""
    own = [shares_of(codes, base, j, len(s)) for j, s in enumerate(WANTED)]
    return [0.8 * s + 0.2 * wanted for s, wanted in zip(own, WANTED, strict=True)]


@pytest.mark.parametrize("lacking", [0.0, 0.3])
def test_weighted_rows_have_the_shares(lacking):
    codes = dependent()
    is_lacking = np.random.default_rng(1).uniform(size=codes.shape) < lacking
    # The third column has cells of the last block that are not known, more than of others.
    is_lacking[:, 2] &= codes[:, 2] == 3
    codes = np.where(is_lacking, -1, codes)
    base = np.random.default_rng(2).uniform(1, 2, len(codes))
    near = near_shares(codes, base)
    weights = tilted_weights(codes, base, near, EXACT)
    assert weights.sum() == pytest.approx(1)
    assert weights.min() > 0
    for j, wanted in enumerate(near):
        assert_allclose(shares_of(codes, weights, j, len(wanted)), wanted, rtol=0.04)
        assert np.abs(shares_of(codes, base, j, len(wanted)) - wanted).max() > 0.02


def test_weights_are_products_over_columns():
    codes = dependent(2000)
    base = np.random.default_rng(2).uniform(1, 2, 2000)
    logs = np.log(tilted_weights(codes, base, WANTED, EXACT) / base)
    design = np.column_stack([np.eye(len(s))[codes[:, j]] for j, s in enumerate(WANTED)])
    fitted, *_ = np.linalg.lstsq(design, logs, rcond=None)
    assert_allclose(design @ fitted, logs, atol=1e-9)
    assert np.ptp(logs) > 1


def test_rows_that_repeat_are_a_row_of_their_weights():
    codes, times = dependent(3000), np.random.default_rng(3).integers(1, 4, 3000)
    near = near_shares(codes, times)
    once = tilted_weights(codes, times.astype(float), near, EXACT)
    repeated = tilted_weights(np.repeat(codes, times, axis=0), np.ones(times.sum()), near, EXACT)
    assert_allclose(np.add.reduceat(repeated, np.cumsum(times) - times), once, rtol=1e-3)
    # Rows of weight 2 have twice the weight of equal rows of weight 1.
    assert once[times == 2].mean() > 1.8 * once[times == 1].mean()


def test_noisy_shares_are_not_followed():
    codes, base = dependent(), np.ones(20_000)
    noisy = [np.full(len(s), 10.0) for s in WANTED]
    weights = tilted_weights(codes, base, WANTED, noisy)
    for j, wanted in enumerate(WANTED):
        own = shares_of(codes, base, j, len(wanted))
        assert_allclose(shares_of(codes, weights, j, len(wanted)), own, atol=0.03)
    # Part of the columns is known well.
    near = near_shares(codes, base)
    weights = tilted_weights(codes, base, near, [EXACT[0], *noisy[1:]])
    assert_allclose(shares_of(codes, weights, 0, 3), near[0], rtol=0.01)
    assert np.abs(shares_of(codes, weights, 2, 4) - near[2]).max() > 0.02


@pytest.mark.slow
@reproducibly
@given(st.sampled_from([1, 2, 30, 900, 4000, 20_000]), st.integers(0, 2**32 - 1))
def test_enough_rows_keep_a_weight(n, seed):
    rng = np.random.default_rng(seed)
    codes = dependent(n, seed)
    codes[rng.uniform(size=codes.shape) < 0.1] = -1
    base = rng.gamma(rng.choice([0.1, 5]), size=n) + 1e-6
    shares = [rng.dirichlet(np.full(len(s), 0.3)) for s in WANTED]
    weights = tilted_weights(codes, base, shares, EXACT)
    before = size_of(base)
    assert weights.sum() == pytest.approx(1)
    assert size_of(weights) >= 0.7 * before * (1 - 1e-9)


def test_the_bound_on_the_number_of_rows_binds():
    codes = dependent()
    far = [np.array([0.05, 0.05, 0.9]), *WANTED[1:]]
    weights = tilted_weights(codes, np.ones(20_000), far, EXACT)
    assert 14_000 <= size_of(weights) < 19_500
    own = shares_of(codes, np.ones(20_000), 0, 3)[2]
    assert own + 0.02 < shares_of(codes, weights, 0, 3)[2] < 0.85
    # Weights go part of the way to shares that no weights of so many rows have.
    hopeless = [np.array([0, 0, 1.0]), np.array([0, 1.0]), WANTED[2]]
    weights = tilted_weights(codes, np.ones(20_000), hopeless, EXACT)
    assert size_of(weights) >= 14_000
    assert shares_of(codes, weights, 0, 3)[2] > own + 0.01


# Copies.


@reproducibly
@given(
    st.integers(1, 12),
    st.floats(0.02, 0.99),
    st.floats(0, 0.5),
    st.integers(0, 2**32 - 1),
)
def test_copies_have_the_shares(size, kept, lacking, seed):
    rng = np.random.default_rng(seed)
    shares = 0.7 * rng.dirichlet(np.ones(size)) + 0.3 / size
    codes = rng.choice(size, p=0.3 * rng.dirichlet(np.ones(size)) + 0.7 * shares, size=500)
    codes[rng.uniform(size=500) < lacking] = size
    copied = CopiedColumn(9, kept, shares, codes)
    table = copied.base + np.vstack([copied.term.table])
    chances = np.exp(table) / np.exp(table).sum(axis=1, keepdims=True)
    assert copied.term.parents == (9,)
    assert_allclose(chances[codes].mean(axis=0), shares, atol=2e-3)
    # By the definition: a copy, or else a random value, times factors.
    for public in range(size + 1):
        expected = (kept * (np.arange(size) == public) + (1 - kept) * shares) * copied.factors
        if public == size:
            expected = shares * copied.factors
        assert_allclose(chances[public], expected / expected.sum(), rtol=1e-6)


@reproducibly
@given(st.integers(0, 2**32 - 1))
def test_groups_have_the_probabilities_of_their_blocks(seed):
    rng = np.random.default_rng(seed)
    shares, codes = rng.dirichlet(np.ones(6)), rng.integers(7, size=300)
    copied, groups = CopiedColumn(4, 0.6, shares, codes), np.array([2, 0, 0, 1, 2, 0])
    blocks = np.exp(copied.base + copied.term.table)
    found = copied.grouped_term(groups)
    sums = np.stack([blocks[:, groups == g].sum(axis=1) for g in range(3)], axis=1)
    assert_allclose(np.exp(found.table), sums, rtol=1e-6)
    assert_array_equal(found.rows(np.array([[0, 0, 0, 0, 6], [0, 0, 0, 0, 2]])), [6, 2])


def test_rows_that_have_the_shares_are_copied_as_they_are():
    codes = np.repeat([0, 1, 2], [50, 30, 20])
    copied = CopiedColumn(0, 0.8, np.array([0.5, 0.3, 0.2]), codes)
    assert_allclose(copied.factors, 1)


# Dependence in the public table.


def prior_of(codes, measured, weights=None):
    weights = np.ones(len(codes)) if weights is None else weights
    return PublicPrior(codes, weights, measured)


def measured_of(codes, sizes=(3, 2, 4)):
    return measurements_of([*codes.T], list(sizes))


def test_dependence_is_that_of_the_weighted_rows():
    codes = dependent(500)
    codes[:50, 0] = -1
    prior = prior_of(codes, measured_of(dependent()), np.linspace(1, 3, 500))
    marginal = Marginal((0, 2), (np.array([0, 1, 0]), np.arange(4)))
    table = np.zeros((2, 4))
    for (a, _, c), weight in zip(codes, prior.records.weights, strict=True):
        if a >= 0:
            table[[0, 1, 0][a], c] += weight
    table /= table.sum()
    expected = table - table.sum(axis=1, keepdims=True) * table.sum(axis=0)
    assert_allclose(prior.dependence(marginal), expected, atol=1e-12)
    lacking = prior_of(np.where(np.arange(3) == 2, -1, codes), measured_of(dependent()))
    assert_array_equal(lacking.dependence(marginal), np.zeros((2, 4)))


def test_columns_without_dependence_are_not_copied():
    prior = prior_of(dependent(), measured_of(dependent(seed=1)))
    assert_allclose(prior.kept[:2], 0.99, atol=0.01)
    assert prior.kept[2] < 0.5
    # With few rows, less of the dependence is beyond sampling error.
    few = prior_of(dependent(25), measured_of(dependent(seed=1)))
    assert (few.kept[:2] < prior.kept[:2]).all()
    # A column that is never known, or alone, has none.
    codes = dependent()
    codes[:, 1] = -1
    assert prior_of(codes, measured_of(dependent())).kept[1] == 0
    codes[:, [0, 2]] = [[-1, 0]]
    assert_array_equal(prior_of(codes, measured_of(dependent())).kept, 0)


def test_the_dependence_of_a_column_beyond_sampling_error():
    codes, base = dependent(400), np.linspace(1, 2, 400)
    codes[:30, 1] = -1
    prior = prior_of(codes, measured_of(dependent(400)), base)
    weights, n = prior.records.weights, size_of(prior.records.weights)
    energies, signals = np.zeros((3, 3)), np.zeros((3, 3))
    for a, b in itertools.permutations(range(3), 2):
        known = (codes[:, a] >= 0) & (codes[:, b] >= 0)
        table = np.zeros((4, 4))
        np.add.at(table, (codes[known, a], codes[known, b]), weights[known] / weights[known].sum())
        gap = table - np.outer(table.sum(axis=1), table.sum(axis=0))
        energies[a, b] = (gap**2).sum()
        signals[a, b] = max(energies[a, b] - (1 - (table**2).sum()) / n, 0)
    shares = (signals * energies).sum(axis=1) / (energies**2).sum(axis=1)
    assert_allclose(prior.kept, 0.99 * n / (n + 100) * np.sqrt(shares), rtol=1e-4)
    assert prior.kept[0] > 0.5


def test_many_rows_are_thinned_evenly(monkeypatch):
    monkeypatch.setattr(_public_prior, "_MOST_ROWS", 11)
    codes = np.repeat(dependent(10), 2, axis=0)
    codes = np.vstack([codes, codes[-1]])
    prior = prior_of(codes, measured_of(dependent()))
    assert_array_equal(prior.records.codes, codes[::2])


def test_rows_whose_weight_underflows_are_left_out():
    codes, weights = dependent(60), np.ones(60)
    weights[:20] = 1e-308
    prior = prior_of(codes, measured_of(dependent(60)), weights)
    assert prior.records.weights.min() > 0
    assert_array_equal(prior.records.codes[-40:], codes[20:])


# Agreement.

N_COLUMNS = 5
PLACES = list(itertools.combinations(range(N_COLUMNS), 2))


def interaction(rng, size=4, energy=0.05):
    """Return a table of given norm whose rows and columns sum to zero."""
    table = rng.normal(size=(size, size))
    table -= table.mean(axis=0)
    table -= table.mean(axis=1, keepdims=True)
    return table * energy / np.linalg.norm(table)


def pairs_of(wrong=(), variance=1e-6, seed=0, factor=1.0, noise=True):
    """Return released and public dependence of all pairs, other ones for wrong columns."""
    rng, found = np.random.default_rng(seed), []
    for columns in PLACES:
        public = interaction(rng)
        is_wrong = not set(columns).isdisjoint(wrong)
        released = interaction(rng) if is_wrong else factor * public
        released = released + np.sqrt(variance) * noise * rng.normal(size=(4, 4))
        found.append((columns, released, public, variance))
    return found


def test_one_wrong_column_is_found():
    for wrong in range(N_COLUMNS):
        found = agreements(pairs_of([wrong], seed=wrong), np.ones(N_COLUMNS))
        assert found[wrong] < 0.35
        assert np.delete(found, wrong).min() > 0.9
    assert agreements(pairs_of(), np.ones(N_COLUMNS)).min() > 0.95


def test_without_evidence_a_table_agrees():
    ones = np.ones(N_COLUMNS)
    assert_array_equal(agreements([], ones), ones)
    # A pair tells of its own columns alone.
    found = agreements(pairs_of(range(5), noise=False)[:1], ones)
    assert found[:2].min() < 0.35
    assert_array_equal(found[2:], 1)
    # Much noise tells nothing: neither of a wrong table nor of none.
    assert agreements(pairs_of(range(5), variance=1.0), ones).min() > 0.9
    nothing = [(p, 0 * released, 0 * public, 1e-6) for p, released, public, _ in pairs_of()]
    assert_array_equal(agreements(nothing, ones), 1)


def test_dependence_that_the_public_table_lacks_is_not_copied():
    pairs = [(p, released, 0 * public, v) for p, released, public, v in pairs_of()]
    found = agreements(pairs, np.ones(N_COLUMNS))
    # A product of two agreements.
    assert max(found[a] * found[b] for a, b in PLACES) < 0.05
    # One that it has, and the records lack, neither.
    pairs = [(p, 0 * released, public, v) for p, released, public, v in pairs_of()]
    found = agreements(pairs, np.ones(N_COLUMNS))
    assert max(found[a] * found[b] for a, b in PLACES) < 0.05


@pytest.mark.parametrize(("factor", "expected"), [(0.5, 0.5), (1.0, 1.0), (2.0, 1.0), (-1.0, 0.0)])
def test_agreement_is_the_correlation_unless_the_public_dependence_is_too_strong(factor, expected):
    pairs = pairs_of(variance=1e-9, factor=factor, noise=False)
    found = agreements(pairs, np.ones(N_COLUMNS))
    assert_allclose([found[a] * found[b] for a, b in PLACES], expected, atol=0.03)


@pytest.mark.parametrize("factor", [1.0, 0.6, 0.3])
def test_each_agreement_is_a_least_squares_fit(factor):
    """No agreement is better, by the definition, where the others are as they are."""
    pairs = pairs_of([1], variance=4e-5, factor=factor, seed=3)
    reliabilities = np.array([1.0, 0.9, 0.7, 0.95, 0.8])
    found = agreements(pairs, reliabilities)
    for j in range(N_COLUMNS):
        terms = []
        for columns, released, public, variance in pairs:
            if j not in columns:
                continue
            (other,) = set(columns) - {j}
            centred = released - released.mean(axis=0) - released.mean(axis=1, keepdims=True)
            centred = centred + released.mean()
            s = (public**2).sum() / variance
            e = (released_energy(released) / variance) - 9
            ratio = (public * centred).sum() / variance / np.sqrt(s * max(s, e))
            terms.append((found[other] * reliabilities[other], ratio, max(s, e)))
        prior = 10 + 3 * np.sqrt(2 * sum(9 * share**4 for share, *_ in terms))

        def loss(g, terms=terms, prior=prior):
            return prior * (g - 1) ** 2 + sum(m * (g * s - r) ** 2 for s, r, m in terms)

        best = minimize_scalar(loss, bounds=(0, 1), method="bounded", options={"xatol": 1e-8})
        assert found[j] == pytest.approx(best.x, abs=1e-3)


def released_energy(released):
    """Return the squared norm of an interaction."""
    parts = np.linalg.svd(np.eye(4) - 0.25)[0][:, :3]
    return ((parts.T @ released @ parts) ** 2).sum()


def test_relating_sets_copies_and_ridges():
    private, public = dependent(seed=1), dependent(seed=2)
    rng = np.random.default_rng(0)
    # The third column of the public table follows the first, unlike that of the records.
    public[:, 2] = np.where(rng.uniform(size=len(public)) < 0.5, public[:, 0], public[:, 2])
    measured = measured_of(private)
    prior = prior_of(public, measured)
    assert prior.kept.min() > 0.9
    for marginal in whole((0, 1), (0, 2), (1, 2), sizes=[3, 2, 4]):
        (counts,) = marginal_counts([*private.T], [marginal])
        measured.add(marginal, counts, 20.0, measured.independent([marginal])[0])
    before = [table.ridges for table in measured.tables]
    prior.relate(measured)
    assert prior.kept[:2].min() > 0.9
    assert prior.kept[2] == 0
    # Where the public table is right, no residual is left.
    right, wrong, _ = [table.ridges for table in measured.tables]
    assert right[1, 1] > before[0][1, 1]
    assert right.max() <= (100 + 1e-9) / 6 + 0.2 / len(private)
    # Once more changes nothing.
    kept = prior.kept
    prior.relate(measured)
    assert_array_equal(prior.kept, kept)
    assert_array_equal(measured.tables[1].ridges, wrong)


def test_marginals_that_are_released_twice_count_as_one():
    private, public = dependent(seed=1), dependent(seed=2)
    # The other way round from private ones, so that residuals are above the noise.
    public[:, 1] = 1 - public[:, 1]
    first, second = (np.random.default_rng(i).normal(size=(3, 2)) for i in range(2))
    (marginal,) = whole((0, 1), sizes=[3, 2])
    (counts,) = marginal_counts([*private.T], [marginal])
    twice, once = measured_of(private), measured_of(private)
    for noise, scale in ((first, 400.0), (second, 200.0)):
        twice.add(marginal, counts + scale * noise, scale, twice.independent([marginal])[0])
    # Precisions of 1 and 4.
    counts, scale = counts + (400 * first + 800 * second) / 5, 200 / np.sqrt(1.25)
    once.add(marginal, counts, scale, once.independent([marginal])[0])
    for measured, places in ((twice, [0, 1]), (once, [0])):
        shares, noise = measured.combined(places)
        assert_allclose(shares, counts / len(private))
        assert noise == pytest.approx(scale / len(private))
    priors = [prior_of(public, measured) for measured in (twice, once)]
    for prior, measured in zip(priors, (twice, once), strict=True):
        prior.relate(measured)
    assert_allclose(priors[0].kept, priors[1].kept, atol=1e-3)
    (table,) = once.tables
    for part in twice.tables:
        assert_allclose(part.shares, table.shares)
        # Two terms with half of a logit each.
        assert_allclose(part.ridges, 2 * table.ridges, rtol=1e-2)


def test_a_marginal_without_noise_is_exact():
    (marginal,) = whole((0, 1), sizes=[3, 2])
    measured = measured_of(dependent())
    for scale, counts in ((3.0, np.ones((3, 2))), (0.0, np.full((3, 2), 20_000 / 6))):
        measured.add(marginal, counts, scale, measured.independent([marginal])[0])
    shares, noise = measured.combined([0, 1])
    assert noise == 0
    assert_allclose(shares, 1 / 6)


# Ridges.

FREQUENCIES = (np.arange(4), np.arange(4))


def literal_energies(residuals, noise, n):
    """Return log-likelihoods and gains of energies, coefficient by coefficient."""
    energies = [0.0, *(0.25 / 4**k for k in range(10))]
    free = [(a, b) for a in range(1, 4) for b in range(1, 4)]
    total = sum(1 / (a * b) for a, b in free)
    logs, gains = [], []
    for energy in energies:
        signal = {(a, b): energy / (a * b) / total for a, b in free}
        spread = {c: s + noise**2 + 1 / (n * 16) for c, s in signal.items()}
        density = [norm.logpdf(residuals[c], 0, np.sqrt(spread[c])) for c in free]
        logs.append(sum(density))
        gains.append({c: s / (s + noise**2) for c, s in signal.items()})
    return np.array(logs), gains


def test_energies_have_the_likelihood_of_normal_coefficients():
    residuals = 0.01 * np.random.default_rng(0).normal(size=(4, 4))
    logs, gains = _public_prior._energies(residuals, FREQUENCIES, 0.003, 500)
    expected, wanted = literal_energies(residuals, 0.003, 500)
    assert_allclose(logs - logs[0], expected - expected[0])
    for found, own in zip(gains, wanted, strict=True):
        for cell, gain in own.items():
            assert found[cell] == pytest.approx(gain)
        # Coefficients of single columns have the weakest ridge.
        assert found[0, 0] == found[0, 2] == max(own.values())


def test_ridges_are_posterior_means_of_gains():
    """The mixture of energies maximizes the likelihood, with two marginals more as its prior."""
    rng, noise, n = np.random.default_rng(0), 0.01, 2000
    tables = [s * rng.normal(size=(4, 4)) for s in (0.005, 0.02, 0.08)]
    parts = [literal_energies(table, noise, n) for table in tables]
    likelihoods = np.exp([logs - max(logs) for logs, _ in parts])
    prior = np.array([1, *[1 / 11] * 10])
    mixture = prior / prior.sum()
    for _ in range(50):
        posterior = likelihoods * mixture
        posterior = posterior / posterior.sum(axis=1, keepdims=True)
        mixture = (posterior.sum(axis=0) + prior) / (3 + prior.sum())
    found = pooled_ridges([(table, FREQUENCIES, noise) for table in tables], n)
    for ridges, weights, (_, gains) in zip(found, posterior, parts, strict=True):
        for cell in gains[0]:
            gain = sum(w * own[cell] for w, own in zip(weights, gains, strict=True))
            ratio = np.clip(1 / max(gain, 1e-9) - 1, 0.01, 100)
            assert ridges[cell] == pytest.approx(ratio / 16 + 0.2 / n, rel=1e-6)


@pytest.mark.parametrize(("noise", "least"), [(1e-4, 50), (2e-3, 2), (2e-2, 2)])
def test_noise_alone_has_a_large_ridge(noise, least):
    """Energies far below the noise cannot be told from zero, so it is the largest for little."""
    rng = np.random.default_rng(0)
    tables = [(noise * rng.normal(size=(4, 4)), FREQUENCIES, noise) for _ in range(30)]
    for ridges in pooled_ridges(tables, 1e9):
        assert ridges[1, 1] > least / 16
        assert ridges[3, 3] <= 100 / 16 + 1e-6


def test_a_strong_signal_has_a_small_ridge():
    noise, rng = 0.002, np.random.default_rng(0)
    profile = 1 / np.outer(np.maximum(np.arange(4), 1), np.maximum(np.arange(4), 1))
    strong = 0.1 * np.sqrt(profile) * rng.normal(size=(4, 4))
    quiet = noise * rng.normal(size=(4, 4))
    own, other = pooled_ridges([(strong, FREQUENCIES, noise), (quiet, FREQUENCIES, noise)], 1000)
    assert own.max() < 0.03 / 16 + 0.2 / 1000 + 1e-4
    assert own.min() >= 0.01 / 16 + 0.2 / 1000
    assert other[3, 3] > 10 * own[3, 3]
    assert (np.diff(own[1, 1:]) >= 0).all()


def test_tables_learn_of_one_another():
    """A weak signal counts for less among tables of noise than among tables of signal."""
    noise, rng = 0.005, np.random.default_rng(4)
    weak = 1.4 * noise * rng.normal(size=(4, 4)), FREQUENCIES, noise
    quiet = [(noise * rng.normal(size=(4, 4)), FREQUENCIES, noise) for _ in range(20)]
    loud = [(8 * noise * rng.normal(size=(4, 4)), FREQUENCIES, noise) for _ in range(20)]
    alone, doubted, trusted = (pooled_ridges([weak, *t], 1000)[0] for t in ([], quiet, loud))
    assert doubted[2, 2] > alone[2, 2] > trusted[2, 2]


def test_ridges_of_any_tables():
    assert pooled_ridges([], 10) == []
    # Single columns, and tables of two groups that have one coefficient.
    one = np.ones(3), (np.arange(3),), 0.1
    two = np.ones((2, 2)), (np.arange(2), np.arange(2)), 0.0
    single, exact = pooled_ridges([one, two], 100)
    assert_allclose(single, 100 / 3 + 0.002)
    assert_allclose(exact[1, 1], 0.01 / 4 + 0.002, rtol=0.3)


# What is told of the agreement.


def told(noise, public, private, n_public=4000, kept=(0.5, 0.8, 0.1)):
    """Return the agreement of a public table with a noisy marginal of two groups and four."""
    marginal = Marginal((0, 2), (np.array([0, 1, 1]), np.arange(4)))
    (counts,) = marginal_counts([*private.T], [marginal])
    counts = counts + noise * np.random.default_rng(0).normal(size=counts.shape)
    released = NoisyMarginal(("a", "c"), marginal.groups, counts, noise)
    codes = public[:n_public]
    (found,) = public_agreements(
        [released], ["a", "b", "c"], codes, np.ones(len(codes)), len(private), np.array(kept)
    )
    return found, counts


def test_distances_and_limits():
    private, public = dependent(2000, 1), dependent(2000, 2)
    found, counts = told(10.0, public, private)
    table = np.zeros((2, 4))
    np.add.at(table, (np.minimum(public[:, 0], 1), public[:, 2]), 1 / 2000)
    assert found.columns == ("a", "c")
    assert found.distance == pytest.approx(np.abs(counts / 2000 - table).sum() / 2)
    assert found.copied == pytest.approx(0.05)
    # The mean of a half-normal distance is √(2/π) σ, its variance (1 - 2/π) σ².
    spread = np.sqrt((10 / 2000) ** 2 + table / 2000 + table / 2000)
    limit = np.sqrt(2 / np.pi) * spread.sum() + 3 * np.sqrt((1 - 2 / np.pi) * (spread**2).sum())
    assert found.limit == pytest.approx(limit / 2)
    assert found.agrees


def test_what_agrees_and_what_does_not():
    private, public = dependent(20_000, 1), dependent(20_000, 2)
    far = public.copy()
    far[:, 2] = np.minimum(far[:, 2] + (far[:, 0] > 0), 3)
    assert told(10.0, public, private)[0].agrees
    assert not told(10.0, far, private)[0].agrees
    # Neither few rows nor much noise tell.
    assert told(10.0, far, private, n_public=8)[0].agrees
    assert told(20_000.0, far, private)[0].agrees
    assert not PublicAgreement(("a",), 0.2, 0.1, 1.0).agrees


def test_columns_that_the_public_table_lacks_are_left_out():
    marginal = SimpleNamespace(columns=("a", "b"))
    codes = np.array([[0, -1], [1, -1]])
    assert public_agreements([marginal], ["a", "b"], codes, np.ones(2), 5.0, np.ones(2)) == []
