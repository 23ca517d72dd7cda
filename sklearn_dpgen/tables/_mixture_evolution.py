"""Tables by votes: independent columns, reweighted to the votes, and counted anew within cells."""

import numpy as np
from sklearn.metrics import pairwise_distances_argmin

from sklearn_dpgen.evolution import nearest_neighbor_votes, project_simplex
from sklearn_dpgen.tables._cell_counts import (
    estimate_mixture,
    marginal_counts,
    rank_embedding,
)
from sklearn_dpgen.tables._product_mixture import ProductMixture

__all__ = [
    "MOST_CELLS",
    "automatic_cells",
    "evolve_mixtures",
    "fit_mixture",
    "needed_bytes",
    "one_hot",
    "rake",
    "release_sizes",
]

_POOL = 20_000
# Of a class, unless more are asked for.
MOST_CELLS = 32


def automatic_cells(n_samples, noise, n_classes):
    """Return into how many cells to part the records of a class.

    Parameters
    ----------
    n_samples : int
    noise : float
        Standard deviation of the noise on a count of the last release.
    n_classes : int

    Returns
    -------
    int
        (n_samples / noise)^(1/3) over the classes, from 1 to 32: a rule of thumb.
    """
    n_cells = round((n_samples / max(1.0, noise)) ** (1 / 3) / n_classes)
    return int(np.clip(n_cells, 1, MOST_CELLS))


def needed_bytes(n_samples, width, n_candidates, n_cells):
    """Return about how much memory :func:`evolve_mixtures` takes.

    Parameters
    ----------
    n_samples : int
        Private records.
    width : int
        Categories of all columns.
    n_candidates : int
    n_cells : int
        Of each class.
    """
    # Records and the public draws, with a copy and their embedding; components of all draws.
    n_rows = n_samples + _POOL + n_candidates
    return 8 * (3 * n_rows * width + 2 * n_cells * (n_rows + 3 * width))


def release_sizes(domain, n_classes, n_candidates, n_iter, n_cells):
    """Return how many values the releases of :func:`evolve_mixtures` have, and how many change.

    Parameters
    ----------
    domain : Product of OneHot
    n_classes, n_candidates, n_iter, n_cells : int
        Candidates of all classes, and cells of each.

    Returns
    -------
    dict
        ``n_values`` and ``n_changed``, as of :class:`GaussianSequenceMechanism`.
    """
    width, n_changed = n_classes * domain.n_features, 2 * len(domain.slices)
    # Of candidates each class has its rounded share, and at least one.
    votes = [n_candidates + 2 * n_classes] * n_iter
    return {
        "n_values": [width, *votes, n_cells * width],
        "n_changed": [n_changed, *[2] * n_iter, n_changed],
    }


def one_hot(codes, domain):
    """Return records as blocks of categories.

    Parameters
    ----------
    codes : ndarray of int of shape (n, p)
        The category of each record in each column.
    domain : Product of OneHot

    Returns
    -------
    ndarray of shape (n, domain.n_features)
    """
    X = np.zeros((len(codes), domain.n_features))
    starts = [part.start for part in domain.slices]
    np.put_along_axis(X, codes + starts, 1.0, axis=1)
    return X


def rake(cells, shares):
    """Return the weights of public records that give every cell its share.

    Of all laws with these shares they are the nearest to equal weights in relative entropy.

    Parameters
    ----------
    cells : ndarray of int of shape (n,)
        The cell of each record.
    shares : ndarray of shape (n_cells,)

    Returns
    -------
    ndarray of shape (n,)
        Equal within a cell. The share of a cell without records is lost, and the others are raised.
    """
    members = np.bincount(cells, minlength=len(shares))
    weights = (shares / np.maximum(members, 1))[cells]
    total = weights.sum()
    return weights / total if total > 0 else np.full(len(cells), 1 / len(cells))


def fit_mixture(X, weights, n_components, domain, rng, *, n_iter=40):
    """Fit a mixture of independent columns to weighted public records, by EM.

    Parameters
    ----------
    X : ndarray of shape (n, domain.n_features)
        Encoded records: categories only.
    weights : ndarray of shape (n,)
        Sum 1.
    n_components : int
    domain : Product of OneHot
    rng : numpy.random.Generator
        Draws the records that the components start at.
    n_iter : int, default=40

    Returns
    -------
    ProductMixture

    Notes
    -----
    A component has, besides its own, what one record of the mean marginals weighs, where n records
    of these weights say as much as 1/Σw² equal ones. Components start near records that are drawn
    by weight, and differ as far as there are such: equal components would stay equal.
    """
    usual = weights @ X
    pseudo = (weights**2).sum()
    starts = _starts(X, weights, n_components, rng)
    mixture = ProductMixture(
        domain, np.full(n_components, 1 / n_components), 0.7 * usual + 0.3 * starts
    )
    for _ in range(n_iter):
        joint = mixture.log_joint(X)
        share = np.exp(joint - joint.max(axis=1, keepdims=True))
        share *= (weights / share.sum(axis=1))[:, None]
        sizes = share.sum(axis=0)
        probabilities = (share.T @ X + pseudo * usual) / (sizes + pseudo)[:, None]
        mixture = ProductMixture(domain, sizes / sizes.sum(), probabilities)
    return mixture


