"""TableSampler: what is learned, conditions, an estimator, and its words."""

import math
import pickle
from contextlib import nullcontext
from functools import partial

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sampler_tables import AUTO, LARGE, NAMES, SCHEMA, hasten, make, same, table, wide
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_dpgen.exceptions import NoisyCountsWarning
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import (
    _conditional_sampling,
    _table_sampler,
)

X = table()
relations = pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove"])
hasten = pytest.fixture(autouse=True)(hasten)


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


@relations
def test_without_noise_the_slices_are_learned(neighbours):
    frame = chained()
    options = {"schema": PAIR, "neighbours": neighbours} | LARGE
    sampler = make(np.inf, **options).fit(frame)
    drawn = sampler.sample(20_000, random_state=0)
    for columns in ("a", "b", "c", "ab", "ac", "bc"):
        assert distance(frame, drawn, columns) < 0.03
    # A hundredth of it is the chance of the score itself, and there is that of the rows.
    assert sampler.score(frame) > -0.02
    # Single columns alone say nothing of pairs.
    apart = make(np.inf, **options, marginals=[("a",)]).fit(frame).sample(20_000, random_state=0)
    assert distance(frame, apart, "a") < 0.03
    assert distance(frame, apart, "ab") > 0.3


def test_triples_are_learned_where_they_are_counted():
    rng = np.random.default_rng(0)
    a, b = rng.integers(2, size=(2, 2000))
    values = np.array(list("wxyz"))
    frame = pd.DataFrame({"a": values[a], "b": values[b], "c": values[a ^ b]})
    options = {"schema": PAIR} | LARGE
    sampler = make(np.inf, **options, marginals=[("c", "a", "b")]).fit(frame)
    assert distance(frame, sampler.sample(20_000, random_state=0), "abc") < 0.03
    # All pairs are independent, and tell nothing.
    pairs = make(np.inf, **options).fit(frame).sample(20_000, random_state=0)
    assert distance(frame, pairs, "ab") < 0.03
    assert distance(frame, pairs, "abc") > 0.4


def test_more_budget_is_a_better_score():
    frame, held_out = chained(), chained(seed=1)
    scores = []
    for epsilon in (0.01, 1.0, 20.0):
        expected = pytest.warns(NoisyCountsWarning) if epsilon < 0.1 else nullcontext()
        with expected:
            sampler = make(epsilon, schema=PAIR, **LARGE).fit(frame)
        scores.append(sampler.score(held_out))
    assert sorted(scores) == scores
    assert -1 <= scores[0] < scores[2] - 0.05
    assert scores[2] > -0.03


# Dependence of three columns, which all pairs hide.


def coded(schema, columns):
    return Schema(schema), pd.DataFrame(columns)


def parity(n, rng, noise=0.0, more=0):
    bits = rng.integers(2, size=(n, 2 + more))
    flipped = rng.uniform(size=n) < noise
    columns = {f"x{i}": bits[:, i] for i in range(2 + more)}
    columns["y"] = bits[:, 0] ^ bits[:, 1] ^ flipped
    frame = coded({name: Categorical([0, 1]) for name in columns}, columns)
    return *frame, lambda drawn: drawn["y"] == drawn["x0"] ^ drawn["x1"]


def four_categories(n, rng):
    a, b = rng.integers(4, size=(2, n))
    columns = {"a": a, "b": b, "y": (a + b) % 4}
    frame = coded({name: Categorical(range(4)) for name in columns}, columns)
    return *frame, lambda drawn: drawn["y"] == (drawn["a"] + drawn["b"]) % 4


def quadrants(n, rng):
    x = rng.normal(size=(2, 3 * n)).clip(-4, 4)
    columns = {"x0": x[0], "x1": x[1], "y": (x[0] * x[1] > 0).astype(int)}
    schema = {"x0": Numeric(-4, 4), "x1": Numeric(-4, 4), "y": Categorical([0, 1])}
    frame = coded(schema, columns)
    return *frame, lambda drawn: drawn["y"] == (drawn["x0"] * drawn["x1"] > 0)


