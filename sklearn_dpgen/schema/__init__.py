"""Public declarations of the columns of a table, never inferred from its records."""

from sklearn_dpgen.schema._dates import Datetime
from sklearn_dpgen.schema._draft import SchemaDraft
from sklearn_dpgen.schema._labels import Categorical, Ordinal
from sklearn_dpgen.schema._numbers import Numeric
from sklearn_dpgen.schema._schema import Schema

__all__ = ["Categorical", "Datetime", "Numeric", "Ordinal", "Schema", "SchemaDraft"]
