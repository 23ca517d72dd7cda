"""Error rates of the best attack that a privacy profile allows."""

import functools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from sklearn_dpgen.accounting._composition import ComposedProfile
from sklearn_dpgen.accounting._guarantee import Neighbours
from sklearn_dpgen.accounting._profiles import GaussianProfile, PrivacyProfile
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.utils._checks import check_count, set_fields
from sklearn_dpgen.utils._html import notebook

__all__ = ["AttackRisk"]

_FALSE_POSITIVE_RATES = (1e-3, 1e-2, 0.1)
# Beyond this ε, e^-ε is below the rounding of 1.
_REACH = 50.0
# Two Gaussian steps have ε that differ by μ². If it exceeds this, odds grow nearly always.
_STEP_REACH = 8.0
# Logarithms of likelihood ratios. What is beyond counts as found.
_RATIO_REACH, _N_RATIOS = 40.0, 8193
_N_POINTS, _N_ZOOMS = 257, 5


@dataclass(frozen=True)
class AttackRisk:
    """Error rates of the best attack on one record, or on one person, that a guarantee allows.

    The attacker sees the release, knows all other records, and tests whether the release was
    computed from the data with this record or from a neighbour without it. A false positive is a
    positive test without the record, a true positive one with it. All numbers are upper bounds over
    all attackers and all data.

    Parameters
    ----------
    profile : PrivacyProfile or None
        The privacy profile of the release; None without a guarantee.
    unit : str or None, default=None
        The column that identifies a person, if all records of a person are protected together.
        It changes only the wording.
    neighbours : Neighbours, default="replace_one"
        The neighbouring relation of the profile, which :meth:`guess_among` and :meth:`odds_exceed`
        need.
    is_local : bool, default=False
        Whether the profile is that of the answer of one person in the local model.

    See Also
    --------
    PrivacyReport.attack_risk : The risk of a report.
    sklearn_dpgen.reporting.TradeOffDisplay : The curve.

    Notes
    -----
    Let α be the probability of a positive test without the record. With it, the probability is at
    most δ(ε) + e^ε α, by definition of δ, for *each* ε of either sign. So every ε gives a valid
    bound, and so does the minimum over any set of them. The true positive rate is the infimum over
    all ε [1]_. The bound is convex in e^ε, hence unimodal, and is minimized on a sequence of grids,
    each between the neighbours of the best point of the previous one. Negative ε give the other
    half of the curve, by δ(−ε) = 1 − e^{−ε} + e^{−ε} δ(ε). For a Gaussian profile the rate is
    Φ(Φ^{-1}(α) + μ) [1]_.

    The probability of a correct guess from even odds is 1/2 + δ(0)/2 on average over the releases;
    rare releases can reveal more, with probabilities bounded by the curve.

    Let G(α) be the true positive rate at the false positive rate α. If k values of one record are
    equally likely, a guess that names value i with probability p_i where it is true has a mean s of
    the p_i. For i ≠ j, p_i is at most G of the probability of naming i where j is true, and for a
    fixed j these add up to 1 − p_j. As G is concave, s ≤ G((1 − s) / (k − 1)), with equality for
    randomized response on k values. So each ε gives the bound s ≤ (δ(ε) + c) / (1 + c) with
    c = e^ε / (k − 1).

    For the privacy loss L, δ(ε) ≥ (1 − e^{ε − c}) P(L > c) for each ε < c. So the odds grow by more
    than a factor e^c with a probability of at most the minimum of δ(ε) / (1 − e^{ε − c}).

    What is guessed decides which data sets are compared, and so which profile bounds the guess:

    - *Presence of a record*: the data with it, and without it or with another in its place. These
      are neighbours. In the local model it is the presence of a value in the record of a person.
    - *Value of a record*, where all other records are known. Records with two values replace each
      other, which is one step if neighbours differ by a replacement, and in the local model. If
      they differ by an addition or a removal, the data with either value are neighbours of the data
      without the record. If Q is the law without it, the events A_i of naming value i have
      s ≤ Σ G(Q(A_i)) / k ≤ G(1 / k), as G is concave. The odds of two values are two steps apart:
      P ≤ δ(a) + e^a R and R ≤ δ(b) + e^b Q for each event give P ≤ δ(a) + e^a δ(b) + e^{a + b} Q.
      For a Gaussian profile the least of these is the profile of 2 μ.
    - *Which record*, of several of which one is in the data and the others are not: the data with
      record i, and with record j in its place. The steps are those of two values. In the local
      model, all persons have answered, and one of them has a given value. That it is person i or
      person j differs in *two* records: i with the value and j with its own, or i with its own and
      j with the value. The k answers are independent. If person i has the value, answer i is from
      one of two neighbours, X, and the others are from the other one, Y. So s is at most the mean
      of max(L_1, ..., L_k) / k for independent likelihood ratios L_i of X against Y, drawn from Y,
      where X and Y are a pair with the profile. It has E(L − t)_+ = δ(log t), of which chords give
      a larger law in the convex order, hence a larger mean.

    A guess against several others, such as one value against all, is bounded by the same profile,
    because δ is jointly convex in both distributions.

    References
    ----------
    .. [1] J. Dong, A. Roth, W. Su, "Gaussian differential privacy", JRSS B 2022, Proposition 6 and
       Section 2.2.
    .. [2] L. Wasserman, S. Zhou, "A statistical framework for differential privacy", JASA 2010.

    Examples
    --------
    >>> from sklearn_dpgen.accounting import AttackRisk, GaussianProfile
    >>> risk = AttackRisk(GaussianProfile(0.268))
    >>> round(risk.true_positive_rate(0.01), 4)
    0.0198
    >>> round(risk.posterior(), 3)
    0.553
    """

    profile: PrivacyProfile | None
    unit: str | None = None
    neighbours: str = Neighbours.REPLACE_ONE
    is_local: bool = False

    def __post_init__(self):
        set_fields(self, neighbours=Neighbours(self.neighbours))
        profile = self.profile
        if isinstance(profile, ComposedProfile) and [n for _, n in profile.releases] == [1]:
            set_fields(self, profile=profile.releases[0][0])

    def true_positive_rate(self, fpr: ArrayLike) -> float | np.ndarray:
        """Return the largest true positive rate of an attack at given false positive rates.

        Parameters
        ----------
        fpr : float or array-like
            Share of false alarms, in [0, 1].

        Returns
        -------
        float or ndarray of the same shape
        """
        fpr = np.asarray(fpr, dtype=np.float64)
        if not ((fpr >= 0) & (fpr <= 1)).all():
            raise PublicValueError("fpr must be in [0, 1].")
        if self.profile is None:
            rate = np.ones_like(fpr)
        elif self.mu is not None:
            rate = ndtr(ndtri(fpr) + self.mu)
        else:
            rate = np.reshape(_least_rates(self.profile, tuple(fpr.ravel().tolist())), fpr.shape)
        return float(rate) if fpr.ndim == 0 else rate

    def trade_off(self, fpr: ArrayLike) -> float | np.ndarray:
        """Return the least false negative rate of an attack at given false positive rates.

        Parameters
        ----------
        fpr : float or array-like
            Share of false alarms, in [0, 1].

        Returns
        -------
        float or ndarray of the same shape
            β(α) = sup over ε of max(0, 1 − δ(ε) − e^ε α, e^{−ε} (1 − δ(ε) − α)).
        """
        return 1 - self.true_positive_rate(fpr)

    def posterior(self, prior: float = 0.5) -> float:
        """Return the largest mean probability that an attacker's guess is right.

        Parameters
        ----------
        prior : float, default=0.5
            The attacker's probability of the record before the release, in (0, 1).

        Returns
        -------
        float
            (1 − π) + π δ(log((1 − π)/π)), which is 1/2 + δ(0)/2 for π = 1/2.
        """
        if not 0 < prior < 1:
            raise PublicValueError(f"prior must be in (0, 1), got {prior!r}.")
        if self.profile is None:
            return 1.0
        return 1 - prior + prior * float(self.profile.delta(math.log((1 - prior) / prior)))

    def guess_among(self, n_values: int, what: Literal["value", "record"] = "value") -> float:
        """Return the largest probability of naming the right one of equally likely values.

        Parameters
        ----------
        n_values : int
            Number of values or records, at least 2. A guess without the release is right in
            1 / n_values of the cases.
        what : {"value", "record"}, default="value"
            What is named: a value of one record, or of the records of one person; or which one of
            several records, or persons, is in the data. In the local model the latter is which one
            of several persons has a given value.

        Returns
        -------
        float
        """
        n_values = check_count(n_values, "n_values")
        if n_values < 2:
            raise PublicValueError(f"n_values must be at least 2, got {n_values}.")
        if what not in ("value", "record"):
            raise PublicValueError(f"what must be 'value' or 'record', got {what!r}.")
        if self.profile is None:
            return 1.0

        if what == "record" and self.is_local:
            return _most_right_of_independent(self.profile, n_values)
        if self.neighbours is Neighbours.ADD_OR_REMOVE:
            return float(self.true_positive_rate(1 / n_values))
        return _most_right(self.profile, n_values)

    def odds_exceed(self, factor: float, what: Literal["value", "presence"] = "value") -> float:
        """Return a bound on the probability that an attacker's odds grow by more than a factor.

        By Bayes' rule, whatever the odds were before the release. The probability is over releases
        where the guess is true; where it is not, it is smaller.

        Parameters
        ----------
        factor : float
            Larger than 1.
        what : {"value", "presence"}, default="value"
            The guess: a value of one record against others, or that the record is in the data. The
            bounds differ if neighbours differ by an addition or a removal.

        Returns
        -------
        float
            The least δ(ε) / (1 − e^ε / factor) for 0 ≤ ε < log(factor), at most 1.
        """
        if not factor > 1:
            raise PublicValueError(f"factor must be larger than 1, got {factor!r}.")
        if what not in ("value", "presence"):
            raise PublicValueError(f"what must be 'value' or 'presence', got {what!r}.")
        if self.profile is None:
            return 1.0
        most = math.log(factor)
        epsilon = np.linspace(0, most, 512, endpoint=False)
        if what == "value" and self.neighbours is Neighbours.ADD_OR_REMOVE:
            failure = _in_two_steps(self.profile.delta, epsilon)
        else:
            failure = self.profile.delta(epsilon)
        bounds = failure / -np.expm1(epsilon - most)
        return float(min(bounds.min(), 1.0))

    @property
    def true_positive_rates(self) -> dict[float, float]:
        """True positive rates at the false positive rates 0.001, 0.01 and 0.1."""
        rates = np.asarray(self.true_positive_rate(_FALSE_POSITIVE_RATES))
        return dict(zip(_FALSE_POSITIVE_RATES, rates.tolist(), strict=True))

    @property
    def advantage(self) -> float:
        """Largest difference between true and false positive rates, δ(0)."""
        return 1.0 if self.profile is None else float(self.profile.delta(0.0))

    @property
    def mu(self) -> float | None:
        """μ of Gaussian differential privacy; None for other profiles."""
        return self.profile.mu if isinstance(self.profile, GaussianProfile) else None

    @property
    def rho(self) -> float | None:
        """ρ of zero-concentrated differential privacy, μ²/2; None if μ is None."""
        return None if self.mu is None else self.mu**2 / 2

    @property
    def _attacker(self):
        known = "all other records" if self.unit is None else "the records of all other persons"
        return f"The best attacker, who knows {known}"

    def to_text(self) -> str:
        """Return the risks as text."""
        return "\n".join(self._lines())

    def __str__(self):
        return self.to_text()

    def to_rows(self) -> list[tuple[str, str]]:
        """Return the risks as pairs of a label and a value.

        Returns
        -------
        list of tuple of str
        """
        rows = [
            (f"finds, with {_percent(fpr)} false alarms", f"at most {_percent(tpr)} of the cases")
            for fpr, tpr in self.true_positive_rates.items()
        ]
        right = f"at most {_percent(self.posterior())} of the cases"
        rows.append(("guesses right, with a prior of 50 percent", right))
        rows.append(("advantage over guessing", f"at most {_percent(self.advantage)}"))
        if self.mu is not None:
            rows.append(("Gaussian differential privacy", f"μ = {self.mu:.4g}"))
        return rows

    def _repr_html_(self) -> str:
        guess = self.posterior()
        return notebook(
            self._attacker,
            rows=self.to_rows(),
            lines=[
                ("Correct guesses without the release: 50 percent", 0.5),
                (f"Correct guesses with the release: at most {_percent(guess)}", guess),
            ],
        )

    def _lines(self):
        yield f"{self._attacker}:"
        for fpr, tpr in self.true_positive_rates.items():
            found = f"finds at most {_percent(tpr)} of the cases"
            yield f"  with {_percent(fpr)} false alarms {found}, and {_percent(fpr)} by guessing"
        right = f"guesses right in at most {_percent(self.posterior())} of the cases"
        yield f"  with a prior of 50 percent {right}"
        yield f"  has an advantage (true minus false alarms) of at most {_percent(self.advantage)}"
        if self.profile is None:
            yield "There is no guarantee."
        if self.mu is not None:
            yield (
                f"Gaussian differential privacy with mu = {self.mu:.4g}; zero-concentrated with "
                f"rho = {self.rho:.4g}"
            )


