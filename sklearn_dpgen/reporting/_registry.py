"""Entries of the registry of deployments of differential privacy, from the content of a card."""

import html
import re
from datetime import date

from sklearn_dpgen.accounting import Caveat, PrivacyReport
from sklearn_dpgen.accounting._wording import (
    accountant_text,
    caveat_texts,
    protected_text,
    relation_text,
    review_rows,
    spending_rows,
)
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.utils._html import clean, shorten

__all__ = ["declaration_text", "escaped", "registry_entry"]

# The values that the registry takes.
_CURATORS = ("Government", "Industry", "Nonprofit")
_SECTORS = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")
_MOST_COLUMNS, _MOST_VALUES = 60, 12
# Characters that Markdown reads as marks anywhere, characters that make an address a link, and
# characters that begin a list, a heading or a quotation at the start of a line.
_MARKS = re.compile(r"([\\`*_\[\]|~$]|:(?=//)|(?<=[wW])\.|@)")
_STARTS = re.compile(r"^([-+=#]|\d+(?=[.)]))")


def escaped(text):
    """Return text that Markdown shows as it is, on one line: no mark, no tag, no link."""
    text = _MARKS.sub(r"\\\1", clean(text).strip())
    # A backslash after the number keeps it from beginning a list.
    text = _STARTS.sub(lambda m: m[1] + "\\" if m[1].isdigit() else "\\" + m[1], text)
    return html.escape(text, quote=False)


def declaration_text(entry):
    """Return the declaration of a column in words."""
    parts = [str(entry["type"])]
    if "low" in entry:
        # A midnight is shown as a day.
        bounds = [str(entry[key]).removesuffix("T00:00:00") for key in ("low", "high")]
        parts.append(" to ".join(bounds))
    for key in ("categories", "values"):
        if key in entry:
            shown = ", ".join(shorten(v, 24) for v in entry[key][:_MOST_VALUES])
            more = len(entry[key]) - _MOST_VALUES
            parts.append(shown + (f" and {more} more" if more > 0 else ""))
    if entry.get("integer"):
        parts.append("integers")
    if entry.get("nullable"):
        parts.append("or null")
    if "description" in entry:
        parts.append(shorten(entry["description"], 200))
    return "; ".join(parts)


def registry_entry(content, *, curator, curator_type, intended_use, region, sector,
                   publication_date, justification, access_controls, registry_authors,
                   url_slug):  # fmt: skip
    """Return the entry of a card, for :meth:`~sklearn_dpgen.reporting.ModelCard.to_registry`.

    Parameters
    ----------
    content : dict
        The content of the card.
    curator, curator_type, intended_use, region, sector, publication_date, justification, \\
            access_controls, registry_authors, url_slug
        As there.

    Returns
    -------
    dict
    """
    report = PrivacyReport.from_dict(content["privacy"])
    if content["is_seeded"] or content["privacy"]["epsilon"] == "inf":
        raise PublicValueError(
            "The registry is of deployments with a guarantee: fit with a finite epsilon and "
            "without a seed."
        )
    curator = curator or content["author"]
    registry_authors = registry_authors or [content["author"]]
    if isinstance(registry_authors, str):
        raise PublicTypeError("registry_authors must be a sequence of str, got a single str.")
    given = {"curator": curator, "registry_authors": all(registry_authors),
             "intended_use": intended_use, "region": region}  # fmt: skip
    for name, value in given.items():
        if not value:
            raise PublicValueError(f"{name} must be given for an entry of the registry.")
    _check_value("curator_type", curator_type, _CURATORS)
    if sector is not None:
        _check_value("sector", sector, _SECTORS)
    basic = {
        "name": escaped(content["title"]),
        "data_curators": [{"data_curator_name": curator, "data_curator_type": curator_type}],
        "description": content["description"] or escaped(report.title),
        "intended_use": intended_use,
        "data_product_type": content["product"],
        "data_product_region": region,
        "publication_date": _day(publication_date),
    }
    if sector is not None:
        basic["data_product_sector"] = sector
    return {
        "url_slug": _slug(url_slug, content["title"]),
        "deployment": {
            "basic": basic,
            "dp_variant": {
                "variant_name": "Pure DP" if report.delta == 0 else "Approximate DP",
                "data_domain": escaped(_domain_text(content)),
                "unprotected_quantities": escaped(dict(review_rows(report))["not protected"]),
            },
            "privacy_loss": _loss(content, report),
            "deployment_model": _model(report),
            "implementation": _implementation(content, report, justification, access_controls),
            "administrative": {
                "status": "Draft",
                "registry_authors": list(registry_authors),
                "tier": 3,
            },
        },
    }


