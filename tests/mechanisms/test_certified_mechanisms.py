"""Local mechanisms and sequences with certified noise keep their budget to the last step."""

import math
from functools import partial

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.accounting._calibration import laplace_scale
from sklearn_dpgen.domains import Ball, Box, OneHot
from sklearn_dpgen.mechanisms import (
    GaussianMechanism,
    GaussianSequenceMechanism,
    JointRandomizedResponse,
    LaplaceMechanism,
    RandomizedResponse,
    TabularMechanism,
    ThresholdedLaplaceMechanism,
)
from sklearn_dpgen.mechanisms._sequence import SelectionMechanism
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.utils._exact_draws import grid_integers
from sklearn_dpgen.utils._random import CERTIFIED, CertifiedNoise, NoiseSource

CERTIFIED_NOISE = "certified_noise"


pytest.importorskip("opendp")

SCHEMA = Schema(
    {
        "age": Numeric(0, 100),
        "pay": Numeric(0, 9, nullable=True),
        "kind": Categorical(["a", "b", "c"]),
    }
)
FRAME = pd.DataFrame({"age": [3.0, 50.0], "pay": [1.0, None], "kind": ["a", "c"]})
BOX = Box([0, -1], [1, 5])
LOCAL = [
    (LaplaceMechanism(1.0, domain=BOX, noise="certified"), BOX.low[None]),
    (GaussianMechanism(1.0, domain=Ball(2, n_features=3), noise="certified"), np.ones((1, 3))),
    (RandomizedResponse(1.0, domain=OneHot(4), noise="certified"), np.eye(4)),
    (TabularMechanism(2.0, schema=SCHEMA, noise="certified"), FRAME),
    (TabularMechanism(2.0, schema=SCHEMA, n_bins=4, noise="certified"), FRAME),
    (JointRandomizedResponse(2.0, schema=SCHEMA, noise="certified"), FRAME),
]


@pytest.mark.parametrize(("mechanism", "records"), LOCAL)
def test_reports_and_releases(mechanism, records):
    mechanism.fit(records)
    assert len(mechanism.transform(records)) == len(records)
    report = mechanism.privacy_
    assert report == mechanism.plan(n_features=None if records is FRAME else records.shape[1])
    assert report.noise_source == CERTIFIED
    assert CERTIFIED_NOISE in report.caveats
    assert "52 random bits" not in report.to_text()
    with pytest.raises(ValueError, match="random_state must be None with noise='certified'"):
        type(mechanism)(**mechanism.get_params() | {"random_state": 0}).fit(records)
    # The noise is not that of a parameter that was set after the plan.
    mechanism.set_params(noise="laplace" if isinstance(mechanism, TabularMechanism) else "float")
    assert isinstance(mechanism._noise(np.zeros((1, 1))), CertifiedNoise)


@pytest.mark.parametrize(("mechanism", "records"), LOCAL)
def test_a_float_sampler_by_accident_is_caught(mechanism, records):
    class Careless(type(mechanism)):
        def _randomize(self, X, noise):
            return X + noise.normal(X.shape)

        def _ask(self, codes):
            return self._noise(codes).uniform(len(codes))

    with pytest.raises(TypeError, match="no draws in floating point"):
        Careless(**mechanism.get_params() | {"noise": "certified"}).fit_transform(records)


def worst_shift(mechanism, *, offsets, rounded=grid_integers):
    """Return the largest l1 distance of the corners of moved boxes, in scales of the noise."""
    worst = 0.0
    for offset in offsets:
        one = mechanism(Box(offset, offset + 1.0)).fit()
        ends = np.array([offset, offset + 1.0])
        low, high = rounded(ends, one.scale_).tolist()
        worst = max(worst, (high - low) / 2**26 - one.privacy_.epsilon)
    return worst


class NotInflated(LaplaceMechanism):
    """A broken variant: rounding is not paid for."""

    def _calibrate(self):
        report = super()._calibrate()
        self.scale_ = laplace_scale(self.epsilon, self.domain_.diameter(1))
        return report


def test_no_pair_of_records_costs_more_than_epsilon():
    offsets = np.random.default_rng(0).uniform(0, 1, 50)
    # A step of the grid is no whole part of the domain.
    epsilon = 1 + 0.5 / 2**26
    make = partial(dict, epsilon=epsilon, noise="certified")
    assert worst_shift(lambda box: LaplaceMechanism(**make(domain=box)), offsets=offsets) <= 0
    assert worst_shift(lambda box: NotInflated(**make(domain=box)), offsets=offsets) > 0


def test_a_grid_that_is_coarser_than_what_is_paid_for_is_caught():
    def coarse(values, scale):
        return np.rint(values / scale * 2**10).astype(np.int64) * 2**16

    def mechanism(box):
        return LaplaceMechanism(0.7, domain=box, noise="certified")

    offsets = np.random.default_rng(0).uniform(0, 1, 50)
    assert worst_shift(mechanism, offsets=offsets) <= 0
    assert worst_shift(mechanism, offsets=offsets, rounded=coarse) > 0


