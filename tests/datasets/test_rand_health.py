import sys

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.datasets import load_rand_health
from sklearn_dpgen.schema import Categorical, Ordinal


@pytest.fixture(scope="module")
def rand_health():
    pytest.importorskip("statsmodels")
    return load_rand_health()


def test_frame_is_the_original(rand_health):
    frame = rand_health.frame
    assert frame.shape == (20190, 10)
    assert list(frame.columns) == list(rand_health.schema)
    integers = ["mdvis", "idp", "hlthg", "hlthf", "hlthp"]
    assert (frame.dtypes[integers] == np.int64).all()
    assert (frame.dtypes.drop(integers) == np.float64).all()
    assert set(rand_health.column_descriptions) == set(frame.columns)


def test_declared_values_match_the_rows_bit_for_bit(rand_health):
    for name, column in rand_health.schema.items():
        if isinstance(column, Ordinal | Categorical):
            declared = column.categories
            assert set(rand_health.frame[name]) == set(declared), name
    plans = np.log1p([0, 25, 50, 95, 100])
    np.testing.assert_allclose(rand_health.schema["lncoins"].categories, plans, atol=1e-6)


def test_bounds_are_those_of_the_design(rand_health):
    schema, frame = rand_health.schema, rand_health.frame
    bounds = {
        n: (schema[n].low, schema[n].high) for n in ["mdvis", "lpi", "fmde", "physlm", "disea"]
    }
    assert bounds == {
        "mdvis": (0, 24),
        "lpi": (0, 7.2),
        "fmde": (0, 8.3),
        "physlm": (0, 1),
        "disea": (0, 60),
    }
    assert schema["mdvis"].integer
    assert np.log(1000 / 0.25) < schema["fmde"].high
    # Only the cap on visits, a declaration, cuts anything.
    cut = {n for n, (low, high) in bounds.items() if not frame[n].between(low, high).all()}
    assert cut == {"mdvis"}


def test_calls_do_not_share_a_table(rand_health):
    other = load_rand_health()
    other.frame.loc[:, "mdvis"] = -1
    pd.testing.assert_frame_equal(load_rand_health().frame, rand_health.frame)


def test_missing_statsmodels_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "statsmodels.datasets", None)
    with pytest.raises(ImportError, match=r"sklearn-dpgen\[examples\]"):
        load_rand_health()
