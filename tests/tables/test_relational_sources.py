"""RelationalSampler: tables from files, chunks, engines and other libraries, and back."""

import numpy as np
import pandas as pd
import pytest

import sklearn_dpgen
from sklearn_dpgen.schema import (
    Categorical,
    Datetime,
    Identifier,
    Numeric,
    RelationalSchema,
    Schema,
    Table,
)
from sklearn_dpgen.tables import RelationalSampler

SCHEMA = RelationalSchema(
    {
        "patients": Table(Schema({"sex": Categorical(["f", "m"])}), primary_key="patient"),
        "visits": Table(
            Schema(
                {
                    "day": Datetime("2020-01-01", "2020-01-30", resolution="D"),
                    "cost": Numeric(0, 50, nullable=True),
                }
            ),
            foreign_key={"patient": "patients"},
            sequence_index="day",
            max_rows=4,
        ),
    }
)
PANEL = Table(
    Schema({"sex": Categorical(["f", "m"]), "year": Numeric(2001, 2009, integer=True)}),
    primary_key="id",
    sequence_index="year",
    max_rows=4,
    static=["sex"],
)


def hospital(n=40):
    rng = np.random.default_rng(0)
    patients = pd.DataFrame({"patient": np.arange(n), "sex": rng.choice(["f", "m"], n)})
    # Rows of a patient are scattered, and their number falls towards the bound.
    visitors = rng.permutation(np.repeat(np.arange(n), rng.permutation(np.arange(n) % 10 // 3)))
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 30, len(visitors)), "D")
    cost = rng.integers(0, 50, len(visitors)).astype(float)
    cost[::5] = np.nan
    return {
        "patients": patients,
        "visits": pd.DataFrame({"patient": visitors, "day": days, "cost": cost}),
    }


def panel(n=30):
    rng = np.random.default_rng(1)
    ids = np.repeat(np.arange(n), 1 + np.arange(n) % 3)
    sexes = rng.choice(["f", "m"], n)[ids]
    return pd.DataFrame({"id": ids, "sex": sexes, "year": rng.integers(2001, 2010, len(ids))})


def make(schema=SCHEMA, **parameters):
    parameters = {"epsilon": np.inf, "random_state": 0, "population_size": 50, "max_iter": 1} | (
        parameters
    )
    return RelationalSampler(schema=schema, **parameters)


def same(first, second):
    """Return whether two fits counted the same persons and rows."""
    pairs = zip(first.one_way_marginals_, second.one_way_marginals_, strict=True)
    return all(
        one.columns == other.columns and np.allclose(one.counts, other.counts, rtol=0, atol=1e-9)
        for one, other in pairs
    )


@pytest.fixture(scope="module")
def fitted():
    return make().fit(hospital())


def files(tables, folder, ending):
    """Write each table as two files, and return their paths."""
    paths = {}
    for name, table in tables.items():
        paths[name] = [folder / f"{name}-{i}{ending}" for i in range(2)]
        for path, part in zip(paths[name], (table[:7], table[7:]), strict=True):
            if ending == ".parquet":
                part.to_parquet(path, index=False)
            else:
                part.to_csv(path, index=False)
    return paths


def arrow(tables):
    pa = pytest.importorskip("pyarrow")
    return {name: pa.Table.from_pandas(t, preserve_index=False) for name, t in tables.items()}


def given(kind, folder):
    """Return the tables of the hospital in some form."""
    tables = hospital()
    if kind in (".csv", ".csv.gz", ".parquet"):
        pytest.importorskip("pyarrow")
        return files(tables, folder, kind)
    if kind == "folder":
        paths = files(tables, folder, ".parquet")
        return {"patients": paths["patients"], "visits": str(folder / "visits-*.parquet")}
    if kind == "chunks":
        return {name: iter([t[:3], t[3:3], t[3:]]) for name, t in tables.items()}
    if kind == "dask":
        dd = pytest.importorskip("dask.dataframe")
        return {name: dd.from_pandas(t, npartitions=3) for name, t in tables.items()}
    if kind == "arrow":
        return arrow(tables)
    if kind == "duckdb":
        duckdb = pytest.importorskip("duckdb")
        return {name: duckdb.from_arrow(table) for name, table in arrow(tables).items()}
    polars = pytest.importorskip("polars")
    frames = {name: polars.from_arrow(table) for name, table in arrow(tables).items()}
    return {name: t.lazy() for name, t in frames.items()} if kind == "lazy" else frames


KINDS = [".csv", ".csv.gz", ".parquet", "folder", "chunks", "dask", "arrow", "duckdb", "polars"]


@pytest.mark.parametrize("kind", [*KINDS, "lazy"])
def test_all_sources_give_the_same_counts(kind, fitted, tmp_path):
    assert same(make().fit(given(kind, tmp_path)), fitted)


def test_a_row_that_is_missing_is_found(fitted):
    tables = hospital()
    tables["visits"] = tables["visits"][1:]
    assert not same(make().fit(tables), fitted)


@pytest.mark.parametrize("text", ["patients", "visits"])
def test_texts_of_a_csv_file_are_the_integers_of_another_file(text, fitted, tmp_path):
    pytest.importorskip("pyarrow")
    tables = hospital()
    # Of integers beside nulls pandas makes floats.
    orphan = tables["visits"][:1].assign(patient=np.nan)
    tables["visits"] = pd.concat([tables["visits"], orphan], ignore_index=True)
    if text == "visits":
        tables["visits"] = tables["visits"].astype({"patient": "Int64"})
    paths = {
        name: files({name: t}, tmp_path, ".csv" if name == text else ".parquet")[name]
        for name, t in tables.items()
    }
    assert same(make().fit(paths), fitted)


@pytest.mark.parametrize("key", ["07", "x7", "7.0", "+7", " 7", "٧", "9" * 30])
def test_other_texts_are_no_integers(key):
    tables = hospital()
    visits = tables["visits"].assign(patient=tables["visits"]["patient"].astype(str))
    visits.loc[3, "patient"] = key
    said = "Table 'visits': foreign_key 'patient' must be of the type of the primary key 'patient'"
    with pytest.raises(ValueError, match=f"{said} of table 'patients', or .* as texts") as error:
        make().fit(tables | {"visits": visits})
    assert key not in str(error.value)


@pytest.mark.parametrize("form", ["path", "paths", "named", "chunks", "polars"])
def test_a_panel_is_one_table(form, tmp_path):
    frame = panel()
    paths = files({"rows": frame}, tmp_path, ".csv")["rows"]
    if form == "path":
        frame.to_csv(paths[0], index=False)
    forms = {
        "path": paths[0],
        "paths": paths,
        "named": {"rows": frame},
        "chunks": [frame[:5], frame[5:]],
    }
    if form == "polars":
        forms["polars"] = pytest.importorskip("polars").from_pandas(frame)
    sampler = make(PANEL).fit(forms[form])
    assert same(sampler, make(PANEL).fit(frame))
    assert isinstance(sampler.sample(3), dict) == (form == "named")


def test_samples_are_of_the_kinds_of_the_fit(tmp_path):
    polars = pytest.importorskip("polars")
    tables = hospital()
    tables |= {
        "visits": arrow(tables)["visits"],
        "patients": polars.from_pandas(tables["patients"]),
    }
    sampler = make().fit(tables)
    sampler.save(tmp_path / "model")
    for model in (sampler, sklearn_dpgen.load(tmp_path / "model")):
        drawn = model.sample(5)
        assert isinstance(drawn["patients"], polars.DataFrame)
        assert type(drawn["visits"]).__module__.startswith("pyarrow")
        assert drawn["patients"]["patient"].to_list() == [1, 2, 3, 4, 5]
    drawn = sampler.set_output(transform="pandas").sample(5)
    assert {type(frame) for frame in drawn.values()} == {pd.DataFrame}


def test_a_saved_panel_gives_one_frame_or_a_mapping(tmp_path):
    for tables in (panel(), {"rows": panel()}):
        make(PANEL).fit(tables).save(tmp_path / "model")
        drawn = sklearn_dpgen.load(tmp_path / "model").sample(2)
        assert type(drawn) is type(tables)


def declared(parent, child):
    """Return the schema with identifiers, for the key in either table or both."""
    patients, visits = SCHEMA["patients"], SCHEMA["visits"]
    columns = ({} if key is None else {"patient": Identifier(key)} for key in (parent, child))
    schemas = [Schema(next(columns) | dict(table.schema)) for table in (patients, visits)]
    return RelationalSchema(
        {
            "patients": Table(schemas[0], primary_key="patient"),
            "visits": Table(
                Schema({"bill": Identifier("b")} | dict(schemas[1])),
                foreign_key={"patient": "patients"},
                max_rows=4,
            ),
        }
    )


@pytest.mark.parametrize(
    ("parent", "child", "first"), [("p-", "x", "p-0"), (None, "v", "v0"), (None, None, 1)]
)
def test_keys_are_of_the_declared_kind(parent, child, first):
    tables = hospital()
    tables["visits"] = tables["visits"].assign(bill="secret")
    drawn = make(declared(parent, child)).fit(tables).sample(20)
    keys = drawn["patients"]["patient"]
    assert keys.iloc[0] == first
    assert keys.is_unique
    assert len(drawn["visits"]) > 0
    assert set(drawn["visits"]["patient"]) <= set(keys)
    assert set(drawn["visits"]["bill"]) == {f"b{i}" for i in range(len(drawn["visits"]))}


def test_keys_of_public_tables_are_drawn():
    wards = pd.DataFrame({"ward": [3, 5], "beds": [10.0, 20.0]})
    keys = {"patient": "patients", "ward": "wards"}
    visits = SCHEMA["visits"]
    schema = RelationalSchema(
        {
            "patients": SCHEMA["patients"],
            "visits": Table(visits.schema, foreign_key=keys, max_rows=4),
            "wards": Table(Schema({"beds": Numeric(0, 99)}), primary_key="ward", frame=wards),
        }
    )
    tables = hospital()
    tables["visits"] = tables["visits"].assign(
        ward=np.where(np.arange(len(tables["visits"])), 5, 3)
    )
    drawn = make(schema).fit(tables).sample(50)["visits"]
    assert [*drawn] == ["patient", "ward", "day", "cost"]
    assert {*drawn["ward"]} <= {3, 5}
    assert (drawn["ward"] == 5).mean() > 0.5


@pytest.mark.slow
def test_a_million_rows_of_one_person():
    tables = hospital()
    many = pd.DataFrame({"patient": 0, "day": "2020-01-07", "cost": 7.0}, index=range(10**6))
    others = tables["visits"][tables["visits"]["patient"] != 0]
    sampler = make().fit(tables | {"visits": [many, others]})
    # The person weighs as much as with one row, and less than by one step of the grid more.
    once = make().fit(tables | {"visits": [many[:1], others]})
    pairs = zip(sampler.one_way_marginals_, once.one_way_marginals_, strict=True)
    for one, other in pairs:
        if one.columns[0].startswith("visits."):
            assert one.counts.sum() == pytest.approx(other.counts.sum(), abs=0.2)
    # A few synthetic persons can all be without rows.
    sizes = sampler.sample(50)["visits"].groupby("patient").size()
    assert sizes.max() <= 4


FAULTS = {
    "a missing table": (lambda t: {"patients": t["patients"]}, r"missing \['visits'\]"),
    "an unknown table": (
        lambda t: t | {"bills": t["visits"]},
        r"unknown \['bills'\]\. The rows of a public table are those of its frame in the schema\.$",
    ),
    "a missing key": (
        lambda t: t | {"visits": t["visits"].drop(columns="patient")},
        r"Table 'visits': The columns must be those of the schema and the keys \['patient'\], each "
        r"once: missing \['patient'\]",
    ),
    "an unknown column": (
        lambda t: t | {"visits": t["visits"].assign(note="secret")},
        r"Table 'visits': The columns must be .* unknown \['note'\]\. Drop the others\.$",
    ),
    "a key of two types": (
        lambda t: (
            t | {"visits": t["visits"].assign(patient=[*t["visits"]["patient"][1:], "secret"])}
        ),
        "Table 'visits': Key 'patient' mixes texts with other values",
    ),
    "no mapping": (lambda t: t["visits"], r"tables must be a mapping of the names \['patients', "),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_name_table_column_and_rule(fault):
    change, said = FAULTS[fault]
    with pytest.raises((ValueError, TypeError), match=said) as error:
        make().fit(change(hospital()))
    assert "secret" not in str(error.value)
    assert isinstance(error.value, sklearn_dpgen.exceptions.PublicError)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ties": False}, "Table 'visits': ties=False requires sequence_index"),
        ({"max_rows": None}, "Table 'visits': max_rows must be given, the public bound"),
    ],
)
def test_faults_of_a_declaration_name_the_table(options, said):
    declaration = SCHEMA.to_dict()
    entry = declaration["tables"]["visits"]
    del entry["sequence_index"]
    entry |= options
    with pytest.raises(ValueError, match=said):
        RelationalSchema.from_dict(declaration)
