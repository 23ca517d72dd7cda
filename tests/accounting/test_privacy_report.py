"""The privacy report: immutable, complete, readable, and the same after a trip through JSON."""

import dataclasses
import json
import math
import pickle

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen import __version__
from sklearn_dpgen.accounting import Bound, Event, GaussianProfile, PrivacyReport
from sklearn_dpgen.domains import Box
from sklearn_dpgen.mechanisms import LaplaceMechanism
from sklearn_dpgen.preprocessing import PublicTable
from sklearn_dpgen.schema import Categorical, Schema
from sklearn_dpgen.tables import TableSampler
from sklearn_dpgen.utils._random import noise_source

ONE, OTHER = "0123456789abcdef" * 4, "f" * 64
LEDGER = {"dataset": "a", "charge": 2, "epsilon": 1.0, "delta": 1e-6}


@pytest.fixture
def report():
    column = PrivacyReport(
        name="age",
        events=(Event("laplace_column"),),
        epsilon=1.0,
        delta=0.0,
        sensitivity=2.0,
        norm="l1",
        bounds=[Bound("schema")],
        noise_scale=2.0,
    )
    return PrivacyReport(
        name="Mixed",
        events=[Event("randomized_columns", 2)],
        epsilon=math.inf,
        delta=1e-5,
        public=("n_samples", "labels"),
        noise_scale={"age": np.float64(2.0), "income": math.inf},
        noise_multiplier=1.5,
        batches=[(1, 4)],
        caveats=["floating_point"],
        releases=[(GaussianProfile(0.1), 100)],
        sampling_rate=0.25,
        n_releases=100,
        discretization=1e-3,
        parts=[column],
    )


def test_round_trips(report):
    assert PrivacyReport.from_dict(report.to_dict()) == report
    assert PrivacyReport.from_dict(json.loads(report.to_json())) == report
    assert pickle.loads(pickle.dumps(report)) == report


def test_json_is_strict(report):
    def refuse(constant):
        raise AssertionError(constant)

    parsed = json.loads(report.to_json(), parse_constant=refuse)
    assert parsed["epsilon"] == "inf"
    assert parsed["noise_scale"] == {"age": 2.0, "income": "inf"}
    assert report.to_dict()["epsilon"] == math.inf


def test_text_is_complete_and_aligned(report):
    text = str(report)
    assert text == report.to_text()
    for part in ("Mixed: local rand", "age: Laplace noise", "rate 0.25", "labels"):
        assert part in text
    assert "(grid 0.001)" in str(dataclasses.replace(report, epsilon=1.0))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 102
    labels = ("neighbours", "public", "sampler", "accountant", "noise multiplier")
    top = [line for line in lines if line[2:].startswith(labels)]
    starts = {len(line) - len(line[2:].split("  ", 1)[1].lstrip()) for line in top}
    assert len(top) == 5
    assert len(starts) == 1


def says_seeded(report):
    """Whether a reader of the first line alone is told."""
    return str(report).splitlines()[0].startswith("SEEDED ")


def test_the_first_line_says_that_the_noise_is_seeded(report):
    seeded = dataclasses.replace(report, noise_source=noise_source(0).description)
    composite = dataclasses.replace(report, parts=[report, seeded])
    for void in (seeded, composite, PrivacyReport.from_dict(json.loads(seeded.to_json()))):
        assert void.is_seeded
        assert says_seeded(void)
    # Negative twin: fresh noise, or that of somebody else, is not called seeded.
    fresh = dataclasses.replace(report, noise_source=noise_source().description)
    for kept in (report, fresh, dataclasses.replace(report, noise_source="drawn elsewhere")):
        assert not kept.is_seeded
        assert "SEEDED" not in str(kept)


@pytest.mark.parametrize("seed", [0, 2**31, None])
def test_a_mechanism_with_a_seed_says_so(seed):
    fitted = LaplaceMechanism(1.0, domain=Box(0, 1), random_state=seed).fit()
    assert says_seeded(fitted.privacy_) == (seed is not None)


def test_is_frozen_and_independent_of_what_it_was_given():
    scales = {"age": 1.0}
    report = PrivacyReport(name="m", events=(), epsilon=1, delta=0, noise_scale=scales)
    scales["age"] = 0.0
    report.to_dict()["noise_scale"]["age"] = 0.0
    report.to_dict()["versions"].clear()
    assert report.noise_scale == {"age": 1.0}
    assert report.versions["sklearn_dpgen"] == __version__
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.epsilon = 0.5


def test_versions_are_filled_in():
    report = PrivacyReport(name="m", events=(), epsilon=1, delta=0)
    assert {"sklearn_dpgen", "numpy", "scipy", "torch"} <= set(report.versions)


