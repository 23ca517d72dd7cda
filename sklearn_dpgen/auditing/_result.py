"""The result of an audit."""

import math
import textwrap
from dataclasses import asdict, dataclass

__all__ = ["AuditResult"]

_CAVEAT = (
    "an audit computes from the records without noise: it is for records that may be shown, "
    "and its result is not private"
)


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """Result of an audit: a lower bound on the privacy loss, beside the claim.

    Parameters
    ----------
    estimator : str
        Name of the class.
    method : {"white_box", "repeated", "one_run"}
    epsilon_lower : float
        Lower bound of ε at the δ that is claimed, in nats.
    mu_lower : float
        The μ of the Gaussian mechanism that has this ε at this δ; of a pure guarantee, the μ
        whose trade-off curve has the same point of equal errors.
    confidence : float
        Of the bound, over the draws of the audit.
    claimed : dict of str to float
        ``epsilon``, ``delta``, ``mu``.
    neighbours : str
        The two tables that the bound is for, in words.
    n_releases : int
        How many releases, or outcomes, were seen.
    findings : tuple of str
        What is wrong in a way that no number tells, such as noise that is used twice.
    notes : tuple of str
        How to read the bound.
    seconds : float
        What the audit took.
    """

    estimator: str
    method: str
    epsilon_lower: float
    mu_lower: float
    confidence: float
    claimed: dict[str, float]
    neighbours: str = ""
    n_releases: int = 1
    findings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def ratio(self) -> float:
        """Audited μ over claimed μ; NaN where nothing is claimed."""
        claimed = self.claimed["mu"]
        return self.mu_lower / claimed if 0 < claimed < math.inf else math.nan

    @property
    def is_violation(self) -> bool:
        """Whether the claim is broken: the bound lies above it, or there is a finding.

        So it is where the bound is no number.
        """
        is_kept = self.epsilon_lower <= self.claimed["epsilon"] * (1 + 1e-9)
        return bool(self.findings) or not is_kept

    def to_dict(self) -> dict:
        """Return plain containers for JSON; an infinite number becomes ``"inf"``."""
        content = asdict(self) | {"ratio": self.ratio, "is_violation": self.is_violation}
        content["findings"], content["notes"] = list(self.findings), list(self.notes)
        return _plain(content)

    def to_text(self) -> str:
        """Return a text of a few lines."""
        verdict = "VIOLATION" if self.is_violation else "no violation found"
        claimed = self.claimed
        lines = [
            f"Audit of {self.estimator} ({self.method}): {verdict}",
            f"epsilon at least {self.epsilon_lower:.4g} of {claimed['epsilon']:.4g} claimed, at "
            f"delta = {claimed['delta']:.3g}",
            f"mu at least {self.mu_lower:.4g} of {claimed['mu']:.4g} claimed: ratio "
            f"{self.ratio:.3f}, with confidence {self.confidence:.6g}",
            *([f"neighbours: {self.neighbours}"] if self.neighbours else []),
            *(f"finding: {finding}" for finding in self.findings),
            *(f"note: {note}" for note in (*self.notes, _CAVEAT)),
        ]
        wrapped = (textwrap.wrap(line, 100, subsequent_indent="    ") for line in lines)
        first, *rest = (line for lines in wrapped for line in lines)
        return "\n".join([first, *(f"  {line}" for line in rest)])

    def __str__(self):
        return self.to_text()


def _plain(value):
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf"
    return value
