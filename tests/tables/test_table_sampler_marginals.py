"""TableSampler: what is counted, from chunks too, in which bins, and what is selected."""

import itertools
from functools import partial

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sampler_tables import AUTO, NAMES, counted, hasten, law_parts, make, same, table, wide

from sklearn_dpgen.exceptions import NoisyCountsWarning
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import _privacy_plan, _table_sampler

X, WIDE_X = table(), wide()
relations = pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove"])
hasten = pytest.fixture(autouse=True)(hasten)


def test_slices_are_the_exact_counts_without_noise():
    frame = X.assign(age=X["age"] * 3 - 20)  # some lie outside of the bounds
    sampler = make(np.inf).fit(frame)
    assert [part.columns for part in sampler.marginals_] == list(itertools.combinations(NAMES, 2))
    for part in sampler.marginals_:
        assert_allclose(part.counts, counted(part, frame), rtol=0, atol=1e-9)
        assert part.noise_scale == 0
        assert part.counts.shape == tuple(groups.max() + 1 for groups in part.groups)


def test_records_are_held_in_one_byte_a_value(monkeypatch):
    """Of blocks; in more where a column has more leaves, which are counted first."""
    held, measure = [], _table_sampler.measure_rounds

    def watch(count, *args, **options):
        held.extend(count.__self__._codes)
        measure(count, *args, **options)

    monkeypatch.setattr(_table_sampler, "measure_rounds", watch)
    make(n_bins="auto").fit(X)
    assert [(len(column), column.itemsize) for column in held] == [(len(X), 1)] * len(NAMES)


def tables_of(sampler):
    return {part.columns: part.counts for part in sampler.marginals_}


def equal_tables(first, second):
    first, second = tables_of(first), tables_of(second)
    return list(first) == list(second) and all(
        np.array_equal(first[columns], second[columns]) for columns in first
    )


@pytest.mark.slow
@relations
@pytest.mark.parametrize("options", [{}, AUTO | {"n_bins": "auto"}], ids=["pairs", "auto"])
def test_chunks_give_the_tables_of_the_frame(neighbours, options):
    sampler = partial(make, neighbours=neighbours, **options)
    frame = WIDE_X if options else X
    whole, chunks = sampler().fit(frame), [frame[:7], frame[7:7], frame[7:300], frame[300:]]
    for given in (chunks, iter(chunks), (chunk for chunk in chunks), chunks[::-1]):
        fit = sampler().fit(given)
        assert equal_tables(fit, whole)
        assert same(fit, whole)
        assert fit.n_records_ == whole.n_records_
    assert fit.sample(3).dtypes.equals(frame.dtypes)
    assert not equal_tables(sampler().fit(chunks[2:]), whole)


@pytest.mark.slow
def test_a_dask_frame_gives_the_tables_of_the_frame():
    dask = pytest.importorskip("dask")
    frames = pytest.importorskip("dask.dataframe")
    for options, frame in (({}, X), (AUTO | {"n_bins": "auto"}, WIDE_X)):
        with dask.config.set({"scheduler": "synchronous", "dataframe.convert-string": False}):
            fit = make(**options).fit(frames.from_pandas(frame, npartitions=3))
        assert equal_tables(fit, make(**options).fit(frame))
        assert fit.sample(3).dtypes.equals(frame.dtypes)


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
    sampler = make(1.0, schema=Schema({"x": column}), marginals="auto", n_bins="auto").fit(frame)
    drawn = sampler.sample(20_000, random_state=0)["x"]
    # The noise of a count is below 30, and of the sample one deviation is 0.0035.
    assert (drawn == atom).mean() == pytest.approx((frame["x"] == atom).mean(), abs=0.03)
    assert drawn.isna().mean() == pytest.approx(frame["x"].isna().mean(), abs=0.03)
    # Wide bins, equal ones, do not tell of it.
    equal = make(schema=Schema({"x": column}), marginals="auto", n_bins=32).fit(frame)
    assert (equal.sample(20_000, random_state=0)["x"] == atom).mean() < 0.05


def test_bins_are_found_where_none_are_given():
    auto = make(n_bins="auto").fit(X).encoder_.columns_
    some = make(n_bins={"age": [0, 18, 100], "day": 5}).fit(X)
    assert_allclose(some.encoder_.columns_["age"].edges[1], 18 / 50 - 1, atol=1e-2)
    edges = some.bins_
    assert [len(edges[name]) - 1 for name in ("age", "day")] == [2, 5]
    for columns in (auto, some.encoder_.columns_):
        assert len(columns["pay"].edges) > 3


