"""Rules of a table: how many synthetic records break them, and what it costs to keep them.

TableSampler with its defaults, with and without ``constraints``, is fitted to the training
part of a 70/30 split; scores are those of `bench_tables.py`. The rules are true of all records, and
public:

- ``simulated``: stays in a hospital, with rules of every kind; see `simulated`;
- ``attrition``: years in a role, with a manager and since a promotion are at most those at the
  company, these at most those of work, and these at most the age; most jobs are in one department;
- ``mlc_churn``: charges are minutes times a tariff, in cents (at night they are rounded in a way of
  their own, and left alone); without a voice mail plan there are no messages;
- ``cps1988``: men of 18 to 70, of whom experience is age - education - 6. The age is a column here.

Mean and standard deviation over seeds; seconds are of one core, of fit and sample.
"""

import argparse
import time

import numpy as np
import pandas as pd
import torch
from _common import record
from _tables import DELTA, TABLES, Table, scores, split, summarize
from threadpoolctl import threadpool_limits

from sklearn_dpgen.schema import (
    Categorical,
    FunctionalDependency,
    Implication,
    Inequality,
    Numeric,
    Ordinal,
    Schema,
    Sum,
)
from sklearn_dpgen.tables import TableSampler

WARDS = {"north": "A", "south": "A", "west": "B", "hill": "C"}


def simulated(n=10_000):
    """Return stays in a hospital, rules, and which records of a frame break one."""
    rng = np.random.default_rng(0)
    severity = rng.gamma(2, 1, n)
    admitted = rng.integers(1, 301, n)
    days = np.minimum(rng.poisson(3 * severity), 60)
    kind = np.where(rng.uniform(size=n) < severity / 8, 1, 2 * (rng.uniform(size=n) < 0.3))
    nursing = np.minimum(120 * days + rng.integers(0, 200, n), 20_000)
    drugs = np.minimum((50 * severity * rng.gamma(2, 1, n)).astype(int), 20_000)
    clinic = rng.choice([*WARDS], n, p=[0.4, 0.3, 0.2, 0.1])
    frame = pd.DataFrame(
        {
            "clinic": clinic,
            "ward": pd.Series(clinic).map(WARDS),
            "admitted": admitted,
            "discharged": admitted + days,
            "surgery": (kind == 1).astype(int),
            "maternity": (kind == 2).astype(int),
            "nursing": nursing,
            "drugs": drugs,
            "bill": nursing + drugs,
            "again": (rng.uniform(size=n) < severity / (4 + severity)).astype(int),
        }
    )
    day, cost = Numeric(1, 366, integer=True), Numeric(0, 20_000, integer=True)
    schema = {
        "clinic": Categorical([*WARDS]),
        "ward": Categorical(["A", "B", "C"]),
        "admitted": day,
        "discharged": day,
        "surgery": Categorical([0, 1]),
        "maternity": Categorical([0, 1]),
        "nursing": cost,
        "drugs": cost,
        "bill": Numeric(0, 40_000, integer=True),
        "again": Categorical([0, 1]),
    }
    rules = [
        FunctionalDependency("ward", "clinic", WARDS),
        Inequality("admitted", "discharged"),
        Implication({"surgery": 1}, {"maternity": 0}),
        Sum("bill", ["nursing", "drugs"]),
    ]

    def broken(frame):
        return (
            (frame["ward"] != frame["clinic"].map(WARDS))
            | (frame["admitted"] > frame["discharged"])
            | (frame["surgery"] == 1) & (frame["maternity"] == 1)
            | (frame["bill"] != frame["nursing"] + frame["drugs"])
        )

    return Table(frame, Schema(schema), {}, "again", lambda y: np.asarray(y) == 1), rules, broken


YEARS = [
    ("YearsInCurrentRole", "YearsAtCompany"),
    ("YearsWithCurrManager", "YearsAtCompany"),
    ("YearsSinceLastPromotion", "YearsAtCompany"),
    ("YearsAtCompany", "TotalWorkingYears"),
    ("TotalWorkingYears", "Age"),
]
JOBS = {
    "Research_Development": [
        "Healthcare_Representative",
        "Laboratory_Technician",
        "Manufacturing_Director",
        "Research_Director",
        "Research_Scientist",
    ],
    "Sales": ["Sales_Executive", "Sales_Representative"],
    "Human_Resources": ["Human_Resources"],
}


