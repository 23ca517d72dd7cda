"""Laws of columns that are drawn in turn, against tiny ones of which all records are listed."""

import tracemalloc
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chisquare
from sklearn.base import BaseEstimator

from sklearn_dpgen.domains import OneHot, Product
from sklearn_dpgen.exceptions import InvalidFileError
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import _distributions
from sklearn_dpgen.tables._conditional_sampling import ConditionalSamplerMixin
from sklearn_dpgen.tables._distributions import (
    LogLinearChain,
    LogLinearConditional,
    LogLinearTerm,
    ProductMixture,
)

# Blocks of four columns, which are drawn in this order: a column of one block, columns with one or
# two categories a block, blocks that are no runs.
BLOCKS = [np.array([0, 0, 1, 1]), np.array([2, 0, 1]), np.array([0, 0]), np.array([1, 0, 0, 1])]
SHARES = [
    np.array([0.3, 0.7, 1, 0]),
    np.ones(3),
    np.array([0.1, 0.9]),
    np.array([0.5, 0.2, 0.8, 0.5]),
]
ORDER = [1, 3, 0, 2]


def logits(*shape):
    return np.random.default_rng(sum(shape)).normal(scale=1.2, size=shape)


def term(*columns, groups):
    groups = tuple(map(np.array, groups))
    return LogLinearTerm(columns, groups, logits(*(1 + group.max() for group in groups)))


TERMS = {
    1: (),
    3: (term(1, groups=[[0, 1, 2], [0, 1]]),),
    0: (
        term(1, groups=[[0, 1, 0], [1, 0]]),
        term(3, groups=[[0, 1], [0, 1]]),
        term(3, 1, groups=[[0, 1], [1, 0, 1], [0, 1]]),
    ),
    2: (term(0, groups=[[0, 1], [0]]),),
}


def chain(terms=TERMS):
    parts = [LogLinearConditional(j, logits(1 + BLOCKS[j].max()), terms[j]) for j in ORDER]
    domain = Product([OneHot(len(blocks)) for blocks in BLOCKS])
    return LogLinearChain(domain, BLOCKS, SHARES, tuple(parts))


CHAIN = chain()
CELLS = list(product(*(range(len(blocks)) for blocks in BLOCKS)))


def block_chances(conditional, record):
    """The law of the blocks of a column, given the categories of a record, by the definition."""
    scores = conditional.base.copy()
    for part in conditional.terms:
        before = tuple(
            group[BLOCKS[parent][record[parent]]]
            for parent, group in zip(part.parents, part.groups, strict=False)
        )
        for block in range(len(scores)):
            scores[block] += part.logits[(*before, part.groups[-1][block])]
    return np.exp(scores) / np.exp(scores).sum()


def exact(law=CHAIN, allowed=None):
    """The weight of each record, and its chance where columns are drawn under conditions."""
    allowed = allowed or {}
    found = np.zeros((2, len(CELLS)))
    for place, record in enumerate(CELLS):
        joint = drawn = 1.0
        for conditional in law.conditionals:
            j = conditional.column
            shares = block_chances(conditional, record)[BLOCKS[j]] * SHARES[j]
            kept = shares * allowed.get(j, 1.0)
            joint *= kept[record[j]]
            drawn *= kept[record[j]] / kept.sum() if kept.sum() else 0.0
        found[:, place] = joint, drawn
    return found


def counts(codes):
    """The number of records in each of the cells."""
    sizes = [len(blocks) for blocks in BLOCKS]
    return np.bincount(np.ravel_multi_index(codes.T, sizes), minlength=len(CELLS))


def p_value(codes, law):
    """Of the chi-squared test of records against the law of the cells."""
    found, law = counts(codes), law / law.sum()
    if found[law == 0].any():
        return 0.0
    # Cells that few records are expected in count as one.
    many = len(codes) * law >= 10
    found, law = (np.append(part[many], part[~many].sum()) for part in (found, law))
    kept = law > 0
    return chisquare(found[kept], len(codes) * law[kept]).pvalue


