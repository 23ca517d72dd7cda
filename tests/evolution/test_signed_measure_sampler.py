"""The private signed measure mechanism: its supports, its one histogram, its projection."""

import numpy as np
import ot
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import wasserstein_distance

from sklearn_dpgen.accounting import gaussian_sigma
from sklearn_dpgen.domains import Ball, Box, Product
from sklearn_dpgen.evolution import NoisyVotes, PrivateSignedMeasureSampler
from sklearn_dpgen.evolution._signed_measure_sampler import grid_support
from sklearn_dpgen.evolution._weight_projections import project_bounded_lipschitz, project_simplex

DISC = Ball(1.0, n_features=2)
PLAIN = {"device": "cpu", "random_state": 0}


def quadrant(n, seed=0):
    return abs(DISC.sample(n, np.random.default_rng(seed)))


def test_without_noise_no_measure_on_the_support_is_nearer():
    """Proposition 5.1: the distance is the mean one of records to their nearest points."""
    X, support = quadrant(300), DISC.sample(20, np.random.default_rng(1))
    sampler = PrivateSignedMeasureSampler(np.inf, domain=DISC, support=support, **PLAIN).fit(X)
    distances = ot.dist(support, X, metric="euclidean")
    (weights,) = sampler.weights_
    uniform = np.full(300, 1 / 300)
    assert ot.emd2(weights, uniform, distances) == pytest.approx(distances.min(axis=0).mean())
    counts = np.bincount(distances.argmin(axis=0), minlength=20)
    assert_allclose(weights, counts / 300, atol=1e-12)
    shifted = np.roll(weights, 1)
    assert ot.emd2(shifted, uniform, distances) > 1.05 * distances.min(axis=0).mean()


@pytest.mark.parametrize("n_features", [1, 2])
@pytest.mark.parametrize(("n", "epsilon"), [(1000, 1.0), (5000, 0.3), (50, 0.1)])
def test_the_grid_has_as_many_points_as_the_votes_exceed_the_noise(n_features, n, epsilon):
    domain = Box(0, 1, n_features=n_features)
    X = domain.sample(n, np.random.default_rng(0))
    sampler = PrivateSignedMeasureSampler(epsilon, 1e-4, domain=domain, **PLAIN).fit(X)
    signal = n / max(1.0, np.sqrt(2) * gaussian_sigma(epsilon, 1e-4))
    wanted = max(1, round(signal ** (2 / 3) if n_features == 1 else signal))
    assert_array_equal(sampler.candidates_[0], grid_support(domain, wanted))


def test_the_grid_of_a_given_size():
    sampler = PrivateSignedMeasureSampler(domain=DISC, n_points=50, **PLAIN).fit(quadrant(100))
    assert_array_equal(sampler.candidates_[0], grid_support(DISC, 50))
    # Of each class, by its size.
    y = np.repeat([0, 1], [400, 1600])
    sampler = PrivateSignedMeasureSampler(domain=DISC, labels="public", **PLAIN).fit(
        quadrant(2000), y
    )
    few, many = map(len, sampler.candidates_)
    assert 0.5 * many < 4 * few < 2 * many


def test_points_of_ones_own():
    support = DISC.sample(30, np.random.default_rng(9))
    # Without noise: a seeded one depends on the declared domain.
    options = {"support": support, "epsilon": np.inf, **PLAIN}
    with_domain = PrivateSignedMeasureSampler(domain=DISC, **options).fit(quadrant(500))
    without = PrivateSignedMeasureSampler(domain=None, **options).fit(quadrant(500))
    for sampler in (with_domain, without):
        assert_array_equal(sampler.candidates_[0], support)
        drawn = sampler.sample(40, random_state=0)
        assert (drawn[:, None] == support[None]).all(axis=2).any(axis=1).all()
    assert_array_equal(with_domain.weights_[0], without.weights_[0])
    assert not hasattr(without, "domain_")
    as_list = PrivateSignedMeasureSampler(domain=DISC, **options | {"support": support.tolist()})
    assert_array_equal(as_list.fit(quadrant(500)).weights_[0], with_domain.weights_[0])


@pytest.mark.parametrize(
    ("support", "domain", "message"),
    [
        (np.full((3, 2), 5.0), DISC, "outside of the domain"),
        (np.zeros((3, 1)), DISC, "features"),
        (np.zeros((3, 1)), None, "features"),
        (np.zeros((0, 2)), DISC, "rows of 2 features"),
        (np.full((3, 2), np.nan), DISC, "finite"),
        (np.zeros(2), DISC, "rows of 2 features"),
    ],
    ids=["outside", "narrow", "narrow-open", "empty", "NaN", "1-D"],
)
def test_points_that_are_refused(support, domain, message):
    sampler = PrivateSignedMeasureSampler(support=support, domain=domain, **PLAIN)
    with pytest.raises(ValueError, match=message) as raised:
        sampler.fit(quadrant(20))
    assert "support" in str(raised.value)


