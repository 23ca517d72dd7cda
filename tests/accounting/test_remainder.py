"""What a budget has left for one more Gaussian release, and reports that can be composed."""

import json
import math

import numpy as np
import pytest

from sklearn_dpgen.accounting import (
    ApproximateProfile,
    GaussianProfile,
    LaplaceProfile,
    PrivacyReport,
    compose_epsilon,
    gaussian_sigma,
)
from sklearn_dpgen.accounting._calibration import calibrate_remainder
from sklearn_dpgen.accounting._selection import BoundedRangeProfile
from sklearn_dpgen.mechanisms import GaussianSequenceMechanism


@pytest.mark.parametrize("spent", [0.3, 0.95])
def test_of_gaussian_releases_squares_are_left(spent):
    first, whole = (1 / gaussian_sigma(epsilon, 1e-6) for epsilon in (spent, 1.0))
    left = calibrate_remainder(1.0, 1e-6, [(GaussianProfile(first), 1)])
    assert left == pytest.approx(math.sqrt(whole**2 - first**2), rel=2e-4)
    assert calibrate_remainder(1.0, 1e-6, ()) == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize(
    "spent",
    [
        [(BoundedRangeProfile(0.1, 5), 1), (GaussianProfile(0.15), 1)],
        [(ApproximateProfile(0.6, 1e-7), 1)],
        [(LaplaceProfile(0.2), 2)],
    ],
)
def test_what_is_left_is_within_the_budget_and_next_to_all_of_it(spent):
    left = calibrate_remainder(1.0, 1e-6, spent)
    assert compose_epsilon([*spent, (GaussianProfile(left), 1)], 1e-6) <= 1.0
    assert compose_epsilon([*spent, (GaussianProfile(1.001 * left), 1)], 1e-6) > 1.0


@pytest.mark.parametrize("epsilon0", [1.0, 0.9995, 3.0])
def test_nothing_left_is_said(epsilon0):
    with pytest.raises(ValueError, match="more than what is spent already"):
        calibrate_remainder(1.0, 1e-6, [(ApproximateProfile(epsilon0), 1)])


def sequence_report(epsilon=1.0, **selections):
    mechanism = GaussianSequenceMechanism(1.0, [1.0, 2.0], epsilon, 1e-6, **selections)
    fields = mechanism.report_fields()
    return PrivacyReport(name="two vectors", events=(), epsilon=epsilon, delta=1e-6, **fields)


SELECTIONS = {"n_selections": 4, "selection_share": 0.5, "score_range": 2.0}


@pytest.mark.parametrize("selections", [{}, SELECTIONS])
def test_the_releases_of_a_report_have_its_price(selections):
    report = sequence_report(**selections)
    price = compose_epsilon(report.composable(), 1e-6)
    assert 0.999 < price <= 1.0 + 1e-9
    restored = PrivacyReport.from_dict(json.loads(report.to_json()))
    assert restored == report
    assert compose_epsilon(restored.releases, 1e-6) == price


def test_a_report_without_releases_is_composed_by_its_budget():
    report = PrivacyReport(name="anything", events=(), epsilon=0.5, delta=1e-7)
    assert report.composable() == ((ApproximateProfile(0.5, 1e-7), 1),)
    assert sequence_report(np.inf).releases == ()
    with pytest.raises(ValueError, match="no guarantee"):
        PrivacyReport(name="anything", events=(), epsilon=np.inf, delta=0.0).composable()


def test_releases_that_are_no_profiles_are_refused():
    with pytest.raises(TypeError, match="releases must be of"):
        PrivacyReport(name="any", events=(), epsilon=1, delta=0, releases=[("laplace", 1)])
    with pytest.raises(TypeError):
        PrivacyReport(name="any", events=(), epsilon=1, delta=0, releases=[GaussianProfile(1.0)])
    with pytest.raises((TypeError, ValueError)):
        PrivacyReport(
            name="any", events=(), epsilon=1, delta=0, releases=[(GaussianProfile(1.0), 0)]
        )
