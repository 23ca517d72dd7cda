"""What EntropicDeconvGAN may read: privatized records, and nothing else of the raw ones."""

import types

import numpy as np
import pytest
import torch
from sklearn.base import clone

from sklearn_dpgen.deconvolution import EntropicDeconvGAN
from sklearn_dpgen.domains import Box
from sklearn_dpgen.mechanisms import GaussianMechanism, LaplaceMechanism
from sklearn_dpgen.utils._random import NoiseSource, noise_source

BOX = Box(-1, 1, n_features=2)
X = BOX.sample(60, np.random.default_rng(0))
# As read from a file: they do not name their mechanism.
Y = np.asarray(LaplaceMechanism(5.0, domain=BOX, random_state=0).fit_transform(X))


class FixedRelease(LaplaceMechanism):
    """Releases the same records whatever the raw ones are."""

    def _randomize(self, X, noise):
        return Y.copy()


class NeverReleases(LaplaceMechanism):
    """Stands for the server, which holds no raw record to privatize."""

    def transform(self, X):
        raise AssertionError("a raw record was asked for")

    def _randomize(self, X, noise):
        raise AssertionError("a raw record was asked for")


class TrainsOnRaw(EntropicDeconvGAN):
    """A broken variant: what is privatized is not what it trains on."""

    def _fit_mechanism(self, X, noise_seed):
        mechanism = super()._fit_mechanism(X, noise_seed)
        mechanism.transform = lambda X: np.asarray(X)
        return mechanism


def outcome(gan):
    """Return everything that a fit leaves to see, as one flat array."""
    weights = torch.cat([p.detach().ravel() for p in gan.generator_.parameters()]).numpy()
    samples = gan.sample(20, random_state=0).ravel()
    return np.concatenate([gan.loss_curve_, weights, samples])


def reads_raw_records(gan):
    """Return whether raw records change a fit of which the privatized ones are the same."""
    others = X.copy()
    others[0] = -X[0]
    others[-1] = [1.0, -1.0]
    first, second = (outcome(clone(gan).fit(records)) for records in (X, others))
    return not np.array_equal(first, second)


@pytest.mark.parametrize("loss", ["entropic", "likelihood"])
@pytest.mark.parametrize("n_init", [1, 2])
def test_training_reads_privatized_records_only(tiny, loss, n_init):
    mechanism = FixedRelease(5.0, domain=BOX)
    gan = tiny(mechanism, privatize=True, loss=loss, n_init=n_init)
    assert not reads_raw_records(gan)


class SelectsOnRaw(EntropicDeconvGAN):
    def _train_by_held_out(self, Y, seeds, stream):
        return super()._train_by_held_out(torch.tensor(X, dtype=torch.float32), seeds, stream)


def scores_released_ones_only(gan, monkeypatch):
    """Return whether all starts, and all checks on the way, are scored on privatized records."""
    released = {tuple(row) for row in Y.astype(np.float32).tolist()}
    scored = []

    def likelihood(mechanism, points, Y):
        scored.append({tuple(row) for row in Y.tolist()} <= released)
        return torch.zeros(len(Y))

    monkeypatch.setattr("sklearn_dpgen.deconvolution._model.mixture_log_likelihood", likelihood)
    gan.fit(X)
    assert len(scored) >= gan.n_init
    return all(scored)


@pytest.mark.parametrize(
    "options",
    [{"n_init": 3, "early_stopping": False}, {"training__max_iter": 60, "early_stopping": True}],
)
def test_held_out_records_are_privatized_ones(tiny, monkeypatch, options):
    gan = tiny(FixedRelease(5.0, domain=BOX), privatize=True, **options)
    assert scores_released_ones_only(gan, monkeypatch)
    broken = SelectsOnRaw(**gan.get_params(deep=False))
    assert not scores_released_ones_only(broken, monkeypatch)


def test_a_variant_that_trains_on_raw_records_is_caught(tiny):
    gan = tiny(FixedRelease(5.0, domain=BOX), privatize=True)
    assert reads_raw_records(TrainsOnRaw(**gan.get_params(deep=False)))


def test_privatizing_inside_is_privatizing_before(tiny):
    mechanism = LaplaceMechanism(5.0, domain=BOX, random_state=3)
    inside = tiny(mechanism, privatize=True).fit(X)
    before = tiny(mechanism).fit(clone(mechanism).fit_transform(X))
    np.testing.assert_array_equal(outcome(inside), outcome(before))
    assert inside.score(X) == before.score(clone(mechanism).fit_transform(X))


def test_without_privatize_no_raw_record_is_needed(tiny):
    gan = tiny(NeverReleases(5.0, domain=BOX)).fit(Y)
    gan.sample(3)
    gan.score(Y)
    with pytest.raises(AssertionError, match="a raw record was asked for"):
        tiny(NeverReleases(5.0, domain=BOX), privatize=True).fit(X)


def test_privatized_records_are_taken_as_they_are(tiny):
    # Projecting them on the domain would be a different likelihood.
    assert not BOX.contains(Y).all()
    gan = tiny().fit(Y)
    moved = gan.score_samples(Y) - gan.score_samples(BOX.project(Y))
    assert (moved[~BOX.contains(Y)] != 0).all()


