"""How fine tables may be, how many, and what is said where noise leaves nothing."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_dpgen.exceptions import NoisyCountsWarning
from sklearn_dpgen.tables._privacy_plan import affordable_cells, affordable_marginals, warn_of_noise

reproducibly = settings(deadline=None, max_examples=100, derandomize=True)
SCALES = st.floats(0, 1e6)
RECORDS = st.floats(1, 1e9)


def clearness(n_records, noise_scale, n_cells):
    """Return the records of an even cell over the standard deviation of their number."""
    even = n_records / n_cells
    return even / math.sqrt(noise_scale**2 + even)


@reproducibly
@given(RECORDS, SCALES)
def test_an_even_cell_is_as_clear_as_any(n_records, noise_scale):
    """Whatever the number of records and the noise: as one without noise is."""
    cells = affordable_cells(n_records, noise_scale)
    expected = clearness(1e6, 0.0, affordable_cells(1e6, 0.0))
    assert clearness(n_records, noise_scale, cells) == pytest.approx(expected, rel=1e-6)
    assert affordable_cells(2 * n_records, noise_scale) > cells
    assert affordable_cells(n_records, 2 * noise_scale + 1) < cells


@reproducibly
@given(RECORDS, st.floats(1e-3, 1e6), st.floats(2, 100))
def test_so_many_tables_are_as_fine_as_is_asked(n_records, noise_scale, n_cells):
    count = affordable_marginals(n_records, noise_scale, n_cells)
    for more, is_enough in ((count, True), (count + 1, False)):
        # All tables of one vector have the noise of one, times the root of their number.
        if 0 < more < 1 << 30:
            found = affordable_cells(n_records, noise_scale * math.sqrt(more))
            assert (found >= n_cells * (1 - 1e-6)) == is_enough or found == pytest.approx(n_cells)


def test_extreme_numbers():
    assert affordable_marginals(1e9, 0.0, 16) == 1 << 30
    assert affordable_marginals(0.0, 0.0, 16) == affordable_marginals(-5.0, 1.0, 16) == 0
    assert 0 < affordable_cells(-100.0, 1e9) < 1
    assert np.isfinite(affordable_cells(1e12, 1e12))


def message(n_records, column_scale, table_scale):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_noise(n_records, column_scale, table_scale, epsilon=0.5)
    assert all(one.category is NoisyCountsWarning for one in caught)
    return " ".join(str(one.message) for one in caught)


def test_what_noise_leaves_is_said():
    columns, pairs = "Samples hardly depend on the records", "hardly any dependence between"
    assert message(1000, 500.0, 1.0).count(columns) == 1
    assert pairs in message(1000, 1.0, 500.0)
    assert columns not in message(1000, 1.0, 500.0)
    # Once, of what is worse.
    assert pairs not in message(1000, 500.0, 500.0)
    assert message(1000, 1.0, 1.0) == message(1000, 1.0, None) == ""
    assert "With epsilon=0.5 and about 1000 records" in message(1000, 500.0, None)
    with pytest.warns(NoisyCountsWarning, match="about 230 persons.*more persons"):
        warn_of_noise(230, 500.0, None, epsilon=0.5, unit="persons")
    # Few records are not noise.
    assert message(3, 0.0, 0.0) == ""
