"""Tables by votes: counts of bounded sensitivity, laws from them, and evolution of laws."""

import math
from itertools import product

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.domains import OneHot, Product
from sklearn_dpgen.mechanisms import GaussianSequenceMechanism
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Numeric, Ordinal, Schema
from sklearn_dpgen.tables._cell_counts import (
    estimate_mixture,
    marginal_counts,
    marginal_noise,
    rank_embedding,
)
from sklearn_dpgen.tables._mixture_evolution import (
    automatic_cells,
    evolve_mixtures,
    fit_mixture,
    rake,
)
from sklearn_dpgen.tables._product_mixture import ProductMixture
from sklearn_dpgen.utils._random import NoiseSource

SIZES = (3, 2, 4)
DOMAIN = Product([OneHot(size) for size in SIZES])
COLUMNS = [Categorical(list(range(size))) for size in SIZES]
N_RELEASES = 4


def one_hot(codes):
    return np.hstack([np.eye(size)[column] for size, column in zip(SIZES, codes.T, strict=True)])


def random_records(n, seed=0):
    rng = np.random.default_rng(seed)
    return one_hot(np.column_stack([rng.integers(size, size=n) for size in SIZES]))


def two_groups(n, seed=0):
    """Return records whose columns are independent within two groups, and far from it together."""
    rng = np.random.default_rng(seed)
    group = rng.integers(2, size=n)
    right = rng.uniform(size=(n, 3)) < 0.9
    return one_hot(np.where(right, group[:, None], 1 - group[:, None]))


def pair_shares(X, weights=None):
    """Return the joint frequencies of all pairs of entries."""
    weights = np.full(len(X), 1 / len(X)) if weights is None else weights
    return (X * weights[:, None]).T @ X


def evolved(members, *, epsilon=np.inf, seed=0, seen=None, **options):
    mechanism = GaussianSequenceMechanism(math.sqrt(2), (1.0,) * N_RELEASES, epsilon, 1e-5)
    run, noise = mechanism.run(), NoiseSource(seed)

    def release(value):
        if seen is not None:
            seen.append(value)
        return run.release(value, noise)

    return evolve_mixtures(
        members,
        COLUMNS,
        DOMAIN,
        release,
        mechanism.noise_scales,
        **{"n_samples": 24, "n_cells": 2, "rng": np.random.default_rng(seed), "device": "cpu"}
        | options,
    )


# --- counts


def largest_change(count, n_trials=300):
    """Return the largest l2 change of counts when a record and its cell are replaced."""
    rng = np.random.default_rng(0)
    X, cells = random_records(9), rng.integers(2, size=9)
    changes = []
    for record, cell in product(random_records(n_trials, seed=1), range(2)):
        Y, other = X.copy(), cells.copy()
        Y[0], other[0] = record, cell
        changes.append(np.linalg.norm(count(X, cells) - count(Y, other)))
    return max(changes)


def test_counts_change_by_the_root_of_two():
    def count(X, cells):
        return marginal_counts(X, cells, 2, DOMAIN)

    assert_allclose(largest_change(count), math.sqrt(2), rtol=1e-12)

    # The same check sees that counts as they are would change by more.
    def unscaled(X, cells):
        return count(X, cells) * math.sqrt(3)

    assert largest_change(unscaled) > math.sqrt(2) + 0.1


def test_a_record_counts_once_whatever_it_holds():
    X = np.full((1, DOMAIN.n_features), np.nan)
    for strange in (X, X * 0 + 1e300, -random_records(1), 5 * random_records(1)):
        counts = marginal_counts(strange, np.zeros(1, dtype=int), 1, DOMAIN)
        assert_allclose(np.linalg.norm(counts), 1)
        assert_allclose([counts[part].sum() for part in DOMAIN.slices], 1 / math.sqrt(3))


def test_counts_are_those_of_every_cell():
    X, cells = random_records(50), np.arange(50) % 3
    counts = marginal_counts(X, cells, 3, DOMAIN).reshape(3, -1) * math.sqrt(3)
    assert_allclose(counts, [X[cells == c].sum(axis=0) for c in range(3)])


@pytest.mark.parametrize("cells", [np.array([0, 2]), np.array([-1, 0]), np.array([0])])
def test_cells_that_are_not_declared_are_refused(cells):
    with pytest.raises(ValueError, match="cells must"):
        marginal_counts(random_records(2), cells, 2, DOMAIN)


# --- laws


def test_without_noise_the_estimate_is_exact():
    X, cells = random_records(60), np.arange(60) % 2
    size, law = estimate_mixture(marginal_counts(X, cells, 2, DOMAIN), 0.0, DOMAIN)
    assert_allclose(size, 60)
    assert_allclose(law.shares, 0.5)
    assert_allclose(law.probabilities, [X[cells == c].mean(axis=0) for c in (0, 1)], atol=1e-12)


