"""Strata: groups of records with public sizes, and the pairs of them that a penalty compares."""

from collections import Counter
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._unit import Persons

__all__ = [
    "GROUP_WEIGHTS",
    "PENALTIES",
    "StratifiedRecords",
    "Strata",
    "count_cells",
    "make_strata",
    "protected_strata",
]

PENALTIES = ("demographic_parity", "equalized_odds")
GROUP_WEIGHTS = ("size", "equal")


@dataclass(frozen=True)
class Strata:
    """A partition of the records, and the pairs of strata that a penalty compares.

    Parameters
    ----------
    sizes : tuple of int
        Number of records, or of persons, in each stratum.
    pairs : tuple of (int, int)
        The pairs of strata whose output distributions are compared.
    cells : tuple of (int, int or None)
        Group code and label code of each stratum; the label is None for demographic parity. Empty
        without groups.
    protects_cells : bool, default=False
        Whether the cell of a record is private. There is then one stratum, of all records, and
        ``pairs`` are pairs of ``cells``, into which every batch is divided.
    """

    sizes: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...] = ()
    cells: tuple[tuple[int, int | None], ...] = ()
    protects_cells: bool = False

    @property
    def within_labels(self):
        """Whether groups are compared within each label, as for equalized odds."""
        return bool(self.cells) and self.cells[0][1] is not None

    @property
    def shares(self):
        """Share of the records that each stratum has."""
        total = sum(self.sizes)
        return [size / total for size in self.sizes]

    def group_weights(self, by):
        """Return the weight of each stratum in a mean: its share (by="size") or 1 / n_strata."""
        return self.shares if by == "size" else [1 / len(self.sizes)] * len(self.sizes)

    def pair_weights(self, by):
        """Return the weight of each pair in the penalty.

        Parameters
        ----------
        by : {"size", "equal"}
            By size the weight is 2 G / (G - 1) p_a p_b / p_y, where p_a and p_b are the shares of
            the two strata, and p_y the share of all G strata with their label. "equal" is one over
            the number of pairs, as is "size" for strata of equal size.

        Returns
        -------
        list of float
        """
        if by == "equal":
            return [1 / len(self.pairs)] * len(self.pairs)
        total = sum(self.sizes)
        label_sizes: Counter = Counter()
        n_groups: Counter = Counter()
        for (_, label), size in zip(self.cells, self.sizes, strict=True):
            label_sizes[label] += size
            n_groups[label] += 1
        weights = []
        for first, second in self.pairs:
            label = self.cells[first][1]
            factor = 2 * n_groups[label] / (n_groups[label] - 1)
            product = self.sizes[first] * self.sizes[second]
            weights.append(factor * product / (total * label_sizes[label]))
        return weights

    def of_batch(self, counts):
        """Return the cells as strata of a batch, with private counts that may be zero."""
        return Strata(tuple(counts), self.pairs, self.cells)

    def protected_weights(self):
        """Return the weight of each pair in the penalty on a batch with private counts.

        Returns
        -------
        list of float
            For two strata the weight by size, 4 p_a p_b. For more, of G groups, 2 / (G - 1) times
            the smaller of the shares p_a and p_b, because with products of shares the sensitivity
            would be larger, and with sizes of labels larger still. For strata of equal size all are
            equal.
        """
        if len(self.cells) == 2:
            return self.pair_weights("size")
        n_groups, total = len({group for group, _ in self.cells}), sum(self.sizes)
        smaller = (min(self.sizes[one], self.sizes[other]) for one, other in self.pairs)
        return [2 * size / ((n_groups - 1) * total) for size in smaller]

    def batch_sizes(self, fraction):
        """Return the batch size of each stratum, at least one."""
        return [max(1, round(fraction * size)) for size in self.sizes]


