"""Chains whose records copy public rows, against tiny ones of which all records are listed."""

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from measured_tables import measurements_of, whole
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chisquare

from sklearn_dpgen.domains import OneHot, Product
from sklearn_dpgen.exceptions import InvalidFileError
from sklearn_dpgen.tables import _distributions, _log_linear_fit
from sklearn_dpgen.tables._distributions import (
    LogLinearChain,
    LogLinearConditional,
    LogLinearTerm,
    PublicRecords,
)
from sklearn_dpgen.tables._log_linear_fit import ChainFit, CopiedColumn, NoisyTable, fit_conditional
from sklearn_dpgen.tables._marginals import marginal_counts
from sklearn_dpgen.tables._public_prior import PublicPrior
from sklearn_dpgen.utils._torch import resolve_device

# Blocks of three columns, the first with two categories in a block; they are drawn in this order.
BLOCKS = [np.array([0, 1, 1]), np.array([2, 0, 1]), np.array([0, 1])]
SHARES = [np.array([1, 0.3, 0.7]), np.ones(3), np.ones(2)]
ORDER = [2, 0, 1]
KEPT = {0: 0.6, 1: 0.8, 2: 0.5}
WANTED = [np.array([0.7, 0.3]), np.array([0.2, 0.5, 0.3]), np.array([0.4, 0.6])]
ROWS = np.array([[0, 1, 1], [1, 2, 0], [0, -1, 0], [-1, -1, 1], [1, 0, -1]], dtype=np.int16)
RECORDS = PublicRecords(ROWS, np.array([0.3, 0.25, 0.2, 0.15, 0.1]))
DOMAIN = Product([OneHot(3), OneHot(3), OneHot(2)])
CELLS = list(product(range(3), range(3), range(2)))


def logits(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape)


# Interactions of the private columns.
TERMS = {
    2: (),
    0: (LogLinearTerm((2,), (np.arange(2), np.arange(2)), logits(2, 2)),),
    1: (
        LogLinearTerm((0,), (np.arange(2), np.array([0, 1, 0])), logits(2, 2)),
        LogLinearTerm((2, 0), (np.arange(2), np.arange(2), np.arange(3)), logits(2, 2, 3)),
    ),
}


@cache
def copied(j):
    codes = np.where(ROWS[:, j] < 0, len(WANTED[j]), ROWS[:, j]).astype(int)
    return CopiedColumn(3 + j, KEPT[j], WANTED[j], codes)


def chain(public=RECORDS, lacking=(), terms=TERMS):
    """Return a chain in which all columns but ``lacking`` are copied."""
    parts = []
    for j in ORDER:
        if j in lacking:
            parts.append(LogLinearConditional(j, np.log(WANTED[j]), terms[j]))
        else:
            own = copied(j)
            parts.append(LogLinearConditional(j, own.base, (*terms[j], own.term)))
    return LogLinearChain(DOMAIN, BLOCKS, SHARES, tuple(parts), public=public)


def block_chances(j, record, row, lacking):
    """Return the probabilities of the blocks, given a record and a public row, by the definition.

    Of the copy, or a random value, times factors and interactions.
    """
    scores = np.log(WANTED[j])
    if j not in lacking:
        own = copied(j)
        found = (1 - KEPT[j]) * WANTED[j]
        if row[j] >= 0:
            found = found + KEPT[j] * (np.arange(len(found)) == row[j])
        scores = np.log(found * own.factors)
    for term in TERMS[j]:
        before = [g[BLOCKS[k][record[k]]] for k, g in zip(term.parents, term.groups, strict=False)]
        scores = scores + np.array([term.logits[(*before, g)] for g in term.groups[-1]])
    return np.exp(scores) / np.exp(scores).sum()


def exact(public=RECORDS, lacking=()):
    """Return the probability of each record, summed over the public rows."""
    found = np.zeros(len(CELLS))
    for place, record in enumerate(CELLS):
        for row, weight in zip(public.codes, public.weights, strict=True):
            for j in ORDER:
                chances = block_chances(j, record, row, lacking)
                weight = weight * chances[BLOCKS[j][record[j]]] * SHARES[j][record[j]]
            found[place] += weight
    return found


def counts(codes):
    return np.bincount(np.ravel_multi_index(codes.T, (3, 3, 2)), minlength=len(CELLS))


def p_value(codes, law):
    return chisquare(counts(codes), len(codes) * law).pvalue


