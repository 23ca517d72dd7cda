"""Estimates with intervals that count the noise of what was released, at no cost in privacy."""

from sklearn_dpgen.inference._combination import combine_estimates, sample_tables
from sklearn_dpgen.inference._estimates import (
    estimate_means,
    estimate_regression,
    estimate_shares,
)

__all__ = [
    "combine_estimates",
    "estimate_means",
    "estimate_regression",
    "estimate_shares",
    "sample_tables",
]
