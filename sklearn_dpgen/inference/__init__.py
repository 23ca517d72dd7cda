"""Estimates with confidence intervals that account for the noise of a release."""

from sklearn_dpgen.inference._estimates import (
    combine_estimates,
    estimate_means,
    estimate_regression,
    estimate_shares,
    sample_tables,
)
from sklearn_dpgen.inference._refits import estimate_by_refits

__all__ = [
    "combine_estimates",
    "estimate_by_refits",
    "estimate_means",
    "estimate_regression",
    "estimate_shares",
    "sample_tables",
]
