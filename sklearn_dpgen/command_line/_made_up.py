"""Made-up tables of a schema, which may be shown and audited."""

import numpy as np
import pandas as pd

from sklearn_dpgen.schema import Schema
from sklearn_dpgen.schema._column import CategoryColumn

__all__ = ["made_up_table"]


def made_up_table(schema: Schema, n_rows: int) -> pd.DataFrame:
    """Return rows of independent columns, uniform over what is declared.

    Parameters
    ----------
    schema : Schema
    n_rows : int

    Returns
    -------
    DataFrame of shape (n_rows, n_columns)
    """
    rng = np.random.default_rng()
    return pd.DataFrame(
        {name: _values(column, n_rows, rng).to_numpy() for name, column in schema.items()}
    )


def _values(column, n_rows, rng):
    if isinstance(column, CategoryColumn):
        return column.decode_codes(rng.integers(0, column.n_categories, n_rows))
    points = rng.uniform(-1, 1, (n_rows, 1))
    if column.nullable:
        null = rng.random((n_rows, 1)) < 0.1
        points = np.hstack([points, ~null, null])
    return column.decode(points)