def test_grids_that_there_are_not():
    with pytest.raises(ValueError, match="needs a domain"):
        PrivateSignedMeasureSampler(**PLAIN).fit(quadrant(20))
    with pytest.raises(TypeError, match="needs a Box or a Ball"):
        PrivateSignedMeasureSampler(domain=Product([DISC]), **PLAIN).fit(quadrant(20))


def test_points_that_repeat():
    support = np.repeat(grid_support(DISC, 20), 2, axis=0)
    sampler = PrivateSignedMeasureSampler(np.inf, domain=DISC, support=support, **PLAIN)
    (weights,) = sampler.fit(quadrant(100)).weights_
    assert not weights[1::2].any()
    sampler.set_params(epsilon=1.0).fit(quadrant(100))
    assert sampler.weights_[0].sum() == pytest.approx(1)


@pytest.mark.slow
def test_the_public_total_lowers_the_error():
    """Noise on the sum of the votes is no news: half of the line is empty, and stays so."""
    line, shifted, plain = Box(-1, 1), [], []
    for seed in range(40):
        X = abs(line.sample(1000, np.random.default_rng(seed)))
        options = {"domain": line, "device": "cpu", "random_state": seed}
        sampler = PrivateSignedMeasureSampler(1.0, 1e-4, **options).fit(X)
        ((released,),) = sampler.history_
        places = released.candidates
        as_printed = project_bounded_lipschitz(places, released.votes / 1000)
        for errors, weights in ((shifted, released.weights), (plain, as_printed)):
            errors.append(wasserstein_distance(X[:, 0], places[:, 0], v_weights=weights))
    gains = np.array(plain) - shifted
    assert gains.mean() > 3 * gains.std(ddof=1) / np.sqrt(40)
    assert np.mean(shifted) < 0.95 * np.mean(plain)


def test_the_weights_are_the_projected_votes():
    X = quadrant(500)
    for postprocess in ("bounded_lipschitz", "simplex", "threshold"):
        sampler = PrivateSignedMeasureSampler(
            1.0,
            domain=DISC,
            n_points=60,
            votes=NoisyVotes(postprocess=postprocess, threshold=0.01),
            **PLAIN,
        ).fit(X)
        ((released,),) = sampler.history_
        shares = released.votes / 500
        places, shifted = released.candidates, shares - (shares.sum() - 1) / len(shares)
        expected = {
            "bounded_lipschitz": lambda s=shifted, v=places: project_bounded_lipschitz(v, s),
            "simplex": lambda s=shares: project_simplex(s),
            "threshold": lambda s=shares: np.where(s >= 0.01, s, 0) / s[s >= 0.01].sum(),
        }[postprocess]()
        assert_allclose(sampler.weights_[0], expected, atol=1e-12)
        assert_array_equal(released.weights, sampler.weights_[0])
        assert (shares < 0).any()


def test_there_is_one_release():
    for histogram in ("gaussian", "laplace_threshold"):
        sampler = PrivateSignedMeasureSampler(
            20.0, domain=DISC, votes=NoisyVotes(histogram=histogram), n_points=40, **PLAIN
        ).fit(quadrant(500))
        assert sampler.privacy_.n_releases == 1
        assert len(sampler.history_) == 1
    assert sampler.privacy_.noise_scale == pytest.approx(2 / 20, rel=1e-2)


def test_private_class_sizes_do_not_depend_on_the_support():
    """The sum of the votes of a class, not their mean over its points."""
    X, y = quadrant(1000), np.repeat(["a", "b"], [100, 900])
    for n_points in (4, 400):
        sampler = PrivateSignedMeasureSampler(
            np.inf, domain=DISC, labels="private", classes=["a", "b"], n_points=n_points, **PLAIN
        ).fit(X, y)
        assert_allclose(sampler.label_proportions_, [0.1, 0.9])


def test_where_no_votes_are_left_all_points_are_alike():
    sampler = PrivateSignedMeasureSampler(
        1.0, domain=DISC, votes=NoisyVotes(histogram="laplace_threshold"), n_points=40, **PLAIN
    )
    before = pytest.warns(UserWarning, match="so at most 1 of all candidates do, with 30 records")
    with before, pytest.warns(UserWarning, match="No candidate kept any votes"):
        sampler.fit(quadrant(30))
    assert_allclose(sampler.weights_[0], 1 / len(sampler.candidates_[0]))


def test_the_projection_is_worth_it():
    """W1 at ε = 1, δ = 1e-4, n = 1000: below that of dropping negative counts."""
    X, error = quadrant(1000), {}
    for postprocess in ("bounded_lipschitz", "threshold"):
        found = []
        for seed in range(4):
            sampler = PrivateSignedMeasureSampler(
                1.0,
                1e-4,
                domain=DISC,
                votes=NoisyVotes(postprocess=postprocess),
                device="cpu",
                random_state=seed,
            ).fit(X)
            (points,), (weights,) = sampler.candidates_, sampler.weights_
            distances = ot.dist(points, X, metric="euclidean")
            found.append(ot.emd2(weights, np.full(1000, 1e-3), distances))
        error[postprocess] = np.mean(found)
    assert error["bounded_lipschitz"] < 0.15
    assert error["bounded_lipschitz"] < 0.8 * error["threshold"]
