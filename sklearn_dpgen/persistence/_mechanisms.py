"""Local mechanisms are made anew from their parameters: their noise is what these say, always."""

from numbers import Integral

import numpy as np
import pandas as pd

from sklearn_dpgen.domains import OneHot
from sklearn_dpgen.mechanisms import RandomizedResponse, TabularMechanism
from sklearn_dpgen.mechanisms._base import Mechanism
from sklearn_dpgen.mechanisms._release import drawn_by
from sklearn_dpgen.persistence._checks import demand
from sklearn_dpgen.schema import Datetime, Numeric

__all__ = ["check_mechanism"]

# Categories of all columns, and their squares, where there is a matrix of chances for each column.
_MOST_CATEGORIES = 1 << 17
_MOST_CHANCES = 1 << 21


def check_mechanism(mechanism: Mechanism) -> None:
    """Fit a mechanism anew, and check that its guarantee is the one that the file states.

    A scale of noise that is read from a file could be any; one that is computed from the budget
    keeps to it.
    """
    stated, width = mechanism.privacy_, mechanism.n_features_in_
    names = getattr(mechanism, "feature_names_in_", None)
    demand(names is None or len(names) == width, "There are other columns than names of columns.")
    sizes = _sizes(mechanism, width)
    demand(sum(sizes) <= _MOST_CATEGORIES, "A mechanism has too many categories.")
    if isinstance(mechanism, RandomizedResponse | TabularMechanism):
        chances = sum(size**2 for size in sizes)
        demand(chances <= _MOST_CHANCES, "A mechanism has too many categories.")
    mechanism.fit(None if names is None else pd.DataFrame(np.zeros((1, width)), columns=names))
    report = mechanism.privacy_
    demand(mechanism.n_features_in_ == width, "A mechanism has another number of columns.")
    demand(
        (report.epsilon, report.delta) == (stated.epsilon, stated.delta)
        and _is_near(report.noise_scale, stated.noise_scale),
        "A mechanism states another guarantee than its parameters give.",
    )
    if stated.is_seeded:
        # It stays void where noise was drawn from a seed before.
        mechanism.privacy_ = drawn_by(report, stated.noise_source)


def _sizes(mechanism, width):
    """Return the number of categories of each column, before anything of their size is made."""
    schema = getattr(mechanism, "schema", None)
    if schema is None:
        domain = mechanism.domain
        demand(domain.n_features == width, "A mechanism has another number of columns.")
        return [domain.n_categories] if isinstance(domain, OneHot) else []
    demand(len(schema) == width, "A mechanism has another number of columns.")
    bins, sizes = mechanism.bins, []
    for name, column in schema.items():
        if isinstance(column, Numeric | Datetime):
            given = bins.get(name) if isinstance(bins, dict) else bins
            counted = isinstance(given, Integral)
            sizes.append(given if counted else 0 if isinstance(given, str | None) else len(given))
        else:
            sizes.append(column.domain.n_features)
    return sizes


def _is_near(scale, stated):
    """Return whether scales are the same, but for the rounding of another machine."""
    if isinstance(scale, dict) and isinstance(stated, dict):
        same = scale.keys() == stated.keys()
        return same and all(_is_near(value, stated[name]) for name, value in scale.items())
    if isinstance(scale, float) and isinstance(stated, float):
        return scale == stated or abs(scale - stated) <= 1e-6 * abs(scale)
    return scale is None and stated is None
