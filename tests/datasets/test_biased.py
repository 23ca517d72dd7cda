import numpy as np
import pytest
from scipy.stats import kstest

from sklearn_dpgen.datasets import make_biased_labels

N = 30000


def standardized(samples, means):
    """Distance of the averages of the columns from their means, in standard errors."""
    samples = samples - means
    return samples.mean(axis=0) / (samples.std(axis=0) / np.sqrt(len(samples)))


def largest_moment_error(data, agreement, core_variance, spurious_variance):
    """The largest error of a mean or a covariance of (X, Y, A), in standard errors."""
    table = np.column_stack([data.X, data.y, data.sensitive])
    # In order: 8 core features, 8 spurious ones, the label, the attribute.
    coordinate = np.arange(8) % 2
    covariance = np.empty((18, 18))
    covariance[:8, :8] = (coordinate[:, None] == coordinate) / 12
    covariance[:8, 8:] = (2 * agreement - 1) / 12
    covariance[:8, 16] = 1 / 12
    covariance[8:, 8:] = 1 / 4
    covariance[8:16, 16] = covariance[16, 17] = (2 * agreement - 1) / 4
    rows, columns = np.triu_indices(18)
    covariance[columns, rows] = covariance[rows, columns]
    covariance[range(18), range(18)] += [core_variance] * 8 + [spurious_variance] * 8 + [0] * 2

    centred = table - 0.5
    errors = (
        standardized(table, 0.5),
        standardized(
            # The squares of 0/1 variables about 1/2 are constant, and asserted elsewhere.
            (centred[:, rows] * centred[:, columns])[:, (rows != columns) | (rows < 16)],
            covariance[rows, columns][(rows != columns) | (rows < 16)],
        ),
    )
    return max(np.abs(error).max() for error in errors)


@pytest.mark.slow
def test_moments_are_exact():
    data = make_biased_labels(N, random_state=0)
    assert largest_moment_error(data, 0.7, 0.2, 0.4) < 5
    data = make_biased_labels(
        N, agreement=0.2, core_variance=1.0, spurious_variance=0.05, random_state=1
    )
    assert largest_moment_error(data, 0.2, 1.0, 0.05) < 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"agreement": 0.65},
        # A variance taken for a standard deviation.
        {"core_variance": 0.2**2},
        {"spurious_variance": 0.4**2},
    ],
)
def test_moments_refuse_another_model(wrong):
    data = make_biased_labels(N, random_state=0, **wrong)
    assert largest_moment_error(data, 0.7, 0.2, 0.4) > 5


def test_shapes_and_values():
    data = make_biased_labels(50, n_core=4, n_spurious=3, random_state=0)
    assert data.X.shape == (50, 7)
    assert data.X.dtype == np.float64
    assert data.y_continuous.shape == (50, 2)
    for labels in (data.y, data.sensitive):
        assert labels.shape == (50,)
        assert labels.dtype == np.int64
        assert set(labels) == {0, 1}
    assert make_biased_labels(1).X.shape == (1, 16)
    assert make_biased_labels(5, n_spurious=0).X.shape == (5, 8)


def test_response_is_uniform_and_its_label_lies_above_the_antidiagonal():
    data = make_biased_labels(N, random_state=0)
    for coordinate in data.y_continuous.T:
        assert kstest(coordinate, "uniform").pvalue > 1e-3
    np.testing.assert_array_equal(data.y, data.y_continuous[:, 1] > 1 - data.y_continuous[:, 0])


@pytest.mark.parametrize("agreement", [0.7, 0.5, 0.1])
def test_agreement_does_not_depend_on_the_response(agreement):
    data = make_biased_labels(N, agreement=agreement, random_state=0)
    agrees = data.sensitive == data.y
    for part in (data.y == 0, data.y == 1, data.y_continuous[:, 0] > 0.9):
        sigma = np.sqrt(agreement * (1 - agreement) / part.sum())
        assert abs(agrees[part].mean() - agreement) < 5 * sigma


@pytest.mark.parametrize("agreement", [0, 1])
def test_without_noise_features_are_copies(agreement):
    data = make_biased_labels(
        200,
        agreement=agreement,
        n_core=6,
        n_spurious=5,
        core_variance=0,
        spurious_variance=0,
        random_state=0,
    )
    np.testing.assert_array_equal(data.sensitive, data.y if agreement else 1 - data.y)
    for i in range(6):
        np.testing.assert_array_equal(data.X[:, i], data.y_continuous[:, i % 2])
    np.testing.assert_array_equal(data.X[:, 6:], np.column_stack([data.sensitive] * 5))


def test_noise_is_gaussian():
    data = make_biased_labels(3000, random_state=0)
    core = (data.X[:, :8] - np.tile(data.y_continuous, 4)) / np.sqrt(0.2)
    spurious = (data.X[:, 8:] - data.sensitive[:, None]) / np.sqrt(0.4)
    assert kstest(core.ravel(), "norm").pvalue > 1e-3
    assert kstest(spurious.ravel(), "norm").pvalue > 1e-3


def test_random_state():
    first, same, other = (make_biased_labels(20, random_state=seed) for seed in (3, 3, 4))
    for key in first:
        np.testing.assert_array_equal(first[key], same[key])
    assert not np.array_equal(first.X, other.X)
    state = np.random.RandomState(3)
    np.testing.assert_array_equal(make_biased_labels(20, random_state=state).X, first.X)
    assert not np.array_equal(make_biased_labels(20, random_state=state).X, first.X)


@pytest.mark.parametrize(
    "parameter",
    [
        {"n_samples": 0},
        {"agreement": -0.1},
        {"agreement": 1.1},
        {"agreement": np.nan},
        {"n_core": 0},
        {"n_core": 5},
        {"n_spurious": -1},
        {"core_variance": -1.0},
        {"core_variance": np.inf},
        {"spurious_variance": np.nan},
    ],
)
def test_values_out_of_range(parameter):
    (name,) = parameter
    with pytest.raises(ValueError, match=name):
        make_biased_labels(**parameter)


@pytest.mark.parametrize("parameter", [{"n_samples": 2.0}, {"n_core": "8"}, {"agreement": None}])
def test_types(parameter):
    (name,) = parameter
    with pytest.raises(TypeError, match=name):
        make_biased_labels(**parameter)
