"""Rows that break rules are redrawn, and conditions and computed values keep their effect."""

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.schema import (
    Categorical,
    FunctionalDependency,
    Implication,
    Inequality,
    Numeric,
    Schema,
    Sum,
    Table,
)
from sklearn_dpgen.tables import RelationalSampler, _person_rules, _releases
from sklearn_dpgen.tables._distributions import LogLinearConditional

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.NoisyCountsWarning"),
    pytest.mark.filterwarnings("ignore:.* max_rows=:UserWarning"),
]
N = 300


def fit(columns, rules, values, **options):
    """Fit a panel of persons with equally many rows.

    Parameters
    ----------
    columns : dict of str to Column
    rules : list of Rule
    values : dict of str to ndarray of shape (N, n_rows)
    """
    n_rows = next(iter(values.values())).shape[1]
    panel = Table(Schema(columns), primary_key="id", max_rows=n_rows, **options)
    ids = np.repeat(np.arange(N), n_rows)
    frame = pd.DataFrame({"id": ids} | {name: given.ravel() for name, given in values.items()})
    sampler = RelationalSampler(
        np.inf,
        schema=panel,
        constraints=rules,
        population_size=500,
        max_iter=4,
        random_state=0,
        device="cpu",
    )
    return sampler.fit(frame)


def digits(high=9):
    return Numeric(0, high, integer=True)


def uniform(n_rows, high=9):
    return np.random.default_rng(0).integers(0, high + 1, (N, n_rows))


def ascending(n_rows, high):
    rng = np.random.default_rng(1)
    return np.sort([rng.choice(high + 1, n_rows, replace=False) for _ in range(N)])


@pytest.mark.slow
def test_rows_are_redrawn():
    # Half of the rows have a sum that is not declared, so one in 16 persons would have none.
    values = {"a": uniform(4), "b": uniform(4)[::-1], "sum": uniform(4)}
    sampler = fit({name: digits() for name in values}, [Sum("sum", ["a", "b"])], values)
    assert sampler.acceptance_rate() > 0.9
    drawn = sampler.sample(100, random_state=0)
    assert (drawn["sum"] == drawn["a"] + drawn["b"]).all()


def test_nulls_break_no_rule():
    value = np.where(np.random.default_rng(6).uniform(size=(N, 2)) < 0.5, np.nan, uniform(2))
    state = np.random.default_rng(7).choice(["a", "b"], (N, 2))
    columns = {
        "at": digits(),
        "value": Numeric(0, 9, integer=True, nullable=True),
        "state": Categorical(["a", "b"]),
    }
    rules = [
        Implication({"previous.state": "b"}, then={"value": 5}),
        Inequality("previous.value", "value"),
    ]
    values = {"at": ascending(2, 9), "value": value, "state": state}
    drawn = fit(columns, rules, values, sequence_index="at").sample(200, random_state=0)
    before = drawn.groupby("id").shift(1)
    later = drawn[before["state"] == "b"]
    assert set(later["value"].dropna()) <= {5}
    assert later["value"].isna().mean() > 0.2
    assert not (before["value"] > drawn["value"]).any()
    assert before["value"].isna()[drawn["value"].notna() & before["state"].notna()].any()


def test_all_rows_of_a_person_are_redrawn():
    # Redraws of values do not change the index, which breaks the rule in half of the persons.
    rule = Implication({"previous.at": [0, 2, 4, 6, 8]}, then={"at": [1, 3, 5, 7, 9]})
    values = {"at": ascending(2, 9), "x": uniform(2)}
    columns = {"at": digits(), "x": digits()}
    sampler = fit(columns, [rule], values, sequence_index="at", ties=False)
    assert sampler.acceptance_rate() > 0.9
    drawn = sampler.sample(100, random_state=0)
    before = drawn.groupby("id")["at"].shift(1)
    assert (drawn["at"] % 2 == 1)[before % 2 == 0].all()


@pytest.mark.slow
def test_rows_know_the_index_of_the_next_row():
    # A row that starts before the end of the row before could not be redrawn alone.
    values = {"start": ascending(6, 19), "end": uniform(6, 19)}
    columns = {"start": digits(19), "end": digits(19)}
    rule = Inequality("previous.end", "start")
    sampler = fit(columns, [rule], values, sequence_index="start", ties=False)
    assert sampler.acceptance_rate() > 0.6
    drawn = sampler.sample(100, random_state=0)
    assert not (drawn.groupby("id")["end"].shift(1) > drawn["start"]).any()


