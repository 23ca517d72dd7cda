"""Estimates with confidence intervals that account for the noise of a release."""

from typing import TYPE_CHECKING

from sklearn_dpgen.utils._lazy import lazy_names

__all__ = [
    "combine_estimates",
    "estimate_by_refits",
    "estimate_means",
    "estimate_regression",
    "estimate_shares",
    "sample_tables",
]

if TYPE_CHECKING:
    from sklearn_dpgen.inference._estimates import (
        combine_estimates,
        estimate_means,
        estimate_regression,
        estimate_shares,
        sample_tables,
    )
    from sklearn_dpgen.inference._refits import estimate_by_refits
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "sklearn_dpgen.inference._estimates": [
                "combine_estimates",
                "estimate_means",
                "estimate_regression",
                "estimate_shares",
                "sample_tables",
            ],
            "sklearn_dpgen.inference._refits": ["estimate_by_refits"],
        },
    )
