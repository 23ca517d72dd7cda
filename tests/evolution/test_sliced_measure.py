"""SlicedMeasureSampler: what is let out, what is learned, conditions, an estimator, bad input."""

import itertools
import math
import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

from sklearn_dpgen.evolution import _sliced_measure
from sklearn_dpgen.evolution._marginals import ProductMixture
from sklearn_dpgen.evolution._sliced_measure import SlicedMeasureSampler
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema
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
NAMES = list(SCHEMA)
SIZES = [4, 5, 3, 3, 4]
N_PAIRS, N_TABLES = 10, 15
FAR = [99, 9.9, "pilot", 3, pd.Timestamp("2020-12-31")]
relations = pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove"])


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Reports that are quickly made: versions of libraries take longer than such a fit."""
    monkeypatch.setattr("sklearn_dpgen.accounting._report.metadata.version", lambda name: "0")


def make(epsilon=1.0, **options):
    small = {"n_bins": 4, "population_size": 20, "max_iter": 5, "random_state": 0, "device": "cpu"}
    return SlicedMeasureSampler(epsilon, **({"schema": SCHEMA} | small | options))


def table(n=60, seed=0):
    rng = np.random.default_rng(seed)
    columns = {
        "age": rng.integers(10, 60, size=n),
        "pay": np.where(rng.uniform(size=n) < 0.3, np.nan, rng.uniform(0, 7, size=n)),
        "job": rng.choice(JOBS[:2], size=n).astype(object),
        "level": rng.choice([1, 2], size=n).astype(np.int8),
        "day": pd.Timestamp("2020-02-01") + pd.to_timedelta(rng.integers(200, size=n), "D"),
    }
    return pd.DataFrame(columns)


X = table()


def same(first, second):
    return np.array_equal(first.law_.probabilities, second.law_.probabilities)


# What is let out of the records.


def largest_change(released, neighbours, **options):
    """Return the largest l2 change of the release by one record, and the stated sensitivity."""
    largest, fit = 0.0, None
    for trial in range(3):
        frame = X.drop(index=trial)
        if neighbours == "replace_one":
            frame = X.copy()
            frame.loc[trial] = FAR
            frame = frame.astype(X.dtypes)
        released.clear()
        for given in (X, frame):
            fit = make(neighbours=neighbours, **options).fit(given)
        first, second = (r.value for r in released)
        largest = max(largest, np.linalg.norm(first - second))
    return largest, fit.privacy_.sensitivity


@relations
@pytest.mark.parametrize(
    ("options", "n_tables"),
    [({}, N_TABLES), ({"workload": {"job": 3, ("age", "day"): 0.1}}, N_TABLES)]
    + [({"slices": [("age", "job"), ("day", "pay", "level"), ("pay",)]}, 7)]
    + [({"slices": [("age",)]}, 5)],
    ids=str,
)
def test_the_sensitivity_is_that_of_a_record(released, neighbours, options, n_tables):
    change, stated = largest_change(released, neighbours, **options)
    cells = 2 if neighbours == "replace_one" else 1
    assert stated == pytest.approx(math.sqrt(cells * n_tables))
    # The record that is put in differs in every column, so the bound is attained.
    assert change == pytest.approx(stated)


@relations
def test_more_than_is_stated_would_be_seen(released, monkeypatch, neighbours):
    count, weigh = _sliced_measure.count_records, _sliced_measure.slice_weights

    def twice(X, encoder, columns):
        tables = count(X, encoder, columns)
        return [*tables[:-1], 2 * tables[-1]]

    for name, broken in (
        ("count_records", twice),
        ("slice_weights", lambda *args: 1.05 * weigh(*args)),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(_sliced_measure, name, broken)
            change, stated = largest_change(released, neighbours)
            assert change > 1.04 * stated
    # A sensitivity that forgets that a replaced record leaves cells too.
    if neighbours == "replace_one":
        change, _ = largest_change(released, neighbours)
        _, forgetful = largest_change(released, "add_or_remove")
        assert change == pytest.approx(math.sqrt(2) * forgetful)


@relations
@pytest.mark.parametrize(("epsilon", "delta"), [(0.7, 1e-4), (3.0, 1e-6)])
def test_the_noise_is_what_the_budget_needs(released, neighbours, epsilon, delta):
    sampler = make(epsilon, delta=delta, neighbours=neighbours).fit(X)
    report, (release,) = sampler.privacy_, released
    assert report.noise_scale == release.scale
    assert (report.epsilon, report.delta, report.n_releases) == (epsilon, delta, 1)
    mu = report.sensitivity / release.scale
    # Balle and Wang, "Improving the Gaussian mechanism", 2018, theorem 8.
    tails = norm.cdf([mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu])
    assert tails[0] - math.exp(epsilon) * tails[1] == pytest.approx(delta, rel=1e-6)
    assert sampler.noise_multiplier_ == pytest.approx(1 / mu)
    # What each table cost adds up to the budget, a tenth of it for single columns.
    cells = 2 if neighbours == "replace_one" else 1
    costs = np.array([cells / part.noise_scale**2 for part in sampler.slices_])
    assert costs.sum() == pytest.approx(mu**2)
    assert costs[:5].sum() == pytest.approx(0.1 * mu**2)
    assert_allclose(costs[5:], costs[5])


def test_slices_are_the_exact_counts_without_noise():
    frame = X.assign(age=X["age"] * 3 - 20)  # some lie outside of the bounds
    sampler = make(np.inf).fit(frame)
    cuts = {
        "age": np.digitize(frame["age"].clip(0, 100), [26, 51, 76]),
        "pay": np.where(frame["pay"].isna(), 4, np.digitize(frame["pay"], [2.5, 5, 7.5])),
        "job": frame["job"].map(JOBS.index).to_numpy(),
        "level": frame["level"].to_numpy() - 1,
        "day": np.digitize((frame["day"] - pd.Timestamp("2020-01-01")).dt.days, [92, 183, 275]),
    }
    expected = [(name,) for name in NAMES] + list(itertools.combinations(NAMES, 2))
    assert [part.columns for part in sampler.slices_] == expected
    for part in sampler.slices_:
        shape = tuple(SIZES[NAMES.index(name)] for name in part.columns)
        counts = np.zeros(shape)
        np.add.at(counts, tuple(cuts[name] for name in part.columns), 1)
        assert_allclose(part.counts, counts, rtol=0, atol=1e-9)
        assert part.noise_scale == 0


def test_the_noise_is_normal_and_of_the_stated_scale(monkeypatch):
    exact = [part.counts for part in make(np.inf).fit(X).slices_]

    def is_standard():
        parts = make(random_state=None, max_iter=1).fit(X).slices_
        noise = [(p.counts - e).ravel() / p.noise_scale for p, e in zip(parts, exact, strict=True)]
        noise = np.concatenate(noise)
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
        monkeypatch.setattr("sklearn_dpgen.utils._base.noise_source", lambda *a, b=broken, **k: b())
        assert not is_standard()


@relations
def test_tables_with_equal_releases_give_equal_fits(forced, monkeypatch, neighbours):
    # Where the number of records is not public, it does not show either.
    others = table(60 if neighbours == "replace_one" else 45, seed=5)

    def told_by_the_release_alone():
        fits = []
        for frame in (X, others):
            forced.clear()
            fits.append(make(neighbours=neighbours).fit(frame))
        first, second = fits
        return (
            same(first, second)
            and first.n_records_ == second.n_records_
            and first.loss_curve_ == second.loss_curve_
            and first.privacy_ == second.privacy_
            and first.sample(9, random_state=0).equals(second.sample(9, random_state=0))
        )

    assert told_by_the_release_alone()
    # Were the seeded start keyed by the records, or the loss told of them, it would show.
    evolve = SlicedMeasureSampler._evolve

    def leak(self, sizes, columns, counts, weights, seed):
        evolve(self, sizes, columns, counts, weights, seed + int(forced[-1].argmax()))

    monkeypatch.setattr(SlicedMeasureSampler, "_evolve", leak)
    assert not told_by_the_release_alone()


def test_the_number_of_records_is_public_under_replacement_alone():
    assert make().fit(X).n_records_ == 60
    assert make(np.inf, neighbours="add_or_remove").fit(X).n_records_ == pytest.approx(60)
    fit = partial(make, 2.0, neighbours="add_or_remove", max_iter=1)
    found = [fit(random_state=seed).fit(table(4000)).n_records_ for seed in range(60)]
    # The total of every table, with the variance of each.
    parts = fit().fit(X).slices_
    spread = sum(1 / (p.counts.size * p.noise_scale**2) for p in parts) ** -0.5
    assert abs(np.mean(found) - 4000) < 5 * spread / math.sqrt(60)
    assert abs(np.std(found) / spread - 1) < 5 / math.sqrt(120)


def test_a_seed_gives_other_vectors_other_noise(released):
    def noise_of(frame=X, **options):
        released.clear()
        make(**options).fit(frame)
        return (released[0].out - released[0].value) / released[0].scale

    noise = noise_of()
    assert_array_equal(noise, noise_of())
    assert_array_equal(noise, noise_of(verbose=0))
    other = X.assign(pay=X["pay"].mask(X.index == 3, 9.9))
    assert abs(noise - noise_of(other)).min() > 1e-6
    edges = [{"age": [0, edge, 100], "pay": 4, "day": 4} for edge in (60, 70)]
    for first, second in (
        ({}, {"epsilon": 2.0}),
        ({}, {"delta": 1e-3}),
        ({}, {"random_state": 1}),
        ({}, {"neighbours": "add_or_remove"}),
        ({"n_bins": edges[0]}, {"n_bins": edges[1]}),
        # As many cells, of other columns.
        ({"slices": [("age", "job")]}, {"slices": [("day", "level")]}),
    ):
        assert abs(noise_of(**first) - noise_of(**second)).min() > 1e-6


def test_noise_has_a_source_of_its_own(monkeypatch):
    np.random.seed(0)  # noqa: NPY002
    before, seeds = np.random.get_state()[1].copy(), []  # noqa: NPY002

    def watch(seed=None, *, context=()):
        seeds.append(seed)
        return noise_source(seed, context=context)

    for module in (_sliced_measure, "sklearn_dpgen.utils._base"):
        name = module if isinstance(module, str) else module.__name__
        monkeypatch.setattr(f"{name}.noise_source", watch)
    make(random_state=None).fit(X).sample(4)
    assert set(seeds) == {None}
    seeds.clear()
    make(random_state=3).fit(X)
    assert None not in seeds
    assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_the_report_says_who_the_neighbours_are():
    kept, hidden = (
        make(neighbours=name, workload={"job": 2.0}).fit(X).privacy_
        for name in ("replace_one", "add_or_remove")
    )
    assert kept.neighbouring == "replace one record; the number of records is public"
    assert hidden.neighbouring == "add or remove one record; the number of records is not public"
    assert set(kept.public) - set(hidden.public) == {"n_samples"}
    assert {"schema", "n_bins", "slices", "workload"} <= set(hidden.public)
    assert "workload" not in make().fit(X).privacy_.public
    assert kept.sensitivity == pytest.approx(math.sqrt(2) * hidden.sensitivity)
    assert kept.noise_multiplier == pytest.approx(hidden.noise_multiplier)
    assert "seed" in kept.noise_source
    assert make(random_state=None).fit(X).privacy_.noise_source == "operating system entropy"
    assert make(np.inf).fit(X).privacy_.delta == 0


def reveals(error):
    text = ""
    while error is not None:
        text, error = text + str(error), error.__cause__ or error.__context__
    return "secret" in text or "271828" in text


@pytest.mark.parametrize(
    ("column", "value"),
    [("job", "secret"), ("job", None), ("age", np.nan), ("age", "secret"), ("level", 271828)]
    + [("day", "secret"), ("day", pd.NaT)],
)
def test_errors_show_no_value(column, value):
    frame = X.astype(object)
    frame.loc[4, column] = value
    with pytest.raises((ValueError, TypeError), match=column) as raised:
        make().fit(frame)
    assert not reveals(raised.value)
    assert reveals(ValueError("secret"))


# What is learned.

PAIR = Schema({name: Categorical(list("wxyz")) for name in "abc"})


def chained(n=3000, seed=0):
    """Return records of which b repeats a and c is the parity of both, nearly always."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(4, size=(2, n))
    b = np.where(rng.uniform(size=n) < 0.8, a, b)
    values = np.array(list("wxyz"))
    return pd.DataFrame({"a": values[a], "b": values[b], "c": values[(a + b) % 2]})


