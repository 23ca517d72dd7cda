"""audit: a lower bound on the privacy loss of an estimator."""

import time
import warnings

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone

from sklearn_dpgen.accounting import GaussianProfile
from sklearn_dpgen.accounting._checks import check_choice
from sklearn_dpgen.auditing._local import audit_local
from sklearn_dpgen.auditing._noise import batch_findings, noise_findings, scale_bounds
from sklearn_dpgen.auditing._pairs import equivalent_mu, least_epsilon
from sklearn_dpgen.auditing._result import AuditResult
from sklearn_dpgen.auditing._runs import one_run, repeated
from sklearn_dpgen.auditing._white_box import WhiteBox
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.mechanisms import Mechanism
from sklearn_dpgen.utils._source_and_target import known_labels

__all__ = ["audit"]

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

    An audit of a real table is itself not private: it computes from the records without noise,
    and what it returns depends on them. It is for tests, and for tables that may be shown.

    Parameters
    ----------
    estimator : estimator
        Central private estimator, or a local mechanism; a clone of it is fitted, without its
        ledger.
    X : array-like or data frame of shape (n_samples, n_features)
        A table that it takes; of its rows and ranges neighbouring tables are made.
    y : array-like of shape (n_samples,), optional
    sensitive_features : array-like of shape (n_samples,), optional
    method : {"white_box", "repeated", "one_run"}, default="white_box"
        "white_box" observes all releases of a fit, and those of a fit on a neighbouring table with
        the same batches and outcomes: what a record moves in each is known exactly, and the noise
        that hides it is measured. "repeated" fits many times on two neighbouring tables and tells
        them apart by the released vectors. "one_run" replaces many records in one fit, each by a
        fair coin, and guesses the coins. The last two are for estimators, not for mechanisms.
    candidates : like X, optional
        Records to replace others by. None takes corners of the ranges of ``X``, and records far
        outside of them, which the estimator has to clip.
    confidence : float, default=0.999
        Of the bound, over the noise that was drawn to measure its scale.
    n_trials : int, default=40
        How many pairs of neighbours are compared; the worst is kept.
    n_transcripts : int, default=3
        On how many fresh fits the worst neighbours are compared again; the least bound counts.
    n_draws : int, optional
        How many releases of each of two records a local mechanism makes, 2¹⁹ by default; of
        "repeated", how many fits on each of two tables, 500 by default.
    n_canaries : int, default=100
        How many records "one_run" replaces or not, at most.
    random_state : int, RandomState or None, default=None
        Of the search.

    Returns
    -------
    AuditResult

    Raises
    ------
    ValueError
        No neighbours could be told apart, or the estimator refuses ``X``.

    Notes
    -----
    Neighbours are those of the estimator's claim, ``privacy_``: one record is replaced, within its
    group where sizes of groups are public, or one is added. The scale of noise is bounded from
    above by the residuals of releases and by fresh draws of their source. Gaussian releases
    compose to μ² = Σ ‖shift‖²/σ²; others numerically, with losses rounded down. Where batches are
    secret, the pair of laws is that of mixtures with the record in the batch and out of it, exact
    where all other records are alike. What a release moves by may depend on the outcomes before
    it: then the bound is for the transcripts that were drawn [1]_.

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
    # Not read by "one_run".
    n_draws = _N_DRAWS.get(method, 0) if n_draws is None else n_draws
    started = time.perf_counter()
    X = X if isinstance(X, pd.DataFrame) else np.asarray(X)
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
        found = {"epsilon": epsilon, "neighbours": neighbours, "n_releases": n_releases}
        return _result(estimator, method, claim, confidence, started, findings=findings, **found)
    claim = _claim(estimator, X, y, sensitive_features)
    replaceable = None
    if "source records and their labels" in claim.public:
        replaceable = ~known_labels(np.asarray(y))
    search = WhiteBox(
        estimator,
        X,
        y,
        sensitive_features,
        claim=claim,
        replaceable=replaceable,
        candidates=candidates,
        n_trials=n_trials,
        random_state=random_state,
    )
    unaltered = search.unaltered()
    if not unaltered[0].releases:
        raise PublicValueError(
            "Nothing was seen to be released with noise: there is nothing to audit."
        )
    bounds = scale_bounds(unaltered, confidence)
    findings = noise_findings(unaltered) + batch_findings(unaltered)
    found = {"n_releases": len(unaltered[0].releases), "findings": findings}
    settings = {"delta": claim.delta, "alpha": 1 - confidence}
    if method == "one_run":
        epsilon, mu = one_run(search, n_canaries=n_canaries, **settings)
        found["neighbours"] = f"{n_canaries} records at most, each replaced by a fair coin"
    else:
        neighbours = search.search(search.batch_places(unaltered[0]), bounds)
        found["neighbours"] = neighbours.words
        if method == "repeated":
            epsilon, mu = repeated(search, neighbours, n_runs=n_draws, **settings)
        else:
            epsilon, mu = np.inf, None
            for _ in range(n_transcripts):
                pairs = search.pairs(neighbours, bounds)
                epsilon = min(epsilon, least_epsilon(pairs, claim.delta))
    if mu and all(isinstance(p, GaussianProfile) for p, _ in claim.releases):
        # The claim is of a trade-off curve, which bounds more than one point of it does.
        epsilon, found["mu"] = max(epsilon, GaussianProfile(mu).epsilon(claim.delta)), mu
    return _result(estimator, method, claim, confidence, started, epsilon=epsilon, **found)


def _result(estimator, method, claim, confidence, started, *, epsilon, mu=0.0, **found):
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
        neighbours=found["neighbours"],
        n_releases=found["n_releases"],
        findings=tuple(found["findings"]),
        seconds=time.perf_counter() - started,
    )


def _claim(estimator, X, y, sensitive_features):
    fitted = clone(estimator)
    beside = {} if sensitive_features is None else {"sensitive_features": sensitive_features}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted.fit(X, *([] if y is None else [y]), **beside)
    return fitted.privacy_
