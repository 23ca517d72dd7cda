"""Populations: predicted slices, the loss and its gradient, and the descent."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.tables import _population
from sklearn_dpgen.tables._population import Population, SliceLoss, predicted_slices
from sklearn_dpgen.tables._slices import all_pairs, slice_counts

SIZES = [3, 2, 4, 2]
SLICES = [(0,), (1,), (2,), (3,), (0, 1), (2, 0), (1, 3), (0, 1, 2), (3, 2, 1)]
WEIGHTS = [1.0, 0.5, 2.0, 1.0, 3.0, 0.7, 1.0, 2.0, 0.3]
PARTS = [slice(stop - size, stop) for size, stop in zip(SIZES, np.cumsum(SIZES), strict=True)]
CPU = torch.device("cpu")


def soft_rows(n=7, seed=0):
    rng = np.random.default_rng(seed)
    return np.hstack([rng.dirichlet(np.full(size, 0.5), size=n) for size in SIZES])


def noisy_tables(slices=SLICES, seed=1):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=[SIZES[column] for column in columns]) for columns in slices]


def naive_slice(P, columns):
    blocks = [P[:, PARTS[column]] for column in columns]
    letters = "abc"[: len(columns)]
    inputs = ",".join(f"n{letter}" for letter in letters)
    return np.einsum(f"{inputs}->{letters}", *blocks) / len(P)


def naive_loss(P, slices, tables, weights):
    return sum(
        (weight * (naive_slice(P, columns) - table) ** 2).sum()
        for columns, table, weight in zip(slices, tables, weights, strict=True)
    )


def evaluated(P, slices=SLICES, tables=None, weights=WEIGHTS):
    tables = noisy_tables() if tables is None else tables
    loss = SliceLoss(SIZES, slices, tables, weights, CPU)
    value, gradient = loss(torch.tensor(np.ascontiguousarray(P.T), dtype=torch.float32))
    return value.item(), gradient.numpy().T


def test_slices_of_hard_rows_are_their_counts():
    rng = np.random.default_rng(0)
    codes = [rng.integers(size, size=50) for size in SIZES]
    P = np.hstack([np.eye(size)[column] for size, column in zip(SIZES, codes, strict=True)])
    counts = slice_counts(codes, SIZES, SLICES)
    for found, table in zip(predicted_slices(P, SIZES, SLICES), counts, strict=True):
        assert_allclose(found, table / 50, rtol=0, atol=1e-15)
    assert evaluated(P, tables=[table / 50 for table in counts])[0] < 1e-12


def test_slices_of_soft_rows():
    P = soft_rows()
    for columns, found in zip(SLICES, predicted_slices(P, SIZES, SLICES), strict=True):
        assert_allclose(found, naive_slice(P, columns), atol=1e-14)
    torch.set_grad_enabled(True)
    assert_array_equal(predicted_slices(torch.tensor(P), SIZES, [(0, 1)])[0].shape, (3, 2))


def test_a_tensor_keeps_its_precision():
    P = torch.tensor(soft_rows(1000), requires_grad=True)
    exact = predicted_slices(P, SIZES, SLICES)
    for double, single in zip(exact, predicted_slices(P.float(), SIZES, SLICES), strict=True):
        assert double.dtype == single.dtype == np.float64
        assert_allclose(single, double, rtol=1e-5)
    assert any(map(np.any, np.subtract(exact[4], predicted_slices(P.float(), SIZES, [(0, 1)]))))


@pytest.mark.parametrize("block", [1, 30, 1 << 20])
@pytest.mark.parametrize("part", [slice(None), slice(4), slice(4, 7), slice(7, None)], ids=str)
def test_the_loss_and_its_gradient(monkeypatch, block, part):
    monkeypatch.setattr(_population, "_BLOCK", block)
    P, tables = soft_rows(), noisy_tables()
    given = SLICES[part], tables[part], WEIGHTS[part]
    value, gradient = evaluated(P, *given)
    assert value == pytest.approx(naive_loss(P, *given), rel=1e-5)
    numerical = np.zeros_like(P)
    for where in np.ndindex(P.shape):
        for sign in (1, -1):
            moved = P.copy()
            moved[where] += sign * 1e-4
            numerical[where] += sign * naive_loss(moved, *given) / 2e-4
    assert_allclose(gradient, numerical, atol=1e-5)


def test_a_pair_counted_twice_is_another_loss():
    """What a sum over both halves of a symmetric matrix would do, were it not halved."""
    P, tables = soft_rows(), noisy_tables()
    doubled = [weight * (1 + (len(c) == 2)) for c, weight in zip(SLICES, WEIGHTS, strict=True)]
    value, gradient = evaluated(P)
    twice, steeper = evaluated(P, weights=doubled)
    assert value == pytest.approx(naive_loss(P, SLICES, tables, WEIGHTS), rel=1e-5)
    assert twice > 1.1 * naive_loss(P, SLICES, tables, WEIGHTS)
    assert abs(steeper - gradient).max() > 0.1 * abs(gradient).max()


def test_a_weight_for_each_category():
    P, weights = soft_rows(), [np.array([1.0, 0.0, 3.0]), 0.5, np.full(4, 2.0), *WEIGHTS[3:]]
    value, gradient = evaluated(P, weights=weights)
    assert value == pytest.approx(naive_loss(P, SLICES, noisy_tables(), weights), 1e-5)
    scalar = [2.0, *WEIGHTS[1:]]
    difference = gradient - evaluated(P, weights=scalar)[1]
    errors = P.mean(axis=0)[:3] - noisy_tables()[0]
    assert_allclose(difference[:, :3], np.tile(2 / 7 * errors * [-1, -2, 1], (7, 1)), atol=1e-5)
    assert_allclose(difference[:, 3:], 0, atol=1e-6)
    assert SliceLoss(SIZES, SLICES, noisy_tables(), weights, CPU).scale == 3.0


# How pairs are put together to products: each column for itself, all together, or in between.
LAYOUTS = {
    "apart": {"_READ": 0, "_CALL": 0},
    "together": {"_CALL": 1 << 30, "_TALL": 1 << 30, "_WIDE": 1 << 30},
    "cut": {"_CALL": 1 << 30, "_TALL": 12, "_WIDE": 10},
}
WIDE = [3, 5, 2, 4, 6, 1, 3, 5, 2, 4, 7, 20]


def lay_out(patch, name):
    for constant, value in LAYOUTS.get(name, {}).items():
        patch.setattr(_population, constant, value)


def products(slices, sizes=WIDE):
    """Cells of each product, and cells of tables in all of them."""
    shapes, cells = [], 0
    for left, right, places in _population._pair_products(sizes, slices, CPU):
        width = right.stop - right.start if isinstance(right, slice) else len(right)
        shapes.append((left.stop - left.start, width))
        cells += sum((a.stop - a.start) * (b.stop - b.start) for _, (a, b) in places)
    return shapes, cells


def some_pairs(n_pairs):
    rng = np.random.default_rng(0)
    pairs = rng.permutation(all_pairs(len(WIDE)))[:n_pairs]
    return [tuple(map(int, rng.permutation(pair))) for pair in pairs]


@pytest.mark.parametrize("n_pairs", [1, 12, 40, 66])
def test_the_layout_of_pairs_does_not_matter(monkeypatch, n_pairs):
    rng = np.random.default_rng(1)
    slices = [(3,), *some_pairs(n_pairs)]
    P = np.hstack([rng.dirichlet(np.full(size, 0.5), size=50) for size in WIDE])
    tables = [rng.normal(size=[WIDE[i] for i in columns]) for columns in slices]
    weights = rng.uniform(0.5, 2, len(slices))
    blocks = np.split(P, np.cumsum(WIDE)[:-1], axis=1)
    truth = [P.mean(axis=0)[10:14]] + [blocks[i].T @ blocks[j] / 50 for i, j in slices[1:]]
    found = {}
    for name in ("default", *LAYOUTS):
        with monkeypatch.context() as patch:
            lay_out(patch, name)
            loss = SliceLoss(WIDE, slices, tables, weights, CPU)
            value, gradient = loss(torch.tensor(P.T.copy(), dtype=torch.float32))
            found[name] = value.item(), gradient.numpy()
            for ours, theirs in zip(predicted_slices(P, WIDE, slices), truth, strict=True):
                assert_allclose(ours, theirs, atol=1e-14)
    errors = zip(weights, truth, tables, strict=True)
    assert found["default"][0] == pytest.approx(sum(w * ((a - b) ** 2).sum() for w, a, b in errors))
    for value, gradient in found.values():
        assert value == pytest.approx(found["default"][0], rel=1e-5)
        assert_allclose(gradient, found["default"][1], atol=1e-5)
    # A table at the wrong place is another loss.
    swapped = SliceLoss(WIDE, slices, [tables[0], *(-t for t in tables[1:])], weights, CPU)
    other = swapped(torch.tensor(P.T.copy(), dtype=torch.float32))[1]
    assert np.abs(other.numpy() - found["default"][1]).max() > 1e-3


def test_few_pairs_cost_little(monkeypatch):
    sizes, pairs = [20] * 100, all_pairs(100)
    rng = np.random.default_rng(0)
    some = [pairs[place] for place in rng.choice(len(pairs), 800, replace=False)]
    for slices, waste, calls in ((some, 1.1, 110), (pairs, 1.15, 60), (some[:1], 1.001, 1)):
        shapes, cells = products(slices, sizes)
        assert cells == 400 * len(slices)
        assert np.prod(shapes, axis=1).sum() < waste * cells
        assert len(shapes) <= calls
        assert np.max(shapes, axis=0)[0] <= 256
        assert np.max(shapes, axis=0)[1] <= 512 + 20
    assert products([(0,), (1, 2, 3)], sizes) == ([], 0)
    lay_out(monkeypatch, "together")
    assert np.prod(products(some, sizes)[0]) > 10 * 400 * len(some)


def test_the_descent_follows_the_gradient_of_the_logits():
    P, tables = soft_rows(), noisy_tables()
    loss = SliceLoss(SIZES, SLICES, tables, WEIGHTS, CPU)
    population = Population([np.full(size, 1 / size) for size in SIZES], 7, torch.Generator(), CPU)
    with torch.no_grad():
        population.logits.copy_(torch.tensor(np.log(P.T)))
    logits = population.logits.detach().clone().requires_grad_()
    rows = torch.cat([part.softmax(dim=0) for part in logits.split(SIZES)])
    assert_allclose(rows.detach().T, P, atol=1e-6)
    value, slope = loss(rows.detach())
    (expected,) = torch.autograd.grad(rows, logits, slope)
    seen = []

    def spy(module, gradient_fn, **options):
        seen.append(gradient_fn(0))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_population, "descend", spy)
        population.fit(loss, max_iter=1, learning_rate=1.0)
    (found, (gradient,)) = seen[0]
    assert found == pytest.approx(value.item())
    assert_allclose(gradient * max(WEIGHTS) / 7, expected, atol=1e-6)


def test_exact_pairs_are_recovered():
    rng = np.random.default_rng(0)
    codes = [rng.integers(3, size=400), rng.integers(2, size=400)]
    codes += [codes[0] + codes[1], np.zeros(400, dtype=int)]
    slices = all_pairs(4)
    tables = [table / 400 for table in slice_counts(codes, SIZES, slices)]
    marginals = [np.bincount(c, minlength=s) / 400 for c, s in zip(codes, SIZES, strict=True)]

    def error(tables):
        population = Population(marginals, 60, torch.Generator().manual_seed(0), CPU)
        loss = SliceLoss(SIZES, slices, tables, [1.0] * 6, CPU)
        result = population.fit(loss, max_iter=400, learning_rate=0.3)
        assert result.n_iter == 400
        found = predicted_slices(population.probabilities(), SIZES, slices)
        return max(np.abs(f - t).max() for f, t in zip(found, tables, strict=True)), result

    exact, result = error(tables)
    assert exact < 5e-3
    assert result.loss_curve[-1] < 1e-3 * result.loss_curve[0]
    # Tables that no law has are not reached.
    assert error([tables[0][::-1], *tables[1:]])[0] > 2e-2


def test_a_fit_goes_on_from_where_it_stands():
    tables = predicted_slices(soft_rows(200), SIZES, SLICES)
    loss = SliceLoss(SIZES, SLICES, tables, WEIGHTS, CPU)
    population = Population(tables[:4], 30, torch.Generator().manual_seed(0), CPU)
    start = population.probabilities()
    assert start.shape == (30, 11)
    first = population.fit(loss, max_iter=60, learning_rate=0.3).loss_curve
    second = population.fit(loss, max_iter=2, learning_rate=1e-3).loss_curve
    assert second[0] < 0.2 * first[0]
    assert_allclose(second[0], first[-1], rtol=0.1)
    rows = population.probabilities()
    assert_allclose([rows[:, part].sum(axis=1) for part in PARTS], 1)
    assert np.abs(rows - start).max() > 0.1


def test_rows_start_around_noisy_marginals():
    shares = [np.array([0.7, -0.2, 0.4]), np.array([0.9, 0.1])]
    rows = Population(shares, 4000, torch.Generator().manual_seed(0), CPU).probabilities()
    assert rows[:, 1].max() < 1e-3
    assert abs(rows[:, 3].mean() - 0.85) < 0.05
    assert rows.std(axis=0)[[0, 2, 3]].min() > 0.03


# The prior.

MARGINALS = [np.array([0.6, 0.3, 0.1]), np.array([0.8, 0.3]), np.array([0.5, -0.1, 0.2, 0.2])]
MARGINALS.append(np.array([1.0, 0.0]))


def centers(marginals):
    """Return noisy marginals as probabilities."""
    floored = [np.maximum(part, 1e-6) for part in marginals]
    return [part / part.sum() for part in floored]


def divergence(rows, marginals):
    """Return the mean KL(row ‖ marginals) of rows in columns, a tensor."""
    target = torch.tensor(np.concatenate(centers(marginals)), dtype=rows.dtype)[:, None]
    return (rows * (rows.log() - target.log())).sum() / rows.shape[1]


def gradients(prior, marginals=MARGINALS, seed=0):
    """Return the gradient that is descended, in logits, and that of loss + prior * divergence."""
    loss = SliceLoss(SIZES, SLICES, noisy_tables(), WEIGHTS, CPU)
    population = Population(marginals, 7, torch.Generator().manual_seed(seed), CPU)
    with torch.no_grad():
        population.logits.add_(torch.tensor(np.random.default_rng(1).normal(size=(11, 7))))
    logits = population.logits.detach().double().requires_grad_()
    rows = torch.cat([part.softmax(dim=0) for part in logits.split(SIZES)])
    _, slope = loss(rows.detach().float())
    (of_loss,) = torch.autograd.grad(rows, logits, slope.double(), retain_graph=True)
    (of_prior,) = torch.autograd.grad(divergence(rows, marginals), logits)
    seen = []

    def spy(module, gradient_fn, **options):
        seen.append(gradient_fn(0))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_population, "descend", spy)
        population.fit(loss, prior=prior, max_iter=1, learning_rate=1.0)
    value, (found,) = seen[0]
    assert value == pytest.approx(loss(rows.detach().float())[0].item(), rel=1e-6)
    expected = (of_loss + prior * of_prior) * 7 / loss.scale
    return found.double().numpy(), expected.numpy(), of_prior.numpy()


@pytest.mark.parametrize("prior", [0.0, 0.3, 50.0])
def test_the_gradient_with_a_prior(prior):
    found, expected, of_prior = gradients(prior)
    assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * (1 + prior))
    # Of another weight, or from other marginals, it is another.
    assert np.abs(of_prior).max() > 1e-2
    other, _, _ = gradients(prior + 0.3)
    assert np.abs(other - expected).max() > 1e-2
    uniform = [np.full(size, 1 / size) for size in SIZES]
    moved = gradients(prior, uniform)[0]
    wrong = gradients(prior, uniform)[1] - gradients(prior)[1] - moved + found
    assert np.abs(wrong).max() < 1e-4 * (1 + prior)


def descended(prior, marginals, tables, max_iter=300, **options):
    slices = SLICES[:7]
    loss = SliceLoss(SIZES, slices, tables, WEIGHTS[:7], CPU)
    population = Population(marginals, 30, torch.Generator().manual_seed(0), CPU)
    start = population.probabilities()
    options = {"prior": prior} | options
    result = population.fit(loss, max_iter=max_iter, learning_rate=0.2, **options)
    return start, population.probabilities(), result.loss_curve


def test_with_a_huge_prior_rows_are_the_marginals():
    tables = predicted_slices(soft_rows(200), SIZES, SLICES[:7])
    target = np.concatenate(centers(MARGINALS))
    start, rows, _ = descended(1e4, MARGINALS, tables)
    assert np.abs(start - target).max() > 0.1
    assert_allclose(rows, np.tile(target, (30, 1)), atol=2e-3)
    # A small one lets the tables have their way.
    assert np.abs(descended(1e-3, MARGINALS, tables)[1] - target).max() > 0.2


def test_a_prior_takes_out_dependence_that_the_tables_do_not_ask_for():
    marginals = [part.mean(axis=0) for part in np.split(soft_rows(200), [3, 5, 9], axis=1)]
    tables = predicted_slices(soft_rows(200), SIZES, SLICES[:7])
    spread, losses = [], []
    for prior in (0.0, 0.01, 0.1, 1.0):
        _, rows, curve = descended(prior, marginals, tables)
        spread.append(rows.std(axis=0).mean())
        losses.append(curve[-1])
    assert (np.diff(spread) < 0).all()
    assert (np.diff(losses) > 0).all()
    assert losses[-1] > 10 * losses[0]


def test_without_a_prior_nothing_changes():
    tables = noisy_tables(SLICES[:7])
    _, rows, curve = descended(0.0, MARGINALS, tables, max_iter=20)
    population = Population(MARGINALS, 30, torch.Generator().manual_seed(0), CPU)
    loss = SliceLoss(SIZES, SLICES[:7], tables, WEIGHTS[:7], CPU)
    bare = population.fit(loss, max_iter=20, learning_rate=0.2)
    assert_array_equal(population.probabilities(), rows)
    assert bare.loss_curve == curve
    other = descended(0.1, MARGINALS, tables, max_iter=20)
    assert np.abs(other[1] - rows).max() > 1e-3
    # The curve is that of the loss alone.
    assert other[2][0] == curve[0]


def test_a_prior_stands_rows_that_exclude_a_category():
    """Logits so far apart that a probability is zero in single precision."""
    population = Population(MARGINALS, 6, torch.Generator().manual_seed(0), CPU)
    with torch.no_grad():
        population.logits[0] += 300
    loss = SliceLoss(SIZES, SLICES[:4], noisy_tables(SLICES[:4]), WEIGHTS[:4], CPU)
    result = population.fit(loss, prior=10.0, max_iter=5, learning_rate=0.1)
    assert np.isfinite(population.probabilities()).all()
    assert np.isfinite(result.loss_curve).all()
    assert np.isfinite(population.logits.detach().numpy()).all()
