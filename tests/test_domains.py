import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_dpgen.domains import Ball, Box, Domain, OneHot, Product, enclosing_ball

reproducibly = settings(deadline=None, max_examples=40, derandomize=True)
ORDERS = (1, 2, np.inf)


def boxes():
    pair = st.tuples(st.floats(-100, 100), st.floats(1e-2, 100))
    return st.lists(pair, min_size=1, max_size=4).map(
        lambda pairs: Box([a for a, _ in pairs], [a + w for a, w in pairs])
    )


def balls():
    return st.builds(
        Ball,
        st.floats(1e-2, 100),
        st.sampled_from(ORDERS),
        st.lists(st.floats(-10, 10), min_size=1, max_size=5),
    )


CONVEX = st.one_of(boxes(), balls())
ANY = st.one_of(CONVEX, st.builds(OneHot, st.integers(2, 5)))
ANY = st.one_of(ANY, st.lists(ANY, min_size=1, max_size=3).map(Product))


def points_around(domain, n, seed):
    """Points of all scales, inside and outside the domain."""
    rng = np.random.default_rng(seed)
    scales = 10.0 ** rng.integers(-3, 5, size=(n, 1))
    return domain.sample(n, rng) + scales * rng.normal(size=(n, domain.n_features))


def farthest(points, p):
    gaps = np.linalg.norm(points[:, None] - points[None], p, axis=2)
    return points[list(np.unravel_index(gaps.argmax(), gaps.shape))]


def extreme_points(domain, p):
    """Members of the domain among which the diameter in norm p is attained."""
    if isinstance(domain, Box):
        return np.stack([domain.low, domain.high])
    if isinstance(domain, OneHot):
        return np.eye(domain.n_features)
    if isinstance(domain, Product):
        return np.hstack([farthest(extreme_points(factor, p), p) for factor in domain.domains])
    directions = np.concatenate([np.eye(domain.n_features), np.ones((1, domain.n_features))])
    directions /= np.linalg.norm(directions, domain.p, axis=1, keepdims=True)
    return domain.center + domain.radius * np.concatenate([directions, -directions])


def members(domain, p=2):
    sample = domain.sample(100, np.random.default_rng(0))
    return np.concatenate([extreme_points(domain, p), sample])


def largest_distance(domain, p):
    points = members(domain, p)
    assert domain.contains(points).all()
    pair = farthest(points, p)
    return np.linalg.norm(pair[0] - pair[1], p)


def violates(claim, domain, p):
    return largest_distance(domain, p) > claim * (1 + 1e-9)


@reproducibly
@given(ANY, st.integers(0, 100))
def test_projection_lands_in_the_domain_and_is_idempotent(domain, seed):
    projected = domain.project(points_around(domain, 20, seed))
    assert domain.contains(projected, tol=1e-9).all()
    np.testing.assert_allclose(domain.project(projected), projected, rtol=1e-12, atol=1e-12)
    inside = domain.sample(20, np.random.default_rng(seed))
    np.testing.assert_allclose(domain.project(inside), inside, rtol=1e-12, atol=1e-12)


@reproducibly
@given(ANY, st.integers(0, 100))
def test_projection_is_nearest(domain, seed):
    X = points_around(domain, 20, seed)
    others = members(domain)
    best = np.linalg.norm(X - domain.project(X), axis=1)
    rivals = np.linalg.norm(X[:, None] - others[None], axis=2).min(axis=1)
    assert (best <= rivals * (1 + 1e-9) + 1e-9).all()


@reproducibly
@given(CONVEX, st.integers(0, 100))
def test_convex_projection_is_the_variational_one(domain, seed):
    # <x - Px, z - Px> <= 0 for every z characterizes the projection on a convex set.
    X = points_around(domain, 20, seed)
    P = domain.project(X)
    Z = members(domain)
    products = np.einsum("nd,nmd->nm", X - P, Z[None] - P[:, None])
    scale = np.linalg.norm(X - P, axis=1, keepdims=True) * domain.diameter(2) + 1
    assert (products <= 1e-9 * scale).all()


@reproducibly
@given(CONVEX, st.integers(0, 100))
def test_convex_projection_is_non_expansive(domain, seed):
    X, Y = points_around(domain, 20, seed), points_around(domain, 20, seed + 1)
    moved = np.linalg.norm(domain.project(X) - domain.project(Y), axis=1)
    assert (moved <= np.linalg.norm(X - Y, axis=1) * (1 + 1e-9) + 1e-9).all()


