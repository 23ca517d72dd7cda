"""Synthetic tables from noisy marginals or local answers, and predictors trained on them.

A person has one row, or many rows in tables with keys.
"""

from typing import TYPE_CHECKING

from sklearn_dpgen.utils._lazy import lazy_names

__all__ = [
    "LocalTableSampler",
    "RelationalSampler",
    "TableSampler",
    "SyntheticDataClassifier",
    "SyntheticDataRegressor",
    "TableCounter",
]

if TYPE_CHECKING:
    from sklearn_dpgen.tables._local_table_sampler import LocalTableSampler
    from sklearn_dpgen.tables._relational_sampler import RelationalSampler
    from sklearn_dpgen.tables._synthetic_data import SyntheticDataClassifier, SyntheticDataRegressor
    from sklearn_dpgen.tables._table_counter import TableCounter
    from sklearn_dpgen.tables._table_sampler import TableSampler
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "sklearn_dpgen.tables._local_table_sampler": ["LocalTableSampler"],
            "sklearn_dpgen.tables._relational_sampler": ["RelationalSampler"],
            "sklearn_dpgen.tables._synthetic_data": [
                "SyntheticDataClassifier",
                "SyntheticDataRegressor",
            ],
            "sklearn_dpgen.tables._table_counter": ["TableCounter"],
            "sklearn_dpgen.tables._table_sampler": ["TableSampler"],
        },
    )
