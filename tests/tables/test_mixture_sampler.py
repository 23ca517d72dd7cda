"""PrivateMixtureSampler: tables and labels, what a fit lets out, what it learns, bad input."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema
from sklearn_dpgen.tables import PrivateMixtureSampler, _mixture_evolution, _mixture_sampler
from sklearn_dpgen.utils._random import NoiseSource, noise_source

JOBS = ["baker", "nurse", "pilot"]
SCHEMA = Schema(
    {
        "age": Numeric(0, 100, integer=True),
        "pay": Numeric(0, 10, nullable=True),
        "job": Categorical(JOBS),
        "level": Ordinal([1, 2, 3]),
        "day": Datetime("2020-01-01", "2020-12-31", resolution="D"),
    }
)
PAIR = Schema({name: Categorical(list("wxyz")) for name in "ab"})
kinds = pytest.mark.parametrize("kind", ["none", "private"])


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Few public draws, and reports that are quickly made."""
    monkeypatch.setattr(_mixture_evolution, "_POOL", 300)
    monkeypatch.setattr("sklearn_dpgen.accounting._report.metadata.version", lambda name: "0")


def make(epsilon=1.0, **options):
    small = {"bins": 4, "n_candidates": 12, "n_cells": 2, "random_state": 0, "device": "cpu"}
    small |= {"schema": SCHEMA, "classes": ["a", "b"]}
    return PrivateMixtureSampler(epsilon, **(small | options))


