"""What is learned of a declared target, by its rarity, the budget, and the columns it depends on.

`--rare` takes people in crashes, 4.5 percent of whom died, by the number of records. `--budgets`
takes tables of `_public_pairs.py` and `_tables.py` at four budgets. `--interaction` makes 1500
people whose label is whether they are above fifty or smoke, but not both.

The cheapest table has noisy counts of each column with the target and no others ("pairs of the
target alone"). Boosting and logistic regression learn from synthetic records and are tested on real
ones; the distance is the mean total variation of all pairs in cells of labels, and of 20 bins at
quantiles of the test part. A record is added or removed unless it says otherwise; delta is 1e-5.

Settings of the sampler were chosen on hmda, mlc_churn, attrition, adult, churn, nmes1988 and wages,
and the budget for rare values on adult and wages, of whose positive labels 5 percent were kept; the
same trials showed crash, rand health, gss and diamonds too.
"""

import argparse
import time
from functools import cache
from itertools import combinations

import numpy as np
import pandas as pd
import torch
from _common import record
from _public_pairs import PAIRS, Pair, _cells, _distance, _item
from _tables import DELTA, TABLES, Table, learners, split, summarize, utility
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import TableSampler

SIZES = (1000, 2000, 4000, 6000, 9000, 18_000)
BUDGETS = (0.3, 1.0, 3.0, 10.0)
CHEAPEST = "pairs of the target alone"
OURS, REAL = "TableSampler", "real"
REPORTED = ("rand health", "doctor_visits", "crash", "credit", "gss", "diamonds", "lending_club")
# What is made of a table at most.
MOST_RECORDS = 20_000


def crash():
    """Return all people in crashes, of all years."""
    frame = _item("DAAG", "nassCDS").dropna().astype({"yearVeh": int})
    schema = PAIRS["crash"]().schema
    return frame[list(schema)], schema, "dead", lambda x: np.asarray(x) == "dead"


def credit():
    """Return borrowers in Spain; bad ones are predicted."""
    frame = _item("modeldata", "credit_data").drop(columns="rownames")
    bounds = {
        "Seniority": 100, "Time": 100, "Age": 100, "Expenses": 1000, "Income": 1000,
        "Assets": 1_000_000, "Debt": 100_000, "Amount": 10_000, "Price": 100_000,
    }  # fmt: skip
    labels = {
        "Home": ["ignore", "other", "owner", "parents", "priv", "rent"],
        "Marital": ["divorced", "married", "separated", "single", "widow"],
        "Records": ["no", "yes"],
        "Job": ["fixed", "freelance", "others", "partime"],
        "Status": ["bad", "good"],
    }
    schema = Schema(
        {
            name: Numeric(0, bounds[name], integer=True, nullable=True)
            if name in bounds
            else Categorical(labels[name], nullable=name != "Status")
            for name in frame
        }
    )
    frame = frame.astype(dict.fromkeys(labels, object))
    return frame, schema, "Status", lambda x: np.asarray(x) == "bad"


@cache
def task_of(name):
    """Return training and test records of a table, with its schema and target."""
    if name in ("crash", "credit"):
        frame, schema, target, is_positive = {"crash": crash, "credit": credit}[name]()
        train, test = split(frame)
    elif name in PAIRS:
        pair = PAIRS[name]()
        train, test, schema, target = pair.private, pair.test, pair.schema, pair.target
        is_positive = lambda x: np.asarray(x) == pair.positive  # noqa: E731
    else:
        table = TABLES[name]()
        (train, test), schema = split(table.frame), table.schema
        target, is_positive = table.target, table.is_positive
    return train, Table(test, schema, {}, target, is_positive)


