"""What numbers and dates share: a bounded interval."""

from abc import abstractmethod

import numpy as np

from sklearn_dpgen.domains import Box, Domain, OneHot, Product
from sklearn_dpgen.schema._column import Column


class IntervalColumn(Column):
    """Values on a float axis, mapped affinely from the public bounds to [-1, 1].

    A nullable column is encoded as [value, present, null], with the mid-range as the value of a
    null.
    """

    @property
    @abstractmethod
    def _bounds(self):
        """The bounds on the axis, two numbers of which the difference is exact."""

    @property
    @abstractmethod
    def n_steps(self) -> int | None:
        """The number of steps of the declared grid between the bounds; None without a grid."""

    @property
    def domain(self) -> Domain:
        value = Box(-1, 1)
        return Product([value, OneHot(2)]) if self.nullable else value

    @abstractmethod
    def _count_faults(self, values):
        """Return how many values that were read break which public rule, a dict."""

    def _encode(self, values, null):
        value = np.where(null, 0.0, self._clipped_unit(values))
        return np.column_stack([value, ~null, null] if self.nullable else [value])

    def feature_names(self, name: str) -> list[str]:
        return [name, f"{name}=<present>", f"{name}=<null>"] if self.nullable else [name]

    def _clipped_unit(self, values):
        """Return values on the axis, clipped to the bounds and mapped to [-1, 1]; NaN of NaN."""
        low, high = self._bounds
        offset = np.clip(values, low, high)
        offset -= low
        unit = offset / (high - low)
        # As `_unit`, in place: this is done for every record.
        unit *= 2
        unit -= 1
        return unit

    def _unit(self, offset):
        low, high = self._bounds
        return 2 * (offset / (high - low)) - 1

    def _offset(self, unit):
        """Return the distance from the lower bound, on the axis."""
        low, high = self._bounds
        return (unit + 1) / 2 * (high - low)

    def _split(self, array):
        """Return where values lie between the bounds, in [0, 1], and the mask of nulls."""
        array = np.asarray(array, dtype=np.float64)
        null = array[:, 2] > array[:, 1] if self.nullable else np.zeros(len(array), dtype=bool)
        return (np.clip(array[:, 0], -1, 1) + 1) / 2, null