def attrition():
    """Return employees, rules, and which records of a frame break one."""
    rules = [Inequality(low, high) for low, high in YEARS]
    rules += [Implication({"JobRole": j}, {"Department": name}) for name, j in JOBS.items()]

    def broken(frame):
        order = [frame[low] > frame[high] for low, high in YEARS]
        place = [frame["JobRole"].isin(j) & (frame["Department"] != d) for d, j in JOBS.items()]
        return np.any([*order, *place], axis=0)

    return TABLES["attrition"](), rules, broken


# Of a tenth of a minute, in hundredths of a cent.
TARIFFS = {"day": 170, "eve": 85, "intl": 270}


def cents(tenths, kind):
    return (tenths * TARIFFS[kind] + 50) // 100


def mlc_churn():
    """Return customers, rules, and which records of a frame break one."""
    rules = [Implication({"voice_mail_plan": "no"}, {"number_vmail_messages": 0})]
    for kind in TARIFFS:
        charges = {tenths / 10: int(cents(tenths, kind)) / 100 for tenths in range(14_401)}
        columns = f"total_{kind}_charge", f"total_{kind}_minutes"
        rules.append(FunctionalDependency(*columns, charges))

    def broken(frame):
        found = (frame["voice_mail_plan"] == "no") & (frame["number_vmail_messages"] > 0)
        for kind in TARIFFS:
            tenths = (frame[f"total_{kind}_minutes"] * 10).round().astype(int)
            found |= (frame[f"total_{kind}_charge"] * 100).round() != cents(tenths, kind)
        return found

    return TABLES["mlc_churn"](), rules, broken


def cps1988():
    """Return men, with their age, rules, and which records of a frame break one."""
    table = TABLES["cps1988"]()
    before = {"start": Ordinal([6]), "age": Numeric(18, 70, integer=True)}
    age = table.frame["education"] + table.frame["experience"] + 6
    frame, schema = table.frame.assign(start=6, age=age), Schema(dict(table.schema) | before)
    rules = [Sum("age", ["education", "experience", "start"])]

    def broken(frame):
        return frame["age"] != frame["education"] + frame["experience"] + 6

    return table._replace(frame=frame, schema=schema), rules, broken


CASES = {f.__name__: f for f in (simulated, attrition, mlc_churn, cps1988)}


def run(name, args):
    """Return a row for each seed, with rules and without."""
    table, rules, broken = CASES[name]()
    if broken(table.frame).any():
        raise ValueError(f"{name}: records break the rules.")
    train, test = split(table.frame)
    rows = []
    for epsilon in args.epsilons:
        for seed in range(args.seeds):
            for constraints in (None, rules):
                options = {"target": table.target, "constraints": constraints}
                start = time.process_time()
                sampler = TableSampler(
                    epsilon, DELTA, schema=table.schema, random_state=seed, **options
                ).fit(train)
                made = sampler.sample(len(train), random_state=seed)
                seconds = time.process_time() - start
                found = scores(made, test, table)
                rows.append(
                    {
                        "table": name,
                        "constraints": "without" if constraints is None else "with",
                        "epsilon": epsilon,
                        "seed": seed,
                        "broken": float(broken(made).mean()),
                        "acceptance": sampler.acceptance_rate(),
                        "AUC boosting": found["AUC boosting"],
                        "AUC logistic": found["AUC logistic"],
                        "2-way TV": found["2-way TV"],
                        "cpu seconds": seconds,
                    }
                )
                print(rows[-1], flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0])
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        rows = [row for name in args.tables for row in run(name, args)]
    rows = summarize(rows, ("table", "constraints", "epsilon"))
    record("rules", rows, vars(args) | {"delta": DELTA, "test share": 0.3})


if __name__ == "__main__":
    main()
