"""Noisy releases of records as distributions on lines, and the distance of points to them."""

import math
from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import cached_property
from typing import cast

import numpy as np
import torch
from scipy.special import ndtr
from tqdm import tqdm

from sklearn_dpgen.accounting import ProjectionLaw
from sklearn_dpgen.ledger._unit import Persons
from sklearn_dpgen.mechanisms import StratifiedGaussianMechanism
from sklearn_dpgen.mechanisms._sampled import StratifiedGaussianRun
from sklearn_dpgen.nn._generators import ACTIVATIONS
from sklearn_dpgen.ot import random_directions
from sklearn_dpgen.ot._lines import LineGrid, SmoothedLines
from sklearn_dpgen.ot._sliced import wasserstein_lines
from sklearn_dpgen.utils._labels import check_proportions
from sklearn_dpgen.utils._random import NoiseSource, torch_generator
from sklearn_dpgen.utils._torch import as_array, as_tensor
from sklearn_dpgen.utils._validation import Integral, Interval, Real, StrOptions

__all__ = [
    "CHUNK_ENTRIES",
    "RELEASE_CONSTRAINTS",
    "STEP_DIRECTIONS",
    "ClassRecords",
    "ProjectedBatches",
    "ReleasedLaws",
    "count_lines",
    "count_releases",
    "normal_laws",
    "projected_laws",
    "release_laws",
    "released_proportions",
]

RELEASE_CONSTRAINTS = {
    "activation": [StrOptions(set(ACTIVATIONS))],
    "n_projections": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
    "directions": [StrOptions({"orthogonal", "independent"})],
    "shape_weight": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
    "n_epochs": [Interval(Real, 0, None, closed="neither")],
}

# Values released at a time.
CHUNK_ENTRIES = 2**21
# Directions of one step, at most, if they are more.
STEP_DIRECTIONS = 100
# Directions of all steps together where they are chosen here.
_FEWEST_DIRECTIONS, _MOST_DIRECTIONS = 64, 2000
# Of the covariance of a class, largest eigenvalue to expect, in units of the squared radius.
_LARGEST_VARIANCE = 0.1
# Of a grid for laws without noise, whose narrowest smoothing is 16 / (n_bins - 80) of the radius.
_N_BINS = 256
# As many values a law in closed form counts for: what is rarer than one of them has no pull.
_N_VALUES = 1e5


@dataclass(frozen=True)
class ClassRecords:
    """Centered records with their classes, and how they are laid out in a release.

    Parameters
    ----------
    records : ndarray of float64 of shape (n, d)
    codes : ndarray of int of shape (n,)
        The class of each, 0 .. n_classes - 1.
    n_classes : int
    is_public : bool
        Public classes: each is a stratum, with slots of its own in a release. Private classes:
        one stratum, and every record has a slot of d values for each class, all but that of its
        own class 0.
    persons : Persons or None, default=None
        Of whom the records are, where a batch is one of persons.
    """

    records: np.ndarray
    codes: np.ndarray
    n_classes: int
    is_public: bool
    persons: Persons | None = None

    @cached_property
    def member_codes(self):
        """The class of each member: of records, or of persons of whom each has rows."""
        return self.codes if self.persons is None else self.persons.shared(self.codes, "class")

    @cached_property
    def members(self):
        """Who is in each stratum: records, or persons."""
        if self.is_public:
            return [np.flatnonzero(self.member_codes == code) for code in range(self.n_classes)]
        return [np.arange(len(self.member_codes))]

    def rows(self, drawn, noise):
        """Return the rows of a batch: of each person one, drawn anew.

        Parameters
        ----------
        drawn : list of ndarray of int
            For each stratum positions within it.
        noise : NoiseSource
            The draw is secret.

        Returns
        -------
        list of ndarray of int
        """
        picked = [who[positions] for who, positions in zip(self.members, drawn, strict=True)]
        if self.persons is None:
            return picked
        return [self.persons.draw(noise, who) for who in picked]

    def layout(self, drawn):
        """Return what is released of batches, before noise.

        Parameters
        ----------
        drawn : list of ndarray of int of shape (n_releases, batch_size)
            For each stratum positions within it.

        Returns
        -------
        list of ndarray
            For public classes one of shape (n_releases * batch_size, d) a class; for private ones
            a single one of shape (n_releases * batch_size, n_classes * d).
        """
        parts = [
            self.records[rows[positions.ravel()]]
            for rows, positions in zip(self.members, drawn, strict=True)
        ]
        if self.is_public:
            return parts
        (batch,) = parts
        codes = self.codes[drawn[0].ravel()]
        slots = np.zeros((len(batch), self.n_classes, batch.shape[1]))
        slots[np.arange(len(batch)), codes] = batch
        return [slots.reshape(len(batch), -1)]

    def by_class(self, released):
        """Return for each class its noisy values of shape (n, d), from those of `layout`."""
        if self.is_public:
            return released
        return np.split(released[0], self.n_classes, axis=1)


