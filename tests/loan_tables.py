"""Tables for predictors: few columns, so that nothing is selected and every release is Gaussian."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import TableSampler


@pytest.fixture
def loans():
    """Return a table of loans: a number, a category, a label, and a group beside them."""
    rng = np.random.default_rng(0)
    n = 3000
    group = np.where(rng.uniform(size=n) < 0.3, "b", "a")
    income = np.clip(rng.normal(5 - 1.5 * (group == "b"), 1.5, size=n), 0, 10)
    job = rng.choice(["none", "some"], size=n)
    paid = income + (job == "some") + rng.normal(size=n) > 5
    X = pd.DataFrame({"income": income, "job": job})
    schema = Schema(
        {
            "income": Numeric(0, 10),
            "job": Categorical(["none", "some"]),
            "paid": Categorical(["no", "yes"]),
            "rate": Numeric(0, 12),
        }
    )
    return SimpleNamespace(
        X=X,
        y=np.where(paid, "yes", "no"),
        rate=np.clip(income + rng.normal(size=n), 0, 12),
        group=group,
        schema=schema,
    )


@pytest.fixture
def sampler(loans):
    """Return a maker of samplers that measure given pairs, without selections."""

    def make(target="paid", **params):
        given = {"marginals": [("income", target), ("job", target)]} | params
        return TableSampler(schema=loans.schema, target=target, **given)

    return make
