"""Transcripts of fits, their replay on a neighbouring table, and tests of their noise."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.stats import chi2, kstest, norm

from sklearn_dpgen.utils._random import NoiseObserver, NoiseSource, observed_noise

__all__ = [
    "DivergedError",
    "Release",
    "Transcript",
    "batch_findings",
    "noise_findings",
    "scale_bounds",
]


class DivergedError(Exception):
    """A replayed fit made a release of another type or shape than the earlier fit."""


@dataclass
class Release:
    """One release: the exact values or scores, the claimed scale of noise, and the outcome.

    Parameters
    ----------
    kind : {"gaussian", "laplace", "gumbel"}
    values : ndarray
    scale : float
        Claimed scale of the noise, which the audit checks.
    outcome : ndarray
        The noisy values, with the shape of ``values``, or the selected indices.
    batches : list of (int, ndarray)
        Batches drawn since the previous release: number of records, and indices in rows.
    names : list or None
        What each value is a count of, if that depends on the records.
    """

    kind: str
    values: np.ndarray
    scale: float
    outcome: np.ndarray
    batches: list = field(default_factory=list)
    names: list | None = None

    @property
    def residuals(self) -> np.ndarray:
        """The noise over its claimed scale."""
        return (self.outcome - self.values).ravel() / self.scale


class Transcript(NoiseObserver):
    """Observer of one fit; with the transcript of another fit it repeats its outcomes.

    Parameters
    ----------
    earlier : Transcript or None, default=None
        The transcript whose batches and outcomes replace those of this fit.
    member : (int, int) or None, default=None
        Position of a batch in a release, and a record that this batch must contain.
    is_fresh : bool, default=False
        Whether to draw fresh noise. The seed of the fit then fixes its public draws alone.
    """

    def __init__(
        self,
        earlier: "Transcript | None" = None,
        member: tuple | None = None,
        *,
        is_fresh: bool = False,
    ) -> None:
        self.releases: list[Release] = []
        self.residuals: list[np.ndarray] = []
        self._batches: list = []
        self._uniforms: list = []
        self._names: list | None = None
        self._earlier = earlier
        self._member = member
        self._is_fresh = is_fresh

    def added(self, values, scale, kind, noisy):
        if self._is_fresh:
            with observed_noise(NoiseObserver()):
                noisy = self.source_like().add(values, scale, kind)
        release = Release(kind, values.copy(), scale, noisy, self._batches, self._names)
        return self._released(release)

    def named(self, names):
        self._names = list(names)

    def selected(self, scores, scale, indices):
        if self._is_fresh:
            with observed_noise(NoiseObserver()):
                indices = self.source_like().largest(scores, scale, len(indices))
        return self._released(Release("gumbel", scores.copy(), scale, indices, self._batches))

    def drawn(self, n, indices):
        position = len(self._batches)
        if self._earlier is not None:
            batches = self._now().batches
            if position >= len(batches) or batches[position][1].shape != indices.shape:
                raise DivergedError("batches of another number or size")
            indices = batches[position][1]
        elif self._member is not None and position == self._member[0]:
            indices = _with_member(indices, self._member[1])
        self._batches.append((n, indices))
        return indices

    def uniform(self, draws):
        # Public draws, such as directions, are the same in both fits.
        if self._earlier is not None and len(self._uniforms) < len(self._earlier._uniforms):
            earlier = self._earlier._uniforms[len(self._uniforms)]
            if earlier.shape == draws.shape:
                draws = earlier
            elif earlier.ndim == draws.ndim == 1 and len(draws) == len(earlier) + 1:
                # One draw for each person: the removed one was the first.
                draws = np.append(draws[:1], earlier)
        self._uniforms.append(draws)
        return draws

    def source_like(self) -> NoiseSource:
        """Return an unseeded source of the same class as that of the last release."""
        return type(self.source)()  # type: ignore[misc]  # None before the first release

    def finish(self) -> None:
        """Raise a DivergedError unless the earlier fit has the same number of releases."""
        if self._earlier is not None and len(self.releases) != len(self._earlier.releases):
            raise DivergedError("fewer releases")

    def _now(self):
        earlier = [] if self._earlier is None else self._earlier.releases
        if len(self.releases) >= len(earlier):
            raise DivergedError("more releases")
        return earlier[len(self.releases)]

    def _released(self, release):
        # The noise of a selection is not observed.
        if release.kind != "gumbel":
            self.residuals.append(release.residuals)
        own = release.names
        if self._earlier is not None:
            earlier = self._now()
            if own is not None and earlier.names is not None:
                # Compared are the values with a name in the earlier fit. One without records is 0.
                counts = dict(zip(own, release.values, strict=True))
                values = np.array([counts.get(name, 0.0) for name in earlier.names])
                release = replace(
                    release, values=values, outcome=earlier.outcome, names=earlier.names
                )
            if (release.kind, release.values.shape, release.outcome.shape) != (
                earlier.kind,
                earlier.values.shape,
                earlier.outcome.shape,
            ):
                raise DivergedError(f"release {len(self.releases)} has another type or shape")
            release.outcome = earlier.outcome
        self.releases.append(release)
        self._batches, self._names = [], None
        if own != release.names:
            # A name that the earlier fit lacks is not released: its value is below any threshold.
            outcomes = dict(zip(release.names, release.outcome, strict=True))
            return np.array([outcomes.get(name, -np.inf) for name in own])
        return release.outcome


def _with_member(indices, member):
    rows = np.atleast_2d(indices).copy()
    absent = ~(rows == member).any(axis=1)
    rows[absent, 0] = member
    return rows.reshape(indices.shape)


# Probability of a finding by a test of correct noise.
_FALSE_ALARM = 1e-7
_N_DRAWS = 2**20
_DISTRIBUTIONS = {"gaussian": "norm", "laplace": "laplace"}


def scale_bounds(transcripts: Sequence[Transcript], confidence: float) -> dict[str, float]:
    """Return upper bounds of the noise scales relative to the claimed scales.

    A million draws of each kind from the source of the releases, with their scales, are one sample;
    the residuals of the releases are another. The smaller bound is returned.

    Parameters
    ----------
    transcripts : sequence of Transcript
    confidence : float
        Joint confidence of all bounds, for draws of the ideal distribution with another scale.

    Returns
    -------
    dict of str to float
        A bound for each kind of noise.
    """
    releases = [release for t in transcripts for release in t.releases]
    kinds = sorted({release.kind for release in releases})
    source = transcripts[0].source_like()
    alpha = (1 - confidence) / (2 * max(len(kinds), 1))
    bounds = {}
    for kind in kinds:
        scales = sorted({release.scale for release in releases if release.kind == kind})
        if kind == "gumbel":
            bounds[kind] = _gumbel_bound(source, scales[0], 2 * alpha)
            continue
        samples = [_redrawn(source, kind, scales), _residuals(transcripts, releases, kind)]
        bounds[kind] = min(_scale_bound(kind, sample, alpha) for sample in samples)
    return bounds


def _redrawn(source, kind, scales):
    count = -(-_N_DRAWS // len(scales))
    return np.concatenate([source.add(np.zeros(count), s, kind) / s for s in scales])


def _residuals(transcripts, releases, kind):
    residuals_of_kind = []
    seen = [r for r in releases if r.kind != "gumbel"]
    own = [residuals for t in transcripts for residuals in t.residuals]
    for release, residuals in zip(seen, own, strict=True):
        if release.kind == kind:
            residuals_of_kind.append(residuals)
    return np.concatenate(residuals_of_kind)


def _scale_bound(kind, sample, alpha):
    if kind == "gaussian":
        return float(np.sqrt((sample**2).sum() / chi2.ppf(alpha, len(sample))))
    return float(2 * np.abs(sample).sum() / chi2.ppf(alpha, 2 * len(sample)))


def _gumbel_bound(source, scale, alpha, gap=2.0):
    """Bound the scale of Gumbel noise by the order of noisy scores of two sizes.

    The order has the partial likelihood of proportional hazards, whose log-ratio is the difference
    of the scores over the scale of the noise.
    """
    half = _N_DRAWS // 2
    scores = np.repeat([0.0, gap * scale], half)
    is_high = source.largest(scores, scale, 2 * half) >= half
    high = half - np.concatenate([[0], np.cumsum(is_high)[:-1]])
    low = half - np.concatenate([[0], np.cumsum(~is_high)[:-1]])
    ratio = gap
    for _ in range(50):
        share = high * np.exp(ratio) / (high * np.exp(ratio) + low)
        step = (is_high - share).sum() / (share * (1 - share)).sum()
        ratio += step
        if abs(step) < 1e-9:
            break
    least = ratio - norm.isf(alpha) / np.sqrt((share * (1 - share)).sum())
    return float(gap / max(least, 1e-12))


def noise_findings(transcripts: Sequence[Transcript]) -> list[str]:
    """Return faults of the noise: a wrong scale or distribution, and draws that repeat.

    Parameters
    ----------
    transcripts : sequence of Transcript
        Transcripts of fits whose noise should be independent.

    Returns
    -------
    list of str
    """
    bounds = scale_bounds(transcripts, 1 - _FALSE_ALARM)
    findings = [
        f"{kind} noise has at most {bound:.3g} of its claimed scale"
        for kind, bound in bounds.items()
        if bound < 0.98
    ]
    for kind, distribution in _DISTRIBUTIONS.items():
        if kind not in bounds:
            continue
        drawn = _redrawn(transcripts[0].source_like(), kind, [1.0])[: 2**17]
        if kstest(drawn, distribution).pvalue < _FALSE_ALARM:
            findings.append(f"{kind} noise has another distribution")
    named = []
    for i, transcript in enumerate(transcripts, 1):
        noisy = [release for release in transcript.releases if release.kind != "gumbel"]
        for position, (release, residuals) in enumerate(
            zip(noisy, transcript.residuals, strict=True), 1
        ):
            name = f"release {position} of fit {i}"
            named.append((name, residuals))
            findings += _size_findings(name, release, residuals)
    for (first, a), (second, b) in itertools.combinations(named[:60], 2):
        count = min(len(a), len(b))
        if _are_dependent(a[:count], b[:count]):
            findings.append(f"{first} and {second} share their noise")
    return findings


def _size_findings(name, release: Release, residuals):
    if release.kind == "gaussian":
        total, freedom = (residuals**2).sum(), len(residuals)
    else:
        total, freedom = 2 * np.abs(residuals).sum(), 2 * len(residuals)
    if min(chi2.cdf(total, freedom), chi2.sf(total, freedom)) < _FALSE_ALARM:
        ratio = total / freedom
        return [f"the noise of {name} has {ratio:.3g} of its claimed spread"]
    return []


def _are_dependent(a, b):
    """Return whether two samples of noise are equal or correlated."""
    if len(a) < 3:
        return False
    # Values that were rounded to a grid agree up to its step.
    if np.allclose(a, b, rtol=0, atol=2.0**-9):
        return True
    correlation = (a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum())
    return len(a) >= 100 and abs(correlation) * np.sqrt(len(a)) > norm.isf(_FALSE_ALARM / 1e3)


def batch_findings(transcripts: Sequence[Transcript]) -> list[str]:
    """Return faults of the draws of secret batches.

    Parameters
    ----------
    transcripts : sequence of Transcript
        Transcripts of fits that drew their own batches.

    Returns
    -------
    list of str
    """
    findings: set[str] = set()
    counts: dict = {}
    earlier: dict = {}
    for fit, transcript in enumerate(transcripts):
        for release in transcript.releases:
            for position, (n, indices) in enumerate(release.batches):
                rows = np.sort(np.atleast_2d(indices), axis=1)
                if rows.shape[1] >= n:
                    continue
                if (np.diff(rows, axis=1) == 0).any():
                    findings.add("a record is twice in one batch")
                key = position, n, rows.shape[1]
                counts.setdefault(key, []).append(np.bincount(rows.ravel(), minlength=n))
                counts[key][-1] = np.append(counts[key][-1], len(rows))
                if rows.shape[1] * np.log(n / rows.shape[1]) > 25:
                    for row in map(bytes, rows):
                        if row in earlier.setdefault(key, set()):
                            findings.add(f"a batch is drawn twice, in fit {fit + 1}")
                        earlier[key].add(row)
    for (_, n, size), drawn in counts.items():
        *times, n_batches = np.sum(drawn, axis=0)
        expected, rate = n_batches * size / n, size / n
        if expected < 5:
            continue
        spread = ((np.array(times) - expected) ** 2).sum() / (expected * (1 - rate)) * (n - 1) / n
        if min(chi2.cdf(spread, n - 1), chi2.sf(spread, n - 1)) < _FALSE_ALARM:
            findings.add("some records are drawn into batches more often than others")
    return sorted(findings)
