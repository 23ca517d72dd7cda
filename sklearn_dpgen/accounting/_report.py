"""The privacy report of a fit: its guarantee, noise and precision."""

import json
import math
import re
import textwrap
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from importlib import metadata
from typing import Any

from sklearn_dpgen._version import __version__
from sklearn_dpgen.accounting._attack_risk import AttackRisk
from sklearn_dpgen.accounting._guarantee import Bound, Caveat, Event, Guarantee, as_number
from sklearn_dpgen.accounting._profiles import PrivacyProfile
from sklearn_dpgen.accounting._wording import events_text, relation_text, report_rows
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.persistence._declarations import saved_as_json
from sklearn_dpgen.utils._checks import check_count, set_fields
from sklearn_dpgen.utils._html import notebook
from sklearn_dpgen.utils._random import SEEDED

__all__ = ["PrivacyReport"]

_DISTRIBUTIONS = ("numpy", "scipy", "torch")
_TEXT_WIDTH = 100
_SHA256 = re.compile("[0-9a-f]{64}")


# A look-up takes longer than a small fit.
_version_of = cache(metadata.version)


def _installed_versions():
    versions = {"sklearn_dpgen": __version__}
    for name in _DISTRIBUTIONS:
        try:
            versions[name] = _version_of(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


@saved_as_json
@dataclass(frozen=True, kw_only=True)
class PrivacyReport(Guarantee):
    """The complete, immutable statement of one privacy guarantee.

    It holds public quantities only, so it may be published with the release. Its fields are those
    of :class:`Guarantee`, and the following.

    Parameters
    ----------
    noise_scale : float, dict of str to float, or None
        Absolute scale of the noise (σ for Gaussian, b for Laplace), or one per part.
    noise_multiplier : float or None
        Noise scale over the sensitivity of the neighbouring relation.
    discretization : float or None
        Grid step of the privacy loss, in nats, if the composition is numerical.
    noise_source : str
        Source of the randomness.
    versions : dict of str to str
        Versions of the libraries; those installed by default.
    parts : tuple of PrivacyReport
        The parts of a composite release, e.g. one per column.
    split : dict of str to float
        Shares of the budget by purpose, on the scale on which they add up to 1.
    precision : dict of str to str
        Precision of the releases, in readable units.
    rounding : float or None
        Upper bound on the total variation between all noisy values together and exact draws, as
        noise is drawn in floating point: 2**-36 for each value and for each score that a selection
        compares. 0 for certified noise and without noise; None if they are not counted. The
        guarantee then holds with (1 + exp(epsilon)) times as much added to ``delta``.
    public_tables : dict of str to str
        SHA-256 of each public table that the fit used, in 64 hexadecimal digits, by the name of
        its parameter. They add the caveat that the tables are not protected, as does a parameter
        ``public`` among the public facts.
    ledger : dict
        For a fit that charged a ledger: the name of its ``"dataset"``, the number of the
        ``"charge"``, and the ``"epsilon"`` of all charges together at the ``"delta"`` of the cap,
        at the time of the charge. If public tables are recorded there as releases, the numbers of
        their charges by name, ``"public_tables"``. If charges so far have other units than this
        one, ``"other_units"``: a list of dict with a ``"unit"``, None for single rows, and its
        ``"charges"``; all charges together then protect no unit as a whole. Empty in a plan;
        ignored by equality of reports.
    """

    noise_scale: float | dict[str, float] | None = None
    noise_multiplier: float | None = None
    discretization: float | None = None
    noise_source: str = "operating system entropy"
    versions: dict[str, str] = field(default_factory=_installed_versions)
    parts: tuple["PrivacyReport", ...] = ()
    split: dict[str, float] = field(default_factory=dict)
    precision: dict[str, str] = field(default_factory=dict)
    rounding: float | None = None
    public_tables: dict[str, str] = field(default_factory=dict)
    ledger: dict[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self):
        super().__post_init__()
        for name in ("noise_multiplier", "discretization", "rounding"):
            value = getattr(self, name)
            if value is not None:
                set_fields(self, **{name: as_number(value, name)})
        scale = self.noise_scale
        if isinstance(scale, dict):
            scale = {k: as_number(v, f"noise_scale[{k}]") for k, v in scale.items()}
        elif scale is not None:
            scale = as_number(scale, "noise_scale")
        set_fields(
            self,
            noise_scale=scale,
            parts=tuple(self.parts),
            versions=dict(self.versions),
            precision=dict(self.precision),
            split={name: as_number(part, f"split[{name}]") for name, part in self.split.items()},
            public_tables=_checked_tables(self.public_tables),
            ledger=_checked_ledger(self.ledger, self.public_tables),
        )
        # Estimators name the parameter of their public records among the public facts.
        if self.public_tables or "public" in self.public:
            caveats = dict.fromkeys([*self.caveats, Caveat.PUBLIC_TABLES])
            set_fields(self, caveats=tuple(caveats))

    @property
    def is_seeded(self) -> bool:
        """Whether noise was drawn with a seed, so that the guarantee is void if it is known."""
        return self.noise_source == SEEDED or any(part.is_seeded for part in self.parts)

    def to_dict(self) -> dict:
        """Return plain Python containers; ``inf`` stays a float."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_dict(cls, content: dict) -> "PrivacyReport":
        """Build a report from ``to_dict()`` or from the parsed ``to_json()``."""
        built = {
            "parts": tuple(cls.from_dict(part) for part in content.get("parts", ())),
            "events": tuple(Event(**event) for event in content.get("events", ())),
            "bounds": tuple(Bound(**bound) for bound in content.get("bounds", ())),
            "releases": tuple(
                (PrivacyProfile.from_dict(profile), times)
                for profile, times in content.get("releases", ())
            ),
        }
        return cls(**content | built)

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return strict JSON; an infinite number becomes the string ``"inf"``."""
        return json.dumps(
            _finite(self.to_dict()), indent=indent, allow_nan=False, ensure_ascii=False
        )

    def to_text(self) -> str:
        """Return an aligned text, one line per quantity that applies.

        Its first line begins with SEEDED if the guarantee is void against anybody who knows a seed.
        """
        return "\n".join(self._lines())

    def __str__(self):
        return self.to_text()

    def to_rows(self) -> list[tuple[str, str]]:
        """Return the lines of :meth:`to_text` for the whole, as pairs of a label and its text.

        Returns
        -------
        list of tuple of str
        """
        return list(report_rows(self))

    @property
    def title(self) -> str:
        """What is released, in words."""
        return events_text(self)

    @property
    def neighbouring(self) -> str:
        """The neighbouring relation in words, with its public facts."""
        return relation_text(self)

    def __repr__(self):
        seeded = "SEEDED " if self.is_seeded else ""
        return (
            f"<{seeded}PrivacyReport of {self.name}: (epsilon, delta) = ({self.epsilon:.6g}, "
            f"{self.delta:.3g}), {self.neighbouring}>"
        )

    def _repr_html_(self) -> str:
        return notebook(
            f"(ε, δ) = ({self.epsilon:.6g}, {self.delta:.3g})",
            warning="SEEDED: void for whoever knows the seed." if self.is_seeded else None,
            lines=[(self.title, None)],
            rows=self.to_rows(),
            details=[(part.title, part.to_rows()) for part in self.parts],
        )

    def _lines(self, beside=()):
        seeded = "SEEDED " if self.is_seeded else ""
        yield f"{seeded}{self.title}: (epsilon, delta) = ({self.epsilon:.6g}, {self.delta:.3g})"
        rows = dict(self.to_rows())
        shown = {k: v for k, v in rows.items() if k not in beside or beside[k] != v}
        width = max(map(len, shown), default=0)
        for label, text in shown.items():
            yield from textwrap.wrap(
                text,
                width=_TEXT_WIDTH,
                initial_indent=f"  {label:<{width}}  ",
                subsequent_indent=" " * (width + 4),
            )
        for part in self.parts:
            # Rows that a part shares with the whole are printed once.
            yield from (f"  {line}" for line in part._lines(beside=rows))

    def attack_risk(self) -> AttackRisk:
        """Return the risk of attacks on the release, from its privacy profile."""
        known = self.releases or math.isfinite(self.epsilon)
        profile = self.profile() if known else None
        return AttackRisk(
            profile, unit=self.unit, neighbours=self.neighbours, is_local=self.is_local
        )


def _checked_tables(tables):
    """Return the checked hashes of public tables by name."""
    if not isinstance(tables, dict):
        raise PublicTypeError(f"public_tables must be a dict, got {type(tables).__name__}.")
    for name, sha256 in tables.items():
        if not isinstance(name, str) or not isinstance(sha256, str):
            raise PublicTypeError("public_tables must map names to texts.")
        if not _SHA256.fullmatch(sha256):
            raise PublicValueError(
                f"public_tables must hold 64 lower-case hexadecimal digits for {name!r}, got "
                f"{sha256!r}."
            )
    return dict(tables)


def _checked_charges(other):
    """Return a checked entry of the charges of another unit."""
    if not isinstance(other, dict) or set(other) != {"unit", "charges"} or not other["charges"]:
        raise PublicValueError("other_units of ledger must have a unit and its charges each.")
    if not isinstance(other["unit"], str | None):
        raise PublicTypeError("unit of other_units of ledger must be a str or None.")
    numbers = [check_count(number, "charge of another unit") for number in other["charges"]]
    return {"unit": other["unit"], "charges": numbers}


def _checked_ledger(ledger, public_tables):
    """Return a checked ledger entry of a report: empty, or with its keys."""
    if not ledger:
        return {}
    if set(ledger) - {"public_tables", "other_units"} != {"dataset", "charge", "epsilon", "delta"}:
        raise PublicValueError(
            f"ledger must have a dataset, charge, epsilon and delta, got {[*ledger]}."
        )
    if not isinstance(ledger["dataset"], str):
        raise PublicTypeError("dataset of ledger must be a str.")
    checked = {
        "dataset": ledger["dataset"],
        "charge": check_count(ledger["charge"], "charge of ledger"),
        "epsilon": as_number(ledger["epsilon"], "epsilon of ledger"),
        "delta": as_number(ledger["delta"], "delta of ledger"),
    }
    if releases := ledger.get("public_tables"):
        if not isinstance(releases, dict) or not set(releases) <= set(public_tables):
            raise PublicValueError(
                f"public_tables of ledger must number some of {[*public_tables]}, got {releases!r}."
            )
        checked["public_tables"] = {
            name: check_count(number, "charge of a release") for name, number in releases.items()
        }
    if others := ledger.get("other_units"):
        checked["other_units"] = [_checked_charges(other) for other in others]
    return checked


def _plain(value):
    """Return the content of a report as containers, texts and numbers."""
    if isinstance(value, PrivacyReport | PrivacyProfile):
        return value.to_dict()
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    # An enumeration is converted to its value.
    return str(value) if isinstance(value, str) else value


def _finite(value):
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return "inf" if isinstance(value, float) and math.isinf(value) else value
