"""Example data: tables with public schemas, images, curves, and biased labels."""

from typing import TYPE_CHECKING

from sklearn_dpgen.utils._lazy import lazy_names

__all__ = [
    "fetch_adult",
    "fetch_fashion_mnist",
    "fetch_mnist",
    "load_rand_health",
    "make_biased_labels",
    "make_half_circle",
]

if TYPE_CHECKING:
    from sklearn_dpgen.datasets._fetch import fetch_adult, fetch_fashion_mnist, fetch_mnist
    from sklearn_dpgen.datasets._rand_health import load_rand_health
    from sklearn_dpgen.datasets._simulated import make_biased_labels, make_half_circle
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "sklearn_dpgen.datasets._fetch": ["fetch_adult", "fetch_fashion_mnist", "fetch_mnist"],
            "sklearn_dpgen.datasets._rand_health": ["load_rand_health"],
            "sklearn_dpgen.datasets._simulated": ["make_biased_labels", "make_half_circle"],
        },
    )
