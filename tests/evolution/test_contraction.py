"""The contraction of an interface: that of the lemma for points, none where nothing varies."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.evolution import EuclideanVariation, variation_contraction
from sklearn_dpgen.evolution._theory import VariationContraction, contraction_rate
from sklearn_dpgen.evolution._variation_interface import paper_degrees


class Still(EuclideanVariation):
    def vary(self, X, rng, degree):
        return X.copy()


def is_an_api(found, gamma, alpha):
    """Whether no pair beyond α contradicts γ by more than 3 standard errors."""
    far = found.distances >= alpha
    return bool(far.any() and (found.least[far] + 3 * found.errors[far] >= gamma).all())


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 5])
def test_points_of_a_domain_contract_as_the_lemma_says(d):
    ball, alpha = Ball(1.0, n_features=d), 0.2
    degrees = np.repeat(paper_degrees(d, alpha, 2.0), 2)
    points = ball.sample(40, np.random.default_rng(0))
    found = variation_contraction(EuclideanVariation(ball), points, degrees, random_state=0)
    assert found.n_variations == 2 * math.ceil(math.log2(2.0 / alpha)) + 1
    assert is_an_api(found, contraction_rate(d), alpha)
    assert found.gamma(found.distances[1]) > contraction_rate(d)
    assert found.alpha(contraction_rate(d)) <= found.distances[1]
    # Twin: where nothing varies nothing contracts.
    still = variation_contraction(Still(ball), points, degrees, random_state=0)
    assert not is_an_api(still, contraction_rate(d), alpha)
    assert (still.gamma(), still.alpha(contraction_rate(d))) == (0.0, np.inf)


@pytest.mark.slow
def test_one_variation_by_hand():
    """On the line one of ±s halves a distance of 2 s, or leaves it: a quarter on average."""

    class Jump:
        def random(self, n, rng):
            return np.zeros((n, 1))

        def vary(self, X, rng, degree):
            return X + degree * rng.choice([-1.0, 1.0], size=X.shape)

    found = variation_contraction(Jump(), [[2.0], [4.0]], [1.0], n_bins=2, n_repeats=1500)
    assert_allclose(found.distances, [2.0, 4.0])
    assert_allclose(found.mean, [0.25, 0.125], atol=0.005)
    assert found.n_variations == 2
    # A share of 0 or 1/2, each half of the times; of 20 parents the worst.
    assert_allclose(found.errors, [0.25 / math.sqrt(1500), 0.125 / math.sqrt(1500)], rtol=0.01)
    assert (found.mean - found.least < 4 * found.errors).all()


def test_distances_are_those_of_a_vote():
    class Doubled(EuclideanVariation):
        def decode(self, X):
            return 2 * X

        def embed(self, X):
            return X[:, :1] / 2

    box = Box(0, 1, n_features=2)
    options = {"n_bins": 1, "random_state": 0, "n_parents": 3}
    found = variation_contraction(Doubled(box), [[0.0, 9.0]], [0.1], **options)
    parents = EuclideanVariation(box).random(3, np.random.default_rng(0))
    assert_allclose(found.distances, parents[:, 0].min())
    scaled = variation_contraction(
        Doubled(box), [[0.0, 9.0]], [0.1], metric=lambda X, V: 3 * abs(X - V.T), **options
    )
    assert_allclose(scaled.distances, 3 * found.distances)
    assert_allclose(scaled.least, found.least)


def test_gamma_and_alpha_are_of_whole_bins():
    found = VariationContraction(
        distances=np.array([0.1, 0.2, 0.4]),
        mean=np.full(3, 0.5),
        least=np.array([0.05, 0.3, 0.2]),
        errors=np.zeros(3),
        n_variations=3,
    )
    assert (found.gamma(), found.gamma(0.15), found.gamma(0.3)) == (0.05, 0.2, 0.2)
    assert (found.alpha(0.05), found.alpha(0.1), found.alpha(0.25)) == (0.1, 0.2, np.inf)
    with pytest.raises(ValueError, match="alpha must be at most 0.4"):
        found.gamma(1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"degrees": []}, "degrees"),
        ({"degrees": 0.1}, "degrees must be a sequence"),
        ({"degrees": [5.0]}, "degree must be in"),
        ({"n_repeats": 1}, "n_repeats"),
        ({"n_bins": 50}, "X_public must hold more points"),
        ({"X_public": [[np.nan]]}, "X_public"),
    ],
    ids=["degrees", "number", "degree", "repeats", "bins", "NaN"],
)
def test_refusals(change, message):
    options = {"X_public": [[0.5]], "degrees": [0.1], "n_parents": 4, "random_state": 0, **change}
    with pytest.raises(ValueError, match=message):
        variation_contraction(EuclideanVariation(Box(0, 1)), **options)
