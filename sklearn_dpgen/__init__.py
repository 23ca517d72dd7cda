"""Synthetic tables, generators and fair predictors learned from private records."""

from sklearn_dpgen._version import __version__
from sklearn_dpgen.persistence import load

__all__ = ["__version__", "load"]
