"""Blocks in which no record fulfils the rules are known before the fit, and get no record."""

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose
from rule_tables import RULES, SCHEMA, breaks, make, table

from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Implication, Inequality, Numeric, Ordinal, Schema
from sklearn_dpgen.tables import _conditional_sampling, _table_sampler
from sklearn_dpgen.tables._log_linear_fit import NoisyTable, _Problem, fit_conditional
from sklearn_dpgen.tables._table_rules import TableRules, barred_pairs, barred_term, possible_cells

CPU = torch.device("cpu")
PAIRS = [
    Inequality("low", "high"),
    Inequality("high", "low", strict=True),
    Inequality("tenth", "level"),
    Inequality("real", "tenth", strict=True),
    Inequality("start", "end", strict=True),
    Inequality("end", "start"),
    Implication({"flag": 1}, {"other": 0}),
    Implication({"flag": [0, None]}, {"high": None}),
    Implication({"low": pd.Interval(3, 12)}, {"high": [4, pd.Interval(8, 16, closed="both")]}),
    Implication({"city": ["Bonn", "Trier"]}, {"tenth": [0.3, pd.Interval(1.5, 9)]}),
    Implication(
        {"real": pd.Interval(-2, 1)}, {"end": pd.Interval(*map(pd.Timestamp, ("2020", "2021")))}
    ),
]


def kinds(rule):
    if isinstance(rule, Inequality):
        return f"{rule.low} at most {rule.high}"
    return " ".join([*rule.given, "to", *rule.then])


@pytest.mark.parametrize("rule", PAIRS, ids=kinds)
@pytest.mark.parametrize("n_bins", [3, 700])
def test_what_is_barred_breaks_the_rule(rule, n_bins):
    """On the safe side in wide bins; all of it where each block is of one value."""
    first, second = (
        (rule.low, rule.high) if isinstance(rule, Inequality) else (*rule.given, *rule.then)
    )
    encoder = TabularEncoder(SCHEMA, n_bins=n_bins).fit()
    names, columns = list(SCHEMA), list(encoder.columns_.values())
    rng = np.random.default_rng(0)
    blocks = [np.arange(column.n_categories) for column in columns]
    if n_bins == 3:
        # Some blocks are of several categories.
        blocks = [np.minimum(part, 2) for part in blocks]
    found = barred_pairs(TableRules([rule], SCHEMA), encoder, blocks)
    n = 4000
    codes = np.stack([rng.integers(0, column.n_categories, n) for column in columns], axis=1)
    frame = encoder.decode_codes(codes, rng=rng)
    broken = np.array([breaks(record, rule) for record in frame.to_dict("records")])
    assert 0 < broken.sum() < n
    i, j = sorted([names.index(first), names.index(second)])
    assert {*found} <= {(i, j)}
    if n_bins == 3 and not found:
        return
    places = blocks[i][codes[:, i]], blocks[j][codes[:, j]]
    barred = found[i, j][places]
    assert broken[barred].all()
    single = {"low", "high", "tenth", "level", "flag", "other", "city"}
    if n_bins == 700 and {first, second} <= single:
        assert (broken == barred).all()
    elif n_bins == 700:
        assert barred.sum() > 0.9 * broken.sum()


def test_cells_of_tables_are_possible_where_a_pair_of_blocks_is():
    rng = np.random.default_rng(0)
    barred = rng.uniform(size=(6, 5)) < 0.7
    term = barred_term(barred, (1, 3), 3)
    other = barred_term(rng.uniform(size=(5, 4)) < 0.6, (3, 7), 3)
    assert (term.parents, other.parents) == ((1,), (7,))
    groups = {
        1: np.array([0, 0, 1, 1, 2, 2]),
        3: np.array([0, 1, 1, 2, 2]),
        7: np.array([0, 0, 1, 1]),
    }
    for columns in ((1, 3), (7, 3), (1, 7, 3), (2, 3)):
        found = possible_cells(
            columns, [groups.get(j, np.arange(2)) for j in columns], [term, other]
        )
        expected = np.ones([groups.get(j, np.arange(2)).max() + 1 for j in columns], dtype=bool)
        for cell in np.ndindex(*expected.shape):
            for one in (term, other):
                (parent,) = one.parents
                if parent in columns:
                    own = cell[columns.index(parent)]
                    part = one.logits[groups[parent] == own][:, groups[3] == cell[-1]]
                    expected[cell] &= (part == 0).any()
        assert expected.all() if found is None else (found == expected).all()