@pytest.mark.parametrize("p", ORDERS)
@reproducibly
@given(domain=ANY)
def test_diameter_bounds_every_pair_and_is_attained(p, domain):
    claim = domain.diameter(p)
    assert largest_distance(domain, p) == pytest.approx(claim, rel=1e-9)
    assert not violates(claim, domain, p)
    # Negative twin: the same search refutes a diameter claimed 5 % too small.
    assert violates(0.95 * claim, domain, p)


def test_diameters_in_closed_form():
    assert [Box([0, 0], [3, 4]).diameter(p) for p in ORDERS] == [7, 5, 4]
    assert [OneHot(4).diameter(p) for p in ORDERS] == [2, np.sqrt(2), 1]
    assert [Ball(1, 2, n_features=4).diameter(p) for p in ORDERS] == [4, 2, 2]
    assert [Ball(1, 1, n_features=4).diameter(p) for p in ORDERS] == [2, 2, 2]
    assert [Ball(1, np.inf, n_features=4).diameter(p) for p in ORDERS] == [8, 4, 2]
    mixed = Product([Box(-1, 1), OneHot(3)])
    np.testing.assert_allclose([mixed.diameter(p) for p in ORDERS], [4, np.sqrt(6), 2])


@reproducibly
@given(ANY)
def test_enclosing_ball_is_around_the_domain_and_no_wider(domain):
    ball = enclosing_ball(domain)
    points = members(domain)
    # Between records too, where soft categories are.
    points = np.concatenate([points, (points + points[::-1]) / 2])
    assert ball.contains(points, tol=1e-9).all()
    norms = np.linalg.norm(points - ball.center, axis=1)
    assert norms.max() == pytest.approx(ball.radius, rel=1e-9)
    # Jung's theorem holds of the smallest ball: so two radii at a right angle are less than the
    # diameter.
    diameter, d = domain.diameter(2), domain.n_features
    assert diameter * (1 - 1e-9) <= 2 * ball.radius
    assert ball.radius * np.sqrt(2 * (d + 1) / d) <= diameter * (1 + 1e-9)


def test_enclosing_balls_in_closed_form():
    assert enclosing_ball(Box([0, 5], [6, 13])) == Ball(5.0, center=[3.0, 9.0])
    assert enclosing_ball(Ball(2.0, center=[1.0, 0.0])) == Ball(2.0, center=[1.0, 0.0])
    assert enclosing_ball(Ball(2.0, p=1, n_features=9)) == Ball(2.0, n_features=9)
    assert enclosing_ball(Ball(2.0, p=np.inf, n_features=9)) == Ball(6.0, n_features=9)
    assert enclosing_ball(OneHot(2)) == Ball(np.sqrt(0.5), center=[0.5, 0.5])
    product = enclosing_ball(Product([Box(0, 6), Ball(4.0, n_features=2)]))
    assert product == Ball(5.0, center=[3.0, 0.0, 0.0])


def test_no_enclosing_ball_of_an_unknown_domain():
    class Other(Domain):
        n_features = 1
        _project = diameter = sample = None

    for domain in (Other(), Product([Box(0, 1), Other()])):
        with pytest.raises(TypeError, match="No enclosing ball is known for .* Other"):
            enclosing_ball(domain)


def test_half_circle_is_declared_as_a_ball_of_diameter_two():
    angles = np.linspace(0, np.pi, 101)
    half_circle = np.column_stack([np.cos(angles), np.sin(angles)])
    ball = Ball(radius=1, n_features=2)
    assert ball.contains(half_circle).all()
    ends = half_circle[[0, -1]]
    assert np.linalg.norm(ends[0] - ends[1]) == pytest.approx(ball.diameter(2))
    # Negative twin: sqrt(2), as printed in the paper, is not a diameter of this set.
    assert np.linalg.norm(ends[0] - ends[1]) > np.sqrt(2) * 1.4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@reproducibly
@given(domain=ANY, seed=st.integers(0, 100))
def test_tensors_and_arrays_agree(dtype, domain, seed):
    tensor = torch.tensor(points_around(domain, 10, seed), dtype=dtype)
    array = tensor.numpy()
    from_tensor, from_array = domain.project(tensor), domain.project(array)
    assert isinstance(from_tensor, torch.Tensor)
    assert from_tensor.dtype is dtype
    assert from_array.dtype == array.dtype
    np.testing.assert_allclose(from_tensor.numpy(), from_array, rtol=1e-4, atol=1e-3)
    assert domain.contains(from_array).all()
    assert domain.contains(from_tensor).all()