@dataclass(frozen=True)
class StratifiedRecords:
    """The private assignment of records, or of persons with their rows, to strata.

    Parameters
    ----------
    strata : tuple of ndarray of int
        Record indices, or person codes, in each stratum.
    persons : tuple of (Persons or None)
        The persons of each stratum; None where a stratum holds records.
    """

    strata: tuple[np.ndarray, ...]
    persons: tuple[Persons | None, ...]

    @classmethod
    def from_samples(cls, sizes, persons):
        """Return one stratum for each separate sample, such as a source and a target."""
        counts = [
            size if owners is None else owners.n_persons
            for size, owners in zip(sizes, persons, strict=True)
        ]
        return cls(tuple(map(np.arange, counts)), tuple(persons))

    @classmethod
    def from_cells(cls, cells, groups, labels, persons):
        """Return one stratum for each combination of a group and a label.

        Parameters
        ----------
        cells : tuple of (int, int or None)
        groups, labels : ndarray of int
            Codes of each record, or person. Labels are read only where cells have them.
        persons : Persons or None
        """
        strata = tuple(
            np.flatnonzero((groups == group) & (True if label is None else labels == label))
            for group, label in cells
        )
        return cls(strata, (persons,) * len(strata))

    @property
    def sizes(self):
        """Number of records, or persons, in each stratum."""
        return tuple(map(len, self.strata))

    def subset(self, positions):
        """Return some of the strata, by their positions."""
        return StratifiedRecords(
            tuple(self.strata[position] for position in positions),
            tuple(self.persons[position] for position in positions),
        )

    def rows(self, drawn, noise):
        """Return the row indices of a batch, with one random row for each person.

        Replacing a person thus changes one row of the batch, whichever row is drawn.

        Parameters
        ----------
        drawn : list of ndarray of int
            Positions within each stratum.
        noise : NoiseSource
            Source of the secret draw of rows.

        Returns
        -------
        list of ndarray of int
        """
        selected = [
            stratum[positions] for stratum, positions in zip(self.strata, drawn, strict=True)
        ]
        return [
            codes if persons is None else persons.draw(noise, codes)
            for codes, persons in zip(selected, self.persons, strict=True)
        ]

    def bind(self, noise):
        """Return a noise source whose seeded noise depends on this assignment."""
        persons = {id(owners): owners.codes for owners in self.persons if owners is not None}
        return noise.bind(*self.strata, *persons.values())


def count_cells(groups, n_groups, labels=None, n_labels=1):
    """Return the number of records of each group, or of each group and label.

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
    """Return the strata of the groups, or of the groups by label.

    Parameters
    ----------
    sizes : ndarray of int of shape (n_groups,) or (n_groups, n_labels)
        Numbers of records. With labels, groups are compared within each label (equalized odds).
    declared : bool, default=False
        Whether the groups are declared. If so, a group without records, or without records of a
        label, has no stratum there, and its pairs are omitted.

    Returns
    -------
    Strata

    Raises
    ------
    PublicValueError
        A stratum has fewer than two records, and the groups are not declared.
    """
    within = sizes.ndim == 2
    if sizes.min() < 2 and not declared:
        # Sizes are public, so that the message may give the smallest.
        every, parity = " within every label", "use demographic parity, "
        raise PublicValueError(
            f"Each group of sensitive_features must have at least two records{every * within}; the "
            f"smallest has {sizes.min()}. Merge groups, {parity * within}or declare groups."
        )
    table = sizes.reshape(len(sizes), -1)
    cells = [
        (group, label if within else None)
        for label in range(table.shape[1])
        for group in range(len(table))
        if table[group, label]
    ]
    counts = tuple(int(table[group, label or 0]) for group, label in cells)
    return Strata(counts, _pairs(cells), tuple(cells))


def protected_strata(n_samples, n_groups, n_labels=None):
    """Return the one stratum of records whose groups, or groups and labels, are private.

    Parameters
    ----------
    n_samples : int
        Number of records, or of persons.
    n_groups : int
        Number of declared groups.
    n_labels : int, optional
        Number of labels, if groups are compared within each label (equalized odds).

    Returns
    -------
    Strata
        Its cells are in the order of ``group + n_groups * label``.
    """
    labels = [None] if n_labels is None else range(n_labels)
    cells = tuple((group, label) for label in labels for group in range(n_groups))
    return Strata((n_samples,), _pairs(cells), cells, protects_cells=True)


def _pairs(cells):
    """Return the pairs of cells with the same label."""
    return tuple(
        (first, second)
        for first, second in combinations(range(len(cells)), 2)
        if cells[first][1] == cells[second][1]
    )
