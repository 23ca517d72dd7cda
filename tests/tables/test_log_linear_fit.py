"""Conditionals that are fitted to tables: the law is found, shrunk by the ridge, never broken."""

import itertools

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.optimize import OptimizeResult
from scipy.special import softmax

from sklearn_dpgen.tables import _log_linear_fit
from sklearn_dpgen.tables._distributions import LogLinearTerm
from sklearn_dpgen.tables._log_linear_fit import NoisyTable, fit_conditional
from sklearn_dpgen.tables._log_linear_tensors import TensorProblem

CPU = torch.device("cpu")
SIZES = (3, 4, 5)
RIDGE = 1e-8


def rows(seed=0, sizes=SIZES):
    """Return codes of two columns, each of their cells some times, and of a third that is zero."""
    rng = np.random.default_rng(seed)
    cells = list(itertools.product(*map(range, sizes[:2])))
    codes = np.repeat(cells, rng.integers(1, 60, size=len(cells)), axis=0)
    return np.column_stack([codes, np.zeros(len(codes), dtype=int)])


def whole(*columns, sizes=SIZES):
    return tuple(np.arange(sizes[j]) for j in columns)


def law(codes, seed=0, scale=1.0, sizes=SIZES):
    """Return probabilities of the third column for each row: log-linear, of pairs."""
    rng = np.random.default_rng([seed, 1])
    first, second = (scale * rng.normal(size=(k, sizes[2])) for k in sizes[:2])
    return softmax(rng.normal(size=sizes[2]) + first[codes[:, 0]] + second[codes[:, 1]], axis=1)


def table(codes, shares, columns, ridge=RIDGE, sizes=SIZES):
    """Return the exact table of earlier columns and the third."""
    counts = np.zeros([sizes[j] for j in columns] + [shares.shape[1]])
    np.add.at(counts, tuple(codes[:, j] for j in columns), shares)
    return NoisyTable((*columns, 2), whole(*columns, 2, sizes=sizes), counts / len(codes), ridge)


def fit(codes, marginal, tables, max_iter=300):
    return fit_conditional(2, marginal, tables, codes, max_iter=max_iter, device=CPU)


def probabilities(fitted, codes):
    """Return the law of the column for each row, by its definition."""
    logits = np.tile(fitted.base, (len(codes), 1))
    for term in fitted.terms:
        parents = zip(term.parents, term.groups[:-1], strict=True)
        cells = term.logits[tuple(groups[codes[:, j]] for j, groups in parents)]
        logits += cells[:, term.groups[-1]]
    return softmax(logits, axis=1)


def test_a_coarse_table_leaves_the_blocks_of_a_finer_one_in_place():
    codes, groups = rows(), np.array([1, 0, 1, 0, 2])
    shares = law(codes)
    exact = [table(codes, shares, (0,)), table(codes, shares, (1,))]
    coarse = np.zeros((SIZES[0], 3))
    np.add.at(coarse.T, groups, exact[0].shares.T)
    wide = NoisyTable((0, 2), (np.arange(SIZES[0]), groups), coarse, RIDGE)
    marginal = shares.mean(axis=0)
    for tables in ([wide, exact[1]], [exact[1], wide]):
        found = probabilities(fit(codes, marginal, tables), codes)
        assert_allclose(found.mean(axis=0), marginal, atol=1e-3)
        assert_allclose(table(codes, found, (1,)).shares, exact[1].shares, atol=1e-3)
        assert_allclose(table(codes, found, (0,)).shares @ np.eye(3)[groups], coarse, atol=1e-3)


def test_the_law_of_exact_tables_is_found():
    codes = rows()
    shares = law(codes)
    tables = [table(codes, shares, (0,)), table(codes, shares, (1,))]
    found = probabilities(fit(codes, shares.mean(axis=0), tables), codes)
    assert_allclose(found, shares, atol=1e-3)
    for one in tables:
        again = table(codes, found, one.columns[:-1])
        assert_allclose(again.shares, one.shares, atol=1e-4)
    # With one of the tables alone the law is another one.
    found = probabilities(fit(codes, shares.mean(axis=0), tables[:1]), codes)
    assert np.abs(found - shares).max() > 0.05


