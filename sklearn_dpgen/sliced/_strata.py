"""Strata: groups of records whose sizes are public, and which of them are to be treated alike."""

from collections import Counter
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from sklearn_dpgen.ledger._unit import Persons

__all__ = ["GROUP_WEIGHTS", "PENALTIES", "Members", "Strata", "count_cells", "make_strata"]

PENALTIES = ("demographic_parity", "equalized_odds")
GROUP_WEIGHTS = ("size", "equal")


@dataclass(frozen=True)
class Strata:
    """A partition of the records, with the pairs of parts that a penalty compares.

    Parameters
    ----------
    sizes : tuple of int
        Number of records of each stratum, or of persons.
    pairs : tuple of (int, int)
        The strata whose outputs are pulled together.
    cells : tuple of (int, int or None)
        Codes of the group and the label of each stratum; the label is None for demographic parity.
        Empty without groups.
    """

    sizes: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...] = ()
    cells: tuple[tuple[int, int | None], ...] = ()

    @property
    def within_labels(self):
        """Whether groups are compared within each label, as for equality of odds."""
        return bool(self.cells) and self.cells[0][1] is not None

    @property
    def shares(self):
        """Share of the records of each stratum."""
        total = sum(self.sizes)
        return [size / total for size in self.sizes]

    def group_weights(self, by):
        """Return the weight of each stratum in a mean over strata: its share, or the same."""
        return self.shares if by == "size" else [1 / len(self.sizes)] * len(self.sizes)

    def pair_weights(self, by):
        """Return the weight of each pair in the penalty.

        Parameters
        ----------
        by : {"size", "equal"}
            By size it is 2 G / (G - 1) p_a p_b / p_y, with the shares p of the records that the
            strata have, and all of the G strata of their label; for strata of one size, and else
            with "equal", it is one over the number of pairs.

        Returns
        -------
        list of float
        """
        if by == "equal":
            return [1 / len(self.pairs)] * len(self.pairs)
        total = sum(self.sizes)
        of_label: Counter = Counter()
        n_groups: Counter = Counter()
        for (_, label), size in zip(self.cells, self.sizes, strict=True):
            of_label[label] += size
            n_groups[label] += 1
        weights = []
        for first, second in self.pairs:
            label = self.cells[first][1]
            factor = 2 * n_groups[label] / (n_groups[label] - 1)
            product = self.sizes[first] * self.sizes[second]
            weights.append(factor * product / (total * of_label[label]))
        return weights

    def batch_sizes(self, fraction):
        """Return how many records of each stratum a batch takes, at least one."""
        return [max(1, round(fraction * size)) for size in self.sizes]


@dataclass(frozen=True)
class Members:
    """Who is in each stratum: records, or persons of whom each has rows. All of it is secret.

    Parameters
    ----------
    strata : tuple of ndarray of int
        Positions of records, or numbers of persons.
    persons : tuple of (Persons or None)
        Of each stratum; None where its members are records.
    """

    strata: tuple[np.ndarray, ...]
    persons: tuple[Persons | None, ...]

    @classmethod
    def of_samples(cls, sizes, persons):
        """Return the members of strata that are samples by themselves."""
        counts = [
            size if some is None else some.n_persons
            for size, some in zip(sizes, persons, strict=True)
        ]
        return cls(tuple(map(np.arange, counts)), tuple(persons))

    @classmethod
    def of_cells(cls, cells, groups, labels, persons):
        """Return the members of each cell of a group and a label.

        Parameters
        ----------
        cells : tuple of (int, int or None)
        groups, labels : ndarray of int
            Codes of each record, or person. Labels are not read where cells have none.
        persons : Persons or None
        """
        strata = tuple(
            np.flatnonzero((groups == group) & (True if label is None else labels == label))
            for group, label in cells
        )
        return cls(strata, (persons,) * len(strata))

    @property
    def sizes(self):
        """Number of members of each stratum."""
        return tuple(map(len, self.strata))

    def only(self, positions):
        """Return the members of some of the strata."""
        return Members(
            tuple(self.strata[position] for position in positions),
            tuple(self.persons[position] for position in positions),
        )

    def rows(self, drawn, noise):
        """Return the rows of a batch: of each person one, drawn anew.

        Whatever row is drawn of them, another person in the place of one moves a single row.

        Parameters
        ----------
        drawn : list of ndarray of int
            Positions within each stratum.
        noise : NoiseSource
            The draw is secret.

        Returns
        -------
        list of ndarray of int
        """
        picked = [who[positions] for who, positions in zip(self.strata, drawn, strict=True)]
        return [
            who if persons is None else persons.draw(noise, who)
            for who, persons in zip(picked, self.persons, strict=True)
        ]

    def bind(self, noise):
        """Return a source of noise, bound to who is in each stratum."""
        persons = {id(some): some.codes for some in self.persons if some is not None}
        return noise.bind(*self.strata, *persons.values())


def count_cells(groups, n_groups, labels=None, n_labels=1):
    """Return the number of records of each group, and of each label within it.

    Parameters
    ----------
    groups, labels : ndarray of int of shape (n_samples,)
        Codes.
    n_groups, n_labels : int

    Returns
    -------
    ndarray of int of shape (n_groups,), or (n_groups, n_labels) where labels are given
    """
    if labels is None:
        return np.bincount(groups, minlength=n_groups)
    counts = np.bincount(groups * n_labels + labels, minlength=n_groups * n_labels)
    return counts.reshape(n_groups, n_labels)


def make_strata(sizes, *, declared=False):
    """Return a stratum for each group, and for each label within a group where there are labels.

    Parameters
    ----------
    sizes : ndarray of int of shape (n_groups,) or (n_groups, n_labels)
        Numbers of records. With labels, groups are compared within each (equality of odds).
    declared : bool, default=False
        Whether the groups are declared: then a group without records, or without records of a
        label, makes no stratum, and its pairs are left out.

    Returns
    -------
    Strata

    Raises
    ------
    ValueError
        A stratum has fewer than two records, and groups are not declared. Sizes are public; the
        message gives them.
    """
    within = sizes.ndim == 2
    if sizes.min() < 2 and not declared:
        every, parity = " within every label", "use demographic parity, "
        raise ValueError(
            f"Each group of sensitive_features needs at least two records{every * within}; the "
            f"smallest has {sizes.min()}. Merge groups, {parity * within}or declare groups."
        )
    table = sizes.reshape(len(sizes), -1)
    cells = [
        (group, label if within else None)
        for label in range(table.shape[1])
        for group in range(len(table))
        if table[group, label]
    ]
    pairs = (
        (first, second)
        for first, second in combinations(range(len(cells)), 2)
        if cells[first][1] == cells[second][1]
    )
    counts = tuple(int(table[group, label or 0]) for group, label in cells)
    return Strata(counts, tuple(pairs), tuple(cells))
