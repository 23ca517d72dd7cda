"""SlicedMeasureSampler: what is counted, from chunks too, in which bins, and what is selected."""

import itertools
from functools import partial

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sliced_tables import ADAPTIVE, JOBS, NAMES, hasten, make, same, table

from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables._population import Population
from sklearn_dpgen.tables._population_fit import _ROUND

SIZES = [4, 5, 3, 3, 4]
X = table()
relations = pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove"])
hasten = pytest.fixture(autouse=True)(hasten)


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
        assert np.all(part.noise_scale == 0)


def tables_of(sampler):
    return {part.columns: part.counts for part in sampler.slices_}


def equal_tables(first, second):
    first, second = tables_of(first), tables_of(second)
    return list(first) == list(second) and all(
        np.array_equal(first[columns], second[columns]) for columns in first
    )


@relations
@pytest.mark.parametrize("options", [{}, ADAPTIVE | {"n_bins": "auto"}], ids=["pairs", "adaptive"])
def test_chunks_give_the_tables_of_the_frame(neighbours, options):
    sampler = partial(make, neighbours=neighbours, **options)
    whole, chunks = sampler().fit(X), [X[:7], X[7:7], X[7:50], X[50:]]
    for given in (chunks, iter(chunks), (chunk for chunk in chunks), chunks[::-1]):
        fit = sampler().fit(given)
        assert equal_tables(fit, whole)
        assert same(fit, whole)
        assert fit.n_records_ == whole.n_records_
    assert fit.sample(3).dtypes.equals(X.dtypes)
    assert not equal_tables(sampler().fit(chunks[:3]), whole)


def test_a_dask_frame_gives_the_tables_of_the_frame():
    dask = pytest.importorskip("dask")
    frames = pytest.importorskip("dask.dataframe")
    for options in ({}, ADAPTIVE | {"n_bins": "auto"}):
        with dask.config.set({"scheduler": "synchronous", "dataframe.convert-string": False}):
            fit = make(**options).fit(frames.from_pandas(X, npartitions=3))
        assert equal_tables(fit, make(**options).fit(X))
        assert fit.sample(3).dtypes.equals(X.dtypes)


@pytest.mark.parametrize(
    ("column", "atom"),
    [(Numeric(0, 1e5, integer=True), 0), (Numeric(0, 1e5, integer=True), 777)]
    + [(Numeric(0, 50), 0.0), (Numeric(0, 50), 12.5), (Numeric(-1, 1, nullable=True), 0.3)],
    ids=str,
)
def test_a_frequent_value_has_a_bin(column, atom):
    rng = np.random.default_rng(0)
    n, low, high = 5000, column.low, column.high
    values = rng.integers(low, high, n) if column.integer else rng.uniform(low, high, n)
    values = np.where(rng.uniform(size=n) < 0.6, atom, values)
    if column.nullable:
        values[::4] = np.nan
    frame = pd.DataFrame({"x": values})
    fit = partial(make, schema=Schema({"x": column}), slices="adaptive", max_iter=100)
    sampler = fit(n_bins="auto").fit(frame)
    edges = np.array(sampler.encoder_.columns_["x"].edges)
    assert edges[0] == -1
    assert edges[-1] == 1
    assert (np.diff(edges) > 0).all()
    assert len(edges) - 1 <= 32
    assert tables_of(sampler)[("x",)].size == len(edges) - 1 + column.nullable
    drawn = sampler.sample(20_000, random_state=0)["x"]
    # The noise of a count is below 20, and of the sample one deviation is 0.0035.
    assert (drawn == atom).mean() == pytest.approx((frame["x"] == atom).mean(), abs=0.03)
    assert drawn.isna().mean() == pytest.approx(frame["x"].isna().mean(), abs=0.03)
    # Wide bins, equal ones, do not tell of it.
    equal = fit(n_bins=32).fit(frame).sample(20_000, random_state=0)["x"]
    assert (equal == atom).mean() < 0.05


def test_even_columns_have_few_bins():
    rng = np.random.default_rng(0)
    schema = Schema({"u": Numeric(0, 1), "v": Numeric(0, 1), "w": Numeric(0, 999, integer=True)})
    frame = pd.DataFrame(rng.uniform(size=(5000, 2)), columns=["u", "v"])
    frame["v"] **= 4
    frame["w"] = rng.integers(1000, size=5000)

    def sizes(epsilon, seed=0):
        fit = make(epsilon, schema=schema, n_bins="auto", random_state=seed).fit(frame)
        return [len(fit.encoder_.columns_[name].edges) - 1 for name in "uvw"]

    even, uneven, grid = np.transpose([sizes(1.0, seed) for seed in range(5)])
    assert max(even.max(), grid.max()) <= 8
    # Where there is more to see there are more of them, and where there is less noise.
    assert uneven.min() >= 5
    assert uneven.mean() > 1.5 * max(even.mean(), grid.mean())
    first, many, last = sizes(np.inf)
    assert uneven.max() < many <= 32
    # Without noise an even column has few bins too: records are a sample.
    assert max(first, last) <= 8


