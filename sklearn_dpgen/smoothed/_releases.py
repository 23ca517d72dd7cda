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
from sklearn_dpgen.ot import random_directions
from sklearn_dpgen.ot._lines import LineGrid, SmoothedLines
from sklearn_dpgen.ot._sliced import wasserstein_lines
from sklearn_dpgen.persistence._declarations import saved
from sklearn_dpgen.utils._labels import check_proportions
from sklearn_dpgen.utils._random import NoiseSource, torch_generator
from sklearn_dpgen.utils._torch import as_array, as_tensor
from sklearn_dpgen.utils._validation import Integral, Interval, Real, Settings, StrOptions

__all__ = [
    "CHUNK_ENTRIES",
    "STEP_DIRECTIONS",
    "ClassRecords",
    "NoisyRelease",
    "ProjectedBatches",
    "ReleasedLaws",
    "count_lines",
    "count_releases",
    "normal_laws",
    "projected_laws",
    "release_laws",
    "released_proportions",
]

# Values that are released at a time.
CHUNK_ENTRIES = 2**21
# Largest number of directions that one step compares.
STEP_DIRECTIONS = 100
# Bounds on the automatic number of directions.
_FEWEST_DIRECTIONS, _MOST_DIRECTIONS = 64, 2000
# Largest eigenvalue to expect in the covariance of a class, in units of the squared radius.
_LARGEST_VARIANCE = 0.1
# Bins of a grid without noise. Its narrowest smoothing is 16 / (n_bins - 80) of the radius.
_N_BINS = 256
# Number of values that stand for a distribution in closed form. Bins with less than one value have
# no influence.
_N_VALUES = 1e5


@saved
class NoisyRelease(Settings):
    """What an estimator releases of the records, and on which lines the releases are compared.

    An estimator takes it as ``release``.

    Parameters
    ----------
    kind : {"records", "moments", "projections"} or None, default=None
        What is released with noise: records of secret batches, means and covariances, or
        projections of a new batch on new directions at each step of the training. None is the
        estimator's own choice: "records" of the generator, "moments" of the adapter.
    batch_size : int or "auto", default="auto"
        Records of one release, drawn without replacement, at most all. Public classes contribute
        in proportion to their sizes, at least one record each. Smaller batches give more
        information for a given budget; "auto" is the estimator's own choice. Not used with
        moments.
    n_epochs : float, default=20.0
        Passes over the records, summed over all releases of kind "records". The information grows
        slowly with it, and the time in proportion.
    n_projections : int or "auto", default="auto"
        Number of lines on which the releases are compared. "auto" takes as many as a covariance
        matrix has entries, from 64 to about 2000; they cost time, not privacy. With projections it
        is the number of directions of a step, and more of them need more noise; "auto" is then the
        estimator's own choice.
    directions : {"orthogonal", "independent"}, default="orthogonal"
        Whether the lines are drawn in orthonormal blocks, or each by itself. Orthonormal
        projections need less noise.
    shape_weight : float or "auto", default="auto"
        Weight of the distance between the centered distributions relative to the distance between
        the means. "auto" is 1 + (σ/s)², with σ the noise, or R/11 if that is larger, and
        s = R/(2 sqrt(d)), half the radius of the domain per dimension. This makes up for what the
        smoothing takes from the shape. It is smaller where the releases are too few to estimate a
        covariance, and 1 where the domain has one-hot blocks, whose variances follow from their
        means.

    Examples
    --------
    >>> from sklearn_dpgen.domains import Ball
    >>> from sklearn_dpgen.smoothed import NoisyRelease, SmoothedSlicedWassersteinGenerator
    >>> generator = SmoothedSlicedWassersteinGenerator(
    ...     domain=Ball(1.0, n_features=2), release=NoisyRelease("moments")
    ... )
    >>> generator.set_params(release__n_projections=100).release
    NoisyRelease(kind='moments', n_projections=100)
    """

    _parameter_constraints: dict = {
        "kind": [StrOptions({"records", "moments", "projections"}), None],
        "batch_size": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "n_epochs": [Interval(Real, 0, None, closed="neither")],
        "n_projections": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "directions": [StrOptions({"orthogonal", "independent"})],
        "shape_weight": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        kind: str | None = None,
        *,
        batch_size: int | str = "auto",
        n_epochs: float = 20.0,
        n_projections: int | str = "auto",
        directions: str = "orthogonal",
        shape_weight: float | str = "auto",
    ) -> None:
        self.kind = kind
        self.batch_size = batch_size
        self.n_epochs = n_epochs
        self.n_projections = n_projections
        self.directions = directions
        self.shape_weight = shape_weight


