"""Single columns measured: what they are counted in, and what comes of it."""

import numpy as np
import pandas as pd
import pytest
from measured_tables import leaves_of
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Schema
from sklearn_dpgen.tables._records import encode_codes
from sklearn_dpgen.tables._releases import column_trees, fine_encoder, measure_columns

SCHEMA = Schema(
    {
        "month": Numeric(1, 12, integer=True),
        "balance": Numeric(-1000, 5000, nullable=True),
        "job": Categorical(["a", "b", "c"]),
        "seen": Datetime("2020-01-01", "2020-12-31"),
        "depth": Numeric(-5000, -100),
    }
)


def table(n=2000):
    rng = np.random.default_rng(0)
    balance = rng.normal(0, 300, size=n)
    balance[:100] = np.nan
    return pd.DataFrame(
        {
            "month": rng.integers(1, 13, size=n),
            "balance": balance,
            "job": rng.choice(["a", "b", "c"], size=n),
            "seen": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(366, size=n), "D"),
            "depth": -rng.uniform(100, 5000, size=n),
        }
    )


def measured(X, noise_scale, n_bins="auto", n_records=None, weights=(1, 1, 1, 1, 1)):
    encoder, found = fine_encoder(SCHEMA, n_bins)
    encoder.fit(X)
    trees, rng = column_trees(encoder, found), np.random.default_rng(1)
    codes = encode_codes(X, encoder).columns
    leaves = dict(enumerate(leaves_of(codes, trees)))
    *rest, bins, marginals = measure_columns(
        leaves,
        encoder,
        trees,
        np.array(weights, dtype=np.float64),
        noise_scale,
        lambda vector: vector + noise_scale * rng.normal(size=vector.shape),
        n_records=n_records,
    )
    # The cell of each record.
    return *rest, [part[c] for part, c in zip(bins, codes, strict=True)], marginals


def test_without_noise_the_cells_hold_the_records():
    X = table()
    cells, n_records, encoder, codes, _ = measured(X, 0.0)
    assert n_records == pytest.approx(2000)
    direct = encode_codes(X, encoder)
    for found, column, ours, theirs in zip(
        cells, encoder.columns_.values(), codes, direct.columns, strict=True
    ):
        # The codes are those of the encoder that is returned.
        assert_array_equal(ours, theirs)
        assert len(found.shares) == column.domain.n_features
        binned = np.bincount(ours, minlength=len(found.shares)) / 2000
        assert np.abs(np.cumsum(found.shares - binned)).max() < 0.02
    assert len(cells[0].shares) == 12
    assert cells[1].shares[-1] == pytest.approx(0.05)


def test_the_number_of_records_is_public_or_estimated():
    X = table()
    assert measured(X, 3.0, n_records=2000.0)[1] == 2000.0
    estimated = measured(X, 3.0)[1]
    assert estimated != 2000.0
    assert estimated == pytest.approx(2000, abs=150)


def test_intervals_are_in_proportion_to_the_distance_from_zero():
    encoder, found = fine_encoder(SCHEMA, "auto")
    encoder.fit(None)
    trees = dict(zip(SCHEMA, column_trees(encoder, found), strict=True))
    zero = encoder.columns_["balance"].codes(pd.Series([0.0]))[0]
    tree = trees["balance"]
    assert {zero, zero + 1} <= {*tree.levels[-1]}
    for name, low, high in (("balance", -1000, 5000), ("depth", -5000, -100)):
        tree = trees[name]
        edges = low + (high - low) * np.append(tree.levels[-1], tree.n_values) / tree.n_values
        ratios = np.diff(edges) / np.minimum(*np.abs([edges[:-1], edges[1:]]))
        far = np.abs(edges[:-1] + edges[1:]) > 400
        assert ratios[far].max() < 1.1 / tree.base
        assert np.median(ratios[far]) > 0.45 / tree.base
    # Of dates no one is nearer to zero.
    assert trees["seen"].widths[-1].max() <= 2 * trees["seen"].widths[-1].min()


def test_given_bins_stay():
    X = table()
    edges = [-5000, -4000, -2000, -100]
    cells, _, encoder, codes, _ = measured(X, 5.0, n_bins={"depth": edges})
    assert_array_equal(cells[4].starts, [0, 1, 2])
    assert encoder.columns_["depth"].n_bins == 3
    assert_array_equal(codes[4], np.searchsorted(edges[1:3], X["depth"], side="right"))


@pytest.mark.parametrize("scale", [0.0, 5.0])
@pytest.mark.parametrize("weights", [(1, 1, 1, 1, 1), (1, 8, 2, 5, 1)], ids=["even", "weighted"])
def test_marginals_are_the_counts_of_groups_of_cells(scale, weights):
    """Of each level, unbiased, and with as much noise as they say."""
    X = table()
    _, _, encoder, codes, marginals = measured(X, scale, n_records=2000.0, weights=weights)
    names, gaps, levels, columns = list(encoder.columns_), [], {}, {}
    for part in marginals:
        (name,), (groups,) = part.columns, part.groups
        levels[name] = levels.get(name, 0) + 1
        exact = np.bincount(groups[codes[names.index(name)]], minlength=len(part.counts))
        assert part.counts.shape == np.shape(part.noise_scale)
        if scale == 0:
            assert_allclose(part.counts, exact)
        else:
            assert (np.array(part.noise_scale) >= scale - 1e-9).all()
            gaps.extend((part.counts - exact) / part.noise_scale)
            columns.setdefault(name, []).extend((part.counts - exact) / part.noise_scale)
    assert levels["job"] == 1
    assert levels["balance"] > 1
    if scale:
        # Of each column too, whose noise is in proportion to the inverse of its weight.
        for own in (gaps, *columns.values()):
            spread = 6 / np.sqrt(2 * len(own))
            assert abs(np.std(own) - 1) < spread
            assert abs(np.mean(own)) < 4 / np.sqrt(len(own))