def frequencies(frame, columns):
    return frame.groupby(list(columns)).size() / len(frame)


def distance(frame, drawn, columns):
    first, second = (frequencies(f, columns) for f in (frame, drawn))
    return first.sub(second, fill_value=0).abs().sum() / 2


@pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove"])
def test_without_noise_the_slices_are_learned(neighbours):
    frame = chained()
    options = {"schema": PAIR, "population_size": 100, "max_iter": 300, "neighbours": neighbours}
    sampler = make(np.inf, **options).fit(frame)
    drawn = sampler.sample(20_000, random_state=0)
    for columns in ("a", "b", "c", "ab", "ac", "bc"):
        assert distance(frame, drawn, columns) < 0.03
    assert sampler.score(frame) > -0.01
    assert sampler.loss_curve_[-1] < 1e-3 * sampler.loss_curve_[0]
    # Single columns alone say nothing of pairs.
    apart = make(np.inf, **options, slices=[("a",)]).fit(frame).sample(20_000, random_state=0)
    assert distance(frame, apart, "a") < 0.03
    assert distance(frame, apart, "ab") > 0.3


def test_triples_are_learned_where_they_are_counted():
    rng = np.random.default_rng(0)
    a, b = rng.integers(2, size=(2, 2000))
    values = np.array(list("wxyz"))
    frame = pd.DataFrame({"a": values[a], "b": values[b], "c": values[a ^ b]})
    options = {"schema": PAIR, "population_size": 100, "max_iter": 300}
    sampler = make(np.inf, **options, slices=[("c", "a", "b")]).fit(frame)
    assert distance(frame, sampler.sample(20_000, random_state=0), "abc") < 0.03
    # All pairs are independent, and tell nothing.
    pairs = make(np.inf, **options).fit(frame).sample(20_000, random_state=0)
    assert distance(frame, pairs, "ab") < 0.03