def test_the_first_index_is_drawn_under_rules_of_the_person():
    # Nearly all persons are born later than a row that is drawn regardless of the birth.
    birth = np.random.default_rng(2).integers(90, 100, (N, 1))
    values = {"birth": birth.repeat(2, axis=1), "at": uniform(2, 99)}
    columns = {"birth": digits(99), "at": digits(99)}
    rule = Inequality("birth", "at")
    sampler = fit(columns, [rule], values, sequence_index="at", static=["birth"])
    assert sampler.acceptance_rate() > 0.8
    drawn = sampler.sample(100, random_state=0)
    assert (drawn["birth"] <= drawn["at"]).all()


def test_values_are_drawn_under_rules():
    # Of 1200 rows, 8 fulfil the rule, which redraws alone would hardly find.
    a, b = np.full((N, 4), 9), np.zeros((N, 4), dtype=int)
    a[:2, :2], b[2:4, :2] = 0, 9
    columns = {"a": digits(), "b": digits()}
    sampler = fit(columns, [Inequality("a", "b")], {"a": a, "b": b})
    assert sampler.acceptance_rate() > 0.9
    drawn = sampler.sample(100, random_state=0)
    assert (drawn["a"] <= drawn["b"]).all()


@pytest.mark.slow
def test_later_rows_depend_on_computed_values():
    # In private rows, the state alternates and w mostly equals it; the city says nothing of either.
    rng = np.random.default_rng(3)
    states = (np.arange(5) + uniform(1, 1)) % 2
    columns = {"at": digits(), "state": digits(1), "w": digits(1), "city": Categorical(["a", "b"])}
    values = {
        "at": ascending(5, 9),
        "state": states,
        "w": np.where(rng.uniform(size=states.shape) < 0.1, 1 - states, states),
        "city": rng.choice(["a", "b"], states.shape),
    }
    # The state that the next row depends on is that of the city.
    rule = FunctionalDependency("state", "city", {"a": 0, "b": 1})
    options = {"sequence_index": "at", "ties": False}
    for rules, least, most in (([rule], 0.7, 1.0), (None, 0.4, 0.6)):
        drawn = fit(columns, rules, values, **options).sample(300, random_state=0)
        before = drawn.groupby("id")["city"].shift(1).dropna()
        assert len(before) > 900
        alternates = (drawn.loc[before.index, "w"] != (before == "b")).mean()
        assert least < alternates <= most


@pytest.fixture(scope="module")
def patients():
    """Return persons of whom men are ill nine times as often as women, with a rule that holds."""
    rng = np.random.default_rng(4)
    sex = rng.choice(["f", "m"], (N, 1)).repeat(2, axis=1)
    ill = np.where(rng.uniform(size=(N, 2)) < np.where(sex == "f", 0.1, 0.9), "yes", "no")
    columns = {"sex": Categorical(["f", "m"]), "ill": Categorical(["no", "yes"])}
    rule = Implication({"ill": "yes"}, then={"sex": ["f", "m"]})
    return fit(columns, [rule], {"sex": sex, "ill": ill}, static=["sex"])


@pytest.mark.slow
def test_acceptance_rates_are_of_persons_under_conditions(monkeypatch, patients):
    assert patients.acceptance_rate() == patients.acceptance_rate({"ill": "yes"}) == 1
    # No rows of men are kept.
    project = _person_rules.TableRules.project
    monkeypatch.setattr(
        _person_rules.TableRules, "project", lambda *args: project(*args) & (args[1]["sex"] == "f")
    )
    assert 0.3 < patients.acceptance_rate() < 0.7
    assert 0 < patients.acceptance_rate({"ill": "yes"}) < 0.25
    drawn = patients.sample(200, conditions={"ill": "yes"}, random_state=0)
    assert (drawn["sex"] == "f").all()
    assert (drawn.groupby("id")["ill"].first() == "yes").all()
    with pytest.raises(
        ValueError, match=r"by 0 of [5-9]\d{3} drawn persons under the conditions on \['sex'\]"
    ):
        patients.sample(5, conditions={"sex": "m"}, random_state=0)


