"""Tables with public schemas, images, curves to recover from noise, and biased labels."""

from sklearn_dpgen.datasets._adult import fetch_adult
from sklearn_dpgen.datasets._biased import make_biased_labels
from sklearn_dpgen.datasets._curves import make_ellipse, make_half_circle, make_rectangle
from sklearn_dpgen.datasets._home import get_data_home
from sklearn_dpgen.datasets._mnist import fetch_fashion_mnist, fetch_mnist
from sklearn_dpgen.datasets._rand_health import load_rand_health

__all__ = [
    "fetch_adult",
    "fetch_fashion_mnist",
    "fetch_mnist",
    "get_data_home",
    "load_rand_health",
    "make_biased_labels",
    "make_ellipse",
    "make_half_circle",
    "make_rectangle",
]