def test_more_budget_is_a_better_score():
    frame, held_out = chained(), chained(seed=1)
    options = {"schema": PAIR, "population_size": 60, "max_iter": 120}
    scores = [make(epsilon, **options).fit(frame).score(held_out) for epsilon in (0.05, 0.5, 20)]
    assert sorted(scores) == scores
    assert -1 <= scores[0] < scores[2] - 0.05
    assert scores[2] > -0.03


def test_a_workload_has_less_noise():
    weighed = make(workload={"job": 4, ("age", "day"): 2}).fit(X).slices_
    scale = {part.columns: part.noise_scale for part in weighed}
    assert scale[("job",)] == pytest.approx(scale[("age",)] / 4)
    assert scale[("age", "job")] == pytest.approx(scale[("age", "pay")] / 4)
    assert scale[("age", "day")] == pytest.approx(scale[("age", "pay")] / 2)
    plain = make().fit(X).slices_
    assert scale[("job",)] < plain[2].noise_scale < scale[("age",)]


# Conditions.


def test_records_fulfil_conditions():
    sampler = make(np.inf, max_iter=200).fit(X)
    noon = pd.Timestamp("2020-07-01")
    for conditions in (
        {"job": "nurse"},
        {"job": ["nurse", "baker"], "level": 2},
        {"age": 30, "pay": None},
        {"age": [30, 55], "day": [noon, pd.Timestamp("2020-03-03")]},
        {"pay": [0.1, 0.2, np.nan]},
    ):
        drawn = sampler.sample(200, conditions=conditions, random_state=0)
        assert drawn.dtypes.equals(X.dtypes)
        for name, values in conditions.items():
            values = values if isinstance(values, list) else [values]
            assert (drawn[name].isin(values) | drawn[name].isna() & pd.isna(values).any()).all()
        rest = [name for name in NAMES if name not in conditions]
        assert (drawn[rest].nunique() > 1).all()
    free = sampler.sample(9, random_state=0)
    assert free.equals(sampler.sample(9, conditions={}, random_state=0))


