"""Strata: groups of records whose sizes are public, and which of them are to be treated alike."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

__all__ = ["PENALTIES", "Strata", "make_strata"]

PENALTIES = ("statistical_parity", "equalized_odds")


@dataclass(frozen=True)
class Strata:
    """A partition of the records, with the pairs of parts that a penalty compares.

    Parameters
    ----------
    members : tuple of ndarray
        The rows of each stratum. Their numbers are public.
    pairs : tuple of (int, int)
        The strata whose outputs are pulled together; each pair has the same weight.
    n_groups : int
        Values of the sensitive feature.
    n_labels : int
        Labels within which groups are compared; 1 for statistical parity.
    """

    members: tuple[np.ndarray, ...]
    pairs: tuple[tuple[int, int], ...] = ()
    n_groups: int = 1
    n_labels: int = 1

    @property
    def sizes(self):
        """Number of records of each stratum."""
        return [len(rows) for rows in self.members]

    def batch_sizes(self, fraction):
        """Return how many records of each stratum a batch takes, at least one."""
        return [max(1, round(fraction * size)) for size in self.sizes]


def make_strata(n_samples, *, groups=None, labels=None, n_labels=None):
    """Partition records by group, and by label within a group where labels are given.

    Parameters
    ----------
    n_samples : int
    groups : ndarray of int of shape (n_samples,), optional
        Codes 0 .. G - 1 of the sensitive feature. None leaves one stratum and no pairs.
    labels : ndarray of int of shape (n_samples,), optional
        Codes 0 .. R - 1: groups are compared within each label (equality of odds).
    n_labels : int, optional
        R, where labels are given.

    Returns
    -------
    Strata

    Raises
    ------
    ValueError
        A stratum has fewer than two records. Sizes are public; the message gives them.
    """
    if groups is None:
        return Strata((np.arange(n_samples),))
    n_groups = int(groups.max()) + 1
    if labels is None:
        labels, n_labels = np.zeros_like(groups), 1
    codes = labels * n_groups + groups
    members = tuple(np.flatnonzero(codes == code) for code in range(n_labels * n_groups))
    smallest = min(map(len, members))
    if smallest < 2:
        within = " within every label" if n_labels > 1 else ""
        raise ValueError(
            f"Each group of sensitive_features needs at least two records{within}; the smallest "
            f"has {smallest}. Merge groups{', or use statistical parity' if within else ''}."
        )
    pairs = tuple(
        (label * n_groups + first, label * n_groups + second)
        for label in range(n_labels)
        for first, second in combinations(range(n_groups), 2)
    )
    return Strata(members, pairs, n_groups, n_labels)
