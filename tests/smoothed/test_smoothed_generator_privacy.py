"""What a fit of the smoothed generator lets out of its records: noisy ones, paid for."""

import math
import pickle
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.accounting import epsilon_spent
from sklearn_dpgen.domains import Ball, Box, Domain, OneHot, Product, enclosing_ball
from sklearn_dpgen.mechanisms._sampled import StratifiedGaussianRun
from sklearn_dpgen.ot import LineGrid
from sklearn_dpgen.smoothed import _generator, _releases
from sklearn_dpgen.smoothed._plan import plan_releases
from sklearn_dpgen.smoothed._releases import ClassRecords
from sklearn_dpgen.utils._random import NoiseSource

GENERATOR = "sklearn_dpgen.smoothed._generator"
KINDS = ["none", "public", "private"]
BOX = Box(-3, 3, n_features=3)


def train(generator, table, kind):
    """Fit with the labels that its kind takes."""
    if kind == "none":
        return generator.fit(table.X)
    if kind == "private" and generator.classes is None:
        generator.set_params(classes=sorted(set(table.y)))
    return generator.set_params(labels=kind).fit(table.X, table.y)


def of_records(released, kind):
    """Return the releases but the first of a fit with private labels, which is of their counts."""
    return released[kind == "private" :]


# Releases are all that depends on the records.


def other_records(table, kind):
    """Return records of the same public quantities: with private labels, other labels too."""
    rng = np.random.default_rng(7)
    y = rng.choice(["a", "b"], size=len(table.y), p=[0.8, 0.2]) if kind == "private" else table.y
    return SimpleNamespace(X=3 * table.X[::-1] + 1, y=y)


@pytest.fixture
def told_by_releases_alone(tiny_generator, labelled, weights_of, monkeypatch):
    """Return a check that data sets with the same releases give the same fit."""

    def check(kind, **options):
        def forced(self, value):
            self._is_drawn = False
            return np.random.default_rng(self._n_drawn).normal(size=value.size, scale=4)

        with monkeypatch.context() as patch:
            patch.setattr(StratifiedGaussianRun, "release", forced)
            first, second = (
                train(tiny_generator(**options), table, kind)
                for table in (labelled, other_records(labelled, kind))
            )
        assert getattr(first, "classes_", np.zeros(0)).tolist() in ([], ["a", "b"])
        return (
            np.array_equal(weights_of(first), weights_of(second))
            and first.loss_curve_ == second.loss_curve_
            and first.privacy_ == second.privacy_
            and np.array_equal(
                getattr(first, "label_proportions_", 0), getattr(second, "label_proportions_", 0)
            )
            and np.array_equal(first.sample(5, random_state=0), second.sample(5, random_state=0))
        )

    return check