def draw(law, n=100_000, seed=0):
    return law.sample(n, np.random.default_rng(seed))


def test_the_law_of_records():
    codes = draw(CHAIN)
    assert codes.shape == (100_000, 4)
    assert codes.dtype == np.int64
    law = exact()[0]
    assert law.sum() == pytest.approx(1)
    assert p_value(codes, law) > 1e-3
    # Without one of the terms it is another law.
    for column, parts in TERMS.items():
        for left_out in parts if column != 2 else ():
            kept = tuple(part for part in parts if part is not left_out)
            assert p_value(draw(chain(TERMS | {column: kept})), law) < 1e-6


def test_records_do_not_depend_on_the_rows_at_a_time(monkeypatch):
    codes = draw(CHAIN, 1000)
    monkeypatch.setattr(_distributions, "_ENTRIES", 50)
    assert_array_equal(draw(CHAIN, 1000), codes)


# Conditions: of each column, the part of each category that is allowed.
CONDITIONS = {
    "first column": {1: [1, 0, 1]},
    "last column": {2: [0, 1]},
    "parts of categories": {0: [0.2, 0.05, 0.9, 1]},
    "part of a block": {3: [1, 0, 1, 0]},
    "a whole block": {0: [0, 0, 1, 0]},
    "all columns": {
        0: [0.02, 0.03, 1, 1],
        1: [0.2, 0.5, 1],
        2: [0.3, 1],
        3: [1, 0.01, 0.02, 0.9],
    },
    "nothing": {0: [1, 1, 1, 1]},
}
conditions = pytest.mark.parametrize("allowed", CONDITIONS.values(), ids=CONDITIONS)


def arrays(allowed):
    return {column: np.array(parts, dtype=float) for column, parts in allowed.items()}


@conditions
def test_the_law_under_conditions(allowed):
    allowed = arrays(allowed)
    assert p_value(draw(CHAIN.restricted(allowed)), exact(CHAIN, allowed)[0]) > 1e-3


def test_weights_that_were_left_out_would_be_seen(monkeypatch):
    allowed = arrays(CONDITIONS["all columns"])
    unweighted = LogLinearConditional.draw
    monkeypatch.setattr(
        LogLinearConditional,
        "draw",
        lambda *args: (unweighted(*args)[0], np.ones(len(args[1]), dtype=np.float32)),
    )
    codes = draw(CHAIN.restricted(allowed))
    law, drawn = exact(CHAIN, allowed)
    assert p_value(codes, law) < 1e-9
    assert p_value(codes, drawn) > 1e-3


@pytest.mark.slow
def test_single_records_under_conditions_have_their_law(monkeypatch):
    allowed = arrays(CONDITIONS["all columns"])
    law = CHAIN.restricted(allowed)
    expected = exact(CHAIN, allowed)[0]
    assert law.effective_size < 13_000

    def singly(batch):
        monkeypatch.setattr(_distributions, "_BATCH", batch)
        rng = np.random.default_rng(0)
        return np.concatenate([law.sample(1, rng) for _ in range(4000)])

    assert p_value(singly(500), expected) > 1e-3
    # One of few rows has nearly the law that they were drawn from.
    assert p_value(singly(7), expected) < 1e-9


def test_records_of_many_batches(monkeypatch):
    allowed = arrays(CONDITIONS["parts of categories"])
    monkeypatch.setattr(_distributions, "_BATCH", 3000)
    codes = draw(CHAIN.restricted(allowed), 60_001)
    assert len(codes) == 60_001
    assert p_value(codes, exact(CHAIN, allowed)[0]) > 1e-3
    # In no order: the first half has the law of the second.
    first, second = counts(codes[:30_000]), counts(codes[30_000:])
    assert ((first - second) ** 2 / np.maximum(first + second, 1)).sum() < 2 * len(CELLS)