CASES = pytest.mark.parametrize("lacking", [(), (0,), (1,), (0, 1, 2)], ids=str)


@CASES
def test_records_are_drawn_from_the_mixture_of_the_rows(lacking):
    law = exact(lacking=lacking)
    assert law.sum() == pytest.approx(1)
    drawn = chain(lacking=lacking).sample(200_000, np.random.default_rng(0))
    assert drawn.shape == (200_000, 3)
    assert p_value(drawn, law) > 1e-3
    # Of rows with other weights they are others, where a column is copied.
    if len(lacking) < 3:
        other = PublicRecords(ROWS, RECORDS.weights[::-1])
        assert p_value(drawn, exact(other, lacking)) < 1e-6


@CASES
@pytest.mark.parametrize("rows_at_once", [256, 5])
def test_the_last_column_given_all_others(monkeypatch, lacking, rows_at_once):
    monkeypatch.setattr(_distributions, "_POSTERIOR_ROWS", rows_at_once)
    law = exact(lacking=lacking).reshape(3, 3, 2).transpose(0, 2, 1)
    expected = law / law.sum(axis=2, keepdims=True)
    columns = np.array(CELLS).T
    found = chain(lacking=lacking).last_given_others([*columns])
    assert_allclose(found, expected[columns[0], columns[2]], rtol=1e-4)
    # The value of the last column is not read.
    columns[1] = 0
    assert_array_equal(chain(lacking=lacking).last_given_others([*columns]), found)


def test_of_many_public_rows_each_has_its_weight():
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(-1, len(s), 60) for s in WANTED], axis=1)
    public = PublicRecords(codes.astype(np.int16), rng.dirichlet(np.ones(60)))
    law = exact(public).reshape(3, 3, 2).transpose(0, 2, 1)
    found = chain(public).last_given_others([*np.array(CELLS).T])
    expected = law / law.sum(axis=2, keepdims=True)
    a, _, c = np.array(CELLS).T
    assert_allclose(found, expected[a, c], rtol=1e-4)


@pytest.mark.parametrize(
    "allowed", [{1: [1, 0, 1]}, {2: [0, 1]}, {0: [0.2, 1, 0], 1: [0.1, 0.9, 0.5]}], ids=str
)
def test_conditions_are_met(allowed):
    law = exact()
    for place, record in enumerate(CELLS):
        for j, fractions in allowed.items():
            law[place] *= fractions[record[j]]
    fractions = {j: np.array(values) for j, values in allowed.items()}
    restricted = chain().restricted(fractions)
    drawn = restricted.sample(40_000, np.random.default_rng(0))
    found, law = counts(drawn) / 40_000, law / law.sum()
    assert (found[law == 0] == 0).all()
    assert np.abs(found - law).max() < 0.02
    assert chain().restricted({0: np.zeros(3)}) is None


def test_equal_columns_of_weighted_rows_are_those_of_repeated_ones():
    times = np.array([3, 1, 2, 2, 4])
    once = PublicRecords(ROWS, times / 12)
    repeated = PublicRecords(np.repeat(ROWS, times, axis=0), np.full(12, 1 / 12))
    assert_allclose(exact(once), exact(repeated))
    columns = [*np.array(CELLS).T]
    found = [chain(public).last_given_others(columns) for public in (once, repeated)]
    assert_allclose(*found, rtol=1e-5)


# Saved state.


def test_a_valid_chain_is_accepted():
    for lacking in ((), (1,)):
        chain(lacking=lacking)._check_saved_state()
        chain(lacking=lacking).public._check_saved_state()


def with_codes(*cell):
    codes = ROWS.copy()
    codes[cell[:2]] = cell[2]
    return replace(RECORDS, codes=codes)


@pytest.mark.parametrize(
    ("public", "message"),
    [
        (with_codes(0, 0, 2), "other columns"),
        (with_codes(4, 1, 3), "other columns"),
        (replace(RECORDS, codes=ROWS[:, :2]), "other columns"),
        (replace(RECORDS, codes=np.hstack([ROWS, ROWS])), "other columns"),
    ],
)
def test_public_rows_of_other_columns_are_refused(public, message):
    with pytest.raises(InvalidFileError, match=message):
        chain(public)._check_saved_state()