def _starts(X, weights, n, rng):
    """Return records that differ, as far as there are such."""
    starts, is_new = [], np.ones(len(X), dtype=bool)
    for _ in range(n):
        chances = weights * is_new if (weights * is_new).any() else weights
        start = X[rng.choice(len(X), p=chances / chances.sum())]
        is_new &= (start != X).any(axis=1)
        starts.append(start)
    return np.array(starts)


def evolve_mixtures(
    members, columns, domain, release, noise_scales, *, n_samples, n_cells, rng, device="auto"
):
    """Learn the law of each class of a table, from noisy counts and votes alone.

    First the one-way marginals of every class are released. Then, as often as is paid for,
    candidates are drawn from the laws so far; every record votes for the nearest of its class; many
    records of the law, each near a candidate, are reweighted until every candidate has its
    share of the votes; and a mixture of independent columns is fitted to them, which is the next
    law. At last the components of that law part the records into cells, and the one-way marginals
    of each cell are released: the mixture of these is the result.

    Parameters
    ----------
    members : sequence of ndarray of shape (n_k, domain.n_features)
        Private records of each class, as blocks of categories.
    columns : sequence of Column
        Of the blocks.
    domain : Product of OneHot
    release : callable
        From a vector to one with noise; all that is learned goes through it. Replacing a record and
        its class changes each vector by at most sqrt(2) in l2, whatever was released before.
    noise_scales : sequence of float
        Standard deviations of the noise of the releases, in order: the marginals, each of the
        votes, the cells. At least three.
    n_samples : int
        Candidates of all classes together.
    n_cells : int
        Of each class.
    rng : numpy.random.Generator
        For what is public.
    device : str or torch.device, default="auto"
        Where votes are counted.

    Returns
    -------
    sizes : ndarray of shape (n_classes,)
        Released numbers of records.
    laws : list of ProductMixture
    """
    n_classes = len(members)

    def counted(cells, n_cells, noise_scale):
        """Release the marginals of all cells, and return the size and the law of every class."""
        counts = [
            marginal_counts(X, c, n_cells, domain) for X, c in zip(members, cells, strict=True)
        ]
        noisy = np.split(release(np.concatenate(counts)), n_classes)
        estimates = [estimate_mixture(part, noise_scale, domain) for part in noisy]
        return np.array([size for size, _ in estimates]), [law for _, law in estimates]

    first, *between, last = noise_scales
    sizes, laws = counted([np.zeros(len(X), dtype=np.int64) for X in members], 1, first)
    shares = sizes / sizes.sum()
    embed = rank_embedding(columns, domain, shares @ [law.probabilities[0] for law in laws])
    n_candidates = np.maximum(1, np.rint(n_samples * shares).astype(np.int64))
    for _ in between:
        candidates = [
            one_hot(np.unique(law.sample(n, rng), axis=0), domain)
            for law, n in zip(laws, n_candidates, strict=True)
        ]
        votes = [
            nearest_neighbor_votes(X, V, embedding=embed, device=device)
            for X, V in zip(members, candidates, strict=True)
        ]
        noisy = release(np.concatenate(votes).astype(np.float64))
        noisy = np.split(noisy, np.cumsum([len(V) for V in candidates])[:-1])
        laws = [
            _next_law(law, V, part, n_cells, embed, rng)
            for law, V, part in zip(laws, candidates, noisy, strict=True)
        ]
    return counted([law.assign(X) for law, X in zip(laws, members, strict=True)], n_cells, last)


def _next_law(law, candidates, votes, n_components, embed, rng):
    """Return a mixture fitted to records of a law, reweighted to noisy votes."""
    shares = project_simplex(votes / max(votes.sum(), 1.0))
    # With the candidates among them no cell is without records.
    pool = np.concatenate([candidates, one_hot(law.sample(_POOL, rng), law.domain)])
    weights = rake(pairwise_distances_argmin(embed(pool), embed(candidates)), shares)
    return fit_mixture(pool, weights, n_components, law.domain, rng)
