"""A public table as the prior of LocalTableSampler: what it changes, and when it counts."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from answer_tables import CPU, ask, make, soft_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen import load
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.mechanisms import JointRandomizedResponse
from sklearn_dpgen.mechanisms._release import fit_mechanism
from sklearn_dpgen.preprocessing import PublicTable
from sklearn_dpgen.preprocessing._public_table import PublicRows
from sklearn_dpgen.schema import Categorical, Schema
from sklearn_dpgen.tables import LocalTableSampler, _local_table_sampler
from sklearn_dpgen.tables._answer_fit import answer_batches, log_likelihoods
from sklearn_dpgen.tables._public_population import _posterior, agreed, completed, tilted

SIZES = [3, 4, 2]
SCHEMA = Schema({name: Categorical(range(4)) for name in "abc"})


def copies(n, seed, shift=0):
    """Return records of which all columns follow from the first one."""
    first = np.random.default_rng(seed).integers(4, size=n)
    return pd.DataFrame({"a": first, "b": (first + shift) % 4, "c": (first + 2 * shift) % 4})


def joint(sampler, first="a", second="b"):
    """Return the probabilities of pairs of categories under the distribution."""
    blocks = sampler.encoder_.blocks_
    P = sampler.law_.probabilities
    return (P[:, blocks[first]] * sampler.law_.shares[:, None]).T @ P[:, blocks[second]]


# The parts.


def test_likelihoods_of_rows_with_shares_are_linear():
    """With one box per answer and with several."""
    for n_asked in ((2,), (3,)):
        mechanism, encoded = ask(SIZES, 2.0, n_asked=n_asked)
        P = soft_rows(SIZES)
        shares = torch.tensor([0.5, 0.2, 0.2, 0.1, 0.0], dtype=P.dtype)
        found = log_likelihoods(mechanism, encoded, P, shares).exp()
        single = [log_likelihoods(mechanism, encoded, P[:, r : r + 1]).exp() for r in range(5)]
        assert_allclose(found, torch.stack(single, dim=1) @ shares)
        even = log_likelihoods(mechanism, encoded, P).exp()
        assert_allclose(even, torch.stack(single).mean(dim=0))


def test_rows_are_completed_by_the_population():
    P = np.array([[0.9, 0.1, 0.0, 1.0], [0.0, 1.0, 0.5, 0.5]])
    codes = np.array([[0, -1], [1, 1], [-1, 0]] * 50)
    rows = completed(codes, P, [2, 2], np.ones(2), np.random.default_rng(0))
    # Only the first row of the population has category 0 of the first column.
    assert_array_equal(rows[::3], np.tile([1, 0, 0, 1], (50, 1)))
    assert_array_equal(rows[1::3], np.tile([0, 1, 0, 1], (50, 1)))
    # Only the second has category 0 of the second column.
    assert_array_equal(rows[2::3], np.tile([0, 1, 1, 0], (50, 1)))


def test_columns_that_are_not_kept_are_those_of_the_population():
    P = np.array([[0.9, 0.1, 0.0, 1.0], [0.0, 1.0, 0.5, 0.5]])
    codes = np.array([[1, 0]] * 4000)
    # Neither of the cells tells which row is drawn, so both are drawn equally often.
    rows = completed(codes, P, [2, 2], np.zeros(2), np.random.default_rng(0))
    is_first = (rows == P[0]).all(axis=1)
    assert_array_equal(rows, np.where(is_first[:, None], P[0], P[1]))
    assert abs(is_first.mean() - 0.5) < 5 * 0.5 / np.sqrt(len(rows))
    # The second cell counts by half: the odds are 1/2 to 1/2 + (1/2) (1/2) / (1/4).
    rows = completed(codes, P, [2, 2], np.array([0.0, 0.5]), np.random.default_rng(0))
    is_first = rows[:, 0] == 0.9
    assert_allclose(rows[is_first][0], [0.9, 0.1, 0.5, 0.5])
    assert_allclose(rows[~is_first][0], [0.0, 1.0, 0.75, 0.25])
    assert abs(is_first.mean() - 0.25) < 5 * 0.44 / np.sqrt(len(rows))


def test_agreement_minimizes_its_objective():
    """Of public rows of which one column agrees with the answers, and one does not."""
    records = np.repeat(np.arange(2), 300)[:, None] * np.ones(3, dtype=int)
    mechanism, encoded = ask([2, 2, 2], 2.0, 600, codes=records)
    rows = np.stack([np.eye(2)[[a, a, 1 - a]].ravel() for a in (0, 1)])
    copies, base = torch.tensor(rows.T), torch.full((6,), 0.5, dtype=torch.float64)
    most = np.array([0.99, 0.99, 0.5])
    batches = list(answer_batches(mechanism, encoded, CPU))
    found = agreed(batches, copies, base, [2, 2, 2], most)
    assert found[:2].min() > 0.5
    assert found[2] < 0.3

    def objective(a):
        kept = torch.tensor(np.repeat(a * most, 2))[:, None]
        P = base[:, None] + kept * (copies - base[:, None])
        return 5 * ((1 - a) ** 2).sum() - float(log_likelihoods(mechanism, encoded, P).sum())

    for column, step in itertools.product(range(3), (-0.05, 0.05)):
        other = np.clip(found + step * np.eye(3)[column], 0, 1)
        assert objective(found) <= objective(other) + 1e-3
    # Without answers all columns agree.
    assert_allclose(agreed([], copies, base, [2, 2, 2], most), 1)


@pytest.mark.slow
@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_tilted_rows_have_the_given_means(seed):
    rng = np.random.default_rng(seed)
    P = np.hstack([rng.dirichlet(np.full(size, 2.0), size=6) for size in SIZES])
    means = np.concatenate([rng.dirichlet(np.full(size, 5.0)) for size in SIZES])
    found = tilted(P, means, SIZES)
    assert_allclose(found.mean(axis=0), means, atol=1e-3)
    for block in np.split(found, np.cumsum(SIZES)[:-1], axis=1):
        assert_allclose(block.sum(axis=1), 1)
    # Ratios of odds between rows are kept.
    odds, before = found[:, 0] / found[:, 1], P[:, 0] / P[:, 1]
    assert_allclose(odds / odds[0], before / before[0], rtol=1e-6)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_shares_are_a_compromise_of_answers_and_public_rows(seed):
    answered, public = np.random.default_rng(seed).dirichlet(np.full(4, 5.0), size=2)
    # Certain answers overrule few rows, and many rows of the same shares answers that are noise.
    assert_allclose(_posterior(answered, np.full(4, 1e-12), public, 100), answered, atol=1e-4)
    assert_allclose(_posterior(answered, np.full(4, 1e6), public, 1e6), public, atol=1e-3)
    between = _posterior(answered, np.full(4, 1e-3), public, 1000)
    assert between.sum() == pytest.approx(1)
    assert np.abs(between - public).sum() <= np.abs(answered - public).sum() + 1e-9


# The estimator.


def fitted(public, n=4000, epsilon=2.0, **options):
    mechanism = JointRandomizedResponse(epsilon, schema=SCHEMA, n_asked=2).fit()
    answers = mechanism.transform(copies(n, None))
    options = {"population_size": 20, "max_iter": 60} | options
    return LocalTableSampler(mechanism, public=public, **options).fit(answers)


@pytest.mark.slow
def test_a_right_table_adds_dependence_that_few_answers_lack():
    agree = [np.trace(joint(fitted(public, n=400))) for public in (None, copies(1000, 0))]
    assert agree[1] > agree[0]
    assert agree[1] > 0.7
    # Of no use is a table whose columns agree otherwise.
    assert np.trace(joint(fitted(copies(1000, 0, shift=1), n=400))) < agree[1]


@pytest.mark.slow
def test_a_wrong_table_gets_no_weight():
    public = copies(1000, 0, shift=1)
    sampler = fitted(public, max_iter=150)
    table = joint(sampler)
    assert table[np.arange(4), (np.arange(4) + 1) % 4].sum() < 0.25
    assert np.trace(table) > 0.5


def test_answers_and_accounting_do_not_depend_on_the_table(monkeypatch):
    X = copies(200, 0)

    def keep(answers):
        seen.append(answers)
        return answers

    seen, reports = [], []
    for public in (None, X):
        mechanism = JointRandomizedResponse(2.0, schema=SCHEMA)
        sampler = make(mechanism, privatize=True, random_state=0, public=public)
        plan = sampler.plan()
        with monkeypatch.context() as patch:
            patch.setattr(sampler, "_encoded", lambda X, read=sampler._encoded: keep(read(X)))
            sampler.fit(X)
        reports.append(sampler.privacy_)
        assert plan.public == sampler.privacy_.public
    assert_array_equal(*seen)
    assert plan.public_tables == sampler.privacy_.public_tables
    assert reports[1].public_tables == {"public": PublicTable(X).read(SCHEMA).sha256}
    without = {"public": reports[0].public, "public_tables": {}, "caveats": reports[0].caveats}
    assert replace(reports[1], **without) == reports[0]
    assert reports[1].public == (*reports[0].public, "public")


def test_a_table_with_weights_and_columns_in_part():
    public = copies(300, 0)[["b", "a"]].assign(w=1.0)
    sampler = fitted(PublicTable(public, weights="w"), n=300)
    assert list(sampler.sample(5).columns) == list(SCHEMA)
    assert sampler.law_.shares.sum() == pytest.approx(1)
    answers = sampler.mechanism_.transform(copies(50, 1))
    P = torch.tensor(sampler.law_.probabilities.T)
    encoded = sampler.mechanism_.encode_release(answers)
    shares = torch.tensor(sampler.law_.shares)
    expected = log_likelihoods(sampler.mechanism_, encoded, P, shares)
    assert_allclose(sampler.score_samples(answers), expected, atol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_answers(n):
    assert len(fitted(copies(30, 0), n=n).sample(4)) == 4


@pytest.mark.slow
def test_a_target_may_come_from_the_answers():
    mechanism = JointRandomizedResponse(4.0, schema=SCHEMA, n_asked=2, always=["c"]).fit()
    answers = mechanism.transform(copies(4000, None))
    public = copies(1000, 0).assign(c=np.random.default_rng(1).integers(4, size=1000))
    sampler = LocalTableSampler(mechanism, population_size=20, max_iter=150, public=public)
    sampler.fit(answers)
    assert np.trace(joint(sampler)) > 0.7
    assert np.trace(joint(sampler, "a", "c")) > 0.5


def test_a_saved_model_samples_without_the_table(tmp_path):
    sampler = fitted(copies(300, 0), n=300)
    sampler.save(tmp_path / "a.safetensors")
    loaded = load(tmp_path / "a.safetensors")
    assert loaded.public is None
    assert loaded.sample(50, random_state=0).equals(sampler.sample(50, random_state=0))


def test_a_table_without_columns_of_the_schema():
    with pytest.raises(ValueError, match="public must have a column of the schema"):
        fitted(pd.DataFrame({"z": [1]}), n=10)
    with pytest.raises(ValueError, match="The 'public' parameter"):
        fitted(3, n=10)


def charged_by_a_table_that_fails(folder, failure, public):
    """Return the budget that is spent by a fit on raw records whose public table fails."""
    cap = {"dataset": "table", "epsilon": 10.0, "delta": 1e-5}
    ledger = PrivacyLedger.create(folder / "ledger.db", **cap)
    mechanism = JointRandomizedResponse(2.0, schema=SCHEMA)
    with pytest.raises(failure, match="public|weights"):
        make(mechanism, privatize=True, public=public, ledger=ledger).fit(copies(20, 0))
    return ledger.spent()


@pytest.mark.parametrize(
    ("failure", "public"),
    [
        (FileNotFoundError, "no-such-file.csv"),
        (ValueError, pd.DataFrame({"z": [1]})),
        (TypeError, iter([copies(5, 0)])),
        (ValueError, PublicTable(copies(5, 0).assign(w=-1.0), weights="w")),
    ],
)
def test_a_table_that_cannot_be_read_costs_nothing(tmp_path, failure, public):
    if isinstance(public, str):
        public = tmp_path / public
    assert charged_by_a_table_that_fails(tmp_path, failure, public) == 0


@pytest.mark.parametrize("late", ["read", "codes"])
def test_a_fit_that_reads_the_table_late_would_be_seen(tmp_path, monkeypatch, late):
    """Of a table whose reading or alignment fails: before the charge, or after it."""

    def fails(*args):
        raise PublicValueError("The public table cannot be read.")

    owner = PublicTable if late == "read" else PublicRows
    monkeypatch.setattr(owner, late, fails)
    folders = [tmp_path / "ours", tmp_path / "twin"]
    for folder in folders:
        folder.mkdir()
    assert charged_by_a_table_that_fails(folders[0], ValueError, copies(5, 0)) == 0

    def answers_first(mechanism, X, **options):
        fitted_mechanism = fit_mechanism(mechanism, X, **options)
        fitted_mechanism.transform(X)
        return fitted_mechanism

    monkeypatch.setattr(_local_table_sampler, "fit_mechanism", answers_first)
    assert charged_by_a_table_that_fails(folders[1], ValueError, copies(5, 0)) == 2.0
