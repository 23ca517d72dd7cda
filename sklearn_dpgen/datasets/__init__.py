"""Tables with public schemas, images, and curves to recover from noise."""

from sklearn_dpgen.datasets._adult import fetch_adult
from sklearn_dpgen.datasets._curves import make_ellipse, make_half_circle, make_rectangle
from sklearn_dpgen.datasets._home import get_data_home
from sklearn_dpgen.datasets._mnist import fetch_mnist
from sklearn_dpgen.datasets._rand_health import load_rand_health

__all__ = [
    "fetch_adult",
    "fetch_mnist",
    "get_data_home",
    "load_rand_health",
    "make_ellipse",
    "make_half_circle",
    "make_rectangle",
]