@relations
@pytest.mark.parametrize("epsilon", [1e-6, np.inf])
def test_bins_of_drowned_counts_are_finite(neighbours, epsilon):
    options = {"marginals": "auto", "n_bins": "auto", "neighbours": neighbours}
    for frame in (X, X[:1], pd.concat([X[:1]] * 20, ignore_index=True)):
        sampler = make(epsilon, **options)
        if epsilon < 1:
            with pytest.warns(NoisyCountsWarning):
                sampler.fit(frame)
        else:
            sampler.fit(frame)
        assert all(np.isfinite(part).all() for part in law_parts(sampler))
        assert all(np.isfinite(part.counts).all() for part in sampler.marginals_)
        assert sampler.sample(20).shape == (20, 5)


def test_zero_among_numbers_of_both_signs_is_told_apart():
    """A group begins there, however coarse tables are; so the sign of a product is seen."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3000)).clip(-4, 4) + 0.5
    schema = Schema({"a": Numeric(-5, 5), "b": Numeric(-5, 5)})
    frame = pd.DataFrame({"a": x[0], "b": x[1]})
    for bins in ("auto", 40):
        fit = make(schema=schema, n_bins=bins, workload={"a": 1}).fit(frame)
        (part,) = fit.marginals_
        for name, groups in zip(part.columns, part.groups, strict=True):
            (place,) = np.nonzero(np.abs(fit.bins_[name]) < 1e-9)[0]
            assert groups[place - 1] < groups[place]


# Which marginals are selected.

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


def selected(monkeypatch, epsilon=np.inf, n_marginals=3, **options):
    monkeypatch.setattr(_privacy_plan, "_MOST_PAIRS", n_marginals)
    schema, frame = planted()
    options = {"schema": schema, "marginals": "auto", "population_size": 5000} | options
    sampler = make(epsilon, **{"max_iter": 15} | options).fit(frame)
    return [part.columns for part in sampler.marginals_ if len(part.columns) == 2]


@pytest.mark.parametrize("n_rounds", [1, 3])
@pytest.mark.parametrize("epsilon", [10.0, np.inf])
def test_pairs_that_depend_on_each_other_are_selected(monkeypatch, epsilon, n_rounds):
    monkeypatch.setattr(_privacy_plan, "_ROUNDS", n_rounds)
    assert selected(monkeypatch, epsilon)[:3] == list(PLANTED)


@pytest.mark.slow
def test_selections_are_random_where_the_budget_is_small(monkeypatch):
    monkeypatch.setattr(_privacy_plan, "_ROUNDS", 1)
    hits, found = [], set()
    for seed in range(8):
        options = {"neighbours": "add_or_remove", "random_state": seed, "max_iter": 1}
        with pytest.warns(NoisyCountsWarning):
            pairs = selected(monkeypatch, 1e-3, **options)
        hits.append(len({*pairs} & {*PLANTED}))
        found.add(tuple(pairs))
    assert np.mean(hits) < 1.5
    assert len(found) > 4


@pytest.mark.slow
def test_a_workload_moves_selections(monkeypatch):
    choose, last = partial(selected, monkeypatch, n_marginals=1), ("x4", "x7")
    assert choose()[0] == ("x0", "x1")
    assert choose(workload={last: 100})[0] == last
    assert choose(workload={"x4": 10, "x7": 10})[0] == last
    light = dict.fromkeys(PLANTED, 1e-6)
    assert not {*selected(monkeypatch, n_marginals=3, workload=light)[:3]} & {*PLANTED}


@pytest.mark.slow
def test_few_columns_have_all_their_pairs_measured(monkeypatch):
    """Then there is nothing to select but interactions, few of which repeat the pairs."""
    monkeypatch.setattr(_privacy_plan, "_MOST_PAIRS", 10)
    for options in ({"epsilon": np.inf}, {"epsilon": 200.0}):
        auto = make(marginals="auto", **options).fit(X)
        pairs = [part for part in auto.marginals_ if len(part.columns) == 2]
        every = list(itertools.combinations(NAMES, 2))
        assert [part.columns for part in pairs] == every * (len(pairs) // len(every))
        assert len(pairs) <= 2 * len(every)
        pairs = pairs[: len(every)]
        if options["epsilon"] == np.inf:
            for one, two in zip(pairs, make(**options).fit(X).marginals_, strict=True):
                assert_array_equal(one.counts, two.counts)
