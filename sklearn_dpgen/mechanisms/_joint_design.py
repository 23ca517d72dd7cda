"""Who is asked about which columns, and how many of them: public, before any record is seen."""

import math

import numpy as np

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.mechanisms._joint_questions import group_counts, information
from sklearn_dpgen.utils._random import noise_source
from sklearn_dpgen.utils._validation import Real

__all__ = [
    "check_n_asked",
    "choose_n_asked",
    "draw_columns",
    "expected_variances",
    "most_asked",
    "read_wishes",
]

# Questions that stand for all of a design, and the seed by which everybody has the same ones.
_N_DRAWN, _SEED = 2000, 0
# Columns that stand for all where the number to ask is chosen, and the most that it may be.
_N_COLUMNS, _MOST_ASKED = 16, 8
# Entries of random numbers that are held at a time.
_BLOCK = 1 << 22


def draw_columns(n, n_asked, always, weights, noise):
    """Draw the columns that people are asked about.

    Parameters
    ----------
    n : int
        Number of people.
    n_asked : int
    always : sequence of int
        Columns that everybody is asked about.
    weights : ndarray of shape (d,)
        Of the others in successive draws without replacement; 0 for those that nobody is asked
        about.
    noise : NoiseSource

    Returns
    -------
    ndarray of int64 of shape (n, n_asked)
        Ascending in each row.

    Notes
    -----
    With equal weights the columns are dealt like cards, anew when too few are left: in each round
    no column is asked twice, and in a call of many people each about equally often; exactly, but
    for the last round, if ``n_asked`` divides their number.
    """
    others = np.setdiff1d(np.flatnonzero(weights), always)
    n_drawn = n_asked - len(always)
    drawn = np.empty((n, n_drawn), dtype=np.int64)
    dealt = np.ptp(weights[others]) == 0 if n_drawn else False
    n_hands = len(others) // n_drawn if dealt else 1
    size = max(1, _BLOCK // max(1, len(others))) * n_hands
    for start in range(0, n if n_drawn else 0, size):
        stop = min(start + size, n)
        n_rounds = -(-(stop - start) // n_hands)
        # The order of exponential variables with these rates is that of successive draws.
        arrivals = -np.log(noise.uniform((n_rounds, len(others)))) / weights[others]
        hands = arrivals.argsort(axis=1)[:, : n_hands * n_drawn].reshape(-1, n_drawn)
        drawn[start:stop] = others[hands[: stop - start]]
    fixed = np.broadcast_to(np.asarray(always, dtype=np.int64), (n, len(always)))
    return np.sort(np.concatenate([fixed, drawn], axis=1), axis=1)


def most_asked(limit):
    """Return about how many columns one can ask, with two groups of each at least."""
    return int(math.log2(limit))


def expected_variances(sizes, epsilon, limit, n_asked, always, weights):
    """Return the variances that single columns and pairs are learned with, of one record.

    Parameters
    ----------
    sizes : ndarray of int of shape (d,)
    epsilon : float
    limit : int
        Cells of a question.
    n_asked, always, weights
        As in `draw_columns`.

    Returns
    -------
    singles : ndarray of shape (d,)
    pairs : ndarray of shape (d, d)
        Of the shares of the categories, or of the dependence of two columns, relative to even
        shares, summed: divide by the number of records. Infinite where nobody is asked.

    Notes
    -----
    An answer's information is spread evenly over the K - 1 contrasts of its K cells:
    Π (g_j - 1) of them are the dependence of columns with g_j groups. A random grouping of k
    categories keeps (g - 1) of (k - 1) contrasts.
    """
    d = len(sizes)
    stream = noise_source(_SEED)
    columns = draw_columns(max(_N_DRAWN, 20 * d * d), n_asked, always, weights, stream)
    kinds, kind = np.unique(sizes[columns], axis=0, return_inverse=True)
    groups = np.array([group_counts(row, limit) for row in kinds])
    n_cells = [math.prod(row.tolist()) for row in groups]
    each = np.array([information(n, epsilon) / (n - 1) for n in n_cells])[kind.ravel()]
    free = groups[kind.ravel()] - 1
    singles, pairs = np.zeros(d), np.zeros((d, d))
    for i in range(n_asked):
        np.add.at(singles, columns[:, i], each * free[:, i])
        for j in range(n_asked):
            if i != j:
                both = each * free[:, i] * free[:, j]
                np.add.at(pairs, (columns[:, i], columns[:, j]), both)
    contrasts = sizes - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        singles = contrasts**2 / singles * len(columns)
        pairs = np.outer(contrasts, contrasts) ** 2 / pairs * len(columns)
    # Of what is constant there is nothing to learn.
    singles[contrasts == 0] = 0.0
    pairs[np.outer(contrasts, contrasts) == 0] = 0.0
    np.fill_diagonal(pairs, 0.0)
    return singles, pairs


def choose_n_asked(sizes, epsilon, limit, always, weights):
    """Return the number of columns to ask with the least expected error of pairs.

    The error of a pair is the root of the sum of its variances, times the weights of its columns.
    Where some columns are always asked, the pairs with one of them count. Of many columns some
    stand for all, spread evenly over those that are ordered by size.
    """
    order = np.argsort(sizes, kind="stable")
    others = np.setdiff1d(order[weights[order] > 0], always, assume_unique=True)
    if len(others) > _N_COLUMNS:
        others = others[np.linspace(0, len(others) - 1, _N_COLUMNS).astype(int)]
    kept = np.array([*always, *others], dtype=np.int64)
    sizes, weights, always = sizes[kept], weights[kept], np.arange(len(always))
    value = np.outer(weights, weights)
    if len(always):
        value[len(always) :, len(always) :] = 0.0
    np.fill_diagonal(value, 0.0)
    most = min(len(sizes), most_asked(limit), _MOST_ASKED)
    fewest = min(max(2, len(always) + 1), len(sizes))
    errors = {}
    for n_asked in range(fewest, max(fewest, most) + 1):
        singles, pairs = expected_variances(sizes, epsilon, limit, n_asked, always, weights)
        variances = (singles[:, None] + singles + pairs)[value > 0]
        errors[n_asked] = float((np.sqrt(variances) * value[value > 0]).sum())
    return min(errors, key=errors.__getitem__)


def read_wishes(names, always, weights):
    """Return the numbers of the columns that are always asked, and the weights of all.

    Parameters
    ----------
    names : list of str
        Of the schema.
    always : sequence of str
    weights : mapping of str to float, or None

    Returns
    -------
    always : tuple of int
    weights : ndarray of shape (d,)

    Raises
    ------
    ValueError
        Other columns, one that is named twice, or weights that are not from 1e-6 to 1e6.
    """
    for parameter, columns in (("always", always), ("weights", weights or ())):
        unknown = [name for name in columns if name not in names]
        if unknown:
            raise PublicValueError(
                f"{parameter} names columns that the schema does not: {unknown}."
            )
    if len(set(always)) < len(always):
        raise PublicValueError("always names a column twice.")
    weights = dict.fromkeys(names, 1.0) | dict(weights or {})
    bad = [name for name, weight in weights.items() if not _is_weight(weight)]
    if bad:
        raise PublicValueError(f"weights must be between 1e-6 and 1e6; of other ones: {bad}.")
    return tuple(map(names.index, always)), np.array([*weights.values()], dtype=np.float64)


def check_n_asked(n_asked, sizes, epsilon, limit, always, weights):
    """Return the number of columns to ask, chosen where it is "auto".

    Raises
    ------
    ValueError
        More than there are columns, fewer than are always asked, or more than the budget has an
        answer for.
    """
    n_columns = int(np.count_nonzero(weights))
    most = min(n_columns, most_asked(limit))
    if len(always) > most:
        raise PublicValueError(
            f"always names {len(always)} columns, and one joint answer with epsilon={epsilon:g} is "
            f"on at most {most}."
        )
    if n_asked == "auto":
        return choose_n_asked(sizes, epsilon, limit, always, weights)
    if n_asked > n_columns:
        raise PublicValueError(
            f"n_asked={n_asked} is more than the {n_columns} columns to ask about."
        )
    if n_asked < len(always):
        raise PublicValueError(
            f"n_asked={n_asked} is less than the {len(always)} columns of always."
        )
    if n_asked > most:
        raise PublicValueError(
            f"n_asked={n_asked} is too much for epsilon={epsilon:g}: with two groups a column an "
            f"answer is on at most {most} columns."
        )
    return int(n_asked)


def _is_weight(weight):
    is_number = isinstance(weight, Real) and not isinstance(weight, bool)
    return is_number and 1e-6 <= weight <= 1e6