@pytest.mark.parametrize("n_rejected", [0, 1, 2])
def test_redrawn_rows_keep_the_probabilities_of_conditions(monkeypatch, patients, n_rejected):
    project, calls = _person_rules.TableRules.project, []

    def rejecting(self, frame):
        kept = project(self, frame)
        if "ill" in frame:
            # Rows of each turn are rejected as they are drawn, and then as they are redrawn.
            calls.append(len(frame))
            kept &= len(calls) % (n_rejected + 1) == 0
        return kept

    monkeypatch.setattr(_person_rules.TableRules, "project", rejecting)
    drawn = patients.sample(1000, conditions={"ill": "yes"}, random_state=0)
    persons = drawn.groupby("id").first()
    assert len(calls) > 0 == len(calls) % (n_rejected + 1)
    assert (persons["ill"] == "yes").all()
    assert (persons["sex"] == "m").mean() > 0.75


@pytest.mark.slow
def test_first_rows_inside_a_leaf_fulfil_conditions(monkeypatch):
    # All rows of a person are in one leaf of 157 values, in the order of their values.
    monkeypatch.setattr(_releases, "MAX_LEAVES", 64)
    values = {"at": 5000 + uniform(3), "x": uniform(3)}
    columns = {"at": digits(9999), "x": digits()}
    sampler = fit(columns, None, values, sequence_index="at")
    drawn = sampler.sample(200, random_state=0)
    assert drawn["at"].between(4900, 5300).all()
    assert drawn["at"].nunique() > 50
    # Most persons have one of their rows before the median.
    median = float(drawn["at"].median())
    conditions = {"at": pd.Interval(median, np.inf, closed="both")}
    drawn = sampler.sample(100, conditions=conditions, random_state=0)
    assert (drawn.groupby("id")["at"].first() >= median).all()
    assert drawn.groupby("id")["at"].is_monotonic_increasing.all()


def test_first_rows_that_make_room_for_others_fulfil_conditions(monkeypatch):
    values = {"at": uniform(1), "x": uniform(1)}
    sampler = fit({"at": digits(), "x": digits()}, None, values, sequence_index="at")
    positions = _person_rules.RuledSimulator.positions

    def moved(self, *args):
        rows = positions(self, *args)
        rows.index[rows.starts[::2]] = 9
        return rows

    monkeypatch.setattr(_person_rules.RuledSimulator, "positions", moved)
    drawn = sampler.sample(100, conditions={"at": [0, 1, 2, 3]}, random_state=0)
    assert set(drawn["at"]) == {0, 1, 2, 3}


def test_rules_of_persons_compute_their_columns():
    born = uniform(1).repeat(2, axis=1)
    values = {"born": born, "group": born // 5, "value": uniform(2)}
    columns = {"born": digits(), "group": digits(1), "value": digits()}
    rules = [FunctionalDependency("group", "born", {n: n % 2 for n in range(10)})]
    drawn = fit(columns, rules, values, static=["born", "group"]).sample(100, random_state=0)
    assert (drawn["group"] == drawn["born"] % 2).all()


def test_persons_are_not_repeated_under_conditions():
    rng = np.random.default_rng(5)
    sex = rng.choice(["f", "m"], (N, 1))
    ill = np.where(rng.uniform(size=(N, 1)) < np.where(sex == "f", 0.1, 0.9), "yes", "no")
    columns = {
        "sex": Categorical(["f", "m"]),
        "level": Numeric(0, 1),
        "ill": Categorical(["no", "yes"]),
    }
    values = {"sex": sex, "level": rng.uniform(size=(N, 1)), "ill": ill}
    sampler = fit(columns, None, values, static=["sex", "level"])
    drawn = sampler.sample(4000, conditions={"ill": "yes"}, random_state=0)
    assert len(drawn) == 4000
    assert drawn["level"].is_unique


@pytest.mark.parametrize("conditions", [None, {"at": pd.Interval(-np.inf, np.inf)}])
def test_conditions_keep_the_shares_of_values_in_a_block(conditions):
    values = {"at": uniform(1), "x": uniform(1)}
    sampler = fit({"at": digits(), "x": digits()}, None, values, sequence_index="at")
    distribution, first = sampler.distribution_, sampler._layout().stages[1].first
    # One block: nine values have half of the persons, the last one the other half.
    distribution.blocks[first] = np.array([0, 0, 1])
    distribution.shares[first] = np.array([0.5, 0.5, 1.0])
    distribution.starts[first] = np.array([0, 9])
    base = np.array([0.0, -np.inf])
    distribution.conditionals[first] = LogLinearConditional(first, base, ())
    drawn = sampler.sample(2000, conditions=conditions, random_state=0)
    assert abs((drawn["at"] == 9).mean() - 0.5) < 0.06