def test_cells_drowned_in_noise_are_alike():
    rng = np.random.default_rng(0)
    X, cells = random_records(600), np.arange(600) % 2
    counts = marginal_counts(X, cells, 2, DOMAIN)
    scale = 40.0
    errors = []
    for _ in range(100):
        _, law = estimate_mixture(counts + scale * rng.normal(size=counts.shape), scale, DOMAIN)
        errors.append(np.abs(law.probabilities[0] - law.probabilities[1]).sum())
        _, unshrunk = estimate_mixture(counts + scale * rng.normal(size=counts.shape), 0.0, DOMAIN)
        errors[-1] /= np.abs(unshrunk.probabilities[0] - unshrunk.probabilities[1]).sum()
    assert np.mean(errors) < 0.6


def test_estimates_are_probabilities_under_any_noise():
    rng = np.random.default_rng(0)
    for scale in (1e-3, 1.0, 1e6):
        noisy = scale * rng.normal(size=2 * DOMAIN.n_features)
        size, law = estimate_mixture(noisy, scale, DOMAIN)
        assert size >= 1
        assert (law.probabilities >= 0).all()
        for part in DOMAIN.slices:
            assert_allclose(law.probabilities[:, part].sum(axis=1), 1)


def test_samples_have_the_law_of_the_mixture():
    law = ProductMixture(
        DOMAIN,
        np.array([0.25, 0.75]),
        np.array([[1, 0, 0, 1, 0, 0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0, 1, 0, 0, 0.25, 0.75]]),
    )
    n = 40_000
    pairs = pair_shares(one_hot(law.sample(n, np.random.default_rng(0))))
    expected = sum(s * np.outer(p, p) for s, p in zip(law.shares, law.probabilities, strict=True))
    between = np.ones_like(expected, dtype=bool)
    for part in DOMAIN.slices:
        between[part, part] = False
    assert np.abs(pairs - expected)[between].max() < 5 * 0.5 / math.sqrt(n)
    assert_array_equal(law.assign(one_hot(law.sample(5, np.random.default_rng(1)))) >= 0, True)


def test_ranks_are_compared_on_the_scale_of_their_distribution():
    schema = Schema(
        {
            "gain": Numeric(0, 10, nullable=True),
            "level": Ordinal(["low", "mid", "high"]),
            "job": Categorical(["baker", "nurse"]),
        }
    )
    encoder = TabularEncoder(schema, bins={"gain": [0, 1, 9, 10]}).fit()
    frame = pd.DataFrame(
        {
            "gain": [0.5, 5.0, np.nan],
            "level": ["low", "high", "mid"],
            "job": ["baker", "nurse", "baker"],
        }
    )
    probabilities = np.array([0.8, 0.1, 0.0, 0.1, 0.5, 0.25, 0.25, 0.6, 0.4])
    embed = rank_embedding(list(encoder.columns_.values()), encoder.domain_, probabilities)
    places = embed(encoder.transform(frame))
    assert_allclose(places[:, :2], [[4 / 9, 0], [8 / 9 + 1 / 18, 0], [0.5, 1]])
    assert_allclose(places[:, 2], [0.25, 0.875, 0.625])
    assert_allclose(np.linalg.norm(places[0, 3:] - places[1, 3:]), 1)


# --- votes to weights


def test_raked_weights_give_every_cell_its_share():
    cells, shares = np.array([0, 0, 1, 2, 2, 2]), np.array([0.5, 0.2, 0.3])
    assert_allclose(np.bincount(cells, rake(cells, shares)), shares)


def test_a_share_without_records_goes_to_the_others():
    assert_allclose(rake(np.array([0, 0, 1]), np.array([0.2, 0.2, 0.6])), [0.25, 0.25, 0.5])
    assert_allclose(rake(np.array([0, 0]), np.array([0.0, 1.0])), 0.5)


def test_a_mixture_fits_dependent_columns():
    X = two_groups(2000)
    weights = np.full(len(X), 1 / len(X))
    rng = np.random.default_rng(0)
    one, two = (fit_mixture(X, weights, k, DOMAIN, rng) for k in (1, 2))

    def error(law):
        sampled = pair_shares(one_hot(law.sample(20_000, np.random.default_rng(1))))
        return np.abs(sampled - pair_shares(X)).max()

    assert error(two) < 0.03
    # Independent columns cannot.
    assert error(one) > 0.1


def test_components_start_apart():
    X = one_hot(np.array([[0, 0, 0]] * 98 + [[1, 1, 1], [2, 0, 3]]))
    weights = np.full(len(X), 1 / len(X))
    law = fit_mixture(X, weights, 3, DOMAIN, np.random.default_rng(0), n_iter=0)
    assert len(np.unique(law.probabilities, axis=0)) == 3
    # With fewer distinct records than components some are alike.
    law = fit_mixture(X[:5], np.full(5, 0.2), 2, DOMAIN, np.random.default_rng(0))
    assert_allclose(law.probabilities, X[:2])