@pytest.mark.parametrize("options", [{}, {"batch_size": 6, "q": 1}], ids=["default", "batches"])
@pytest.mark.parametrize("kind", KINDS)
def test_records_with_equal_releases_give_equal_models(told_by_releases_alone, kind, options):
    assert told_by_releases_alone(kind, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_records_matter_where_releases_are_not_forced(tiny_generator, labelled, weights_of, kind):
    first, second = (
        train(tiny_generator(epsilon=np.inf), table, kind)
        for table in (labelled, other_records(labelled, kind))
    )
    assert not np.array_equal(weights_of(first), weights_of(second))


@pytest.mark.parametrize("kind", KINDS)
def test_means_that_pass_by_the_release_are_caught(told_by_releases_alone, monkeypatch, kind):
    by_class = ClassRecords.by_class

    def leaking(self, noisy):
        means = [self.records[self.codes == c].mean(axis=0) for c in range(self.n_classes)]
        return [v + mean for v, mean in zip(by_class(self, noisy), means, strict=True)]

    monkeypatch.setattr(ClassRecords, "by_class", leaking)
    assert not told_by_releases_alone(kind)


def test_private_counts_that_pass_by_the_release_are_caught(told_by_releases_alone, monkeypatch):
    proportions = _generator.released_proportions

    def leaking(label_proportions, codes, n_classes, counting, noise):
        return proportions(label_proportions, codes, n_classes, None, noise)

    monkeypatch.setattr(f"{GENERATOR}.released_proportions", leaking)
    assert told_by_releases_alone("public")
    assert not told_by_releases_alone("private")


def test_a_radius_of_the_records_is_caught(told_by_releases_alone, monkeypatch):
    layout = ClassRecords.layout

    def scaled(self, drawn):
        object.__setattr__(self, "largest", abs(self.records).max())
        return layout(self, drawn)

    monkeypatch.setattr(ClassRecords, "layout", scaled)
    by_class = ClassRecords.by_class
    monkeypatch.setattr(
        ClassRecords, "by_class", lambda self, v: [x / self.largest for x in by_class(self, v)]
    )
    assert not told_by_releases_alone("none")


def counted_is_released(generator, table, kind, released, monkeypatch):
    """Whether what is counted on lines is what was released, each value once."""
    counted = []
    counts = LineGrid.counts

    def watch(self, points, directions):
        counted.append(points.numpy().ravel())
        return counts(self, points, directions)

    released.clear()
    with monkeypatch.context() as patch:
        patch.setattr(LineGrid, "counts", watch)
        train(generator, table, kind)
    noisy = [out for _, out in of_records(released, kind)]
    expected = np.sort(np.concatenate(noisy).astype(np.float32))
    return np.array_equal(np.sort(np.concatenate(counted)), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_lines_count_what_was_released(tiny_generator, labelled, released, monkeypatch, kind):
    monkeypatch.setattr(_releases, "_CHUNK_ENTRIES", 100)
    assert counted_is_released(tiny_generator(), labelled, kind, released, monkeypatch)
    watched = StratifiedGaussianRun.release

    def leak(self, value):
        watched(self, value)
        return value

    monkeypatch.setattr(StratifiedGaussianRun, "release", leak)
    assert not counted_is_released(tiny_generator(), labelled, kind, released, monkeypatch)


# Sensitivity.

DOMAINS = [
    Box(-1.0, 1.0),
    Box([4.0, 5.0], [5.0, 9.0]),
    Ball(2.0, center=[3.0, 1.0, 0.0]),
    Ball(2.0, p=1, center=[3.0, 1.0]),
    Ball(2.0, p=np.inf, center=[3.0, 1.0]),
    OneHot(4),
    Product([Box(3, 4), OneHot(3)]),
]


def opposite(domain, x):
    """Return a point of the domain about as far from x as there is."""
    if isinstance(domain, Product):
        parts = zip(domain.domains, domain.slices, strict=True)
        return np.concatenate([opposite(factor, x[part]) for factor, part in parts])
    center = enclosing_ball(domain).center
    return domain.project((center + 1e6 * (center - x))[None])[0]


def largest_change(tiny_generator, released, domain, kind, n_trials=25):
    """Return the largest change of a release by one record, and the sensitivity that is stated."""
    rng = np.random.default_rng(0)
    largest = 0.0
    for trial in range(n_trials):
        X = domain.sample(6, rng)
        X[0] = domain.project(50 * rng.normal(size=(1, domain.n_features)))[0]
        if trial % 2:
            # Beyond the domain.
            X[0] = enclosing_ball(domain).center + 9 * (X[0] - enclosing_ball(domain).center)
        y = np.array([0, 0, 0, 1, 1, 1])
        X_other, y_other = X.copy(), y.copy()
        X_other[0] = X[0] if trial % 5 == 4 else opposite(domain, domain.project(X[:1])[0])
        if kind == "private" and trial % 3:
            y_other[0] = 1
        values = []
        for one, labels in ((X, y), (X_other, y_other)):
            generator = tiny_generator(
                domain=domain, batch_size=6, n_epochs=1.0, max_iter=1, epsilon=np.inf
            )
            released.clear()
            train(generator, SimpleNamespace(X=one, y=labels), kind)
            ((value, _),) = of_records(released, kind)
            values.append(value)
        largest = max(largest, np.linalg.norm(values[0] - values[1]))
    return largest, generator.privacy_.sensitivity


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_one_record_changes_a_release_by_the_sensitivity(tiny_generator, released, kind, domain):
    change, stated = largest_change(tiny_generator, released, domain, kind)
    assert stated == pytest.approx(domain.diameter(2))
    assert 0.97 * stated < change <= stated * (1 + 1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_records_that_are_not_projected_are_caught(tiny_generator, released, monkeypatch, kind):
    monkeypatch.setattr(Domain, "project", lambda self, X: X)
    change, stated = largest_change(tiny_generator, released, Ball(1.0, n_features=2), kind)
    assert change > 3 * stated


def test_private_labels_without_centering_are_caught(tiny_generator, released, monkeypatch):
    def uncentered(domain):
        return Ball(enclosing_ball(domain).radius, n_features=domain.n_features)

    monkeypatch.setattr(_generator, "enclosing_ball", uncentered)
    domain = Box([4.0, 5.0], [5.0, 9.0])
    for kind in ("none", "public"):
        change, stated = largest_change(tiny_generator, released, domain, kind)
        assert change <= stated * (1 + 1e-12)
    change, stated = largest_change(tiny_generator, released, domain, "private")
    assert change > 1.5 * stated


def test_another_label_takes_two_radii_where_they_are_more():
    # By Jung's theorem sqrt(2) radii of the smallest ball are less than the diameter.
    for domain in DOMAINS:
        assert math.sqrt(2) * enclosing_ball(domain).radius < domain.diameter(2)
    plan = partial(plan_releases, [10], 2.0, epsilon=1.0, delta=1e-2, batch_size=1, n_epochs=1.0)
    assert plan(slot_radius=3.0).records.sensitivity == pytest.approx(3 * math.sqrt(2))
    assert plan().records.sensitivity == 2.0


# Noise.


def standard(noise):
    """Whether values have the moments of independent standard normals, to 5 sigma."""
    n = noise.size
    return bool(
        abs(noise.mean()) * math.sqrt(n) < 5
        and abs((noise**2).mean() - 1) * math.sqrt(n / 2) < 5
        and abs((noise**4).mean() - 3) * math.sqrt(n / 96) < 5
        and abs((noise[:-1] * noise[1:]).mean()) * math.sqrt(n) < 5
    )


def noise_of(generator, table, kind, released):
    """Return the noise on the records in units of what the report states."""
    released.clear()
    train(generator, table, kind)
    pairs = zip(*of_records(released, kind), strict=True)
    values, outputs = (np.concatenate(column) for column in pairs)
    return (outputs - values) / generator.privacy_.noise_scale


class Halved(NoiseSource):
    def normal(self, size):
        return super().normal(size) / 2


class Repeated(NoiseSource):
    def normal(self, size):
        return np.full(size, super().normal(1))


@pytest.mark.parametrize("kind", KINDS)
def test_the_noise_is_what_the_report_states(tiny_generator, released, monkeypatch, kind):
    constant = SimpleNamespace(X=np.full((40, 5), 0.5), y=np.array(["a", "b"] * 20))
    options = {"n_epochs": 20.0, "domain": partial(Box, 0, 1)}
    noise = noise_of(tiny_generator(**options), constant, kind, released)
    assert noise.size == 20 * 40 * 5 * (2 if kind == "private" else 1)
    assert standard(noise)
    # Nothing but noise is released of records in the center.
    assert not any(value.any() for value, _ in of_records(released, kind))
    for broken in (Halved, Repeated):
        monkeypatch.setattr("sklearn_dpgen.utils._base.noise_source", lambda *a, b=broken, **k: b())
        assert not standard(noise_of(tiny_generator(**options), constant, kind, released))


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_budget_there_is_no_noise(tiny_generator, labelled, released, kind):
    generator = train(tiny_generator(epsilon=np.inf), labelled, kind)
    assert all(np.array_equal(value, out) for value, out in released)
    assert (generator.noise_multiplier_, generator.privacy_.noise_scale) == (0, 0)
    assert (generator.privacy_.epsilon, generator.privacy_.delta) == (np.inf, 0)
    if kind != "none":
        assert_allclose(generator.label_proportions_, [0.4, 0.6])


def test_label_counts_are_noisy_where_labels_are_private(
    tiny_generator, labelled, released, monkeypatch
):
    assert_allclose(train(tiny_generator(), labelled, "public").label_proportions_, [0.4, 0.6])

    def count_noise():
        noise = []
        for seed in range(60):
            released.clear()
            generator = train(tiny_generator(random_state=seed, epsilon=30.0), labelled, "private")
            counts, out = released[0]
            assert_array_equal(counts, [16, 24])
            shares = np.clip(out, 0.5, None)
            assert_allclose(generator.label_proportions_, shares / shares.sum())
            noise.append((out - counts) / generator.privacy_.parts[1].noise_scale)
        return np.concatenate(noise)

    assert standard(count_noise())
    monkeypatch.setattr("sklearn_dpgen.utils._base.noise_source", lambda *a, **k: Halved())
    assert not standard(count_noise())


def test_noise_is_for_one_layout(tiny_generator, labelled, released):
    """Records without labels, and with one private label for all, share codes but not noise."""
    options = {
        "domain": partial(Box, -4, 4),
        "labels": "private",
        "classes": ["a", "b"],
        "label_proportions": [1.0, 0.0],
        "random_state": 0,
    }

    def noise(y):
        released.clear()
        tiny_generator(**options).fit(labelled.X, y)
        return np.concatenate([np.ravel(out) - np.ravel(value) for value, out in released])

    plain, slots = noise(None), noise(np.full(len(labelled.X), "a"))
    n = min(plain.size, slots.size)
    assert abs(np.corrcoef(plain[:n], slots[:n])[0, 1]) < 5 / math.sqrt(n)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_other_records_other_noise(tiny_generator, labelled, released, kind):
    options = {"domain": partial(Box, -4, 4), "n_epochs": 5.0}
    noise = noise_of(tiny_generator(**options), labelled, kind, released)

    def is_new(table, **change):
        other = noise_of(tiny_generator(**options | change), table, kind, released)
        n = min(other.size, noise.size)
        return abs(np.corrcoef(noise[:n], other[:n])[0, 1]) < 5 / math.sqrt(n)

    assert not is_new(labelled)
    assert not is_new(labelled, verbose=0)
    moved, exchanged = labelled.X.copy(), labelled.y.copy()
    moved[3, 1] += 1e-9
    first, second = np.flatnonzero(labelled.y == "a")[0], np.flatnonzero(labelled.y == "b")[0]
    exchanged[[first, second]] = exchanged[[second, first]]
    for change in (
        {"epsilon": 2.0},
        {"delta": 1e-3},
        {"learning_rate": 0.1},
        # Callables that differ in what they return.
        {"domain": partial(Box, -5, 5)},
        {"domain": lambda n_features: Ball(9.0, n_features=n_features)},
    ):
        assert is_new(labelled, **change)
    assert is_new(SimpleNamespace(X=moved, y=labelled.y))
    if kind != "none":
        assert is_new(SimpleNamespace(X=labelled.X, y=exchanged))


def test_noise_without_a_seed_is_never_repeated(tiny_generator, labelled, released):
    options = {"n_epochs": 10.0, "random_state": None}
    first, second = (noise_of(tiny_generator(**options), labelled, "none", released) for _ in "ab")
    assert abs(np.corrcoef(first, second)[0, 1]) < 7 / math.sqrt(first.size)


# Batches and price.


@pytest.fixture
def drawn(monkeypatch):
    """Return a list that collects, of each call, the mechanism and the batches."""
    seen = []
    draw = StratifiedGaussianRun.draw

    def watch(self, n_releases=None):
        seen.append((self._mechanism, draw(self, n_releases)))
        return seen[-1][1]

    monkeypatch.setattr(StratifiedGaussianRun, "draw", watch)
    return seen


def batches_of(drawn):
    """Return, of the records' mechanism alone, the batches of each stratum."""
    chunks = [batches for _, batches in drawn if batches[0].ndim == 2]
    return [np.concatenate(rows) for rows in zip(*chunks, strict=True)]


@pytest.mark.parametrize(
    ("kind", "declared"), [("none", [5]), ("public", [2, 3]), ("private", [5])], ids=KINDS
)
def test_batches_are_drawn_anew_and_all_are_paid(
    tiny_generator, labelled, drawn, released, monkeypatch, kind, declared
):
    # In chunks, of which the last is shorter.
    monkeypatch.setattr(_releases, "_CHUNK_ENTRIES", 15 * 7 * (2 if kind == "private" else 1))
    generator = train(tiny_generator(batch_size=5, n_epochs=2.0), labelled, kind)
    strata = batches_of(drawn)
    sizes = [16, 24] if kind == "public" else [40]
    for rows, size, batch_size in zip(strata, sizes, declared, strict=True):
        assert rows.shape == (16, batch_size)
        assert all(len(set(row)) == batch_size for row in rows.tolist())
        assert rows.min() >= 0
        assert rows.max() < size
        assert len({tuple(sorted(row)) for row in rows.tolist()}) > 1
    assert len({tuple(row) for row in np.hstack(strata).tolist()}) == 16
    assert generator.privacy_.n_releases == 16
    assert sum(batches[0].ndim == 2 for _, batches in drawn) == 3
    # A chunk more than was planned is refused.
    monkeypatch.setattr(
        StratifiedGaussianRun,
        "__init__",
        lambda self, mechanism, noise: vars(self).update(
            _mechanism=replace(mechanism, n_releases=max(1, mechanism.n_releases - 1)),
            _noise=noise,
            _n_drawn=0,
            _is_drawn=False,
        ),
    )
    with pytest.raises(RuntimeError, match="paid for 15 release"):
        train(tiny_generator(batch_size=5, n_epochs=2.0), labelled, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_release_holds_the_rows_that_were_drawn(
    tiny_generator, labelled, drawn, released, monkeypatch, kind
):
    monkeypatch.setattr(_releases, "_CHUNK_ENTRIES", 100)
    domain = Box([-9.0, -9.0, 0.0], [9.0, 11.0, 9.0])
    train(tiny_generator(batch_size=5, domain=domain), labelled, kind)
    centered = domain.project(labelled.X) - [0.0, 1.0, 4.5]
    values = [value for value, _ in released]
    if kind == "private":
        drawn.pop(0)
        values.pop(0)
    for (_, batches), value in zip(drawn, values, strict=True):
        if kind == "none":
            expected = centered[batches[0].ravel()]
        elif kind == "public":
            pairs = zip("ab", batches, strict=True)
            expected = [centered[labelled.y == label][rows.ravel()] for label, rows in pairs]
            expected = np.concatenate(expected)
        else:
            rows = batches[0].ravel()
            expected = np.zeros((len(rows), 2, 3))
            expected[labelled.y[rows] == "a", 0] = centered[rows][labelled.y[rows] == "a"]
            expected[labelled.y[rows] == "b", 1] = centered[rows][labelled.y[rows] == "b"]
        assert_array_equal(value, expected.ravel())


@pytest.mark.parametrize(
    ("sizes", "batches"), [([20, 20], [1, 1]), ([16, 24], [1, 1]), ([90, 10], [9, 1])], ids=str
)
def test_small_classes_are_not_drawn_more_often(tiny_generator, drawn, sizes, batches):
    table = SimpleNamespace(X=np.zeros((sum(sizes), 3)), y=np.repeat(["a", "b"], sizes))
    generator = train(tiny_generator(), table, "public")
    assert [rows.shape[1] for rows in batches_of(drawn)] == batches
    # One of each class instead would draw the small one nine times as often, and ask for more.
    multiplier = generator.noise_multiplier_
    train(generator.set_params(batch_size=2), table, "public")
    assert (generator.noise_multiplier_ > 1.2 * multiplier) == (sizes == [90, 10])


def price(mechanism, *, noise=1.0):
    """Return the ε of the worst stratum at the δ of a mechanism, noise scaled by a factor."""
    return max(
        epsilon_spent(
            noise * mechanism.noise_scale / stratum.sensitivity,
            mechanism.delta,
            sampling_rate=stratum.rate,
            n_steps=mechanism.n_releases,
        )
        for stratum in mechanism.strata
    )


@pytest.mark.parametrize("options", [{}, {"batch_size": 7, "n_epochs": 0.9, "delta": 1e-4}])
@pytest.mark.parametrize("kind", KINDS)
def test_all_releases_are_within_the_budget(tiny_generator, labelled, drawn, kind, options):
    generator = train(tiny_generator(epsilon=2.5, **options), labelled, kind)
    mechanisms = []
    for mechanism, _ in drawn:
        if mechanism not in mechanisms:
            mechanisms.append(mechanism)
    assert len(mechanisms) == (2 if kind == "private" else 1)
    delta = options.get("delta", 0.1 / 40)
    report = generator.privacy_
    assert (report.epsilon, report.delta) == (2.5, delta)
    assert sum(mechanism.delta for mechanism in mechanisms) <= delta * (1 + 1e-12)
    spent = sum(price(mechanism) for mechanism in mechanisms)
    assert 0.98 * 2.5 < spent <= 2.5 * (1 + 1e-9)
    for broken in mechanisms:
        parts = [price(m, noise=0.8 if m is broken else 1.0) for m in mechanisms]
        assert sum(parts) > 2.5 * (1 + 1e-9)
    # What the report says is what was done.
    records = mechanisms[-1]
    assert report.noise_scale == records.noise_scale
    assert report.n_releases == records.n_releases
    assert report.sampling_rate == records.worst.rate
    assert generator.noise_multiplier_ == records.noise_multiplier
    if kind == "private":
        assert [part.noise_scale for part in report.parts] == [
            records.noise_scale,
            mechanisms[0].noise_scale,
        ]
        assert sum(part.epsilon for part in report.parts) == pytest.approx(2.5)
        assert report.parts[1].sensitivity == math.sqrt(2)
        assert report.parts[1].n_releases == 1
    else:
        assert report.parts == ()


def test_the_plan_is_told_by_public_quantities(tiny_generator, labelled):
    for kind in KINDS:
        reports = [
            train(tiny_generator(classes=["a", "b"]), table, kind).privacy_
            for table in (labelled, other_records(labelled, kind))
        ]
        assert reports[0] == reports[1]
    sizes = SimpleNamespace(X=labelled.X, y=np.array(["a"] * 5 + ["b"] * 35))
    assert train(tiny_generator(), sizes, "public").privacy_ != reports[0]


def test_known_proportions_cost_nothing(tiny_generator, labelled, drawn):
    options = {"labels": "private", "classes": ["a", "b"]}
    generator = tiny_generator(label_proportions=[0.3, 0.7], **options)
    generator.fit(labelled.X, labelled.y)
    assert generator.privacy_.parts == ()
    assert all(batches[0].ndim == 2 for _, batches in drawn)
    assert_allclose(generator.label_proportions_, [0.3, 0.7])
    counted = tiny_generator(**options).fit(labelled.X, labelled.y)
    assert generator.noise_multiplier_ < counted.noise_multiplier_


def test_the_report_in_words(tiny_generator, labelled):
    def words(kind, **options):
        return train(tiny_generator(**options), labelled, kind).privacy_

    assert "set of labels" in words("public").public
    for kind in ("public", "private"):
        assert "classes" in words(kind, classes=["a", "b"]).public
        assert "set of labels" not in words(kind, classes=["a", "b"]).public
    assert "class sizes" in words("public").public
    assert "class sizes" not in words("private").public
    assert "label_proportions" in words("private", label_proportions=[0.5, 0.5]).public
    assert "same class" in words("public").neighbouring
    assert "and its label" in words("private").neighbouring
    assert "label" not in words("none").neighbouring
    assert "seed" in words("none").noise_source
    assert words("none", random_state=None).noise_source == "operating system entropy"


# What is left behind, and what errors show.


def bytes_of(values):
    values = np.ravel(values).astype(np.float64)
    return {v.tobytes() for v in values} | {v.tobytes() for v in values.astype(np.float32)}


# Each is the network, the report, or public.
FITTED = {
    "_n_normals",
    "_output_domain",
    "classes_",
    "domain_",
    "generator_",
    "label_proportions_",
    "loss_curve_",
    "n_features_in_",
    "n_iter_",
    "noise_multiplier_",
    "privacy_",
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_record_is_stored(tiny_generator, labelled, kind):
    generator = train(tiny_generator(), labelled, kind)
    parts = bytes_of(labelled.X) | bytes_of(labelled.X - BOX.project(labelled.X) + 1e-3)
    parts.add((labelled.y == "b").astype(np.int64).tobytes())

    def holds():
        dump = pickle.dumps(generator)
        return any(part in dump for part in parts)

    assert set(vars(generator)) - set(generator.get_params()) <= FITTED
    assert not holds()
    for kept in (labelled.X, labelled.X.astype(np.float32), (labelled.y == "b").astype(np.int64)):
        generator.kept_ = kept
        assert holds()


@pytest.mark.parametrize("secret", ["secret", 271828.25, np.nan, None])
@pytest.mark.parametrize("declared", [None, ["a", "b"], [0, 1]])
@pytest.mark.parametrize("kind", ["public", "private"])
def test_errors_show_no_label(tiny_generator, labelled, kind, declared, secret):
    y = (np.arange(40) % 2 if declared == [0, 1] else labelled.y).astype(object)
    if declared is None and secret == "secret":
        y[8] = 1.0
    y[7] = secret
    with pytest.raises(ValueError, match="missing|one type") as raised:
        tiny_generator(labels=kind, classes=declared).fit(labelled.X, y)
    for error in (raised.value, raised.value.__cause__):
        assert "secret" not in str(error)
        assert "271828" not in str(error)


def test_public_labels_leave_no_class_empty(tiny_generator, labelled):
    generator = tiny_generator(classes=["a", "b", "c"])
    with pytest.raises(ValueError, match="every class of classes needs a record"):
        train(generator, labelled, "public")
    # Private ones do not tell.
    assert len(train(generator, labelled, "private").label_proportions_) == 3
    assert generator.label_proportions_.min() > 0
