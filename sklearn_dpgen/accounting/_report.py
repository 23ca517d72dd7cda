"""The privacy report of a fitted estimator or mechanism."""

import json
import math
import textwrap
from dataclasses import dataclass, field, fields
from importlib import metadata
from numbers import Real
from typing import Any

from sklearn_dpgen._version import __version__
from sklearn_dpgen.accounting._attack_risk import AttackRisk
from sklearn_dpgen.accounting._checks import check_choice, check_count
from sklearn_dpgen.accounting._composition import ComposedProfile
from sklearn_dpgen.accounting._profiles import ApproximateProfile, PrivacyProfile
from sklearn_dpgen.persistence._declarations import saved_as_json
from sklearn_dpgen.utils._html import element, notebook, rows_table
from sklearn_dpgen.utils._random import SEEDED

__all__ = ["CERTIFIED_NOISE", "FLOATING_POINT", "PrivacyReport"]

# A caveat of all that draws its noise from a NoiseSource.
FLOATING_POINT = (
    "The noise is drawn in floating point, from 52 random bits a draw; the guarantee is for exact "
    "draws, from which all values together are as far as the rounding says, in total variation."
)

# And of all that draws certified noise, in its place.
CERTIFIED_NOISE = (
    "What noise is added to is computed in floating point. It is taken to be within a quarter of a "
    "step of the grid of the noise, 2**-28 of its scale, of what exact arithmetic gives. How long "
    "a draw takes is not protected."
)

# Who are neighbours: data sets of one public size, or with one more.
_NEIGHBOURS = ("replace_one", "add_or_remove")

_DISTRIBUTIONS = ("numpy", "scipy", "torch", "dp-accounting")
_TEXT_WIDTH = 100


def _installed_versions():
    versions = {"sklearn_dpgen": __version__}
    for name in _DISTRIBUTIONS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


