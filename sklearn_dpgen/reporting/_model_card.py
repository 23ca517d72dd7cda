"""Model cards of fitted estimators: publishable, signed and verified."""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import date
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, Union

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from sklearn_dpgen.accounting import PrivacyReport, Public
from sklearn_dpgen.accounting._wording import (
    accountant_text,
    caveat_texts,
    identification_rows,
    ledger_text,
    public_tables_text,
    public_texts,
    relation_text,
    review_rows,
    spending_rows,
)
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.reporting._registry import declaration_text, escaped, registry_entry
from sklearn_dpgen.reporting._row_measures import as_relational
from sklearn_dpgen.reporting._signatures import (
    canonical_json,
    file_facts,
    sha256,
    sign,
    verify_signature,
)
from sklearn_dpgen.schema import RelationalSchema, Schema, Table
from sklearn_dpgen.utils._html import clean, notebook, percent_up, render, score, shorten

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

__all__ = ["ModelCard", "model_card", "verify_model_card"]

_FORMAT = {"name": "sklearn_dpgen model card", "version": 1}
# They could show a seed, a ledger or a machine, or say nothing about the model.
_NOT_SHOWN = frozenset(["random_state", "ledger", "device", "n_jobs", "public", "store", "verbose"])
_LIMITS = (
    "The guarantee holds for the neighbouring relation that is stated, and for no other. Unless a "
    "unit is named, each of several records of one person is protected by itself.",
    "It bounds what a release reveals about one record, not about a group or a population.",
    "The privacy losses of several releases of the same records add up.",
    "Synthetic records are drawn from noisy figures: rare values and fine dependence may be wrong.",
)
_MOST_COLUMNS, _MOST_MARGINALS = 300, 100
# Numbers of equally likely values, and factors of odds, of which a card states the risk.
_AMONG, _FACTORS = (2, 10, 100), (3, 10)
_AUDIT_NOTE = (
    "The result of an audit is not covered by the guarantee: publish it only if the records are "
    "public or made up."
)
_REVIEWERS = (
    "After NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees (2025), and "
    "the W3C group note draft Considerations for Reviewing Differential Privacy Systems (2026). "
    "Each answer is computed from the guarantee."
)
_IDENTIFICATION = (
    "The indicators of identifiability of the ICO (Anonymisation guidance, 2025) and of the EDPB "
    "(Opinion 28/2024). The figures are worst cases over all attackers and all data, computed from "
    "the privacy profile. Whether they are remote enough is a judgement about the use of the "
    "release, which no guarantee makes."
)
_VERIFY = (
    "The signature covers the JSON of this card. Check it with the publisher's public key, from a "
    "source that you trust, and with the file of the model:"
)
_CODE = (
    "from sklearn_dpgen.reporting import verify_model_card\n"
    'verify_model_card("card.json", "publisher.pem", file="model.safetensors")'
)


