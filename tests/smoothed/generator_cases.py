"""Fits of the smoothed generator without labels, with public and with private ones."""

from types import SimpleNamespace

import numpy as np

KINDS = ["none", "public", "private"]


def train(generator, table, kind):
    """Fit with the labels that its kind takes."""
    if kind == "none":
        return generator.fit(table.X)
    if kind == "private" and generator.classes is None:
        generator.set_params(classes=sorted(set(table.y)))
    return generator.set_params(labels=kind).fit(table.X, table.y)


def of_records(released, kind):
    """Return the releases but the first of a fit with private labels, which is of their counts."""
    return released[kind == "private" :]


def other_records(table, kind):
    """Return records of the same public quantities: with private labels, other labels too."""
    rng = np.random.default_rng(7)
    y = rng.choice(["a", "b"], size=len(table.y), p=[0.8, 0.2]) if kind == "private" else table.y
    return SimpleNamespace(X=3 * table.X[::-1] + 1, y=y)
