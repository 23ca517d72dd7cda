"""Estimates with intervals that count the noise of what was released, at no cost in privacy."""

from sklearn_dpgen.inference._estimates import (
    combine_estimates,
    estimate_means,
    estimate_regression,
    estimate_shares,
    sample_tables,
)

__all__ = [
    "combine_estimates",
    "estimate_means",
    "estimate_regression",
    "estimate_shares",
    "sample_tables",
]
