"""The audit of a local mechanism: what it releases of two extreme records, many times."""

import itertools
import math
import warnings

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.utils import _safe_indexing, check_random_state

from sklearn_dpgen.auditing._bounds import clopper_pearson
from sklearn_dpgen.auditing._neighbours import Pool, extreme_records
from sklearn_dpgen.auditing._noise import noise_findings, scale_bounds
from sklearn_dpgen.auditing._pairs import (
    DiscretePair,
    GaussianPair,
    LaplacePair,
    Pair,
    least_epsilon,
)
from sklearn_dpgen.auditing._transcript import Transcript
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.mechanisms import JointRandomizedResponse
from sklearn_dpgen.utils._random import observed_noise

__all__ = ["audit_local"]

# Of a column: up to so many values it is of categories. Noise has far more.
_MOST_VALUES, _N_LOOKED_AT, _N_CELLS = 1024, 1 << 14, 60
_N_SEARCHED = 1 << 13


def audit_local(
    mechanism, X, *, delta, confidence, candidates, n_trials, n_draws, random_state
) -> tuple:
    """Return the least ε of the two worst records found, and what was wrong.

    Additive noise is observed; of what is released as categories, one event is counted.

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
        # Events are counted anew: what is larger by chance is not taken for worse.
        if weight > best[0] * (1.03 if any(isinstance(p, DiscretePair) for p in pairs) else 1):
            best = weight, records
    if best[1] is None:
        raise PublicValueError(f"No two records could be told apart; the last error: {refused}.")
    pairs, transcript = _pairs(mechanism, pool, best[1], n_draws, 1 - confidence)
    findings = []
    if transcript.releases:
        findings = noise_findings([transcript])
    return least_epsilon(pairs, delta), "two values of one record", 2 * n_draws, findings


def _weight(pairs):
    losses = (p.mu if isinstance(p, GaussianPair) else p.largest_loss for p in pairs)
    return math.fsum(loss**2 for loss in losses)


def _pairs(mechanism, pool, records, n, alpha):
    """Return the pairs of laws of all that is released of two records, n times of each.

    Without ``alpha`` noise is of the scale that it is said to have, to compare records.
    """
    rows = _safe_indexing(pool.X, np.repeat(records, n))
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
    """Return one code a row for all columns of categories together, or None without any.

    Numbers without additive noise, such as of bins, are cut into cells.
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
    """Return one code a row for what an answer tells of two records, whatever was asked.

    The mechanism's own likelihood chooses which events are counted; the bound does not rest on it.
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
    """Return the pair of an event chosen on half of the outcomes, and counted on the others."""
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
    """Return about what the counts of an event bound the privacy loss by."""
    spread = np.sqrt(1 / (p + 1) + 1 / (q + 1))
    return np.where(p + q < 2 * n, np.log((p + 0.5) / (q + 0.5)) - 3.5 * spread, -np.inf)