HIDDEN = {
    "xor": (parity, {}),
    "xor with noise": (parity, {"noise": 0.1}),
    "parity among others": (parity, {"more": 8}),
    "four categories": (four_categories, {}),
    "quadrants": (quadrants, {}),
}


@pytest.mark.slow
@relations
@pytest.mark.parametrize("name", HIDDEN)
def test_dependence_of_three_columns_is_found(monkeypatch, name, neighbours):
    # As many pairs as there are by default.
    monkeypatch.undo()
    draw, options = HIDDEN[name]
    schema, frame, holds = draw(10_000, np.random.default_rng(0), **options)
    fit = partial(make, 10.0, schema=schema, n_bins="auto", neighbours=neighbours)
    options = {"population_size": 2000, "max_iter": 15}
    drawn = fit(marginals="auto", **options).fit(frame).sample(10_000, random_state=0)
    assert holds(drawn).mean() > 0.9 * holds(frame).mean()
    pairs = fit(marginals="pairs", **options).fit(frame).sample(10_000, random_state=0)
    assert holds(pairs).mean() < 0.7 * holds(frame).mean()


@pytest.mark.slow
def test_pairs_of_a_target_come_first():
    """Of few records they are all that is measured; of more the others are too."""
    seen = []
    for n in (1200, 60_000):
        sampler = make(1.0, **AUTO, target="level").fit(wide(n))
        seen.append([part.columns for part in sampler.marginals_])
        assert all("level" in columns for columns in seen[-1][:7])
    assert all("level" in columns for columns in seen[0])
    assert not all("level" in columns for columns in seen[1])
    # It is drawn last, from all the others.
    assert sampler.law_.conditionals[-1].column == NAMES.index("level")
    both = make(1.0, **AUTO, target=["day", "age"]).fit(wide(1200))
    assert [c.column for c in both.law_.conditionals[-2:]] == [4, 0]


def test_a_workload_has_less_noise():
    weighed = make(workload={"job": 4, ("age", "day"): 2}).fit(X).marginals_
    scale = {part.columns: part.noise_scale for part in weighed}
    assert scale[("age", "job")] == pytest.approx(scale[("age", "pay")] / 4)
    assert scale[("age", "day")] == pytest.approx(scale[("age", "pay")] / 2)
    plain = {part.columns: part.noise_scale for part in make().fit(X).marginals_}
    assert scale[("age", "job")] < plain[("age", "job")] < scale[("age", "pay")]


# Conditions.


@pytest.mark.slow
@pytest.mark.parametrize("bins", [4, "auto"])
def test_records_fulfil_conditions(bins):
    sampler = make(np.inf, n_bins=bins).fit(X)
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
    sampler = make(np.inf, schema=PAIR, **LARGE).fit(frame)
    given = sampler.sample(20_000, conditions={"a": "x"}, random_state=0)
    assert distance(frame[frame["a"] == "x"], given, "b") < 0.05
    assert distance(frame, given, "b") > 0.3
    # Rows weigh what the columns before leave to a condition.
    everything = sampler.effective_size()
    assert sampler.effective_size({"a": "x"}) == pytest.approx(everything)
    assert sampler.effective_size({"b": "x"}) < 0.9 * everything


