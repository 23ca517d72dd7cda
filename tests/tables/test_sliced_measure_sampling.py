"""SlicedMeasureSampler: what is learned, conditions, an estimator, its words, bad input."""

import math
import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sliced_tables import ADAPTIVE, NAMES, SCHEMA, hasten, make, same, table

from sklearn_dpgen.schema import Categorical, Schema
from sklearn_dpgen.tables import _conditional_sampling, _sliced_measure_sampler
from sklearn_dpgen.tables._product_mixture import ProductMixture

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
    scale = {part.columns: np.max(part.noise_scale) for part in weighed}
    assert scale[("job",)] == pytest.approx(scale[("age",)] / 4)
    assert scale[("age", "job")] == pytest.approx(scale[("age", "pay")] / 4)
    assert scale[("age", "day")] == pytest.approx(scale[("age", "pay")] / 2)
    plain = make().fit(X).slices_
    assert scale[("job",)] < np.max(plain[2].noise_scale) < scale[("age",)]


# Conditions.


@pytest.mark.parametrize("bins", [4, "auto"])
def test_records_fulfil_conditions(bins):
    sampler = make(np.inf, max_iter=200, n_bins=bins).fit(X)
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
    rows[:, sampler.encoder_.blocks_["job"]] = [1.0, 0.0, 0.0]
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
    frame = X[["day", "job", "age", "level", "pay"]].set_index(np.arange(60) + 7)
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
    for part, other in zip(sampler.slices_, make(np.inf).fit(X).slices_, strict=True):
        assert_array_equal(part.counts, other.counts)
    rows = make().fit(X.to_numpy().tolist()).sample(2)
    assert list(rows.columns) == NAMES


def test_a_search_over_parameters():
    grid = {"epsilon": [0.01, 50.0], "n_bins": ["auto", 4]}
    search = GridSearchCV(make(**ADAPTIVE), grid, cv=2, error_score="raise").fit(X)
    assert search.best_params_["epsilon"] == 50.0
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.sample(2).shape == (2, 5)


def test_at_the_end_of_a_pipeline():
    def capped(frame):
        return frame.assign(pay=frame["pay"].clip(upper=5))

    steps = make_pipeline(FunctionTransformer(capped), make(**ADAPTIVE, n_bins="auto"))
    steps.set_output(transform="pandas").fit(X)
    drawn = steps[-1].sample(20, conditions={"job": "nurse"}, random_state=0)
    assert list(drawn.columns) == NAMES
    assert drawn.dtypes.equals(X.dtypes)
    assert same(steps[-1], make(**ADAPTIVE, n_bins="auto").fit(capped(X)))
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
    assert {"schema", "n_bins", "slices", "workload"} <= set(hidden.public)
    assert "workload" not in make().fit(X).privacy_.public
    assert kept.sensitivity == pytest.approx(math.sqrt(2) * hidden.sensitivity)
    assert kept.noise_multiplier == pytest.approx(hidden.noise_multiplier)
    assert "seed" in kept.noise_source
    assert make(random_state=None).fit(X).privacy_.noise_source == "operating system entropy"
    assert make(np.inf).fit(X).privacy_.delta == 0
    assert "exponential mechanism" in make(**ADAPTIVE).fit(X).privacy_.accountant


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


# Bad input.


@pytest.fixture
def unread(monkeypatch):
    def read(*args):
        raise AssertionError("A record was read.")

    monkeypatch.setattr(_sliced_measure_sampler, "encode_codes", read)


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
    + [({"n_slices": 0}, "'n_slices' parameter"), ({"n_rounds": 0}, "'n_rounds' parameter")]
    + [(ADAPTIVE | {"n_rounds": 4}, "n_rounds must be at most the 3 slices")]
    + [({"n_bins": "few"}, "'n_bins' parameter"), ({"n_slices": "all"}, "'n_slices' parameter")]
    + [({"n_bins": {"pay": 20_000}}, "GiB.*'pay' has the most categories, 20001")],
    ids=lambda value: str(value)[:60],
)
def test_errors_before_a_record_is_read(unread, options, message):
    with pytest.raises(ValueError, match=message):
        make(**({"population_size": 2000} | options)).fit(X)


def test_ten_thousand_categories():
    schema = Schema({"city": Categorical(range(10_000)), "job": SCHEMA["job"]})
    frame = pd.DataFrame({"city": [3, 9] * 20, "job": ["baker", "pilot"] * 20})
    with pytest.raises(ValueError, match=r"1\.8 GiB.*'city' has the most categories, 10000"):
        make(schema=schema, population_size=4000).fit(frame)
    drawn = make(np.inf, schema=schema, max_iter=40).fit(frame).sample(100, random_state=0)
    assert drawn["city"].isin([3, 9]).mean() > 0.8


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
    [{"slices": [("age",)]}, {"population_size": 2}, {"n_bins": 2}, {"max_iter": 1}]
    + [{"workload": {"age": 1e6}}, {"slices": [("age", "job", "day")]}]
    + [ADAPTIVE, {"slices": "adaptive", "n_slices": 1}, {"learning_rate": 1e3}],
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
    frame = pd.DataFrame({"only": ["x"] * 30})
    for slices in ("adaptive", [("only",)]):
        sampler = make(epsilon, schema=one, slices=slices, neighbours=neighbours).fit(frame)
        assert sampler.sample(5).shape == (5, 1)
        assert sampler.privacy_.n_releases == 1
    for frame in (X[:1], pd.concat([X[:1]] * 20)):
        drawn = make(epsilon, neighbours=neighbours, max_iter=200).fit(frame).sample(50)
        assert len(drawn) == 50
        assert epsilon < np.inf or (drawn["job"] == X["job"][0]).mean() > 0.9