@dataclass(frozen=True)
class ClassRecords:
    """Centered records with their classes, and their layout in a release.

    Parameters
    ----------
    records : ndarray of float64 of shape (n, d)
    codes : ndarray of int of shape (n,)
        Class of each record, 0 .. n_classes - 1.
    n_classes : int
    is_public : bool
        Whether classes are public. Each public class is a stratum. Private classes are one
        stratum: a record has d values for each class, which are 0 but for its own class.
    persons : Persons or None, default=None
        The persons of the records, if batches consist of persons.
    """

    records: np.ndarray
    codes: np.ndarray
    n_classes: int
    is_public: bool
    persons: Persons | None = None

    @cached_property
    def member_codes(self):
        """Class of each member, which is a record or a person."""
        return self.codes if self.persons is None else self.persons.shared(self.codes, "class")

    @cached_property
    def members(self):
        """Indices of the members of each stratum, which are records or persons."""
        if self.is_public:
            return [np.flatnonzero(self.member_codes == code) for code in range(self.n_classes)]
        return [np.arange(len(self.member_codes))]

    def rows(self, drawn, noise):
        """Return the rows of a batch; of each person it draws one anew.

        Parameters
        ----------
        drawn : list of ndarray of int
            Positions of the drawn members within each stratum.
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
        """Return the values of batches that are released, before noise.

        Parameters
        ----------
        drawn : list of ndarray of int of shape (n_releases, batch_size)
            Positions of the drawn members within each stratum.

        Returns
        -------
        list of ndarray
            For public classes, an array of shape (n_releases * batch_size, d) for each class. For
            private classes, one array of shape (n_releases * batch_size, n_classes * d).
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
        """Return the noisy values of each class, of shape (n, d), from released layouts."""
        if self.is_public:
            return released
        return np.split(released[0], self.n_classes, axis=1)


def count_releases(mechanism, noise, records, directions, grid, *, verbose=0):
    """Release noisy records, and return histograms of their projections on lines.

    Parameters
    ----------
    mechanism : StratifiedGaussianMechanism
        Mechanism with the strata of ``records``. The function makes all its releases.
    noise : NoiseSource
    records : ClassRecords
    directions : Tensor of float32 of shape (k, d)
        Public directions in rows. Counting is post-processing of the releases.
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
        Public proportions, which are returned unchanged.
    codes : ndarray of int of shape (n_samples,)
    n_classes : int
    counting : StratifiedGaussianMechanism or None
        Mechanism that releases private counts; None if the counts are public.
    noise : NoiseSource
        Source of the noise of that release.

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
        # Each class keeps at least half a record, whatever the noise is.
        counts = run.release(counts).clip(0.5, None)
    return counts / counts.sum()


@dataclass(frozen=True)
class ReleasedLaws:
    """Released distributions on lines, in units of the radius of the records.

    Parameters
    ----------
    lines : SmoothedLines
        Distributions of each class on each line.
    directions : Tensor of float32 of shape (k, d)
        Directions of the lines, divided by the radius.
    """

    lines: SmoothedLines
    directions: torch.Tensor

    @property
    def device(self):
        """Device on which points are compared."""
        return self.directions.device

    def distance(self, points, generator):
        """Return the distance of points to the releases, on a random subset of the lines.

        Parameters
        ----------
        points : Tensor of float32 of shape (n_classes, m, d)
            Centered points, which receive the gradient.
        generator : torch.Generator
            Draws the lines.

        Returns
        -------
        Tensor of shape ()
            Distance in units of the radius, squared.
        """
        k = len(self.directions)
        n_blocks = max(1, k // STEP_DIRECTIONS)
        block = int(torch.randint(n_blocks, (), generator=generator, device=generator.device))
        chosen = slice(block * k // n_blocks, (block + 1) * k // n_blocks)
        projected = points @ self.directions[chosen].t()
        if not projected.isfinite().all():
            # The training loop takes a loss that is not finite as divergence.
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
    shape_weight="auto",
    shares=None,
    seed=None,
    device="cpu",
    verbose=0,
):
    """Make all releases of records, and return their distributions on random lines.

    Parameters
    ----------
    mechanism : StratifiedGaussianMechanism
        Mechanism with the strata of ``records``.
    noise : NoiseSource
    records : ClassRecords
    radius : float
        Radius of a ball that holds the centered records.
    n_projections : int or "auto"
        "auto" takes as many as a covariance matrix has entries, from 64 to some 2000.
    kind : {"orthogonal", "independent"}
        How the lines are drawn.
    shape_weight : float or "auto", default="auto"
        As in ``SmoothedLines``. "auto" makes up for what the smoothing
        takes from the shape, if a dimension has a spread of half the radius. It is smaller where
        noise hides the covariances.
    shares : ndarray of shape (n_classes,) or None
        Proportions of private classes; None for public classes.
    seed : int or None
        Seed of the lines.
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
    shape_weight="auto",
    seed=None,
    device="cpu",
):
    """Return normal distributions on random lines, in closed form.

    Parameters
    ----------
    means : ndarray of shape (n_classes, d)
        Means of centered records.
    covariances : ndarray of shape (n_classes, d, d)
        Positive definite matrices.
    radius : float
        Radius of a ball that holds the centered records.
    n_projections, kind, shape_weight, seed, device
        As in :func:`release_laws`.

    Returns
    -------
    ReleasedLaws
        With the least smoothing of the grid.
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
        SmoothedLines(grid, counts, 0.0, shape_weight=float(shape_weight)), directions
    )


def projected_laws(projections, directions, *, scale, radius, shape_weight="auto"):
    """Return the distributions of one release of projections, on its own lines.

    Parameters
    ----------
    projections : Tensor of shape (n, k)
        Noisy projections.
    directions : Tensor of shape (k, d)
        Unit directions in rows.
    scale : float
        Standard deviation of the noise.
    radius : float
        Radius of a ball that holds the records.
    shape_weight : float or "auto", default="auto"
        As in :func:`release_laws`.

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
    """Return the probabilities of the bins; the outermost bins contain the tails."""
    edges = grid.step * np.arange(1, grid.n_bins) - grid.reach
    below = ndtr((edges - locations[..., None]) / scales[..., None])
    return np.diff(below, prepend=0.0, append=1.0)


