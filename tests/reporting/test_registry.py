"""Entries of the registry of deployments, and what a card answers to reviewers."""

import copy
import itertools
import json
import math
import re
from datetime import date

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.accounting import GaussianProfile, PrivacyReport, gaussian_sigma
from sklearn_dpgen.accounting._wording import identification_rows, review_rows
from sklearn_dpgen.domains import OneHot
from sklearn_dpgen.mechanisms import RandomizedResponse, TabularMechanism
from sklearn_dpgen.moments import MomentSampler
from sklearn_dpgen.reporting import model_card
from sklearn_dpgen.reporting._model_card import ModelCard, risk_facts
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import TableSampler
from sklearn_dpgen.utils._random import SEEDED

jsonschema = pytest.importorskip("jsonschema")

HOSTILE = "<script>alert(1)</script> [x](javascript:alert(1)) $b$ _c_"
SCHEMA = Schema({HOSTILE: Numeric(0, 100), "b": Categorical(["yes", "no"])})
STATED = {
    "curator_type": "Government",
    "intended_use": "Teaching",
    "region": "Nowhere",
    "publication_date": "2026-01-31",
}


def entry_of(required, **properties):
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required.split(),
        "properties": properties,
    }


def texts(names):
    return {name: {"type": "string"} for name in names.split()}


def among(*values):
    return {"enum": list(values)}


# The fields that an entry may have, the required ones and the enumerated values, as the registry's
# own tests check them (opendp/deployments-registry-data, schemas/deployments-schema.yaml, 2026).
REGISTRY = entry_of(
    "url_slug deployment",
    url_slug={"type": "string"},
    deployment=entry_of(
        "basic administrative",
        basic=entry_of(
            "name data_curators description intended_use data_product_type data_product_region "
            "publication_date",
            **texts("name description intended_use data_product_region"),
            data_curators={
                "type": "array",
                "minItems": 1,
                "items": entry_of(
                    "data_curator_name data_curator_type",
                    data_curator_name={"type": "string"},
                    data_curator_type=among("Government", "Industry", "Nonprofit"),
                ),
            },
            data_product_type=among(
                "Summary statistics",
                "Machine learning model",
                "Dataset",
                "Synthetic data",
                "Interactive API",
                "SQL queries",
            ),
            data_product_sector=among(
                "Technology", "Healthcare", "Education", "Government", "Energy", "Finance"
            ),
            publication_date={"type": "string", "format": "date"},
        ),
        dp_variant=entry_of(
            "",
            variant_name=among(
                "Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"
            ),
            **texts("data_domain unprotected_quantities"),
        ),
        privacy_loss=entry_of(
            "",
            **texts("privacy_unit privacy_unit_details privacy_parameters_details"),
            number_of_privacy_units={"type": "integer"},
            privacy_parameters=entry_of(
                "", **{name: {"type": "number"} for name in ("epsilon", "delta", "rho")}
            ),
        ),
        deployment_model=entry_of(
            "",
            model_name=among("Local", "Central", "Shuffle", "Federated", "Varies"),
            release_type=among("One release", "Many releases"),
            data_source_type=among("Static", "Dynamic"),
            access_type=among("Interactive", "Non-interactive"),
            **texts(
                "model_name_details trust_assumptions actors release_type_details "
                "data_source_type_details access_type_details"
            ),
        ),
        implementation=entry_of(
            "",
            **texts(
                "preprocessing_and_hyperparameter_tuning mechanisms composition post_processing "
                "justification utility additional_information"
            ),
        ),
        administrative=entry_of(
            "status registry_authors tier",
            status=among("Converted", "Draft", "Pending", "Changes Required", "Approved"),
            registry_authors={"type": "array", "items": {"type": "string"}, "minItems": 1},
            tier=among(1, 2, 3),
        ),
    ),
)
# What the registry asks of the third tier.
THIRD_TIER = {
    "dp_variant": "data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit_details privacy_parameters_details",
    "deployment_model": "trust_assumptions actors release_type_details access_type_details",
    "implementation": "preprocessing_and_hyperparameter_tuning mechanisms composition "
    "post_processing justification",
}


