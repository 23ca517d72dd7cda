"""Coverage of intervals of `estimate_by_refits`: a simulated panel of 3000 persons.

Persons have a level that no column shows, one to six rows in six years, and an illness that raises
the number of visits. Epsilon is 1, delta 1e-5, persons are added or removed; intervals have the
level 0.95, from 15 refits. The truth is that of 300,000 persons. Coefficients are of the linear
regression of visits on illness, sex and year, and "within" is that of illness within persons, with
fixed effects. "naive" is the coverage of an analyst who takes as many synthetic rows as there are
real ones for independent records; only for means.

::

    python benchmarks/bench_refits.py --fits 40
    python benchmarks/bench_refits.py --fits 40 --aggregates visits ill --name refits_aggregates
"""

import argparse
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from _common import record
from scipy.special import expit
from threadpoolctl import threadpool_limits

from sklearn_dpgen.exceptions import NoisyCountsWarning
from sklearn_dpgen.inference import estimate_by_refits
from sklearn_dpgen.schema import Categorical, Numeric, Schema, Table
from sklearn_dpgen.tables import RelationalSampler

N, N_TRUTH, N_YEARS, N_REFITS, Z = 3000, 300_000, 6, 15, 1.959964
PANEL = Table(
    Schema(
        {
            "sex": Categorical(["f", "m"]),
            "year": Numeric(1, N_YEARS, integer=True),
            "ill": Categorical([0, 1]),
            "visits": Numeric(0, 15, integer=True),
        }
    ),
    primary_key="id",
    sequence_index="year",
    max_rows=N_YEARS,
    static=["sex"],
    ties=False,
)


def panel(n, seed):
    """Return the rows of persons."""
    rng = np.random.default_rng(seed)
    male = rng.integers(2, size=n)
    level = rng.normal(size=n) + 0.5 * male
    sizes = rng.integers(1, N_YEARS + 1, n)
    who = np.repeat(np.arange(n), sizes)
    years = [np.sort(rng.choice(N_YEARS, size, replace=False)) + 1 for size in sizes]
    year = np.concatenate(years)
    ill = (rng.uniform(size=len(who)) < expit(1.2 * level[who] - 1)).astype(int)
    visits = rng.poisson(np.exp(0.3 + 0.4 * level[who] + 0.5 * ill + 0.03 * year))
    return pd.DataFrame(
        {
            "id": who,
            "sex": np.where(male[who] == 1, "m", "f"),
            "year": year,
            "ill": ill,
            "visits": np.minimum(visits, 15),
        }
    )


def statistic(rows):
    """Return means, a share, and coefficients of two panel regressions."""
    ill, visits = (rows[name].to_numpy(dtype=float) for name in ("ill", "visits"))
    male, year = (rows["sex"] == "m").to_numpy(dtype=float), rows["year"].to_numpy(dtype=float)
    X = np.column_stack([np.ones(len(rows)), ill, male, year])
    coefficients = np.linalg.lstsq(X, visits, rcond=None)[0]
    numbers = pd.DataFrame({"ill": ill, "visits": visits})
    within = (numbers - numbers.groupby(rows["id"].to_numpy()).transform("mean")).to_numpy()
    slope = within[:, 0] @ within[:, 1] / (within[:, 0] @ within[:, 0])
    return pd.Series(
        {
            "mean visits": visits.mean(),
            "share ill": ill.mean(),
            "mean number of rows": rows.groupby("id").size().mean(),
            **dict(zip(["ill", "male", "year"], coefficients[1:], strict=True)),
            "ill, within": slope,
        }
    )


def one_fit(seed, epsilon, aggregates):
    """Return the intervals of one sample, and naive ones."""
    sampler = RelationalSampler(
        epsilon,
        1e-5,
        schema=replace(PANEL, aggregates=aggregates),
        random_state=seed,
        population_size=2000,
        neighbours="add_or_remove",
        device="cpu",
    )
    frame = panel(N, seed)
    sampler.fit(frame)
    found = estimate_by_refits(
        sampler, statistic, n_refits=N_REFITS, n_samples=5000, random_state=seed
    )
    rows = sampler.sample(N, random_state=seed)
    part = rows[["visits", "ill"]].astype(float).set_axis(["mean visits", "share ill"], axis=1)
    return found.assign(naive=part.mean(), naive_error=part.std() / np.sqrt(len(rows)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=40)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--aggregates", nargs="*", default=[], help="as of Table")
    parser.add_argument("--name", default="refits", help="name of the record")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", NoisyCountsWarning)
    truth = statistic(panel(N_TRUTH, 10**6))
    parts = []
    with threadpool_limits(1):
        for seed in range(args.fits):
            found = one_fit(seed, args.epsilon, args.aggregates)
            is_covered = (found["low"] < truth) & (truth < found["high"])
            naive = (found["naive"] - truth).abs() < Z * found["naive_error"]
            naive = naive.astype(float).where(found["naive"].notna())
            parts.append(found.assign(truth=truth, coverage=is_covered, naive=naive))
            groups = pd.concat(parts).groupby(level=0, sort=False)
            table = groups.agg(
                truth=("truth", "mean"),
                estimate=("estimate", "mean"),
                deviation=("estimate", "std"),
                std_error=("std_error", "mean"),
                coverage=("coverage", "mean"),
                naive=("naive", "mean"),
            )
            rows = [{"of": name} | row for name, row in table.astype(float).T.to_dict().items()]
            meta = vars(args) | {"fits": len(parts), "persons": N, "refits": N_REFITS}
            record(args.name, rows, meta)


if __name__ == "__main__":
    main()
