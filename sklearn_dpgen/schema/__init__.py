"""Public declarations of columns, of tables with keys and of rules, never inferred."""

from sklearn_dpgen.schema._column import Identifier
from sklearn_dpgen.schema._dates import Datetime
from sklearn_dpgen.schema._export import export_schema
from sklearn_dpgen.schema._file import read_schema
from sklearn_dpgen.schema._json_schema import json_schema
from sklearn_dpgen.schema._labels import Categorical, OpenCategorical, Ordinal
from sklearn_dpgen.schema._numbers import Numeric
from sklearn_dpgen.schema._relational import RelationalSchema, Table
from sklearn_dpgen.schema._rules import FunctionalDependency, Implication, Inequality, Sum
from sklearn_dpgen.schema._schema import Schema

__all__ = [
    "Categorical",
    "Datetime",
    "FunctionalDependency",
    "Identifier",
    "Implication",
    "Inequality",
    "Numeric",
    "OpenCategorical",
    "Ordinal",
    "RelationalSchema",
    "Schema",
    "Sum",
    "Table",
    "export_schema",
    "json_schema",
    "read_schema",
]
