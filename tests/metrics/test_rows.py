from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.metrics import next_row_score, row_distances
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema

SCHEMA = Schema(
    {
        "year": Numeric(1990, 2010, integer=True),
        "sex": Categorical(["f", "m"]),
        "plan": Categorical(["a", "b", "c"], nullable=True),
        "visits": Numeric(0, 30, integer=True, nullable=True),
        "cost": Numeric(0, 100),
        "grade": Ordinal([1, 2, 3]),
        "seen": Datetime("2000-01-01", "2001-01-01", resolution="D"),
    }
)
OPTIONS = {"person": "who", "index": "year", "static": ["sex"]}
NAMES = [
    "parent-child",
    "within row",
    "two rows",
    "lag 1",
    "transitions",
    "lag 3",
    "transitions, lag 3",
    "sizes",
    "gap",
    "ties",
    "means of a person",
    "sums",
    "trajectories",
]


def panel(n_persons=40, seed=0, max_size=7, schema=SCHEMA):
    """Return rows of persons whose columns last, in order, without ties."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, max_size + 1, n_persons)
    who = np.repeat(np.arange(n_persons), sizes)
    level = rng.uniform(size=n_persons)[who]
    n = len(who)
    years = [np.sort(rng.choice(21, size, replace=False)) + 1990 for size in sizes]
    frame = pd.DataFrame(
        {
            "who": who,
            "year": np.concatenate(years),
            "sex": np.array(["f", "m"])[rng.integers(2, size=n_persons)][who],
            "plan": np.array(["a", "b", "c", None], dtype=object)[
                np.minimum(4 * level + rng.uniform(size=n), 3.9).astype(int)
            ],
            "visits": np.where(rng.uniform(size=n) < 0.1, np.nan, rng.poisson(9 * level)),
            "cost": 100 * level**2 * rng.uniform(size=n),
            "grade": 1 + (3 * level).astype(int),
            "seen": pd.Timestamp("2000-01-01") + pd.to_timedelta(rng.integers(366, size=n), "D"),
        }
    )
    return frame[["who", *schema]]


def small(rows, index="t", **columns):
    """Return the distances of two tables of (person, index, label)."""
    schema = Schema({"t": Numeric(0, 9, integer=True), "x": Categorical(["a", "b", "c"])})
    frames = [pd.DataFrame(r, columns=["who", "t", "x"]) for r in rows]
    return row_distances(*frames, schema, person="who", index=index, **columns)


def test_equal_tables_are_at_zero():
    result = row_distances(panel(), panel(), SCHEMA, **OPTIONS)
    assert list(result.index) == NAMES
    np.testing.assert_allclose(result, 0, atol=1e-12)


def test_orders_keys_and_copies_of_persons_do_not_matter():
    real = panel()
    copy = real.assign(who=real["who"] + 100)
    twice = pd.concat([real, copy]).sample(frac=1, random_state=0)
    twice["who"] = "p" + twice["who"].astype(str)
    result = row_distances(real, twice, SCHEMA, **OPTIONS)
    np.testing.assert_allclose(result, 0, atol=1e-12)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 6), st.integers(1, 12))
def test_distances_are_in_the_unit_interval_and_do_not_depend_on_orders(seed, n, size, n_bins):
    real, synthetic = panel(n, seed, size), panel(n + 3, seed + 1, size)
    # Ties of the index, within a person.
    synthetic["year"] //= 4
    synthetic["year"] += 1500
    given_rows = row_distances(real, synthetic, SCHEMA, n_bins=n_bins, **OPTIONS)
    shuffled = [frame.sample(frac=1, random_state=seed) for frame in (real, synthetic)]
    others = row_distances(*shuffled, SCHEMA, n_bins=n_bins, **OPTIONS)
    np.testing.assert_allclose(given_rows, others, atol=1e-12)
    known = given_rows.dropna()
    assert known.between(-1e-12, 1 + 1e-12).all()
    has_two = real["who"].duplicated().any()
    assert given_rows[["two rows", "lag 1", "gap", "ties"]].notna().all() == has_two


def test_rows_of_other_persons_are_found_by_lags_alone():
    real = panel(400)
    rng = np.random.default_rng(0)
    others = real.copy()
    columns = ["plan", "visits", "cost", "grade", "seen"]
    others[columns] = real[columns].to_numpy()[rng.permutation(len(real))]
    others["visits"] = others["visits"].astype(float)
    result = row_distances(real, others, SCHEMA, **OPTIONS)
    floor = row_distances(real, panel(400, seed=1), SCHEMA, **OPTIONS)
    assert result["sizes"] == result["gap"] == result["ties"] == 0
    for name in ("two rows", "lag 1", "lag 3", "transitions", "means of a person"):
        assert result[name] > floor[name] + 0.05, name


def test_rows_of_a_person_in_another_order_are_found_by_what_needs_an_order():
    schema = Schema({"year": SCHEMA["year"], "cost": SCHEMA["cost"]})
    real = panel(200, schema=schema)
    real["cost"] = real.groupby("who").cumcount() * 10.0
    other = real.assign(cost=real.groupby("who")["cost"].transform(lambda x: x[::-1].to_numpy()))
    result = row_distances(real, other, schema, person="who", index="year")
    equal = ["two rows", "sizes", "gap", "means of a person", "sums"]
    np.testing.assert_allclose(result[equal], 0, atol=1e-12)
    assert (result[["lag 1", "transitions", "trajectories"]] > 0.4).all()


def test_hand_computed_lags_and_transitions():
    real = [(1, 0, "a"), (1, 1, "a"), (1, 2, "b"), (1, 3, "b"), (2, 0, "c")]
    synthetic = [(7, 3, "a"), (7, 2, "a"), (7, 1, "b"), (7, 0, "b")]
    result = small([real, synthetic])
    # Real: aa, ab, bb. Synthetic: bb, ba, aa.
    assert result["lag 1"] == result["transitions"] == pytest.approx(1 / 3)
    # Real: ab. Synthetic: ba.
    assert result["lag 3"] == result["transitions, lag 3"] == 1
    # Unordered, the two tables have the same two rows of a person.
    assert result["two rows"] == pytest.approx(0, abs=1e-12)
    assert result["sizes"] == 0.5


def test_two_rows_count_each_person_once():
    # Person 1 has aa, person 2 one pair in three of each order of two of a, a, b.
    real = [(1, 0, "a"), (1, 1, "a"), (2, 0, "a"), (2, 1, "a"), (2, 2, "b")]
    # Shares: aa (1 + 1/3) / 2, ab 1/6, ba 1/6. Synthetic: aa.
    assert small([real, real[:2]])["two rows"] == pytest.approx(1 / 3)
    assert small([real, real[:2]], index=None)["two rows"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("seed", range(3))
def test_two_rows_agree_with_a_loop(seed):
    real, synthetic = panel(20, seed), panel(30, seed + 10)
    schema = Schema({"plan": SCHEMA["plan"], "grade": SCHEMA["grade"]})

    def shares(frame, column, other):
        found = {}
        groups = [g for _, g in frame.groupby("who") if len(g) > 1]
        for group in groups:
            codes = [schema[name].codes(group[name]) for name in (column, other)]
            m = len(group)
            for s, t in product(range(m), repeat=2):
                if s != t:
                    cell = (codes[0][s], codes[1][t])
                    found[cell] = found.get(cell, 0) + 1 / (m * (m - 1) * len(groups))
        return pd.Series(found)

    expected = np.mean(
        [
            shares(real, *pair).sub(shares(synthetic, *pair), fill_value=0).abs().sum() / 2
            for pair in product(schema, repeat=2)
        ]
    )
    result = row_distances(real, synthetic, schema, person="who")
    assert result["two rows"] == pytest.approx(expected)


def test_hand_computed_gaps_ties_and_sizes():
    real = [(1, 0, "a"), (1, 1, "a"), (1, 3, "a"), (2, 0, "a")]
    synthetic = [(1, 0, "a"), (1, 0, "a"), (2, 1, "a"), (2, 2, "a")]
    result = small([real, synthetic])
    # Gaps 1, 2 and 0, 1; sizes 3, 1 and 2, 2.
    assert result["gap"] == 0.5
    assert result["ties"] == 0.5
    assert result["sizes"] == 1


def test_hand_computed_pairs_with_the_parents():
    schema = Schema(
        {"x": Categorical(["a", "b"]), "s": Categorical(["f", "m"]), "y": Categorical(["a", "b"])}
    )
    real = pd.DataFrame({"who": [1, 1, 2], "s": list("ffm"), "x": list("abb"), "y": list("abb")})
    synthetic = real.assign(x=list("bba"), y=list("abb"))
    result = row_distances(real, synthetic, schema, person="who", static=["s"])
    # With x: f has a, b against b, b, and m b against a. With y: no difference.
    assert result["parent-child"] == pytest.approx((2 / 3 + 0) / 2)
    # aa, bb, bb against ba, bb, ab.
    assert result["within row"] == pytest.approx(2 / 3)
    assert not {"lag 1", "transitions", "gap", "ties"} & set(result.index)


def test_hand_computed_sums_means_and_slopes():
    schema = Schema({"t": Numeric(0, 9), "y": Numeric(-10, 10, nullable=True)})

    def distances(*values):
        frames = [
            pd.DataFrame({"who": [1, 1, 2, 2], "t": [0, 2, 0, 2], "y": list(y)}) for y in values
        ]
        names = ["means of a person", "sums", "trajectories"]
        return row_distances(*frames, schema, person="who", index="t")[names].tolist()

    # The same sums, and one slope of another sign.
    assert distances([0, 4, 0, 0], [4, 0, 0, 0]) == [0, 0, 0.5]
    # A null is not counted: the mean is 4 again.
    assert distances([4, 4, 0, 0], [4, np.nan, 0, 0]) == [0, 0.5, 0.5]
    # Without values, there is neither.
    assert distances([4, 4, 0, 0], [np.nan, np.nan, 0, 0]) == [0.5, 0.5, 0.5]


def test_shares_of_labels_are_means():
    real = [(1, 0, "a"), (1, 1, "b")]
    synthetic = [(1, 0, "a"), (1, 1, "a")]
    # Of a and b the share differs, of c it does not.
    result = small([real, synthetic])
    assert result["means of a person"] == result["sums"] == pytest.approx(2 / 3)


def test_persons_without_rows_are_of_size_zero():
    schema = Schema({"t": Numeric(0, 9, integer=True), "x": Categorical(["a", "b"], nullable=True)})
    real = pd.DataFrame({"who": [1, 1, 2], "t": [0.0, 1.0, np.nan], "x": ["a", "b", None]})
    synthetic = real[:2]
    result = row_distances(real, synthetic, schema, person="who", index="t")
    assert result["sizes"] == 0.5
    assert (result.drop(["sizes", "lag 3", "transitions, lag 3"]) == 0).all()


def test_nothing_to_compare_is_nan_and_nothing_made_is_one():
    one, two = [(1, 0, "a"), (2, 1, "b")], [(1, 0, "a"), (1, 1, "b")]
    paired = ["two rows", "lag 1", "transitions", "gap", "ties"]
    assert small([one, two])[paired].isna().all()
    assert (small([two, one])[paired] == 1).all()


def test_a_frequent_value_is_not_in_a_cell_with_larger_ones():
    schema = Schema({"x": Numeric(0, 100), "y": Categorical(["a", "b"])})
    frame = pd.DataFrame({"who": range(1000), "x": np.maximum(np.arange(1000) - 500, 0.0) / 10})
    frame["y"] = "a"
    other = frame.assign(x=np.where(frame["x"] == 0, 0.05, frame["x"]))
    result = row_distances(frame, other, schema, person="who", n_bins=5)
    assert result["within row"] == pytest.approx(0.5, abs=0.01)


def test_errors_name_what_is_wrong():
    real = panel()
    cases = [
        ({"person": "nobody"}, "real must have the column 'nobody' of persons"),
        ({"index": "plan"}, "index must be a numeric, datetime or ordinal column"),
        ({"index": "day"}, "index must be"),
        ({"static": ["who"]}, "static must be columns of the schema"),
        ({"static": ["year"]}, "static must be columns of the schema"),
    ]
    for options, message in cases:
        with pytest.raises(PublicValueError, match=message):
            row_distances(real, real, SCHEMA, **OPTIONS | options)
    with pytest.raises(PublicValueError, match="without nulls"):
        row_distances(real, real.assign(who=np.nan), SCHEMA, **OPTIONS)
    schema = Schema({"t": Numeric(0, 1), "x": Categorical(["a", "b"])})
    empty = pd.DataFrame({"who": [1], "t": [np.nan], "x": ["a"]})
    with pytest.raises(PublicValueError, match="index must not be null"):
        row_distances(empty, empty, schema, person="who", index="t")
    with pytest.raises(PublicValueError, match="target must be a column of the schema"):
        next_row_score(
            real, real, SCHEMA, person="who", index="year", target="none", estimator=None
        )


def test_the_next_row_is_predicted_from_persons_alone():
    real, test = panel(300), panel(300, seed=1)
    rng = np.random.default_rng(0)
    shuffled = real.assign(
        **{name: real[name].to_numpy()[rng.permutation(len(real))] for name in ("cost", "grade")},
        plan=real["plan"].to_numpy()[rng.permutation(len(real))],
        visits=real["visits"].to_numpy()[rng.permutation(len(real))],
    )
    options = {
        "person": "who",
        "index": "year",
        "target": "visits",
        "target_transform": lambda visits: visits > 4,
        "estimator": HistGradientBoostingClassifier(max_iter=20, random_state=0),
    }
    score = next_row_score(real, test, SCHEMA, **options)
    again = next_row_score(real.sample(frac=1, random_state=0), test, SCHEMA, **options)
    assert score > 0.8
    assert again == pytest.approx(score, abs=0.02)
    assert next_row_score(shuffled, test, SCHEMA, **options) < 0.65
