"""The law of the target that a fitted sampler knows in closed form."""

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.schema import Schema
from sklearn_dpgen.tables import TableSampler


@pytest.mark.slow
@pytest.mark.parametrize("target", ["paid", "rate"])
def test_the_law_of_the_target_is_that_of_drawn_rows(loans, sampler, target):
    fitted = sampler(target, random_state=0)
    table = loans.X.assign(paid=loans.y, rate=loans.rate)
    table = table[["income", "job", target]]
    fitted.set_params(schema=Schema({name: loans.schema[name] for name in table}))
    fitted.fit(table)
    drawn = fitted.sample(60_000, random_state=1)
    law = fitted.target_law(drawn.drop(columns=target))
    assert law.index.equals(drawn.index)
    np.testing.assert_allclose(law.sum(axis=1), 1, atol=1e-6)
    high = drawn["income"] > 6
    for rows in (high & (drawn["job"] == "some"), ~high & (drawn["job"] == "none")):
        n = rows.sum()
        if target == "paid":
            expected, found = law.loc[rows, "yes"].mean(), (drawn.loc[rows, "paid"] == "yes").mean()
            spread = 0.5
        else:
            values = law.columns.to_numpy(dtype=float)
            expected, found = (law[rows] @ values).mean(), drawn.loc[rows, "rate"].mean()
            spread = 4.0
        assert abs(expected - found) < 5 * spread / np.sqrt(n)


def test_the_law_does_not_look_at_the_target(loans, sampler):
    table = loans.X.assign(paid=loans.y, rate=loans.rate)
    fitted = sampler().fit(table)
    rows = table[:50]
    with_it = fitted.target_law(rows)
    pd.testing.assert_frame_equal(with_it, fitted.target_law(rows.drop(columns="paid")))
    other = rows.assign(paid=np.where(rows["paid"] == "yes", "no", "yes"))
    pd.testing.assert_frame_equal(with_it, fitted.target_law(other))


@pytest.mark.slow
def test_no_law_without_one_target(loans):
    table = loans.X.assign(paid=loans.y, rate=loans.rate)
    for target in (None, ["paid", "rate"]):
        fitted = TableSampler(schema=loans.schema, target=target).fit(table)
        with pytest.raises(ValueError, match="one target and without constraints"):
            fitted.target_law(loans.X)