def test_triples_tell_what_pairs_do_not():
    sizes = (2, 2, 2)
    codes = np.repeat(list(itertools.product(range(2), range(2))), 100, axis=0)
    codes = np.column_stack([codes, np.zeros(400, dtype=int)])
    shares = np.eye(2)[codes[:, 0] ^ codes[:, 1]]
    even = np.full(2, 0.5)
    pairs = [table(codes, shares, (j,), sizes=sizes) for j in (0, 1)]
    assert_allclose(probabilities(fit(codes, even, pairs), codes), 0.5, atol=1e-6)
    triple = table(codes, shares, (0, 1), ridge=1e-4, sizes=sizes)
    found = probabilities(fit(codes, even, [*pairs, triple]), codes)
    assert_allclose(found, shares, atol=0.01)


def test_the_gradient_is_that_of_the_objective(monkeypatch):
    """By differences, and the objective by its formula."""
    codes, rng = rows(), np.random.default_rng(3)
    shares = law(codes)
    groups = (np.arange(3), np.arange(4), np.array([0, 1, 1, 2, 2]))
    triple = rng.normal(0.02, 0.05, size=(3, 4, 3))
    tables = [table(codes, shares, (0,), ridge=0.1), NoisyTable((0, 1, 2), groups, triple, 0.02)]
    problems, minimize = [], _log_linear_fit.minimize

    def watch(problem, *args, **options):
        problems.append(problem)
        return minimize(problem, *args, **options)

    monkeypatch.setattr(_log_linear_fit, "minimize", watch)
    fit(codes, shares.mean(axis=0), tables)
    (problem,) = problems
    for _ in range(3):
        point, direction = rng.normal(size=(2, problem.n_parameters))
        value, slope = problem(point)
        assert np.isfinite(value)
        step = 3e-2
        values = [problem(point + k * step * direction)[0] for k in (-2, -1, 1, 2)]
        found = np.dot([1, -8, 8, -1], values) / (12 * step)
        assert found == pytest.approx(slope @ direction, rel=2e-3, abs=1e-4)
        # Convex: between two points it is below their chord.
        ends = [problem(point - direction)[0], problem(point + direction)[0]]
        assert value <= np.mean(ends) + 1e-6


@pytest.mark.parametrize("is_fixed", [False, True])
def test_a_fit_goes_on_from_a_former_one(monkeypatch, is_fixed):
    """Its first point is the law of the former fit, where blocks are told apart more finely too."""
    codes = rows()
    shares = law(codes)
    marginal = shares.mean(axis=0)
    coarse = np.array([0, 1, 1, 2, 2])
    counts = np.stack([np.bincount(coarse, row) for row in table(codes, shares, (0,)).shares])
    first = NoisyTable((0, 2), (np.arange(3), coarse), counts, RIDGE)
    tables = [first, table(codes, shares, (1,)), table(codes, shares, (0, 1))]
    options = {"max_iter": 300, "device": CPU}
    if is_fixed:
        logits = np.zeros((4, 5))
        logits[0, 1] = -30.0
        options["fixed"] = (LogLinearTerm((1,), whole(1, 2), logits),)
        options["spread"] = np.full(5, 1e-4)
    former = fit_conditional(2, marginal, tables[:1], codes, **options)
    law_of_former = probabilities(former, codes)
    best = fit_conditional(2, marginal, tables, codes, **options)
    starts = []

    def stay(problem, start, **_):
        starts.append(start)
        return OptimizeResult(x=start, fun=problem(start)[0])

    with monkeypatch.context() as patch:
        patch.setattr(_log_linear_fit, "minimize", stay)
        begun = fit_conditional(2, marginal, tables, codes, **options, start=former)
        anew = fit_conditional(2, marginal, tables, codes, **options)
    assert_allclose(probabilities(begun, codes), law_of_former, atol=1e-5)
    # The negative twin: without a former fit it begins at independence, which is another law.
    assert not starts[1].any()
    assert np.abs(probabilities(anew, codes) - law_of_former).max() > 0.05
    # Where it ends is the same.
    found = fit_conditional(2, marginal, tables, codes, **options, start=former)
    assert_allclose(probabilities(found, codes), probabilities(best, codes), atol=0.01)


def test_a_ridge_shrinks_towards_independence():
    codes = rows()
    shares = law(codes)
    marginal = shares.mean(axis=0)
    gaps = []
    for ridge in (1e-8, 1e-3, 1e-1, 10.0, 1e4):
        tables = [table(codes, shares, (j,), ridge=ridge) for j in (0, 1)]
        found = probabilities(fit(codes, marginal, tables), codes)
        # Whatever the ridge, the column has its own law.
        assert_allclose(found.mean(axis=0), marginal, atol=1e-4)
        gaps.append(np.abs(found - marginal).mean())
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[0] > 0.1
    assert gaps[-1] < 1e-3


