"""Encoding of tables and images as arrays in a public domain, and decoding."""

from typing import TYPE_CHECKING

from sklearn_dpgen.utils._lazy import lazy_names

__all__ = [
    "CsvFile",
    "DCTTransformer",
    "PlaceEncoder",
    "PublicRows",
    "PublicTable",
    "TabularEncoder",
]

if TYPE_CHECKING:
    from sklearn_dpgen.preprocessing._dct import DCTTransformer
    from sklearn_dpgen.preprocessing._place import PlaceEncoder
    from sklearn_dpgen.preprocessing._public_table import PublicRows, PublicTable
    from sklearn_dpgen.preprocessing._tabular import TabularEncoder
    from sklearn_dpgen.schema._csv import CsvFile
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "sklearn_dpgen.preprocessing._dct": ["DCTTransformer"],
            "sklearn_dpgen.preprocessing._place": ["PlaceEncoder"],
            "sklearn_dpgen.preprocessing._public_table": ["PublicRows", "PublicTable"],
            "sklearn_dpgen.preprocessing._tabular": ["TabularEncoder"],
            "sklearn_dpgen.schema._csv": ["CsvFile"],
        },
    )