@pytest.mark.parametrize(
    "weights",
    [np.full(5, 0.3), np.full(4, 0.25), np.zeros(5), np.array([0.5, 0.5, 0, 0, 0])],
    ids=str,
)
def test_weights_that_are_none_are_refused(weights):
    with pytest.raises(InvalidFileError, match=r"other weights|sum to one|no weight"):
        replace(RECORDS, weights=weights)._check_saved_state()


def test_terms_of_public_columns_need_them():
    with pytest.raises(InvalidFileError, match="later one"):
        chain(public=None)._check_saved_state()
    # A further block stands for cells that are not known.
    short = LogLinearTerm((3,), (np.arange(2), np.arange(2)), np.zeros((2, 2)))
    with pytest.raises(InvalidFileError, match="other blocks"):
        chain(terms=TERMS | {0: (short,)})._check_saved_state()
    # No column is drawn in the place of a public one.
    found = chain(lacking=(0, 1, 2))
    moved = tuple(replace(one, column=one.column + 3) for one in found.conditionals)
    with pytest.raises(InvalidFileError, match="twice"):
        replace(found, conditionals=moved)._check_saved_state()
    with pytest.raises(InvalidFileError, match="all columns"):
        replace(found, conditionals=found.conditionals[:2])._check_saved_state()


# Fits.


def joint_of(chances, codes):
    """Return the mean table of drawn parents and the probabilities of a column."""
    table = np.zeros((codes.max() + 1, chances.shape[1]))
    np.add.at(table, codes, chances / len(codes))
    return table


def fit(tables, codes, copied, **options):
    device = resolve_device("cpu")
    return fit_conditional(
        1, np.array([0.2, 0.5, 0.3]), tables, codes, max_iter=100, device=device, copied=copied,
        **options,
    )  # fmt: skip


def rows_of_a_fit(n=3000):
    """Return codes of a column, of one to fit, and of the public row of the latter."""
    rng = np.random.default_rng(0)
    first, public = np.arange(n) % 2, rng.integers(4, size=n)
    return np.column_stack([first, np.zeros(n, dtype=int), public])


def test_without_tables_the_prior_is_the_fit():
    codes = rows_of_a_fit()
    own = CopiedColumn(2, 0.7, np.array([0.2, 0.5, 0.3]), codes[:, 2])
    found = fit([], codes, own)
    chances = found.probabilities(codes)
    assert_allclose(chances.mean(axis=0), [0.2, 0.5, 0.3], atol=1e-3)
    # A row whose block is not known follows the factors alone.
    free = chances[codes[:, 2] == 3]
    assert_allclose(free, np.broadcast_to(own.shares * own.factors, free.shape), atol=1e-3)


@pytest.mark.parametrize("groups", [[0, 1, 2], [0, 1, 0]], ids=str)
def test_tables_are_fitted_whatever_is_copied(groups):
    codes, groups = rows_of_a_fit(), np.array(groups)
    wanted = np.array([[0.15, 0.2, 0.15], [0.05, 0.3, 0.15]])
    sums = np.stack([wanted[:, groups == g].sum(axis=1) for g in range(groups.max() + 1)], axis=1)
    table = NoisyTable((0, 1), (np.arange(2), groups), sums, 0.0)
    own = CopiedColumn(2, 0.9, np.array([0.2, 0.5, 0.3]), codes[:, 2])
    found = fit([table], codes, own)
    joint = joint_of(found.probabilities(codes), codes[:, 0])
    joint = np.stack([joint[:, groups == g].sum(axis=1) for g in range(groups.max() + 1)], axis=1)
    assert_allclose(joint, sums, atol=0.01)
    # The copies remain: a row follows its public row.
    follows = found.probabilities(codes)[np.arange(len(codes)), np.minimum(codes[:, 2], 2)]
    assert follows[codes[:, 2] < 3].mean() > 0.6


def test_impossible_cells_are_never_copied():
    codes = rows_of_a_fit()
    own = CopiedColumn(2, 0.9, np.array([0.2, 0.5, 0.3]), codes[:, 2])
    barred = np.array([[0, 0, -40.0], [0, 0, 0]])
    fixed = (LogLinearTerm((0,), (np.arange(2), np.arange(3)), barred),)
    chances = fit([], codes, own, fixed=fixed, spread=np.full(3, 1e-6)).probabilities(codes)
    assert chances[codes[:, 0] == 0, 2].max() < 1e-6
    assert chances[codes[:, 0] == 1, 2].mean() > 0.3


