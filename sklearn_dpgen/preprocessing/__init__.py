"""Encoding of tables and images as arrays in a public domain, and decoding."""

from sklearn_dpgen.preprocessing._dct import DCTTransformer
from sklearn_dpgen.preprocessing._place import PlaceEncoder
from sklearn_dpgen.preprocessing._public_table import PublicRows, PublicTable
from sklearn_dpgen.preprocessing._tabular import TabularEncoder
from sklearn_dpgen.schema._csv import CsvFile

__all__ = [
    "CsvFile",
    "DCTTransformer",
    "PlaceEncoder",
    "PublicRows",
    "PublicTable",
    "TabularEncoder",
]
