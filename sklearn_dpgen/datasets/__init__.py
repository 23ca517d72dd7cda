"""Example data: tables with public schemas, images, curves, and biased labels."""

from sklearn_dpgen.datasets._fetch import fetch_adult, fetch_fashion_mnist, fetch_mnist
from sklearn_dpgen.datasets._rand_health import load_rand_health
from sklearn_dpgen.datasets._simulated import make_biased_labels, make_half_circle

__all__ = [
    "fetch_adult",
    "fetch_fashion_mnist",
    "fetch_mnist",
    "load_rand_health",
    "make_biased_labels",
    "make_half_circle",
]