def test_noise_of_sums_is_left_out():
    """A table is moved to the sums that the rows and the column have, evenly as noise would be."""
    codes = rows()
    shares = law(codes)
    marginal = shares.mean(axis=0)
    exact = table(codes, shares, (0,))
    rng = np.random.default_rng(0)
    moved = exact.shares + rng.normal(size=(3, 1)) + rng.normal(size=5)
    moved = NoisyTable(exact.columns, exact.groups, moved, RIDGE, noise=10.0)
    found, expected = (probabilities(fit(codes, marginal, [one]), codes) for one in (moved, exact))
    assert_allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize(("noise", "is_kept"), [(0.0, True), (1.0, False)])
def test_a_rare_value_stays_rare_among_rows_that_are_too_many(noise, is_kept):
    """Rows of a fit have a frequent cell where the table, which is exact, has a rare one."""
    rare = np.array([0.01, 0.99])
    codes = np.repeat([[0, 0, 0], [1, 0, 0]], [700, 300], axis=0)
    shares = np.outer([0.1, 0.9], rare)
    one = NoisyTable((0, 2), (np.arange(2), np.arange(2)), shares, RIDGE, noise=noise)
    found = probabilities(fit(codes, rare, [one]), codes)[[0, -1], 0]
    assert (abs(found - 0.01) < 2e-3).all() == is_kept


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ridge", [1e-6, 1.0])
def test_tables_of_noise_give_a_law(seed, ridge):
    """With cells far below zero, and of few rows."""
    codes, rng = rows(seed)[:7], np.random.default_rng(seed)
    tables = [
        NoisyTable((0, 2), whole(0, 2), rng.normal(0, 3, size=(3, 5)), ridge),
        NoisyTable((0, 1, 2), whole(0, 1, 2), rng.normal(0, 3, size=SIZES), ridge),
    ]
    marginal = np.array([0.5, 0.5, 0.0, 0.0, 0.0])
    fitted = fit(codes, marginal, tables, max_iter=15)
    found = probabilities(fitted, rows(seed))
    assert np.isfinite(found).all()
    assert_allclose(found.sum(axis=1), 1)
    assert all(np.isfinite(term.logits).all() for term in fitted.terms)


def test_a_flag_of_a_kernel_is_no_fault(monkeypatch):
    """BLAS may raise the flag of an invalid operation although its products are right."""
    codes = rows()
    tables = [table(codes, law(codes), [0])]
    expected = fit(codes, law(codes).mean(axis=0), tables)
    row_maxima = _log_linear_fit._row_maxima

    def flagged(scores):
        np.subtract(np.full(5, np.inf), np.inf)
        return row_maxima(scores)

    monkeypatch.setattr(_log_linear_fit, "_row_maxima", flagged)
    with pytest.warns(RuntimeWarning, match="invalid value"):
        flagged(np.zeros((2, 5)))
    found = fit(codes, law(codes).mean(axis=0), tables)
    assert_allclose(probabilities(found, codes), probabilities(expected, codes))


def test_an_objective_that_is_not_finite_is_one():
    codes = rows()
    shares = np.full((3, 5), np.nan)
    tables = [NoisyTable((0, 2), whole(0, 2), shares, RIDGE)]
    with pytest.raises(FloatingPointError, match="column 2 is nan"):
        fit(codes, law(codes).mean(axis=0), tables)


def test_a_column_without_tables_has_its_own_law():
    marginal = np.array([0.5, 0.3, 0.2, 0.0, 0.0])
    fitted = fit(rows(), marginal, [])
    assert fitted.terms == ()
    assert_allclose(softmax(fitted.base), marginal, atol=1e-5)
    assert fitted.column == 2


def test_a_column_of_one_block():
    codes = rows()
    only = NoisyTable((0, 2), (np.arange(3), np.zeros(1, dtype=int)), np.full((3, 1), 0.3), 0.1)
    fitted = fit(codes, np.ones(1), [only])
    assert_allclose(probabilities(fitted, codes), 1)


def test_blocks_that_no_table_tells_apart_keep_their_proportions():
    codes = rows()
    shares = law(codes)
    groups = np.array([0, 1, 0, 1, 1])
    merged = np.stack([shares[:, groups == g].sum(axis=1) for g in (0, 1)], axis=1)
    counts = np.zeros((3, 2))
    np.add.at(counts, codes[:, 0], merged / len(codes))
    coarse = NoisyTable((0, 2), (np.arange(3), groups), counts, RIDGE)
    marginal = shares.mean(axis=0)
    found = probabilities(fit(codes, marginal, [coarse]), codes)
    for members in ([0, 2], [1, 3, 4]):
        parts = found[:, members] / found[:, members].sum(axis=1, keepdims=True)
        assert_allclose(
            parts, np.tile(marginal[members] / marginal[members].sum(), (len(codes), 1))
        )
    again = np.zeros((3, 2))
    np.add.at(
        again, (codes[:, 0]), np.stack([found[:, groups == g].sum(axis=1) for g in (0, 1)], 1)
    )
    assert_allclose(again / len(codes), counts, atol=1e-4)


