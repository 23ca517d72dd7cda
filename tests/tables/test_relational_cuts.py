"""The warning that max_rows cuts sizes: from released counts alone, and only for a spike."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.exceptions import MaxRowsWarning
from sklearn_dpgen.schema import Categorical, Numeric, Schema, Table
from sklearn_dpgen.tables import RelationalSampler

PANEL = Table(Schema({"ill": Categorical([0, 1])}), primary_key="id", max_rows=3)


def rows(sizes):
    ids = np.repeat(np.arange(len(sizes)), sizes)
    return pd.DataFrame({"id": ids, "ill": 0, "year": np.arange(len(ids)) % 3})


def fit(sizes, panel=PANEL, epsilon=np.inf):
    settings = {"population_size": 20, "max_iter": 1, "random_state": 0}
    names = ["id", *panel.schema]
    return RelationalSampler(epsilon, schema=panel, **settings).fit(rows(sizes)[names])


@pytest.mark.parametrize("epsilon", [np.inf, 50.0])
def test_a_spike_at_the_bound_is_warned_of(epsilon):
    with pytest.warns(MaxRowsWarning, match="Table 'rows': about 50% of .* max_rows=3 rows or"):
        fit([1, 2, 9, 40] * 300, epsilon=epsilon)


@pytest.mark.parametrize(
    ("sizes", "max_rows"),
    [
        ([1, 1, 2, 2, 3] * 9, 3),
        ([1, 1, 2, 2, 3], 9),
        ([1, 5, 9], 1),
        ([1] * 399 + [2] + [3] * 3, 3),
    ],
)
def test_sizes_that_fall_are_not(sizes, max_rows):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(sizes, replace(PANEL, max_rows=max_rows))


def test_a_spike_below_the_noise_is_not():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit([1, 2, 9, 40] * 10, epsilon=0.01)
    assert not [one for one in caught if "max_rows" in str(one.message)]


def test_a_person_with_a_row_for_each_value_of_the_index_is_complete():
    columns = Schema({"ill": Categorical([0, 1]), "year": Numeric(0, 2, integer=True)})
    panel = replace(PANEL, schema=columns, sequence_index="year")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit([3] * 50, panel)
    # The twin: with more years, more rows are possible.
    longer = Schema(dict(columns) | {"year": Numeric(0, 9, integer=True)})
    with pytest.warns(MaxRowsWarning, match="about 100% of the parent rows have max_rows=3"):
        fit([3] * 50, replace(panel, schema=longer))


@pytest.mark.slow
def test_a_spike_among_many_sizes_is_warned_of():
    panel = replace(PANEL, max_rows=600)
    sizes = [*np.random.default_rng(0).integers(1, 500, 200)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(sizes, panel)
    with pytest.warns(MaxRowsWarning, match="about 33% of .* max_rows=600"):
        fit(sizes + [700] * 100, panel)