def test_bins_are_found_where_none_are_given():
    auto = make(n_bins="auto").fit(X).encoder_.columns_
    some = make(n_bins={"age": [0, 18, 100], "day": 5}).fit(X)
    assert_allclose(some.encoder_.columns_["age"].edges[1], 18 / 50 - 1, atol=1e-2)
    counts = tables_of(some)
    assert [counts[(name,)].size for name in NAMES[::2]] == [2, 3, 5]
    for columns in (auto, some.encoder_.columns_):
        assert 2 <= len(columns["pay"].edges) - 1 <= 32


@relations
@pytest.mark.parametrize("epsilon", [1e-6, np.inf])
def test_bins_of_drowned_counts_are_finite(neighbours, epsilon):
    options = ADAPTIVE | {"n_bins": "auto", "neighbours": neighbours}
    for frame in (X, X[:1], pd.concat([X[:1]] * 20, ignore_index=True)):
        sampler = make(epsilon, **options).fit(frame)
        for part in sampler.slices_:
            assert np.isfinite(part.counts).all()
        assert np.isfinite(sampler.law_.probabilities).all()
        assert np.isfinite(sampler.loss_curve_).all()
        assert sampler.sample(20).shape == (20, 5)


# Which slices are selected.

MANY = [f"x{i}" for i in range(8)]
PLANTED = {("x0", "x1"): 0.9, ("x2", "x5"): 0.7, ("x4", "x7"): 0.5}


def planted(n=2000, seed=0):
    """Return a schema and records of which three pairs of eight columns depend on each other."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(3, size=(n, 8))
    for (a, b), share in PLANTED.items():
        is_equal = rng.uniform(size=n) < share
        codes[is_equal, int(b[1])] = codes[is_equal, int(a[1])]
    schema = Schema({name: Categorical(range(3)) for name in MANY})
    return schema, pd.DataFrame(codes, columns=MANY)


def selected(epsilon=np.inf, **options):
    schema, frame = planted()
    options = {"schema": schema, "slices": "adaptive", "max_iter": 200, **options}
    sampler = make(epsilon, **options).fit(frame)
    return [part.columns for part in sampler.slices_[8:]]


@pytest.mark.parametrize("epsilon", [10.0, np.inf])
def test_pairs_that_depend_on_each_other_are_selected(epsilon):
    assert selected(epsilon, n_slices=3, n_rounds=3) == list(PLANTED)
    assert selected(epsilon, n_slices=3, n_rounds=1) == list(PLANTED)


def test_selections_are_random_where_the_budget_is_small():
    found = [selected(1e-3, n_slices=3, n_rounds=1, random_state=seed) for seed in range(8)]
    assert all(len({*pairs}) == 3 for pairs in found)
    hits = [len({*pairs} & {*PLANTED}) for pairs in found]
    assert np.mean(hits) < 1.5
    assert len({tuple(pairs) for pairs in found}) > 4


def test_a_workload_moves_selections():
    last = ("x4", "x7")
    assert selected(n_slices=1) == [("x0", "x1")]
    assert selected(n_slices=1, workload={last: 100}) == [last]
    assert selected(n_slices=1, workload={"x4": 10, "x7": 10}) == [last]
    light = dict.fromkeys(PLANTED, 1e-6)
    assert not {*selected(n_slices=3, n_rounds=1, workload=light)} & {*PLANTED}


def test_all_slices_are_one_round():
    fits = [
        {"slices": "pairs"},
        {"slices": "adaptive"},
        {"slices": "adaptive", "n_slices": 11, "n_rounds": 11},
    ]
    first, *others = (make(np.inf, **options).fit(X) for options in fits)
    for other in others:
        assert equal_tables(other, first)
        assert same(other, first)
    first, *others = (make(**options).fit(X) for options in fits)
    for other in others:
        assert other.privacy_ == first.privacy_
        assert [s.columns for s in other.slices_] == [s.columns for s in first.slices_]
        for one, two in zip(other.slices_, first.slices_, strict=True):
            assert_array_equal(one.noise_scale, two.noise_scale)


def test_the_population_evolves_before_each_selection():
    steps = int(_ROUND * 50)
    for options, n_selecting in (({}, 0), (ADAPTIVE, 2), ({"slices": "adaptive"}, 0)):
        fit = make(max_iter=50, **options).fit(X)
        assert len(fit.loss_curve_) == 50 + n_selecting * steps
        assert np.isfinite(fit.loss_curve_).all()


def test_the_prior_is_in_nats_of_all_tables(monkeypatch):
    """300 times the divergence, beside a loss that is over the number of cells."""
    fit, seen = Population.fit, []

    def watch(self, loss, *, prior=0.0, **options):
        seen.append(prior)
        return fit(self, loss, prior=prior, **options)

    monkeypatch.setattr(Population, "fit", watch)
    sampler = make(**ADAPTIVE).fit(X)
    cells = np.cumsum([part.counts.size for part in sampler.slices_])
    # Before each selection, of single columns and of two pairs more, and at the end.
    assert_allclose(np.multiply(seen, cells[[4, 6, 7]]), 300)
