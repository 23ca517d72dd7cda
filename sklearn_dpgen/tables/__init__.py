"""Synthetic tables from noisy marginals or local answers, and predictors trained on them.

A person has one row, or many rows in tables with keys.
"""

from sklearn_dpgen.tables._local_table_sampler import LocalTableSampler
from sklearn_dpgen.tables._relational_sampler import RelationalSampler
from sklearn_dpgen.tables._synthetic_data import SyntheticDataClassifier, SyntheticDataRegressor
from sklearn_dpgen.tables._table_counter import TableCounter
from sklearn_dpgen.tables._table_sampler import TableSampler

__all__ = [
    "LocalTableSampler",
    "RelationalSampler",
    "TableSampler",
    "SyntheticDataClassifier",
    "SyntheticDataRegressor",
    "TableCounter",
]
