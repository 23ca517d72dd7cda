"""What the samplers of tables share: a schema, a budget, and records of any types."""

from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.utils._validation import BUDGET, DEVICE

__all__ = ["BaseTableSampler"]


class BaseTableSampler(PrivateEstimator):
    """Base of the samplers of tables with a schema."""

    _parameter_constraints: dict = {
        "epsilon": BUDGET,
        "schema": [Schema],
        "random_state": ["random_state"],
        "device": DEVICE,
    }

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        # The schema says of each column which labels it has, and whether it has nulls.
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        return tags