@pytest.mark.parametrize(
    ("arguments", "error", "name"),
    [
        ({"epsilon": math.nan}, ValueError, "epsilon"),
        ({"epsilon": -1.0}, ValueError, "epsilon"),
        ({"epsilon": True}, TypeError, "epsilon"),
        ({"epsilon": "much"}, TypeError, "epsilon"),
        ({"delta": 1.5}, ValueError, "delta"),
        ({"sampling_rate": 0.0}, ValueError, "sampling_rate"),
        ({"public": "labels"}, TypeError, "public"),
        ({"caveats": "floating_point"}, TypeError, "caveats"),
        ({"caveats": ["This is a sentence."]}, ValueError, "This is a sentence"),
        ({"public": ["names of the columns"]}, ValueError, "public must hold"),
        ({"neighbours": "replace"}, ValueError, "replace"),
        ({"norm": "l3"}, ValueError, "norm"),
        ({"events": ["counts"]}, TypeError, "events"),
        ({"batches": [(0, 4)]}, ValueError, "batch"),
        ({"noise_scale": {"age": -1.0}}, ValueError, r"noise_scale\[age\]"),
        ({"noise_multiplier": math.nan}, ValueError, "noise_multiplier"),
        ({"public_tables": ["public"]}, TypeError, "public_tables"),
        ({"public_tables": {"public": 1}}, TypeError, "public_tables"),
        ({"public_tables": {1: "0" * 64}}, TypeError, "public_tables"),
        ({"public_tables": {"public": "0" * 63}}, ValueError, "public_tables"),
        ({"public_tables": {"public": "F" * 64}}, ValueError, "public_tables"),
        ({"public_tables": {"public": "0" * 64 + "\n"}}, ValueError, "public_tables"),
        ({"ledger": LEDGER | {"public_tables": {"public": 1}}}, ValueError, "public_tables"),
        ({"ledger": LEDGER | {"public_tables": [1]}}, ValueError, "public_tables"),
        ({"ledger": LEDGER | {"other_units": [{"unit": None}]}}, ValueError, "other_units"),
        ({"ledger": LEDGER | {"other_units": [{"unit": 1, "charges": [1]}]}}, TypeError, "unit"),
    ],
)
def test_bad_fields(arguments, error, name):
    with pytest.raises(error, match=name):
        PrivacyReport(**{"name": "m", "events": (), "epsilon": 1.0, "delta": 0.0, **arguments})


def test_construction_is_by_keyword():
    with pytest.raises(TypeError):
        PrivacyReport("m", 1.0, 0.0)


def words(text):
    return " ".join(text.split())


def test_public_tables_are_stated(report):
    public = dataclasses.replace(report, public_tables={"public": ONE})
    for again in (
        PrivacyReport.from_dict(public.to_dict()),
        PrivacyReport.from_dict(json.loads(public.to_json())),
        pickle.loads(pickle.dumps(public)),
        dataclasses.replace(public),
    ):
        assert again == public
        assert again.public_tables == {"public": ONE}
        assert again.caveats == (*report.caveats, "public_tables")
    text = words(public.to_text())
    assert f"public (SHA-256 {ONE}): claimed to be public" in text
    assert "only if they were not made from the private records" in text
    assert ONE in public._repr_html_()
    # Negative twins: another table is another report, and none is not stated.
    assert public != dataclasses.replace(report, public_tables={"public": OTHER})
    assert public != dataclasses.replace(report, public_tables={"start": ONE})
    assert public != report
    assert "public tables" not in words(report.to_text())


def test_a_public_table_may_be_a_release_of_the_ledger(report):
    tables = {"public": ONE, "start": OTHER}
    ledger = LEDGER | {"public_tables": {"public": 1}}
    paid = dataclasses.replace(report, public_tables=tables, ledger=ledger)
    again = PrivacyReport.from_dict(json.loads(paid.to_json()))
    assert again.ledger == paid.ledger == ledger
    text = words(paid.to_text())
    assert f"public (SHA-256 {ONE}): release of charge 1 of the ledger" in text
    assert f"start (SHA-256 {OTHER}): claimed to be public" in text
    # As the charge itself, it is no part of a plan.
    assert paid == dataclasses.replace(report, public_tables=tables)


def test_reports_of_earlier_versions_have_no_public_tables(report):
    content = report.to_dict()
    del content["public_tables"]
    assert PrivacyReport.from_dict(content) == report


def test_public_tables_are_those_that_were_given():
    tables = {"public": ONE}
    report = PrivacyReport(name="m", events=(), epsilon=1, delta=0, public_tables=tables)
    tables["public"] = OTHER
    report.to_dict()["public_tables"]["public"] = OTHER
    assert report.public_tables == {"public": ONE}


def test_the_report_of_a_fit_has_the_hash_of_its_public_table():
    schema = Schema({"a": Categorical(["x", "y"]), "b": Categorical([0, 1])})
    frame = pd.DataFrame({"a": ["x", "y"] * 50, "b": [0, 0, 1, 1] * 25})

    def plan(public):
        return TableSampler(9.0, schema=schema, public=public).plan(100)

    report = plan(frame)
    assert report.public_tables == {"public": PublicTable(frame).read(schema).sha256}
    assert TableSampler(9.0, schema=schema, public=frame).fit(frame).privacy_ == report
    assert plan(frame.copy()) == report
    # Negative twins: one other cell, and no public table.
    other = frame.copy()
    other.loc[3, "b"] = 0
    assert plan(other) != report
    assert plan(None).public_tables == {}


def test_public_records_without_a_hash_are_a_caveat():
    whole = {"name": "m", "events": (), "epsilon": 1, "delta": 0}
    report = PrivacyReport(**whole, public=["n_samples", "public"])
    assert report.caveats == ("public_tables",)
    assert PrivacyReport(**whole, public=["n_samples", "public_x"]).caveats == ()