def test_conditions_reweight_the_rows():
    frame = chained()
    sampler = make(np.inf, schema=PAIR, population_size=100, max_iter=300).fit(frame)
    given = sampler.sample(20_000, conditions={"a": "x"}, random_state=0)
    assert distance(frame[frame["a"] == "x"], given, "b") < 0.05
    assert distance(frame, given, "b") > 0.3
    assert sampler.effective_size() == pytest.approx(100)
    assert 5 < sampler.effective_size({"a": "x"}) < 70
    # Of a condition on two columns fewer rows are left.
    assert sampler.effective_size({"a": "x", "b": "x"}) < sampler.effective_size({"a": "x"})


def test_conditions_that_cannot_be():
    sampler = make().fit(X)
    for conditions, message in (
        ({"salary": 3}, "'salary'"),
        ({"age": 101}, "'age' hold a value"),
        ({"job": "judge"}, "'job' holds a value outside"),
        ({"job": []}, "'job' are impossible"),
    ):
        for method in (partial(sampler.sample, 2), sampler.effective_size):
            with pytest.raises(ValueError, match=message):
                method(conditions=conditions)
    rows = sampler.law_.probabilities
    rows[:, 9:12] = [1.0, 0.0, 0.0]
    sampler.law_ = ProductMixture(sampler.law_.domain, sampler.law_.shares, rows)
    assert (sampler.sample(5, conditions={"job": ["nurse", "baker"]})["job"] == "baker").all()
    with pytest.raises(ValueError, match=r"\['job'\] are impossible"):
        sampler.sample(5, conditions={"job": "pilot"})