def test_raw_records_are_projected_before_noise(tiny):
    far = X.copy()
    far[3] = [50.0, -70.0]
    mechanism = LaplaceMechanism(5.0, domain=BOX, random_state=0)
    gans = [tiny(mechanism, privatize=True).fit(records) for records in (far, BOX.project(far))]
    np.testing.assert_array_equal(outcome(gans[0]), outcome(gans[1]))


@pytest.mark.parametrize("method", ["fit", "score"])
def test_noise_is_fresh_unless_seeded(tiny, method):
    def results(**seeds):
        mechanism = LaplaceMechanism(5.0, domain=BOX)
        gan = tiny(mechanism, privatize=True).set_params(**seeds).fit(X)
        if method == "score":
            return [gan.score(X) for _ in range(2)]
        return [outcome(clone(gan).fit(X)).tolist() for _ in range(2)]

    first, second = results(random_state=None)
    assert first != second
    first, second = results(random_state=0)
    assert first == second


def test_seed_of_the_estimator_does_not_replace_that_of_the_mechanism(tiny):
    mechanism = LaplaceMechanism(5.0, domain=BOX, random_state=9)
    releases = [
        tiny(mechanism, privatize=True, random_state=seed).fit(X).mechanism_.transform(X)
        for seed in (0, 1)
    ]
    np.testing.assert_array_equal(releases[0], releases[1])


@pytest.mark.parametrize(
    "records",
    [
        [12.3456, 0.0],
        [[12.3456, np.nan]],
        [[12.3456, 0.0, 0.0]],
        [[[12.3456, 0.0]]],
        [["x12.3456", "0"]],
        12.3456,
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["fit", "score"])
def test_errors_show_no_raw_value(tiny, records, method):
    gan = tiny(LaplaceMechanism(5.0, domain=BOX), privatize=True).fit(X)
    with pytest.raises(ValueError, match=".") as caught:
        getattr(gan, method)(records)
    error = caught.value
    while error is not None:
        assert "12.3456" not in str(error)
        error = error.__context__


# The report.


def test_report_without_privatize(tiny):
    report = tiny(GaussianMechanism(3.0, 1e-4, domain=BOX)).fit(Y).privacy_
    assert (report.epsilon, report.delta) == (3.0, 1e-4)
    assert report.noise_source == "drawn where the records were privatized"
    assert "each_fit_and_score" not in report.caveats


def test_report_with_privatize(tiny):
    gan = tiny(LaplaceMechanism(3.0, domain=BOX), privatize=True, random_state=None).fit(X)
    report = gan.privacy_
    assert (report.epsilon, report.delta) == (3.0, 0.0)
    assert report.sensitivity == 4.0
    assert report.noise_scale == pytest.approx(4 / 3)
    assert "operating system" in report.noise_source
    assert "each_fit_and_score" in report.caveats
    seeded = gan.set_params(random_state=0).fit(X).privacy_
    assert seeded.noise_source.startswith("seeded")


def test_report_is_planned_before_a_record_is_randomized(tiny):
    gan = tiny(NeverReleases(3.0, domain=BOX), privatize=True)
    with pytest.raises(AssertionError, match="raw record"):
        gan.fit(X)
    assert gan.privacy_.epsilon == 3.0


# What a fitted estimator holds.

_RANDOM = (np.random.Generator, np.random.RandomState, torch.Generator, NoiseSource)


def random_streams(root):
    """Return the random streams that are reachable from an object."""
    found, seen, stack = [], set(), [root]
    while stack:
        value = stack.pop()
        if id(value) in seen or isinstance(value, type | types.ModuleType | str | bytes):
            continue
        seen.add(id(value))
        if isinstance(value, _RANDOM):
            found.append(value)
        if isinstance(value, dict):
            stack += [*value, *value.values()]
        elif isinstance(value, list | tuple | set | frozenset):
            stack += value
        elif isinstance(value, types.FunctionType):
            stack += [cell.cell_contents for cell in value.__closure__ or ()]
        elif isinstance(value, types.MethodType):
            stack += [value.__self__, value.__func__]
        stack += list(getattr(value, "__dict__", {}).values())
    return found


@pytest.mark.parametrize("privatize", [False, True])
@pytest.mark.parametrize("loss", ["entropic", "noisy_wasserstein"])
def test_no_random_stream_is_stored(tiny, privatize, loss):
    gan = tiny(privatize=privatize, loss=loss).fit(X)
    gan.sample(3)
    gan.score(X)
    assert random_streams(gan) == []


@pytest.mark.parametrize(
    "place",
    [
        lambda gan, stream: setattr(gan.mechanism_, "noise_", stream),
        lambda gan, stream: gan.loss_curve_.append((0.0, {"stream": stream})),
        lambda gan, stream: setattr(gan.generator_[0], "draw", lambda: stream),
    ],
)
@pytest.mark.parametrize("stream", [noise_source(0), torch.Generator(), np.random.default_rng(0)])
def test_a_stored_random_stream_is_caught(tiny, place, stream):
    gan = tiny().fit(X)
    place(gan, stream)
    assert stream in random_streams(gan)


def test_no_record_is_stored(tiny):
    gan = tiny(LaplaceMechanism(5.0, domain=BOX, random_state=0), privatize=True).fit(X)
    rows = gan.mechanism_.transform(X)
    held = [
        value
        for owner in (gan, gan.mechanism_)
        for value in vars(owner).values()
        if isinstance(value, np.ndarray | torch.Tensor) and len(value) == len(X)
    ]
    assert not held
    assert rows.shape == X.shape