@conditions
def test_the_effective_size(allowed):
    allowed = arrays(allowed)
    law, drawn = exact(CHAIN, allowed)
    weights = np.divide(law, drawn, where=drawn > 0, out=np.zeros_like(law))
    expected = 20_000 * (drawn @ weights) ** 2 / (drawn @ weights**2)
    found = CHAIN.restricted(allowed).effective_size
    # Of the mean of 20000 squared weights.
    spread = np.sqrt(drawn @ weights**4 / (drawn @ weights**2) ** 2 / 20_000)
    assert abs(found / expected - 1) < 5 * spread
    if set(allowed) <= {1}:
        # All rows have the same weight.
        assert found == pytest.approx(20_000, rel=1e-6)


def test_without_conditions_all_rows_count():
    assert CHAIN.effective_size == 20_000
    same = CHAIN.restricted({})
    assert same.effective_size == 20_000
    assert_array_equal(draw(same, 50), draw(CHAIN, 50))


def test_impossible_conditions():
    assert CHAIN.restricted({0: np.zeros(4)}) is None
    # No record is in this category of the second block.
    assert CHAIN.restricted({0: np.array([0.0, 0, 0, 1])}) is None
    assert CHAIN.restricted({1: np.full(3, 5e-10)}) is None
    assert CHAIN.restricted({1: np.full(3, 1e-5), 2: np.full(2, 5e-5)}) is None
    rare = CHAIN.restricted({1: np.full(3, 1e-8)})
    assert p_value(draw(rare), exact()[0]) > 1e-3


def test_conditions_on_conditions_multiply():
    first, second = {0: [1, 0.5, 0.2, 0], 3: [0, 1, 1, 1]}, {0: [0.5, 1, 0.1, 1], 1: [1, 1, 0]}
    first, second = arrays(first), arrays(second)
    twice = CHAIN.restricted(first).restricted(second)
    both = first | second | {0: first[0] * second[0]}
    assert_array_equal(draw(twice, 2000), draw(CHAIN.restricted(both), 2000))
    assert p_value(draw(twice), exact(CHAIN, both)[0]) > 1e-3
    # The last one alone is another law.
    assert p_value(draw(CHAIN.restricted(first | second)), exact(CHAIN, both)[0]) < 1e-9
    assert (
        CHAIN.restricted({0: np.array([1.0, 1, 0, 0])}).restricted({0: np.array([0.0, 0, 1, 1])})
        is None
    )


def test_categories_that_are_not_allowed_never_occur():
    allowed = {1: np.array([0, 1.0, 0]), 0: np.array([0, 1e-6, 0, 0])}
    codes = draw(CHAIN.restricted(allowed), 20_000)
    assert_array_equal(np.unique(codes[:, :2], axis=0), [[1, 1]])


def wide_laws():
    """Laws of two columns with thousands of categories."""
    domain, rng = Product([OneHot(3000)] * 2), np.random.default_rng(0)
    blocks, shares = np.arange(3000) // 100, np.full(3000, 0.01)
    part = LogLinearTerm((0,), (np.arange(30),) * 2, rng.normal(size=(30, 30)))
    parts = (LogLinearConditional(j, np.zeros(30), (part,) * j) for j in range(2))
    rows = np.hstack([rng.dirichlet(np.ones(3000), size=20) for _ in range(2)])
    return {
        "chain": LogLinearChain(domain, [blocks] * 2, [shares] * 2, tuple(parts)),
        "mixture": ProductMixture(domain, np.full(20, 0.05), rows),
    }


@pytest.mark.parametrize("kind", ["chain", "mixture"])
def test_memory_does_not_grow_with_the_categories(kind):
    law = wide_laws()[kind]
    tracemalloc.start()
    codes = draw(law)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (codes.max(axis=0) > 2900).all()
    # A row of codes is 16 bytes, where one of categories would be 48000.
    assert peak < 150 * len(codes)