@reproducibly
@given(CONVEX, st.integers(0, 100))
def test_projection_has_the_right_gradient(domain, seed):
    rng = np.random.default_rng(seed)
    X = domain.sample(4, rng) + domain.diameter(2) * rng.normal(size=(4, domain.n_features))
    X = torch.tensor(X, requires_grad=True)
    assert torch.autograd.gradcheck(domain.project, (X,), eps=1e-7, atol=1e-4)


@pytest.mark.parametrize("p", ORDERS)
def test_gradient_is_finite_at_the_centre_and_in_ties(p):
    X = torch.tensor([[0.0, 0.0], [3.0, 3.0], [np.inf, 0.0]], requires_grad=True)
    Ball(1, p, n_features=2).project(X).sum().backward()
    assert torch.isfinite(X.grad).all()
    np.testing.assert_array_equal(X.grad[0], [1, 1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        (Box([-2, -2], [3, 3]), [[3, 0], [-2, 3], [3, 0]]),
        (Ball(1e-3, 2, n_features=2), np.array([[1, 0], [-(0.5**0.5), 0.5**0.5], [1, 0]]) * 1e-3),
        (Ball(1e-3, 1, n_features=2), np.array([[1, 0], [-0.5, 0.5], [1, 0]]) * 1e-3),
        (Ball(1, np.inf, [1, 0]), [[2, 0], [0, 1], [2, 0]]),
        (OneHot(2), [[1, 0], [0, 1], [1, 0]]),
    ],
)
def test_infinite_and_huge_entries_are_clipped(dtype, domain, expected):
    huge = np.sqrt(np.finfo(dtype).max)
    X = np.array([[np.inf, 0], [-np.inf, np.inf], [huge, 0]], dtype=dtype)
    np.testing.assert_allclose(domain.project(X), expected, rtol=1e-5)
    np.testing.assert_allclose(domain.project(torch.tensor(X)), expected, rtol=1e-5)


def test_one_hot_takes_the_first_of_a_tie():
    X = np.array([[1.0, 3.0, 3.0], [0.0, 0.0, 0.0], [-np.inf, -np.inf, -np.inf]])
    expected = [[0, 1, 0], [1, 0, 0], [1, 0, 0]]
    np.testing.assert_array_equal(OneHot(3).project(X), expected)
    np.testing.assert_array_equal(OneHot(3).project(torch.tensor(X)), expected)


