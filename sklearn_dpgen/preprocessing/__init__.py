"""From tables and images to arrays inside a public domain, and back."""

from sklearn_dpgen.preprocessing._dct import DCTTransformer
from sklearn_dpgen.preprocessing._tabular import TabularEncoder

__all__ = ["DCTTransformer", "TabularEncoder"]
