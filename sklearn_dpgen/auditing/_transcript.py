"""What a fit released, and the same fit on a neighbour, made to release the same again."""

from dataclasses import dataclass, field

import numpy as np

from sklearn_dpgen.utils._random import NoiseObserver, NoiseSource, observed_noise

__all__ = ["DivergedError", "Release", "Transcript"]


class DivergedError(Exception):
    """A fit that released the same before went on to release something of another form."""


@dataclass
class Release:
    """One release: what noise was added to, or selected by, and what came out.

    Parameters
    ----------
    kind : {"gaussian", "laplace", "gumbel"}
    values : ndarray
    scale : float
        What the noise was said to be; to be checked.
    outcome : ndarray
        Of the same shape as ``values``, or indices.
    batches : list of (int, ndarray)
        Drawn since the release before: out of how many, and which, in rows.
    """

    kind: str
    values: np.ndarray
    scale: float
    outcome: np.ndarray
    batches: list = field(default_factory=list)

    @property
    def residuals(self) -> np.ndarray:
        """Return the noise over its scale, as it was said to be."""
        return (self.outcome - self.values).ravel() / self.scale


class Transcript(NoiseObserver):
    """Observer of one fit; with the transcript of another fit it repeats its outcomes.

    Parameters
    ----------
    earlier : Transcript or None, default=None
        Whose batches and outcomes are put in the place of this fit's.
    member : (int, int) or None, default=None
        Which of the batches of a release, and which index in it, is made to be there.
    is_fresh : bool, default=False
        Whether noise is drawn anew: a seed of the fit then fixes its public draws alone.
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
        self._earlier = earlier
        self._member = member
        self._is_fresh = is_fresh

    def added(self, values, scale, kind, noisy):
        if self._is_fresh:
            with observed_noise(NoiseObserver()):
                noisy = self.source_like().add(values, scale, kind)
        return self._released(Release(kind, values.copy(), scale, noisy, self._batches))

    def selected(self, scores, scale, indices):
        if self._is_fresh:
            with observed_noise(NoiseObserver()):
                indices = self.source_like().largest(scores, scale, len(indices))
        return self._released(Release("gumbel", scores.copy(), scale, indices, self._batches))

    def drawn(self, n, indices):
        place = len(self._batches)
        if self._earlier is not None:
            batches = self._now().batches
            if place >= len(batches) or batches[place][1].shape != indices.shape:
                raise DivergedError("batches of another number or size")
            indices = batches[place][1]
        elif self._member is not None and place == self._member[0]:
            indices = _with_member(indices, self._member[1])
        self._batches.append((n, indices))
        return indices

    def uniform(self, draws):
        # Public draws, such as directions, are the same in both fits.
        if self._earlier is not None and len(self._uniforms) < len(self._earlier._uniforms):
            earlier = self._earlier._uniforms[len(self._uniforms)]
            draws = earlier if earlier.shape == draws.shape else draws
        self._uniforms.append(draws)
        return draws

    def source_like(self) -> NoiseSource:
        """Return a source of the kind of the last release's, without a seed."""
        return type(self.source)()  # type: ignore[misc]  # None before the first release

    def finish(self) -> None:
        """Raise a DivergedError unless as much was released as in the earlier fit."""
        if self._earlier is not None and len(self.releases) != len(self._earlier.releases):
            raise DivergedError("fewer releases")

    def _now(self):
        earlier = [] if self._earlier is None else self._earlier.releases
        if len(self.releases) >= len(earlier):
            raise DivergedError("more releases")
        return earlier[len(self.releases)]

    def _released(self, release):
        # Of a selection no noise is seen.
        if release.kind != "gumbel":
            self.residuals.append(release.residuals)
        if self._earlier is not None:
            earlier = self._now()
            if (release.kind, release.values.shape, release.outcome.shape) != (
                earlier.kind,
                earlier.values.shape,
                earlier.outcome.shape,
            ):
                raise DivergedError(f"release {len(self.releases)} of another kind or size")
            release.outcome = earlier.outcome
        self.releases.append(release)
        self._batches = []
        return release.outcome


def _with_member(indices, member):
    rows = np.atleast_2d(indices).copy()
    absent = ~(rows == member).any(axis=1)
    rows[absent, 0] = member
    return rows.reshape(indices.shape)