def test_integers_become_float64():
    X = np.array([[2], [-2]])
    assert Box(-0.5, 0.5).project(X).tolist() == [[0.5], [-0.5]]
    assert Box(-0.5, 0.5).project(torch.tensor(X)).dtype is torch.float64


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("d", [1, 3])
def test_ball_sampling_is_uniform(p, d):
    # Uniform on a ball: the radial part is (||x||_p / r)^d ~ U(0, 1), and the signs are fair.
    n, ball = 4000, Ball(2.0, p, np.arange(float(d)))

    def radial_gap(X):
        radial = np.sort((np.linalg.norm(X - ball.center, p, axis=1) / ball.radius) ** d)
        return abs(radial - (np.arange(n) + 0.5) / n).max()

    X = ball.sample(n, np.random.default_rng(0))
    assert X.shape == (n, d)
    bound = 2 / np.sqrt(n)
    assert radial_gap(X) < bound
    assert abs((ball.center < X).mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(n)
    # Negative twin: points pulled to the centre by 5 % are not uniform.
    assert radial_gap(ball.center + 0.95 * (X - ball.center)) > bound


def test_l1_and_l2_sampling_directions():
    # E|x_1| is r / (d + 1) on the l1 ball and r * (3/8) on the l2 ball of R^3.
    n, rng = 20000, np.random.default_rng(1)
    for p, mean in ((1, 1 / 4), (2, 3 / 8)):
        first = abs(Ball(1, p, n_features=3).sample(n, rng)[:, 0])
        assert abs(first.mean() - mean) < 5 * first.std() / np.sqrt(n)
    # Negative twin: the two laws are told apart by the same test.
    assert abs(first.mean() - 1 / 4) > 5 * first.std() / np.sqrt(n)


@reproducibly
@given(ANY)
def test_samples_are_members(domain):
    assert domain.contains(domain.sample(100, np.random.default_rng(0)), tol=1e-12).all()


def test_contains_refuses_outside_and_non_finite_rows():
    X = [[0.5, 0.5], [1.1, 0.0], [np.nan, 0.0], [np.inf, 0.0]]
    assert Ball(1, n_features=2).contains(X).tolist() == [True, False, False, False]
    assert Box(-1, 1, 2).contains(torch.tensor(X)).tolist() == [True, False, False, False]
    soft = [[0, 1], [0.5, 0.5], [1, 1]]
    assert OneHot(2).contains(soft).tolist() == [True, False, False]
    assert Box(0, 1).contains([[1.05]], tol=0.1).tolist() == [True]


@reproducibly
@given(ANY)
def test_value_semantics(domain):
    for other in (copy.deepcopy(domain), pickle.loads(pickle.dumps(domain))):
        assert other == domain
        assert hash(other) == hash(domain)
        assert repr(other) == repr(domain)
    assert domain != Product([domain])
    with pytest.raises(AttributeError):
        domain.n_features = 3


def test_arrays_of_a_copy_stay_read_only():
    box = pickle.loads(pickle.dumps(Box([0, 1], [2, 3])))
    with pytest.raises(ValueError, match="read-only"):
        box.low[0] = -5


@reproducibly
@given(ANY)
def test_no_rows_are_fine(domain):
    empty = np.empty((0, domain.n_features))
    assert domain.project(empty).shape == empty.shape
    assert domain.project(torch.tensor(empty)).shape == empty.shape
    assert domain.contains(empty).shape == (0,)


def test_repr_can_be_read():
    assert repr(Box(-1, 1)) == "Box(low=-1.0, high=1.0)"
    assert repr(Box(-1, 1, 784)) == "Box(low=-1.0, high=1.0, n_features=784)"
    assert repr(Ball(1, n_features=2)) == "Ball(radius=1.0, p=2, n_features=2)"
    assert repr(Product([OneHot(3)])) == "Product(domains=(OneHot(n_categories=3),))"
    assert len(repr(Box(np.zeros(784), np.arange(1, 785)))) < 120


def test_scalar_bounds_take_the_width_of_the_other():
    assert Box(-1, [1, 2]) == Box([-1, -1], [1, 2])
    assert Box(-0.0, 1) == Box(0, 1)
    assert Ball(1, n_features=2) == Ball(1.0, 2.0, [0, 0])
    assert Product([Box(0, 1), OneHot(2)]).slices == [slice(0, 1), slice(1, 3)]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Box(1, 1), "low must be smaller"),
        (lambda: Box(-1e308, 1e308), "finite amount"),
        (lambda: Box(0, np.inf), "high must be finite"),
        (lambda: Box([0, 0], [1, 1, 1]), "low has 2 features where 3"),
        (lambda: Box([[0]], [[1]]), "scalar or a vector"),
        (lambda: Box(0, 1, 0), "n_features must be an integer"),
        (lambda: Ball(1), "n_features is needed"),
        (lambda: Ball(0, n_features=1), "radius must be positive"),
        (lambda: Ball(1, 3, n_features=1), "p must be 1, 2"),
        (lambda: Ball(1, center=[0, 0], n_features=3), "center has 2 features where 3"),
        (lambda: OneHot(1), "n_categories must be"),
        (lambda: OneHot(True), "n_categories must be"),
        (lambda: Product([]), "non-empty sequence"),
        (lambda: Product([1]), "non-empty sequence"),
        (lambda: Box(0, 1).diameter(3), "p must be 1, 2"),
        (lambda: Box(0, 1, 3).project(np.zeros((2, 4))), "domain has 3 features, X has 4"),
        (lambda: Box(0, 1).project(np.zeros(2)), "of shape"),
        (lambda: Box(0, 1).project(np.array([["secret"]])), "X must be numeric"),
        (lambda: OneHot(2).project([[np.nan, 1.0]]), "contains NaN"),
        (lambda: Ball(1, n_features=1).project(torch.tensor([[np.nan]])), "contains NaN"),
    ],
)
def test_errors_name_the_rule(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_import_does_not_load_torch():
    code = "import sys, sklearn_dpgen.domains; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