def count_releases(mechanism, noise, records, directions, grid, *, verbose=0):
    """Release noisy records, and count their projections on lines.

    Parameters
    ----------
    mechanism : StratifiedGaussianMechanism
        With the strata of ``records``. All its releases are made.
    noise : NoiseSource
    records : ClassRecords
    directions : Tensor of float32 of shape (k, d)
        Public rows. What is counted is post-processing of the releases.
    grid : LineGrid
    verbose : int, default=0
        1 shows a progress bar.

    Returns
    -------
    Tensor of float64 of shape (n_classes, k, n_bins)
    """
    run, n_releases = mechanism.run(noise), mechanism.n_releases
    entries = sum(s.batch_size for s in mechanism.strata) * directions.shape[1]
    chunk = max(1, CHUNK_ENTRIES // (entries * (1 if records.is_public else records.n_classes)))
    counts = torch.zeros(
        (records.n_classes, len(directions), grid.n_bins),
        dtype=torch.float64,
        device=directions.device,
    )
    with tqdm(total=n_releases, disable=not verbose, desc="releases", mininterval=0.5) as bar:
        for start in range(0, n_releases, chunk):
            size = min(chunk, n_releases - start)
            parts = records.layout(run.draw(size))
            noisy = run.release(np.concatenate([part.ravel() for part in parts]))
            ends = np.cumsum([part.size for part in parts])[:-1]
            released = [
                values.reshape(part.shape)
                for values, part in zip(np.split(noisy, ends), parts, strict=True)
            ]
            for code, values in enumerate(records.by_class(released)):
                points = as_tensor(values, device=directions.device)
                counts[code] += grid.counts(points, directions)
            bar.update(size)
    return counts


def released_proportions(label_proportions, codes, n_classes, counting, noise):
    """Return the proportions of the classes.

    Parameters
    ----------
    label_proportions : array-like of shape (n_classes,) or None
        Public ones, taken as they are.
    codes : ndarray of int of shape (n_samples,)
    n_classes : int
    counting : StratifiedGaussianMechanism or None
        Releases the counts where they are private; None where the counts are public.
    noise : NoiseSource
        Of that release.

    Returns
    -------
    ndarray of shape (n_classes,)
    """
    if label_proportions is not None:
        return check_proportions(label_proportions, n_classes)
    counts = np.bincount(codes, minlength=n_classes).astype(np.float64)
    if counting is not None:
        run = counting.run(noise)
        run.draw()
        # A class that noise takes below half a record is kept at that.
        counts = run.release(counts).clip(0.5, None)
    return counts / counts.sum()


@dataclass(frozen=True)
class ReleasedLaws:
    """What was released, on lines in units of the radius of the records.

    Parameters
    ----------
    lines : SmoothedLines
        The laws of each class on each line.
    directions : Tensor of float32 of shape (k, d)
        Of the lines, over the radius.
    """

    lines: SmoothedLines
    directions: torch.Tensor

    @property
    def device(self):
        """Where points are compared."""
        return self.directions.device

    def distance(self, points, generator):
        """Return the distance of points to the releases, on some of the lines drawn at random.

        Parameters
        ----------
        points : Tensor of float32 of shape (n_classes, m, d)
            Centered. They get the gradient.
        generator : torch.Generator
            Draws the lines.

        Returns
        -------
        Tensor of shape ()
            In units of the radius, to the power q.
        """
        k = len(self.directions)
        n_blocks = max(1, k // STEP_DIRECTIONS)
        block = int(torch.randint(n_blocks, (), generator=generator, device=generator.device))
        chosen = slice(block * k // n_blocks, (block + 1) * k // n_blocks)
        projected = points @ self.directions[chosen].t()
        if not projected.isfinite().all():
            # To the training loop a diverged run.
            return projected.sum()
        with torch.no_grad():
            value, gradient = self.lines.gradient(projected, chosen)
        pull = (gradient * projected).sum()
        return value + (pull - pull.detach())


def release_laws(
    mechanism,
    noise,
    records,
    radius,
    *,
    n_projections,
    kind,
    q=2,
    shape_weight="auto",
    shares=None,
    seed=None,
    device="cpu",
    verbose=0,
):
    """Make all releases of records, and keep their laws on random lines.

    Parameters
    ----------
    mechanism : StratifiedGaussianMechanism
        With the strata of ``records``.
    noise : NoiseSource
    records : ClassRecords
    radius : float
        Of a ball around the centered records.
    n_projections : int or "auto"
        "auto" takes as many as a covariance matrix has entries, from 64 to some 2000.
    kind : {"orthogonal", "independent"}
        How the lines are drawn.
    q : {1, 2}, default=2
        Order of the distance.
    shape_weight : float or "auto", default="auto"
        As of ``SmoothedLines``. "auto" is what smoothing takes from the
        shape, for a spread of half the radius a dimension, and less where noise hides covariances.
    shares : ndarray of shape (n_classes,) or None
        Proportions of private classes.
    seed : int or None
        Of the lines.
    device : torch.device or str
    verbose : int, default=0
        1 shows a progress bar.

    Returns
    -------
    ReleasedLaws
    """
    d = records.records.shape[1]
    directions = _scaled_directions(d, radius, n_projections, kind, seed, device)
    scale = mechanism.noise_scale / radius
    grid = LineGrid.around(1.0, scale)
    counts = count_releases(mechanism, noise, records, directions, grid, verbose=verbose)
    if shape_weight == "auto":
        share = 1.0 if shares is None else shares[shares > 0].min()
        n_values = float(counts[:, 0].sum(-1).min())
        shape_weight = _automatic_weight(d, max(scale, grid.narrowest), n_values, share)
    lines = SmoothedLines(
        grid,
        counts,
        scale,
        q=q,
        shape_weight=float(shape_weight),
        shares=None if shares is None else as_tensor(shares, device=device),
    )
    return ReleasedLaws(lines, directions)


def normal_laws(
    means,
    covariances,
    radius,
    *,
    n_projections,
    kind,
    q=2,
    shape_weight="auto",
    seed=None,
    device="cpu",
):
    """Keep normal laws on random lines, in closed form, with the least smoothing of a grid.

    Parameters
    ----------
    means : ndarray of shape (n_classes, d)
        Of centered records.
    covariances : ndarray of shape (n_classes, d, d)
        Positive definite.
    radius : float
        Of a ball around the centered records.
    n_projections, kind, q, shape_weight, seed, device
        As of :func:`release_laws`.

    Returns
    -------
    ReleasedLaws
    """
    d = means.shape[1]
    directions = _scaled_directions(d, radius, n_projections, kind, seed, device)
    grid = LineGrid.around(1.0, 0.0, _N_BINS)
    lines = as_array(directions, dtype=np.float64)
    locations = means @ lines.T
    variances = np.array([((lines @ own) * lines).sum(axis=1) for own in covariances])
    counts = _N_VALUES * _bin_masses(grid, locations, np.sqrt(variances))
    if shape_weight == "auto":
        shape_weight = _automatic_weight(d, grid.narrowest, math.inf, 1.0)
    counts = as_tensor(counts, dtype=torch.float64, device=device)
    return ReleasedLaws(
        SmoothedLines(grid, counts, 0.0, q=q, shape_weight=float(shape_weight)), directions
    )


def projected_laws(projections, directions, *, scale, radius, shape_weight="auto"):
    """Keep the laws of one release of projections, on its own lines.

    Parameters
    ----------
    projections : Tensor of shape (n, k)
        Noisy.
    directions : Tensor of shape (k, d)
        Unit rows.
    scale : float
        Standard deviation of the noise.
    radius : float
        Of a ball around the records.
    shape_weight : float or "auto", default="auto"
        As of :func:`release_laws`.

    Returns
    -------
    ReleasedLaws
    """
    scale = scale / radius
    grid = LineGrid.around(1.0, scale)
    n, k = projections.shape
    values = projections.float() / radius
    counts = grid.counts(values, torch.eye(k, device=values.device))
    if shape_weight == "auto":
        shape_weight = _automatic_weight(directions.shape[1], max(scale, grid.narrowest), n, 1.0)
    lines = SmoothedLines(grid, counts[None], scale, shape_weight=float(shape_weight))
    return ReleasedLaws(lines, directions.float() / radius)


def _bin_masses(grid, locations, scales):
    """Return the shares of normal laws by bin; the outermost bins have the tails."""
    edges = grid.step * np.arange(1, grid.n_bins) - grid.reach
    below = ndtr((edges - locations[..., None]) / scales[..., None])
    return np.diff(below, prepend=0.0, append=1.0)


def _scaled_directions(d, radius, n_projections, kind, seed, device):
    """Return random unit directions over the radius: Adam, for one, has a unit of its own."""
    n_lines, generator = count_lines(n_projections, d), torch_generator(seed)
    return random_directions(n_lines, d, kind=kind, generator=generator, device=device) / radius


def count_lines(n_projections, d):
    """Return the number of lines that releases of d columns are compared on."""
    if d == 1:
        return 1
    if n_projections != "auto":
        return n_projections
    wanted = min(max(d * (d + 1) // 2, _FEWEST_DIRECTIONS), max(_MOST_DIRECTIONS, d))
    return d * round(wanted / d)


def _automatic_weight(d, smoothing, n_values, share):
    """Return the weight of the shapes, for values of which a share is of the class itself."""
    # The noise in the covariance of the values, beside the largest variance to expect.
    noise = 2 * smoothing**2 * math.sqrt(d / n_values) / (_LARGEST_VARIANCE * share)
    return 1 + 4 * d * smoothing**2 / (1 + noise**2)


@dataclass
class ProjectedBatches:
    """The distance of points to a new secret batch, on new directions, both with noise.

    Each call of :meth:`distance` makes one release of the mechanism.

    Parameters
    ----------
    mechanism : StratifiedGaussianMechanism
        With the strata of ``records``, and the law of the directions as its ``projections``.
    noise : NoiseSource
        Of the directions, of the batches, and of their noise. Another fit needs another one, or
        its releases would not compose with these by the price of each.
    records : ClassRecords
        With public classes.
    radius : float
        Of a ball around the centered records.
    q : {1, 2}
        Order of the distance.
    device : torch.device or str
    """

    mechanism: StratifiedGaussianMechanism
    noise: InitVar[NoiseSource]
    records: ClassRecords
    radius: float
    _: KW_ONLY
    q: int
    device: torch.device | str
    _run: StratifiedGaussianRun = field(init=False, repr=False)
    _noise: NoiseSource = field(init=False, repr=False)

    def __post_init__(self, noise):
        self._run, self._noise = self.mechanism.run(noise), noise

    def distance(self, points: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Release projections of a batch, and return their distance to those of points.

        Parameters
        ----------
        points : Tensor of float32 of shape (n_classes, m, d)
            Centered. They get the gradient.
        generator : torch.Generator
            Draws the noise of the points, which is public.

        Returns
        -------
        Tensor of shape ()
            Mean over classes and directions of W_q^q, in units of the radius.
        """
        directions = cast(ProjectionLaw, self.mechanism.projections).draw(self._noise)
        released = self._release(directions)
        # Adam, for one, has a unit of its own.
        projected = points @ torch.from_numpy(directions.T / self.radius).to(points)
        if not projected.isfinite().all():
            # To the training loop a diverged run.
            return projected.sum()
        noise = torch.randn(projected.shape, generator=generator, device=points.device)
        projected = projected + noise * (self.mechanism.noise_scale / self.radius)
        pairs = zip(projected, released, strict=True)
        return torch.stack(
            [
                wasserstein_lines(
                    own, as_tensor(values / self.radius, device=points.device), p=self.q
                )
                for own, values in pairs
            ]
        ).mean()

    def _release(self, directions):
        """Return for each class the noisy projections of its part of a new batch."""
        drawn = self._run.draw()
        rows = np.concatenate(self.records.rows(drawn, self._noise))
        values = self.records.records[rows] @ directions.T
        released = self._run.release(values.ravel()).reshape(values.shape)
        return np.split(released, np.cumsum([len(positions) for positions in drawn])[:-1])
