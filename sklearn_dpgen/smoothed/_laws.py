"""Released records as laws on random lines, and the distance of moving points to them."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import ndtr

from sklearn_dpgen.ot import random_directions
from sklearn_dpgen.ot._lines import LineGrid, SmoothedLines
from sklearn_dpgen.smoothed._releases import count_releases
from sklearn_dpgen.utils._random import torch_generator
from sklearn_dpgen.utils._torch import as_array, as_tensor

__all__ = [
    "STEP_DIRECTIONS",
    "ReleasedLaws",
    "count_lines",
    "normal_laws",
    "projected_laws",
    "release_laws",
]

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
