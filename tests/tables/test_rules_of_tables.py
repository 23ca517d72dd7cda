"""Every record that is drawn fulfils every rule, as a user of pandas sees it."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rule_tables import CITIES, NAMES, RULES, SCHEMA, make, n_broken, table
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from sklearn_dpgen.inference import estimate_means, estimate_shares
from sklearn_dpgen.schema import (
    Categorical,
    Datetime,
    FunctionalDependency,
    Identifier,
    Implication,
    Inequality,
    Numeric,
    Ordinal,
    Schema,
    Sum,
)
from sklearn_dpgen.tables import (
    TableSampler,
    _conditional_sampling,
    _table_sampler,
)
from sklearn_dpgen.tables._table_rules import TableRules

X = table()
FITTED = make().fit(X)
# One in three days or so.
DAYS = pd.Interval(pd.Timestamp("2020-03-01"), pd.Timestamp("2020-07-01"))


@pytest.mark.slow
def test_drawn_records_fulfil_all_rules(monkeypatch):
    free = make(constraints=None).fit(X)
    frame = FITTED.sample(3000, random_state=0)
    assert [n_broken(frame, rule) for rule in RULES] == [0] * len(RULES)
    assert list(frame.columns) == NAMES
    pd.testing.assert_series_equal(frame.dtypes, free.sample(3).dtypes)
    # The same rules are broken where they are not declared, and where nothing is drawn again.
    assert min(n_broken(free.sample(300, random_state=0), rule) for rule in RULES) > 10
    project = TableRules.project
    monkeypatch.setattr(TableRules, "project", lambda *args: project(*args) | True)
    careless = FITTED.sample(3000, random_state=0)
    # What is computed, and what barred blocks leave out, is right even so.
    assert sum(n_broken(careless, rule) for rule in RULES) > 0


def test_drawn_columns_keep_their_declaration():
    frame = FITTED.sample(2000, random_state=1)
    assert frame["key"].tolist() == [f"person {i}" for i in range(2000)]
    assert SCHEMA.check(frame).to_numpy().sum() == 0
    total = frame["total"].dropna()
    assert total.max() <= 30
    assert (frame["total"].isna() == frame["high"].isna()).all()
    # Sums beyond the bounds are drawn again; they do occur.
    assert total.max() > 25


@pytest.mark.slow
def test_keys_are_distinct_in_draws_of_several_blocks(monkeypatch):
    monkeypatch.setattr(_conditional_sampling, "_BLOCK", 14 * 30)
    for sampler in (FITTED, make(constraints=None).fit(X)):
        frame = sampler.sample(100, random_state=0)
        assert frame["key"].tolist() == [f"person {i}" for i in range(100)]
        assert frame.index.tolist() == list(range(100))


NUMBERS = ["low", "high", "tenth", "real", "level", "other"]
CONDITIONS = {
    "low": [3, pd.Interval(2, 9), [0, 1, pd.Interval(10, 15, closed="both")]],
    "high": [None, pd.Interval(5, np.inf), [None, 7]],
    "tenth": [0.3, [0.1, 0.7, pd.Interval(1.2, 1.9)]],
    "real": [pd.Interval(-0.5, 1.5), pd.Interval(0, 2, closed="left")],
    "level": [0.5, [0, 2.5], pd.Interval(0, 1, closed="both")],
    "start": [DAYS, [DAYS, pd.Timestamp("2020-12-31")]],
    "end": [None, DAYS, [None, pd.Timestamp("2020-05-05")]],
    "city": ["Bonn", ["Trier", "Cologne"]],
    "state": ["NW"],
    "flag": [None, 1, [0, None]],
    "other": [0, 1],
}


def inequalities():
    pairs = st.lists(st.sampled_from(NUMBERS), min_size=2, max_size=2, unique=True)
    dates = st.permutations(["start", "end"])
    return st.builds(
        lambda pair, strict: Inequality(*pair, strict=strict), pairs | dates, st.booleans()
    )


@st.composite
def implications(draw):
    names = draw(st.lists(st.sampled_from([*CONDITIONS]), min_size=2, max_size=3, unique=True))
    values = {name: draw(st.sampled_from(CONDITIONS[name])) for name in names}
    n_given = draw(st.integers(1, len(names) - 1))
    given = {name: values[name] for name in names[:n_given]}
    return Implication(given, {name: values[name] for name in names[n_given:]})


LETTERS = {(city, flag): city[0] != "B" for city in CITIES for flag in (0, 1)}
COMPUTED = [
    Sum("total", ["low", "high"]),
    Sum("total", ["other", "low"]),
    Sum("sum", ["tenth", "real", "level"]),
    Sum("real", ["tenth", "level"]),
    FunctionalDependency("state", "city", CITIES),
    FunctionalDependency("flag", ["city", "other"], LETTERS),
    FunctionalDependency("level", "tenth", {0.3: 0.5, 0.7: 2.5, 2.0: 1, 0.1: 0, 1.2: 0}),
    FunctionalDependency("high", "other", {0: None, 1: 13}),
]


@pytest.mark.slow
@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.lists(inequalities() | implications(), max_size=3),
    st.lists(st.sampled_from(COMPUTED), max_size=2, unique_by=lambda rule: repr(rule)[:14]),
    st.sampled_from([None, *CONDITIONS]),
    st.sampled_from([4, 30]),
    st.integers(0, 2),
)
def test_random_rules_hold_exactly(drawn, computed, name, n_bins, seed):
    rules = [*drawn, *computed]
    try:
        TableRules(rules, SCHEMA)
    except ValueError as error:
        # Rules that were drawn at random may contradict one another; see the test of errors.
        assume("constraints" not in str(error))
        raise
    # A fit in even bins, which takes no time.
    sampler = make(constraints=rules, n_bins=n_bins, marginals=[]).fit(X)
    conditions = None if name is None else {name: CONDITIONS[name][0]}
    try:
        frame = sampler.sample(40, conditions=conditions, random_state=seed)
    except (ValueError, UserWarning) as error:
        # Or be hardly ever fulfilled.
        assume(not any(text in str(error) for text in ("fulfil", "effective size of")))
        raise
    assert len(frame) == 40
    assert [n_broken(frame, rule) for rule in rules] == [0] * len(rules)
    if conditions:
        values = CONDITIONS[name][0]
        held = values.__contains__ if isinstance(values, pd.Interval) else values.__eq__
        assert frame[name].isna().all() if values is None else frame[name].map(held).all()


def test_sums_of_decimals_are_those_of_floats():
    """0.1 + 0.7 is not 0.8, and 0.1 + 0.2 + 0.3 depends on the order."""
    schema = Schema(
        {name: Numeric(0, 1, step=0.1) for name in "abc"} | {"total": Numeric(0, 3, step=0.1)}
    )
    rng = np.random.default_rng(0)
    parts = pd.DataFrame(rng.integers(0, 11, (300, 3)) / 10, columns=list("abc"))
    frame = parts.assign(total=0.0)
    rules = [Sum("total", ["c", "a", "b"])]
    made = make(schema=schema, constraints=rules).fit(frame).sample(2000, random_state=0)
    assert (made["total"] == made["c"] + made["a"] + made["b"]).all()
    assert (made["total"] != made["b"] + made["a"] + made["c"]).any()
    # None is lost to rounding.
    assert set(made["total"].round(1)) == set(np.round(np.arange(31) / 10, 1))


@pytest.mark.slow
def test_the_share_that_is_kept():
    frame = FITTED.sample(20_000, random_state=0)
    assert 0.5 < FITTED.acceptance_rate() < 1
    assert FITTED.acceptance_rate() == FITTED.acceptance_rate({})
    assert make(constraints=None).fit(X).acceptance_rate() == 1.0
    # Columns that rules do not touch, and a rule that is fulfilled by half of the records.
    rules = [Implication({"flag": [0, 1, None], "city": [*CITIES]}, {"level": [0, 0.5]})]
    half = make(constraints=rules).fit(X)
    assert half.acceptance_rate() == pytest.approx((X["level"] <= 0.5).mean(), abs=0.02)
    # Conditions on sums are met by drawing again, those on labels that follow from others are not.
    share = frame["total"].between(10, 20).mean() * FITTED.acceptance_rate()
    between = {"total": pd.Interval(10, 20, closed="both")}
    assert FITTED.acceptance_rate(between) == pytest.approx(share, abs=0.01)
    assert FITTED.acceptance_rate({"state": "RP"}) == pytest.approx(
        FITTED.acceptance_rate({"city": "Trier"}), abs=0.01
    )
    assert half.acceptance_rate({"level": 0.5}) == 1.0
    assert half.acceptance_rate({"level": 2.5}) == 0.0


@pytest.mark.slow
def test_rules_and_conditions_together():
    conditions = {"low": pd.Interval(10, 15), "state": "RP", "total": pd.Interval(20, 28)}
    frame = FITTED.sample(200, conditions=conditions, random_state=0)
    assert [n_broken(frame, rule) for rule in RULES] == [0] * len(RULES)
    assert frame["low"].between(11, 15).all()
    assert (frame["city"] == "Trier").all()
    assert frame["total"].between(21, 28).all()
    with pytest.raises(ValueError, match="conditions must not name identifiers, .* got 'key'"):
        FITTED.sample(1, conditions={"key": "person 0"})
    with pytest.raises(
        ValueError, match="conditions on 'state' must hold declared values|'state' holds"
    ):
        FITTED.sample(1, conditions={"state": "BY"})
    with pytest.raises(
        ValueError, match="conditions must name columns of the schema, got 'country'"
    ):
        FITTED.sample(1, conditions={"country": "DE"})
    assert FITTED.effective_size({"low": 3}) > 1


@pytest.mark.slow
def test_conditions_on_columns_that_are_looked_up():
    """They are passed on to the labels that these are looked up by."""
    rules = [
        FunctionalDependency("state", "city", CITIES),
        FunctionalDependency("total", "level", {0: 3, 0.5: 4, 1: None, 2.5: 4}),
        FunctionalDependency("flag", "low", {i: int(i > 12) for i in range(21)}),
        FunctionalDependency("high", "total", {3: 5, 4: 6}),
    ]
    sampler = make(constraints=rules).fit(X)
    cases = [
        ({"state": "NW"}, 1.0),
        ({"state": ["NW", "RP"]}, 1.0),
        ({"total": pd.Interval(3, 9)}, 1.0),
        ({"state": "RP", "city": "Trier"}, 1.0),
        ({"state": "RP", "city": "Bonn"}, 0.0),
        # Of nulls, of numbers in bins and of what is looked up itself.
        ({"total": None}, 0.25),
        ({"flag": 1}, 8 / 21),
        ({"high": 6}, 0.5),
    ]
    for conditions, rate in cases:
        assert sampler.acceptance_rate(conditions) == pytest.approx(rate, abs=0.08)
        if rate:
            made = sampler.sample(200, conditions=conditions, random_state=0)
            assert [n_broken(made, rule) for rule in rules] == [0] * 4
            for name, values in conditions.items():
                if values is None:
                    assert made[name].isna().all()
                elif isinstance(values, pd.Interval):
                    assert made[name].map(lambda v, values=values: v in values).all()
                else:
                    assert made[name].isin(values if isinstance(values, list) else [values]).all()


@pytest.mark.slow
def test_what_is_hardly_ever_fulfilled_ends():
    counted, draw = [], _conditional_sampling.RecordSampler.draw_with_rules

    def watch(self, n, rng):
        counted.append(n)
        return draw(self, n, rng)

    rules = [Implication({"other": [0, 1], "city": [*CITIES]}, {"tenth": 0.3})]
    sampler = make(constraints=rules).fit(X.assign(tenth=1.5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_conditional_sampling.RecordSampler, "draw_with_rules", watch)
        with pytest.raises(ValueError, match=r"constraints are fulfilled by \d+ of \d+ drawn"):
            sampler.sample(5)
    assert sum(counted) < 100_000
    some = make(constraints=rules).fit(X.assign(tenth=np.where(np.arange(len(X)) < 2, 0.3, 1.5)))
    with pytest.warns(UserWarning, match="a small part of the fitted distribution"):
        frame = some.sample(20, random_state=0)
    assert (frame["tenth"] == 0.3).all()


@pytest.mark.parametrize("rate", [1.0, 0.3, 0.02])
def test_draws_are_bounded_and_in_order(rate):
    drawn, rng = [], np.random.default_rng(0)

    def draw(n):
        frame = pd.DataFrame({"place": np.arange(n) + sum(drawn)})
        drawn.append(n)
        return frame, rng.uniform(size=n) < rate

    frame = _conditional_sampling.draw_kept(draw, 1000, 500)
    assert frame["place"].is_monotonic_increasing
    assert len(frame) == 1000
    assert max(drawn) <= 500
    assert sum(drawn) < 1.3 * 1000 / rate + 600


@pytest.mark.slow
def test_rules_are_parameters_as_others_are(monkeypatch):
    monkeypatch.setattr(_table_sampler, "_MOST", 4096)
    sampler = make()
    copied = clone(sampler)
    assert copied.get_params()["constraints"] == RULES
    shown = repr(TableSampler(schema=SCHEMA, constraints=RULES[:1]))
    assert "Inequality(low='low',high='high',strict=False)" in "".join(shown.split())
    loaded = pickle.loads(pickle.dumps(FITTED))
    pd.testing.assert_frame_equal(
        loaded.sample(50, random_state=0), FITTED.sample(50, random_state=0)
    )
    assert FITTED.privacy_.public[-1] == "constraints"
    assert "constraints" not in make(constraints=None).fit(X).privacy_.public
    search = GridSearchCV(make(), {"constraints": [None, RULES[:2], RULES]}, cv=2)
    search.fit(X)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_the_score_is_that_of_records_with_rules():
    """Records that keep a rule are nearer to a law that knows it."""
    rng = np.random.default_rng(0)
    schema = Schema({"a": Ordinal(range(4)), "b": Ordinal(range(4)), "sum": Ordinal(range(7))})
    low, high = np.sort(rng.integers(0, 4, (2, 3000)), axis=0)
    frame = pd.DataFrame({"a": low, "b": high, "sum": low + high})
    rules = [Inequality("a", "b"), Sum("sum", ["a", "b"])]
    options = {"schema": schema, "marginals": [("a",)]}
    free, ruled = (make(constraints=c, **options).fit(frame) for c in (None, rules))
    assert ruled.score(frame) > free.score(frame) + 0.05


@pytest.mark.slow
def test_nulls():
    n = 600
    frame = X.iloc[:n].assign(high=np.nan)
    made = make().fit(frame).sample(100, random_state=0)
    assert made["high"].isna().all()
    assert made["total"].isna().all()
    # None is a value where it is listed.
    rules = [
        Implication({"other": 1}, {"end": None}),
        Implication({"flag": None}, {"level": pd.Interval(0.5, 1, closed="both")}),
        Implication({"high": pd.Interval(-1, 25)}, {"city": "Bonn"}),
        FunctionalDependency("total", "flag", {None: 5, 0: None, 1: 2}),
    ]
    made = make(constraints=rules).fit(X).sample(1000, random_state=0)
    assert made.loc[made["other"] == 1, "end"].isna().all()
    assert made.loc[made["other"] == 0, "end"].notna().any()
    assert set(made.loc[made["flag"].isna(), "level"]) == {0.5, 1}
    assert set(made.loc[made["high"].notna(), "city"]) == {"Bonn"}
    assert set(made.loc[made["high"].isna(), "city"]) != {"Bonn"}
    assert set(made.loc[made["flag"].isna(), "total"]) == {5}
    assert made.loc[made["flag"] == 0, "total"].isna().all()
    assert set(made.loc[made["flag"] == 1, "total"]) == {2}


def test_dates_in_zones():
    zoned = {
        "first": Datetime("2020-03-28", "2020-03-31", resolution="h", zone="Europe/Paris"),
        "last": Datetime("2020-03-28", "2020-03-31", resolution="m", zone="Asia/Tokyo"),
    }
    schema = Schema(zoned)
    rng = np.random.default_rng(0)
    hours = rng.integers(0, 72, (2, 500))
    frame = pd.DataFrame(
        {
            name: pd.Timestamp("2020-03-28", tz="UTC") + pd.to_timedelta(part, unit="h")
            for name, part in zip(zoned, hours, strict=True)
        }
    )
    moment = pd.Timestamp("2020-03-29 03:00", tz="Europe/Paris")
    rules = [
        Inequality("first", "last"),
        Implication({"first": moment}, {"last": pd.Interval(moment, moment + pd.Timedelta("9h"))}),
    ]
    made = make(schema=schema, constraints=rules).fit(frame).sample(9000, random_state=0)
    assert (made["first"] <= made["last"]).all()
    last = made.loc[made["first"] == moment, "last"]
    assert len(last) > 5
    assert last.between(moment, moment + pd.Timedelta("9h"), inclusive="right").all()
    naive = Schema(zoned | {"last": Datetime("2020-03-28", "2020-03-31")})
    with pytest.raises(
        ValueError, match="'first' and 'last' must both have a time zone, or neither"
    ):
        TableRules(rules[:1], naive)


def test_rules_follow_one_another():
    """What a rule computes, another one may use, in whatever order they are listed."""
    schema = Schema(
        {name: Ordinal(range(4)) for name in "abc"}
        | {"ab": Ordinal(range(7)), "abc": Ordinal(range(10)), "is_large": Categorical([0, 1])}
    )
    rules = [
        FunctionalDependency("is_large", "abc", {i: int(i > 5) for i in range(10)}),
        Inequality("c", "ab"),
        Implication({"is_large": 1}, {"a": 3}),
        Sum("abc", ["ab", "c"]),
        Sum("ab", ["a", "b"]),
    ]
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.integers(0, 4, 5000) for name in "abc"})
    frame = frame.assign(ab=0, abc=0, is_large=0)
    sampler = make(schema=schema, constraints=rules).fit(frame)
    made = sampler.sample(500, random_state=0)
    assert [n_broken(made, rule) for rule in rules] == [0] * len(rules)
    assert (made["is_large"] == 1).any()
    assert {name for part in sampler.marginals_ for name in part.columns} == {*"abc"}


@pytest.mark.slow
def test_what_was_not_measured_is_not_estimated():
    """What a rule computes has no noisy counts, and the law no values of it."""
    assert estimate_means(FITTED, ["tenth"])["estimate"].between(0, 2).all()
    for name, conditions in (("total", None), ("tenth", {"state": "NW"})):
        with pytest.raises(ValueError, match="must be measured, got"):
            estimate_means(FITTED, [name], conditions=conditions)
    with pytest.raises(ValueError, match="must be measured, got"):
        estimate_shares(FITTED, [{"key": "person 0"}])


@pytest.mark.slow
def test_an_identifier_changes_no_plan():
    rest = Schema({name: column for name, column in SCHEMA.items() if name != "key"})
    with_it, without = (
        make(50.0, schema=s, constraints=None).fit(X[list(s)]) for s in (SCHEMA, rest)
    )
    assert with_it.privacy_.title == without.privacy_.title
    assert with_it.noise_multiplier_ == without.noise_multiplier_
    numbered = make(schema=Schema(dict(SCHEMA) | {"key": Identifier()})).fit(X)
    assert numbered.sample(5)["key"].tolist() == [0, 1, 2, 3, 4]
