"""A chain of conditionals that follows what is measured."""

import itertools

import numpy as np
import pytest
from measured_tables import measurements_of, whole
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.domains import OneHot, Product
from sklearn_dpgen.tables import _log_linear_fit
from sklearn_dpgen.tables._log_linear_fit import ChainFit
from sklearn_dpgen.tables._marginals import marginal_counts

SIZES = [3, 4, 2]
PAIRS = [(0, 1), (0, 2), (1, 2)]
DOMAIN = Product([OneHot(size) for size in SIZES])


def records(n=4000, seed=0):
    """Return columns of which each depends on the others."""
    rng = np.random.default_rng(seed)
    a = rng.choice(3, p=[0.5, 0.3, 0.2], size=n)
    b = np.where(rng.uniform(size=n) < 0.6, a, rng.integers(4, size=n))
    c = (rng.uniform(size=n) < 0.1 + 0.3 * (b == a) + 0.2 * a).astype(int)
    return [a, b, c]


def measured_of(codes, columns=PAIRS):
    measured = measurements_of(codes, SIZES)
    parts = whole(*columns, sizes=SIZES)
    for part, counts in zip(parts, marginal_counts(codes, parts), strict=True):
        measured.add(part, counts, 0.0, measured.independent([part])[0])
    return measured


def chain(measured, order=(0, 1, 2), **options):
    return ChainFit(measured, order, 20_000, **{"max_iter": 40, "device": "cpu"} | options)


def joint(law, n=40_000):
    counts = np.zeros(SIZES)
    np.add.at(counts, tuple(law.sample(n, np.random.default_rng(0)).T), 1 / n)
    return counts


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_pairs_are_followed_in_any_order(order):
    codes = records()
    law = chain(measured_of(codes), order).distribution(DOMAIN, 0)
    assert [one.column for one in law.conditionals] == list(order)
    # A parent comes before.
    for place, one in enumerate(law.conditionals):
        assert {j for term in one.terms for j in term.parents} <= {*order[:place]}
    drawn = law.sample(40_000, np.random.default_rng(0))
    parts = whole(*PAIRS, sizes=SIZES)
    for exact, found in zip(
        marginal_counts(codes, parts), marginal_counts(drawn.T, parts), strict=True
    ):
        assert np.abs(exact / 4000 - found / 40_000).sum() / 2 < 0.02


def test_the_order_is_no_matter_where_the_law_is_of_pairs():
    laws = [
        chain(measured_of(records()), order).distribution(DOMAIN, 0)
        for order in ((0, 1, 2), (2, 1, 0))
    ]
    assert np.abs(joint(laws[0]) - joint(laws[1])).sum() / 2 < 0.03
    apart = chain(measured_of(records(), [])).distribution(DOMAIN, 0)
    assert np.abs(joint(laws[0]) - joint(apart)).sum() / 2 > 0.15


def test_predictions_follow_what_was_measured():
    codes = records()
    parts = whole(*PAIRS, sizes=SIZES)
    exact = marginal_counts(codes, parts)
    nothing = measured_of(codes, [])
    for one, two in zip(chain(nothing).predict(parts), nothing.independent(parts), strict=True):
        assert_array_equal(one, two)
    found = chain(measured_of(codes)).predict(parts)
    assert_allclose([table.sum() for table in found], 4000)
    for one, two in zip(found, exact, strict=True):
        assert np.abs(one - two).sum() / 2 < 0.03 * 4000
    # Pairs that were not measured are as if independent, given what was.
    some = chain(measured_of(codes, [(0, 1)])).predict(parts)
    assert np.abs(some[0] - exact[0]).sum() / 2 < 0.02 * 4000
    assert np.abs(some[1] - exact[1]).sum() / 2 > 0.05 * 4000


