"""Laws of tables from locally privatized records, by linear algebra: no likelihood is climbed.

From a split budget: shares by the inverted tables of randomized response, of each column or of each
column with the target. From joint answers: shares of single columns and pairs by least squares,
which a population then fits.
"""

import itertools
import math
from collections import defaultdict

import numpy as np
import torch

from sklearn_dpgen.evolution._weight_projections import project_simplex
from sklearn_dpgen.mechanisms._joint_questions import same_group
from sklearn_dpgen.mechanisms._randomizers import response_table
from sklearn_dpgen.tables._answer_fit import Population
from sklearn_dpgen.tables._distributions import ProductMixture
from sklearn_dpgen.utils._random import torch_generator

__all__ = ["draw", "independent_columns", "naive_bayes", "pair_population", "unbiased_shares"]

# Records that are drawn at a time.
_BLOCK = 50_000


def draw(law, encoder, n, seed):
    """Yield records of a law in frames."""
    rng = np.random.default_rng(seed)
    for start in range(0, n, _BLOCK):
        yield encoder.decode_codes(law.sample(min(_BLOCK, n - start), rng), rng=rng)


def independent_columns(mechanism, released):
    """Return the law of columns that are drawn by themselves, from a TabularMechanism's release."""
    Y = mechanism.encode_release(released)
    row = np.concatenate([_column(mechanism, Y, name) for name in mechanism.encoder_.blocks_])
    return ProductMixture(mechanism.domain_, np.ones(1), row[None])


def naive_bayes(mechanism, released, target):
    """Return the law of columns that are independent given the target, from the same release."""
    Y = mechanism.encode_release(released)
    blocks = mechanism.encoder_.blocks_
    shares = _column(mechanism, Y, target)
    rows = np.empty((len(shares), Y.shape[1]))
    for name, block in blocks.items():
        if name == target:
            rows[:, block] = np.eye(len(shares))
            continue
        tables = [_table(mechanism, column) for column in (target, name)]
        seen = Y[:, blocks[target]].T @ Y[:, block] / len(Y)
        joint = np.linalg.solve(tables[0].T, np.linalg.solve(tables[1].T, seen.T).T)
        joint = project_simplex(joint.ravel()).reshape(joint.shape)
        sums = joint.sum(axis=1, keepdims=True)
        rows[:, block] = np.where(sums > 0, joint / np.maximum(sums, 1e-300), joint.sum(axis=0))
    return ProductMixture(mechanism.domain_, shares, rows)


def _column(mechanism, Y, name):
    """Return the shares of the categories of a column."""
    seen = Y[:, mechanism.encoder_.blocks_[name]].mean(axis=0)
    return project_simplex(np.linalg.solve(_table(mechanism, name).T, seen))


def _table(mechanism, name):
    size = mechanism.encoder_.columns_[name].domain.n_features
    return response_table(mechanism.epsilon_[name], size)


def pair_population(mechanism, answers, seed, *, n_rows=2000, max_iter=800, learning_rate=0.3):
    """Return the law of a population that fits the unbiased shares, by their precisions.

    The prior was chosen on a split of Adult's training records: nats of the likelihood of all
    answers, growing with the information of an answer as LocalTableSampler's does. The margins of a
    pair are made those of its columns, of which more answers tell; what is left of it has the
    precision of the dependence.
    """
    encoder = mechanism.encoder_
    sizes = [column.domain.n_features for column in encoder.columns_.values()]
    singles, pairs = unbiased_shares(mechanism, mechanism.encode_release(answers))
    singles = {part: (project_simplex(t), spread) for part, (t, spread) in singles.items()}
    for (i, j), (shares, _) in pairs.items():
        shares += ((singles[i,][0] - shares.sum(axis=1)) / sizes[j])[:, None]
        shares += (singles[j,][0] - shares.sum(axis=0)) / sizes[i]
    prior = 60 * math.sqrt(math.sinh(min(mechanism.epsilon_, 20.0) / 2))
    loss = PairLoss(sizes, singles, pairs, prior)
    population = Population(sizes, n_rows, torch_generator(seed), torch.device("cpu"))
    with torch.no_grad():
        population.logits.add_(loss.center[:, None])
    population.fit(loss, max_iter=max_iter, learning_rate=learning_rate)
    return ProductMixture(
        mechanism.domain_, np.full(n_rows, 1 / n_rows), population.probabilities()
    )


class PairLoss:
    """Σ_c ‖slice_c(P) − t_c‖² / (2 s_c²) of columns and pairs, and a prior: τ mean_r KL(P_r ‖ t).

    Parameters
    ----------
    sizes : list of int
    singles, pairs : dict of tuple of int to (shares, spread)
    prior : float
        τ, the weight of the mean divergence of a row from independent columns.
    """

    def __init__(self, sizes, singles, pairs, prior):
        stops = np.cumsum(sizes)
        weights, targets = np.zeros((2, stops[-1], stops[-1]))
        for (i, j), (shares, spread) in pairs.items():
            cells = np.s_[stops[i] - sizes[i] : stops[i], stops[j] - sizes[j] : stops[j]]
            weights[cells], targets[cells] = spread**-2 / 2, shares
        marginal = np.concatenate([shares for shares, _ in singles.values()])
        precision = np.repeat([spread**-2 / 2 for _, spread in singles.values()], sizes)
        center = np.log(np.maximum(marginal, 1e-6))
        parts = weights, targets, marginal, precision, center
        self._weights, self._targets, self._marginal, self._precision, self.center = (
            torch.as_tensor(part, dtype=torch.float32) for part in parts
        )
        self.scale, self._prior = max(weights.max(), precision.max()), prior

    def __call__(self, P):
        """Return the loss without the prior, and the gradient with it."""
        n_rows = P.shape[1]
        gaps, error = P @ P.T / n_rows - self._targets, P.mean(dim=1) - self._marginal
        pull, slope = self._weights * gaps, self._precision * error
        value = (pull * gaps).sum() + torch.dot(slope, error)
        gradient = (pull + pull.T) @ P + slope[:, None]
        divergence = torch.log(P.clamp_min(1e-30)) - self.center[:, None]
        return value, (2 * gradient + self._prior * divergence) / n_rows


