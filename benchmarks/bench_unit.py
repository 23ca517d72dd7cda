"""Persons with several rows: what one of them changes against what is priced, and what is learned.

Persons have 1 to 36 rows, most of them few: visits that are simulated, of persons of whom the sick
come more often, and the RAND health records, of which rows that are alike are given to one person.
Each fit has ε = 1, and protects a person; "rows alone" does not, and shows what that costs.
Total variations are against the law of a random row of a random person and that of rows.
"""

import argparse
from unittest.mock import patch

import numpy as np
import pandas as pd
from _common import record

from sklearn_dpgen.datasets import load_rand_health
from sklearn_dpgen.ledger._unit import Persons
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema
from sklearn_dpgen.tables import TableSampler
from sklearn_dpgen.tables._marginals import all_pairs
from sklearn_dpgen.tables._records import encode_codes
from sklearn_dpgen.tables._table_counter import CodeCounter, CountLayout, weights_of

MOST_ROWS, EXPONENT = 36, 1.4
N_DRAWN, N_BINS = 200_000, 10
DEPARTMENTS = ["general", "heart", "injury", "mental", "screening"]
VISITS = Schema(
    {
        "sex": Categorical(["f", "m"]),
        "region": Categorical(["north", "east", "south", "west"]),
        "age": Numeric(0, 110, integer=True),
        "chronic": Ordinal(range(6)),
        "insured": Categorical([False, True]),
        "day": Datetime("2020-01-01", "2024-12-31", resolution="D"),
        "department": Categorical(DEPARTMENTS),
        "severity": Ordinal(range(1, 6)),
        "cost": Numeric(0, 20_000),
        "admitted": Categorical([False, True]),
    }
)
# What a person is protected by: parameters, and whether one row each is drawn before the fit.
WAYS = {
    "rows alone": ({}, False),
    "one row each": ({}, True),
    "equal weights": ({"unit": "who"}, False),
    "rows, k = 1": ({"unit": "who", "unit_weights": "rows", "max_rows": 1}, False),
    "rows, k = 4": ({"unit": "who", "unit_weights": "rows", "max_rows": 4}, False),
    "rows, k = 16": ({"unit": "who", "unit_weights": "rows", "max_rows": 16}, False),
}


def heavy_tailed(n, rng):
    """Return numbers of rows: of m in proportion to m^-1.4, from 1 to 36."""
    sizes = np.arange(1, MOST_ROWS + 1)
    return rng.choice(sizes, size=n, p=sizes**-EXPONENT / (sizes**-EXPONENT).sum())


def visits(n_persons=10_000, seed=0):
    """Return visits of persons: of the sick there are more, in other departments, and dearer."""
    rng = np.random.default_rng(seed)
    sizes = np.sort(heavy_tailed(n_persons, rng))
    # The more often one comes, the sicker one is, on the whole.
    sick = np.argsort(np.argsort(np.log(sizes) + rng.normal(size=n_persons))) / n_persons
    person = {
        "sex": rng.choice(["f", "m"], n_persons),
        "region": rng.choice(["north", "east", "south", "west"], n_persons, p=[0.4, 0.3, 0.2, 0.1]),
        "age": np.clip(20 + 60 * sick + rng.normal(0, 15, n_persons), 0, 110).astype(int),
        "chronic": rng.binomial(5, 0.7 * sick),
        "insured": rng.uniform(size=n_persons) < 0.6 + 0.3 * sick,
        "sick": sick,
    }
    of = np.repeat(np.arange(n_persons), sizes)
    n = len(of)
    frame = pd.DataFrame({name: values[of] for name, values in person.items()})
    level = frame["sick"] + 0.2 * rng.normal(size=n)
    frame["day"] = np.datetime64("2020-01-01", "us") + rng.integers(1800, size=n).astype("m8[D]")
    department = np.digitize(level + 0.3 * (frame["chronic"] > 2), [0.3, 0.6, 0.8, 1.1])
    frame["department"] = np.array(["screening", "injury", "general", "mental", "heart"])[
        department
    ]
    frame["severity"] = np.clip(1 + 4 * level, 1, 5).astype(int)
    frame["cost"] = np.exp(4 + frame["severity"] + rng.normal(0, 0.7, n)).clip(0, 20_000)
    frame["admitted"] = rng.uniform(size=n) < 0.1 * frame["severity"]
    return frame[list(VISITS)].assign(who=rng.permutation(n_persons)[of]), VISITS


def health(seed=0):
    """Return the RAND health records with persons: rows that are alike, as of several years."""
    data, rng = load_rand_health(), np.random.default_rng(seed)
    columns = [name for name in data.frame.columns if name != "mdvis"]
    frame = data.frame.sort_values(columns, kind="stable", ignore_index=True)
    sizes = heavy_tailed(len(frame), rng)
    who = np.repeat(np.arange(len(sizes)), sizes)[: len(frame)]
    return frame.assign(who=rng.permutation(who.max() + 1)[who]), data.schema


