from collections import Counter
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_dpgen.metrics import k_marginal_score, marginal_total_variation
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema

SCHEMA = Schema(
    {
        "age": Numeric(0, 100),
        "visits": Numeric(0, 10, integer=True, nullable=True),
        "plan": Categorical(["free", "shared", "none"], nullable=True),
        "rate": Ordinal([0.0, 3.258096, 4.61512]),
        "date": Datetime("2020-01-01", "2020-12-31"),
    }
)


def table(n=50, seed=0):
    rng = np.random.RandomState(seed)
    return pd.DataFrame(
        {
            "age": rng.uniform(0, 100, n),
            "visits": np.where(rng.rand(n) < 0.2, np.nan, rng.randint(0, 11, n)),
            "plan": rng.choice(np.array(["free", "shared", None], dtype=object), n),
            "rate": rng.choice([0.0, 3.258096, 4.61512], n),
            "date": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.randint(0, 366, n), unit="D"),
        }
    )


def column_tv(real, synthetic, column, **kwargs):
    schema = Schema({"x": column})
    frames = (pd.DataFrame({"x": values}) for values in (real, synthetic))
    return marginal_total_variation(*frames, schema, **kwargs)["x"]


@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_table_and_its_shuffle_repeated_are_at_zero(order):
    real = table()
    synthetic = pd.concat([real, real]).sample(frac=1, random_state=0)
    result = marginal_total_variation(real, synthetic, SCHEMA, order=order)
    assert len(result) == {1: 5, 2: 10, 3: 10}[order]
    np.testing.assert_allclose(result, 0, atol=1e-12)


def test_index_names_columns_and_pairs():
    single = marginal_total_variation(table(), table(seed=1), SCHEMA)
    assert list(single.index) == ["age", "visits", "plan", "rate", "date"]
    pairs = marginal_total_variation(table(), table(seed=1), SCHEMA, order=2)
    assert pairs.index[0] == ("age", "visits")
    assert pairs.index[-1] == ("rate", "date")
    # A marginal of a pair is no farther apart than the pair.
    assert (pairs["age", "rate"] >= single[["age", "rate"]]).all()


def test_disjoint_supports_are_at_one():
    assert column_tv(["a", "a"], ["b"], Categorical(["a", "b"])) == 1
    assert column_tv([0.1, 0.2], [0.8, 0.9, 0.95, 0.99], Numeric(0, 1)) == 1
    assert column_tv([np.nan], [0.0], Numeric(0, 1, nullable=True)) == 1


def test_hand_computed_values():
    np.testing.assert_allclose(column_tv(list("aab"), list("abb"), Categorical(["a", "b"])), 1 / 3)
    # 2-way: (a, 0), (b, 1) against (a, 1), (b, 0) have the same margins and disjoint cells.
    schema = Schema({"x": Categorical(["a", "b"]), "y": Categorical([0, 1])})
    real = pd.DataFrame({"x": ["a", "b"], "y": [0, 1]})
    synthetic = pd.DataFrame({"x": ["a", "b"], "y": [1, 0]})
    assert (marginal_total_variation(real, synthetic, schema) == 0).all()
    assert (marginal_total_variation(real, synthetic, schema, order=2) == 1).all()


def test_pairs_agree_with_a_cross_tabulation():
    real, synthetic = table(80, 0), table(90, 1)
    tables = [
        pd.crosstab(
            pd.cut(frame["age"], np.linspace(0, 100, 21), right=False, labels=range(20)).astype(
                int
            ),
            frame["rate"],
            normalize=True,
        ).stack()
        for frame in (real, synthetic)
    ]
    expected = tables[0].sub(tables[1], fill_value=0).abs().sum() / 2
    result = marginal_total_variation(real, synthetic, SCHEMA, order=2)["age", "rate"]
    np.testing.assert_allclose(result, expected)


