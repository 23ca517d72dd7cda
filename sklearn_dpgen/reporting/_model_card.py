"""ModelCard: what a fitted estimator is and guarantees, and how to verify it."""

import json
import math
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Union

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.reporting._card_pages import card_html, card_markdown, card_summary
from sklearn_dpgen.reporting._signatures import (
    canonical_json,
    file_facts,
    sha256,
    sign,
    verify_signature,
)
from sklearn_dpgen.schema import Schema

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

__all__ = ["ModelCard", "model_card", "verify_model_card"]

_FORMAT = {"name": "sklearn_dpgen model card", "version": 1}
# Where a seed, a ledger or a machine would show, and what says nothing of the model.
_NOT_SHOWN = frozenset(["random_state", "ledger", "device", "n_jobs", "store", "verbose"])
_LIMITS = (
    "The guarantee is for the neighbouring relation that is stated, and for no other: where a "
    "person has several records, each is protected by itself unless a unit is named.",
    "It bounds what a release tells of a record, not what it tells of a group or a population.",
    "Guarantees of several releases of the same records add up.",
    "Synthetic records are drawn from noisy figures: rare values and fine dependence may be wrong.",
)


class ModelCard:
    """A publishable statement about a fitted estimator; made by :func:`model_card`.

    Parameters
    ----------
    content : mapping
        As of :meth:`to_dict`.
    """

    def __init__(self, content: Mapping) -> None:
        if not isinstance(content, Mapping) or content.get("format") != _FORMAT:
            raise PublicValueError(f"content must be that of a model card, of format {_FORMAT}.")
        # A copy, of what JSON can hold alone.
        self._content = json.loads(canonical_json(dict(content)))

    def to_dict(self) -> dict:
        """Return the whole content as plain containers, which JSON can hold."""
        return json.loads(canonical_json(self._content))

    def to_json(self) -> str:
        """Return the content as JSON: what is verified."""
        return json.dumps(self._content, indent=1, ensure_ascii=False, allow_nan=False)

    def to_markdown(self) -> str:
        """Return the card in Markdown; texts of others are escaped."""
        return card_markdown(self._content)

    def to_html(self) -> str:
        """Return the card as one page of HTML, which needs no network and runs no script."""
        return card_html(self._content)

    def save(self, path: str | PathLike) -> None:
        """Write the card.

        Parameters
        ----------
        path : path-like
            Its end says how: ``.json``, ``.md`` or ``.html``. Only JSON can be verified.

        Raises
        ------
        ValueError
            For another end.
        """
        path = Path(path)
        writers = {".json": self.to_json, ".md": self.to_markdown, ".html": self.to_html}
        if path.suffix not in writers:
            raise PublicValueError(
                f"path must end with one of {list(writers)}, got {path.suffix!r}."
            )
        path.write_text(writers[path.suffix](), encoding="utf-8")

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Build a card from JSON; nothing is verified.

        Parameters
        ----------
        text : str

        Raises
        ------
        ValueError
            It is no model card.
        """
        return cls(json.loads(text))

    def __eq__(self, other):
        return self._content == other._content if isinstance(other, ModelCard) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as the language has it of what is mutable

    def __repr__(self):
        signed = "signed" if "signature" in self._content else "not signed"
        return f"<ModelCard of {self._content['estimator']['class']}, {signed}>"

    def _repr_html_(self) -> str:
        return card_summary(self._content)


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
    """Make a publishable card of a fitted estimator.

    It states what was learned from, for whom the guarantee holds, what is public, the attack risk,
    known limits, versions, and how to verify it. It reads public declarations and the privacy
    report alone, so that it is as public as these: no record, no seed, no path of a ledger.

    Parameters
    ----------
    estimator : estimator
        Fitted, with ``privacy_``.
    title, description, author : str or None, default=None
        Texts of the publisher.
    file : path-like or None, default=None
        The saved model: its name, size and SHA-256 are stated.
    audit : AuditResult or None, default=None
        With ``to_dict()`` and ``to_text()``.
    signing_key : Ed25519PrivateKey, path-like, bytes or None, default=None
        Signs the card: a key, the path of one in PEM without a password, or its 32 raw bytes. It
        needs the package cryptography.

    Returns
    -------
    ModelCard

    Raises
    ------
    NotFittedError
        The estimator is not fitted.
    TypeError
        It has no ``privacy_``.
    ImportError
        ``signing_key`` is given and cryptography is not installed.

    See Also
    --------
    verify_model_card : Whether a card is as it was signed.
    QualityReport : How close synthetic records are to real ones.

    Notes
    -----
    The number of records is stated where the relation has it public, "replace one record". Hashes
    are of canonical JSON: keys sorted, no spaces, UTF-8.

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
        "schema": None if schema is None else _columns(schema),
        "n_records": _public_size(estimator, report),
        "privacy": statement,
        "is_seeded": report.is_seeded,
        "attack_risk": _risk(report),
        "limits": [*report.caveats, *_LIMITS],
        "audit": None if audit is None else _audit(audit),
        "report_sha256": sha256(canonical_json(statement)),
        "file": None if file is None else file_facts(file),
    }
    if signing_key is not None:
        content["signature"] = sign(canonical_json(_plain(content)), signing_key)
    return ModelCard(_plain(content))


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
        Of the publisher, from a source that you trust: a key, the path of one in PEM, or its 32
        raw bytes. A key in the card itself would prove nothing.
    file : path-like or None, default=None
        The model, to be checked against the card. None checks the card alone.

    Returns
    -------
    ModelCard
        The one that was verified: show this, and no page that came with it.

    Raises
    ------
    ValueError
        The card is not signed, was not signed by this key, or was changed; its hash is not that of
        its report; the file is another one, or the card names none.
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
        found = file_facts(file)
        if any(found[key] != content["file"][key] for key in ("bytes", "sha256")):
            raise PublicValueError("The file is not the one that the card names.")
    return card


def _public_parameters(estimator):
    """Return the parameters that are plain values and tell nothing of a seed, a path or records."""
    shown = {}
    for name, value in estimator.get_params(deep=False).items():
        if name not in _NOT_SHOWN and (value is None or type(value) in (bool, int, float, str)):
            shown[name] = value
    return shown


def _declared_schema(estimator):
    """Return the schema of an estimator, or of the sampler or mechanism that it learns by."""
    holders = (estimator, *(getattr(estimator, name, None) for name in ("sampler", "mechanism")))
    found = (getattr(holder, "schema", None) for holder in holders)
    return next((schema for schema in found if isinstance(schema, Schema)), None)


def _columns(schema):
    """Return declarations in their order, which the keys of an object of JSON do not have."""
    return [{"name": name} | entry for name, entry in schema.to_dict().items()]


def _public_size(estimator, report):
    """Return the number of records where the relation has it public, else None."""
    is_public = report.neighbours == "replace_one" and bool(
        {"n_samples", "number of persons"} & set(report.public)
    )
    size = getattr(estimator, "n_records_", None)
    return float(size) if is_public and size is not None else None


def _risk(report):
    risk = report.attack_risk()
    return {
        "true_positive_rates": {f"{fpr:g}": tpr for fpr, tpr in risk.true_positive_rates.items()},
        "posterior": risk.posterior(),
        "advantage": risk.advantage,
        "mu": risk.mu,
    }


def _audit(audit):
    return {"result": audit.to_dict(), "text": audit.to_text()}


def _plain(value):
    """Return what JSON can hold: an infinite number is a text, and keys are texts."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    # A lone surrogate could not be written.
    return str(value).encode("utf-8", "replace").decode("utf-8")
