"""Estimates with confidence intervals that account for the noise of a release."""

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
