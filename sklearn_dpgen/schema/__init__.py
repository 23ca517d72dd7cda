"""Public declarations of the columns of a table, never inferred from its records."""

from sklearn_dpgen.schema._draft import SchemaDraft
from sklearn_dpgen.schema._labels import Categorical, Ordinal
from sklearn_dpgen.schema._numbers import Datetime, Numeric
from sklearn_dpgen.schema._schema import Schema

__all__ = ["Categorical", "Datetime", "Numeric", "Ordinal", "Schema", "SchemaDraft"]
