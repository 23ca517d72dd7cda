"""Searches over tables with keys: a person trains or scores with all rows, and weighs one."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import GridSearchCV

from sklearn_dpgen.exceptions import UnpaidScoreWarning
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.model_selection import PrivateSearchCV, _private_search, _records, utility_scorer
from sklearn_dpgen.model_selection._records import PersonTables
from sklearn_dpgen.schema import Categorical, Identifier, Numeric, RelationalSchema, Schema, Table
from sklearn_dpgen.tables import RelationalSampler, _relational_sampler
from sklearn_dpgen.tables._person_layout import PersonLayout
from sklearn_dpgen.tables._person_rows import read_person_rows, stages_of
from sklearn_dpgen.utils._random import NoiseSource

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn_dpgen.exceptions.NoisyCountsWarning",
    "ignore::sklearn_dpgen.exceptions.MaxRowsWarning",
)

TREE = RelationalSchema(
    {
        "persons": Table(
            Schema({"row": Identifier(), "sex": Categorical(["f", "m"])}), primary_key="person"
        ),
        "stays": Table(
            Schema({"row": Identifier(), "cost": Numeric(0, 9, nullable=True)}),
            primary_key="stay",
            foreign_key={"who": "persons"},
            max_rows=3,
        ),
        "drugs": Table(
            Schema({"row": Identifier(), "drug": Categorical(["a", "b"])}),
            foreign_key={"stay": "stays"},
            max_rows=2,
        ),
    }
)
PANEL = Table(
    Schema({"sex": Categorical(["f", "m"]), "cost": Numeric(0, 9)}),
    primary_key="who",
    max_rows=3,
    static=["sex"],
)
N = 60


def tree(n=N):
    """Return persons with no to three stays, each with a drug or none."""
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(n), np.arange(n) % 4)
    stays = np.arange(len(who))
    return numbered(
        {
            "persons": pd.DataFrame({"person": np.arange(n), "sex": rng.choice(["f", "m"], n)}),
            "stays": pd.DataFrame({"stay": stays, "who": who, "cost": rng.uniform(0, 9, len(who))}),
            "drugs": pd.DataFrame({"stay": stays[::2], "drug": "a"}),
        }
    )


def numbered(tables):
    """Return tables with a number for each row, which no fit reads."""
    return {name: table.assign(row=np.arange(len(table))) for name, table in tables.items()}


def panel():
    tables = tree()
    rows = tables["stays"].merge(tables["persons"], left_on="who", right_on="person")
    return rows[["who", "sex", "cost"]]


def sampler(schema=TREE, **options):
    return RelationalSampler(
        schema=schema, population_size=50, device="cpu", **{"max_iter": 1} | options
    )


def search(estimator, **options):
    return PrivateSearchCV(
        estimator, {"max_iter": [1, 2]}, **{"epsilon": 5.0, "n_runs": 1} | options
    )


@pytest.fixture(autouse=True)
def few_drawn(monkeypatch):
    monkeypatch.setattr(_relational_sampler, "_SCORED", 200)


# Keys of rows that any person may have, that nobody has, or that are null.
KEYS = st.sampled_from([0, 1, 2, 3, 4, 7, None])


@st.composite
def tangled(draw):
    """Return tables with repeated, shared, missing and lost keys."""
    roots = draw(st.lists(KEYS, min_size=1, max_size=8)) + [0, 1]
    stays = draw(st.lists(st.tuples(KEYS, KEYS), max_size=12))
    drugs = draw(st.lists(KEYS, max_size=12))
    as_keys = draw(st.sampled_from([lambda k: k, lambda k: None if k is None else f"{k}"]))
    tables = {
        "persons": pd.DataFrame({"person": pd.Series(roots, dtype=object), "sex": "f"}),
        "stays": pd.DataFrame(
            {
                "stay": pd.Series([key for key, _ in stays], dtype=object),
                # As CSV files have them.
                "who": pd.Series([as_keys(key) for _, key in stays], dtype=object),
                "cost": 1.0,
            }
        ),
        "drugs": pd.DataFrame({"stay": pd.Series(drugs, dtype=object), "drug": "a"}),
    }
    return numbered(tables)


def owners_of(tables):
    """Return the set of persons to whom each row belongs, by following all keys."""
    persons = [{key} - {None} for key in tables["persons"]["person"]]
    known = set().union(*persons)
    stays = [{int(key)} & known if key is not None else set() for key in tables["stays"]["who"]]
    keys = tables["stays"]["stay"]
    drugs = [
        set().union(*(own for key, own in zip(keys, stays, strict=True) if key == drug))
        if drug is not None
        else set()
        for drug in tables["drugs"]["stay"]
    ]
    return {"persons": persons, "stays": stays, "drugs": drugs}


def is_by_person(tables, parts):
    """Return whether each row of one person is in one part, and no person is in two."""
    owners = owners_of(tables)
    seen = [set(), set()]
    for name, own in owners.items():
        rows = [set(part[name]["row"]) for part in parts]
        if rows[0] & rows[1]:
            return False
        if rows[0] | rows[1] != {i for i, who in enumerate(own) if len(who) == 1}:
            return False
        for found, part in zip(seen, rows, strict=True):
            found.update(*(own[i] for i in part))
    return not seen[0] & seen[1]


def by_rows(tables, rng):
    """Return two parts, to which each row goes by itself."""
    sides = {name: rng.random(len(table)) < 0.5 for name, table in tables.items()}
    return [{n: t[sides[n] == side] for n, t in tables.items()} for side in (False, True)]


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(tangled())
def test_all_rows_of_a_person_are_in_one_part(tables):
    records = PersonTables(tables, None, sampler())
    known = {key for key in tables["persons"]["person"] if key is not None}
    assert (records.n_units, records.n_features) == (len(known), 3)
    (training, _), (scored, _), _ = records.split(1, NoiseSource())
    assert is_by_person(tables, [training, scored])
    assert scored["persons"]["person"].nunique() == 1
    # A fit on all tables counts the same rows.
    layout = PersonLayout(stages_of(TREE))
    whole, *parts = (
        [len(rows.weights) for rows in read_person_rows(part, layout.declared, layout.encoders)]
        for part in (tables, training, scored)
    )
    assert whole == [sum(sizes) for sizes in zip(*parts, strict=True)]


def test_rows_that_are_split_by_themselves_are_seen():
    tables = tree()
    (training, _), (scored, _), _ = PersonTables(tables, None, sampler()).split(20, NoiseSource())
    assert is_by_person(tables, [training, scored])
    assert not is_by_person(tables, by_rows(tables, np.random.default_rng(0)))
    # So is a key that two persons share, if its rows go to the first of them.
    shared = tables | {"stays": tables["stays"].replace({"stay": {1: 0}})}
    (training, _), (scored, _), _ = PersonTables(shared, None, sampler()).split(20, NoiseSource())
    assert is_by_person(shared, [training, scored])
    training["drugs"] = pd.concat([training["drugs"], shared["drugs"][:1]])
    assert not is_by_person(shared, [training, scored])


def parts_of_a_search(tables, estimator):
    """Return the tables that a search fits and scores."""
    parts = {}

    class Watching(RelationalSampler):
        def fit(self, tables, y=None):
            parts["train"] = tables
            return super().fit(tables)

        def _bounded_score(self, tables):
            parts["score"] = tables
            return super()._bounded_score(tables)

    search(Watching(**estimator.get_params())).fit(tables)
    return parts["train"], parts["score"]


@pytest.mark.slow
def test_a_person_trains_or_scores(monkeypatch):
    tables = tree()
    training, scored = parts_of_a_search(tables, sampler())
    assert is_by_person(tables, [training, scored])
    assert len(scored["persons"]) == N // 5
    # The twin: each stay is a person.
    persons_of_rows = _records.persons_of_rows

    def by_row(tables, stages):
        n_persons, persons = persons_of_rows(tables, stages)
        return n_persons, persons | {"stays": np.arange(len(persons["stays"])) % n_persons}

    monkeypatch.setattr(_records, "persons_of_rows", by_row)
    assert not is_by_person(tables, parts_of_a_search(tables, sampler()))


@pytest.mark.slow
def test_a_person_of_a_panel_trains_or_scores():
    training, scored = parts_of_a_search(panel(), sampler(PANEL))
    assert not {*training["who"]} & {*scored["who"]}
    assert len(training) + len(scored) == len(panel())
    # By rows, persons would be in both.
    rows = panel().sample(frac=0.5, random_state=0)
    assert {*rows["who"]} & {*panel().drop(rows.index)["who"]}


def with_person(tables, n_stays, *, cost, sex="f"):
    """Return tables in which the last person has other rows."""
    last, first = N - 1, 10**6
    stays = tables["stays"][tables["stays"]["who"] != last]
    new = pd.DataFrame({"stay": first + np.arange(n_stays), "who": last, "cost": cost})
    drugs = tables["drugs"][tables["drugs"]["stay"].isin(stays["stay"])]
    persons = tables["persons"].copy()
    persons.loc[persons["person"] == last, "sex"] = sex
    added = pd.DataFrame({"stay": new["stay"], "drug": "b"})
    return numbered(
        {
            "persons": persons,
            "stays": pd.concat([stays, new], ignore_index=True),
            "drugs": pd.concat([drugs, added], ignore_index=True),
        }
    )


def largest_change(score, tables):
    """Return the largest change of a score by one person, times the number of persons."""
    others = [(0, 1.0, "f"), (1, 0.0, "m"), (2, 9.0, "m"), (500, 9.0, "m"), (500, np.nan, "f")]
    scores = [score(with_person(tables, n, cost=cost, sex=sex)) for n, cost, sex in others]
    return N * (max(scores) - min(scores))


@pytest.mark.slow
@pytest.mark.filterwarnings("error::sklearn_dpgen.exceptions.UnpaidScoreWarning")
def test_a_score_changes_by_at_most_one_over_the_number_of_persons():
    fitted = sampler(epsilon=np.inf, max_iter=5).fit(tree())
    full = with_person(tree(), 1, cost=1.0)
    for tables in (
        tree(),
        full,
        {name: table[:0] for name, table in tree().items()} | {"persons": tree()["persons"]},
    ):
        assert 0.1 < largest_change(fitted._bounded_score, tables) <= 1 + 1e-9
        assert 0 <= fitted._bounded_score(tables) <= 1
    # The twin: where few persons have stays, each weighs more in the score itself.
    few = tree()
    few["stays"] = few["stays"][few["stays"]["who"] < 3]
    assert largest_change(fitted._bounded_score, few) <= 1 + 1e-9
    assert largest_change(fitted.score, few) > 2


@pytest.mark.slow
def test_the_score_of_a_search_is_the_score_of_the_sampler():
    fitted = sampler(epsilon=np.inf, max_iter=5).fit(tree())
    # Persons who all have rows in all tables have no missing cells.
    tables = tree()
    tables["stays"] = pd.DataFrame({"stay": np.arange(N), "who": np.arange(N), "cost": 1.0})
    tables["drugs"] = pd.DataFrame({"stay": np.arange(N), "drug": "a"})
    tables = numbered(tables)
    everybody = sampler(epsilon=np.inf, max_iter=5).fit(tables)
    assert everybody._bounded_score(tables) == pytest.approx(1 + everybody.score(tables))
    assert everybody._bounded_score(tables) > fitted._bounded_score(tables) + 0.1


@pytest.mark.slow
def test_a_search_is_paid_for_as_planned(tmp_path):
    ledger = PrivacyLedger.create(
        tmp_path / "a", dataset="v", epsilon=9.0, delta=1e-3, unit="person"
    )
    found = search(sampler(), ledger=ledger).fit(tree())
    assert found.privacy_ == found.plan(N) == found.plan(N, 3)
    assert found.privacy_.unit == "person"
    assert found.privacy_.noise_scale["score"] > 0
    assert found.privacy_.sensitivity == 1 / 12
    text = " ".join(found.privacy_.to_text().split())
    assert "to the frequencies of validation persons" in text
    assert "predict must treat" not in text
    assert len(ledger.report().charges) == 1
    assert found.n_features_in_ == found.best_estimator_.n_features_in_ == 3
    assert {*found.sample(3)} == {*TREE}
    with pytest.warns(UnpaidScoreWarning):
        assert -1 <= found.score(tree()) <= 0


@pytest.mark.slow
def test_public_tables_score_without_noise():
    found = search(sampler()).fit(tree(), X_val=tree())
    assert found.privacy_ == found.plan(N, public_scores=True)
    assert not found.privacy_.noise_scale
    assert found.best_score_ == found.best_estimator_._bounded_score(tree())
    rated = search(sampler(), scoring=lambda fitted, tables, y: fitted.max_iter)
    assert rated.fit(tree(), X_val=tree()).best_score_ in (1, 2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.set_params(scoring=utility_scorer("cost")), "scoring must be None for a Rel"),
        (
            lambda s: s.set_params(scoring="accuracy"),
            "scoring must be None for a RelationalSampler",
        ),
        (lambda s: s.set_params(scoring=lambda *_: 1.0), "or a callable for public tables, X_val"),
        (lambda s: s.set_params(param_distributions={"schema": [TREE]}), "must not hold 'schema'"),
    ],
)
def test_what_a_search_cannot_pay_for_is_refused_before_the_charge(tmp_path, change, said):
    ledger = PrivacyLedger.create(
        tmp_path / "a", dataset="v", epsilon=9.0, delta=1e-3, unit="person"
    )
    with pytest.raises(ValueError, match=said):
        change(search(sampler(), ledger=ledger)).fit(tree())
    assert not ledger.report().charges


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda t: t | {"stays": [t["stays"]]}, TypeError, "Table 'stays': A table must be a data"),
        (lambda t: t | {"other": t["stays"]}, ValueError, "unknown \\['other'\\]"),
        (lambda t: t["stays"], TypeError, "must be a mapping of the names"),
        (lambda t: t | {"stays": t["stays"].assign(x=1)}, ValueError, "unknown \\['x'\\]"),
        (
            lambda t: t | {"stays": t["stays"].drop(columns="who")},
            ValueError,
            "Table 'stays': The columns must be those of the schema and the keys .*: missing",
        ),
        (
            lambda t: t | {"stays": t["stays"].assign(who="secret")},
            ValueError,
            "Table 'stays': foreign_key 'who' must be of the type of the primary key",
        ),
    ],
)
def test_tables_that_cannot_be_split_are_refused(change, error, said):
    with pytest.raises(error, match=said) as caught:
        search(sampler()).fit(change(tree()))
    assert "secret" not in str(caught.value)


def test_labels_are_refused():
    with pytest.raises(ValueError, match="y must be None for a RelationalSampler"):
        search(sampler()).fit(tree(), np.zeros(N))


@pytest.mark.slow
def test_polars_frames_are_split():
    polars = pytest.importorskip("polars")
    found = search(sampler()).fit({name: polars.from_pandas(t) for name, t in tree().items()})
    assert isinstance(found.sample(2)["stays"], polars.DataFrame)


def who_scores(tables, random_state=None):
    found = []

    class Watched(PersonTables):
        def split(self, *args):
            parts = super().split(*args)
            found.extend(parts[1][0]["persons"]["person"])
            return parts

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_private_search, "PersonTables", Watched)
        search(sampler(), random_state=random_state).fit(tables)
    return found


@pytest.mark.slow
def test_who_scores_is_drawn(monkeypatch):
    assert who_scores(tree()) != who_scores(tree())
    monkeypatch.setattr(NoiseSource, "choice", lambda self, n, size: np.arange(size))
    assert who_scores(tree()) == who_scores(tree())


@pytest.mark.slow
def test_a_seed_repeats_a_search_of_the_same_tables_and_no_other(monkeypatch):
    other = tree()
    other["stays"].loc[3, "cost"] = 8.5
    assert who_scores(tree(), 0) == who_scores(tree(), 0)
    assert who_scores(other, 0) != who_scores(tree(), 0)
    # The twin: the draws of a seed are those of all tables.
    source = PrivateSearchCV._noise_source
    monkeypatch.setattr(
        PrivateSearchCV, "_noise_source", lambda self, seed, *bound: source(self, seed, *bound[:2])
    )
    assert who_scores(other, 0) == who_scores(tree(), 0)


def test_scikit_learn_cannot_split_tables():
    search = GridSearchCV(sampler(), {"max_iter": [1, 2]}, cv=2, error_score="raise")
    with pytest.raises(Exception, match="."):
        search.fit(tree())


# ---- a private number of persons ----


def said_of(n):
    """Return all that a search says of so many persons, whose number is private."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # One person leaves nobody to train on, and the delta is above 1 / n of twenty.
        with pytest.raises(ValueError, match=".") as error:
            search(sampler(neighbours="add_or_remove"), delta=0.2).fit(tree(n))
    return str(error.value), [str(one.message) for one in caught]


def test_a_private_number_of_persons_is_not_read():
    assert "must protect against the replacement" in said_of(1)[0]
    assert said_of(1) == said_of(20)


@pytest.mark.slow
def test_a_number_that_is_read_before_the_relation_is_caught(monkeypatch):
    monkeypatch.setattr(_private_search, "check_neighbours", lambda estimator: None)
    first, second = said_of(1), said_of(20)
    assert "got 1" in first[0]
    assert "= 0.05" in second[1][0]
