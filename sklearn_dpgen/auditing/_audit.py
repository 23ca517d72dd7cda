"""Lower bounds on the privacy loss of estimators and local mechanisms."""

import itertools
import math
import textwrap
import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state

from sklearn_dpgen.accounting import GaussianProfile
from sklearn_dpgen.auditing._bounds import (
    DiscretePair,
    GaussianPair,
    LaplacePair,
    Pair,
    clopper_pearson,
    equivalent_mu,
    least_epsilon,
)
from sklearn_dpgen.auditing._pools import Pool, extreme_records
from sklearn_dpgen.auditing._transcript import (
    Transcript,
    batch_findings,
    noise_findings,
    scale_bounds,
)
from sklearn_dpgen.auditing._white_box import WhiteBox, one_run, repeated
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.mechanisms import JointRandomizedResponse, Mechanism
from sklearn_dpgen.utils._random import observed_noise
from sklearn_dpgen.utils._validation import check_choice, take_rows

__all__ = ["AuditResult", "audit"]

_CAVEAT = (
    "an audit computes from the records without noise, so its result is not private: use records "
    "that are public or made up"
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
        Lower bound of ε at the claimed δ, in nats.
    mu_lower : float
        The μ of the Gaussian mechanism that has this ε at this δ; for a pure guarantee, the μ
        whose trade-off curve has the same point of equal errors.
    confidence : float
        Confidence of the bound, over the draws of the audit.
    claimed : dict of str to float
        ``epsilon``, ``delta``, ``mu``.
    neighbours : str
        Description of the two tables that the bound compares.
    n_releases : int
        Number of observed releases, or outcomes.
    findings : tuple of str
        Faults that the bound does not show, such as noise that is used twice.
    notes : tuple of str
        Remarks on the bound.
    seconds : float
        Duration of the audit.
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
        """Audited μ over claimed μ; NaN without a claim."""
        claimed = self.claimed["mu"]
        return self.mu_lower / claimed if 0 < claimed < math.inf else math.nan

    @property
    def is_violation(self) -> bool:
        """Whether the claim is broken: the bound exceeds it or is NaN, or there is a finding."""
        is_kept = self.epsilon_lower <= self.claimed["epsilon"] * (1 + 1e-9)
        return bool(self.findings) or not is_kept

    def to_dict(self) -> dict:
        """Return plain containers for JSON; an infinite number becomes ``"inf"``."""
        content = asdict(self) | {"ratio": self.ratio, "is_violation": self.is_violation}
        content["findings"], content["notes"] = list(self.findings), list(self.notes)
        return _plain(content)

    def to_text(self) -> str:
        """Return the result as a text of a few lines."""
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


_UNDERPRICED = "for some draws, one {} changes the releases by more than they were priced for"
_N_AVERAGED = 10
_CONFIDENCE_OF_SCALES = 1 - 1e-6
_METHODS = ("white_box", "repeated", "one_run")
_N_DRAWS = {"white_box": 2**19, "repeated": 500}


def audit(
    estimator: BaseEstimator,
    X: ArrayLike | pd.DataFrame,
    y: ArrayLike | None = None,
    *,
    sensitive_features: ArrayLike | None = None,
    method: str = "white_box",
    candidates: ArrayLike | pd.DataFrame | None = None,
    confidence: float = 0.999,
    n_trials: int = 40,
    n_transcripts: int = 3,
    n_draws: int | None = None,
    n_canaries: int = 100,
    random_state: int | np.random.RandomState | None = None,
) -> AuditResult:
    """Bound the privacy loss of an estimator from below, and compare it with the claim.

    An audit computes from the records without noise, and **its result is not private**: use tables
    that are public or made up.

    Parameters
    ----------
    estimator : estimator
        A central private estimator or a local mechanism. Clones of it are fitted, without its
        ledger.
    X : array-like or data frame of shape (n_samples, n_features), or mapping of data frames
        A table, or several ones by their names, that the estimator accepts. Its rows and ranges
        supply the neighbouring tables. If the report of the estimator names a unit, each table has
        its column, and a person with all rows, in all tables, takes the place of a record.
    y : array-like of shape (n_samples,), optional
    sensitive_features : array-like of shape (n_samples,), optional
    method : {"white_box", "repeated", "one_run"}, default="white_box"
        "white_box" observes all releases of a fit, and of a fit on a neighbouring table with the
        same batches and outcomes: the shift by one record is known exactly, and the scale of the
        noise is measured. "repeated" fits many times on two neighbouring tables and classifies the
        released vectors. "one_run" replaces many records in one fit, each by a fair coin, and
        guesses the coins. The last two are for estimators, not for mechanisms.
    candidates : like X, optional
        Records that replace others, or persons: all rows with one value of the unit. None takes
        corners of the ranges of ``X``, and records far outside of them, which the estimator must
        clip; for persons with 1, 2 and 500 of such rows, equal and unequal ones, and nulls.
    confidence : float, default=0.999
        Confidence of the bound, over the noise that was drawn to measure its scale. The scales of
        releases that are observed have a confidence of at least 0.999999.
    n_trials : int, default=40
        Number of pairs of neighbours to compare; the worst is kept.
    n_transcripts : int, default=3
        Number of fresh fits on which the worst neighbours are compared again; the smallest bound
        is returned.
    n_draws : int, optional
        Number of releases of each of two records by a local mechanism, 2¹⁹ by default; for
        "repeated", number of fits on each of two tables, 500 by default.
    n_canaries : int, default=100
        Largest number of records that "one_run" may replace.
    random_state : int, RandomState or None, default=None
        Seed of the search.

    Returns
    -------
    AuditResult

    Raises
    ------
    ValueError
        No neighbours could be distinguished, or the estimator refuses ``X``.

    Notes
    -----
    The neighbouring relation and its unit are those of ``privacy_``: one record is replaced, within
    its group if the sizes of groups are public, or one is removed. With a unit, all rows of one
    person are, in all tables. The scale of the noise is bounded from above by the residuals of
    releases and by fresh draws from their source. Gaussian releases compose to μ² = Σ ‖shift‖²/σ²,
    other releases numerically, with losses rounded down. If batches are secret, the two
    distributions are mixtures with the record in the batch and out of it, exact if all other
    records are equal. If the shift of a release depends on earlier outcomes, the bound holds for
    the transcripts that were drawn [1]_.

    Of counts that are released above a threshold, as those of labels of open columns, all are
    compared, also below it. The probability that a label of one record passes is a part of δ and is
    not measured.

    If a mechanism draws one row of each person, both neighbours draw the same rows of all other
    persons. The bound then holds for the rows that were drawn, and for any where the rows of each
    person are equal. It is a finding if on any transcript of the search the releases differ by more
    than they were priced for.

    References
    ----------
    .. [1] M. Nasr, J. Hayes, T. Steinke, B. Balle, F. Tramèr, M. Jagielski, N. Carlini and
       A. Terzis, "Tight auditing of differentially private machine learning", USENIX Security
       2023, section 4.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpgen.domains import Box
    >>> from sklearn_dpgen.auditing import audit
    >>> from sklearn_dpgen.moments import MomentSampler
    >>> X = np.random.default_rng(0).uniform(size=(200, 2))
    >>> sampler = MomentSampler(domain=Box(0, 1, n_features=2), epsilon=1.0, delta=1e-4)
    >>> result = audit(sampler, X)
    >>> result.is_violation
    False
    """
    check_choice(method, "method", _METHODS)
    # The method "one_run" has no use for it.
    n_draws = _N_DRAWS.get(method, 0) if n_draws is None else n_draws
    started = time.perf_counter()
    X = X if isinstance(X, pd.DataFrame | Mapping) else np.asarray(X)
    if isinstance(estimator, Mechanism):
        if method != "white_box":
            raise PublicValueError(
                f"method must be 'white_box' for local mechanisms, got {method!r}."
            )
        claim = _claim(estimator, X, None, None)
        epsilon, neighbours, n_releases, findings = audit_local(
            estimator,
            X,
            delta=claim.delta,
            confidence=confidence,
            candidates=candidates,
            n_trials=n_trials,
            n_draws=n_draws,
            random_state=random_state,
        )
        fields = {"epsilon": epsilon, "neighbours": neighbours, "n_releases": n_releases}
        return _result(estimator, method, claim, confidence, started, findings=findings, **fields)
    claim = _claim(estimator, X, y, sensitive_features)
    search = WhiteBox(
        estimator,
        X,
        y,
        sensitive_features,
        claim=claim,
        candidates=candidates,
        n_trials=n_trials,
        random_state=random_state,
    )
    unaltered = search.unaltered()
    if not unaltered[0].releases:
        raise PublicValueError("estimator must release noisy values, and no release was observed.")
    # The draws are so many that more confidence in the scale takes less than half a percent of the
    # bound. With less, one in a thousand audits of an intact estimator would be a violation.
    bounds = scale_bounds(unaltered, max(confidence, _CONFIDENCE_OF_SCALES))
    findings = noise_findings(unaltered) + batch_findings(unaltered)
    fields = {"n_releases": len(unaltered[0].releases), "findings": findings}
    settings = {"delta": claim.delta, "alpha": 1 - confidence}
    if method == "one_run":
        epsilon, mu = one_run(search, n_canaries=n_canaries, **settings)
        fields["neighbours"] = f"{n_canaries} {search.noun}s at most, each changed by a fair coin"
    else:
        neighbours = search.search(search.batch_positions(unaltered[0]), bounds)
        fields["neighbours"] = neighbours.words
        if least_epsilon(search.worst, claim.delta) > claim.epsilon * (1 + 1e-9):
            findings.append(_UNDERPRICED.format(search.noun))
        if method == "repeated":
            epsilon, mu = repeated(search, neighbours, n_runs=n_draws, **settings)
        else:
            # One draw of directions may cost more than the claim, which averages over them.
            n_fits = max(n_transcripts, _N_AVERAGED if search.is_averaged else 1)
            pairs = (search.pairs(neighbours, bounds) for _ in range(n_fits))
            epsilons = sorted(least_epsilon(own, claim.delta) for own in pairs)
            epsilon, mu = epsilons[n_fits // 4 if search.is_averaged else 0], None
    if mu and all(isinstance(p, GaussianProfile) for p, _ in claim.releases):
        # A Gaussian claim bounds the whole trade-off curve, not one point of it.
        epsilon, fields["mu"] = max(epsilon, GaussianProfile(mu).epsilon(claim.delta)), mu
    return _result(estimator, method, claim, confidence, started, epsilon=epsilon, **fields)


def _result(estimator, method, claim, confidence, started, *, epsilon, mu=0.0, **fields):
    return AuditResult(
        estimator=type(estimator).__name__,
        method=method,
        epsilon_lower=float(epsilon),
        mu_lower=max(mu, equivalent_mu(epsilon, claim.delta)),
        confidence=confidence,
        claimed={
            "epsilon": claim.epsilon,
            "delta": claim.delta,
            "mu": equivalent_mu(claim.epsilon, claim.delta),
        },
        neighbours=fields["neighbours"],
        n_releases=fields["n_releases"],
        findings=tuple(fields["findings"]),
        seconds=time.perf_counter() - started,
    )


def _claim(estimator, X, y, sensitive_features):
    fitted = clone(estimator)
    beside = {} if sensitive_features is None else {"sensitive_features": sensitive_features}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted.fit(X, *([] if y is None else [y]), **beside)
    return fitted.privacy_


# A column with more distinct values has additive noise, and is not categorical.
_MOST_VALUES, _N_LOOKED_AT, _N_CELLS = 1024, 1 << 14, 60
_N_SEARCHED = 1 << 13


def audit_local(
    mechanism, X, *, delta, confidence, candidates, n_trials, n_draws, random_state
) -> tuple:
    """Return a lower bound of ε for the worst two records found, and the findings.

    Additive noise is observed. For released categories the probability of one event is estimated.

    Returns
    -------
    epsilon : float
    neighbours : str
    n_draws : int
    findings : list of str
    """
    rng = check_random_state(random_state)
    mechanism = clone(mechanism).set_params(ledger=None, random_state=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mechanism.fit(X)
    candidates = extreme_records(X, rng) if candidates is None else candidates
    pool = Pool(X, None, None, candidates)
    best, refused = (0.0, None), None
    others = list(itertools.permutations(pool.candidates, 2))
    rng.shuffle(others)
    starts = [(pool.candidates[0], pool.candidates[-1]), *others]
    for trial in range(n_trials):
        records = starts[trial] if trial < min(len(starts), n_trials // 2) else None
        if records is None:
            records = [
                pool.varied(r, rng) if rng.uniform() < 0.6 else r for r in best[1] or starts[0]
            ]
        try:
            pairs, _ = _pairs(mechanism, pool, records, _N_SEARCHED, None)
        except ValueError as error:
            refused = error
            continue
        weight = least_epsilon(pairs, 0.0) if delta == 0 else _weight(pairs)
        # Counts of events are random: a slightly larger weight may be chance.
        if weight > best[0] * (1.03 if any(isinstance(p, DiscretePair) for p in pairs) else 1):
            best = weight, records
    if best[1] is None:
        raise PublicValueError(f"No two records could be distinguished; the last error: {refused}.")
    pairs, transcript = _pairs(mechanism, pool, best[1], n_draws, 1 - confidence)
    findings = []
    if transcript.releases:
        findings = noise_findings([transcript])
    return least_epsilon(pairs, delta), "two values of one record", 2 * n_draws, findings


def _weight(pairs):
    losses = (p.mu if isinstance(p, GaussianPair) else p.largest_loss for p in pairs)
    return math.fsum(loss**2 for loss in losses)


def _pairs(mechanism, pool, records, n, alpha):
    """Return the pairs of distributions of n releases of each of two records.

    Without ``alpha`` the noise is assumed to have its claimed scale, to compare records.
    """
    rows = take_rows(pool.X, np.repeat(records, n))
    if isinstance(rows, pd.DataFrame):
        rows = rows.reset_index(drop=True)
    transcript = Transcript()
    with warnings.catch_warnings(), observed_noise(transcript):
        warnings.simplefilter("ignore")
        released = mechanism.transform(rows)
    is_bound = alpha is not None and transcript.releases
    bounds = scale_bounds([transcript], 1 - alpha / 2) if is_bound else {}
    alpha = 0.5 if alpha is None else alpha
    pairs: list[Pair] = []
    for release in transcript.releases:
        values = release.values.reshape(2 * n, -1)
        shift = (values[0] - values[n]) / (release.scale * bounds.get(release.kind, 1.0))
        if release.kind == "gaussian":
            pairs.append(GaussianPair(float(np.linalg.norm(shift))))
        else:
            pairs += [LaplacePair(float(s)) for s in np.abs(shift) if s > 0]
    if isinstance(mechanism, JointRandomizedResponse):
        outcomes = _likelihood_ratios(mechanism, rows.iloc[[0, n]], released)
    else:
        outcomes = _outcomes(pd.DataFrame(released), cut=not transcript.releases)
    if outcomes is not None:
        pairs.append(_event_pair(outcomes[:n], outcomes[n:], alpha / 2))
    return pairs, transcript


def _outcomes(released, *, cut):
    """Return one code for each row from all categorical columns, or None without any.

    Numbers without additive noise, such as centres of bins, are cut into cells.
    """
    codes = None
    for name in released:
        column = released[name]
        if column.iloc[:_N_LOOKED_AT].nunique(dropna=False) > _MOST_VALUES:
            if not cut:
                continue
            column = pd.qcut(column, _N_CELLS, duplicates="drop")
        own = pd.factorize(column, use_na_sentinel=False)[0]
        codes = own if codes is None else pd.factorize(codes * (own.max() + 1) + own)[0]
    return codes


def _likelihood_ratios(mechanism, records, released):
    """Return one code for each row: its likelihood ratio of the two records.

    The mechanism's likelihood chooses the events to count; the bound does not rely on it.
    """
    import torch

    points = torch.as_tensor(np.asarray(mechanism.encoder_.transform(records)))
    ratios = []
    for start in range(0, len(released), _N_LOOKED_AT):
        part = mechanism.encode_release(released.iloc[start : start + _N_LOOKED_AT])
        log_p = mechanism.log_likelihood(points.double(), torch.as_tensor(part))
        ratios.append((log_p[0] - log_p[1]).numpy())
    return pd.factorize(np.concatenate(ratios).round(6))[0]


def _event_pair(first, second, alpha):
    """Return the pair of an event that half of the outcomes choose and the others estimate."""
    n = len(first) // 2
    size = max(first.max(), second.max()) + 1
    p, q = (np.bincount(codes[:n], minlength=size) for codes in (first, second))
    order = np.argsort(-(p + 0.5) / (q + 0.5))
    ratios = _bound_ratio(np.cumsum(p[order]), np.cumsum(q[order]), n)
    chosen = order[: int(np.argmax(ratios)) + 1]
    hits = [int(np.isin(codes[n:], chosen).sum()) for codes in (first, second)]
    rest = len(first) - n
    at_least = clopper_pearson(hits[0], rest, alpha / 2)[0]
    at_most = clopper_pearson(hits[1], rest, alpha / 2)[1]
    return DiscretePair.of_event(at_least, at_most)


def _bound_ratio(p, q, n):
    """Return an approximate lower bound of the privacy loss from counts of events."""
    spread = np.sqrt(1 / (p + 1) + 1 / (q + 1))
    return np.where(p + q < 2 * n, np.log((p + 0.5) / (q + 0.5)) - 3.5 * spread, -np.inf)
