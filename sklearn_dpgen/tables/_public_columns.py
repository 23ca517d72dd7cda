"""Single columns of a public table: its rows in cells and blocks, and as the prior of counts."""

import numpy as np

from sklearn_dpgen.tables._column_trees import ColumnCells, joined_cells

__all__ = ["posterior_leaves", "public_blocks", "public_cells", "public_leaves", "shifted"]

# Standard deviations of the log-ratio of private to public shares, equally likely.
_SHIFTS = np.array([0.0, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0])
# Log-odds before the counts that a column is about that of the public table, against uniform ones.
_TRUST = 2.0
# Null is as wide as this share of all values, where the public table has none.
_NULL_WIDTH = 0.05
_TINY = 1e-12


def public_leaves(public, encoder):
    """Return the counts of the leaves of each column in a public table.

    Parameters
    ----------
    public : PublicRows
    encoder : TabularEncoder
        Fitted, with the finest bins.

    Returns
    -------
    list of ndarray
        They sum to the effective number of rows in which the column is known.
    """
    counts = []
    for codes, column in zip(public.codes(encoder).T, encoder.columns_.values(), strict=True):
        known = codes >= 0
        weights = public.weights[known]
        effective = weights.sum() / np.maximum((weights**2).sum(), _TINY)
        size = column.n_categories
        counts.append(effective * np.bincount(codes[known], weights, minlength=size))
    return counts


def public_blocks(public, encoder, blocks):
    """Return the block of each cell of a public table.

    Parameters
    ----------
    public : PublicRows
    encoder : TabularEncoder
        Fitted, with the final bins.
    blocks : list of ndarray of int
        The block of each category of each column.

    Returns
    -------
    ndarray of int of shape (n, p)
        -1 for cells that are not known.
    """
    codes = public.codes(encoder)
    # Index -1 finds the entry that is appended.
    return np.stack([np.append(b, -1)[c] for b, c in zip(blocks, codes.T, strict=True)], axis=1)


def public_cells(tree, noisy, noise_scale, n_records, public):
    """Return cells of a column by noisy counts and a public table.

    Parameters
    ----------
    tree : ColumnTree
    noisy : ndarray of shape (tree.n_cells,)
        Noisy counts of all levels.
    noise_scale : float
        Standard deviation of their noise.
    n_records : float
    public : ndarray of shape (tree.n_values + tree.nullable,)
        Counts of the leaves in the public table, then of null.

    Returns
    -------
    ColumnCells or None
        None if there is no noise, or if the counts are likelier with uniform shares than with
        those of the public table: it is then left out.
    """
    if noise_scale == 0 or not public.any():
        return None
    found = posterior_leaves(tree, noisy, noise_scale, n_records, public)
    if found is None:
        return None
    counts, variances = found
    starts, n_values = np.arange(tree.n_values), tree.n_values
    if tree.n_levels > 1 and not tree.is_flat:
        parts = counts[:n_values], variances[:n_values]
        starts = joined_cells(tree, *parts, n_records, public[:n_values] > 0)
        counts, variances = (
            np.append(np.add.reduceat(v[:n_values], starts), v[n_values:])
            for v in (counts, variances)
        )
    return ColumnCells(starts, counts / counts.sum(), variances / n_records**2)


def posterior_leaves(tree, noisy, noise_scale, n_records, public):
    """Return posterior counts of the leaves of a column given noisy counts and a public table.

    Parameters
    ----------
    tree, noisy, noise_scale, n_records, public
        As for :func:`public_cells`, with positive noise.

    Returns
    -------
    counts, variances : ndarray of shape (tree.n_values + tree.nullable,)
        Or None, if the counts are likelier with uniform shares.

    Notes
    -----
    A Kalman step for each level, from the widest intervals down. The count of a node is normal
    about the count of its parent times its share e of the public rows of the parent. The variance
    of their ratio is that of the public rows, a sample, plus τ², the shift between both tables,
    with the marginal likelihood of a level averaged over nine values of τ. Counts of children are
    then scaled to the count of the parent.
    """
    leaves, null = public[: tree.n_values], public[tree.n_values :]
    given = tree._split(noisy)
    above, spread = np.array([float(n_records)]), np.zeros(1)
    evidence, nulls = 0.0, (null, null)
    for level in range(tree.n_levels - 1, -1, -1):
        noise = (noise_scale / tree.weights[level]) ** 2
        starts = tree.levels[level]
        seen, widths = np.add.reduceat(leaves, starts), tree.widths[level].astype(np.float64)
        n_nodes = len(starts)
        if level == tree.n_levels - 1:
            seen = np.append(seen, null)
            widths = np.append(widths, np.full(len(null), _NULL_WIDTH * tree.n_values))
            parents, counted = np.zeros(len(seen), dtype=np.int64), given[level]
        else:
            parents, counted = tree.parents[level], given[level][:n_nodes]
        flat = widths / np.bincount(parents, widths)[parents]
        # One more row is spread evenly, so that no share is 0.
        total = np.bincount(parents, seen)[parents]
        share = (seen + flat) / (total + 1)
        whole = above[parents]
        sampling = whole**2 * share * (1 - share) / (total + 2)
        # Where the parent is below the noise, counts of its children tell nothing.
        (live,) = np.nonzero(whole > np.sqrt(noise))
        counts, variances = whole * share, sampling.copy()
        if len(live):
            own = counted[live], noise, counts[live], sampling[live]
            logs, counts[live], variances[live] = shifted(*own)
            evidence += logs - shifted(counted[live], noise, (whole * flat)[live], 0)[0]
        missing = above - np.bincount(parents, counts)
        free = np.maximum(np.bincount(parents, variances), _TINY)
        counts = np.maximum(counts + (missing / free)[parents] * variances, 0)
        counts *= (above / np.maximum(np.bincount(parents, counts), _TINY))[parents]
        variances = variances + share**2 * spread[parents]
        if level == tree.n_levels - 1:
            nulls = counts[n_nodes:], variances[n_nodes:]
        above, spread = counts[:n_nodes], variances[:n_nodes]
    if evidence < -_TRUST:
        return None
    return np.append(above, nulls[0]), np.append(spread, nulls[1])


def shifted(counted, noise, expected, sampling):
    """Return the log-likelihood of counts, and their posterior means and variances.

    All are averaged over the shifts of counts from the expected ones.

    Parameters
    ----------
    counted : ndarray of shape (n,)
    noise : float or ndarray of shape (n,)
        Variance of the noise of counts.
    expected : ndarray of shape (n,)
    sampling : float or ndarray of shape (n,)
        Variance of expected counts.
    """
    variances = expected**2 * _SHIFTS[:, None] ** 2 + sampling
    spread = variances + noise
    logs = -0.5 * (np.log(spread) + (counted - expected) ** 2 / spread).sum(axis=1)
    weights = np.exp(logs - logs.max())
    evidence = logs.max() + np.log(weights.mean())
    gain = (weights / weights.sum()) @ (variances / spread)
    return evidence, expected + gain * (counted - expected), gain * noise
