"""Candidate records of a table with a schema: drawn, varied a few columns at a time, compared."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from sklearn_dpgen.evolution._variation_interface import (
    check_candidates,
    check_degree,
    choose_columns,
)
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.persistence._declarations import Array, demand, is_distribution, saved
from sklearn_dpgen.preprocessing import PublicRows, PublicTable, TabularEncoder
from sklearn_dpgen.schema import Categorical, OpenCategorical, Ordinal, Schema
from sklearn_dpgen.utils._validation import Integral, Real, Sampler, check_positive

__all__ = ["TabularVariation"]


@saved
@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Public rows as encoded points, which are drawn by their shares.

    Parameters
    ----------
    points : ndarray of shape (n, width)
        Finite, also in the features of unknown cells.
    known : ndarray of bool of shape (n, width)
    shares : ndarray of shape (n,)
        Probabilities.
    """

    _saved_state = {
        "points": Array("f", 2),
        "known": Array("b", 2),
        "shares": Array("f", 1, low=0),
    }

    points: np.ndarray
    known: np.ndarray
    shares: np.ndarray

    def _check_saved_state(self):
        fits = self.points.shape == self.known.shape and len(self.points) == len(self.shares)
        demand(fits and is_distribution(self.shares), "Public rows have other shares or cells.")

    def draw(self, n, rng):
        """Return n rows, and which of their features are known."""
        chosen = rng.choice(len(self.shares), size=n, p=self.shares)
        return self.points[chosen], self.known[chosen]


