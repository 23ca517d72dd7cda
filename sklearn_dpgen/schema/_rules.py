"""Public rules between the columns of a table, never inferred from its records."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

import pandas as pd

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.persistence._declarations import saved

__all__ = ["FunctionalDependency", "Implication", "Inequality", "Rule", "Sum"]


class Rule:
    """A public declaration of what every record of a table fulfils."""


@saved
@dataclass(frozen=True)
class Inequality(Rule):
    """One column is at most another: numbers, ordinal ones among them, or dates.

    Parameters
    ----------
    low, high : str
        The columns.
    strict : bool, default=False
        Whether they differ.

    Notes
    -----
    Holds where one of them is null.

    Examples
    --------
    >>> from sklearn_dpgen.schema import Inequality
    >>> Inequality("admission", "discharge")
    Inequality(low='admission', high='discharge', strict=False)
    """

    low: str
    high: str
    _: KW_ONLY
    strict: bool = False

    def __post_init__(self):
        _check_names(self, low=[self.low], high=[self.high])
        if not isinstance(self.strict, bool):
            raise PublicValueError("strict must be True or False.")


@saved
@dataclass(frozen=True)
class Implication(Rule):
    """Records that have some values have others too.

    Parameters
    ----------
    given, then : mapping of str to value, pandas.Interval or list of them
        What columns hold, as the ``conditions`` of ``sample``: of records with all of the first,
        all of the second is true.

    Notes
    -----
    A null is a value where it is listed, as None. Elsewhere whether it is among the values is
    unknown, and a rule holds unless it is surely broken, as a CHECK of SQL does: it does not apply
    where something of ``given`` is unknown, and is broken only by what is surely not as in
    ``then``.

    Examples
    --------
    Not both:

    >>> from sklearn_dpgen.schema import Implication
    >>> rule = Implication({"employed": 1}, then={"retired": 0})

    No visit, no bill:

    >>> rule = Implication({"visits": 0}, then={"bill": None})
    """

    given: Mapping
    then: Mapping

    def __post_init__(self):
        for field in ("given", "then"):
            conditions = getattr(self, field)
            if not isinstance(conditions, Mapping) or not conditions:
                raise PublicValueError(f"{field} must map columns to values.")
            _check_names(self, **{field: list(conditions)})
            object.__setattr__(self, field, dict(conditions))
        twice = sorted(self.given.keys() & self.then.keys())
        if twice:
            raise PublicValueError(f"given and then must be of other columns: both name {twice}.")


@saved
@dataclass(frozen=True)
class Sum(Rule):
    """A column is the sum of others: numbers, ordinal ones among them.

    Parameters
    ----------
    total : str
        Computed, and not measured: ``parts[0] + parts[1] + ...`` in this order, in float64 where
        they are no integers.
    parts : sequence of str
        Two at least.

    Notes
    -----
    Where a part is null, so is the total, which must be nullable then.

    Examples
    --------
    >>> from sklearn_dpgen.schema import Sum
    >>> Sum("income", ["wage", "interest"])
    Sum(total='income', parts=('wage', 'interest'))
    """

    total: str
    parts: Sequence

    def __post_init__(self):
        object.__setattr__(self, "parts", _as_tuple(self.parts, "parts"))
        _check_names(self, total=[self.total], parts=self.parts)
        if len(self.parts) < 2:
            raise PublicValueError("parts must name two columns at least.")


@saved
@dataclass(frozen=True)
class FunctionalDependency(Rule):
    """A column is a public function of others.

    Parameters
    ----------
    column : str
        Looked up, and not measured.
    given : str or sequence of str
        Columns of labels, or of numbers with a declared grid.
    mapping : mapping
        From each value of ``given``, a tuple of them where it is several columns, to the value of
        ``column``. What is not in it does not occur. None stands for null.

    Notes
    -----
    Where something of ``given`` is null, and is not in the mapping so, the column is null too. It
    must be nullable then.

    Examples
    --------
    >>> from sklearn_dpgen.schema import FunctionalDependency
    >>> rule = FunctionalDependency("state", "city", {"Bonn": "NW", "Cologne": "NW", "Trier": "RP"})
    """

    column: str
    given: Sequence | str
    mapping: Mapping | pd.Series

    def __post_init__(self):
        given = (self.given,) if isinstance(self.given, str) else _as_tuple(self.given, "given")
        object.__setattr__(self, "given", given)
        _check_names(self, column=[self.column], given=given)
        if not isinstance(self.mapping, Mapping | pd.Series) or len(self.mapping) == 0:
            raise PublicValueError("mapping must map values to values.")
        if isinstance(self.mapping, pd.Series) and not self.mapping.index.is_unique:
            raise PublicValueError("mapping has a key twice.")
        mapping = dict(self.mapping)
        n = len(given)
        if n > 1 and not all(isinstance(key, tuple) and len(key) == n for key in mapping):
            raise PublicValueError(
                f"mapping must have tuples of {n} values as keys, one of each column."
            )
        object.__setattr__(self, "mapping", mapping)


def _as_tuple(names, field):
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise PublicValueError(f"{field} must list columns.")
    return tuple(names)


def _check_names(rule, **fields):
    named = [name for names in fields.values() for name in names]
    kind = " and ".join(fields)
    if not all(fields.values()) or not all(isinstance(name, str) for name in named):
        raise PublicValueError(f"{type(rule).__name__}: {kind} must name columns, as strings.")
    if len({*named}) < len(named):
        raise PublicValueError(
            f"{type(rule).__name__}: {kind} must name distinct columns: {named}."
        )