def test_scales_are_hardly_larger():
    for kind in (LaplaceMechanism, GaussianMechanism):
        plain, certified = (kind(0.5, domain=BOX, noise=n).fit() for n in ("float", "certified"))
        assert (plain.scale_ < certified.scale_).all()
        assert (certified.scale_ < 1.00001 * plain.scale_).all()
        assert certified.privacy_.profile().delta(0.5) <= certified.privacy_.delta


@pytest.mark.parametrize("kind", [LaplaceMechanism, GaussianMechanism])
def test_domains_that_the_grid_does_not_reach_are_refused(kind):
    far = Box(1e9, 1e9 + 1)
    kind(1.0, domain=far).fit()
    with pytest.raises(ValueError, match="domain must be within .* got 1e\\+09"):
        kind(1.0, domain=far, noise="certified").fit()
    kind(np.inf, domain=far, noise="certified").fit()
    near = kind(1.0, domain=Box(1e6, 1e6 + 1), noise="certified")
    assert near.fit_transform(np.full((500, 1), 1e6)).mean() == pytest.approx(1e6, abs=3)


def test_nulls_cost_no_more_than_their_share():
    """The noise of a null costs half, the rounding of it all the same, and the flag a half."""
    mechanism = TabularMechanism(2.0, schema=SCHEMA, noise="certified").fit()
    share, scale = mechanism.epsilon_["pay"], mechanism.scale_["pay"]
    low, middle, high = grid_integers(np.array([-1.0, 0.0, 1.0]), scale) / 2**26
    # Two steps more than these values move, as others might.
    assert high - low + 2 / 2**26 <= share
    assert share / 2 + max(high - middle, middle - low) + 2 / 2**26 <= share


def sequence(**options):
    sizes = {"n_values": [50, 100], "n_changed": [2, 4]} | options
    return GaussianSequenceMechanism(1.0, (1.0, 2.0), 1.0, 1e-5, **sizes)


def test_sequences_release_what_they_were_paid_for():
    run = sequence().run()
    assert run.release(np.zeros(50), CertifiedNoise()).shape == (50,)
    with pytest.raises(RuntimeError, match="paid for 100 values, not 101"):
        run.release(np.zeros(101), CertifiedNoise())


def test_another_kind_of_noise_is_refused():
    for run, noise in (
        (sequence().run(), NoiseSource()),
        (sequence(n_values=None, n_changed=None).run(), CertifiedNoise()),
        (ThresholdedLaplaceMechanism(1.0, 1e-5, 1, certified=True).run(), NoiseSource()),
        (ThresholdedLaplaceMechanism(1.0, 1e-5, 1).run(), CertifiedNoise()),
    ):
        with pytest.raises(RuntimeError, match="paid for"):
            run.release(np.zeros(3), noise)
    for certified, noise in ((True, NoiseSource()), (False, CertifiedNoise())):
        with pytest.raises(RuntimeError, match="paid for"):
            SelectionMechanism(1.0, 1.0, 1, certified).run().release(np.zeros(3), noise)


def test_prices_of_sequences():
    plain = sequence(n_values=None, n_changed=None)
    for certified in (sequence(), sequence(n_changed=None)):
        for ours, theirs in zip(certified.noise_scales, plain.noise_scales, strict=True):
            assert theirs < ours < 1.00001 * theirs
        ((profile, _),) = certified.releases
        least = sum(
            (1 / scale + 2 * math.sqrt(n) / 2**26) ** 2
            for scale, n in zip(certified.noise_scales, certified.n_changed, strict=True)
        )
        assert math.sqrt(least) <= profile.mu
        assert profile.delta0 >= 150 / 12 / 2**52
        assert profile.delta(1.0) <= 1e-5
    for wrong in ({"n_values": [50]}, {"n_values": None}, {"n_values": [0, 1]}):
        with pytest.raises(ValueError, match="n_values|n_changed|argument"):
            sequence(**wrong)


def test_selections_of_rounded_scores():
    options = {"n_selections": 3, "selection_share": 1.0, "score_range": 2.0}
    certified = sequence(**options)
    plain = sequence(n_values=None, n_changed=None, **options)
    scale = certified.selection.noise_scale
    assert 2.0 / scale + 4 / 2**26 <= certified.selection.epsilon0
    assert plain.selection.noise_scale < scale < 1.00001 * plain.selection.noise_scale
    run = certified.run()
    assert run.select(np.arange(5.0) * 1e4, CertifiedNoise(), count=3).tolist() == [4, 3, 2]


def test_thresholds_hold_with_discrete_noise():
    """A cell of one vote passes as seldom as is paid for, by the law of the noise."""
    mechanism = ThresholdedLaplaceMechanism(1.0, 1e-3, 2, certified=True)
    b, t = mechanism.noise_scale, 2.0**26
    (one,) = grid_integers(np.array([1.0]), b)
    least = math.ceil((mechanism.threshold + b / 1024) / b * t) - 1 - int(one)
    passes = math.exp(-least / t) / (1 + math.exp(-1 / t))
    assert passes <= 1e-3 / 8
    # Without the slack of a step it might not.
    assert math.exp(-(least - 2 * t / 1024) / t) / 2 > 1e-3 / 8
    assert mechanism.noise_scale > ThresholdedLaplaceMechanism(1.0, 1e-3, 2).noise_scale