def ordered(n=20_000, seed=0):
    """Return codes of two columns of twelve values of which the first is never larger."""
    rng = np.random.default_rng(seed)
    return np.sort(rng.binomial(11, [0.3, 0.6], (n, 2)), axis=1)


def halves(codes):
    """Return a table of three groups each, and of what share of the records."""
    groups = np.repeat(np.arange(3), 4)
    shares = np.zeros((3, 3))
    np.add.at(shares, (groups[codes[:, 0]], groups[codes[:, 1]]), 1 / len(codes))
    return (groups, groups), shares


BARRED = np.greater.outer(np.arange(12), np.arange(12))
TERM = barred_term(BARRED, (0, 1), 1)
FIXED = {"fixed": (TERM,), "spread": np.zeros(12)}


def test_a_law_with_barred_blocks_fits_its_tables():
    codes = ordered()
    groups, shares = halves(codes)
    marginal = np.bincount(codes[:, 1], minlength=12) / len(codes)
    given = np.column_stack([codes[:, 0], np.zeros(len(codes), dtype=int)])
    drawn = {}
    for name, fixed in (("rule", FIXED), ("none", {})):
        possible = possible_cells((0, 1), groups, fixed.get("fixed", ()))
        tables = [NoisyTable((0, 1), groups, shares, 1e-4, possible)]
        law = fit_conditional(1, marginal, tables, given, max_iter=60, device=CPU, **fixed)
        second, _ = law.draw(given, np.random.default_rng(1))
        pair = np.column_stack([given[:, 0], second])
        assert_allclose(halves(pair)[1], shares, atol=0.015)
        assert_allclose(np.bincount(second, minlength=12) / len(codes), marginal, atol=0.015)
        drawn[name] = (pair[:, 0] > pair[:, 1]).mean()
    assert drawn["rule"] == 0
    assert drawn["none"] > 0.02


def test_a_law_with_barred_blocks_alone_keeps_the_shares_of_a_column():
    codes = ordered()
    marginal = np.bincount(codes[:, 1], minlength=12) / len(codes)
    given = np.column_stack([codes[:, 0], np.zeros(len(codes), dtype=int)])
    law = fit_conditional(1, marginal, [], given, max_iter=60, device=CPU, **FIXED)
    second, _ = law.draw(given, np.random.default_rng(1))
    assert (codes[:, 0] <= second).all()
    assert_allclose(np.bincount(second, minlength=12) / len(codes), marginal, atol=0.015)


def test_noise_in_impossible_cells_is_left_out():
    codes = ordered()
    groups, shares = halves(codes)
    noisy = shares + np.where(np.tri(3, k=-1), 0.05, 0)
    marginal = np.bincount(codes[:, 1], minlength=12) / len(codes)
    given = np.column_stack([codes[:, 0], np.zeros(len(codes), dtype=int)])
    laws = []
    for part in (shares, noisy):
        tables = [NoisyTable((0, 1), groups, part, 1e-4, possible_cells((0, 1), groups, (TERM,)))]
        laws.append(fit_conditional(1, marginal, tables, given, max_iter=60, device=CPU, **FIXED))
    logits = [law.terms[0].logits for law in laws]
    assert_allclose(*logits, atol=1e-6)


def test_the_gradient_with_barred_blocks():
    codes = ordered(200)
    groups, shares = halves(codes)
    tables = [NoisyTable((0, 1), groups, shares, 0.01, possible_cells((0, 1), groups, (TERM,)))]
    seen = [groups[1], np.arange(12)]
    problem = _Problem(
        np.full(12, 1 / 12),
        tables,
        seen,
        codes * [1, 0],
        fixed=(TERM,),
        ridge=np.full(12, 0.2),
    )
    point, direction = np.random.default_rng(0).normal(0, 0.5, (2, problem.n_parameters))
    _, slope = problem(point)
    # Of fourth order, in steps that single precision tells apart.
    values = [problem(point + k * 0.03 * direction)[0] for k in (-2, -1, 1, 2)]
    found = np.dot([1, -8, 8, -1], values) / (12 * 0.03)
    assert found == pytest.approx(slope @ direction, rel=1e-3)


