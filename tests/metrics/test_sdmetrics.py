"""The metadata of tables with keys that the page for users of SDV makes, and a report with them."""

import re
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.schema import (
    Categorical,
    Datetime,
    Identifier,
    Numeric,
    Ordinal,
    RelationalSchema,
    Schema,
    Table,
)

PAGE = Path(__file__).parents[2] / "doc" / "from_sdv.rst"
WARDS = pd.DataFrame({"ward": ["a", "b"], "beds": [10, 20]})
SCHEMA = RelationalSchema(
    {
        "wards": Table(Schema({"beds": Numeric(0, 99)}), primary_key="ward", frame=WARDS),
        "patients": Table(
            Schema({"patient": Identifier(), "sex": Categorical(["f", "m"])}),
            primary_key="patient",
        ),
        "stays": Table(
            Schema({"day": Datetime("2020-01-01", "2020-12-31"), "pain": Ordinal([1, 2, 3])}),
            primary_key="stay",
            foreign_key={"who": "patients", "ward": "wards"},
            sequence_index="day",
            max_rows=3,
        ),
        "drugs": Table(Schema({"dose": Numeric(0, 9)}), foreign_key={"stay": "stays"}, max_rows=2),
    }
)


@pytest.fixture(scope="module")
def sdv_metadata():
    """The function of the page."""
    (code,) = re.findall(
        r"^    def sdv_metadata\(schema\):\n(?:        .*\n)+",
        PAGE.read_text("utf-8"),
        re.MULTILINE,
    )
    names = {"Numeric": Numeric, "Datetime": Datetime, "Identifier": Identifier}
    exec(textwrap.dedent(code), names)
    return names["sdv_metadata"]


def test_metadata_have_all_columns_and_links(sdv_metadata):
    def link(parent, parent_key, child, key):
        return {
            "parent_table_name": parent,
            "parent_primary_key": parent_key,
            "child_table_name": child,
            "child_foreign_key": key,
        }

    found = sdv_metadata(SCHEMA)
    assert found["relationships"] == [
        link("patients", "patient", "stays", "who"),
        link("stays", "stay", "drugs", "stay"),
    ]
    kinds = {
        name: {column: entry["sdtype"] for column, entry in table["columns"].items()}
        for name, table in found["tables"].items()
    }
    assert kinds == {
        "patients": {"patient": "id", "sex": "categorical"},
        "stays": {
            "day": "datetime",
            "pain": "categorical",
            "who": "id",
            "ward": "categorical",
            "stay": "id",
        },
        "drugs": {"dose": "numerical", "stay": "id"},
    }
    keys = {name: table.get("primary_key") for name, table in found["tables"].items()}
    assert keys == {"patients": "patient", "stays": "stay", "drugs": None}


def test_a_report_compares_rows_with_their_parents(sdv_metadata):
    reports = pytest.importorskip("sdmetrics.reports")
    kind = getattr(reports, "QualityReport", None)
    if kind is None:
        pytest.skip("an older sdmetrics")
    rng = np.random.default_rng(0)
    n = 200
    who = np.repeat(np.arange(n), np.arange(n) % 4)
    sex = rng.choice(["f", "m"], n)
    stays = np.arange(len(who))
    tables = {
        "patients": pd.DataFrame({"patient": np.arange(n), "sex": sex}),
        "stays": pd.DataFrame(
            {
                "stay": stays,
                "who": who,
                "ward": rng.choice(["a", "b"], len(who)),
                "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(stays % 300, "D"),
                "pain": np.where(sex[who] == "f", 1, 3),
            }
        ),
        "drugs": pd.DataFrame({"stay": stays[::2], "dose": rng.uniform(0, 9, len(stays[::2]))}),
    }

    def trends(others):
        report = kind()
        report.generate(tables, others, sdv_metadata(SCHEMA), verbose=False)
        properties = report.get_properties().set_index("Property")["Score"]
        return properties["Intertable Trends"]

    assert trends(tables) == pytest.approx(1)
    # The twin: rows of other parents.
    shuffled = tables["stays"].assign(who=rng.permutation(who))
    assert trends(tables | {"stays": shuffled}) < 0.95