@saved_as_json
@dataclass(frozen=True, kw_only=True)
class PrivacyReport:
    """The complete, immutable statement of one privacy guarantee.

    It holds public quantities alone, so it may be published with the release it describes.

    Parameters
    ----------
    mechanism : str
        What is released, in words.
    epsilon : float
        Privacy budget spent, in nats; ``inf`` where there is no guarantee.
    delta : float
        Failure probability of the guarantee, in [0, 1]; 0 for pure differential privacy.
    neighbouring : str
        The neighbouring relation in words, with what it holds fixed.
    neighbours : {"replace_one", "add_or_remove"}
        Its kind: guarantees of two kinds are not composed.
    unit : str or None
        Who is protected: all rows with one value in this column. None for each row by itself.
    public : tuple of str
        The quantities that the guarantee treats as public, e.g. ``("n_samples", "labels")``.
    sensitivity : float or None
        Largest change of the released value over neighbours.
    sensitivity_source : str
        The norm of the sensitivity and where each bound in it came from.
    noise_scale : float, dict of str to float, or None
        Absolute scale of the noise (σ for Gaussian, b for Laplace), or one per part.
    noise_multiplier : float or None
        Noise scale over the sensitivity of the neighbouring relation.
    sampler : str
        How the records of one release are chosen.
    sampling_rate : float
        Share of the records in one release, in (0, 1].
    n_releases : int
        Number of releases composed in ``epsilon``.
    accountant : str
        How ``epsilon`` was computed.
    discretization : float or None
        Grid step of the privacy loss, in nats, where the accountant is numerical.
    noise_source : str
        Where the randomness came from.
    versions : dict of str to str
        Versions of the libraries; those installed by default.
    caveats : tuple of str
        What the guarantee does not cover.
    parts : tuple of PrivacyReport
        The pieces of a composite release, e.g. one per column.
    releases : tuple of (PrivacyProfile, int)
        The profiles that are composed in ``epsilon``, each with how often, where these are all:
        with them the release is composed with others at no loss. Empty where there is no noise,
        or they are not known.
    split : dict of str to float
        Parts of the budget, by what they are spent on, in the scale in which they add up to 1.
    precision : dict of str to str
        What the noise leaves of what is released, in units that a person reads.
    rounding : float or None
        How far all noisy values together are at most from exact draws, in total variation, because
        noise is drawn in floating point: 2**-36 for each value and for each score that a selection
        compares. 0 for certified noise and for none; None where they are not counted. The guarantee
        then holds with (1 + exp(epsilon)) times as much added to ``delta``.
    forecast : dict of str to float
        What a fit takes, roughly: ``"seconds"`` on two cores, and ``"bytes"`` of memory.
    ledger : dict
        Of a fit that charged a ledger: the name of its ``"dataset"``, the number of the
        ``"charge"``, and the ``"epsilon"`` of all charges together at the ``"delta"`` of the cap,
        as they were when it was charged. Empty in a plan; equality of reports leaves it out.
    """

    mechanism: str
    epsilon: float
    delta: float
    neighbouring: str = "replace one record; the number of records is public"
    neighbours: str = "replace_one"
    unit: str | None = None
    public: tuple[str, ...] = ("n_samples",)
    sensitivity: float | None = None
    sensitivity_source: str = ""
    noise_scale: float | dict[str, float] | None = None
    noise_multiplier: float | None = None
    sampler: str = "every record"
    sampling_rate: float = 1.0
    n_releases: int = 1
    accountant: str = "closed form"
    discretization: float | None = None
    noise_source: str = "operating system entropy"
    versions: dict[str, str] = field(default_factory=_installed_versions)
    caveats: tuple[str, ...] = ()
    parts: tuple["PrivacyReport", ...] = ()
    releases: tuple[tuple[PrivacyProfile, int], ...] = ()
    split: dict[str, float] = field(default_factory=dict)
    precision: dict[str, str] = field(default_factory=dict)
    rounding: float | None = None
    forecast: dict[str, float] = field(default_factory=dict)
    ledger: dict[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self):
        for name in ("epsilon", "delta", "sampling_rate"):
            object.__setattr__(self, name, _number(getattr(self, name), name))
        for name in ("sensitivity", "noise_multiplier", "discretization", "rounding"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _number(value, name))
        if isinstance(self.noise_scale, dict):
            scales = {key: _number(v, f"noise_scale[{key}]") for key, v in self.noise_scale.items()}
            object.__setattr__(self, "noise_scale", scales)
        elif self.noise_scale is not None:
            object.__setattr__(self, "noise_scale", _number(self.noise_scale, "noise_scale"))
        if self.delta > 1:
            raise ValueError(f"delta must be in [0, 1], got {self.delta}.")
        if not 0 < self.sampling_rate <= 1:
            raise ValueError(f"sampling_rate must be in (0, 1], got {self.sampling_rate}.")
        for name in ("public", "caveats", "parts", "releases"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise TypeError(f"{name} must be a sequence, got a single str.")
            object.__setattr__(self, name, tuple(value))
        for profile, times in self.releases:
            check_count(times, "the number of times of a release")
            if not isinstance(profile, PrivacyProfile):
                raise TypeError(f"releases must be of privacy profiles, got {profile!r}.")
        check_choice(self.neighbours, "neighbours", _NEIGHBOURS)
        object.__setattr__(self, "n_releases", int(self.n_releases))
        for name in ("versions", "precision"):
            object.__setattr__(self, name, dict(getattr(self, name)))
        for name in ("split", "forecast"):
            numbers = {k: _number(v, f"{name}[{k}]") for k, v in getattr(self, name).items()}
            object.__setattr__(self, name, numbers)
        object.__setattr__(self, "ledger", _checked_ledger(self.ledger))

    @property
    def is_seeded(self) -> bool:
        """Whether noise was drawn with a seed: the guarantee is void for whoever knows the seed."""
        return self.noise_source == SEEDED or any(part.is_seeded for part in self.parts)

    def composable(self) -> tuple[tuple[PrivacyProfile, int], ...]:
        """Return what :func:`compose_epsilon` takes to compose this release with others.

        They must be for the same neighbours: an addition costs less than a replacement.

        Returns
        -------
        tuple of (PrivacyProfile, int)
            ``releases``, or where they are not known the loosest profile of (ε, δ).

        Raises
        ------
        ValueError
            Without a guarantee.
        """
        if self.releases:
            return self.releases
        if math.isinf(self.epsilon):
            raise ValueError(f"Nothing is composed with what has no guarantee: {self.mechanism}.")
        return ((ApproximateProfile(self.epsilon, self.delta), 1),)

    def profile(self) -> PrivacyProfile:
        """Return the privacy profile of the whole release, δ as a function of ε.

        Raises
        ------
        ValueError
            Without a guarantee.
        """
        return ComposedProfile(self.composable())

    def to_dict(self) -> dict:
        """Return plain Python containers; ``inf`` stays a float."""
        result = {f.name: getattr(self, f.name) for f in fields(self)}
        if isinstance(self.noise_scale, dict):
            result["noise_scale"] = dict(self.noise_scale)
        for name in ("versions", "split", "precision", "forecast", "ledger"):
            result[name] = dict(result[name])
        result["public"] = list(self.public)
        result["caveats"] = list(self.caveats)
        result["parts"] = [part.to_dict() for part in self.parts]
        result["releases"] = [
            profile.to_dict() | {"times": times} for profile, times in self.releases
        ]
        return result

    @classmethod
    def from_dict(cls, content: dict) -> "PrivacyReport":
        """Build a report from ``to_dict()`` or from the parsed ``to_json()``."""
        parts = tuple(cls.from_dict(part) for part in content.get("parts", ()))
        releases = tuple(
            (PrivacyProfile.from_dict(release), release["times"])
            for release in content.get("releases", ())
        )
        return cls(**{**content, "parts": parts, "releases": releases})

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return strict JSON; an infinite number becomes the string ``"inf"``."""
        return json.dumps(
            _finite(self.to_dict()), indent=indent, allow_nan=False, ensure_ascii=False
        )

    def to_text(self) -> str:
        """Return an aligned text, one line per quantity that applies.

        Its first line begins with SEEDED where a guarantee is void for whoever knows the seed.
        """
        return "\n".join(self._lines())

    def __str__(self):
        return self.to_text()

    def to_rows(self) -> list[tuple[str, str]]:
        """Return what :meth:`to_text` says of the whole, as pairs of a label and its text.

        Returns
        -------
        list of tuple of str
        """
        return list(self._rows())

    def _repr_html_(self) -> str:
        headline = f"(ε, δ) = ({self.epsilon:.6g}, {self.delta:.3g})"
        warning = "SEEDED: void for whoever knows the seed. " if self.is_seeded else None
        parts = [
            element("details", element("summary", part.mechanism), rows_table(part.to_rows()))
            for part in self.parts
        ]
        return notebook(
            element("div", warning and element("span", warning, class_="warn"), headline,
                    class_="headline"),
            element("div", self.mechanism),
            rows_table(self.to_rows()),
            parts,
        )  # fmt: skip

    def _lines(self, beside=()):
        seeded = "SEEDED " if self.is_seeded else ""
        yield f"{seeded}{self.mechanism}: (epsilon, delta) = ({self.epsilon:.6g}, {self.delta:.3g})"
        rows = dict(self._rows())
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
            # What a part shares with the whole is said once.
            yield from (f"  {line}" for line in part._lines(beside=rows))

    def _rows(self):
        yield "neighbours", self.neighbouring
        if self.unit is not None:
            yield "unit", f"all rows with one value in column {self.unit!r}"
        if self.public:
            yield "public", ", ".join(self.public)
        if self.sensitivity is not None:
            source = f" ({self.sensitivity_source})" if self.sensitivity_source else ""
            yield "sensitivity", f"{self.sensitivity:.6g}{source}"
        if isinstance(self.noise_scale, dict):
            scales = (f"{name}: {scale:.6g}" for name, scale in self.noise_scale.items())
            yield "noise scale", ", ".join(scales) or "none"
        elif self.noise_scale is not None:
            yield "noise scale", f"{self.noise_scale:.6g}"
        if self.noise_multiplier is not None:
            yield "noise multiplier", f"{self.noise_multiplier:.6g}"
        if self.split:
            yield "split", ", ".join(f"{name}: {part:.1%}" for name, part in self.split.items())
        yield from self.precision.items()
        yield "sampler", f"{self.sampler} (rate {self.sampling_rate:.6g})"
        yield "releases", str(self.n_releases)
        if self.ledger:
            yield "ledger", ledger_words(self.ledger)
        grid = "" if self.discretization is None else f" (grid {self.discretization:.3g})"
        yield "accountant", f"{self.accountant}{grid}"
        yield "noise source", self.noise_source
        if self.rounding is not None:
            yield (
                "rounding",
                (
                    f"{self.rounding:.2g} in total variation"
                    if self.rounding
                    else "none: exact draws"
                ),
            )
        if self.forecast:
            yield "forecast", _forecast_text(**self.forecast)
        yield "versions", ", ".join(f"{name} {version}" for name, version in self.versions.items())
        for i, caveat in enumerate(self.caveats, start=1):
            yield f"caveat {i}", caveat

    def attack_risk(self) -> AttackRisk:
        """Return what the release allows an attacker, from its privacy profile."""
        known = self.releases or math.isfinite(self.epsilon)
        return AttackRisk(self.profile() if known else None)


def _number(value, name):
    """Return a float that is neither NaN nor negative; ``"inf"`` is how JSON spells infinity."""
    if isinstance(value, bool) or not (isinstance(value, Real) or value == "inf"):
        raise TypeError(f"{name} must be a real number, got {type(value).__name__}.")
    value = float(value)
    if math.isnan(value) or value < 0:
        raise ValueError(f"{name} must be a non-negative number, got {value}.")
    return value


def _checked_ledger(ledger):
    """Return what a report says of a ledger: nothing, or the four entries."""
    if not ledger:
        return {}
    if set(ledger) != {"dataset", "charge", "epsilon", "delta"}:
        raise ValueError(f"ledger must have a dataset, charge, epsilon and delta, got {[*ledger]}.")
    if not isinstance(ledger["dataset"], str):
        raise TypeError("dataset of ledger must be a str.")
    return {
        "dataset": ledger["dataset"],
        "charge": check_count(ledger["charge"], "charge of ledger"),
        "epsilon": _number(ledger["epsilon"], "epsilon of ledger"),
        "delta": _number(ledger["delta"], "delta of ledger"),
    }


def ledger_words(ledger: dict) -> str:
    """Return in words what a report says of a ledger."""
    return (
        f"charge {ledger['charge']} of {ledger['dataset']!r}; all its charges together: "
        f"epsilon {float(ledger['epsilon']):.4g} at delta {ledger['delta']:.3g}"
    )


def _forecast_text(seconds=None, bytes=None):
    parts = []
    if seconds is not None:
        parts.append("less than a second" if seconds < 1 else f"about {_two_digits(seconds)} s")
    if bytes is not None:
        parts.append(f"about {_two_digits(bytes / 1e6)} MB of memory")
    return ", ".join(parts)


def _two_digits(value):
    return f"{float(f'{value:.2g}'):,.{0 if value >= 10 else 1}f}"


def _finite(value):
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return "inf" if isinstance(value, float) and math.isinf(value) else value
