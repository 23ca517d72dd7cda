"""Curves of budgets: one fit for each point, as many as it says, and drawn as they are."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from sklearn_dpgen.exceptions import UnpaidScoreWarning
from sklearn_dpgen.model_selection import privacy_utility_curve
from sklearn_dpgen.reporting._privacy_displays import PrivacyUtilityDisplay

pyplot = pytest.importorskip("matplotlib.pyplot")

X = np.arange(80.0)[:, None]


class Echo(BaseEstimator):
    """Scores its budget, and says what it was fitted with."""

    fits: list = []  # noqa: RUF012

    def __init__(self, epsilon=1.0, random_state=None):
        self.epsilon = epsilon
        self.random_state = random_state

    def fit(self, X, y=None):
        self.fits.append((self.epsilon, self.random_state, len(X)))
        self.fitted_ = True
        return self

    def score(self, X, y=None):
        return min(self.epsilon, 9.0) + 1e-3 * len(X)


@pytest.fixture(autouse=True)
def clean():
    Echo.fits.clear()
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


def test_fits_once_for_each_budget_and_repeat():
    display = privacy_utility_curve(
        Echo(), X, [0.5, 2.0, np.inf], n_repeats=2, public_rows=True, random_state=0
    )
    np.testing.assert_allclose(display.scores, [[0.52, 0.52], [2.02, 2.02], [9.02, 9.02]])
    assert [fit[0] for fit in Echo.fits] == 2 * [0.5, 2.0, np.inf]
    assert len({fit[1] for fit in Echo.fits}) == 2
    assert {fit[2] for fit in Echo.fits} == {60}


def test_a_budget_within_a_pipeline_is_set():
    display = privacy_utility_curve(make_pipeline(Echo()), X, [0.5], public_rows=True, n_repeats=1)
    assert display.scores.tolist() == [[0.52]]


def test_warns_of_private_rows_once():
    with pytest.warns(UnpaidScoreWarning, match="6 fits") as seen:
        privacy_utility_curve(Echo(), X, [0.5, 1.0])
    assert len(seen) == 1


def test_draws_means_spread_and_points():
    scores = np.array([[0.8, 0.84], [0.5, 0.7], [0.9, 0.9]])
    display = PrivacyUtilityDisplay([2.0, 0.5, np.inf], scores, name="a").plot()
    x, means = display.errorbar_.lines[0].get_data()
    np.testing.assert_allclose(x, [0.5, 2.0])
    np.testing.assert_allclose(means, [0.6, 0.82])
    segments = display.errorbar_.lines[2][0].get_segments()
    halves = [(segment[1, 1] - segment[0, 1]) / 2 for segment in segments]
    np.testing.assert_allclose(halves, [0.1 * 2**0.5, 0.02 * 2**0.5])
    np.testing.assert_allclose(display.points_.get_ydata(), [0.5, 0.7, 0.8, 0.84])
    assert display.ax_.get_xscale() == "log"
    again = PrivacyUtilityDisplay([1.0], [[0.4]]).plot(display.ax_)
    assert again.ax_ is display.ax_


def test_from_estimator_draws_at_once():
    display = PrivacyUtilityDisplay.from_estimator(
        Echo(), X, [0.5, 2.0], n_repeats=2, public_rows=True, name="echo"
    )
    np.testing.assert_allclose(display.errorbar_.lines[0].get_ydata(), [0.52, 2.02])
    assert display.ax_.get_legend() is not None


@pytest.mark.parametrize(
    ("estimator", "epsilons", "settings", "message"),
    [
        (Echo(), [], {}, "epsilons"),
        (Echo(), [0.0], {}, "epsilons"),
        (Echo(), [1.0], {"n_repeats": 0}, "n_repeats"),
        (LogisticRegression(), [1.0], {}, "must have a parameter epsilon"),
    ],
)
def test_bad_parameters(estimator, epsilons, settings, message):
    with pytest.raises(ValueError, match=message):
        privacy_utility_curve(estimator, X, epsilons, **settings)
    assert not Echo.fits