def test_conditions_that_cannot_be():
    sampler = make().fit(X)
    for conditions, message in (
        ({"salary": 3}, "'salary'"),
        ({"age": 101}, "'age' must hold declared values"),
        ({"job": "judge"}, "'job' holds a value outside"),
        ({"job": []}, "'job' must list at least one value"),
    ):
        for method in (partial(sampler.sample, 2), sampler.effective_size):
            with pytest.raises(ValueError, match=message):
                method(conditions=conditions)
    shares = sampler.law_.shares[NAMES.index("job")]
    shares[:] = [1.0, 0.0, 0.0]
    drawn = sampler.sample(5, conditions={"job": ["nurse", "baker"]})["job"]
    assert (drawn == "baker").all()
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
    monkeypatch.setattr(_conditional_sampling, "_BLOCK", 19 * 7)
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
    frame = X[["day", "job", "age", "level", "pay"]].set_index(np.arange(600) + 7)
    frame["job"] = frame["job"].astype("category")
    sampler = make(np.inf).fit(frame)
    assert sampler.n_features_in_ == 5
    assert_array_equal(sampler.feature_names_in_, frame.columns)
    drawn = sampler.sample(500, random_state=0)
    assert list(drawn.columns) == list(frame.columns)
    assert drawn.dtypes.to_dict() == {name: SCHEMA[name].dtype for name in frame}
    assert drawn.index.equals(pd.RangeIndex(500))
    assert drawn["age"].between(0, 100).all()
    assert drawn["day"].between("2020-01-01", "2020-12-31").all()
    assert not drawn.drop(columns="pay").isna().any().any()
    # The order of columns is no matter.
    for part, other in zip(sampler.marginals_, make(np.inf).fit(X).marginals_, strict=True):
        assert_array_equal(part.counts, other.counts)
    rows = make().fit(X.to_numpy().tolist()).sample(2)
    assert list(rows.columns) == NAMES


@pytest.fixture
def short_scores(monkeypatch):
    """Let scores draw fewer records."""
    monkeypatch.setattr(_table_sampler, "_MOST", 4096)


@pytest.mark.slow
@pytest.mark.usefixtures("short_scores")
def test_a_search_over_parameters():
    grid = {"epsilon": [4.0, 50.0], "n_bins": ["auto", 4]}
    search = GridSearchCV(make(), grid, cv=2, error_score="raise").fit(X)
    assert search.best_params_["epsilon"] == 50.0
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.sample(2).shape == (2, 5)


@pytest.mark.slow
@pytest.mark.usefixtures("short_scores")
def test_at_the_end_of_a_pipeline():
    def capped(frame):
        return frame.assign(pay=frame["pay"].clip(upper=5))

    steps = make_pipeline(FunctionTransformer(capped), make(n_bins="auto"))
    steps.set_output(transform="pandas").fit(X)
    drawn = steps[-1].sample(20, conditions={"job": "nurse"}, random_state=0)
    assert list(drawn.columns) == NAMES
    assert drawn.dtypes.equals(X.dtypes)
    assert same(steps[-1], make(n_bins="auto").fit(capped(X)))
    assert steps.score(X) == steps[-1].score(capped(X))


# What is said of it.


def test_the_report_says_who_the_neighbours_are():
    kept, hidden = (
        make(neighbours=name, workload={"job": 2.0}).fit(X).privacy_
        for name in ("replace_one", "add_or_remove")
    )
    assert kept.neighbouring == "replace one record; the number of records is public"
    relation = "add or remove one record of at least two; the number of records is not public"
    assert hidden.neighbouring == relation
    assert set(kept.public) - set(hidden.public) == {"n_samples"}
    assert {"schema", "n_bins", "marginals", "workload"} <= set(hidden.public)
    assert "workload" not in make().fit(X).privacy_.public
    assert kept.sensitivity == pytest.approx(math.sqrt(2) * hidden.sensitivity)
    assert kept.noise_multiplier == pytest.approx(hidden.noise_multiplier)
    assert "seed" in kept.noise_source
    assert make(random_state=None).fit(X).privacy_.noise_source == "operating system entropy"
    assert make(np.inf).fit(X).privacy_.delta == 0
    assert "exponential mechanism" in str(make(**AUTO).fit(wide()).privacy_)


def reveals(error):
    text = ""
    while error is not None:
        text, error = text + str(error), error.__cause__ or error.__context__
    return "secret" in text or "271828" in text


@pytest.mark.parametrize("bins", [4, "auto"])
@pytest.mark.parametrize(
    ("column", "value"),
    [("job", "secret"), ("job", None), ("age", np.nan), ("age", "secret"), ("level", 271828)]
    + [("day", "secret"), ("day", pd.NaT)],
)
def test_errors_show_no_value(bins, column, value):
    frame = X.astype(object)
    frame.loc[4, column] = value
    with pytest.raises((ValueError, TypeError), match=column) as raised:
        make(n_bins=bins).fit(frame)
    assert not reveals(raised.value)
    assert reveals(ValueError("secret"))
