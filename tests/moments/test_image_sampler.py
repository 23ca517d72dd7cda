"""MomentImageSampler: what it releases, how its images follow from that, and what it refuses."""

import math
import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch.nn.functional import affine_grid

from sklearn_dpgen.accounting import Bound, Event
from sklearn_dpgen.mechanisms import ClassSums
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun
from sklearn_dpgen.moments import MomentImageSampler, _image_laws
from sklearn_dpgen.moments._image_laws import ImageModel, _pixel_places
from sklearn_dpgen.preprocessing import DCTTransformer

DIGITS, LABELS = load_digits(return_X_y=True)
PRIVATE = {"labels": "private", "classes": list(range(10))}
pytestmark = pytest.mark.filterwarnings("ignore:The noise on the mean:UserWarning")


def make(**options):
    given = {"shape": (8, 8), "pixel_range": (0, 16), "n_frequencies": 6, "max_iter": 8}
    given |= {"labels": "public", "random_state": 0, "device": "cpu", "delta": 1e-4}
    return MomentImageSampler(**(given | options))


def low_cosines(n):
    mask = np.zeros((8, 8), dtype=bool)
    mask[:n, :n] = True
    return DCTTransformer((8, 8), mask=mask).fit(np.zeros((1, 64)))


def test_moments_without_noise_are_those_of_the_images():
    sampler = make(epsilon=np.inf).fit(DIGITS, LABELS)
    C = low_cosines(6).transform(DIGITS / 16)
    for code in range(10):
        own = C[code == LABELS]
        assert_allclose(sampler.means_[code], own.mean(axis=0), atol=1e-3)
        assert_allclose(sampler.covariances_[code], np.cov(own.T, bias=True), atol=2e-3)


def mismatch(sampler, X):
    """Return how far the covariance of the cosines of images is from the released one."""
    C = low_cosines(6).transform(X / 16)
    wanted = sampler.covariances_[0]
    return np.linalg.norm(np.cov(C.T) - wanted) / np.linalg.norm(wanted)


def test_images_have_the_released_moments():
    own = DIGITS[LABELS == 3]
    sampler = make(epsilon=np.inf, deformation=0.0, max_iter=30).fit(own)
    X = sampler.sample(20_000, random_state=0)
    assert mismatch(sampler, X) < 0.06
    C = low_cosines(6).transform(X / 16)
    assert_allclose(C.mean(axis=0), sampler.means_[0], atol=0.05)
    # Twin: the law before it is fitted, cut to the range.
    sampler.latent_means_ = sampler.means_
    values, vectors = np.linalg.eigh(sampler.covariances_[0])
    sampler.latent_factors_ = ((vectors * np.sqrt(values)) @ vectors.T)[None]
    assert mismatch(sampler, sampler.sample(20_000, random_state=0)) > 0.3


def test_the_fit_comes_nearer_step_by_step():
    sampler = make(epsilon=np.inf, deformation=0.0, max_iter=20).fit(DIGITS[LABELS == 3])
    assert len(sampler.loss_curve_) == sampler.n_iter_ == 20
    assert sampler.loss_curve_[-1] < 0.3 * sampler.loss_curve_[0]


@pytest.mark.parametrize("sides", [(28, 28), (5, 9), (1, 4), (1, 1)])
def test_centres_of_pixels_go_where_affine_grid_takes_them(sides):
    generator = torch.Generator().manual_seed(0)
    maps = torch.eye(2, 3) + 0.3 * torch.randn(50, 2, 3, generator=generator)
    expected = affine_grid(maps, (50, 1, *sides), align_corners=False)
    found = _pixel_places(maps, sides)
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    # The negative twin: pixels in the order of columns, or corners for centres, are far away.
    if min(sides) > 1:
        swapped = _pixel_places(maps, sides[::-1]).reshape(expected.shape)
        corners = affine_grid(maps, (50, 1, *sides), align_corners=True)
        assert sides[0] == sides[1] or (swapped - expected).abs().max() > 0.1
        assert (corners - expected).abs().max() > 0.01


@pytest.mark.parametrize("shape", [(6, 9), (6, 9, 3)])
def test_deformed_images_are_those_of_affine_grid(monkeypatch, shape):
    basis = torch.eye(math.prod(shape))
    model = ImageModel(basis, shape, contrast=1.0, deformation=0.1)

    def images():
        generator = torch.Generator().manual_seed(0)
        return model.images(torch.full((len(basis),), 0.5), 0.2 * basis, 40, generator)

    found = images()
    monkeypatch.setattr(
        _image_laws,
        "_pixel_places",
        lambda maps, sides: affine_grid(maps, (40, 1, *sides), align_corners=False),
    )
    torch.testing.assert_close(found, images(), rtol=0, atol=1e-5)


