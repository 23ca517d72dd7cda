"""AIM and MST of OpenDP, at their defaults; see `_fitting.py`.

The public codes are the keys of a column. OpenDP gives each column a null beside its keys, which is
the last code of one that has nulls. Its noise takes no seed: that is for the draws from the model.
"""

import numpy as np
import opendp.prelude as dp
import polars as pl
from _fitting import main
from opendp.extras.mbi import _mst


def fit(codes, task):
    table = pl.DataFrame({name: codes[name].to_numpy() for name in codes})
    keys = {name: list(range(size)) for name, (size, _) in task["sizes"].items()}
    for name, (size, nullable) in task["sizes"].items():
        if nullable:
            table = table.with_columns(pl.col(name).replace(size - 1, None))
            keys[name] = keys[name][:-1]
    rho = task["rho"]
    context = dp.Context.compositor(
        data=table.lazy(),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(rho=rho),
    )
    query = context.query(rho=rho).select(*table.columns)
    algorithm = algorithm_of(task)
    released = query.contingency_table(keys=keys, algorithm=algorithm).release()
    np.random.seed(task["seed"])  # noqa: NPY002, it is what mbi draws from
    return released.synthesize(rows=len(codes)).to_pandas(), algorithm


def algorithm_of(task):
    if task["model"] == "MST":
        return dp.mbi.MST()
    if task["model"] == "AIM":
        return dp.mbi.AIM()
    target = task["target"]
    pairs = [dp.mbi.Count(by=(target, name)) for name in task["sizes"] if name != target]
    return dp.mbi.AIM(queries=pairs)


def less(share):
    """Return a little less of a budget."""
    return share * (1 - 1e-12)


if __name__ == "__main__":
    # MST of OpenDP 0.16 refuses to run where its shares, rounded up as they are added, come to more
    # than the budget by the last bit (opendp/opendp issue 2789): it leaves too little between.
    _mst.prior = less
    dp.enable_features("contrib")
    main(fit)
