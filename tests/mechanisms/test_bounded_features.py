"""Feature maps keep to the radius and the diameter that they state, and reach them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.mechanisms import BallMoments

WEIGHTS = [0.2, 0.7, 0.72, 1.5, 4.0]
CENTER = np.array([3.0, -1.0, 0.5])
BALL = Ball(2.0, center=CENTER)


def climbed(value, pair, rng, *, n_steps=150):
    """Return the largest value that random steps of shrinking length find from a pair of rows."""
    best, scale = value(pair), 1.0
    for _ in range(n_steps):
        moved = pair + scale * rng.normal(size=pair.shape)
        found = value(moved)
        if found > best:
            best, pair = found, moved
        else:
            scale = max(0.97 * scale, 1e-5)
    return best


def largest_found(features, dimension=3, n_starts=6):
    """Return the largest norm and distance that a search finds, inside of the ball and outside."""
    rng = np.random.default_rng(0)

    def distance(pair):
        a, b = features.transform(CENTER[:dimension] + pair)
        return np.linalg.norm(a - b)

    def norm(row):
        return np.linalg.norm(features.transform(CENTER[:dimension] + row))

    spreads = np.geomspace(0.1, 30, n_starts)
    return (
        max(climbed(norm, s * rng.normal(size=(1, dimension)), rng) for s in spreads),
        max(climbed(distance, s * rng.normal(size=(2, dimension)), rng) for s in spreads),
    )


def stated_is_sharp(features):
    """Whether no vectors exceed what is stated, and some come within 1e-3."""
    norm, distance = largest_found(features)
    return (1 - 1e-3) * features.radius < norm <= features.radius and (
        1 - 1e-3
    ) * features.diameter < distance <= features.diameter


@pytest.mark.parametrize("weight", WEIGHTS)
def test_moments_reach_what_they_state_and_no_more(weight):
    assert stated_is_sharp(BallMoments(BALL, weight))


class Unclipped(BallMoments):
    def transform(self, X):
        wide = Ball(1e6, center=self.ball.center)
        U = BallMoments(wide, self.weight).transform(X)
        U[:, :3] *= 1e6 / self.ball.radius
        U[:, 3:] *= (1e6 / self.ball.radius) ** 2
        return U


class WithoutRootTwo(BallMoments):
    def transform(self, X):
        first, second = self.moments(super().transform(X))
        rows, columns = np.triu_indices(3)
        return np.hstack([first, self.weight * second[:, rows, columns]])


def has_frobenius_norms(features):
    X = CENTER + np.random.default_rng(0).normal(size=(30, 3)) / 3
    U = (X - CENTER) / features.ball.radius
    first = ((U[1:] - U[:-1]) ** 2).sum(axis=1)
    matrices = U[:, :, None] * U[:, None, :]
    second = ((matrices[1:] - matrices[:-1]) ** 2).sum(axis=(1, 2))
    distances = np.linalg.norm(np.diff(features.transform(X), axis=0), axis=1)
    return np.allclose(distances, np.sqrt(first + features.weight**2 * second), atol=1e-4)


@pytest.mark.parametrize("weight", WEIGHTS)
def test_second_moments_have_frobenius_norms(weight):
    assert has_frobenius_norms(BallMoments(BALL, weight))
    # Negative twin: of the worst pair in the worst basis the distance would be no other.
    assert not has_frobenius_norms(WithoutRootTwo(BALL, weight))


class WholeMatrix(BallMoments):
    """All entries of the matrix, each of them with the factor of the triangle."""

    def transform(self, X):
        first, second = self.moments(super().transform(X))
        return np.hstack([first, math.sqrt(2) * self.weight * second.reshape(len(X), -1)])


class WeightIgnored(BallMoments):
    def transform(self, X):
        return BallMoments(self.ball, 1.0).transform(X)


class Uncentered(BallMoments):
    def transform(self, X):
        return super().transform(X + self.ball.center)[:, :] + 0.1


class DiameterOfUnitWeight(BallMoments):
    """What the formula for large weights is below its range: more than is needed."""

    @property
    def diameter(self):
        return math.sqrt(2 + 2 * self.weight**2 + 0.5 / self.weight**2)


class DiameterAtRightAngles(BallMoments):
    @property
    def diameter(self):
        return math.sqrt(2 + 2 * self.weight**2)


@pytest.mark.parametrize(
    "broken",
    [
        Unclipped(BALL),
        WholeMatrix(BALL),
        WeightIgnored(BALL),
        Uncentered(BALL),
        DiameterOfUnitWeight(BALL, 0.5),
        DiameterAtRightAngles(BALL),
    ],
    ids=lambda broken: type(broken).__name__,
)
def test_moments_that_are_not_as_stated_are_caught(broken):
    assert not stated_is_sharp(broken)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.floats(0, 1), st.floats(0, 1), st.floats(-1, 1), st.floats(1e-2, 30), st.integers(2, 4))
def test_the_closed_form_over_the_whole_ball(r, s, t, weight, dimension):
    features = BallMoments(Ball(1.0, n_features=dimension), weight)
    U = np.zeros((2, dimension))
    U[0, 0] = r
    U[1, :2] = s * t, s * math.sqrt(1 - t * t)
    # Written out, from no code of the package.
    matrices = np.einsum("ni,nj->nij", U, U)
    square = ((U[0] - U[1]) ** 2).sum() + weight**2 * ((matrices[0] - matrices[1]) ** 2).sum()
    assert math.sqrt(square) <= features.diameter
    a, b = features.transform(U)
    # Points are rounded to multiples of 2**-18.
    assert_allclose(np.linalg.norm(a - b), math.sqrt(square), atol=1e-4 * (1 + weight))


@pytest.mark.parametrize("weight", WEIGHTS)
def test_the_distance_of_the_worst_pair(weight):
    features = BallMoments(Ball(1.0, n_features=2), weight)
    t = max(-1.0, -0.5 / weight**2)
    a, b = features.transform([[1.0, 0.0], [t, math.sqrt(1 - t * t)]])
    assert_allclose(np.linalg.norm(a - b), features.diameter, rtol=1e-4)


def test_extreme_records_stay_in_the_ball():
    X = np.array([[1e308, -1e308, 1e-308], [np.inf, 0, 0], [5e-324, 0, 0], CENTER])
    features = BallMoments(BALL)
    V = features.transform(X)
    assert (np.linalg.norm(V, axis=1) <= features.radius).all()
    assert not V[3].any()
    with pytest.raises(ValueError, match="NaN"):
        features.transform([[np.nan, 0, 0]])


def test_moments_come_back():
    X = CENTER + np.random.default_rng(0).normal(size=(7, 3))
    U = (BALL.project(X) - CENTER) / 2.0
    first, second = BallMoments(BALL, 0.4).moments(BallMoments(BALL, 0.4).transform(X))
    # Rounded, and clipped a little further inwards.
    assert_allclose(first, U, atol=2.0**-17)
    assert_allclose(second, first[:, :, None] * first[:, None, :])


def test_rows_do_not_depend_on_each_other():
    X = CENTER + np.random.default_rng(0).normal(size=(9, 3))
    features = BallMoments(BALL)
    whole = features.transform(X)
    for i in range(9):
        assert_allclose(features.transform(X[i : i + 1])[0], whole[i], rtol=1e-15)


@pytest.mark.parametrize("ball", [Box(0, 1, n_features=2), Ball(1.0, p=1, n_features=2)], ids=str)
def test_other_domains_are_refused(ball):
    with pytest.raises(ValueError, match="Ball with p = 2"):
        BallMoments(ball)
    with pytest.raises(ValueError, match="weight must be positive"):
        BallMoments(BALL, 0.0)
