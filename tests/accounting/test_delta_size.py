"""Deltas that pay for whole records: warned of, and refused where nothing is left to calibrate."""

import math
import warnings
from functools import partial

import pytest

from sklearn_dpgen.accounting import epsilon_spent
from sklearn_dpgen.accounting._calibration import check_delta_size
from sklearn_dpgen.exceptions import LargeDeltaWarning
from sklearn_dpgen.mechanisms import StratifiedGaussianMechanism, Stratum
from sklearn_dpgen.smoothed._plan import plan_releases


def divergence_of_raw_release(n_published, n_samples):
    """δ(0) of publishing so many records, picked at random: the replaced one may be among them."""
    return n_published / n_samples


@pytest.mark.parametrize("n_samples", [2, 49, 1000])
def test_a_delta_that_pays_for_one_record_at_random_is_warned_of(n_samples):
    edge = divergence_of_raw_release(1, n_samples)
    with pytest.warns(LargeDeltaWarning, match=f"1 / n_samples = {edge:.3g}"):
        assert check_delta_size(1.01 * edge, n_samples) == 1.01 * edge
    # Any smaller delta is below what the release of a record costs: no warning.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for factor in (1.0, 0.99, 1e-9):
            assert check_delta_size(factor * edge, n_samples) == factor * edge


@pytest.mark.parametrize(("batch_size", "size"), [(1, 1000), (20, 1000), (500, 1000)])
def test_a_delta_that_pays_for_a_batch_without_noise_is_refused(batch_size, size):
    edge = divergence_of_raw_release(batch_size, size)

    def build(delta, n_releases):
        stratum = Stratum(size, batch_size, 1.0)
        return StratifiedGaussianMechanism(
            [stratum], epsilon=1.0, delta=delta, n_releases=n_releases
        )

    for delta in (edge, 1.5 * edge, math.nextafter(1.0, 0)):
        for n_releases in (1, 30):
            with pytest.raises(ValueError, match="delta must be below the sampling rate"):
                build(delta, n_releases)
    # Just below it there is noise that the record of a batch is lost in.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LargeDeltaWarning)
        assert min(build(0.999 * edge, n).noise_multiplier for n in (1, 30)) > 0.05
    # Negative twin: what is refused would be met by next to no noise; just below it is not.
    cost = partial(epsilon_spent, 1e-6, sampling_rate=batch_size / size)
    assert cost(edge) == 0
    assert cost(0.999 * edge) > 1e6


def test_the_rarest_stratum_decides():
    strata = [Stratum(1000, 500, 1.0), Stratum(1000, 2, 1.0)]
    with pytest.raises(ValueError, match="below the sampling rate 0.002"):
        StratifiedGaussianMechanism(strata, epsilon=1.0, delta=2e-3, n_releases=1)
    with pytest.warns(LargeDeltaWarning, match=r"1 / n_samples = 0\.0005"):
        StratifiedGaussianMechanism(strata, epsilon=1.0, delta=1e-3, n_releases=1)


def test_full_batches_are_warned_of_and_no_noise_is_not():
    whole = [Stratum(50, 50, 1.0)]
    with pytest.warns(LargeDeltaWarning):
        StratifiedGaussianMechanism(whole, epsilon=1.0, delta=0.5, n_releases=1)
    unpriced = StratifiedGaussianMechanism(
        [Stratum(50, 5, 1.0)], epsilon=math.inf, delta=0.5, n_releases=1
    )
    assert unpriced.noise_scale == 0


@pytest.mark.parametrize(
    ("delta", "n_samples", "rate", "error"),
    [(0.0, 10, 1.0, ValueError), (1.0, 10, 1.0, ValueError), (0.1, 0, 1.0, ValueError)]
    + [(0.1, 10.0, 1.0, TypeError), (0.1, 10, 1.5, ValueError)],
)
def test_bad_arguments(delta, n_samples, rate, error):
    with pytest.raises(error):
        check_delta_size(delta, n_samples, sampling_rate=rate)


def warns(delta, with_counts):
    """Whether a plan of 100 records warns of its delta."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plan_releases(
            [100],
            2.0,
            3,
            epsilon=1.0,
            delta=delta,
            batch_size=100,
            n_epochs=1.0,
            with_counts=with_counts,
        )
    return any(issubclass(warning.category, LargeDeltaWarning) for warning in caught)


@pytest.mark.parametrize("with_counts", [False, True])
def test_a_budget_in_parts_is_compared_as_a_whole(with_counts):
    # With counts the records have 0.95 of it: still below one record in a hundred.
    assert warns(0.0102, with_counts)
    assert not warns(0.0098, with_counts)
