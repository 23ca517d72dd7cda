"""Distances of pairs of columns between records and a law, in cells that the schema fixes."""

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import _table_sampler
from sklearn_dpgen.tables._distributions import ProductMixture
from sklearn_dpgen.tables._table_sampler import pair_distances

# With 40 bins, two for each of the 20 cells; of n one for each of four numbers.
SCHEMA = Schema(
    {
        "pay": Numeric(0, 1),
        "n": Numeric(1, 4, integer=True),
        "job": Categorical([f"job {i}" for i in range(20)]),
    }
)
ENCODER = TabularEncoder(SCHEMA, n_bins={"pay": 40, "n": 4}).fit()
WIDTHS, CELLS = (40, 4, 20), (20, 4, 20)


def mixture(seed, n_rows=6):
    rng = np.random.default_rng(seed)
    rows = np.hstack([rng.dirichlet(np.full(width, 0.5), size=n_rows) for width in WIDTHS])
    return ProductMixture(ENCODER.domain_, np.full(n_rows, 1 / n_rows), rows)


def expected_shares(law, first, second):
    """The shares of the cells of two columns."""
    parts = np.split(law.probabilities, np.cumsum(WIDTHS)[:-1], axis=1)
    parts = [
        part.reshape(len(part), size, -1).sum(axis=2)
        for part, size in zip(parts, CELLS, strict=True)
    ]
    return np.einsum("r,ra,rb->ab", law.shares, parts[first], parts[second])


def records(law, n):
    return ENCODER.decode_codes(law.sample(n, np.random.default_rng(1)))


def exact(frame, law):
    """Total variations of pairs of columns by their cells."""
    codes = [
        np.minimum(np.floor(20 * frame["pay"]).astype(int), 19),
        frame["n"] - 1,
        frame["job"].map(dict(zip(SCHEMA["job"].categories, range(20), strict=True))),
    ]
    found = []
    for first, second in [(0, 1), (0, 2), (1, 2)]:
        counts = np.zeros((CELLS[first], CELLS[second]))
        np.add.at(counts, (codes[first], codes[second]), 1 / len(frame))
        found.append(np.abs(counts - expected_shares(law, first, second)).sum() / 2)
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_distances_of_pairs(seed):
    law, other = mixture(0), mixture(seed)
    frame = records(other, 3000)
    expected, found = exact(frame, law), pair_distances(frame, law, ENCODER)
    assert np.abs(found - expected).max() < 0.005
    np.testing.assert_array_equal(found, pair_distances(frame, law, ENCODER))


@pytest.mark.slow
def test_drawn_records_add_little(monkeypatch):
    law = ProductMixture(ENCODER.domain_, np.ones(1), np.repeat(1 / np.array(WIDTHS), WIDTHS)[None])
    # Each cell as often as is expected: all of the distance is that of what is drawn.
    cells = [(np.arange(20) + 0.5) / 20, np.arange(1, 5), SCHEMA["job"].categories]
    frame = pd.MultiIndex.from_product(cells, names=list(SCHEMA)).to_frame(index=False)
    assert exact(frame, law).max() < 1e-9
    assert 0.008 < pair_distances(frame, law, ENCODER).max() < 0.011
    monkeypatch.setattr(_table_sampler, "_MOST", 10_000)
    assert pair_distances(frame, law, ENCODER).max() > 0.06


def test_a_single_column():
    encoder = TabularEncoder(Schema({"job": SCHEMA["job"]})).fit()
    law = ProductMixture(encoder.domain_, np.ones(1), np.full((1, 20), 0.05))
    frame = pd.DataFrame({"job": ["job 0", "job 1"]})
    assert pair_distances(frame, law, encoder) == pytest.approx([0.9], abs=0.01)