@saved
class TabularVariation:
    """Candidate records from the schema of a table, as encoded rows.

    Parameters
    ----------
    schema : Schema
        The public declaration of the columns.
    public_sampler : None, PublicTable, PublicRows, DataFrame, sampler or callable, default=None
        Source of public records: a public table, whose rows are drawn by their weights; an object
        with ``sample(n, random_state=int)``; or ``public_sampler(n, rng)``. The last two return a
        frame with the columns of the schema. A sampler fitted on private records costs privacy
        that no report of the fit includes. Columns that a table lacks, its unknown cells, and all
        columns with None are drawn independently and uniformly.
    n_columns : "auto", "all" or int, default="auto"
        Mean number of columns that a variation changes, among those that can; at least one.
        "auto" is ``degree`` times the number of columns.
    null_probability : float, default=0.1
        The public share of nulls in a nullable column, in [0, 1), where cells are drawn without
        ``public_sampler``.
    categorical_weight : float, default=0.5
        Distance between two categories, or between a null and a value, as a share of the range of a
        number.
    column_weights : mapping of str to float or None, default=None
        Public factors, at least 0, of the squared distances in the columns that it names; 1 for
        the others. A column of weight 0 does not influence the votes.

    Attributes
    ----------
    encoder : TabularEncoder
        Encoder of records as rows.
    domain : Product
        The set of the encoded rows.

    Notes
    -----
    Numbers and dates, encoded on [-1, 1], move by a Gaussian of standard deviation ``degree``
    times the range, and are projected on it; from a bound they move inwards, and on a declared
    grid by one step at least. So do ordinal columns, on the grid of their ranks. A category
    becomes that of a fresh candidate of ``random``, and so do nulls come and go: with every column
    at rate q, a category changes as if it were drawn anew with probability q.

    Only a few columns change at once, because changing all of d columns does harm if most of them
    are right already. For categories the rate 1/d is the best, as for the mutations of an
    evolutionary algorithm on linear functions [1]_. For numbers, the gain of the best step does not
    depend on the number of columns that move, but its size does: for a few it is about the error of
    a column, and for d of them that error over sqrt(d). At large degrees, far from the records,
    more columns are wrong.

    References
    ----------
    .. [1] C. Witt, "Tight bounds on the optimization time of a randomized search heuristic on
       linear functions", Combinatorics, Probability and Computing 22(2), 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpgen.evolution._tabular_variation import TabularVariation
    >>> from sklearn_dpgen.schema import Categorical, Numeric, Schema
    >>> schema = Schema({"age": Numeric(0, 100), "smoker": Categorical(["no", "yes"])})
    >>> interface = TabularVariation(schema)
    >>> rng = np.random.default_rng(0)
    >>> X = interface.vary(interface.random(4, rng), rng, 0.25)
    >>> interface.embed(X).shape
    (4, 3)
    >>> list(interface.encoder.inverse_transform(X).columns)
    ['age', 'smoker']
    """

    _saved_state = {
        "schema": Schema,
        "public_sampler": (None, EncodedRows),
        "n_columns": int | str,
        "null_probability": float,
        "categorical_weight": float,
        "column_weights": dict[str, float] | None,
    }

    def __init__(
        self,
        schema: Schema,
        *,
        public_sampler: PublicTable
        | PublicRows
        | EncodedRows
        | pd.DataFrame
        | Sampler
        | Callable[[int, np.random.Generator], pd.DataFrame]
        | None = None,
        n_columns: int | str = "auto",
        null_probability: float = 0.1,
        categorical_weight: float = 0.5,
        column_weights: Mapping[str, float] | None = None,
    ) -> None:
        if not isinstance(schema, Schema):
            raise PublicTypeError(f"schema must be a Schema, got {type(schema).__name__}.")
        self.schema = schema
        self.n_columns = _check_n_columns(n_columns)
        self.null_probability = _check_number(null_probability, "null_probability", below=1)
        self.categorical_weight = check_positive(categorical_weight, "categorical_weight")
        self.column_weights = _check_column_weights(column_weights, schema)
        self.encoder = TabularEncoder(schema).fit()
        self.domain = self.encoder.domain_
        self.public_sampler = _check_public_sampler(public_sampler, self.encoder)
        self._columns = {name: _candidate_column(column) for name, column in schema.items()}
        self._blocks = list(zip(schema.blocks.values(), self._columns.values(), strict=True))

    def random(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw ``n`` encoded records; see :class:`VariationInterface`.

        Raises
        ------
        ValueError
            Public records that are not ``n``, or not of the schema.
        """
        if self.public_sampler is None or isinstance(self.public_sampler, EncodedRows):
            columns = self._columns.values()
            X = np.hstack([column.random(n, rng, self.null_probability) for column in columns])
            if self.public_sampler is None:
                return X
            points, known = self.public_sampler.draw(n, rng)
            return np.where(known, points, X)
        frame = _public_records(self.public_sampler, n, rng)
        if not isinstance(frame, pd.DataFrame):
            raise PublicTypeError(
                f"public_sampler must give data frames, got {type(frame).__name__} "
                f"from {type(self.public_sampler).__name__}."
            )
        X = self.domain.project(self.encoder.transform(frame))
        return check_candidates(X, n, self.domain.n_features, None, self.public_sampler)

    def vary(self, X: np.ndarray, rng: np.random.Generator, degree: float) -> np.ndarray:
        """Draw one variation of each encoded record; see :class:`VariationInterface`.

        Raises
        ------
        ValueError
            A degree outside of (0, 1], or rows outside of the domain.
        """
        degree = check_degree(degree)
        X = check_candidates(X, len(X), None, self.domain, self)
        fresh = self.random(len(X), rng)
        eligible = np.column_stack(
            [column.differs(X[:, block], fresh[:, block]) for block, column in self._blocks]
        )
        chosen = choose_columns(eligible, self._rate(degree), rng)
        varied = X.copy()
        for (block, column), rows in zip(self._blocks, chosen.T, strict=True):
            varied[rows, block] = column.move(X[rows, block], fresh[rows, block], rng, degree)
        return varied

    def embed(self, X: np.ndarray) -> np.ndarray:
        """Scale encoded records so that Euclidean distance compares them column by column.

        Parameters
        ----------
        X : ndarray of shape (n, domain.n_features)
            Encoded rows, of candidates or of private records.

        Returns
        -------
        ndarray of float64 of shape (n, n_embedded)
            Squared distances are sums over the columns, each times its weight: the square of the
            difference as a share of the range for numbers, dates and ranks;
            ``categorical_weight`` squared for unequal categories. The same for a null against a
            value, and the squared distance of the value to the middle of the range.
        """
        X = np.asarray(X, dtype=np.float64)
        weights = [self.column_weights.get(name, 1.0) for name in self.schema]
        return np.hstack(
            [
                np.sqrt(weight) * column.embed(X[:, block], self.categorical_weight)
                for weight, (block, column) in zip(weights, self._blocks, strict=True)
            ]
        )

    def _rate(self, degree):
        if self.n_columns == "all":
            return 1.0
        # choose_columns changes at least one column, whatever the degree is.
        return degree if self.n_columns == "auto" else min(1.0, self.n_columns / len(self.schema))


@dataclass(frozen=True)
class _CategoryBlock:
    """A column of categories, as a one-hot block with the null last."""

    n_categories: int
    nullable: bool

    def random(self, n, rng, null_probability):
        codes = rng.integers(self.n_categories, size=n)
        if self.nullable:
            codes[rng.uniform(size=n) < null_probability] = self.n_categories
        return np.eye(self.n_categories + self.nullable)[codes]

    def differs(self, block, fresh):
        """Return in which rows the column can change, given a fresh candidate."""
        return block.argmax(axis=1) != fresh.argmax(axis=1)

    def move(self, block, fresh, rng, degree):
        return fresh

    def embed(self, block, share):
        return block * (share / np.sqrt(2))


@dataclass(frozen=True)
class _NumberBlock:
    """A column on an interval of [-1, 1]: a value, or the one-hot block of an ordinal's rank."""

    n_steps: int | None
    nullable: bool
    is_ordinal: bool

    def random(self, n, rng, null_probability):
        if self.n_steps is None:
            values = rng.uniform(-1, 1, size=n)
        else:
            values = 2 * rng.integers(self.n_steps + 1, size=n) / self.n_steps - 1
        null = np.zeros(n, dtype=bool)
        if self.nullable:
            null = rng.uniform(size=n) < null_probability
        return self._write(values, null)

    def differs(self, block, fresh):
        """Return in which rows the column can change, given a fresh candidate."""
        return ~(self._read(block)[1] & self._read(fresh)[1])

    def move(self, block, fresh, rng, degree):
        values, null = self._read(block)
        fresh_values, fresh_null = self._read(fresh)
        moved = self._step(values, 2 * degree * rng.normal(size=len(values)))
        return self._write(np.where(null, fresh_values, moved), fresh_null)

    def embed(self, block, share):
        values, null = self._read(block)
        return np.column_stack([values / 2, share * null] if self.nullable else [values / 2])

    def _step(self, values, steps):
        """Move values within the bounds; on a grid, by at least one step."""
        if self.n_steps is None:
            inward = np.where(abs(values) >= 1, -np.sign(values) * abs(steps), steps)
            return np.clip(values + inward, -1, 1)
        old = np.rint((values + 1) / 2 * self.n_steps)
        steps = np.where(old == 0, abs(steps), np.where(old == self.n_steps, -abs(steps), steps))
        jumps = np.sign(steps) * np.maximum(1, np.rint(abs(steps) / 2 * self.n_steps))
        return 2 * np.clip(old + jumps, 0, self.n_steps) / self.n_steps - 1

    def _read(self, block):
        """Return values and nulls; the value of a null is 0, the middle of the range."""
        if not self.is_ordinal:
            null = block[:, 2] > block[:, 1] if self.nullable else np.zeros(len(block), dtype=bool)
            return np.where(null, 0.0, block[:, 0]), null
        ranks = block.argmax(axis=1)
        null = ranks > self.n_steps
        return np.where(null, 0.0, 2 * ranks / self.n_steps - 1), null

    def _write(self, values, null):
        if self.is_ordinal and self.n_steps is not None:
            ranks = np.rint((values + 1) / 2 * self.n_steps).astype(np.int64)
            ranks[null] = self.n_steps + 1
            return np.eye(self.n_steps + 1 + self.nullable)[ranks]
        values = np.where(null, 0.0, values)
        return np.column_stack([values, ~null, null] if self.nullable else [values])


def _candidate_column(column):
    if column.is_constant:
        return _CategoryBlock(1, False)
    if isinstance(column, Categorical | OpenCategorical):
        return _CategoryBlock(len(column.labels), column.nullable)
    if isinstance(column, Ordinal):
        n_steps = len(column.labels) - 1
        # A single value has no order and no range.
        return (
            _NumberBlock(n_steps, column.nullable, True)
            if n_steps
            else _CategoryBlock(1, column.nullable)
        )
    return _NumberBlock(column.n_steps, column.nullable, False)


def _public_records(sampler, n, rng):
    if hasattr(sampler, "sample"):
        return sampler.sample(n, random_state=int(rng.integers(2**32)))
    return sampler(n, rng)


def _check_public_sampler(sampler, encoder):
    """Return a source of public records, a table as encoded rows."""
    if isinstance(sampler, pd.DataFrame):
        sampler = PublicTable(sampler)
    if isinstance(sampler, PublicTable):
        sampler = sampler.read(encoder.schema)
    if isinstance(sampler, PublicRows):
        points = sampler.encode(encoder)
        known = ~np.isnan(points)
        sampler = EncodedRows(
            np.where(known, points, 0.0), known, sampler.weights / sampler.weights.sum()
        )
    if isinstance(sampler, EncodedRows):
        # Rows of a file may be outside of the domain.
        demand(sampler.points.shape[1] == encoder.domain_.n_features, "Rows have other widths.")
        return replace(sampler, points=encoder.domain_.project(sampler.points))
    if sampler is not None and not hasattr(sampler, "sample") and not callable(sampler):
        raise PublicTypeError(
            "public_sampler must be a public table, have a method sample, or be callable; got "
            f"{type(sampler).__name__}."
        )
    return sampler


def _check_n_columns(n_columns):
    if isinstance(n_columns, str) and n_columns in ("auto", "all"):
        return n_columns
    if isinstance(n_columns, bool) or not isinstance(n_columns, Integral) or n_columns < 1:
        raise PublicValueError(
            f"n_columns must be 'auto', 'all' or an integer of at least 1, got {n_columns!r}."
        )
    return int(n_columns)


def _check_number(value, name, *, below=np.inf):
    if isinstance(value, bool) or not isinstance(value, Real) or value < 0 or not value < below:
        raise PublicValueError(f"{name} must be a number in [0, {below:g}), got {value!r}.")
    return float(value)


def _check_column_weights(weights, schema):
    if weights is None:
        return {}
    if not isinstance(weights, Mapping):
        raise PublicTypeError("column_weights must be a mapping of column names to numbers.")
    unknown = [name for name in weights if name not in schema]
    if unknown:
        raise PublicValueError(f"column_weights must name columns of the schema, got {unknown}.")
    return {n: _check_number(w, f"column_weights[{n!r}]") for n, w in weights.items()}