# An estimator.


def test_clone_parameters_and_pickle():
    sampler = make(3.0)
    before = repr(sampler.get_params())
    sampler.fit(X)
    assert repr(sampler.get_params()) == before
    copy = clone(sampler)
    assert not hasattr(copy, "privacy_")
    assert same(copy.fit(X), sampler)
    loaded = pickle.loads(pickle.dumps(sampler))
    assert loaded.privacy_ == sampler.privacy_
    assert loaded.sample(9, random_state=0).equals(sampler.sample(9, random_state=0))
    assert not same(copy.set_params(epsilon=5.0).fit(X), sampler)
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
    assert make().__sklearn_tags__().non_deterministic is False
    assert make(random_state=None).__sklearn_tags__().non_deterministic is True


def test_records_are_drawn_by_blocks(monkeypatch):
    sampler = make().fit(X)
    monkeypatch.setattr(_sliced_measure, "_BLOCK", 19 * 7)
    drawn = sampler.sample(30, conditions={"age": [30, 31]}, random_state=0)
    assert drawn.shape == (30, 5)
    assert_array_equal(drawn.index, range(30))
    assert drawn.dtypes.equals(X.dtypes)


def test_a_fit_forgets_the_one_before():
    sampler = make()
    with pytest.raises(NotFittedError):
        sampler.sample()
    sampler.fit(X)
    with pytest.raises(ValueError, match="'pay'"):
        sampler.fit(X.drop(columns="pay"))
    with pytest.raises(NotFittedError):
        sampler.sample()
    with pytest.raises(NotFittedError):
        sampler.score(X)


def test_records_come_back_as_declared():
    frame = X[["day", "job", "age", "level", "pay"]].set_index(np.arange(60) + 7)
    frame["job"] = frame["job"].astype("category")
    sampler = make(np.inf).fit(frame)
    assert sampler.n_features_in_ == 5
    assert_array_equal(sampler.feature_names_in_, frame.columns)
    drawn = sampler.sample(500, random_state=0)
    assert list(drawn.columns) == list(frame.columns)
    # The declared categories, not those that occurred.
    assert list(drawn["job"].cat.categories) == JOBS
    assert drawn.dtypes.drop("job").equals(frame.dtypes.drop("job"))
    assert drawn["age"].between(0, 100).all()
    assert drawn["day"].between("2020-01-01", "2020-12-31").all()
    assert not drawn.drop(columns="pay").isna().any().any()
    # The order of columns is no matter.
    for part, other in zip(sampler.slices_, make(np.inf).fit(X).slices_, strict=True):
        assert_array_equal(part.counts, other.counts)
    rows = make().fit(X.to_numpy().tolist()).sample(2)
    assert list(rows.columns) == NAMES


def test_a_search_over_parameters():
    search = GridSearchCV(make(), {"epsilon": [0.01, 50.0]}, cv=2).fit(X)
    assert search.best_params_ == {"epsilon": 50.0}
    assert search.best_estimator_.sample(2).shape == (2, 5)


