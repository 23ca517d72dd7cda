"""Distances of projected records, in exact arithmetic, against the declared diameters."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from domain_cases import ORDERS, reproducibly
from hypothesis import given
from hypothesis import strategies as st

from sklearn_dpgen.domains import Ball, Box, OneHot, Product
from sklearn_dpgen.domains._ball import enclosing_ball

WIDTHS = (1, 2, 3, 50)


def exact_norm(x, y, p):
    """Return the l_p distance of two vectors of floats to the power p, or for p = inf itself."""
    gaps = [abs(Fraction(a) - Fraction(b)) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    return max(gaps) if p == np.inf else sum(gap**p for gap in gaps)


def reaches(claim, x, y, p):
    """Whether two vectors are further apart than claimed."""
    return exact_norm(x, y, p) > (Fraction(claim) if p == np.inf else Fraction(claim) ** p)


def far_records(center, seed, scale):
    """Records around a center along few, many or all axes and at random, with their opposites."""
    width, rng = len(center), np.random.default_rng(seed)
    signs = np.sign(rng.normal(size=(6, width)))
    few = signs * (np.arange(width) < np.array([1, 2, 5, 9, 14, width])[:, None])
    directions = np.concatenate([few, rng.normal(size=(4, width)), rng.laplace(size=(2, width))])
    return center + scale * np.concatenate([directions, -directions])


def leaves_its_diameter(domain, seed, scale):
    """Whether two projected records are further apart than any declared diameter."""
    center = domain.center if isinstance(domain, Ball) else enclosing_ball(domain).center
    return is_beyond_a_diameter(domain, domain.project(far_records(center, seed, scale)))


def is_beyond_a_diameter(domain, points):
    """Whether two points are further apart than a declared diameter, of the farthest by floats."""
    first, second = np.triu_indices(len(points), 1)
    gaps = points[first] - points[second]
    gaps /= abs(gaps).max()
    for p in ORDERS:
        for i in np.argsort(-np.linalg.norm(gaps, p, axis=1))[:3]:
            if reaches(domain.diameter(p), points[first[i]], points[second[i]], p):
                return True
    return False


class UnroundedBall(Ball):
    """Projects on the ball itself and then rounds, as it comes."""

    def _kept_radius(self):
        return self.radius

    def _inner_radius(self, precision):
        return self.radius

    def _bounds(self):
        return self.center - self.radius, self.center + self.radius


def ball_of(radius, p, width, shift, seed, kind=Ball):
    center = shift * np.random.default_rng(seed).uniform(-1, 1, size=width)
    return kind(radius, p, center * (np.arange(width) % 3 < 2))


@reproducibly
@given(
    radius=st.floats(-200, 200).map(lambda exponent: 10.0**exponent),
    p=st.sampled_from(ORDERS),
    width=st.sampled_from(WIDTHS),
    shift=st.sampled_from([0.0, 1e-3, 1.0, 1e3, 1e7, 1e10]),
    seed=st.integers(0, 100),
    far=st.sampled_from([0.3, 1.5, 1e3, 1e9]),
)
def test_projected_records_are_within_the_diameter_of_a_ball(radius, p, width, shift, seed, far):
    ball = ball_of(radius, p, width, shift * radius, seed)
    assert not leaves_its_diameter(ball, seed, far * radius)


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("shift", [0.0, 1.0, 1e10])
def test_rounding_outwards_is_found_out(p, shift):
    def is_found(kind):
        return any(
            leaves_its_diameter(ball_of(0.9, p, width, shift, seed, kind), seed, scale)
            for width in (2, 50)
            for seed in range(8)
            for scale in (0.9, 1e3)
        )

    assert not is_found(Ball)
    # Negative twin; around the origin clipping is exact.
    assert is_found(UnroundedBall) == (p != np.inf or shift > 0)


@pytest.mark.parametrize(
    ("radius", "p", "center", "width"),
    [(7e-5, 2, 1e12, 1), (1.0, 1, 1e15, 50), (0.1, np.inf, 1e15, 2), (1e-310, 2, 0.0, 3)],
)
def test_a_ball_finer_than_double_precision_is_refused(radius, p, center, width):
    with pytest.raises(ValueError, match="must be larger for double precision"):
        Ball(radius, p, center, width)
    # Negative twin: unrefused, records are released further apart than the noise is for.
    broken = UnroundedBall(radius, p, center, width)
    assert any(leaves_its_diameter(broken, seed, 10 * radius) for seed in range(20))
    # Nearer to the origin, or larger, the same ball is accepted.
    near = Ball(max(radius, 1e-290), p, min(center, 1e5 * radius), width)
    assert not any(leaves_its_diameter(near, seed, 10 * near.radius) for seed in range(20))


def test_a_ball_beyond_the_floats_is_refused():
    for radius, center in ((1e308, 1.0), (1.0, 1e308), (1e308, -1e308)):
        with pytest.raises(ValueError, match="quarter of the largest float"):
            Ball(radius, center=center, n_features=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", [1, 2])
def test_tensors_stay_within_the_diameter_too(dtype, p):
    for shift in (0.0, 30.0):
        ball = ball_of(0.7, p, 50, shift, 0)
        records = torch.tensor(far_records(ball.center, 0, 1e3), dtype=dtype)
        assert not is_beyond_a_diameter(ball, ball.project(records).double().numpy())


@reproducibly
@given(
    st.lists(st.tuples(st.floats(-1e16, 1e16), st.floats(1e-3, 1e5)), min_size=1, max_size=30),
    st.sampled_from(ORDERS),
)
def test_diameter_of_a_box_is_rounded_up(pairs, p):
    low = np.array([a for a, _ in pairs])
    high = np.maximum(low + [width for _, width in pairs], np.nextafter(low, np.inf))
    box = Box(low, high)
    assert not reaches(box.diameter(p), *box.project(np.stack([low - 1e17, high + 1e17])), p)
    # As near as floats come, but for the last places.
    assert reaches(box.diameter(p) * (1 - 1e-12), low, high, p)


@pytest.mark.parametrize("p", ORDERS)
def test_unrounded_norms_are_found_out(p):
    rng, n_found = np.random.default_rng(0), 0
    for _ in range(50):
        low = rng.uniform(-1, 1, 20)
        high = rng.uniform(1, 1e3, 20)
        assert not reaches(Box(low, high).diameter(p), low, high, p)
        n_found += reaches(float(np.linalg.norm(high - low, p)), low, high, p)
    assert n_found > 0


@reproducibly
@given(st.integers(0, 1000), st.sampled_from(ORDERS))
def test_diameter_of_a_product_is_rounded_up(seed, p):
    rng = np.random.default_rng(seed)
    low = rng.uniform(-1, 1, 3)
    box, ball = Box(low, low + rng.uniform(0.1, 1, 3)), Ball(0.3, np.inf, n_features=2)
    product = Product([box, OneHot(2), ball])
    assert not leaves_its_diameter(product, seed, 100.0)
    ends = np.stack([[*box.low, 1, 0, -0.3, -0.3], [*box.high, 0, 1, 0.3, 0.3]])
    assert not reaches(product.diameter(p), *ends, p)
    assert reaches(product.diameter(p) * (1 - 1e-12), *ends, p)


@pytest.mark.parametrize("p", ORDERS)
def test_diameter_of_categories_is_rounded_up(p):
    assert not reaches(OneHot(5).diameter(p), np.eye(5)[0], np.eye(5)[1], p)
    assert reaches(np.nextafter(OneHot(5).diameter(p), 0), np.eye(5)[0], np.eye(5)[1], p)


@reproducibly
@given(st.integers(0, 1000), st.sampled_from([0.0, 1.0, 1e9]))
def test_an_enclosing_ball_holds_every_corner(seed, shift):
    rng = np.random.default_rng(seed)
    low = shift * rng.uniform(-1, 1, 4)
    box = Box(low, low + rng.uniform(0.1, 1, 4))
    for domain, points in (
        (box, np.stack([box.low, box.high])),
        (OneHot(3), np.eye(3)),
        (Product([box, OneHot(7)]), np.hstack([np.stack([box.low, box.high]), np.eye(7)[:2]])),
    ):
        ball = enclosing_ball(domain)
        assert not any(reaches(ball.radius, point, ball.center, 2) for point in points)


def test_an_enclosing_ball_of_half_the_diameter_is_found_out():
    low = np.random.default_rng(0).uniform(-1e9, 1e9, size=(50, 4))
    boxes = [Box(row, row + 0.3) for row in low]
    gaps = [(box, enclosing_ball(box).center) for box in boxes]
    assert any(
        reaches(float(np.linalg.norm(box.high - box.low)) / 2, corner, center, 2)
        for box, center in gaps
        for corner in (box.low, box.high)
    )
