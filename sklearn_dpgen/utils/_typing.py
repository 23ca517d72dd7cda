"""Types of public signatures that no library names."""

from typing import TYPE_CHECKING, Any, Protocol

__all__ = ["EstimatorMixin", "Sampler", "Transformer"]

if TYPE_CHECKING:
    # A mixin reads parameters and fitted attributes of the estimator that it is mixed into.
    from sklearn.base import BaseEstimator as EstimatorMixin
else:
    EstimatorMixin = object


class Transformer(Protocol):
    """What maps records to records, each by itself."""

    def transform(self, X: Any, /) -> Any: ...


class Sampler(Protocol):
    """What draws a number of records."""

    def sample(self, n_samples: int, /, *, random_state: int | None = None) -> Any: ...
