"""First populations drawn from released moments, in place of public ones."""

import math

import numpy as np

from sklearn_dpgen.domains import enclosing_ball
from sklearn_dpgen.moments import (
    denoised_covariances,
    draw_normals,
    moment_queries,
    release_moments,
)

__all__ = ["release_populations", "start_queries"]


def start_queries(sampler, voters):
    """Return what a sampler releases before its first step, from public quantities, or None."""
    if sampler.start == "public":
        return None
    is_own = sampler.interface is sampler.schema is sampler.embedding is None
    if not is_own or (sampler.histogram, sampler.schedule) != ("gaussian", "annealed"):
        raise ValueError(
            "start='moments' needs a domain with its own interface, without an embedding, "
            "histogram='gaussian' and schedule='annealed'."
        )
    is_private = voters.n_classes > 0 and sampler.labels == "private"
    return moment_queries(
        enclosing_ball(voters.domain),
        voters.n_samples,
        len(voters.sizes),
        labels="private" if is_private else "public",
        with_counts=is_private and sampler.label_proportions is None,
    )


def release_populations(queries, members, run, scales, sizes, n_drawn, *, domain, noise, rng):
    """Release moments, and draw the first population of each class from normal laws of them.

    Parameters
    ----------
    queries : tuple of two ClassSums
    members : list of arrays
        Private records of each class.
    run : GaussianSequenceRun
        Of sensitivity √2. Its next releases are those of the moments, scaled to that.
    scales : tuple of float
        Noise of its releases.
    sizes : list of int
        What is publicly known of the sizes of the classes.
    n_drawn : list of int
        Size of each population.
    domain : Domain
    noise : NoiseSource
    rng : numpy.random.Generator

    Returns
    -------
    list of ndarray of shape (n_drawn[c], n_features)
    """
    units = [query.sensitivity / math.sqrt(2) for query in queries]

    def release(query, X, codes):
        unit = units[queries.index(query)]
        vector = query.vector(X, codes) / unit
        noise.bind(query)
        return query.split(unit * run.release(vector, noise))

    moments = release_moments(
        queries,
        [unit * scale for unit, scale in zip(units, scales, strict=False)],
        release,
        np.concatenate(members),
        np.repeat(np.arange(len(members)), [len(records) for records in members]),
        np.asarray(sizes, dtype=np.float64),
    )
    covariances = denoised_covariances(moments.covariances, moments.spreads)
    codes = np.repeat(np.arange(len(members)), n_drawn)
    points = domain.project(draw_normals(moments.means, covariances, codes, rng))
    return np.split(points, np.cumsum(n_drawn)[:-1])