def table(n=60, seed=0):
    """Return records with nulls, and labels of which a third is "a"."""
    rng = np.random.default_rng(seed)
    columns = {
        "age": rng.integers(10, 60, size=n),
        "pay": np.where(rng.uniform(size=n) < 0.3, np.nan, rng.uniform(0, 7, size=n)),
        "job": rng.choice(JOBS[:2], size=n).astype(object),
        "level": rng.choice([1, 2], size=n).astype(np.int8),
        "day": pd.Timestamp("2020-02-01") + pd.to_timedelta(rng.integers(200, size=n), "D"),
    }
    return pd.DataFrame(columns), rng.permutation(np.repeat(["a", "b"], [n // 3, n - n // 3]))


X, Y = table()
FAR = [99, 9.9, "pilot", 3, pd.Timestamp("2020-12-31")]


def train(sampler, kind, frame=X, y=Y):
    return sampler.fit(frame) if kind == "none" else sampler.fit(frame, y)


def parts(sampler):
    """Return all that came of the records."""
    laws = [part for law in sampler.laws_ for part in (law.shares, law.probabilities)]
    return [*laws, getattr(sampler, "label_proportions_", np.ones(1))]


def same(first, second):
    return all(map(np.array_equal, parts(first), parts(second)))


# An estimator.


@kinds
def test_clone_parameters_and_pickle(kind):
    sampler = make(3.0)
    before = repr(sampler.get_params())
    train(sampler, kind)
    assert repr(sampler.get_params()) == before
    copy = clone(sampler)
    assert not hasattr(copy, "privacy_")
    assert same(train(copy, kind), sampler)
    loaded = pickle.loads(pickle.dumps(sampler))
    assert loaded.privacy_ == sampler.privacy_
    assert loaded.sample(9, random_state=0).equals(sampler.sample(9, random_state=0))
    assert not same(train(copy.set_params(epsilon=5.0), kind), sampler)
    assert (copy.privacy_.epsilon, sampler.privacy_.epsilon) == (5.0, 3.0)


def test_fits_and_samples_follow_their_seeds():
    sampler = make().fit(X)
    assert same(sampler, make().fit(X))
    assert not same(sampler, make(random_state=1).fit(X))
    assert not same(*(make(random_state=None).fit(X) for _ in "ab"))
    state = np.random.RandomState(0)  # noqa: NPY002
    assert not same(*(make(random_state=state).fit(X) for _ in "ab"))
    drawn = sampler.sample(30, random_state=0)
    assert drawn.equals(sampler.sample(30, random_state=0))
    assert not drawn.equals(sampler.sample(30, random_state=1))
    assert not sampler.sample(30).equals(sampler.sample(30))
    assert sampler.sample().shape == (1, 5)


def test_a_fit_forgets_the_one_before():
    sampler = make()
    with pytest.raises(NotFittedError):
        sampler.sample()
    sampler.fit(X, Y).fit(X)
    assert not hasattr(sampler, "classes_")
    assert not hasattr(sampler, "label_proportions_")
    assert len(sampler.laws_) == 1
    with pytest.raises(ValueError, match="'pay'"):
        sampler.fit(X.drop(columns="pay"))
    with pytest.raises(NotFittedError):
        sampler.sample()


def test_records_come_back_as_declared():
    frame = X[["day", "job", "age", "level", "pay"]].set_index(np.arange(60) + 7)
    frame["job"] = frame["job"].astype("category")
    sampler = make(np.inf).fit(frame)
    assert sampler.n_features_in_ == 5
    assert_array_equal(sampler.feature_names_in_, frame.columns)
    drawn = sampler.sample(500, random_state=0)
    # The declared categories, not those that occurred.
    assert list(drawn["job"].cat.categories) == JOBS
    assert drawn.dtypes.drop("job").equals(frame.dtypes.drop("job"))
    assert drawn["age"].between(0, 100).all()
    assert drawn["day"].between("2020-01-01", "2020-12-31").all()
    assert abs(drawn["pay"].isna().mean() - X["pay"].isna().mean()) < 5 * 0.5 / math.sqrt(500)
    assert not drawn.drop(columns="pay").isna().any().any()
    rows = make().fit(X.to_numpy().tolist()).sample(2)
    assert list(rows.columns) == list(SCHEMA)


# Labels.


def test_types_of_labels():
    expected = make().fit(X, Y)
    for equal in (Y.tolist(), pd.Series(Y, index=range(9, 69)), pd.Categorical(Y)):
        assert same(make().fit(X, equal), expected)
    of_bools = make(classes=[False, True]).fit(X, Y == "b")
    assert same(of_bools, expected)
    assert of_bools.sample_labels(2).dtype == bool


def shown_classes(y):
    """Return the classes that a fit without declared ones shows, or the error that it ends in."""
    try:
        return tuple(make(classes=None).fit(X, y).classes_)
    except ValueError as error:
        return str(error)


def test_labels_need_declared_classes(monkeypatch, released):
    """A lone rare label is that of one record: without a declaration it would be published."""
    rare = np.where(np.arange(60) == 7, "c", Y)
    assert shown_classes(Y) == shown_classes(rare)
    assert "need classes" in shown_classes(Y)
    assert not released
    # The twin: the classes that occur.
    monkeypatch.setattr(PrivateMixtureSampler, "_check_label_parameters", lambda self, y: None)
    assert [shown_classes(Y), shown_classes(rare)] == [("a", "b"), ("a", "b", "c")]


def test_records_of_a_wanted_class():
    def jobs(y):
        return np.where(y == "a", "pilot", "baker")

    sampler = make(np.inf).fit(X.assign(job=jobs(Y)), Y)
    assert_array_equal(sampler.classes_, ["a", "b"])
    assert_allclose(sampler.label_proportions_, [1 / 3, 2 / 3])
    for y in ("a", np.array(["a", "b", "b"] * 10)):
        assert_array_equal(sampler.sample(30, y=y)["job"], np.broadcast_to(jobs(y), 30))
    labels = sampler.sample_labels(2000, random_state=0)
    assert_array_equal(labels, sampler.sample_labels(2000, random_state=0))
    for drawn in (jobs(labels), sampler.sample(2000, random_state=0)["job"]):
        assert abs((drawn == "pilot").mean() - 1 / 3) < 5 * math.sqrt(2 / 9 / 2000)
    declared = make(classes=["b", "a"], label_proportions=[1.0, 0.0]).fit(X, Y)
    assert set(declared.sample_labels(50)) == {"a"}


def test_class_sizes_are_those_of_noisy_counts():
    """A class is as large as its columns say together: their mean, of the least variance."""
    fits = [make(2.0, random_state=seed, n_cells=1, n_iter=1).fit(X, Y) for seed in range(40)]
    shares = np.array([fit.label_proportions_[0] for fit in fits])
    scale = fits[0].privacy_.noise_scale["release 3"] * math.sqrt(5)
    precision = (1 / np.array([4, 5, 3, 3, 4])).sum() / scale**2
    spread = math.hypot(1 / 3, 2 / 3) / 60 / math.sqrt(precision)
    assert abs(shares.mean() - 1 / 3) < 5 * spread / math.sqrt(40)
    # To first order in the noise.
    assert 0.6 < shares.std() / spread < 1.5


# What is let out of the records.


@pytest.fixture
def told_by_releases_alone(forced):
    """Return a check that tables with the same releases give the same fit."""

    def check(kind, **options):
        fits = []
        for given in ((X, Y), (table(seed=5)[0], np.repeat(["a", "b"], [50, 10]))):
            forced.clear()
            fits.append(train(make(**options), kind, *given))
        first, second = fits
        drawn = [fit.sample(9, random_state=0) for fit in fits]
        return (
            same(first, second)
            and first.privacy_ == second.privacy_
            and drawn[0].equals(*drawn[1:])
        )

    return check


@kinds
def test_tables_with_equal_releases_give_equal_fits(told_by_releases_alone, monkeypatch, kind):
    assert told_by_releases_alone(kind, n_cells="auto", delta="auto")
    count, exact = _mixture_evolution.marginal_counts, []
    monkeypatch.setattr(
        _mixture_evolution, "marginal_counts", lambda *args: exact.append(count(*args)) or exact[-1]
    )
    assert told_by_releases_alone(kind)
    estimate = _mixture_evolution.estimate_mixture
    monkeypatch.setattr(
        _mixture_evolution,
        "estimate_mixture",
        lambda noisy, *args: estimate(noisy + exact[-1], *args),
    )
    assert not told_by_releases_alone(kind)


@pytest.mark.parametrize(("n_iter", "epsilon", "delta"), [(1, 0.7, 1e-4), (4, 3.0, "auto")])
def test_the_noise_of_all_releases_is_within_the_budget(released, n_iter, epsilon, delta):
    sampler = make(epsilon, n_iter=n_iter, delta=delta).fit(X, Y)
    report, scales = sampler.privacy_, np.array([r.scale for r in released])
    assert_allclose(list(report.noise_scale.values()), scales)
    assert len(scales) == report.n_releases == n_iter + 2
    precisions = scales**-2.0
    assert_allclose(precisions / precisions.sum(), [0.1, *[0.2 / n_iter] * n_iter, 0.7])
    assert report.delta == (0.1 / 60 if delta == "auto" else delta)
    assert report.sensitivity == pytest.approx(math.sqrt(2))
    # Balle and Wang, "Improving the Gaussian mechanism", 2018, theorem 8.
    mu = math.sqrt(2 * precisions.sum())
    tails = norm.cdf([mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu])
    assert tails[0] - math.exp(epsilon) * tails[1] == pytest.approx(report.delta, rel=1e-6)
    assert sampler.noise_multiplier_ == pytest.approx(1 / mu)


@kinds
def test_every_record_is_counted_once(released, kind):
    frame = X.assign(age=X["age"] * 3 - 20)  # some lie outside of the bounds
    train(make(5.0, n_cells=3), kind, frame)
    expected = []
    for rows in [Y != ""] if kind == "none" else [Y == "a", Y == "b"]:
        part, days = frame[rows], (frame["day"][rows] - pd.Timestamp("2020-01-01")).dt.days
        expected += [*np.histogram(part["age"].clip(0, 100), [0, 26, 51, 76, 101])[0]]
        expected += [*np.histogram(part["pay"].dropna(), 4, (0, 10))[0], part["pay"].isna().sum()]
        expected += [(part["job"] == job).sum() for job in JOBS]
        expected += [(part["level"] == level).sum() for level in (1, 2, 3)]
        expected += [*np.histogram(days, [0, 92, 183, 275, 366])[0]]
    first, *votes, last = [r.value for r in released]
    assert_allclose(first * math.sqrt(5), expected, atol=1e-9)
    assert [(counts.sum(), (counts % 1).any()) for counts in votes] == [(60, False)] * 2
    cells = last.reshape(-1, 3, 19)
    assert_allclose(cells.sum(axis=1).ravel(), first, atol=1e-9)
    # Within a cell every column counts the same records.
    sums = np.add.reduceat(cells, [0, 4, 9, 12, 15], axis=2)
    assert_allclose(sums, np.repeat(sums[..., :1], 5, axis=2), atol=1e-9)


def largest_change(forced, kind):
    """Return the largest l2 change of any release by one record, and by its label."""
    largest = 0.0
    for trial in range(4):
        frame, y = X.copy(), Y.copy()
        frame.loc[trial] = FAR
        frame = frame.astype(X.dtypes)
        if kind == "private" and trial % 2:
            y[trial] = "a" if y[trial] == "b" else "b"
        seen = []
        for given in ((X, Y), (frame, y)):
            forced.clear()
            train(make(n_cells=3, random_state=trial), kind, *given)
            seen.append(list(forced))
        if [*map(len, seen[0])] != [*map(len, seen[1])]:
            return math.inf
        largest = max(largest, *map(np.linalg.norm, map(np.subtract, *seen)))
    return largest


@kinds
def test_a_record_changes_a_release_by_the_root_of_two(forced, monkeypatch, kind):
    assert largest_change(forced, kind) == pytest.approx(math.sqrt(2))
    votes, count, project = (
        getattr(_mixture_evolution, name)
        for name in ("nearest_neighbor_votes", "marginal_counts", "project_simplex")
    )
    exact = []

    def keep(*args, **options):
        exact.append(votes(*args, **options))
        return exact[-1]

    def leak(shares):
        return np.roll(project(shares), exact[-1] @ np.arange(len(exact[-1])))

    for broken in (
        {"marginal_counts": lambda *args: count(*args) * math.sqrt(5)},
        {"nearest_neighbor_votes": lambda *args, **options: 2 * votes(*args, **options)},
        # Votes without noise choose the next candidates, and the cells.
        {"nearest_neighbor_votes": keep, "project_simplex": leak},
    ):
        with monkeypatch.context() as patch:
            for name, function in broken.items():
                patch.setattr(_mixture_evolution, name, function)
            assert largest_change(forced, kind) > 1.2 * math.sqrt(2)


def noise_of(released, sampler, kind="none", frame=X):
    """Return the noise of each release, in units of what the report states."""
    released.clear()
    stated = train(sampler, kind, frame).privacy_.noise_scale.values()
    return [(r.out - r.value) / scale for r, scale in zip(released, stated, strict=True)]


def test_the_noise_is_normal_and_of_the_stated_scale(released, monkeypatch):
    def is_standard():
        sampler = make(bins=90, n_cells=4, n_iter=1, random_state=None)
        noise = np.concatenate(noise_of(released, sampler))
        pairs = (noise[:-1] * noise[1:]).mean()
        moments = [noise.mean(), ((noise**2).mean() - 1) / math.sqrt(2), pairs]
        return np.abs(moments).max() * math.sqrt(noise.size) < 6

    class Halved(NoiseSource):
        def normal(self, size):
            return super().normal(size) / 2

    class Repeated(NoiseSource):
        def normal(self, size):
            return np.full(size, super().normal(1))

    assert is_standard()
    for broken in (Halved, Repeated):
        monkeypatch.setattr(_mixture_sampler, "noise_source", lambda *a, b=broken, **k: b())
        assert not is_standard()


def shares_noise(first, second):
    """Whether any noise of two fits is the same, up to the grid that releases are rounded to."""
    return any(
        np.allclose(one[:k], other[:k], rtol=0, atol=5e-3)
        for one in first
        for other in second
        if (k := min(len(one), len(other))) > 2
    )


@kinds
def test_a_seed_gives_other_vectors_other_noise(released, kind):
    noise = noise_of(released, make(), kind)
    assert shares_noise(noise, noise_of(released, make(), kind))
    assert not any(shares_noise([part], noise[:i]) for i, part in enumerate(noise))
    other = X.assign(pay=X["pay"].mask(X.index == 3, 9.9))
    assert not shares_noise(noise, noise_of(released, make(), kind, frame=other))
    for change in ({"epsilon": 2.0}, {"delta": 1e-3}, {"n_iter": 3}, {"random_state": 1}):
        assert not shares_noise(noise, noise_of(released, make(**change), kind))


def test_noise_is_for_one_set_of_bins(released):
    """Equal noise on equal counts would tell that counts within other bins are equal."""
    first, second = (
        noise_of(released, make(bins={"age": [0, edge, 100], "pay": 4, "day": 4}))
        for edge in (60, 70)
    )
    assert not shares_noise(first[:1], second[:1])


def test_noise_has_a_source_of_its_own(monkeypatch):
    np.random.seed(0)  # noqa: NPY002
    before, seeds = np.random.get_state()[1].copy(), []  # noqa: NPY002

    def watch(seed=None, *, context=()):
        seeds.append(seed)
        return noise_source(seed, context=context)

    monkeypatch.setattr(_mixture_sampler, "noise_source", watch)
    make(random_state=None).fit(X).sample(4)
    assert set(seeds) == {None}
    seeds.clear()
    make(random_state=3).fit(X)
    assert None not in seeds
    assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_the_report_names_what_is_public():
    plain, named = make().fit(X).privacy_, make().fit(X, Y).privacy_
    assert plain.public == ("n_samples", "names and types of the columns", "schema", "bins")
    assert "label" not in plain.neighbouring
    assert "and its label" in named.neighbouring
    assert "classes" in named.public
    given = make(label_proportions=[0.5, 0.5]).fit(X, Y).privacy_
    assert {"classes", "label_proportions"} <= set(given.public)
    assert "seed" in plain.noise_source
    assert make(random_state=None).fit(X).privacy_.noise_source == "operating system entropy"
    assert (make(np.inf).fit(X).privacy_.delta, plain.delta) == (0, 1e-5)


def test_no_record_is_kept():
    def size(sampler):
        return len(pickle.dumps(sampler))

    few, many = (make().fit(*given) for given in ((X, Y), table(600)))
    assert abs(size(few) - size(many)) < 60
    few.kept_, many.kept_ = X, table(600)[0]
    assert abs(size(few) - size(many)) > 60


def reveals(error):
    text = ""
    while error is not None:
        text, error = text + str(error), error.__cause__ or error.__context__
    return "secret" in text or "271828" in text


@pytest.mark.parametrize(
    ("column", "value"),
    [("job", "secret"), ("job", None), ("age", np.nan), ("age", "secret"), ("level", 271828)]
    + [("day", "secret"), ("day", pd.NaT), ("y", "secret"), ("y", np.nan), ("y", 271828.5)],
)
def test_errors_show_no_value(column, value):
    frame = X.assign(y=Y).astype(object)
    frame.loc[4, column] = value
    with pytest.raises((ValueError, TypeError), match=column) as raised:
        make(classes=["a", "b"]).fit(frame[list(SCHEMA)], frame["y"])
    assert not reveals(raised.value)
    assert reveals(ValueError("secret"))


# What is learned.


def test_without_noise_tables_of_one_and_two_columns_are_learned():
    rng = np.random.default_rng(0)
    a, b = rng.integers(4, size=(2, 1500))
    codes = np.column_stack([a, np.where(rng.uniform(size=1500) < 0.9, a, b)])
    frame = pd.DataFrame(np.array(list("wxyz"), dtype=object)[codes], columns=["a", "b"])
    spread = 5 * 0.5 / math.sqrt(4000)

    def error(epsilon, n_cells, *columns, seed=0):
        options = {"schema": PAIR, "n_candidates": 16, "random_state": seed}
        sampler = make(epsilon, n_cells=n_cells, **options).fit(frame)
        drawn = sampler.sample(4000, random_state=1)
        tables = [f.groupby(list(columns)).size() / len(f) for f in (drawn, frame)]
        return tables[0].sub(tables[1], fill_value=0).abs().max()

    for n_cells in (1, 4):
        assert max(error(np.inf, n_cells, name) for name in "ab") < spread
    assert error(np.inf, 4, "a", "b") < spread
    # Noise leads about one run in thirty astray.
    assert np.median([error(3.0, 4, "a", "b", seed=seed) for seed in range(3)]) < 2 * spread
    # One cell has independent columns.
    assert error(np.inf, 1, "a", "b") > 3 * spread


def test_cells_without_records_have_no_share():
    sampler = make(np.inf, n_cells=32).fit(X.assign(job="baker"), Y)
    assert (sampler.sample(500, random_state=0)["job"] == "baker").all()
    assert_allclose(sampler.label_proportions_, [1 / 3, 2 / 3])


def test_cells_do_not_make_a_class_larger():
    """The size of a class is estimated without bias, where it is well above its noise."""
    records = np.eye(8)[[1] * 200] + np.eye(8)[[5] * 200]
    counts = _mixture_evolution.marginal_counts(records, np.zeros(200, dtype=int), 16, PAIR.domain)
    rng, scale = np.random.default_rng(0), 6.0
    noisy = counts + scale * rng.normal(size=(200, len(counts)))
    sizes = [_mixture_evolution.estimate_mixture(row, scale, PAIR.domain)[0] for row in noisy]
    # 16 cells; the mean of two columns, each the sum of four counts with noise √2 of the scale.
    spread = scale * math.sqrt(16 * 4 * 2 / 2)
    assert abs(np.mean(sizes) - 200) < 5 * spread / math.sqrt(200)


# Bad input.


@pytest.mark.parametrize(
    ("options", "message"),
    [({name: 0}, f"{name!r} parameter") for name in ("epsilon", "n_candidates", "n_iter")]
    + [({"bins": bins}, "'bins' parameter") for bins in (0, 2.5, [2, 3])]
    + [({"bins": {"age": 3}}, "Column 'pay' needs bins"), ({"bins": {"salary": 3}}, "salary")]
    + [({"bins": {"job": 3}}, "'job' has categories"), ({"bins": {"age": [0, 50]}}, "'age': bin")]
    + [({"schema": None}, "'schema' parameter"), ({"n_cells": "many"}, "'n_cells' parameter")]
    + [({"classes": ["a"]}, "at least two"), ({"label_proportions": [0.5, 0.6]}, "sum to 1")],
    ids=str,
)
def test_errors_of_parameters(released, options, message):
    with pytest.raises(ValueError, match=message):
        make(**options).fit(X, Y)
    assert not released


def test_errors_of_records_and_samples():
    for y, message in ((["c"] * 60, "not among"), (Y[:5], "y must hold 60"), (X, "1d array")):
        with pytest.raises(ValueError, match=message):
            make().fit(X, y)
    for wrong, message in ((X[:0], "0 sample"), (X.assign(z=1), "unknown"), (Y, "2D array")):
        with pytest.raises(ValueError, match=message):
            make().fit(wrong)
    sampler = make().fit(X, Y)
    for wrong in ("z", ["a", "z"], np.nan):
        with pytest.raises(ValueError, match="not among the classes"):
            sampler.sample(2, y=wrong)
    with pytest.raises(ValueError, match="n_samples"):
        sampler.sample(0)
    with pytest.raises(ValueError, match="after a fit with labels"):
        sampler.fit(X).sample(2, y="a")


@kinds
@pytest.mark.parametrize("epsilon", [1e-6, np.inf])
@pytest.mark.parametrize(
    "options",
    [{"n_candidates": 1}, {"n_iter": 12}, {"n_cells": 9}, {"n_cells": "auto"}]
    + [{"bins": {"age": [0, 30, 100], "pay": 3, "day": 2}}, {"classes": ["a", "b", "c"]}],
    ids=str,
)
def test_extreme_settings(kind, epsilon, options):
    sampler = train(make(epsilon, **options), kind)
    assert np.isfinite(np.concatenate([np.ravel(part) for part in parts(sampler)])).all()
    for label in getattr(sampler, "classes_", [None]):
        assert sampler.sample(3, y=label).shape == (3, 5)


@pytest.mark.parametrize("epsilon", [1.0, np.inf])
def test_small_tables(epsilon):
    one = Schema({"only": Categorical(["x"], nullable=True)})
    sampler = make(epsilon, schema=one).fit(pd.DataFrame({"only": ["x"] * 30}))
    assert sampler.sample(5).shape == (5, 1)
    for frame in (X[:1], pd.concat([X[:1]] * 20)):
        drawn = make(epsilon, n_cells=1).fit(frame).sample(5)
        assert len(drawn) == 5
        assert epsilon < np.inf or (drawn["job"] == X["job"][0]).all()


def test_the_label_may_be_a_column_too():
    schema = Schema({**SCHEMA, "y": Categorical(["a", "b"])})
    sampler = make(np.inf, schema=schema, n_cells=1).fit(X.assign(y=Y), Y)
    assert set(sampler.sample(20, y="a")["y"]) == {"a"}