def test_deformations_move_images():
    own = DIGITS[LABELS == 1]
    still, moved = (
        make(epsilon=np.inf, deformation=deformation).fit(own) for deformation in (0.0, 0.1)
    )
    for sampler in (still, moved):
        # One image, without the spread of the law.
        sampler.latent_factors_ = np.zeros_like(sampler.latent_factors_)
    assert_allclose(np.ptp(still.sample(50), axis=0), 0, atol=1e-4)
    assert np.ptp(moved.sample(50), axis=0).max() > 4


@pytest.mark.slow
def test_classifiers_learn_from_the_images():
    train = np.arange(len(DIGITS)) % 2 == 0
    sampler = make(epsilon=20.0, delta=1e-4, **PRIVATE).fit(DIGITS[train], LABELS[train])
    y = np.repeat(np.arange(10), 100)
    X = sampler.sample(1000, y=y, random_state=0)
    score = LogisticRegression(max_iter=200).fit(X, y).score(DIGITS[~train], LABELS[~train])
    assert score > 0.7
    # Twin: labels that say nothing.
    wrong = LogisticRegression(max_iter=200).fit(X, np.roll(y, 100))
    assert wrong.score(DIGITS[~train], LABELS[~train]) < 0.2


@pytest.mark.slow
def test_samples():
    sampler = make(epsilon=5.0, **PRIVATE).fit(DIGITS, LABELS)
    X = sampler.sample(300, y=np.arange(300) % 10, random_state=0)
    assert (X.shape, X.dtype) == ((300, 64), np.float32)
    assert X.min() >= 0
    assert X.max() <= 16
    assert_array_equal(X, sampler.sample(300, y=np.arange(300) % 10, random_state=0))
    assert not np.array_equal(X, sampler.sample(300, y=np.arange(300) % 10, random_state=1))
    assert sampler.sample().shape == (1, 64)
    assert set(sampler.sample_labels(500, random_state=0)) == set(range(10))
    with pytest.raises(ValueError, match="not among the classes"):
        sampler.sample(2, y=11)


def test_colours():
    rng = np.random.default_rng(0)
    # Red at the left, or blue at the right.
    y = rng.integers(0, 2, 400)
    X = 0.1 * rng.uniform(size=(400, 4, 6, 3))
    X[y == 0, :, :3, 0] += 0.8
    X[y == 1, :, 3:, 2] += 0.8
    sampler = MomentImageSampler(
        50.0,
        1e-4,
        shape=(4, 6, 3),
        pixel_range=(0, 1),
        labels="public",
        n_frequencies=3,
        max_iter=5,
        random_state=0,
        device="cpu",
    ).fit(X.reshape(400, -1), y)
    for code, side, channel in ((0, slice(0, 2), 0), (1, slice(4, 6), 2)):
        mean = sampler.sample(200, y=code, random_state=0).reshape(-1, 4, 6, 3).mean(axis=0)
        assert mean[:, side, channel].min() > 0.5
        mean[:, side, channel] = 0
        assert mean[:, side].max() < 0.3


@pytest.mark.slow
def test_the_score_prefers_the_law_of_the_images():
    own = DIGITS[LABELS == 0]
    sampler = make(epsilon=np.inf).fit(own)
    assert sampler.score(own) == sampler.score(own) < 0
    assert sampler.score(own) > sampler.score(DIGITS[LABELS == 1])
    two = LABELS < 2
    labelled = make(epsilon=np.inf).fit(DIGITS[two], LABELS[two])
    assert labelled.score(DIGITS[two], LABELS[two]) > labelled.score(DIGITS[two], 1 - LABELS[two])


def test_a_search_over_parameters():
    search = GridSearchCV(make(epsilon=np.inf, max_iter=3), {"n_frequencies": [1, 6]}, cv=2)
    search.fit(DIGITS[LABELS == 0])
    assert search.best_params_ == {"n_frequencies": 6}


# The releases.


@pytest.mark.slow
@pytest.mark.parametrize("labels", ["public", "private"])
def test_no_image_moves_the_first_release_by_more_than_is_priced(labels, monkeypatch):
    seen = []

    def watch(self, value, noise):
        seen.append(value.copy())
        return np.ones_like(value)

    monkeypatch.setattr(GaussianSequenceRun, "release", watch)
    rng = np.random.default_rng(0)
    y = np.array([0, 0, 0, 1, 1, 1])

    def largest_change():
        largest = 0.0
        for trial in range(20):
            X = rng.choice([0.0, 16.0, 99.0], size=(6, 64))
            other, codes = X.copy(), y.copy()
            X[0], other[0] = (0.0, 16.0) if trial % 2 else (99.0, -99.0)
            if labels == "private" and trial % 3 == 0:
                codes[0] = 1
            seen.clear()
            for images, classes in ((X, y), (other, codes)):
                make(labels=labels, classes=[0, 1], n_frequencies=2, max_iter=1).fit(
                    images, classes
                )
            first, second, changed, second_changed = seen
            assert np.linalg.norm(second - second_changed) <= 1
            largest = max(largest, np.linalg.norm(first - changed))
        return largest

    assert 1 - 1e-3 < largest_change() <= 1
    # Twin: sums that are larger than was priced.
    vector = ClassSums.vector
    monkeypatch.setattr(ClassSums, "vector", lambda self, X, codes: 1.5 * vector(self, X, codes))
    with pytest.raises(AssertionError):
        assert largest_change() <= 1