def test_bins_that_are_not_named_are_as_many_as_ever():
    auto = make(n_bins="auto").fit(X)
    sizes = [part.counts.size for part in auto.slices_[:5]]
    assert sizes == [32, 33, 3, 3, 32]
    some = make(n_bins={"age": [0, 18, 100]}).fit(X)
    assert [part.counts.size for part in some.slices_[:5]] == [2, 33, 3, 3, 32]


# Bad input.


@pytest.fixture
def unread(monkeypatch):
    def read(*args):
        raise AssertionError("A record was read.")

    monkeypatch.setattr(_sliced_measure, "count_records", read)


@pytest.mark.parametrize(
    ("options", "message"),
    [({name: 0}, f"{name!r} parameter") for name in ("epsilon", "delta", "max_iter")]
    + [({name: 0}, f"{name!r} parameter") for name in ("learning_rate", "population_size")]
    + [({"neighbours": "none"}, "'neighbours' parameter"), ({"schema": None}, "'schema'")]
    + [({"slices": "triples"}, "'slices' parameter"), ({"slices": [("age", "z")]}, "z")]
    + [({"slices": ["age"]}, "tuples of one to three"), ({"n_bins": 1}, "'n_bins' parameter")]
    + [({"n_bins": {"salary": 3}}, "salary"), ({"n_bins": {"job": 3}}, "'job' has categories")]
    + [({"n_bins": {"age": [0, 50]}}, "'age': bin"), ({"workload": {"salary": 2}}, "salary")]
    + [({"workload": "job"}, "'workload' parameter"), ({"workload": {"job": -1}}, "positive")]
    + [({"schema": Schema({"age": SCHEMA["age"]})}, "at least two columns")]
    + [({"n_bins": {"pay": 10_000}}, "GiB.*'pay' has the most categories, 10001")],
    ids=lambda value: str(value)[:60],
)
def test_errors_before_a_record_is_read(unread, options, message):
    with pytest.raises(ValueError, match=message):
        make(**({"population_size": 2000} | options)).fit(X)


def test_ten_thousand_categories_are_refused(unread):
    schema = Schema({"city": Categorical(range(10_000)), "job": SCHEMA["job"]})
    frame = pd.DataFrame({"city": [3, 9], "job": ["baker", "pilot"]})
    with pytest.raises(ValueError, match=r"1\.6 GiB.*'city' has the most categories, 10000"):
        make(schema=schema, population_size=2000).fit(frame)


def test_errors_of_records_and_samples():
    for wrong, message in ((X[:0], "0 sample"), (X.assign(z=1), "unknown")):
        with pytest.raises(ValueError, match=message):
            make().fit(wrong)
    with pytest.raises(ValueError, match="2D array"):
        make().fit(X["age"].to_numpy())
    sampler = make().fit(X)
    with pytest.raises(ValueError, match="n_samples"):
        sampler.sample(0)


@relations
@pytest.mark.parametrize("epsilon", [1e-6, np.inf])
@pytest.mark.parametrize(
    "options",
    [{"slices": [("age",)]}, {"population_size": 2}, {"n_bins": "auto"}, {"max_iter": 1}]
    + [{"workload": {"age": 1e6}}, {"slices": [("age", "job", "day")]}],
    ids=str,
)
def test_extreme_settings(neighbours, epsilon, options):
    sampler = make(epsilon, neighbours=neighbours, **options).fit(X)
    assert np.isfinite(sampler.law_.probabilities).all()
    assert sampler.n_records_ >= 1
    assert sampler.sample(3).shape == (3, 5)


@relations
@pytest.mark.parametrize("epsilon", [1.0, np.inf])
def test_small_tables(neighbours, epsilon):
    one = Schema({"only": Categorical(["x"], nullable=True)})
    sampler = make(epsilon, schema=one, slices=[("only",)], neighbours=neighbours)
    drawn = sampler.fit(pd.DataFrame({"only": ["x"] * 30})).sample(5)
    assert drawn.shape == (5, 1)
    for frame in (X[:1], pd.concat([X[:1]] * 20)):
        drawn = make(epsilon, neighbours=neighbours, max_iter=200).fit(frame).sample(50)
        assert len(drawn) == 50
        assert epsilon < np.inf or (drawn["job"] == X["job"][0]).mean() > 0.9
