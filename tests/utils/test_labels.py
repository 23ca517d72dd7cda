"""Labels: what is one column of them."""

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.utils._validation import column_or_1d

FRAME = pd.DataFrame({"pay": [1.0, 2.0], "day": pd.to_datetime(["2020-04-04", "2020-05-08"])})


@pytest.mark.parametrize("y", [FRAME, FRAME[["pay", "pay"]], FRAME.to_numpy()])
def test_several_columns_are_no_labels(y):
    with pytest.raises(ValueError, match="1d array"):
        column_or_1d(y)


@pytest.mark.parametrize("y", [[1, 2], np.array([[1], [2]]), pd.Series([1, 2]), FRAME[["pay"]]])
def test_one_column_is_flat(y):
    np.testing.assert_array_equal(column_or_1d(y), [1, 2])
