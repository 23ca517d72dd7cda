"""The randomizers satisfy their claims, and the same checks catch broken ones."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from local_privacy import (
    EuclideanSensitivity,
    FixedNoise,
    HalfScale,
    NoProjection,
    OneDrawForAllColumns,
    TruncatedLaplace,
    WrongSampler,
    candidates,
    cdf_on_grid,
    dependence_z_score,
    gaussian_delta,
    gaussian_mu,
    is_gaussian_private,
    is_pure,
    log_likelihood,
    outputs,
    privacy_loss,
    sampler_z_score,
    searched_privacy_loss,
    vertices,
)
from scipy.special import ndtr, ndtri

from sklearn_dpgen.domains import Ball, Box, OneHot, Product
from sklearn_dpgen.mechanisms import GaussianMechanism, LaplaceMechanism, RandomizedResponse
from sklearn_dpgen.mechanisms._randomizers import draw_response, response_table
from sklearn_dpgen.utils._random import NoiseSource, on_grid

reproducibly = settings(deadline=None, max_examples=30, derandomize=True)

DOMAINS = [
    Box(-1, 1),
    Box([0, -2, 10], [1, 5, 11]),
    Ball(2, n_features=3),
    Ball(140, p=1, n_features=2),
    Ball(0.5, p=np.inf, center=[3.0, 4.0]),
    Product([Box(0, 1), Ball(1, n_features=2), OneHot(3)]),
]
ADDITIVE = [LaplaceMechanism, GaussianMechanism]


class HalvedLaplace(HalfScale, LaplaceMechanism):
    pass


class ThirdTruncated(TruncatedLaplace):
    def _calibrate(self):
        report = super()._calibrate()
        self.scale_ /= 3
        return report


class WeakGaussian(GaussianMechanism):
    """Five per cent less noise than calibrated."""

    def _calibrate(self):
        report = super()._calibrate()
        self.scale_ *= 0.95
        return report


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_laplace_is_private_and_no_noisier_than_it_must_be(domain, epsilon):
    mechanism = LaplaceMechanism(epsilon, domain=domain).fit()
    assert is_pure(mechanism)
    points = candidates(domain)
    assert privacy_loss(mechanism, points, points) == pytest.approx(epsilon, rel=1e-6)
    assert not is_pure(HalvedLaplace(epsilon, domain=domain).fit())
    if domain.diameter(2) < domain.diameter(1):
        assert not is_pure(EuclideanSensitivity(epsilon, domain=domain).fit())


@pytest.mark.parametrize("domain", DOMAINS[:5], ids=repr)
def test_no_search_beats_the_budget(domain):
    mechanism = LaplaceMechanism(2.0, domain=domain).fit()
    assert 1.5 < searched_privacy_loss(mechanism) <= 2 * (1 + 1e-9)
    assert searched_privacy_loss(HalvedLaplace(2.0, domain=domain).fit()) > 2 * (1 + 1e-9)


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-6), (25.0, 1e-4)])
def test_gaussian_is_private_and_no_noisier_than_it_must_be(domain, epsilon, delta):
    mechanism = GaussianMechanism(epsilon, delta, domain=domain).fit()
    farthest = domain.diameter(2) / mechanism.scale_
    if np.ndim(mechanism.scale_):
        farthest = np.linalg.norm((domain.high - domain.low) / mechanism.scale_)
    assert gaussian_mu(mechanism) == pytest.approx(farthest, rel=1e-6)
    assert is_gaussian_private(mechanism)
    assert not is_gaussian_private(WeakGaussian(epsilon, delta, domain=domain).fit())
    closed = GaussianMechanism(epsilon, delta, domain=domain, calibration="closed_form").fit()
    assert np.all(closed.scale_ > mechanism.scale_)
    assert is_gaussian_private(closed)


def test_gaussian_hockey_stick_by_quadrature():
    epsilon, delta = 1.0, 1e-3

    def divergence(mechanism):
        y = np.linspace(-60, 60, 400_001)[:, None] * mechanism.scale_ / 4
        log_p = log_likelihood(mechanism, [[-1.0], [1.0]], y)
        excess = np.maximum(np.exp(log_p[1]) - np.exp(epsilon + log_p[0]), 0)
        return np.trapezoid(excess, y[:, 0])

    mechanism = GaussianMechanism(epsilon, delta, domain=Box(-1, 1)).fit()
    assert divergence(mechanism) == pytest.approx(delta, rel=1e-5)
    assert gaussian_delta(2 / mechanism.scale_, epsilon) == pytest.approx(delta, rel=1e-9)
    assert divergence(WeakGaussian(epsilon, delta, domain=Box(-1, 1)).fit()) > 1.2 * delta


@reproducibly
@given(st.floats(1e-3, 30), st.integers(2, 40))
def test_randomized_response_is_private_and_tight(epsilon, n_categories):
    mechanism = RandomizedResponse(epsilon, domain=OneHot(n_categories)).fit()
    table = mechanism.table_
    assert (table > 0).all()
    np.testing.assert_allclose(table.sum(axis=1), 1, rtol=1e-14)
    loss = np.log(table.max(axis=0) / table.min(axis=0)).max()
    assert loss == pytest.approx(epsilon, abs=1e-11)
    eye = np.eye(n_categories)
    np.testing.assert_allclose(np.exp(log_likelihood(mechanism, eye, eye)), table, rtol=1e-12)
    assert is_pure(mechanism)
    assert mechanism.scale_ == pytest.approx((n_categories - 1) * table[0, 1])


class WrongTable(RandomizedResponse):
    """Keeps the true category with probability e^ε / (e^ε + 1), whatever k."""

    def _calibrate(self):
        report = super()._calibrate()
        k, keep = len(self.table_), 1 / (1 + math.exp(-self.epsilon))
        self.table_ = np.where(np.eye(k) == 1, keep, (1 - keep) / (k - 1))
        return report


def test_a_wrong_table_is_caught():
    assert is_pure(WrongTable(1.0, domain=OneHot(2)).fit())
    assert not is_pure(WrongTable(1.0, domain=OneHot(3)).fit())


def test_a_mechanism_of_a_user_is_checked_likewise():
    domain = Box([-1, 2], [1, 3])
    mechanism = TruncatedLaplace(2.0, domain=domain).fit()
    inside = candidates(domain)
    assert 0.9 < privacy_loss(mechanism, inside, inside) <= 2
    broken = ThirdTruncated(2.0, domain=domain).fit()
    assert privacy_loss(broken, inside, inside) > 2


@pytest.mark.parametrize(
    ("kind", "domain"),
    [
        (LaplaceMechanism, Box(-1, 1)),
        (LaplaceMechanism, Box([0, -2], [1, 5])),
        (GaussianMechanism, Box(-1, 1)),
        (GaussianMechanism, Ball(3, n_features=2)),
        (TruncatedLaplace, Box(-1, 1)),
    ],
)
def test_the_sampler_is_the_one_accounted_for(kind, domain):
    class Broken(WrongSampler, kind):
        pass

    record = vertices(domain)[0] * 0.7
    span = (-1, 1) if kind is TruncatedLaplace else None
    good, broken = (k(2.0, domain=domain, random_state=0).fit() for k in (kind, Broken))
    assert sampler_z_score(good, record, span=span) < 5
    assert sampler_z_score(broken, record, span=span) > 5


@pytest.mark.parametrize("kind", ADDITIVE)
def test_the_columns_get_noise_of_their_own(kind):
    class Broken(OneDrawForAllColumns, kind):
        pass

    records = np.zeros((20_000, 3))
    options = {"domain": Box(-1, 1, n_features=3), "random_state": 0}
    assert dependence_z_score(kind(1.0, **options).fit_transform(records)) < 5
    assert dependence_z_score(Broken(1.0, **options).fit_transform(records)) > 5
    noise = kind(1.0, **options).fit_transform(records)
    rows = np.column_stack([noise[0::2, 0], noise[1::2, 0]])
    assert dependence_z_score(rows) < 5


@pytest.mark.parametrize("kind", [*ADDITIVE, TruncatedLaplace])
def test_densities_integrate_to_one(kind):
    mechanism = kind(1.5, domain=Box(-1, 1)).fit()
    reach = 1.0 if kind is TruncatedLaplace else 40 * mechanism.scale_
    for x in (-1.0, 0.25, 1.0):
        grid = np.unique(np.concatenate([np.linspace(-reach, reach, 100_001), [x]]))
        assert cdf_on_grid(mechanism, np.array([x]), 0, grid)[1] == pytest.approx(1, abs=1e-6)


class GridNoise(NoiseSource):
    """Uniforms on a fine grid instead of at random: shares are then probabilities."""

    def uniform(self, size):
        n = size[0]
        return ((np.arange(n) + 0.5) / n)[:, None]


def table_error(draw, epsilon, k, n=20_000):
    shares = [draw(np.tile(row, (n, 1)), noise=GridNoise()).mean(axis=0) for row in np.eye(k)]
    return abs(np.array(shares) - response_table(epsilon, k)).max()


def test_released_categories_have_the_probabilities_of_the_table():
    for epsilon, k in ((0.3, 2), (2.0, 5), (4.0, 3)):
        table = response_table(epsilon, k)
        wrong = response_table(1.1 * epsilon, k)
        draw = partial(draw_response, table=table, epsilon=epsilon)
        assert table_error(draw, epsilon, k) < 1e-4
        draw = partial(draw_response, table=wrong, epsilon=epsilon)
        assert table_error(draw, epsilon, k) > 1e-3


@pytest.mark.parametrize("kind", [*ADDITIVE, TruncatedLaplace])
@pytest.mark.parametrize("factor", [1.0, 1e3, 1e300])
def test_what_lies_outside_gets_the_noise_of_its_projection(kind, factor):
    domain = Box([-1, 0], [1, 2])

    class Fixed(FixedNoise, kind):
        pass

    class Broken(NoProjection, Fixed):
        pass

    outside = factor * np.array([[3.0, -7.0], [0.5, 9.0], [-2.0, 1.0]])
    inside = domain.project(outside)

    def is_projected(mechanism):
        with np.errstate(invalid="ignore"):
            return np.array_equal(mechanism.transform(outside), mechanism.transform(inside))

    assert is_projected(Fixed(domain=domain).fit())
    assert is_projected(kind(domain=domain, random_state=0).fit())
    if kind is not TruncatedLaplace:
        assert not is_projected(Broken(domain=domain).fit())


def test_what_is_no_category_becomes_one():
    mechanism = RandomizedResponse(50.0, domain=OneHot(3), random_state=0).fit()
    soft = np.array([[0.2, 0.5, 0.3], [-4.0, -3.0, -5.0], [9.0, 9.0, 9.0]])
    np.testing.assert_array_equal(mechanism.transform(soft), np.eye(3)[[1, 1, 0]])


class RawFloats(GaussianMechanism):
    """Releases the float64 sum as it is."""

    def _randomize(self, X, noise):
        return X + self.scale_ * noise.normal(X.shape)


def can_come_from(Y, x, scale):
    """Whether the sampler can give exactly these values for record x (Mironov's attack)."""
    uniforms = np.rint(ndtr((Y - x) / scale) * 2.0**52 - 0.5) + np.arange(-20, 21) + 0.5
    return (x + scale * ndtri(uniforms * 2.0**-52) == Y).any(axis=1)


def exceeds_guarantee_by(kind, n=4_000):
    """Lower bound of δ at the stated ε that the attack on the low bits shows, in std deviations."""
    mechanism = kind(0.1, 1e-5, domain=Box(0, 1), random_state=0).fit()
    releases = [mechanism.transform(np.full((n, 1), x)) for x in (0.0, 1.0)]
    rates = [can_come_from(Y, 0.0, mechanism.scale_).mean() for Y in releases]
    return (rates[0] - math.exp(0.1) * rates[1] - 1e-5) * math.sqrt(n)


def test_low_bits_do_not_tell_records_apart():
    assert exceeds_guarantee_by(GaussianMechanism) < 5
    assert exceeds_guarantee_by(RawFloats) > 20


@reproducibly
@given(st.floats(1e-6, 1e6), st.floats(-1e3, 1e3))
def test_the_grid_is_fine_and_does_not_depend_on_the_values(scale, value):
    values = value + scale * np.linspace(-3, 3, 7)
    rounded = on_grid(values, scale)
    assert abs(rounded - values).max() <= scale / 2048 + 1e-15 * abs(values).max()
    step = np.exp2(np.floor(np.log2(scale)) - 10)
    assert (rounded / step == np.rint(rounded / step)).all()
    np.testing.assert_array_equal(on_grid(rounded, scale), rounded)


def test_outputs_cover_categories_and_far_values():
    # The checks above are only as good as the points that they try.
    domain = DOMAINS[-1]
    assert abs(outputs(domain)).max() > 10
    assert {tuple(row) for row in outputs(domain)[:, 3:]} == {tuple(row) for row in np.eye(3)}
