"""Public rules between the columns of a table, never inferred from its records."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import pandas as pd

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.persistence._declarations import saved

__all__ = ["FunctionalDependency", "Implication", "Inequality", "Rule", "Sum", "columns_of"]


class Rule:
    """Base class of the public rules that every record of a table fulfils."""


@saved
@dataclass(frozen=True)
class Inequality(Rule):
    """One column is at most another one; both numeric, ordinal with numbers, or datetime.

    Parameters
    ----------
    low, high : str
        The columns.
    strict : bool, default=False
        Whether equality is excluded.

    Notes
    -----
        A null in either column fulfils the rule.

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
    """Records with given values in some columns have given values in other columns.

    Parameters
    ----------
    given, then : mapping of str to value, pandas.Interval or list of them
        Values of columns, in the format of the ``conditions`` of ``sample``: each record that
        fulfils all of ``given`` fulfils all of ``then``.

    Notes
    -----
    A null counts as a value if it is listed, as None. Otherwise comparison with a null is unknown,
    and as in a CHECK of SQL only a definite violation breaks the rule: it does not apply if an
    item of ``given`` is unknown, and is not broken if an item of ``then`` is.

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
            raise PublicValueError(f"given and then must name other columns, got {twice} twice.")


@saved
@dataclass(frozen=True)
class Sum(Rule):
    """A column is the sum of others, which are numeric or ordinal with numbers.

    Parameters
    ----------
    total : str
        Computed and not measured: ``parts[0] + parts[1] + ...`` in this order, in float64 unless
        all are integers.
    parts : sequence of str
        At least two columns.

    Notes
    -----
        The total is null if a part is, and must then be nullable.

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
            raise PublicValueError("parts must name at least two columns.")


@saved
@dataclass(frozen=True)
class FunctionalDependency(Rule):
    """A column is a public function of others.

    Parameters
    ----------
    column : str
        Looked up and not measured.
    given : str or sequence of str
        Columns of labels, or of numbers with a declared grid.
    mapping : mapping
        From each value of ``given``, or tuple of values of several columns, to the value of
        ``column``. Values that are not in it do not occur. None is null.

    Notes
    -----
    If a column of ``given`` is null and the mapping has no such key, ``column`` is null too, and
    must be nullable.

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
            raise PublicValueError("mapping must be a mapping of values to values.")
        if isinstance(self.mapping, pd.Series) and not self.mapping.index.is_unique:
            raise PublicValueError("mapping must have distinct keys.")
        mapping = dict(self.mapping)
        n = len(given)
        if n > 1 and not all(isinstance(key, tuple) and len(key) == n for key in mapping):
            raise PublicValueError(
                f"mapping must have tuples of {n} values as keys, one for each column."
            )
        object.__setattr__(self, "mapping", mapping)


def columns_of(rule: Any) -> tuple[str, ...]:
    """Return the names of all columns of a rule."""
    if isinstance(rule, Inequality):
        return rule.low, rule.high
    if isinstance(rule, Implication):
        return *rule.given, *rule.then
    if isinstance(rule, Sum):
        return rule.total, *rule.parts
    return rule.column, *rule.given


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
            f"{type(rule).__name__}: {kind} must name distinct columns, got {named}."
        )