class Fixed(ConditionalSamplerMixin, BaseEstimator):
    """A sampler of two columns, a number in bins and a label: a job depends on whether n < 4."""

    def __init__(self, rare=0.3):
        self.rare = rare
        schema = Schema({"n": Numeric(0, 9, integer=True), "job": Categorical(["a", "b", "c"])})
        self.encoder_ = TabularEncoder(schema, n_bins={"n": [0, 1, 4, 9]}).fit()
        part = LogLinearTerm(
            (0,), (np.array([0, 1]), np.array([0, 1])), np.array([[0.0, 1.0], [0.0, -200.0]])
        )
        first = LogLinearConditional(0, np.log([rare, 1 - rare]), ())
        second = LogLinearConditional(1, np.zeros(2), (part,))
        blocks = [np.array([0, 0, 1]), np.array([0, 0, 1])]
        shares = [np.array([0.25, 0.75, 1.0]), np.array([0.5, 0.5, 1.0])]
        self.law_ = LogLinearChain(self.encoder_.domain_, blocks, shares, (first, second))

    def fit(self):
        return self


def test_a_sampler_of_a_chain():
    sampler = Fixed()
    drawn = sampler.sample(20_000, random_state=0)
    found = np.histogram(drawn["n"], bins=[0, 1, 4, 10])[0]
    assert chisquare(found, 20_000 * np.array([0.075, 0.225, 0.7])).pvalue > 1e-3
    assert drawn.equals(sampler.sample(20_000, random_state=0))
    # 2, 3 and 4 have n = 4 in a bin of six numbers; c is impossible from 4 on.
    given = {"n": list(range(2, 5)), "job": ["a", "c"]}
    drawn = sampler.sample(20_000, conditions=given, random_state=0)
    assert set(drawn["n"]) == {2, 3, 4}
    assert set(drawn["job"]) == {"a", "c"}
    # Any number of a bin stands for all of it.
    weights = np.array([0.225 * 0.5 / (1 + np.e), 0.225 * np.e / (1 + np.e), 0.7 * 0.5])
    found = [(drawn["n"] < 4) & (drawn["job"] == job) for job in "ac"] + [drawn["n"] == 4]
    expected = 20_000 * weights / weights.sum()
    assert chisquare([part.sum() for part in found], expected).pvalue > 1e-3


def test_conditions_that_few_rows_of_a_chain_fulfil(monkeypatch):
    # Most batches then have none.
    monkeypatch.setattr(_distributions, "_BATCH", 1000)
    rare = Fixed(rare=2e-4)
    assert Fixed().effective_size({"job": "c"}) > 5000
    size = rare.effective_size({"job": "c"})
    assert 1 <= size < 10
    message = rf"\['job'\] have an effective size of {size:.1f} rows"
    with pytest.warns(UserWarning, match=message):
        drawn = rare.sample(200, conditions={"job": "c"}, random_state=0)
    assert len(drawn) == 200
    assert (drawn["n"] < 4).all()
    with pytest.raises(ValueError, match=r"\['job'\] are impossible"):
        Fixed(rare=1e-12).sample(2, conditions={"job": "c"})


def test_terms_read_the_groups_of_the_parents():
    part = TERMS[0][2]
    codes = np.array([[0, 2, 0, 1], [0, 1, 0, 0], [0, 0, 0, 1]])
    cells = part.logits.reshape(4, 2)[part.rows(codes)]
    assert_allclose(cells, [part.logits[1, 1], part.logits[0, 0], part.logits[1, 1]])
    assert_allclose(part.table, part.logits.reshape(4, 2))
    turned = replace(part, groups=(*part.groups[:2], np.array([1, 0])))
    assert_allclose(turned.table, part.table[:, ::-1])


@pytest.mark.parametrize("place", ["base", "logits"])
@pytest.mark.parametrize(("logit", "is_read"), [(-1e9, True), (1e30, True), (1e31, False)])
def test_saved_logits_are_in_single_precision(place, logit, is_read):
    """A file with larger ones is refused: their sums would be no numbers."""
    last = chain().conditionals[-1]
    first = last.terms[0]
    if place == "base":
        last = replace(last, base=np.full_like(last.base, logit))
    else:
        last = replace(last, terms=(replace(first, logits=np.full_like(first.logits, logit)),))
    if is_read:
        last._check_saved_state()
        return
    with pytest.raises(InvalidFileError, match="A logit is too large"):
        last._check_saved_state()
