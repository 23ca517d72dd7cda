"""Candidate records of a table: in the schema, of the declared laws, comparable by column."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.evolution._tabular_variation import TabularVariation
from sklearn_dpgen.evolution._variation_interface import VariationInterface, check_candidates
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema

N = 4000
SCHEMA = Schema(
    {
        "age": Numeric(0, 100, integer=True),
        "income": Numeric(-5, 1000),
        "visits": Numeric(0, 9, integer=True, nullable=True),
        "region": Categorical(["north", "south", "east", "west"]),
        "job": Categorical(["baker", "nurse"], nullable=True),
        "level": Ordinal(["low", "mid", "high"]),
        "grade": Ordinal([1, 2, 3, 4], nullable=True),
        "only": Ordinal(["yes"], nullable=True),
        "day": Datetime("2020-01-01", "2024-12-31", resolution="D"),
        "left": Datetime("2020-01-01", "2024-12-31", nullable=True),
    }
)
PARTS = SCHEMA.blocks


def draw(interface, n=N, seed=0):
    return interface.random(n, np.random.default_rng(seed))


def changed(X, varied, schema=SCHEMA):
    parts = schema.blocks.values()
    return np.column_stack([(X[:, p] != varied[:, p]).any(axis=1) for p in parts])


def keeps_the_schema(X, schema=SCHEMA):
    """Whether rows are exactly those that records of the schema are encoded as."""
    interface = TabularVariation(schema)
    if not schema.domain.contains(X, tol=0).all():
        return False
    again = interface.encoder.transform(interface.encoder.inverse_transform(X))
    return np.allclose(again, X, rtol=0, atol=1e-9)


@pytest.mark.parametrize("n_columns", ["auto", "all", 2])
@pytest.mark.parametrize("degree", [1e-6, 0.1, 0.5, 1.0])
def test_candidates_are_encoded_records(n_columns, degree):
    interface = TabularVariation(SCHEMA, n_columns=n_columns)
    assert isinstance(interface, VariationInterface)
    X = draw(interface, 300)
    assert keeps_the_schema(X)
    kept = X.copy()
    varied = interface.vary(X, np.random.default_rng(1), degree)
    assert keeps_the_schema(varied)
    assert_array_equal(X, kept)
    assert_array_equal(varied, interface.vary(X, np.random.default_rng(1), degree))
    assert changed(X, varied).any(axis=1).all()
    assert_array_equal(X, draw(interface, 300))


def test_a_broken_candidate_is_seen():
    X = draw(TabularVariation(SCHEMA), 300)
    visits = X[:, PARTS["visits"]]
    null = np.flatnonzero(visits[:, 2])
    # A value beside a null, a null in a column without, a value between two grid points.
    for column, rows, value in (
        (PARTS["visits"].start, null, 0.3),
        (PARTS["level"].start, [0], 0.7),
        (PARTS["age"].start, [0], 0.011),
    ):
        broken = X.copy()
        broken[rows, column] = value
        assert not keeps_the_schema(broken)


class KeepsNoNull(TabularVariation):
    """Adds Gaussian noise to every feature and projects: the rule of plain numbers."""

    def vary(self, X, rng, degree):
        return self.domain.project(X + degree * rng.normal(size=X.shape))


def test_plain_noise_leaves_the_schema():
    interface = KeepsNoNull(SCHEMA)
    X = draw(interface, 300)
    assert not keeps_the_schema(interface.vary(X, np.random.default_rng(1), 0.1))


def shares_are(values, wanted):
    counts = np.array([np.isclose(values, value).mean() for value in wanted])
    p = np.array(list(wanted.values()))
    return (abs(counts - p) < 5 * np.sqrt(p * (1 - p) / len(values))).all()


def test_random_follows_the_declared_laws():
    X = draw(TabularVariation(SCHEMA, null_probability=0.3))
    frame = TabularVariation(SCHEMA).encoder.inverse_transform(X)
    regions = frame["region"].map({"north": 0, "south": 1, "east": 2, "west": 3})
    assert shares_are(regions.to_numpy(), dict.fromkeys(range(4), 0.25))
    for name in ("visits", "job", "grade", "only", "left"):
        assert shares_are(frame[name].isna().to_numpy(), {True: 0.3})
    grades = frame["grade"].dropna().to_numpy()
    assert shares_are(grades, dict.fromkeys((1, 2, 3, 4), 0.25))
    visits = frame["visits"].dropna().to_numpy()
    assert shares_are(visits, dict.fromkeys(range(10), 0.1))
    # Uniform on [-5, 1000], of standard deviation 1005 / sqrt(12).
    error = 1005 / math.sqrt(12 * N)
    assert abs(frame["income"].mean() - 497.5) < 5 * error
    assert not shares_are(grades**2, dict.fromkeys((1, 2, 3, 4), 0.25))


NUMBERS = Schema({"a": Numeric(0, 1), "b": Numeric(-300, 500), "c": Numeric(5, 6)})


class Deaf(TabularVariation):
    """Varies by one degree whatever is asked."""

    def vary(self, X, rng, degree):
        return super().vary(X, rng, 0.03)


@pytest.mark.parametrize("degree", [0.01, 0.08])
def test_numbers_move_by_a_share_of_their_range(degree):
    X = np.zeros((N, 3))

    def has_variance(interface):
        moved = interface.vary(X, np.random.default_rng(0), degree)
        # On [-1, 1] the range is 2.
        wanted = (2 * degree) ** 2
        return (abs(moved.var(axis=0) - wanted) < 5 * wanted * math.sqrt(2 / N)).all()

    assert has_variance(TabularVariation(NUMBERS, n_columns="all"))
    assert not has_variance(Deaf(NUMBERS, n_columns="all"))


def test_from_a_bound_numbers_move_inwards():
    schema = Schema({"a": Numeric(0, 1), "b": Numeric(0, 9, integer=True)})
    interface = TabularVariation(schema, n_columns="all")
    for bound in (-1.0, 1.0):
        varied = interface.vary(np.full((200, 2), bound), np.random.default_rng(0), 1e-6)
        assert (bound * varied < 1).all()


def test_on_a_grid_numbers_move_by_a_step_at_least():
    schema = Schema({"a": Numeric(0, 100, step=10), "b": Ordinal(range(5))})
    interface = TabularVariation(schema, n_columns="all")
    X = interface.encoder.transform(pd.DataFrame({"a": [50.0] * N, "b": [2] * N}))
    frame = interface.encoder.inverse_transform(interface.vary(X, np.random.default_rng(0), 1e-3))
    assert shares_are(frame["a"].to_numpy(), {40: 0.5, 60: 0.5})
    assert shares_are(frame["b"].to_numpy(), {1: 0.5, 3: 0.5})


@pytest.mark.parametrize("degree", [0.2, 0.7])
def test_categories_change_as_if_drawn_anew(degree):
    # Wide enough that a column forced on an idle row is rare: 0.8 ** 60 is 2e-6.
    schema = Schema({f"c{i}": Categorical(list("abcd")) for i in range(60)})
    interface = TabularVariation(schema)
    X = draw(interface, 200)

    def rate_is(varied, rate):
        share = changed(X, varied, schema).mean()
        return abs(share - rate) < 5 * math.sqrt(rate * (1 - rate) / (200 * 60))

    varied = interface.vary(X, np.random.default_rng(1), degree)
    assert rate_is(varied, 0.75 * degree)
    assert not rate_is(Deaf(schema).vary(X, np.random.default_rng(1), degree), 0.75 * degree)
    # At random a variation is a random record again: the categories stay uniform.
    codes = varied.reshape(-1, 4).argmax(axis=1)
    assert shares_are(codes, dict.fromkeys(range(4), 0.25))


def test_nulls_keep_their_share():
    schema = Schema(
        {"a": Numeric(0, 1, nullable=True), "b": Categorical(list("xy"), nullable=True)}
    )
    interface = TabularVariation(schema, n_columns="all", null_probability=0.3)
    X = draw(interface, 4 * N)
    varied = interface.vary(X, np.random.default_rng(1), 0.2)
    for X, share in ((varied[:, 2], 0.3), (varied[:, -1], 0.3)):
        assert shares_are(X, {1.0: share})
        assert not shares_are(X, {1.0: share + 0.03})


def test_the_number_of_columns():
    schema = Schema({f"c{i}": Numeric(0, 1) for i in range(20)})
    X = np.zeros((N, 20))
    for n_columns, degree, wanted in (
        ("auto", 0.5, 10),
        ("all", 0.01, 20),
        (5, 0.01, 5),
        (5, 0.9, 5),
        (50, 0.1, 20),
    ):
        interface = TabularVariation(schema, n_columns=n_columns)
        counts = changed(X, interface.vary(X, np.random.default_rng(0), degree), schema).sum(1)
        # One at least: 20 draws at rate 1/4 all fail with probability 0.003.
        forced = (1 - wanted / 20) ** 20
        deviation = math.sqrt(wanted * (1 - wanted / 20))
        assert abs(counts.mean() - wanted - forced) <= 5 * deviation / math.sqrt(N) + 1e-12
    interface = TabularVariation(schema)
    few = changed(X, interface.vary(X, np.random.default_rng(0), 1e-4), schema).sum(axis=1)
    assert few.max() <= 2
    assert few.min() == 1


def test_larger_degrees_move_farther():
    def moves(interface):
        X = draw(interface)
        sizes = [
            np.linalg.norm(
                interface.embed(interface.vary(X, np.random.default_rng(1), degree))
                - interface.embed(X),
                axis=1,
            ).mean()
            for degree in (0.02, 0.1, 0.4, 1.0)
        ]
        return (np.diff(sizes) > 0).all()

    assert moves(TabularVariation(SCHEMA))
    assert not moves(Deaf(SCHEMA))


def distances(interface, frame):
    X = interface.embed(interface.encoder.transform(frame))
    return ((X[1:] - X[0]) ** 2).sum(axis=1)


def test_a_comparison_adds_costs_of_columns():
    schema = Schema(
        {
            "a": Numeric(0, 100, nullable=True),
            "b": Categorical(list("xyz"), nullable=True),
            "c": Ordinal(list("lmh"), nullable=True),
        }
    )
    frame = pd.DataFrame(
        [
            (0.0, "x", "l"),
            (100.0, "x", "l"),
            (30.0, "x", "l"),
            (0.0, "y", "l"),
            (0.0, None, "l"),
            (0.0, "x", "h"),
            (0.0, "x", "m"),
            (None, "x", "l"),
            (0.0, "x", None),
            (100.0, "z", "m"),
        ],
        columns=["a", "b", "c"],
    )
    wanted = [1, 0.09, 0.25, 0.25, 1, 0.25, 0.5, 0.5, 1.5]
    assert_allclose(distances(TabularVariation(schema), frame), wanted, atol=1e-12)
    other = TabularVariation(schema, categorical_weight=1.0, column_weights={"a": 4, "c": 0})
    wanted = [4, 0.36, 1, 1, 0, 0, 5, 0, 5]
    assert_allclose(distances(other, frame), wanted, atol=1e-12)


def columns():
    nullable = st.booleans()
    bound = st.integers(-50, 50)
    return st.one_of(
        st.builds(
            lambda low, width, integer, nullable: Numeric(
                low, low + width, integer=integer, nullable=nullable
            ),
            bound,
            st.integers(1, 30),
            st.booleans(),
            nullable,
        ),
        st.builds(lambda k, nullable: Categorical(range(k), nullable=nullable), *_sizes(nullable)),
        st.builds(lambda k, nullable: Ordinal(range(k), nullable=nullable), *_sizes(nullable)),
        st.builds(
            lambda nullable: Datetime("2020-01-01", "2020-01-09", nullable=nullable), nullable
        ),
    )


def _sizes(nullable):
    return st.integers(2, 5), nullable


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(
    declared=st.lists(columns(), min_size=1, max_size=5),
    degree=st.floats(1e-9, 1.0),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_schema(declared, degree, seed):
    schema = Schema({f"c{i}": column for i, column in enumerate(declared)})
    interface = TabularVariation(schema)
    rng = np.random.default_rng(seed)
    X = interface.random(7, rng)
    varied = interface.vary(X, rng, degree)
    for rows in (X, varied):
        assert keeps_the_schema(check_candidates(rows, 7, None, schema.domain, interface), schema)
        assert np.isfinite(interface.embed(rows)).all()
    assert interface.embed(X[:1]).shape[0] == 1
    # Rows that differ are told apart.
    apart = changed(X, varied, schema).any(axis=1)
    gaps = abs(interface.embed(X) - interface.embed(varied)).max(axis=1)
    assert_array_equal(gaps > 0, apart)


PUBLIC = pd.DataFrame(
    {
        "a": [0.1, 0.2, 0.3] * 4,
        "b": ["x", "y", "y"] * 4,
        "c": ["l", None, "h"] * 4,
    }
)
SMALL = Schema(
    {"a": Numeric(0, 1), "b": Categorical(list("xyz")), "c": Ordinal(list("lmh"), nullable=True)}
)


class Sampler:
    def sample(self, n_samples=1, *, random_state=None):
        return PUBLIC.sample(n_samples, replace=True, random_state=random_state)


@pytest.mark.parametrize(
    "sampler",
    [PUBLIC, Sampler(), lambda n, rng: PUBLIC.iloc[rng.integers(len(PUBLIC), size=n)]],
    ids=["frame", "sampler", "callable"],
)
def test_a_public_sampler_is_where_candidates_start(sampler):
    interface = TabularVariation(SMALL, public_sampler=sampler)
    X = draw(interface, 900)
    assert_array_equal(X, draw(interface, 900))
    rows = interface.encoder.inverse_transform(X)
    known = {(0.1, "x", "l"), (0.2, "y", "null"), (0.3, "y", "h")}
    rows["a"] = rows["a"].round(6)
    assert set(rows.fillna("null").itertuples(index=False, name=None)) == known
    assert shares_are(rows["b"].eq("x").to_numpy(), {True: 1 / 3})
    varied = interface.encoder.inverse_transform(interface.vary(X, np.random.default_rng(1), 0.5))
    # Categories come from the public ones alone, numbers from their whole range.
    assert set(varied["b"]) == {"x", "y"}
    assert varied["a"].max() > 0.5
    assert not keeps_public_categories(draw(TabularVariation(SMALL), 900))


def keeps_public_categories(X):
    return X[:, SMALL.blocks["b"]][:, 2].max() == 0


def test_public_records_are_checked():
    other = PUBLIC.assign(b="w")
    with pytest.raises(ValueError, match="'b' holds a value outside") as caught:
        draw(TabularVariation(SMALL, public_sampler=lambda n, rng: other), 5)
    assert "w" not in str(caught.value).split()
    with pytest.raises(ValueError, match="function must return 5 candidates, got 3"):
        draw(TabularVariation(SMALL, public_sampler=lambda n, rng: PUBLIC[:3]), 5)
    with pytest.raises(TypeError, match="must give data frames, got ndarray"):
        draw(TabularVariation(SMALL, public_sampler=lambda n, rng: np.zeros((n, 3))), 5)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"public_sampler": 3}, TypeError, "public_sampler"),
        ({"public_sampler": PUBLIC[:0]}, ValueError, "public must have rows"),
        ({"n_columns": 0}, ValueError, "n_columns"),
        ({"n_columns": True}, ValueError, "n_columns"),
        ({"n_columns": "few"}, ValueError, "n_columns"),
        ({"null_probability": 1.0}, ValueError, r"null_probability must be .* \[0, 1\)"),
        ({"null_probability": -0.1}, ValueError, "null_probability"),
        ({"categorical_weight": 0}, ValueError, "categorical_weight"),
        ({"column_weights": [1, 2]}, TypeError, "column_weights"),
        ({"column_weights": {"z": 1.0}}, ValueError, r"columns of the schema, got \['z'\]"),
        ({"column_weights": {"a": -1}}, ValueError, "column_weights"),
        ({"column_weights": {"a": np.inf}}, ValueError, "column_weights"),
    ],
)
def test_options_that_are_refused(options, error, words):
    with pytest.raises(error, match=words):
        TabularVariation(SMALL, **options)


def test_input_that_is_refused():
    interface = TabularVariation(SMALL)
    X = draw(interface, 4)
    with pytest.raises(TypeError, match="schema must be a Schema"):
        TabularVariation({"a": Numeric(0, 1)})
    for degree in (0.0, 1.5, np.nan):
        with pytest.raises(ValueError, match="degree"):
            interface.vary(X, np.random.default_rng(0), degree)
    for wrong in (X[:, 1:], X + 5):
        with pytest.raises(ValueError, match="TabularVariation must return candidates"):
            interface.vary(wrong, np.random.default_rng(0), 0.5)