def test_rejection_has_little_left_to_do(monkeypatch):
    """The same fit without what the rules tell of blocks draws far more records in vain."""
    n, rng = 4000, np.random.default_rng(0)
    values = np.sort(rng.integers(0, 30, (3, n)), axis=0)
    schema = Schema({name: Ordinal(range(30)) for name in "abc"})
    frame = pd.DataFrame(values.T, columns=list("abc"))
    rules = [Inequality("a", "b"), Inequality("b", "c")]
    options = {"schema": schema, "constraints": rules, "population_size": 2000, "max_iter": 15}
    # Of twelve cells or so, too coarse to tell of the order inside them.
    options |= {"epsilon": 1.0, "delta": 1e-5, "marginals": "pairs"}
    aware = make(**options).fit(frame)
    monkeypatch.setattr(_table_sampler, "barred_pairs", lambda *args: {})
    unaware = make(**options).fit(frame)
    assert aware.acceptance_rate() > 0.99
    assert unaware.acceptance_rate() < 0.9


def test_rules_of_computed_columns_bar_nothing():
    rules = TableRules(
        [*RULES, Inequality("total", "tenth"), Implication({"state": "NW"}, {"low": 3})], SCHEMA
    )
    encoder = TabularEncoder(
        rules.schema, n_bins={"low": 5, "high": 5, "start": 5, "end": 5, "tenth": 5}
    )
    encoder.set_params(n_bins=encoder.n_bins | {"real": 5, "sum": 5}).fit(table(1))
    blocks = [np.arange(column.n_categories) for column in encoder.columns_.values()]
    names = list(SCHEMA)
    pairs = {tuple(names[j] for j in pair) for pair in barred_pairs(rules, encoder, blocks)}
    assert pairs == {("low", "high"), ("start", "end"), ("flag", "other")}


def test_records_are_drawn_again_in_their_blocks(monkeypatch):
    """The law knows how many records a pair of wide bins has; to draw others would change it."""
    rng = np.random.default_rng(0)
    low, high = np.sort(rng.uniform(0, 1, (2, 20_000)) ** 2, axis=0)
    frame = pd.DataFrame({"low": low, "high": high})
    schema = Schema({name: Numeric(0, 1) for name in frame})
    options = {"schema": schema, "constraints": [Inequality("low", "high")], "marginals": "pairs"}
    sampler = make(n_bins=3, population_size=20_000, max_iter=40, **options).fit(frame)

    def shares(records):
        return np.histogram2d(records["low"], records["high"], bins=3, range=[[0, 1]] * 2)[0]

    def distance():
        made = sampler.sample(20_000, random_state=0)
        assert (made["low"] <= made["high"]).all()
        return np.abs(shares(made) - shares(frame)).sum() / 20_000 / 2

    assert distance() < 0.015
    assert sampler.acceptance_rate() > 0.99
    monkeypatch.setattr(_conditional_sampling, "_TRIES", 0)
    # One half of those with both numbers in the same bin would be lost.
    assert distance() > 0.1
    assert sampler.acceptance_rate() < 0.8


def test_another_draw_has_the_same_blocks():
    law = make(n_bins=30, population_size=50).fit(table()).law_
    codes = law.sample(3000, np.random.default_rng(0))
    again = law.redraw(codes, np.random.default_rng(1))
    for column, owners in enumerate(law.blocks):
        assert (owners[codes[:, column]] == owners[again[:, column]]).all()
    wide = {"x": Numeric(0, 1), "y": Ordinal([0, 1])}
    frame = pd.DataFrame({"x": np.linspace(0, 1, 900) ** 2, "y": np.arange(900) % 2})
    law = make(schema=Schema(wide), n_bins=300, constraints=None, marginals=[]).fit(frame).law_
    codes = law.sample(50_000, np.random.default_rng(0))
    again = law.redraw(codes, np.random.default_rng(1))
    assert (codes[:, 0] != again[:, 0]).mean() > 0.4
    counts = [np.bincount(part[:, 0], minlength=300) for part in (codes, again)]
    assert np.abs(np.cumsum(counts[0] - counts[1])).max() < 500