def test_a_table_twice_is_one_of_twice_the_weight():
    codes = rows()
    shares = law(codes)
    marginal = shares.mean(axis=0)
    once = fit(codes, marginal, [table(codes, shares, (0,), ridge=0.05)])
    twice = fit(codes, marginal, [table(codes, shares, (0,), ridge=0.1)] * 2)
    assert_allclose(probabilities(twice, codes), probabilities(once, codes), atol=1e-4)


def test_tables_are_seen_from_any_column():
    groups = (np.arange(3), np.array([0, 1, 1, 1]), np.arange(5))
    shares = np.random.default_rng(0).normal(size=(3, 2, 5))
    one = NoisyTable((0, 1, 2), groups, shares, 0.3)
    for column in range(3):
        seen = one.with_last(column)
        assert seen.columns[-1] == column
        assert sorted(seen.columns) == [0, 1, 2]
        assert (seen.ridges == 0.3).all()
        for index in np.ndindex(shares.shape):
            assert seen.shares[tuple(index[j] for j in seen.columns)] == shares[index]
        assert [len(part) for part in seen.groups] == [(3, 4, 5)[j] for j in seen.columns]


@pytest.mark.parametrize("most", [_log_linear_fit._MOST_COMBINATIONS, 10])
@pytest.mark.parametrize("is_fixed", [False, True])
def test_a_device_computes_what_numpy_does(monkeypatch, is_fixed, most):
    """Values and gradients of both, of tables of any kind; of other ridges they differ.

    NumPy computes each of the 12 distinct rows once, if its combinations of cells can be numbered.
    """
    monkeypatch.setattr(_log_linear_fit, "_MOST_COMBINATIONS", most)
    codes, rng = rows(), np.random.default_rng(5)
    shares = law(codes)
    coarse = np.array([0, 1, 1, 2, 2])
    triple = rng.normal(0.02, 0.05, size=(3, 4, 3))
    pattern = np.add.outer(np.arange(4), np.arange(3))
    tables = [
        table(codes, shares, (0,)),
        NoisyTable((0, 1, 2), (np.arange(3), np.arange(4), coarse), triple, 0.02),
        NoisyTable((1, 2), (np.arange(4), coarse), rng.dirichlet(np.ones(6)), 0.05, None, pattern),
    ]
    options = {"max_iter": 2, "device": "cpu"}
    if is_fixed:
        logits = np.where(np.eye(4, 5) > 0, -9.0, 0.0)
        options["fixed"] = (LogLinearTerm((1,), whole(1, 2), logits),)
        options["spread"] = np.full(5, 1e-2)
    seen = []

    def both(device):
        def make(*args, **settings):
            seen.append((args, settings))
            return _log_linear_fit._Problem(*args, **settings)

        return make

    monkeypatch.setattr(_log_linear_fit, "_problem_of", both)
    fit_conditional(2, shares.mean(axis=0), tables, codes, **options)
    ((args, settings),) = seen
    problem = _log_linear_fit._Problem(*args, **settings)
    assert len(problem._weights) == (12 if most > 10 else len(codes))
    on_device = TensorProblem(*args, device=CPU, **settings)
    args[1][1].ridges = 1.5 * args[1][1].ridges
    other = TensorProblem(*args, device=CPU, **settings)
    for point in rng.normal(size=(3, problem.n_parameters)):
        value, slope = problem(point)
        found, gradient = on_device(point)
        assert found == pytest.approx(value, rel=1e-5)
        assert_allclose(gradient, slope, atol=2e-5 * np.abs(slope).max())
        assert np.abs(other(point)[1] - slope).max() > 1e-3 * np.abs(slope).max()


def test_a_device_other_than_the_cpu_is_that_of_pytorch():
    assert _log_linear_fit._problem_of("cpu") is _log_linear_fit._problem_of(CPU)
    problem = _log_linear_fit._problem_of("cuda:0")
    assert problem.func is TensorProblem
    assert problem.keywords == {"device": "cuda:0"}