def test_the_state_follows_from_the_releases(monkeypatch):
    fixed = np.random.default_rng(0).normal(size=2000)

    def states(release):
        monkeypatch.setattr(GaussianSequenceRun, "release", release)
        found = []
        for rows in (slice(0, 300), slice(300, 600)):
            sampler = make(**PRIVATE, n_frequencies=3, max_iter=2).fit(DIGITS[rows], LABELS[rows])
            # All that is left; tensors have bytes of their own each time.
            model = vars(sampler._model) | {"basis": sampler._model.basis.numpy()}
            found.append(pickle.dumps(vars(sampler) | {"_model": model}))
        return found[0] == found[1]

    assert states(lambda self, value, noise: fixed[: len(value)].copy())
    assert not states(lambda self, value, noise: value)


@pytest.mark.slow
def test_the_report():
    sampler = make(epsilon=0.7, **PRIVATE).fit(DIGITS, LABELS)
    report = sampler.privacy_
    assert (report.epsilon, report.delta, report.n_releases) == (0.7, 1e-4, 2)
    assert set(report.public) >= {"shape", "pixel_range", "classes", "n_samples"}
    assert Event("class_sizes") in report.events
    assert Bound("ball_radius", 0.5 * math.sqrt(64)) in report.bounds
    assert sampler.noise_multiplier_ == report.noise_multiplier > 0


def test_little_is_said_of_few_images():
    with pytest.warns(UserWarning, match="noise on the mean of a class"):
        make(epsilon=0.1, max_iter=1).fit(DIGITS[:20])


# Parameters.


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"shape": (8,)}, "shape must be"),
        ({"shape": (8, 0)}, "shape must be"),
        ({"shape": (8, 8.0)}, "shape must be"),
        ({"shape": (8, 9)}, "72 pixels, X has 64 features"),
        ({"pixel_range": (1, 1)}, "pixel_range must be"),
        ({"pixel_range": (0, np.inf)}, "pixel_range must be"),
        ({"pixel_range": (0, 1, 2)}, "pixel_range must be"),
        ({"pixel_range": ("a", 1)}, "pixel_range must be"),
        ({"contrast": 0.5}, "contrast"),
        ({"deformation": 0.6}, "deformation"),
        ({"n_frequencies": 0}, "n_frequencies"),
        ({"labels": "private"}, "Private labels need classes"),
    ],
    ids=lambda value: None,
)
def test_refusals(options, match):
    with pytest.raises(ValueError, match=match):
        make(**options).fit(DIGITS[:50], LABELS[:50])


def test_labels_that_were_forgotten():
    with pytest.raises(ValueError, match=r"fit\(X, y\), or leave them out"):
        make(**PRIVATE).fit(DIGITS[:50])


def test_images_that_are_not_flattened():
    with pytest.raises(ValueError, match="flattened image a row"):
        make().fit(DIGITS.reshape(-1, 8, 8))


def test_more_frequencies_than_pixels_are_all_of_them():
    sampler = make(epsilon=np.inf, n_frequencies=100, max_iter=2).fit(DIGITS)
    assert sampler.means_.shape == (1, 64)


def test_check_tells_the_share_of_images_out_of_the_range():
    X = DIGITS[:100].copy()
    X[:7, 0] = 17
    X[7, 3] = -1
    assert make().check(X) == 0.08
    with pytest.raises(ValueError, match="72 pixels"):
        make(shape=(8, 9)).check(X)


def test_a_clone_fits_alike():
    sampler = make(epsilon=3.0, max_iter=2)
    first, second = (clone(sampler).fit(DIGITS).latent_factors_ for _ in range(2))
    assert_array_equal(first, second)


class AnyImages(MomentImageSampler):
    """Images of one row, as wide as the data; the other parameters are fixed."""

    pixel_range = (-1000.0, 1000.0)
    labels, classes, label_proportions = "public", None, None
    n_frequencies, contrast, deformation, second_order_weight = 3, 2.0, 0.05, "auto"
    public = None
    max_iter, device, verbose = 2, "cpu", 0
    _width = 1

    def __init__(self, epsilon=np.inf, delta="auto", *, random_state=0):
        self.epsilon, self.delta, self.random_state = epsilon, delta, random_state

    @property
    def shape(self):
        return (1, self._width)

    def fit(self, X, y=None):
        shape = np.shape(X)
        self._width = shape[1] if len(shape) == 2 and shape[1] > 0 else 1
        return super().fit(X, y)


@parametrize_with_checks([AnyImages()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)
