"""Simulated tables whose target is a function of 4 to 6 columns at once.

They stand for the simulations of Tran et al., "Differentially private synthetic data via APIs 4:
tabular data" (2026, arXiv:2606.08259), whose files were not to be had: the exclusive or of some
columns, and random decision trees. All columns are uniform and independent, and the target is

- the parity of k of 10 binary columns, of which fewer than k tell nothing; or
- a complete random decision tree of depth k over k of 10 columns of 4 values each: each inner node
  cuts a random column between two of the values that can still reach it, and the two leaves of a
  last cut have different labels, drawn.

With a noise of .05 a twentieth of the labels is flipped, in test records too: no classifier has an
expected accuracy above .95. Settings are chosen with the seeds of `CHOOSE`, and results have those
of `REPORT`: a seed makes the columns, the tree and the records.
"""

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from sklearn_dpgen.schema import Categorical, Ordinal, Schema

__all__ = ["CHOOSE", "NAMES", "REPORT", "Dense", "dense_table"]

N_COLUMNS = 10
N_VALUES = 4
TARGET = "y"
REPORT = tuple(range(5))
CHOOSE = tuple(range(100, 105))
KINDS = ("parity", "tree")
# As "parity of 4" and "tree of 6, noise 0.05".
NAMES = tuple(
    f"{kind} of {order}{end}"
    for kind in KINDS
    for order in (4, 5, 6)
    for end in ("", ", noise 0.05")
)
NAME = re.compile(r"(parity|tree) of (\d+)(?:, noise (0?\.\d+))?")


class Dense(NamedTuple):
    """A simulated table.

    Attributes
    ----------
    train, test : data frame
        Independent records of the same distribution.
    schema : Schema
        Public labels of the columns.
    target : str
    relevant : tuple of str
        The columns of which the target is a function, but for the noise.
    accuracy : float
        The expected accuracy of the true function on test records.
    """

    train: pd.DataFrame
    test: pd.DataFrame
    schema: Schema
    target: str
    relevant: tuple
    accuracy: float


def dense_table(name, *, seed=0, n=30_000, n_test=10_000):
    """Return a simulated table.

    Parameters
    ----------
    name : str
        "parity of K" or "tree of K", and ", noise P" for labels flipped with probability P; `NAMES`
        has those of the benchmark.
    seed : int, default=0
    n, n_test : int
        Numbers of records.

    Returns
    -------
    Dense

    Raises
    ------
    ValueError
        If the name is another, or has more columns than there are.
    """
    found = NAME.fullmatch(name)
    if not found or not 1 <= int(found[2]) <= N_COLUMNS:
        raise ValueError(f"name must be as 'parity of 4' or 'tree of 6, noise 0.05', got {name!r}.")
    kind, order, noise = found[1], int(found[2]), float(found[3] or 0)
    rng = np.random.default_rng([seed, KINDS.index(kind), order])
    n_values = 2 if kind == "parity" else N_VALUES
    names = [f"x{i}" for i in range(N_COLUMNS)]
    relevant = np.sort(rng.choice(N_COLUMNS, order, replace=False))
    values = rng.integers(n_values, size=(n + n_test, N_COLUMNS))
    if kind == "parity":
        labels = values[:, relevant].sum(axis=1) % 2
    else:
        labels = _tree_labels(values[:, relevant], order, rng)
    labels ^= rng.random(len(labels)) < noise
    frame = pd.DataFrame(values, columns=names).assign(**{TARGET: labels})
    column = Categorical([0, 1]) if n_values == 2 else Ordinal(range(n_values))
    schema = Schema(dict.fromkeys(names, column) | {TARGET: Categorical([0, 1])})
    train, test = frame[:n], frame[n:].reset_index(drop=True)
    chosen = tuple(names[i] for i in relevant)
    return Dense(train, test, schema, TARGET, chosen, 1 - noise)


def _tree_labels(values, depth, rng):
    """Return the labels that a random tree gives to values, of which it may use each column."""
    labels = np.zeros(len(values), dtype=int)

    def grow(members, low, high, left):
        """Cut a node with values from low to high, so that each child can be reached."""
        open_columns = np.flatnonzero(high > low)
        column = rng.choice(open_columns)
        cut = rng.integers(low[column], high[column])  # the last value that goes to the left
        goes_left = values[members, column] <= cut
        sides = members[goes_left], members[~goes_left]
        if left == 1:
            labels[sides[rng.integers(2)]] = 1
            return
        below, above = high.copy(), low.copy()
        below[column], above[column] = cut, cut + 1
        grow(sides[0], low, below, left - 1)
        grow(sides[1], above, high, left - 1)

    n_columns = values.shape[1]
    low, high = np.zeros(n_columns, dtype=int), np.full(n_columns, N_VALUES - 1)
    grow(np.arange(len(values)), low, high, depth)
    return labels