def tables_of(frame, encoder, weights=None):
    """Return the shares of the cells of all columns and pairs, in fixed bins."""
    records = encode_codes(frame, encoder)
    n = len(records.sizes)
    layout = CountLayout(records.sizes, [(j,) for j in range(n)] + all_pairs(n), None)
    tables = CodeCounter(layout).count_codes(records.columns, weights).tables()
    return [table / table.sum() for table in tables]


def distances(tables, others, n_columns):
    """Return the mean total variation of columns, and of pairs."""
    gaps = [np.abs(a - b).sum() / 2 for a, b in zip(tables, others, strict=True)]
    return float(np.mean(gaps[:n_columns])), float(np.mean(gaps[n_columns:]))


def sampler_of(options, schema, seed):
    return TableSampler(
        schema=schema, population_size=5_000, random_state=seed, device="cpu", **options
    )


def learned(frame, schema, n_seeds):
    """Yield a row for each way: distances to both laws, means over seeds."""
    encoder = TabularEncoder(schema, n_bins=N_BINS).fit()
    persons = Persons(frame["who"])
    records = frame.drop(columns="who")
    laws = [tables_of(records, encoder, weights) for weights in (weights_of(persons.n_rows), None)]
    for way, (options, is_drawn) in WAYS.items():
        found = []
        for seed in range(n_seeds):
            rows = records if not options else frame
            if is_drawn:
                rows = frame.sample(frac=1, random_state=seed).drop_duplicates("who")
                rows = rows.drop(columns="who")
            sampler = sampler_of(options, schema, seed).fit(rows)
            drawn = tables_of(sampler.sample(N_DRAWN, random_state=seed), encoder)
            found.append([d for law in laws for d in distances(drawn, law, len(schema))])
        mean, spread = np.mean(found, axis=0), np.std(found, axis=0)
        names = ["person, columns", "person, pairs", "rows, columns", "rows, pairs"]
        yield {
            "protected": "row" if way == "rows alone" else "person",
            "way": way,
            **dict(zip(names, mean.tolist(), strict=True)),
            "largest spread": float(spread.max()),
            "cell of a pair": sampler.privacy_.precision["cell of a pair"].partition(";")[0],
        }


def let_out(sampler, frame, given=None):
    """Return what was to be released and selected in a fit, and what was let out.

    With what another fit let out, ``given``, it is this again.
    """
    values, outputs = [], []

    def watched(original):
        def watch(run, value, noise, **options):
            values.append(value.copy())
            out = original(run, value, noise, **options)
            outputs.append(out if given is None else given[len(outputs)])
            return outputs[-1].copy()

        return watch

    with (
        patch.object(GaussianSequenceRun, "release", watched(GaussianSequenceRun.release)),
        patch.object(GaussianSequenceRun, "select", watched(GaussianSequenceRun.select)),
    ):
        sampler.fit(frame)
    return values, outputs


def changed(frame, schema):
    """Yield a row for each way and relation: the largest change by a person of equal rows."""
    encoder = TabularEncoder(schema, n_bins=N_BINS).fit()
    widths = [column.n_categories for column in encoder.columns_.values()]
    low, high = (
        encoder.decode_codes(np.array([[code * (width - 1) for width in widths]] * MOST_ROWS))
        for code in (0, 1)
    )
    others = frame.drop_duplicates("who").head(4_000)
    first, second = (
        pd.concat([part.assign(who=-1), others], ignore_index=True).astype({"who": int})
        for part in (low, high)
    )
    for way, (options, is_drawn) in WAYS.items():
        if is_drawn or not options:
            continue
        for neighbours in ("replace_one", "add_or_remove"):
            given = options | {"neighbours": neighbours}
            other = second if neighbours == "replace_one" else first[first["who"] >= 0]
            sampler = sampler_of(given, schema, 0)
            values, outputs = let_out(sampler, first)
            again, _ = let_out(sampler_of(given, schema, 0), other, outputs)
            report = sampler.privacy_
            moved = [np.linalg.norm(a - b) for a, b in zip(values, again, strict=True)]
            kinds = [out.dtype.kind for out in outputs]
            yield {
                "way": way,
                "neighbours": neighbours,
                "priced": report.sensitivity,
                "largest change": float(
                    max(m for m, k in zip(moved, kinds, strict=True) if k == "f")
                ),
                "n_releases": kinds.count("f"),
            }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=12)
    n_seeds, rows = parser.parse_args().seeds, []
    for name, (frame, schema) in (("visits", visits()), ("RAND health", health())):
        n_persons = frame["who"].nunique()
        print(name, len(frame), "rows of", n_persons, "persons")
        rows += [{"data": name, **row} for row in changed(frame, schema)]
        rows += [{"data": name, **row} for row in learned(frame, schema, n_seeds)]
    record("unit", rows, {"epsilon": 1.0, "delta": 1e-5, "seeds": n_seeds, "rows": "1 to 36"})


if __name__ == "__main__":
    main()