def check(entry):
    checker = jsonschema.Draft7Validator.FORMAT_CHECKER
    jsonschema.Draft7Validator(REGISTRY, format_checker=checker).validate(entry)


def rows(n=600, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({HOSTILE: rng.uniform(0, 90, n), "b": rng.choice(["yes", "no"], n)})


def fit(**options):
    options = {"population_size": 100, "max_iter": 2} | options
    return TableSampler(schema=SCHEMA, **options).fit(rows())


@pytest.fixture(scope="module")
def card():
    return model_card(fit(epsilon=1.0), title="A survey", author="Ada")


def test_an_entry_is_valid_and_has_all_of_the_third_tier(card):
    entry = card.to_registry(**STATED)
    check(entry)
    assert json.loads(json.dumps(entry, allow_nan=False)) == entry
    for part, names in THIRD_TIER.items():
        assert all(entry["deployment"][part][name] for name in names.split())
    privacy = card.to_dict()["privacy"]
    loss = entry["deployment"]["privacy_loss"]
    assert loss["privacy_parameters"]["epsilon"] == privacy["epsilon"]
    assert loss["privacy_parameters"]["delta"] == privacy["delta"]
    assert loss["number_of_privacy_units"] == 600
    assert entry["deployment"]["dp_variant"]["variant_name"] == "Approximate DP"
    assert entry["url_slug"] == "a_survey"
    # The twin: an entry with a field too many, or without a required one, is refused.
    for spoil in ("surprise", None):
        other = copy.deepcopy(entry)
        if spoil:
            other["deployment"]["privacy_loss"][spoil] = "text"
        else:
            del other["deployment"]["administrative"]["tier"]
        with pytest.raises(jsonschema.ValidationError):
            check(other)


def test_a_number_of_records_that_is_not_public_is_not_in_an_entry():
    sampler = fit(epsilon=1.0, neighbours="add_or_remove")
    entry = model_card(sampler, title="A survey", author="Ada").to_registry(**STATED)
    check(entry)
    assert "number_of_privacy_units" not in entry["deployment"]["privacy_loss"]
    assert "600" not in json.dumps(entry)


@pytest.mark.slow
def test_nobody_is_trusted_in_the_local_model():
    mechanism = TabularMechanism(2.0, schema=SCHEMA).fit()
    card = model_card(mechanism, title="Answers", author="Ada")
    entry = card.to_registry(**STATED, sector="Healthcare", justification="Because.")
    check(entry)
    deployment = entry["deployment"]
    assert deployment["deployment_model"]["model_name"] == "Local"
    assert deployment["deployment_model"]["trust_assumptions"].startswith("trusted: nobody")
    assert deployment["dp_variant"]["variant_name"] == "Pure DP"
    assert deployment["basic"]["data_product_type"] == "Dataset"
    assert deployment["implementation"]["justification"].startswith("Because. Sensitivity")
    twin = model_card(fit(), title="Rows", author="Ada").to_registry(**STATED)["deployment"]
    assert twin["deployment_model"]["model_name"] == "Central"
    assert "the curator" in twin["deployment_model"]["trust_assumptions"]


def test_declared_texts_are_escaped(card):
    text = json.dumps(card.to_registry(**STATED))
    assert "<script" not in text
    assert "[x](javascript" not in text
    assert "$b$" not in text
    assert "&lt;script&gt;" in text


@pytest.mark.parametrize("options", [{"random_state": 0}, {"epsilon": math.inf}])
def test_a_fit_without_a_guarantee_has_no_entry(options):
    card = model_card(fit(**options), title="A survey", author="Ada")
    with pytest.raises(ValueError, match="deployments with a guarantee"):
        card.to_registry(**STATED)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"curator_type": "School"}, "curator_type must be one of"),
        ({"sector": "Sports"}, "sector must be one of"),
        ({"publication_date": "31.1.2026"}, "publication_date must be a date"),
        ({"publication_date": 3}, "publication_date must be a date"),
        ({"url_slug": "A survey"}, "url_slug must be lower-case"),
        ({"region": ""}, "region must be given"),
        ({"registry_authors": [None]}, "registry_authors must be given"),
        ({"registry_authors": "Ada"}, "registry_authors must be a sequence"),
    ],
)
def test_errors_name_the_parameter(card, change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        card.to_registry(**STATED | change)


def test_a_date_and_authors_are_taken(card):
    entry = card.to_registry(
        **STATED | {"publication_date": date(2026, 2, 3)}, registry_authors=["Bob"], curator="Us"
    )
    check(entry)
    assert entry["deployment"]["basic"]["publication_date"] == "2026-02-03"
    assert entry["deployment"]["administrative"]["registry_authors"] == ["Bob"]
    nobody = ModelCard(card.to_dict() | {"author": None})
    with pytest.raises(ValueError, match="curator must be given"):
        nobody.to_registry(**STATED)


@pytest.mark.parametrize("options", [{}, {"max_rows": 3, "unit_weights": "rows"}])
def test_a_noisy_number_of_rows_is_no_number_of_persons(options):
    # Forty persons with two rows each: the noisy number of rows is far from forty.
    persons = [f"p{i // 2}" for i in range(80)]
    rows = pd.DataFrame({"p": persons, "b": ["yes", "no"] * 40})
    schema = Schema({"b": Categorical(["yes", "no"])}, unit="p")
    sampler = TableSampler(100.0, 1e-6, schema=schema, **options).fit(rows)
    card = model_card(sampler, title="Rows", author="Ada")
    entry = card.to_registry(**STATED)
    check(entry)
    stated = (
        card.to_dict()["n_records"],
        entry["deployment"]["privacy_loss"].get("number_of_privacy_units"),
    )
    # The twin, in which each person counts once, states the public number of persons.
    assert stated == ((None, None) if options else (40.0, 40))


def statement(**changes):
    fields = {"name": "Fit", "events": (), "epsilon": 1.0, "delta": 1e-5}
    return PrivacyReport(**fields | {"releases": ((GaussianProfile(0.3), 1),)} | changes)


def test_answers_follow_the_guarantee():
    answers = dict(review_rows(statement()))
    assert answers["unit of privacy"].startswith("a record")
    assert "no ledger was charged" in answers["budget"]
    assert "the curator collects and stores" in answers["data collection exposure"]
    assert "SEEDED" not in answers["floating point"]
    persons = dict(review_rows(statement(unit="patient")))
    assert persons["unit of privacy"] == "a person: all rows with one value in column 'patient'"
    local = dict(review_rows(statement(protected="own_record", public=())))
    assert local["parties that are trusted"].startswith("nobody")
    assert "randomized answers alone" in local["data collection exposure"]
    seeded = dict(review_rows(statement(noise_source=SEEDED)))
    assert "SEEDED" in seeded["floating point"]
    shared = dict(review_rows(statement(shared=("label",), caveats=("failing_fits",))))
    assert "a record by its label" in shared["not protected"]
    assert "A fit that fails because of a record reveals it." in shared["side channels"]
    assert "A fit that fails" not in answers["side channels"]


def test_identification_risks_are_those_of_the_profile():
    report = statement()
    risk = report.attack_risk()
    found = dict(identification_rows(report, risk_facts(report)))
    assert "knows all other records" in found["motivated intruder"]
    assert "n_samples" in found["motivated intruder"]
    shown = 100 * risk.true_positive_rate(0.01)
    assert f"{math.ceil(10 * shown) / 10:g}% at 1% false alarms" in found["singling out"]
    assert f"{math.ceil(1e3 * risk.guess_among(10)) / 10:g}% among 10" in found["linkability"]
    assert f"{math.ceil(1e3 * risk.guess_among(2)) / 10:g}% among 2" in found["inference"]
    assert found["measured attack"].startswith("none")
    # Without a guarantee nothing is bounded, and a label that neighbours share is not protected.
    void = statement(epsilon=math.inf, releases=(), shared=("label",))
    found = dict(identification_rows(void, risk_facts(void)))
    assert "100% at 0.1% false alarms" in found["singling out"]
    assert "100% among 10" in found["linkability"]
    assert "label of a record is not protected" in found["inference"]


MU, N_DRAWS = 1.0, 400_000


def stated(row, after):
    """The share in a text, from the words after it."""
    return float(re.search(rf"([\d.]+)% {after}", row)[1]) / 100


def odds(row, factor):
    if f"more than {factor} times in less than 0.1%" in row:
        return 1e-3
    return float(re.search(rf"more than {factor} times in at most ([\d.]+)%", row)[1]) / 100


def attacked(true, false):
    """Shares of found cases at 1% false alarms, and of odds that grow by 3 and by 10, by draws.

    Of a release with noise of standard deviation 1 at two points; noise alone decides the odds.
    """
    noise = np.random.default_rng(0).standard_normal((N_DRAWS, len(true)))
    step = true - false
    loss = noise @ step + step @ step / 2
    null = noise @ step - step @ step / 2
    found = (loss > np.quantile(null, 0.99)).mean()
    return found, *((loss > np.log(factor)).mean() for factor in (3, 10))


def named(points):
    """Share of the cases where the nearest of equally likely points is the right one, by draws."""
    rng = np.random.default_rng(1)
    truth = rng.integers(len(points), size=N_DRAWS)
    seen = points[truth] + rng.standard_normal((N_DRAWS, points.shape[1]))
    scores = seen @ points.T - (points**2).sum(axis=1) / 2
    return (scores.argmax(axis=1) == truth).mean()


# Where the release lies, by the record of one person whose record may be at any of these points.
# The origin is the rest of the data; with a curator who replaces, two points are MU apart.
SIMPLEX = MU / np.sqrt(2) * np.eye(10)
OPPOSITE = MU * np.array([[1.0], [-1.0]])
PLACES = {
    "replace_one": {"two": OPPOSITE / 2, "ten": SIMPLEX, "other": OPPOSITE[1:] / 2},
    "add_or_remove": {"two": OPPOSITE, "ten": MU * np.eye(10), "other": np.zeros((1, 1))},
    # Ten persons answer for themselves, and one of them is at MU from the others.
    "local": {"two": OPPOSITE / 2, "ten": MU * np.eye(10), "other": OPPOSITE[1:] / 2},
}


@pytest.mark.parametrize("unit", [None, "p"])
@pytest.mark.parametrize("trust", PLACES)
def test_no_attack_on_an_explicit_release_beats_the_card(trust, unit):
    relation = {"protected": "own_record"} if trust == "local" else {"neighbours": trust}
    report = statement(releases=((GaussianProfile(MU), 1),), unit=unit, **relation)
    found = dict(identification_rows(report, risk_facts(report)))
    one = "person" if unit or trust == "local" else "record"
    assert f"whether a given {one} " in found["singling out"]
    places, error = PLACES[trust], 2 / np.sqrt(N_DRAWS)
    presence, *grown = attacked(places["two"][0], places["other"][0])
    assert abs(presence - stated(found["singling out"], "at 1% false")) < 1e-3 + error
    two, ten = named(places["two"]), named(places["ten"])
    assert abs(two - stated(found["inference"], "among 2")) < 1e-3 + error
    assert ten <= stated(found["linkability"], "among 10") + error
    if trust == "local":
        assert stated(found["linkability"], "among 10") < ten + 1e-3 + error
    # Of two values, which are further apart than presence if they are added and removed.
    rows = ["evidence", "evidence"]
    if trust == "add_or_remove":
        rows = ["evidence of presence", "evidence of a value"]
    _, *of_value = attacked(*places["two"])
    for row, shares in zip(rows, (grown, of_value), strict=True):
        for factor, share in zip((3, 10), shares, strict=True):
            assert share <= odds(found[row], factor) + error
    # The twin: the bounds of one step, of a curator who replaces records, are exceeded.
    twin = statement(releases=((GaussianProfile(MU), 1),))
    one_step = dict(identification_rows(twin, risk_facts(twin)))
    if trust != "replace_one":
        assert ten > stated(one_step["linkability"], "among 10") + error
    if trust == "add_or_remove":
        assert two > stated(one_step["inference"], "among 2") + error
        assert of_value[0] > odds(one_step["evidence"], 3) + error
        assert of_value[1] > odds(one_step["evidence"], 10) + error


def test_answers_of_persons_are_linked_no_better_than_a_card_says():
    # One of ten persons has the value 1. Each answers truly with a probability of 9/10.
    answers = np.array(list(itertools.product([0, 1], repeat=10)))
    chances = [
        np.where(answers == values, 0.9, 0.1).prod(axis=1) for values in np.eye(10, dtype=int)
    ]
    exact = np.max(chances, axis=0).sum() / 10
    mechanism = RandomizedResponse(np.log(9), domain=OneHot(2)).fit(np.eye(2)[[0, 1]])
    facts = risk_facts(mechanism.privacy_)
    found = dict(identification_rows(mechanism.privacy_, facts))
    assert exact <= stated(found["linkability"], "among 10") <= exact + 2e-3
    # The twin: one record of ten values is named less often.
    assert exact > stated(found["inference"], "among 10")


def test_odds_of_a_label_grow_no_more_often_than_a_card_says():
    # A table of one column, whose counts are released with the noise that its budget needs.
    rows = pd.DataFrame({"b": ["x", "y", "z"] * 20})
    schema = Schema({"b": Categorical(["x", "y", "z"])})
    sampler = TableSampler(3.0, 1e-6, schema=schema, neighbours="add_or_remove").fit(rows)
    found = dict(identification_rows(sampler.privacy_, risk_facts(sampler.privacy_)))
    x, y = np.eye(3)[:2] / gaussian_sigma(3.0, 1e-6)
    _, *grown = attacked(x, y)
    for factor, share in zip((3, 10), grown, strict=True):
        assert share <= odds(found["evidence of a value"], factor)
        # The twin: that a record is in the data is less evident.
        assert share > odds(found["evidence of presence"], factor)


def test_candidates_share_what_neighbours_share():
    apart = statement(shared=("class",))
    found = dict(identification_rows(apart, risk_facts(apart)))
    assert "equally likely records of the same class is in the data" in found["linkability"]
    assert "rather than another of the same class" in found["singling out"]
    for row in ("inference", "evidence"):
        assert found[row].endswith("The class of a record is not protected")
    any_record = dict(identification_rows(statement(), risk_facts(statement())))
    assert not any("class" in text for text in any_record.values())
    # A fit with public labels is one of these.
    rows = pd.DataFrame({"a": np.linspace(0, 1, 40)})
    fitted = MomentSampler(1.0, schema=Schema({"a": Numeric(0, 1)}), labels="public")
    report = fitted.fit(rows, ["u", "v"] * 20).privacy_
    assert (
        "of the same class" in dict(identification_rows(report, risk_facts(report)))["linkability"]
    )


def test_a_card_answers_reviewers_and_shows_its_audit():
    class Audit:
        def to_dict(self):
            return {
                "is_violation": False,
                "epsilon_lower": 0.25,
                "confidence": 0.95,
                "claimed": {"epsilon": 1.0},
                "neighbours": "a made-up row or none",
            }

        def to_text(self):
            return "an audit"

    plain, audited = (
        model_card(fit(epsilon=1.0), audit=audit).to_markdown() for audit in (None, Audit())
    )
    for text in (plain, audited):
        assert "## Questions of reviewers" in text
        assert "| singling out |" in text
    assert "epsilon is at least 0.25 of 1 claimed, with confidence 0.95" in audited
    assert "It compares a made-up row or none" in audited
    assert "no audit is part of this statement" in plain
