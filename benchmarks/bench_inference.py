"""Coverage of intervals: 200 fits of samples of a simulated table, of Adult and of RAND health.

Each fit has 10,000 records, drawn with replacement from a population whose means, shares and
coefficients are known: a million simulated records, or all records of the table. Epsilon is 1,
delta 1e-6, one record replaced; intervals have the level 0.95. Beside those of
`sklearn_dpgen.inference` are the combined results of 20 synthetic tables, on every tenth fit, and
what an analyst would do who takes synthetic rows for records.
"""

import argparse
import time
from functools import cache

import numpy as np
import pandas as pd
import torch
from _common import record
from scipy.special import expit
from threadpoolctl import threadpool_limits

from sklearn_dpgen.datasets import fetch_adult, load_rand_health
from sklearn_dpgen.inference import (
    combine_estimates,
    estimate_means,
    estimate_regression,
    estimate_shares,
    sample_tables,
)
from sklearn_dpgen.schema import Categorical, Numeric, Ordinal, Schema
from sklearn_dpgen.tables import TableSampler

N, LEVEL, Z = 10_000, 0.95, 1.959964


def simulated(n=1_000_000):
    """Columns that depend on one another, and a label that follows a logistic regression."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=n)
    region = np.where(z + rng.normal(size=n) > 0.8, "u", np.where(rng.random(n) < 0.6, "v", "w"))
    member = (rng.random(n) < 0.3 + 0.2 * (region == "u")).astype(int)
    pay = np.minimum(np.exp(1 + 0.6 * z + 0.5 * rng.normal(size=n)), 50)
    grade = np.clip(np.round(2 + 0.7 * z + 0.8 * rng.normal(size=n)), 0, 4).astype(int)
    mood = np.clip(0.5 * z + 0.8 * rng.normal(size=n), -4, 4)
    moved = (rng.random(n) < 0.1 + 0.05 * grade).astype(int)
    logits = -0.92 + 0.6 * member - 0.5 * (region == "u") + 0.08 * (pay - 4)
    logits += 0.3 * (grade - 2) - 0.5 * mood + 0.4 * moved
    left = (rng.random(n) < expit(logits)).astype(int)
    schema = Schema(
        {
            "region": Categorical(["u", "v", "w"]),
            "member": Categorical([0, 1]),
            "pay": Numeric(0, 50),
            "grade": Ordinal([0, 1, 2, 3, 4]),
            "mood": Numeric(-4, 4),
            "moved": Categorical([0, 1]),
            "left": Categorical([0, 1]),
        }
    )
    columns = (region, member, pay, grade, mood, moved, left)
    frame = pd.DataFrame(dict(zip(schema, columns, strict=True)))
    features = ["member", "region", "pay", "grade", "mood", "moved"]
    return {
        "frame": frame,
        "schema": schema,
        "target": ("left", 1),
        "features": features,
        "means": ["pay", "mood", "grade"],
        "shares": [{"region": "u", "left": 1}, {"pay": pd.Interval(10, 50)}, {"moved": 1}],
    }


def adult():
    data = fetch_adult()
    names = ["age", "education-num", "hours-per-week", "capital-gain", "sex", "race"]
    names += ["relationship", "income"]
    schema = Schema({name: data.schema[name] for name in names})
    return {
        "frame": data.frame[names],
        "schema": schema,
        "target": ("income", ">50K"),
        "features": ["age", "education-num", "hours-per-week", "sex"],
        "means": ["age", "education-num", "hours-per-week", "capital-gain"],
        "shares": [
            {"sex": "Female", "income": ">50K"},
            {"race": "Black"},
            {"hours-per-week": pd.Interval(50, 99), "relationship": "Husband"},
        ],
    }


def rand_health():
    data = load_rand_health()
    names = [*data.schema]
    frame = data.frame.assign(mdvis=data.frame["mdvis"].clip(0, 24))
    return {
        "frame": frame[names],
        "schema": data.schema,
        "target": ("mdvis", pd.Interval(2, 24)),
        "features": ["disea", "idp", "hlthp", "lpi"],
        "means": ["mdvis", "disea", "lpi"],
        "shares": [{"hlthp": 1}, {"idp": 1, "mdvis": 0}, {"disea": pd.Interval(20, 60)}],
    }


TABLES = {"simulated": simulated, "adult": adult, "rand health": rand_health}


def inside(column, value):
    if isinstance(value, pd.Interval):
        return ((column > value.left) & (column <= value.right)).to_numpy()
    return (column == value).to_numpy()


def classical(frame, case):
    """Return what an analyst computes of records: estimates and standard errors, by name."""
    found, n = {}, len(frame)
    for name in case["means"]:
        values = frame[name].astype(float)
        found[f"mean {name}"] = values.mean(), values.std() / np.sqrt(n)
    for event in case["shares"]:
        holds = np.all([inside(frame[name], value) for name, value in event.items()], axis=0)
        share = holds.mean()
        found[f"share {event}"] = share, np.sqrt(share * (1 - share) / n)
    columns, names = [np.ones(n)], ["intercept"]
    for name in case["features"]:
        column = case["schema"][name]
        if isinstance(column, Categorical):
            for label in column.labels[1:]:
                columns.append(inside(frame[name], label).astype(float))
                names.append(f"{name}={label}")
        else:
            columns.append(frame[name].to_numpy(dtype=float))
            names.append(name)
    X, y = np.column_stack(columns), inside(frame[case["target"][0]], case["target"][1])
    scales = np.sqrt((X**2).mean(axis=0)) + 1e-12
    X, theta = X / scales, np.zeros(len(names))
    for _ in range(30):
        p = expit(X @ theta)
        curvature = (X * (p * (1 - p))[:, None]).T @ X + 1e-6 * np.eye(len(names))
        step = np.linalg.solve(curvature, X.T @ (y - p))
        theta += step
        if np.abs(step).max() < 1e-9:
            break
    errors = np.sqrt(np.diag(np.linalg.inv(curvature)))
    for name, value, error in zip(names, theta / scales, errors / scales, strict=True):
        found[f"coefficient {name}"] = value, error
    return pd.DataFrame(found, index=["estimate", "std_error"]).T


def ours(sampler, case):
    target, positive = case["target"]
    tables = {
        "mean ": estimate_means(sampler, case["means"]),
        "share ": estimate_shares(sampler, case["shares"]),
        "coefficient ": estimate_regression(sampler, target, case["features"], positive=positive),
    }
    return pd.concat(
        [table.rename(index=lambda of, k=kind: k + of) for kind, table in tables.items()]
    )


@cache
def load(name):
    return TABLES[name]()


def run(name, args):
    case, rows, seconds = load(name), [], []
    frame = case["frame"]
    truth = classical(frame, case)["estimate"]
    needed = sorted(
        {case["target"][0], *case["features"], *case["means"], *sum(map(list, case["shares"]), [])}
    )
    for seed in range(args.fits):
        rng = np.random.default_rng(seed)
        sample = frame.iloc[rng.integers(len(frame), size=N)].reset_index(drop=True)
        options = {"schema": case["schema"], "target": case["target"][0], "random_state": seed}
        sampler = TableSampler(args.epsilon, 1e-6, **options).fit(sample)
        start = time.process_time()
        found = {"intervals": ours(sampler, case)}
        seconds.append(time.process_time() - start)
        simple = classical(sampler.sample(N, random_state=seed), case)
        found["rows as records"] = simple.assign(
            low=simple["estimate"] - Z * simple["std_error"],
            high=simple["estimate"] + Z * simple["std_error"],
        )
        if seed % 10 == 0:
            tables = sample_tables(sampler, 20, columns=needed, random_state=seed)
            results = [classical(table, case)["estimate"] for table in tables]
            found["20 tables"] = combine_estimates(results)
        private = classical(sample, case)["std_error"]
        for method, table in found.items():
            table = table.rename(index=dict(zip(table.index, truth.index, strict=True)))
            for of in truth.index:
                row = table.loc[of]
                rows.append(
                    {
                        "table": name,
                        "method": method,
                        "of": of,
                        "covered": row["low"] <= truth[of] <= row["high"],
                        "gap": row["estimate"] - truth[of],
                        "width": (row["high"] - row["low"]) / (2 * Z * private[of]),
                        "promised": row.get("promised", np.nan),
                        "measured": row.get("measured", np.nan),
                        "sampling error": private[of],
                    }
                )
    print(name, f"{np.mean(seconds):.2f} s for all intervals of a fit", flush=True)
    return rows


def summary(rows):
    groups = pd.DataFrame(rows).groupby(["table", "method", "of"], sort=False)
    found = []
    for (table, method, of), part in groups:
        row = {"table": table, "method": method, "of": of, "fits": len(part)}
        row["coverage"] = round(part["covered"].mean(), 3)
        error = part["sampling error"].mean()
        row["bias"] = round(part["gap"].mean() / error, 2)
        row["error"] = round(np.sqrt((part["gap"] ** 2).mean()) / error, 2)
        row["width"] = round(part["width"].mean(), 2)
        if method == "intervals":
            kept = part[part["promised"].astype(bool)]
            row["promised"] = round(len(kept) / len(part), 3)
            row["measured"] = round(part["measured"].mean(), 3)
            row["coverage promised"] = round(kept["covered"].mean(), 3) if len(kept) else None
        found.append(row)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--fits", type=int, default=200)
    parser.add_argument("--name", default="inference", help="of the results")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with threadpool_limits(1):
        for name in args.tables:
            rows += run(name, args)
            record(args.name, summary(rows), vars(args) | {"records": N, "level": LEVEL})
    print(pd.DataFrame(summary(rows)).to_string())


if __name__ == "__main__":
    main()