def test_the_number_of_cells_follows_signal_and_classes():
    assert automatic_cells(22_792, 23.6, 2) == 5
    assert automatic_cells(22_792, 3.2, 2) == 10
    assert automatic_cells(22_792, 23.6, 1) == 10
    assert automatic_cells(10, 1e6, 2) == 1
    assert automatic_cells(10**9, 0.0, 1) == 32


# --- evolution


def test_evolved_laws_have_the_dependence_that_the_marginals_lack():
    X = two_groups(4000)
    sizes, (law,) = evolved([X], epsilon=2.0)
    assert_allclose(sizes, [4000], rtol=0.02)
    pairs = pair_shares(one_hot(law.sample(20_000, np.random.default_rng(1))))
    independent = np.outer(X.mean(axis=0), X.mean(axis=0))
    between = np.ones_like(pairs, dtype=bool)
    for part in DOMAIN.slices:
        between[part, part] = False
    errors = [np.abs(p - pair_shares(X))[between].mean() for p in (pairs, independent)]
    assert errors[0] < errors[1] / 3


def test_classes_evolve_by_themselves():
    X = two_groups(3000)
    is_first = X[:, 0] == 1
    sizes, laws = evolved([X[is_first], X[~is_first]], n_cells=1)
    assert_allclose(sizes, [is_first.sum(), (~is_first).sum()])
    for law, members in zip(laws, (X[is_first], X[~is_first]), strict=True):
        assert_allclose(law.probabilities[0], members.mean(axis=0), atol=1e-12)


def test_a_class_without_records_is_released_like_any_other():
    seen = []
    _, laws = evolved([random_records(50), random_records(0)], epsilon=1.0, seen=seen)
    assert len(laws) == 2
    assert [len(value) for value in seen[::3]] == [2 * DOMAIN.n_features, 4 * DOMAIN.n_features]


@pytest.mark.parametrize("changes_class", [False, True])
def test_every_release_changes_by_the_root_of_two(changes_class):
    """Given the same releases before, neighbours differ by no more than was paid for."""
    rng = np.random.default_rng(0)
    X, Y = random_records(30, seed=1), random_records(20, seed=2)
    for trial in range(2):
        other = random_records(1, seed=10 + trial)
        neighbours = ([np.vstack([X[1:], other]), Y], [X[1:], np.vstack([Y, other])])
        first, second = [], []
        replies = [rng.normal(size=1000) * 3 for _ in range(N_RELEASES)]
        for members, seen in (([X, Y], first), (neighbours[changes_class], second)):
            queue = iter(replies)

            def release(value, seen=seen, queue=queue):
                seen.append(value)
                return next(queue)[: len(value)] + 5

            evolve_mixtures(
                members,
                COLUMNS,
                DOMAIN,
                release,
                (1.0,) * N_RELEASES,
                n_samples=16,
                n_cells=2,
                rng=np.random.default_rng(trial),
                device="cpu",
            )
        assert len(first) == len(second) == N_RELEASES
        for before, after in zip(first, second, strict=True):
            assert np.linalg.norm(before - after) <= math.sqrt(2) + 1e-12


def test_nothing_but_releases_is_learned():
    """Other records behind the same releases give the same laws."""
    replies = [np.random.default_rng(i).uniform(0, 9, size=1000) for i in range(N_RELEASES)]

    def laws_of(X, leak=False):
        queue = iter(replies)

        def release(value):
            return next(queue)[: len(value)] + (value if leak else 0)

        return evolve_mixtures(
            [X],
            COLUMNS,
            DOMAIN,
            release,
            (1.0,) * N_RELEASES,
            n_samples=16,
            n_cells=2,
            rng=np.random.default_rng(0),
            device="cpu",
        )[1][0].probabilities

    X, Y = random_records(40, seed=1), random_records(25, seed=2)
    assert_array_equal(laws_of(X), laws_of(Y))
    # The same comparison tells apart what depends on the records.
    assert np.abs(laws_of(X, leak=True) - laws_of(Y, leak=True)).max() > 0


def test_noise_of_a_count():
    assert_allclose(marginal_noise(2.0, DOMAIN), 2 * math.sqrt(3))


class ByMatrices(ProductMixture):
    """One whose records are compared by a product of matrices, as numpy rounds it."""

    def log_joint(self, X):
        return np.log(self.shares) + X @ np.log(self.probabilities).T


def cells_depend_on_the_record_alone(kind):
    """Whether equal records of equal components are in equal cells, however many they are."""
    domain = Product([OneHot(8)] * 6)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        row = np.hstack([rng.dirichlet(np.ones(8)) for _ in range(6)])
        law = kind(domain, np.full(19, 1 / 19), np.tile(row, (19, 1)))
        record = domain.sample(1, rng)
        cells = np.concatenate([law.assign(np.repeat(record, n, axis=0)) for n in range(1, 33)])
        if (cells != cells[0]).any():
            return False
    return True


def test_no_record_moves_another_one_to_another_cell():
    assert cells_depend_on_the_record_alone(ProductMixture)
    assert not cells_depend_on_the_record_alone(ByMatrices)