def test_bins_come_from_the_public_range_and_clip():
    unit = Numeric(0, 1)
    # Same cell of 20, different cells of 100.
    assert column_tv([0.01], [0.03], unit) == 0
    assert column_tv([0.01], [0.03], unit, n_bins=100) == 1
    # A cell is closed on the left, whatever the rounding.
    percent = Numeric(0, 100)
    edges = np.arange(0, 100, 5.0)
    assert column_tv(edges, edges + 4.99, percent) == pytest.approx(0, abs=1e-12)
    assert column_tv(edges[1:], edges[1:] - 0.01, percent) == pytest.approx(1 / 19)
    # Far values share the end cells with the ends.
    assert column_tv([-50.0, 1e300], [0.0, 1.0], unit) == 0
    # The cells do not move with the rows.
    assert column_tv([0.01, 0.02], [0.03, 0.04], unit) == 0


def test_short_grids_have_a_cell_a_value():
    visits = [0, 1, 2, 3]
    assert column_tv(visits, [0, 1, 2, 4], Numeric(0, 19, integer=True)) == 0.25
    assert column_tv([0.5], [0.75], Numeric(0, 1, step=0.25)) == 1
    # A grid point read back with rounding error stays in its cell.
    assert column_tv([0.3], [0.1 * 3], Numeric(0, 1, step=0.1)) == 0
    # 21 values do not fit in 20 cells: 19 and 20 share the last of [0, 20].
    assert column_tv([19], [20], Numeric(0, 20, integer=True)) == 0
    assert column_tv([19], [20], Numeric(0, 20, integer=True), n_bins=21) == 1


def test_dates_and_nulls():
    year = Datetime("2020-01-01", "2021-01-01", nullable=True)
    dates = pd.to_datetime(["2020-01-02", "2020-01-05"])
    assert column_tv(dates[:1], dates[1:], year) == 0
    assert column_tv(dates[:1], pd.to_datetime(["2020-12-31"]), year) == 1
    assert column_tv(dates[:1], pd.to_datetime([None]), year) == 1


def test_dtypes_do_not_matter_but_values_do():
    flags = Categorical([0, 1])
    assert column_tv(np.array([0, 1]), np.array([0.0, 1.0]), flags) == 0
    small = np.array([0, 100, 200, 255], dtype=np.uint8)
    assert column_tv(small, small.astype(float), Numeric(0, 1000, integer=True)) == 0
    codes = pd.Categorical(["b", "a"], categories=["b", "a"])
    assert column_tv(codes, ["a", "b"], Categorical(["a", "b"])) == 0


@settings(max_examples=50, deadline=None)
@given(
    real=st.lists(st.sampled_from([0.0, 0.5, 1.0, np.nan]), min_size=1, max_size=8),
    synthetic=st.lists(st.sampled_from([0.0, 0.5, 1.0, np.nan]), min_size=1, max_size=8),
    n_bins=st.integers(1, 30),
)
def test_is_a_distance_between_zero_and_one(real, synthetic, n_bins):
    column = Numeric(0, 1, nullable=True)
    value = column_tv(real, synthetic, column, n_bins=n_bins)
    assert 0 <= value <= 1 + 1e-12
    assert value == pytest.approx(column_tv(synthetic, real, column, n_bins=n_bins))


def test_errors_name_the_column_and_hide_the_value():
    real = table()
    with pytest.raises(
        ValueError,
        match="synthetic must have the columns of the schema, lacks \\['plan'\\]",
    ):
        marginal_total_variation(real, real.drop(columns="plan"), SCHEMA)
    with pytest.raises(ValueError, match="real must have at least one row"):
        marginal_total_variation(real[:0], real, SCHEMA)
    with pytest.raises(ValueError, match="Column 'plan' holds a value outside") as info:
        marginal_total_variation(real, real.assign(plan="secret"), SCHEMA)
    assert "secret" not in str(info.value)
    with pytest.raises(ValueError, match="'rate' has missing values but is not nullable"):
        marginal_total_variation(real, real.assign(rate=np.nan), SCHEMA)
    with pytest.raises(ValueError, match="order must be 1, 2 or 3"):
        marginal_total_variation(real, real, SCHEMA, order=4)
    with pytest.raises(ValueError, match="n_bins"):
        marginal_total_variation(real, real, SCHEMA, n_bins=0)
    with pytest.raises(ValueError, match="at least 2 columns"):
        marginal_total_variation(real, real, Schema({"age": Numeric(0, 100)}), order=2)
    with pytest.raises(ValueError, match="max_groups"):
        marginal_total_variation(real, real, SCHEMA, max_groups=0)