def _check_value(name, value, values):
    if value not in values:
        raise PublicValueError(f"{name} must be one of {list(values)}, got {value!r}.")


def _day(value):
    try:
        return value.isoformat() if type(value) is date else date.fromisoformat(value).isoformat()
    except (TypeError, ValueError):
        raise PublicValueError(
            f"publication_date must be a date as '2026-01-31', got {value!r}."
        ) from None


def _slug(slug, title):
    if slug is None:
        slug = re.sub("[^a-z0-9]+", "_", title.lower()).strip("_")
    if not re.fullmatch("[a-z0-9_]+", slug):
        raise PublicValueError(
            f"url_slug must be lower-case letters, digits and underscores, got {slug!r}."
        )
    return slug


def _domain_text(content):
    """Return the declared columns of the data."""
    tables = content.get("tables")
    if tables is None and content["schema"] is None:
        return "records in the declared domain of the estimator"
    parts = [("", content["schema"])] if tables is None else [
        (f"table {table['name']}: ", table["columns"]) for table in tables
    ]  # fmt: skip
    texts = []
    for name, columns in parts:
        shown = [f"{c['name']} ({declaration_text(c)})" for c in columns[:_MOST_COLUMNS]]
        more = len(columns) - len(shown)
        texts.append(name + ", ".join(shown) + f" and {more} more columns" * (more > 0))
    return "; ".join(texts) + ". All of it was declared publicly, and not read from records"


def _loss(content, report):
    """Return the unit and the parameters; the number of units only where it is public."""
    parameters = {"epsilon": report.epsilon, "delta": report.delta}
    mu = content["attack_risk"]["mu"]
    if mu is not None:
        parameters["rho"] = mu**2 / 2
    total = dict(spending_rows(report))["spent by all releases"]
    loss = {
        "privacy_unit": escaped(protected_text(report)),
        "privacy_unit_details": escaped(relation_text(report)),
        "privacy_parameters": parameters,
        "privacy_parameters_details": escaped(
            f"epsilon is in nats, for this release. All releases from the data: {total}"
        ),
    }
    if content["n_records"] is not None:
        loss["number_of_privacy_units"] = round(content["n_records"])
    return loss


def _model(report):
    answers = dict(review_rows(report))
    calls = {Caveat.EACH_CALL, Caveat.EACH_FIT_AND_SCORE} & {*report.caveats}
    return {
        "model_name": "Local" if report.is_local else "Central",
        "model_name_details": escaped(answers["data collection exposure"]),
        "trust_assumptions": escaped(f"trusted: {answers['parties that are trusted']}"),
        "actors": escaped(
            "whoever receives a release may know all other records, the method and everything "
            "that is public, and compute without limit"
        ),
        "release_type": "Many releases" if calls else "One release",
        "release_type_details": escaped(answers["budget"]),
        "data_source_type": "Static",
        "access_type": "Non-interactive",
        "access_type_details": escaped(answers["interactive queries"]),
    }


def _implementation(content, report, justification, access_controls):
    answers, spending = dict(review_rows(report)), dict(spending_rows(report))
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    mechanisms = " ".join(
        [
            f"{answers['mechanisms']}; by {content['estimator']['module']}."
            f"{content['estimator']['class']} ({versions}).",
            f"Floating point: {answers['floating point']}",
            f"Side channels: {answers['side channels']}",
        ]
    )
    controls = access_controls or "not stated by the publisher"
    sources = escaped(
        f"Sensitivity: {answers['sensitivity']}. Accounting: {answers['accounting']}."
    )
    entry = {
        "preprocessing_and_hyperparameter_tuning": escaped(
            f"Chosen at no cost: {spending['chosen at no cost']}. Chosen without being paid: "
            f"{spending['chosen without being paid']}"
        ),
        "mechanisms": f"{escaped(mechanisms)} Access control: {controls}",
        "composition": escaped(accountant_text(report, grid=report.discretization)),
        "post_processing": escaped(
            "all that is computed from the releases, which has no access to the records; rows are "
            "drawn from a model of the releases"
            if content["product"] == "Synthetic data"
            else "all that is computed from the releases, which has no access to the records"
        ),
        "justification": " ".join([*([justification] if justification else []), sources]),
        "additional_information": escaped(
            f"SHA-256 of the privacy report: {content['report_sha256']}. Limits: "
            + " ".join(caveat_texts(report))
        ),
    }  # fmt: skip
    utility = answers["utility"]
    if report.precision:
        entry["utility"] = escaped(utility)
    return entry