def unbiased_shares(mechanism, encoded):
    """Estimate the shares of single columns and pairs from the answers that asked them.

    Parameters
    ----------
    mechanism : JointRandomizedResponse
        Fitted.
    encoded : ndarray of shape (n, width)
        As its ``encode_release`` returns them.

    Returns
    -------
    singles : dict of (i,) to (shares, spread)
    pairs : dict of (i, j), i < j, to (shares, spread)
        An axis a column, and the standard deviation of the noise of a cell: of pairs, of what is
        left without the margins.

    Notes
    -----
    Let the answer y to a question on columns S cover m of K cells, p and q be the probabilities of
    an answer that covers the true cell and of one that does not, and v(c) the number of categories
    of the other columns that y covers together with category c of the column or pair in question.
    Over keys, E v(c) is the constant of chance plus s w Σ_c' Q(c, c') t(c') for the shares t, with

        s = (p - q) m (K - m) / (K - 1),

    Q(c, c') the probability that two categories are in one group, a product over columns, and w the
    mean size of a group of the other columns. Its noise, at even shares, has covariance

        m (K - m) / (K (K - 1)) w k Q,

    where k is the number of categories of the other columns. Weighted least squares over all n
    answers is (Σ h Q) t = Σ h u with u = (v - chance) / (s w), and h = s² w K (K - 1) /
    (m (K - m) k) an answer; (Σ h Q)^-1 is the covariance of t.
    """
    sums = defaultdict(float)
    weights = defaultdict(lambda: defaultdict(float))
    floor = math.exp(-mechanism.epsilon_)
    columns = encoded[:, 4:].astype(np.int64)
    kinds, kind = np.unique(columns, axis=0, return_inverse=True)
    order = np.argsort(kind.ravel(), kind="stable")
    for part in np.split(order, np.cumsum(np.bincount(kind.ravel(), minlength=len(kinds)))[:-1]):
        questions = mechanism.questions(encoded[part])
        covered = questions.covered(encoded[part, 0].astype(np.int64))
        masks = {column: mask.astype(np.float64) for column, _, mask in covered.blocks}
        groups = dict(zip(masks, questions.n_groups[0], strict=False))
        K, m = int(questions.n_cells[0]), int(questions.coverage[0])
        high = 1 / (m + (K - m) * floor)
        low = floor * high
        slope = (high - low) * m * (K - m) / (K - 1)
        chance = m * low + (high - low) * m * (m - 1) / (K - 1)
        same = {j: same_group(mechanism._sizes[j], groups[j], mechanism._ordered[j]) for j in masks}
        for wanted in [*itertools.combinations(masks, 1), *itertools.combinations(masks, 2)]:
            others = [j for j in masks if j not in wanted]
            size = math.prod(masks[j].shape[1] for j in others)
            together = math.prod(same[j].sum(axis=1).mean() for j in others)
            counts = np.ones(len(covered.answer))
            for j in others:
                counts = counts * masks[j].sum(axis=1)
            v = (masks[wanted[0]] * counts[:, None]).T
            v = v @ masks[wanted[1]] if len(wanted) == 2 else v.sum(axis=1)
            h = slope**2 * together * K * (K - 1) / (m * (K - m) * size)
            sums[wanted] += h * (v - len(part) * chance * size) / (slope * together)
            weights[wanted][tuple(groups[j] for j in wanted)] += h * len(part)
    found = {
        wanted: _solved(mechanism, wanted, sums[wanted], weights[wanted]) for wanted in sorted(sums)
    }
    return tuple({c: f for c, f in found.items() if len(c) == order} for order in (1, 2))


def _solved(mechanism, wanted, right, weights):
    """Solve the normal equations of one column or pair."""
    matrix = 0.0
    for groups, weight in weights.items():
        product = np.ones((1, 1))
        for j, n_groups in zip(wanted, groups, strict=True):
            same = same_group(mechanism._sizes[j], n_groups, mechanism._ordered[j])
            product = np.kron(product, same)
        matrix = matrix + weight * product
    covariance = np.linalg.inv(matrix)
    shares = (covariance @ right.ravel()).reshape(right.shape)
    # Without the margins: of a single column without the mean.
    contrasts = np.ones((1, 1))
    for size in right.shape:
        contrasts = np.kron(contrasts, np.eye(size) - 1 / size)
    variance = (contrasts * covariance).sum() / right.size
    return shares, math.sqrt(variance)