LABELS = Schema({name: Categorical(range(5)) for name in "abcdef"})


def labels(n, seed):
    codes = np.random.RandomState(seed).randint(0, 5, (n, 6))
    return pd.DataFrame(codes, columns=list("abcdef"))


def test_dependence_of_three_columns_alone_is_seen_in_triples():
    schema = Schema({name: Categorical([0, 1]) for name in "xyz"})
    cells = [(x, y) for x in (0, 1) for y in (0, 1)]
    same = pd.DataFrame([(x, y, x ^ y) for x, y in cells], columns=list("xyz"))
    other = pd.DataFrame([(x, y, 1 - (x ^ y)) for x, y in cells], columns=list("xyz"))
    assert (marginal_total_variation(same, other, schema, order=2) == 0).all()
    triples = marginal_total_variation(same, other, schema, order=3)
    assert triples.to_dict() == {("x", "y", "z"): 1.0}
    assert k_marginal_score(same, other, schema) == 1000
    assert k_marginal_score(same, other, schema, k=3) == 0


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 300),
    m=st.integers(1, 300),
    order=st.sampled_from([1, 2, 3]),
    seed=st.integers(0, 99),
)
def test_few_records_in_many_cells_are_counted_as_many_in_few(n, m, order, seed):
    real, synthetic = labels(n, seed), labels(m, seed + 1)
    result = marginal_total_variation(real, synthetic, LABELS, order=order)
    for group in combinations("abcdef", order):
        first, second = (
            Counter(zip(*(frame[name] for name in group), strict=True))
            for frame in (real, synthetic)
        )
        expected = sum(abs(first[c] / n - second[c] / m) for c in first | second) / 2
        assert result[group if order > 1 else group[0]] == pytest.approx(expected)
    score = k_marginal_score(real, synthetic, LABELS, k=order)
    assert score == pytest.approx(1000 * (1 - result.mean()))
    assert score == pytest.approx(k_marginal_score(synthetic, real, LABELS, k=order))
    assert -1e-9 <= score <= 1000


@pytest.mark.slow
def test_labels_by_the_thousand_do_not_take_a_cell_each():
    schema = Schema({name: Categorical(range(100_000)) for name in "abc"})
    codes = np.arange(60)[:, None] * np.array([1666, 1500, 1000])
    real = pd.DataFrame(codes, columns=list("abc"))
    result = marginal_total_variation(real, real[:30], schema, order=3)
    np.testing.assert_allclose(result, 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_subset_of_the_groups_is_fixed_by_the_seed_and_in_order(order):
    real, synthetic = labels(50, 0), labels(60, 1)
    full = marginal_total_variation(real, synthetic, LABELS, order=order)

    def part(seed, max_groups=4):
        return marginal_total_variation(
            real, synthetic, LABELS, order=order, max_groups=max_groups, random_state=seed
        )

    for seed in range(10):
        places = full.index.get_indexer(part(seed).index)
        assert len(places) == 4
        assert (np.diff(places) > 0).all()
        assert places[0] >= 0
        pd.testing.assert_series_equal(part(seed), full.iloc[places])
        pd.testing.assert_series_equal(part(seed), part(seed))
    assert len({tuple(part(seed).index) for seed in range(10)}) > 1
    pd.testing.assert_series_equal(part(0, max_groups=len(full)), full)
    drawn = Counter(group for seed in range(200) for group in part(seed).index)
    share = 4 / len(full)
    assert len(drawn) == len(full)
    assert max(abs(c / 200 - share) for c in drawn.values()) < 5 * np.sqrt(
        share * (1 - share) / 200
    )
    score = k_marginal_score(real, synthetic, LABELS, k=order, max_groups=4, random_state=3)
    assert score == pytest.approx(1000 * (1 - part(3).mean()))


@pytest.mark.parametrize("k", [0, 4, True, 2.5])
def test_k_is_one_two_or_three(k):
    with pytest.raises(ValueError, match="k must be 1, 2 or 3"):
        k_marginal_score(labels(5, 0), labels(5, 1), LABELS, k=k)
