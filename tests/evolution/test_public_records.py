"""Public records of private evolution: where candidates start, at the same price."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.domains import Box, OneHot, Product
from sklearn_dpgen.evolution import (
    EuclideanVariation,
    PrivateEvolutionSampler,
    TabularVariation,
)
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun
from sklearn_dpgen.persistence._files import load
from sklearn_dpgen.preprocessing import PublicTable
from sklearn_dpgen.preprocessing._public_table import as_public_table
from sklearn_dpgen.reporting import model_card
from sklearn_dpgen.schema import Categorical, Numeric, Schema

SQUARE = Box(0, 1, n_features=2)
MIXED = Product([SQUARE, OneHot(4)])
SCHEMA = Schema({"age": Numeric(0, 100), "job": Categorical(["baker", "cook", "nurse"])})
TABLE = pd.DataFrame({"job": ["cook", "nurse"] * 20, "age": np.linspace(30, 40, 40)})
POINTS = np.random.default_rng(0).uniform(0.4, 0.6, size=(40, 2))
pytestmark = pytest.mark.filterwarnings("ignore:The noise on the votes:UserWarning")


def sampler(kind, **options):
    declared = {"domain": SQUARE} if kind == "points" else {"schema": SCHEMA}
    given = {"n_samples": 30, "n_iter": 2, "device": "cpu", "delta": 1e-3} | declared
    return PrivateEvolutionSampler(**(given | options))


def records(kind):
    rng = np.random.default_rng(1)
    if kind == "points":
        return rng.uniform(size=(200, 2))
    return pd.DataFrame({"age": rng.uniform(0, 100, 200), "job": rng.choice(["baker"], 200)})


def public(kind):
    # In part: without a column, and with weights.
    part = PublicTable(TABLE[["age"]].assign(w=np.arange(40)), weights="w")
    return {"points": POINTS, "table": TABLE, "part": part}[kind]


both = pytest.mark.parametrize("kind", ["points", "table"])
each = pytest.mark.parametrize("kind", ["points", "table", "part"])


@both
def test_the_first_population_is_public(kind):
    fitted = sampler(kind, public=public(kind)).fit(records(kind))
    first = fitted.history_[0][0].candidates
    rows = public(kind)
    if kind == "table":
        rows = fitted.encoder_.transform(rows)
    known = {tuple(row) for row in rows.round(9)}

    def n_public(candidates):
        return sum(tuple(row) in known for row in candidates.round(9))

    # About half of the public rows are drawn, and each has variations.
    assert 5 <= n_public(first) < len(first)
    # Negative twin: without public records.
    assert n_public(sampler(kind).fit(records(kind)).history_[0][0].candidates) == 0


def test_blocks_are_drawn_anew_from_public_records():
    rng = np.random.default_rng(0)
    rows = np.hstack([POINTS, np.eye(4)[np.arange(40) % 2]])
    X = np.hstack([POINTS, np.eye(4)[np.full(40, 3)]])

    def found(interface):
        varied = interface.vary(X, rng, 1.0)
        assert MIXED.contains(varied).all()
        return set(varied[:, 2:].argmax(axis=1))

    assert found(EuclideanVariation(MIXED, public=rows)) == {0, 1}
    assert found(EuclideanVariation(MIXED)) == {0, 1, 2, 3}


@each
def test_the_noise_and_its_price_do_not_depend_on_public_records(kind):
    X = records(kind)
    alone, fitted = sampler(kind).fit(X).privacy_, sampler(kind, public=public(kind)).fit(X)
    report = fitted.privacy_
    assert set(report.public) == set(alone.public) | {"public"}
    for field in ("epsilon", "delta", "noise_scale", "sensitivity", "releases", "bounds", "split"):
        assert getattr(report, field) == getattr(alone, field)
    assert report == sampler(kind, public=public(kind)).plan(200, 2)
    # Negative twin: another number of steps has another price.
    assert report.noise_scale != sampler(kind, n_iter=3).plan(200, 2).noise_scale


@each
def test_all_that_is_learned_follows_from_the_votes(kind, monkeypatch):
    fixed = np.random.default_rng(0).uniform(0, 9, size=1000)
    X = records(kind)
    halves = X[:100], X[100:]

    def is_equal(release):
        monkeypatch.setattr(GaussianSequenceRun, "release", release)
        found = [
            sampler(kind, public=public(kind), random_state=0).fit(half).history_ for half in halves
        ]
        pairs = [zip(a, b, strict=True) for a, b in zip(*found, strict=True)]
        return all(
            np.array_equal(a.candidates, b.candidates) and np.array_equal(a.weights, b.weights)
            for pair in pairs
            for a, b in pair
        )

    assert is_equal(lambda self, value, noise: fixed[: len(value)].copy())
    assert not is_equal(lambda self, value, noise: value.copy())


def distance(start, center):
    """Return the mean distance to a center of samples of records that are all there."""
    rng = np.random.default_rng(0)
    X = (center + 0.01 * rng.normal(size=(400, 6))).clip(0, 1)
    # Without public records it starts from the whole domain, and not from moments.
    options = {"domain": Box(0, 1, n_features=6), "start": "public", "public": start}
    options |= {"device": "cpu", "n_iter": 2}
    found = [
        PrivateEvolutionSampler(np.inf, random_state=seed, **options).fit(X) for seed in range(5)
    ]
    return np.mean(
        [np.linalg.norm(s.sample(200, random_state=0) - center, axis=1).mean() for s in found]
    )


def test_right_public_records_help_and_wrong_ones_are_left():
    center = np.full(6, 0.8)
    near = center + 0.02 * np.random.default_rng(1).normal(size=(100, 6))
    far = 0.2 + 0.02 * np.random.default_rng(2).normal(size=(100, 6))
    alone = distance(None, center)
    assert distance(near, center) < 0.5 * alone
    assert distance(far, center) < 2 * alone
    # Negative twin: the wrong records themselves.
    assert np.linalg.norm(far - center, axis=1).mean() > 2 * alone


@each
def test_a_saved_fit_draws_the_same(kind, tmp_path):
    fitted = sampler(kind, public=public(kind), smoothing=0.5).fit(records(kind))
    fitted.save(tmp_path / "fit.safetensors")
    loaded = load(tmp_path / "fit.safetensors")
    assert loaded.public is None
    draws = [np.asarray(s.sample(20, random_state=0)) for s in (fitted, loaded)]
    assert_array_equal(*draws)


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("points", {"public": np.zeros((4, 3))}, "public must have 2 features"),
        ("points", {"public": "points.csv"}, "public must be an array .* got a path"),
        ("points", {"public": PublicTable(TABLE)}, "public must be an array .* got a PublicTable"),
        ("table", {"public": TABLE[["job"]].assign(job="pilot")}, "public must have a cell"),
        ("table", {"public": TABLE.add_suffix("s")}, "public must have a column of the schema"),
        ("table", {"public": PublicTable(TABLE, weights="w")}, "weights must be a column"),
        ("table", {"public": POINTS}, "public must be a table with named columns"),
        (
            "points",
            {"interface": EuclideanVariation(SQUARE)},
            "public must be None if an interface",
        ),
        ("points", {"start": "moments"}, "start='moments' needs"),
    ],
)
@pytest.mark.filterwarnings("ignore:Column 'job' of the public table")
def test_public_records_that_do_not_fit_are_refused_before_a_charge(
    kind, options, words, monkeypatch
):
    monkeypatch.setattr(PrivateEvolutionSampler, "_reserve", None)
    with pytest.raises((ValueError, TypeError), match=words):
        sampler(kind, **({"public": public(kind)} | options)).fit(records(kind))
    # Negative twin: the charge is what fails where nothing is wrong.
    with pytest.raises(TypeError, match="NoneType"):
        sampler(kind, public=public(kind)).fit(records(kind))


def test_a_table_is_read_in_any_form(tmp_path):
    texts = TABLE.assign(age=TABLE["age"].astype(str), other=1)
    texts.to_csv(tmp_path / "public.csv", index=False)

    def first(given):
        fitted = sampler("table", public=given, random_state=0).fit(records("table"))
        return fitted.history_[0][0].candidates

    expected = first(TABLE)
    for given in (TABLE[["age", "job"]], texts, tmp_path / "public.csv", PublicTable(TABLE)):
        assert_array_equal(first(given), expected)
    assert not np.array_equal(first(TABLE.assign(age=31.0)), expected)


@each
def test_reports_state_the_hash_and_the_condition(kind):
    fitted = sampler(kind, public=public(kind)).fit(records(kind))
    report, found = fitted.privacy_, fitted.privacy_.public_tables
    assert "public_tables" in report.caveats
    assert list(found) == ["public"]
    assert found["public"] in model_card(fitted).to_markdown()
    if kind != "points":
        rows = as_public_table(public(kind)).read(SCHEMA)
        assert found == {"public": rows.sha256}
    # Negative twin: other records, or none.
    assert sampler(kind, public=other(kind)).plan(200, 2).public_tables["public"] not in found
    assert sampler(kind).plan(200, 2).public_tables == {}


def other(kind):
    return POINTS[::-1] if kind == "points" else TABLE[::-1]


def drawn(public_sampler, n=3000):
    """Return decoded draws of an interface, of a public seed."""
    interface = TabularVariation(SCHEMA, public_sampler=public_sampler)
    X = interface.random(n, np.random.default_rng(0))
    assert interface.domain.contains(X).all()
    return interface.encoder.inverse_transform(X)


def test_rows_are_drawn_by_their_weights():
    weights = np.where(TABLE["job"] == "cook", 3.0, 1.0) * (np.arange(40) < 30)
    rows = drawn(PublicTable(TABLE.assign(w=weights), weights="w"))
    assert abs((rows["job"] == "cook").mean() - 0.75) < 5 * np.sqrt(0.75 * 0.25 / 3000)
    assert set(rows["age"].round(6)) == set(TABLE["age"][:30].round(6))
    # Negative twin: all rows alike.
    assert abs((drawn(TABLE)["job"] == "cook").mean() - 0.5) < 5 * np.sqrt(0.25 / 3000)
    assert drawn(TABLE)["age"].max() == 40


def test_what_a_table_lacks_is_drawn_as_without_one():
    def shares(rows):
        return rows["job"].value_counts(normalize=True).reindex(SCHEMA["job"].labels).to_numpy()

    rows = drawn(TABLE[["age"]])
    assert_allclose(shares(rows), 1 / 3, atol=5 * np.sqrt(2 / 9 / 3000))
    assert rows["age"].between(30, 40).all()
    # Half of the cells are unknown: their rows are drawn, and the cells as without a table.
    half = TABLE.assign(job=["cook", "pilot"] * 20)
    rows, is_known = drawn(half), TABLE["age"][::2].round(6)
    is_known = rows["age"].round(6).isin(is_known)
    assert (rows["job"][is_known] == "cook").all()
    assert_allclose(shares(rows[~is_known]), 1 / 3, atol=5 * np.sqrt(2 / 9 / 1000))
    # Negative twin: a table that has the column.
    assert shares(drawn(TABLE))[1] > 0.4
