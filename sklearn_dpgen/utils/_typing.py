"""Types of public signatures that no library names."""

from typing import Any, Protocol

__all__ = ["Sampler", "Transformer"]


class Transformer(Protocol):
    """What maps records to records, each by itself."""

    def transform(self, X: Any, /) -> Any: ...


class Sampler(Protocol):
    """What draws a number of records."""

    def sample(self, n_samples: int, /, *, random_state: int | None = None) -> Any: ...