# The pages of a release ask for the same risks several times.
@functools.lru_cache(maxsize=64)
def _least_rates(profile, rates):
    """Return the minimum of δ(ε) + e^ε α over ε of either sign, for each α of a tuple."""
    fpr = np.array(rates)
    low = np.full_like(fpr, -_REACH)
    # A larger ε gives more than 1.
    high = -np.log(np.maximum(fpr, np.finfo(np.float64).tiny))
    rate = np.ones_like(fpr)
    rows = np.arange(len(fpr))
    for _ in range(_N_ZOOMS):
        epsilon = np.linspace(low, high, _N_POINTS, axis=1)
        values = profile.delta(epsilon) + np.exp(epsilon) * fpr[:, None]
        best = values.argmin(axis=1)
        rate = np.minimum(rate, values[rows, best])
        low = epsilon[rows, np.maximum(best - 1, 0)]
        high = epsilon[rows, np.minimum(best + 1, _N_POINTS - 1)]
    return tuple(rate.tolist())


@functools.lru_cache(maxsize=64)
def _most_right(profile, n_values):
    """Return the minimum of (δ(ε) + c) / (1 + c) for c = e^ε / (k − 1)."""
    # Beyond it, the bound is above 0.99.
    low, high = 0.0, math.log(100 * (n_values - 1))
    least = 1.0
    for _ in range(_N_ZOOMS):
        epsilon = np.linspace(low, high, _N_POINTS)
        share = np.exp(epsilon) / (n_values - 1)
        bounds = (profile.delta(epsilon) + share) / (1 + share)
        best = int(bounds.argmin())
        least = min(least, float(bounds[best]))
        low, high = epsilon[max(best - 1, 0)], epsilon[min(best + 1, _N_POINTS - 1)]
    return least