def _scaled_directions(d, radius, n_projections, kind, seed, device):
    """Return random unit directions, divided by the radius.

    Losses then have no unit, which optimizers such as Adam need.
    """
    n_lines, generator = count_lines(n_projections, d), torch_generator(seed)
    return random_directions(n_lines, d, kind=kind, generator=generator, device=device) / radius


def count_lines(n_projections, d):
    """Return the number of lines on which releases of d columns are compared."""
    if d == 1:
        return 1
    if n_projections != "auto":
        return n_projections
    wanted = min(max(d * (d + 1) // 2, _FEWEST_DIRECTIONS), max(_MOST_DIRECTIONS, d))
    return d * round(wanted / d)


def _automatic_weight(d, smoothing, n_values, share):
    """Return the automatic weight of the shapes.

    Parameters
    ----------
    d : int
    smoothing : float
        Standard deviation of the smoothing, in units of the radius.
    n_values : float
        Number of released values on a line.
    share : float
        Share of the values that belong to the smallest class.

    Returns
    -------
    float
    """
    # Noise of the covariance of the values, relative to the largest variance to expect.
    noise = 2 * smoothing**2 * math.sqrt(d / n_values) / (_LARGEST_VARIANCE * share)
    return 1 + 4 * d * smoothing**2 / (1 + noise**2)


@dataclass
class ProjectedBatches:
    """Distance of points to secret batches, both noisy, with a new batch in each call.

    Each call of :meth:`distance` makes one release of the mechanism.

    Parameters
    ----------
    mechanism : StratifiedGaussianMechanism
        Mechanism with the strata of ``records``, and the distribution of the directions as its
        ``projections``.
    noise : NoiseSource
        Source of the directions, of the batches, and of their noise. Each fit needs a source of
        its own; otherwise the prices of two fits would not add up.
    records : ClassRecords
        Records with public classes.
    radius : float
        Radius of a ball that holds the centered records.
    device : torch.device or str
    """

    mechanism: StratifiedGaussianMechanism
    noise: InitVar[NoiseSource]
    records: ClassRecords
    radius: float
    _: KW_ONLY
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
            Centered points, which receive the gradient.
        generator : torch.Generator
            Draws the public noise of the points.

        Returns
        -------
        Tensor of shape ()
            Mean of W_2^2 over classes and directions, in units of the radius.
        """
        directions = cast(ProjectionLaw, self.mechanism.projections).draw(self._noise)
        released = self._release(directions)
        # In units of the radius, losses have no unit, which optimizers such as Adam need.
        projected = points @ torch.from_numpy(directions.T / self.radius).to(points)
        if not projected.isfinite().all():
            # The training loop takes a loss that is not finite as divergence.
            return projected.sum()
        noise = torch.randn(projected.shape, generator=generator, device=points.device)
        projected = projected + noise * (self.mechanism.noise_scale / self.radius)
        pairs = zip(projected, released, strict=True)
        return torch.stack(
            [
                wasserstein_lines(own, as_tensor(values / self.radius, device=points.device), p=2)
                for own, values in pairs
            ]
        ).mean()

    def _release(self, directions):
        """Return the noisy projections of a new batch, one array for each class."""
        drawn = self._run.draw()
        rows = np.concatenate(self.records.rows(drawn, self._noise))
        values = self.records.records[rows] @ directions.T
        released = self._run.release(values.ravel()).reshape(values.shape)
        return np.split(released, np.cumsum([len(positions) for positions in drawn])[:-1])