def case_of(name, n, epsilon, model, seed):
    """Return the scores of one fit."""
    train, table = task_of(name)
    if n is None or n > len(train):
        n = min(len(train), MOST_RECORDS)
    X = train.sample(n, random_state=seed).reset_index(drop=True)
    start, made = time.process_time(), X
    if model != REAL:
        columns = [column for column in table.schema if column != table.target]
        pairs = [(column, table.target) for column in columns]
        sampler = TableSampler(
            epsilon,
            DELTA,
            schema=table.schema,
            target=table.target,
            marginals=pairs if model == CHEAPEST else "auto",
            neighbours="add_or_remove",
            random_state=seed,
        )
        made = sampler.fit(X).sample(n, random_state=seed)
    seconds = time.process_time() - start
    row = {"table": name, "records": n, "model": model, "epsilon": epsilon, "seed": seed}
    return row | _scores(made, table) | {"cpu seconds": seconds}


def _scores(made, table):
    test, names = table.frame, list(table.schema)
    pair = Pair("", None, None, test, table.schema, table.target, None)
    codes = [_cells(frame, pair) for frame in (made, test)]
    sizes = {name: 1 + max(int(code[name].max()) for code in codes) for name in names}
    distances = [_distance(*codes, group, sizes) for group in combinations(names, 2)]
    found = {"AUC boosting": 0.5, "AUC logistic": 0.5}
    if len(np.unique(table.is_positive(made[table.target]))) == 2:
        found = utility(learners(table), ("AUC",), made[names], test[names], table)
    return found | {"2-way TV": float(np.mean(distances))}


def people(n, rng):
    """Return people with a label, and columns of which it does not depend."""
    age, smokes = rng.integers(18, 91, n), rng.integers(0, 2, n)
    return pd.DataFrame(
        {
            "age": age,
            "smokes": smokes,
            "bmi": rng.normal(27, 5, n).clip(12, 60).round(1),
            "sex": rng.integers(0, 2, n),
            "ward": rng.integers(0, 6, n),
            "label": ((age > 50) ^ (smokes == 1)).astype(int),
        }
    )


def interaction(n, neighbours, seed):
    """Return the accuracy of boosting for people of a simulated table."""
    coin = Categorical([0, 1])
    schema = Schema(
        {
            "age": Numeric(18, 90, integer=True),
            "smokes": coin,
            "bmi": Numeric(12, 60, step=0.1),
            "sex": coin,
            "ward": Categorical(range(6)),
            "label": coin,
        }
    )
    train, test = (people(size, np.random.default_rng([seed, size])) for size in (n, 4000))
    sampler = TableSampler(
        1.0, DELTA, schema=schema, target="label", neighbours=neighbours, random_state=seed
    )
    made = sampler.fit(train).sample(n, random_state=seed)
    row = {"records": n, "neighbours": neighbours, "seed": seed}
    for name, frame in (("accuracy", made), ("accuracy, real", train)):
        model = HistGradientBoostingClassifier(random_state=0)
        model.fit(frame.drop(columns="label"), frame["label"].astype(int))
        row[name] = float(model.score(test.drop(columns="label"), test["label"]))
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for part in ("rare", "budgets", "interaction"):
        parser.add_argument(f"--{part}", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tables", nargs="+", default=list(REPORTED))
    args = parser.parse_args()
    meta = {"seeds": args.seeds, "delta": DELTA}
    torch.set_num_threads(1)
    with threadpool_limits(1):
        by = ("table", "records", "model", "epsilon")
        if args.rare:
            cases = [("crash", n, 1.0, m) for n in SIZES for m in (OURS, CHEAPEST, REAL)]
            record("targets_rare", summarize(_rows(cases, args.seeds), by), meta)
        if args.budgets:
            cases = [
                (name, None, epsilon, model)
                for name in args.tables
                for model in (OURS, CHEAPEST, REAL)
                for epsilon in (BUDGETS if model != REAL else (np.inf,))
            ]
            record("targets_budgets", summarize(_rows(cases, args.seeds), by), meta)
        if args.interaction:
            rows = [
                interaction(n, neighbours, seed)
                for neighbours in ("add_or_remove", "replace_one")
                for n in (700, 1000, 1500, 3000)
                for seed in range(args.seeds)
            ]
            record("targets_interaction", summarize(rows, ("neighbours", "records")), meta)


def _rows(cases, n_seeds):
    rows = []
    for case in cases:
        for seed in range(n_seeds):
            rows.append(case_of(*case, seed))
            print(rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    main()