@functools.lru_cache(maxsize=64)
def _most_right_of_independent(profile, n_values):
    """Return a bound on the mean of max(L_1, ..., L_k) / k with E(L − t)_+ = δ(log t)."""
    epsilon = np.linspace(-_RATIO_REACH, _RATIO_REACH, _N_RATIOS)
    ratios = np.concatenate([[0.0], np.exp(epsilon)])
    means = np.concatenate([[1.0], profile.delta(epsilon)])
    widths = np.diff(ratios)
    # The share of L above each cell of a chord. What exceeds the last ratio is always found.
    above = np.clip(-np.diff(means) / widths, 0.0, 1.0)
    with np.errstate(divide="ignore"):
        largest = -np.expm1(n_values * np.log1p(-above))
    return float(min(widths @ largest / n_values + means[-1], 1.0))


def _in_two_steps(delta, epsilon):
    """Return the minimum of δ(a) + e^a δ(ε − a) over a, for each ε of a flat array.

    The second term is the perspective of a convex function: the sum is convex in e^a.
    """
    low, high = np.full_like(epsilon, -_STEP_REACH), epsilon + _STEP_REACH
    least, rows = np.ones_like(epsilon), np.arange(len(epsilon))
    # Three zooms place the minimum within 1e-5, and each is dear for a composition.
    for _ in range(3):
        first = np.linspace(low, high, _N_POINTS, axis=1)
        values = delta(first) + np.exp(first) * delta(epsilon[:, None] - first)
        best = values.argmin(axis=1)
        least = np.minimum(least, values[rows, best])
        low = first[rows, np.maximum(best - 1, 0)]
        high = first[rows, np.minimum(best + 1, _N_POINTS - 1)]
    return least


def _percent(share):
    # Rounded up, because the shares are upper bounds; round numbers stay as they are.
    return f"{math.ceil(1e4 * share - 1e-6) / 1e2:g} percent"