def test_a_large_ridge_leaves_the_prior():
    codes = rows_of_a_fit()
    table = NoisyTable(
        (0, 1), (np.arange(2), np.arange(3)), np.array([[0.2, 0.2, 0.1], [0.0, 0.3, 0.2]]), 1e4
    )
    own = CopiedColumn(2, 0.9, np.array([0.2, 0.5, 0.3]), codes[:, 2])
    prior, found = (fit(tables, codes, own).probabilities(codes) for tables in ([], [table]))
    assert_allclose(found, prior, atol=0.01)


def records(n=20_000, seed=0):
    """Return columns of which the second follows the first, and the third both of them."""
    rng = np.random.default_rng(seed)
    a = rng.integers(3, size=n)
    b = np.where(rng.uniform(size=n) < 0.8, a, rng.integers(3, size=n))
    c = ((a + b > 1) ^ (rng.uniform(size=n) < 0.1)).astype(int)
    return np.column_stack([a, b, c])


def tables_of(chain_fit, n=40_000):
    law = chain_fit.distribution(Product([OneHot(3), OneHot(3), OneHot(2)]), 0)
    drawn = law.sample(n, np.random.default_rng(0))
    found = np.zeros((3, 3, 2))
    np.add.at(found, tuple(drawn.T), 1 / n)
    return found, law


def chain_fit(measured, public, order=(0, 1, 2)):
    return ChainFit(measured, order, 20_000, max_iter=40, device="cpu", public=public)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)], ids=str)
def test_dependence_comes_from_the_public_table(order):
    """Without a private pair, and even in an interaction of three columns."""
    exact = np.zeros((3, 3, 2))
    np.add.at(exact, tuple(records(seed=1).T), 1 / 20_000)
    measured = measurements_of([*records(seed=1).T], [3, 3, 2])
    public = PublicPrior(records(seed=2), np.ones(20_000), measured)
    found, law = tables_of(chain_fit(measured, public, order))
    assert np.abs(found - exact).sum() / 2 < 0.03
    assert law.public is public.records
    law._check_saved_state()
    alone, law = tables_of(chain_fit(measured, None, order))
    assert np.abs(alone - exact).sum() / 2 > 0.3
    assert law.public is None
    predicted = chain_fit(measured, public, order).predict(whole((0, 1), (1, 2), sizes=[3, 3, 2]))
    for table, axis in zip(predicted, (2, 0), strict=True):
        assert_allclose(table.sum(), 20_000)
        assert np.abs(table / 20_000 - exact.sum(axis=axis)).sum() / 2 < 0.03


def test_released_marginals_overrule_the_public_table():
    private = records(seed=1)
    private[:, 2] = private[:, 0] == 2
    measured = measurements_of([*private.T], [3, 3, 2])
    public = PublicPrior(records(seed=2), np.ones(20_000), measured)
    for marginal in whole((0, 1), (0, 2), sizes=[3, 3, 2]):
        (counts,) = marginal_counts([*private.T], [marginal])
        measured.add(marginal, counts, 1.0, measured.independent([marginal])[0])
    public.relate(measured)
    found, _ = tables_of(chain_fit(measured, public))
    exact = np.zeros((3, 3, 2))
    np.add.at(exact, tuple(private.T), 1 / 20_000)
    for axis in (2, 1):
        assert np.abs(found.sum(axis=axis) - exact.sum(axis=axis)).sum() / 2 < 0.02


def test_each_fit_of_a_prior_starts_anew(monkeypatch):
    """The prior changes between fits, so a shift of the one before would not fit it."""
    starts, fit = [], _log_linear_fit.fit_conditional

    def watch(*args, start, **options):
        starts.append(start)
        return fit(*args, start=start, **options)

    monkeypatch.setattr(_log_linear_fit, "fit_conditional", watch)
    measured = measurements_of([*records(2000).T], [3, 3, 2])
    public = PublicPrior(records(2000), np.ones(2000), measured)
    found = chain_fit(measured, public)
    (marginal,) = whole((0, 1), sizes=[3, 3, 2])
    first = found.predict([marginal])
    assert_array_equal(found.predict([marginal]), first)
    assert len(starts) == 3
    (counts,) = marginal_counts([*records(2000).T], [marginal])
    measured.add(marginal, counts, 1.0, first[0])
    found.predict([marginal])
    assert starts == [None] * 6
