"""The next population and its scale; evolution that recovers from a start in the wrong place."""

import math
import re

import numpy as np
import pytest
from evolution_laws import DISC, learner, quadrant, weighted_w1
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.evolution import EuclideanVariation
from sklearn_dpgen.evolution._evolution_sampler import (
    copy_shares,
    distinct_rows,
    draw_systematic,
    next_degree,
)

SAMPLER = "sklearn_dpgen.evolution._evolution_sampler"
PLAN = "sklearn_dpgen.evolution._evolution_sampler"


def test_first_places_of_distinct_rows():
    rows = np.array([[2.0, 0.0], [1.0, 0.0], [2.0, 0.0], [0.0, 5.0], [1.0, 0.0]])
    assert_array_equal(distinct_rows(rows), [0, 1, 3])


def test_copies_by_hand():
    shares = np.array([0.0, 0.24, 0.26, 0.5, 0.37])
    assert_array_equal(np.bincount(copy_shares(shares, 10, 1), minlength=5), [0, 2, 3, 5, 4])
    # nint(n share/B) B with n = 10 and B = 5.
    assert_array_equal(np.bincount(copy_shares(shares, 10, 5), minlength=5), [0, 0, 5, 5, 5])
    assert len(copy_shares(shares, 10, 100)) == 0


def test_systematic_draws_are_the_expected_ones_rounded():
    weights = np.array([0.5, 0.0, 0.3, 0.2])
    for seed in range(20):
        drawn = draw_systematic(weights, 7, np.random.default_rng(seed))
        found = np.bincount(drawn, minlength=4)
        assert (abs(found - 7 * weights) < 1).all()
        assert found[1] == 0


def test_the_next_scale_by_hand():
    moves = np.array([0.0, 0.0, 1.0, 1.0, 4.0, 6.0])
    narrow = np.array([False, False, True, True, False, False])
    # Half of the votes stay or move by the scale: it is halved.
    for weights in ([1, 1, 1, 1, 1, 1], [6, 0, 0, 0, 1, 1], [0, 0, 5, 4, 4, 4], [0, 0, 1, 1, 0, 0]):
        assert next_degree(0.2, moves, narrow, np.array(weights) / np.sum(weights)) == 0.1
    # Most of them are for moves of 4 scales, and half of that is next; not beyond the domain.
    weights = np.array([0.1, 0.0, 0.1, 0.0, 0.5, 0.3])
    assert next_degree(0.2, moves, narrow, weights) == pytest.approx(0.4)
    assert next_degree(0.6, moves, narrow, weights) == 1.0
    # Where nothing moved there is nothing to compare with.
    assert next_degree(0.2, np.zeros(6), narrow, weights) == 0.1
    assert next_degree(0.2, moves, np.zeros(6, dtype=bool), weights) == 0.1


class StartsAt(EuclideanVariation):
    def __init__(self, point):
        super().__init__(DISC)
        self.point = point

    def random(self, n, rng):
        return np.tile(self.point, (n, 1))


def errors(n, **options):
    return [
        weighted_w1(learner("evolution", 1.0, delta=1e-4, **options, random_state=s).fit(X), X)
        for s in range(4)
        for X in [quadrant(n, s)]
    ]


@pytest.mark.slow
def test_a_start_in_the_wrong_place_is_left(monkeypatch):
    """The first candidates are all at the other side of the disc, 1.2 away on average."""
    start = StartsAt([-0.7, -0.7])
    recovered = np.mean(errors(2000, interface=start))
    good = np.mean(errors(2000))
    assert recovered < 0.12
    assert good < 0.065
    # Twin: with scales that are halved whatever the votes say, most of the way is left.
    monkeypatch.setattr(f"{SAMPLER}.next_degree", lambda degree, *args: degree / 2)
    halved = np.mean(errors(2000, interface=start))
    assert halved > 1.3 * recovered
    # As votes for a start in the right place are for moves of the scale, it is halved there.
    assert np.mean(errors(2000)) == pytest.approx(good, rel=0.1)


def test_the_scale_follows_the_votes_of_each_class():
    """One class is where the candidates begin, the other is far away."""
    rng = np.random.default_rng(0)
    near = DISC.project([-0.7, -0.7] + 0.1 * rng.normal(size=(2000, 2)))
    far = DISC.project([0.7, 0.7] + 0.1 * rng.normal(size=(2000, 2)))
    X, y = np.concatenate([near, far]), np.repeat(["far", "near"], 2000)[::-1]
    sampler = learner("evolution", 5.0, interface=StartsAt([-0.7, -0.7])).fit(X, y)
    first, second = sampler.history_[:2]
    (far_first, near_first), (far_second, near_second) = first, second
    assert list(sampler.classes_) == ["far", "near"]
    assert far_first.degrees == near_first.degrees
    assert far_first.degrees[1] == pytest.approx(math.sqrt(far_first.degrees[0]))
    assert_allclose(near_second.degrees, near_first.degrees[0] / 2)
    assert min(far_second.degrees) > far_first.degrees[0]


class Watched(EuclideanVariation):
    """Variations of the disc, with the sizes of the populations."""

    def __init__(self):
        super().__init__(DISC)
        self.seen = []

    def vary(self, X, rng, degree):
        self.seen.append(len(X))
        return super().vary(X, rng, degree)


COPIES = {"schedule": "theory", "votes__variant": "theory", "votes__postprocess": "threshold"}
COPIES |= {"n_samples": 50, "n_iter": 4}


def test_copies_that_would_grow_without_end_are_refused_before_a_vote(monkeypatch):
    watched = Watched()
    fit = learner("evolution", 1.0, interface=watched, **COPIES)
    with pytest.raises(
        ValueError, match="threshold must be at least .* The noise on the votes is"
    ) as error:
        fit.fit(quadrant(1000))
    assert watched.seen == []
    assert not hasattr(fit, "privacy_")
    # The threshold that the error names keeps populations small.
    enough = float(re.search(r"threshold must be at least ([\d.e-]+[\d]),", str(error.value))[1])
    fit.set_params(votes__threshold=1.01 * enough).fit(quadrant(1000))
    assert max(watched.seen) < 3 * 50
    # Twin: without the check they grow at every step.
    watched.seen.clear()
    monkeypatch.setattr(f"{PLAN}.check_threshold", lambda *args: None)
    fit.set_params(votes__threshold=0.0, n_iter=5).fit(quadrant(1000))
    assert max(watched.seen) > 6 * 50


def test_copies_that_outgrow_the_memory_are_refused(monkeypatch):
    monkeypatch.setattr(f"{PLAN}.check_threshold", lambda *args: None)
    monkeypatch.setattr("sklearn_dpgen.utils._checks._memory", lambda: 16 * 4 * 1000)
    with pytest.raises(ValueError, match=r"n_samples: votes for \d+ candidates would take"):
        learner("evolution", 1.0, interface=Watched(), **COPIES).fit(quadrant(1000))