def test_conditionals_are_fitted_anew_for_new_tables_alone(monkeypatch):
    codes, fitted = records(), []
    fit = _log_linear_fit.fit_conditional

    def watch(column, *args, **options):
        fitted.append(column)
        return fit(column, *args, **options)

    monkeypatch.setattr(_log_linear_fit, "fit_conditional", watch)
    measured = measured_of(codes, [(0, 1)])
    found = chain(measured, (2, 0, 1))
    parts = whole(*PAIRS, sizes=SIZES)
    first = found.predict(parts)
    for one, two in zip(first, found.predict(parts), strict=True):
        assert_array_equal(one, two)
    assert fitted == [2, 0, 1]
    (counts,) = marginal_counts(codes, parts[1:2])
    measured.add(parts[1], counts, 0.0, first[1])
    assert not np.array_equal(found.predict(parts)[1], first[1])
    assert fitted == [2, 0, 1] * 2


def test_predictions_take_fewer_steps_and_each_fit_goes_on_from_the_last(monkeypatch):
    codes, parts, fits = records(), whole(*PAIRS, sizes=SIZES), []
    fit = _log_linear_fit.fit_conditional

    def watch(column, *args, **options):
        found = fit(column, *args, **options)
        fits.append((options["max_iter"], options["start"], found))
        return found

    monkeypatch.setattr(_log_linear_fit, "fit_conditional", watch)
    measured = measured_of(codes, [(0, 1)])
    found = chain(measured, max_iter=31)
    expected = found.predict(parts)
    (counts,) = marginal_counts(codes, parts[1:2])
    measured.add(parts[1], counts, 0.0, expected[1])
    found.predict(parts)
    law = found.distribution(DOMAIN, 0)
    steps, starts, results = zip(*fits, strict=True)
    assert steps == (7,) * 6 + (31,) * 3
    assert starts[:3] == (None,) * 3
    assert starts[3:] == results[:6]
    assert law.conditionals == results[6:]
    # Without a prediction, and so without a choice, the law is fitted from nothing.
    del fits[:]
    chain(measured).distribution(DOMAIN, 0)
    assert [(steps, start) for steps, start, _ in fits] == [(40, None)] * 3


def test_a_chain_follows_its_seed():
    measured = measured_of(records())

    def parameters(seed):
        return [
            one.terms[0].logits
            for one in chain(measured).distribution(DOMAIN, seed).conditionals[1:]
        ]

    first, again, other = (parameters(seed) for seed in (0, 0, 1))
    assert all(map(np.array_equal, first, again))
    assert not any(map(np.array_equal, first, other))
    first, other = (parameters(None) for _ in "ab")
    assert not any(map(np.array_equal, first, other))


def test_predictions_draw_the_same_rows_whenever_they_are_made():
    measured, parts = measured_of(records()), whole(*PAIRS, sizes=SIZES)
    first, again = (chain(measured).predict(parts) for _ in "ab")
    assert all(map(np.array_equal, first, again))


def test_categories_have_their_shares_within_blocks(monkeypatch):
    monkeypatch.setattr("sklearn_dpgen.tables._marginals.MAX_BLOCKS", 2)
    measured = measured_of(records(), [])
    law = chain(measured).distribution(DOMAIN, 0)
    for blocks, shares in zip(law.blocks, law.shares, strict=True):
        assert blocks.max() == 1
        assert_allclose(np.bincount(blocks, shares), 1)
    drawn = law.sample(40_000, np.random.default_rng(0))
    for column, codes in zip(drawn.T, records(), strict=True):
        exact = np.bincount(codes, minlength=4)[: column.max() + 1] / 4000
        assert_allclose(np.bincount(column) / 40_000, exact, atol=0.015)


def test_progress_is_shown_if_asked_for(capsys):
    chain(measured_of(records()), name="Chain").distribution(DOMAIN, 0)
    assert capsys.readouterr().err == ""
    chain(measured_of(records()), verbose=1, name="Chain").distribution(DOMAIN, 0)
    assert "Chain" in capsys.readouterr().err