class ModelCard:
    """A publishable statement about a fitted estimator, made by :func:`model_card`.

    Parameters
    ----------
    content : mapping
        The content, as :meth:`to_dict` returns it.

    Raises
    ------
    ValueError
        ``content`` is not that of a model card.
    """

    def __init__(self, content: Mapping) -> None:
        if not isinstance(content, Mapping) or content.get("format") != _FORMAT:
            raise PublicValueError(f"content must be that of a model card, of format {_FORMAT}.")
        # A copy that holds nothing but JSON.
        self._content = json.loads(canonical_json(dict(content)))

    def to_dict(self) -> dict:
        """Return the whole content as plain containers, ready for JSON."""
        return json.loads(canonical_json(self._content))

    def to_json(self) -> str:
        """Return the content as JSON, the form that is signed and verified."""
        return json.dumps(self._content, indent=1, ensure_ascii=False, allow_nan=False)

    def to_markdown(self) -> str:
        """Return the card in Markdown, with all texts escaped."""
        return _markdown(self._content)

    def to_html(self) -> str:
        """Return the card as one page of HTML that needs no network and runs no script."""
        return _html(self._content)

    def save(self, path: str | PathLike) -> None:
        """Write the card.

        Parameters
        ----------
        path : path-like
            Ends with ``.json``, ``.md`` or ``.html``. Only JSON can be verified.

        Raises
        ------
        ValueError
            The path has another ending.
        """
        path = Path(path)
        writers = {".json": self.to_json, ".md": self.to_markdown, ".html": self.to_html}
        if path.suffix not in writers:
            raise PublicValueError(
                f"path must end with one of {list(writers)}, got {path.suffix!r}."
            )
        path.write_text(writers[path.suffix](), encoding="utf-8")

    def to_registry(
        self,
        *,
        curator_type: Literal["Government", "Industry", "Nonprofit"],
        intended_use: str,
        region: str,
        publication_date: str | date,
        curator: str | None = None,
        sector: str | None = None,
        justification: str | None = None,
        access_controls: str | None = None,
        registry_authors: Sequence[str] | None = None,
        url_slug: str | None = None,
    ) -> dict:
        """Return an entry of the Differential Privacy Deployments Registry, of tier 3.

        Written as JSON, which is YAML too, it is a draft to submit to the registry [1]_. All that
        differs by release is computed from the card; the rest is for the publisher to state.

        Parameters
        ----------
        curator_type : {"Government", "Industry", "Nonprofit"}
        intended_use : str
            What the release is for.
        region : str
            The region that the data describe, or whose laws apply.
        publication_date : str or date
            As ``"2026-01-31"``.
        curator : str or None, default=None
            Who publishes the release. None is the author of the card.
        sector : {"Technology", "Healthcare", "Education", "Government", "Energy", "Finance"} or \
                None, default=None
        justification : str or None, default=None
            Why the budget and the settings were chosen. The sources of the sensitivities and the
            accounting are stated in any case.
        access_controls : str or None, default=None
            Who may read the records, and how they are stored. None says that it is not stated.
        registry_authors : sequence of str or None, default=None
            Who fills in the entry. None is the author of the card.
        url_slug : str or None, default=None
            Lower-case letters, digits and underscores. None makes it from the title.

        Returns
        -------
        dict
            Plain containers. The number of records is among them only if it is public. Computed
            texts are escaped, because the registry shows Markdown; those of the publisher are not.

        Raises
        ------
        ValueError
            There is no guarantee, or the noise was seeded; a parameter is missing or none of its
            values.

        References
        ----------
        .. [1] OpenDP, "Differential Privacy Deployments Registry", https://registry.opendp.org
        """
        return registry_entry(
            self.to_dict(),
            curator=curator,
            curator_type=curator_type,
            intended_use=intended_use,
            region=region,
            sector=sector,
            publication_date=publication_date,
            justification=justification,
            access_controls=access_controls,
            registry_authors=registry_authors,
            url_slug=url_slug,
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Build a card from JSON, without verifying it.

        Parameters
        ----------
        text : str
            The output of :meth:`to_json`.

        Returns
        -------
        ModelCard

        Raises
        ------
        ValueError
            The text is not a model card.
        """
        return cls(json.loads(text))

    def __eq__(self, other):
        return self._content == other._content if isinstance(other, ModelCard) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as for every class that defines equality alone

    def __repr__(self):
        signed = "signed" if "signature" in self._content else "not signed"
        return f"<ModelCard of {self._content['estimator']['class']}, {signed}>"

    def _repr_html_(self) -> str:
        privacy, risk = self._content["privacy"], self._content["attack_risk"]
        return notebook(
            shorten(self._content["title"], 200),
            rows=[
                ("(ε, δ)", f"({_number(privacy['epsilon'])}, {_number(privacy['delta'])})"),
                ("neighbours", relation_text(PrivacyReport.from_dict(privacy))),
                ("correct guesses", f"at most {percent_up(risk['posterior'])}"),
                ("signed", "yes" if "signature" in self._content else "no"),
            ],
        )


def model_card(
    estimator: BaseEstimator,
    *,
    title: str | None = None,
    description: str | None = None,
    author: str | None = None,
    file: str | PathLike | None = None,
    audit: Any = None,
    signing_key: Union["Ed25519PrivateKey", str, PathLike, bytes, None] = None,
) -> ModelCard:
    """Make a publishable model card of a fitted estimator.

    The card states the declared columns, the protected unit, the public quantities, the attack
    risk, known limits, versions, and how to verify it. It is computed from public declarations and
    the privacy report alone: it holds no record, no seed and no path of a ledger. Of tables with
    keys it states the keys, and which marginals were released.

    Parameters
    ----------
    estimator : estimator
        A fitted estimator with ``privacy_``.
    title, description, author : str or None, default=None
        Texts by the publisher.
    file : path-like or None, default=None
        The saved model. The card states its name, size and SHA-256.
    audit : AuditResult or None, default=None
        An object with ``to_dict()`` and ``to_text()``.
    signing_key : Ed25519PrivateKey, path-like, bytes or None, default=None
        Signs the card: a key, the path of a PEM file without a password, or 32 raw bytes. It
        requires the package cryptography.

    Returns
    -------
    ModelCard

    Raises
    ------
    NotFittedError
        The estimator is not fitted.
    TypeError
        The estimator has no ``privacy_``.
    ImportError
        ``signing_key`` is given and cryptography is not installed.

    See Also
    --------
    verify_model_card : Check the signature of a card.
    QualityReport : Compare synthetic records with real ones.

    Notes
    -----
    The number of records, or of persons, is stated if the neighbouring relation makes it public
    ("replace one record") and a person does not count by rows. Hashes are of canonical JSON: keys
    sorted, no spaces, UTF-8.

    References
    ----------
    M. Mitchell et al., "Model cards for model reporting", FAT* 2019. S. Josefsson, I. Liusvaara,
    "Edwards-curve digital signature algorithm (EdDSA)", RFC 8032, 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpgen.reporting import model_card
    >>> from sklearn_dpgen.mechanisms import LaplaceMechanism
    >>> from sklearn_dpgen.domains import Box
    >>> mechanism = LaplaceMechanism(epsilon=1.0, domain=Box(0, 1)).fit(np.zeros((5, 1)))
    >>> model_card(mechanism, title="Answers")
    <ModelCard of LaplaceMechanism, not signed>
    """
    check_is_fitted(estimator)
    report = getattr(estimator, "privacy_", None)
    if not isinstance(report, PrivacyReport):
        raise PublicTypeError(f"{type(estimator).__name__} has no privacy_, a PrivacyReport.")
    statement = json.loads(report.to_json(indent=None))
    schema = _declared_schema(estimator)
    content = {
        "format": _FORMAT,
        "title": title or f"Model card: {type(estimator).__name__}",
        "description": description,
        "author": author,
        "estimator": {
            "class": type(estimator).__name__,
            "module": type(estimator).__module__.partition("._")[0],
            "parameters": _public_parameters(estimator),
        },
        "product": _product(estimator),
        "schema": _columns(schema) if isinstance(schema, Schema) else None,
        "n_records": _public_size(estimator, report),
        "privacy": statement,
        "is_seeded": report.is_seeded,
        "attack_risk": risk_facts(report),
        "limits": [*caveat_texts(report), *_LIMITS],
        "audit": None if audit is None else _audit(audit),
        "report_sha256": sha256(canonical_json(statement)),
        "file": None if file is None else file_facts(file),
    }
    if isinstance(schema, Table | RelationalSchema):
        content["tables"] = _tables(as_relational(schema))
        content["marginals"] = _marginal_names(estimator)
    if signing_key is not None:
        content["signature"] = sign(canonical_json(plain(content)), signing_key)
    return ModelCard(plain(content))


def verify_model_card(
    card: ModelCard | Mapping | str | PathLike,
    public_key: Union["Ed25519PublicKey", str, PathLike, bytes],
    file: str | PathLike | None = None,
) -> ModelCard:
    """Check the signature and the hashes of a model card.

    Parameters
    ----------
    card : ModelCard, mapping or path-like
        The card, its ``to_dict()``, or the path of its JSON.
    public_key : Ed25519PublicKey, path-like or bytes
        The publisher's key, from a source that you trust: a key, the path of a PEM file, or 32 raw
        bytes. The key that the card itself names proves nothing.
    file : path-like or None, default=None
        The model to check against the card. None checks the card alone.

    Returns
    -------
    ModelCard
        The verified card. Show this one, and no page that came with it.

    Raises
    ------
    ValueError
        The card is not signed, was signed with another key, or was changed; its hash does not match
        its report; the file differs from the one that the card names, or the card names none.
    ImportError
        cryptography is not installed.
    """
    if isinstance(card, ModelCard):
        content = card.to_dict()
    elif isinstance(card, Mapping):
        content = dict(card)
    else:
        content = json.loads(Path(card).read_text(encoding="utf-8"))
    card = ModelCard(content)
    content = card.to_dict()
    signature = content.pop("signature", None)
    verify_signature(canonical_json(content), signature, public_key)
    if sha256(canonical_json(content["privacy"])) != content["report_sha256"]:
        raise PublicValueError("The hash of the card is not that of its privacy report.")
    if file is not None:
        if content["file"] is None:
            raise PublicValueError("The card names no file.")
        facts = file_facts(file)
        if any(facts[key] != content["file"][key] for key in ("bytes", "sha256")):
            raise PublicValueError("The file is not the one that the card names.")
    return card


def _public_parameters(estimator):
    """Return the parameters that are plain values and reveal no seed, path or record."""
    shown = {}
    find = getattr(estimator, "_all_parameters", None) or partial(estimator.get_params, deep=False)
    for name, value in find().items():
        if name not in _NOT_SHOWN and (value is None or type(value) in (bool, int, float, str)):
            shown[name] = value
    return shown


def _product(estimator):
    """Return what an estimator releases, in the words of the registry of deployments."""
    kinds = {"sample": "Synthetic data", "predict": "Machine learning model"}
    found = (kind for method, kind in kinds.items() if hasattr(estimator, method))
    return next(found, "Dataset" if hasattr(estimator, "transform") else "Summary statistics")


def _declared_schema(estimator):
    """Return the schema of an estimator, or of its sampler or mechanism."""
    holders = (estimator, *(getattr(estimator, name, None) for name in ("sampler", "mechanism")))
    schemas = (getattr(holder, "schema_", getattr(holder, "schema", None)) for holder in holders)
    kinds = Schema | Table | RelationalSchema
    return next((schema for schema in schemas if isinstance(schema, kinds)), None)


def _columns(schema):
    """Return a list of declarations, because the keys of a JSON object have no order."""
    return [{"name": name} | entry for name, entry in Schema({**schema}).to_dict().items()]


def _tables(relational):
    """Return a list of the declarations of tables, the table of the persons first."""
    entries = relational.to_dict()["tables"]
    names = [*relational.order, *(name for name in relational if name not in relational.order)]
    return [
        {"name": name}
        | entries[name]
        | {"is_root": name == relational.root, "columns": _columns(relational[name].schema)}
        for name in names
    ]


def _marginal_names(estimator):
    """Return the variables of the released marginals, each once."""
    marginals = [*estimator.one_way_marginals_, *estimator.marginals_]
    return [list(columns) for columns in dict.fromkeys(m.columns for m in marginals)]


def _public_size(estimator, report):
    """Return the number of protected units if the neighbouring relation makes it public."""
    # If each row counts, the number of persons is public, and n_records_ a noisy number of rows.
    is_public = (
        report.neighbours == "replace_one"
        and Public.N_SAMPLES in report.public
        and report.max_rows is None
    )
    size = getattr(estimator, "n_records_", None)
    return float(size) if is_public and size is not None else None


def risk_facts(report):
    """Return the attack risk of a release, for a JSON document."""
    risk = report.attack_risk()
    values = {str(n): risk.guess_among(n) for n in _AMONG}
    odds = {f"{factor:g}": risk.odds_exceed(factor) for factor in _FACTORS}
    # Bounds of another guess are computed only where they differ.
    records, presence = values, odds
    if risk.is_local:
        records = {str(n): risk.guess_among(n, "record") for n in _AMONG}
    if risk.neighbours == "add_or_remove":
        presence = {f"{factor:g}": risk.odds_exceed(factor, "presence") for factor in _FACTORS}
    return {
        "true_positive_rates": {f"{fpr:g}": tpr for fpr, tpr in risk.true_positive_rates.items()},
        "posterior": risk.posterior(),
        "advantage": risk.advantage,
        "mu": risk.mu,
        "guess_among": values,
        "guess_among_records": records,
        "odds_exceed": odds,
        "odds_of_presence_exceed": presence,
    }


def _audit(audit):
    return {"result": audit.to_dict(), "text": audit.to_text()}


def plain(value):
    """Return plain containers for JSON: infinite numbers and keys become strings."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    # UTF-8 has no lone surrogates.
    return str(value).encode("utf-8", "replace").decode("utf-8")


def _parts(content):
    """Yield the parts of a card: a key, a title, a note, a text and rows of labels and values."""
    privacy, risk = content["privacy"], content["attack_risk"]
    estimator, unit = content["estimator"], privacy["unit"]
    rows = [("estimator", f"{estimator['module']}.{estimator['class']}")]
    shown = estimator["parameters"].items()
    rows += [(name, str(value)) for name, value in shown if value is not None]
    size = content["n_records"]
    counted = "number of records" if unit is None else "number of persons"
    rows.append((counted, "not stated" if size is None else f"{size:,.0f}"))
    tables = content.get("tables")
    guarantee = _part(
        "guarantee", "Guarantee", _guarantee_note(content), _guarantee_rows(privacy, risk)
    )
    if tables is not None:
        # Who is protected is the first question about tables with keys.
        guarantee["rows"].sort(key=lambda row: row[0] != "protected")
        yield guarantee
    report, audit = PrivacyReport.from_dict(privacy), (content["audit"] or {}).get("result")
    yield _part("spending", "What was spent, chosen and drawn", None, spending_rows(report))
    yield _part("model", "Model", report.title, rows)
    for i, table in enumerate(tables or ()):
        rows = [*_table_rows(table)]
        rows += [(shorten(c["name"], 80), declaration_text(c)) for c in table["columns"]]
        title = f"Table {shorten(table['name'], 80)}"
        yield _part(f"table-{i}", title, None, rows[:_MOST_COLUMNS])
    if tables is not None:
        yield _released_part(content["marginals"])
    if content["schema"] is not None:
        columns = content["schema"]
        note = f"{len(columns)} columns, declared publicly and not read from records."
        if len(columns) > _MOST_COLUMNS:
            note += f" The first {_MOST_COLUMNS} of them:"
        rows = [(shorten(c["name"], 80), declaration_text(c)) for c in columns[:_MOST_COLUMNS]]
        yield _part("learned", "Columns", note, rows)
    if tables is None:
        yield guarantee
    rows = [
        (f"true positives at {100 * float(fpr):g}% false positives", f"at most {percent_up(tpr)}")
        for fpr, tpr in risk["true_positive_rates"].items()
    ]
    rows.append(("correct guesses, 50% without the release", f"at most {_up(risk, 'posterior')}"))
    rows.append(("advantage over guessing", f"at most {_up(risk, 'advantage')}"))
    known = "all other records" if unit is None else "the records of all other persons"
    note = f"Bounds for the best attacker, who knows {known}, between two neighbouring data sets."
    yield _part("risk", "Attack risk", note, rows)
    if content["audit"] is not None:
        yield _part("audit", "Audit", _AUDIT_NOTE, [], content["audit"]["text"])
    yield _part("reviewers", "Questions of reviewers", _REVIEWERS, review_rows(report, audit))
    rows = identification_rows(report, risk, audit)
    yield _part("identification", "Singling out, linkability, inference", _IDENTIFICATION, rows)
    rows = [(str(i), text) for i, text in enumerate(content["limits"], start=1)]
    yield _part("limits", "Known limits", None, rows)
    yield _part("versions", "Versions", None, list(privacy["versions"].items()))
    rows = [("SHA-256 of the privacy report", content["report_sha256"])]
    if content["file"] is not None:
        file = content["file"]
        rows.append(("file", f"{shorten(file['name'], 80)}, {file['bytes']:,} bytes"))
        rows.append(("SHA-256 of the file", file["sha256"]))
    signature = content.get("signature")
    if signature is None:
        rows.append(("signature", "none"))
    else:
        rows.append((f"{signature['algorithm']} signature", signature["value"]))
        rows.append(("public key, as claimed", signature["public_key"]))
    yield _part("verify", "How to verify", _VERIFY, rows, _CODE)


def _table_rows(table):
    """Yield the keys and the order of the rows of a table, with labels."""
    if table.get("public"):
        yield "rows", "public, and not protected"
    elif table["is_root"]:
        yield "rows", "of the persons who are protected"
    if table.get("primary_key"):
        yield "primary key", shorten(table["primary_key"], 80)
    for column, parent in table.get("foreign_key", {}).items():
        yield "foreign key", f"{shorten(column, 80)}, of table {shorten(parent, 80)}"
    if table.get("sequence_index"):
        yield "ordered by", shorten(table["sequence_index"], 80)
    if table.get("max_rows"):
        yield "rows modelled", f"at most {table['max_rows']} for each key; more are protected too"
    if table.get("static"):
        yield "the same in all rows", ", ".join(shorten(name, 80) for name in table["static"])


def _released_part(marginals):
    """Return the part about released marginals."""
    rows = [
        (what, "; ".join(" × ".join(shorten(n, 60) for n in names) for names in shown) + more)
        for what, size in (("single variables", 1), ("pairs", 2))
        for found in [[names for names in marginals if len(names) == size]]
        for shown in [found[:_MOST_MARGINALS]]
        for more in [f"; and {len(found) - len(shown)} more" * (len(found) > len(shown))]
        if found
    ]
    note = "Noisy counts of these variables were released; all else was computed from them."
    return _part("released", "Released marginals", note, rows)


def _part(key, title, note, rows, text=None):
    return {"key": key, "title": title, "note": note, "rows": rows, "text": text}


def _up(risk, name):
    return percent_up(risk[name])


def _guarantee_note(content):
    if content["is_seeded"]:
        return "SEEDED: the guarantee is void for whoever knows or guesses the seed."
    unit = content["privacy"]["unit"]
    if unit is None:
        return (
            "The guarantee protects each record by itself, whatever an attacker knows or does. A "
            "person with several records is not protected as a whole: their losses add up."
        )
    if "tables" in content:
        root = next(table["name"] for table in content["tables"] if table["is_root"])
        return (
            f"The guarantee protects each person, who has one value in {unit} of table {root}, "
            "with all rows in all private tables, whatever an attacker knows or does."
        )
    return (
        f"The guarantee protects each person, with all records that have one value in {unit}, "
        "whatever an attacker knows or does."
    )


def _guarantee_rows(privacy, risk):
    unit, report = privacy["unit"], PrivacyReport.from_dict(privacy)
    rows = [("(ε, δ)", f"({_number(privacy['epsilon'])}, {_number(privacy['delta'])})")]
    if risk["mu"] is not None:
        rows.append(("μ (Gaussian differential privacy)", f"{risk['mu']:.4g}"))
    rows += [
        ("neighbours", relation_text(report)),
        (
            "protected",
            "each record by itself" if unit is None else f"all rows with one value in {unit}",
        ),
        ("public", ", ".join(public_texts(report)) or "nothing"),
    ]
    if report.public_tables:
        rows.append(("public tables", public_tables_text(report)))
    rows += [
        ("noise", privacy["noise_source"]),
        ("accountant", accountant_text(report, grid=report.discretization)),
    ]
    if privacy["ledger"]:
        rows.append(("ledger", ledger_text(report)))
    return rows


def _number(value):
    return f"{value:.6g}" if isinstance(value, int | float) else str(value)


def _html(content):
    privacy, risk = content["privacy"], content["attack_risk"]
    mark = "private" if content["audit"] is None else "audited"
    if content["is_seeded"] or privacy["epsilon"] == "inf":
        mark = "void"
    epsilon, delta = (
        f"{value:.3g}" if isinstance(value, int | float) else "∞"
        for value in (privacy["epsilon"], privacy["delta"])
    )
    cards = [
        score("Privacy budget", f"ε = {epsilon}", "in nats"),
        score("Failure probability", f"δ = {delta}", "of the guarantee"),
        score(
            "Correct guesses",
            percent_up(risk["posterior"]),
            "at most; 50% without the release",
            share=risk["posterior"],
            best=0.5,
        ),
        score("Signed", "yes" if "signature" in content else "no", "verify before you trust it"),
    ]
    return render(
        "model_card.html",
        title=content["title"],
        author=content["author"],
        description=(content["description"] or "").splitlines(),
        mark=mark,
        cards=cards,
        parts=list(_parts(content)),
    )


def _markdown(content):
    lines = [f"# {escaped(shorten(content['title'], 200))}", ""]
    if content["author"]:
        lines += [f"by {escaped(content['author'])}", ""]
    for line in (content["description"] or "").splitlines():
        lines += [escaped(line), ""]
    for part in _parts(content):
        lines += [f"## {part['title']}", ""]
        if part["note"]:
            lines += [escaped(part["note"]), ""]
        if part["text"]:
            # An indented block is shown as it is.
            lines += [f"    {clean(line)}" for line in part["text"].splitlines()] + [""]
        if part["rows"]:
            lines += ["| | |", "| --- | --- |"]
            lines += [f"| {escaped(name)} | {escaped(value)} |" for name, value in part["rows"]]
            lines.append("")
    return "\n".join(lines)
