"""Records of a private search, and the parts in which they train and score."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.ledger._unit import Persons, split_unit
from sklearn_dpgen.tables._person_rows import persons_of_rows, stages_of
from sklearn_dpgen.utils._frames import frame_columns
from sklearn_dpgen.utils._groups import check_sensitive_features
from sklearn_dpgen.utils._validation import call_quietly, num_samples, take_rows

__all__ = ["Parts", "PersonTables", "Records", "as_rows"]


class Records:
    """Private records, split so that each unit, a row or a person, is in one part.

    Parameters
    ----------
    X : data frame or array-like of shape (n_rows, n_columns)
    y : array-like of shape (n_rows,) or None
    unit : str or None
        Name of the column of X that identifies the person of a row.
    schema : Schema or None, default=None
        Schema of the records, which keep the column of the unit if it is declared there.
    sensitive_features : array-like or None, default=None
        Groups of the rows.
    groups : array-like or None, default=None
        The declared groups, if the sizes of the groups are public: a part then has a fixed number
        of units of each.

    Attributes
    ----------
    n_units : int
        Number of rows, or of persons.
    group_sizes : tuple of int or None
        Number of units of each declared group.
    n_features : int
        Number of columns, without the column of the unit unless the schema has it.
    columns : list or None
        Names of these columns in a data frame with labels beside it, or None.
    beside : str or None
        The column of the unit, unless the schema has it.

    Raises
    ------
    PublicTypeError
        The rows of X have no positions, as in chunks, or X is not a data frame and has a unit.
    PublicValueError
        X lacks the column of the unit, or a group is not declared.
    """

    def __init__(self, X, y, unit=None, schema=None, *, sensitive_features=None, groups=None):
        if not hasattr(X, "__len__"):
            raise PublicTypeError("X must be a data frame or an array, whose rows have positions.")
        n_rows = num_samples(X)
        if y is not None and num_samples(y) != n_rows:
            raise PublicValueError("y must have one value for each row of X.")
        self._parts = [X, y]
        if sensitive_features is not None:
            self._parts.append(as_rows(sensitive_features, n_rows))
        self.beside = None if unit in (schema or ()) else unit
        persons = None if unit is None else split_unit(X, unit)[1]
        self._persons = np.arange(n_rows) if persons is None else persons.codes
        self.n_units = int(self._persons.max()) + 1 if n_rows else 0
        self.group_sizes = self._strata = None
        if groups is not None:
            codes, names = check_sensitive_features(sensitive_features, n_rows, groups)
            if persons is not None:
                codes = persons.shared(codes, "group of sensitive_features")
            self._strata = [np.flatnonzero(codes == code) for code in range(len(names))]
            self.group_sizes = tuple(map(len, self._strata))
        rule = "X must be a table, or rows of one length."
        shape = getattr(X, "shape", None) or call_quietly(rule, np.shape, X)
        self.n_features = shape[1] - (self.beside is not None) if len(shape) == 2 else 1
        names = None if y is None else frame_columns(X)
        self.columns = names and [name for name in names if name != self.beside]

    def split(self, n_scored, noise):
        """Return the training records, the scored records, and the weights of the scored rows.

        The parts are drawn once for all runs, independently of the values of the records, other
        than of public group sizes.

        Parameters
        ----------
        n_scored : int or tuple of int
            Number of units that score; with public sizes of groups, of each group.
        noise : NoiseSource

        Returns
        -------
        training, scored : tuple of X and y, and sensitive_features if they are given
            The first with the column of the unit, the second without it.
        weights : ndarray
            Weights of the scored rows: each unit has weight 1 / n_scored, shared by its rows.
        """
        is_scored = np.zeros(self.n_units, dtype=bool)
        if self._strata is None:
            is_scored[noise.choice(self.n_units, n_scored)] = True
        else:
            for units, size in zip(self._strata, n_scored, strict=True):
                is_scored[units[noise.choice(len(units), size)]] = True
            n_scored = sum(n_scored)
        rows = is_scored[self._persons]
        training, scored = self._rows(np.flatnonzero(~rows)), self._rows(np.flatnonzero(rows))
        if self.beside is not None:
            scored = (scored[0].drop(columns=self.beside), *scored[1:])
        weights = np.empty(0)
        if n_scored:
            weights = 1 / (Persons(self._persons[rows]).n_rows * n_scored)
        return training, scored, weights

    def _rows(self, positions):
        return tuple(part if part is None else take_rows(part, positions) for part in self._parts)


class PersonTables:
    """Private tables with keys, split so that each person is in one part with all rows.

    Rows that belong to no person, or to several, are in no part; fits do not count them either.

    Parameters
    ----------
    tables : mapping of str to data frame, or data frame
    y : None
    sampler : RelationalSampler

    Attributes
    ----------
    n_units : int
        Number of persons.
    n_features : int
        Number of columns of all tables, without keys.

    Raises
    ------
    PublicTypeError, PublicValueError
        y is given, a table is missing or not in memory, or keys do not identify persons.
    """

    group_sizes = columns = None

    def __init__(self, tables, y, sampler):
        if y is not None:
            raise PublicValueError("y must be None for a RelationalSampler.")
        stages = stages_of(sampler._relational)
        self._tables = tables
        self.n_units, self._persons = persons_of_rows(tables, stages)
        self.n_features = sum(len(stage.columns) for stage in stages)

    def split(self, n_scored, noise):
        """Return the training and the scored tables, each with None for y, and no weights.

        Parameters
        ----------
        n_scored : int
            Number of persons that score.
        noise : NoiseSource
        """
        # The last entry is for rows of nobody, whose person is -1.
        part = np.zeros(self.n_units + 1, dtype=np.int8)
        part[noise.choice(self.n_units, n_scored)] = 1
        part[-1] = -1
        return (self._part(part, 0), None), (self._part(part, 1), None), np.empty(0)

    def _part(self, part, number):
        chosen = {n: np.flatnonzero(part[own] == number) for n, own in self._persons.items()}
        if not isinstance(self._tables, Mapping):
            return take_rows(self._tables, *chosen.values())
        return {name: take_rows(self._tables[name], own) for name, own in chosen.items()}


@dataclass(frozen=True)
class Parts:
    """How many units train and score, in all and of each group whose size is public.

    Parameters
    ----------
    n_train, n_scored : int
    group_sizes, scored : tuple of int or None
        Numbers of all units of each group, and of those that score.
    """

    n_train: int
    n_scored: int
    group_sizes: tuple[int, ...] | None = None
    scored: tuple[int, ...] | None = None

    @property
    def scored_units(self):
        """The numbers by which records are split."""
        return self.n_scored if self.scored is None else self.scored

    def sizes(self, n_features):
        """Return the public sizes of the training part, for the plan of a candidate."""
        sizes = {"n_samples": self.n_train, "n_features": n_features}
        if self.group_sizes is not None and self.scored is not None:
            pairs = zip(self.group_sizes, self.scored, strict=True)
            sizes["group_sizes"] = tuple(whole - part for whole, part in pairs)
        return sizes


def as_rows(sensitive_features, n_rows):
    """Return groups whose rows have positions, one for each record."""
    if not isinstance(sensitive_features, np.ndarray | pd.DataFrame | pd.Series):
        sensitive_features = np.array(sensitive_features, dtype=object)
    if num_samples(sensitive_features) != n_rows:
        raise PublicValueError("sensitive_features must have one row for each row of X.")
    return sensitive_features
