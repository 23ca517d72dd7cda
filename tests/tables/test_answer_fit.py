"""Populations fitted to joint answers: what they learn, and how long."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from answer_tables import CPU, ask, make, mixture_log_likelihood, schema_of
from numpy.testing import assert_array_equal
from scipy import stats

from sklearn_dpgen.exceptions import TrainingDivergedError
from sklearn_dpgen.mechanisms import JointRandomizedResponse
from sklearn_dpgen.tables import _answer_fit, _local_table_sampler
from sklearn_dpgen.tables._answer_fit import AnswerFit, Population, split_answers


def fit_of(mechanism, **options):
    small = {"n_rows": 12, "prior": 0.0, "batch_size": "auto", "max_iter": 20}
    small |= {"learning_rate": 0.2, "device": CPU}
    return AnswerFit(mechanism, **(small | options))


def scored(mechanism, encoded, P):
    """Return the log-likelihood of each answer under rows of shape (n_rows, D)."""
    return mixture_log_likelihood(mechanism, encoded, torch.tensor(P.T)).numpy()


# What is learned.

CHAIN = [3, 4, 2]
PAIRS = [(0, 1), (1, 2), (0, 2)]


def chained(n):
    """Return records of which a column mostly follows from the one before."""
    rng = np.random.default_rng(0)
    codes = np.empty((n, 3), dtype=int)
    codes[:, 0] = rng.choice(3, size=n, p=[0.5, 0.3, 0.2])
    for j, size in ((1, 4), (2, 2)):
        follows = rng.uniform(size=n) < 0.8
        codes[:, j] = np.where(follows, codes[:, j - 1] % size, rng.integers(size, size=n))
    return codes


def pair_tables(P):
    """Return the joint shares of each pair of columns of rows of shape (n_rows, D)."""
    blocks = np.split(P, np.cumsum(CHAIN)[:-1], axis=1)
    return [blocks[i].T @ blocks[j] / len(P) for i, j in PAIRS]


def variations(P, codes):
    """Return the total variation of each pair of columns."""
    truth = np.hstack([np.eye(size)[c] for size, c in zip(CHAIN, codes.T, strict=True)])
    tables = zip(pair_tables(P), pair_tables(truth), strict=True)
    return [np.abs(found - exact).sum() / 2 for found, exact in tables]


@pytest.fixture(scope="module")
def many():
    codes = chained(20_000)
    return codes, *ask(CHAIN, 3.0, codes=codes)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", ["auto", 2000])
def test_the_law_of_the_records_is_learned(many, batch_size):
    codes, mechanism, encoded = many
    options = {"n_rows": 30, "prior": 10.0, "batch_size": batch_size, "max_iter": 200}
    P, result = fit_of(mechanism, **options)(encoded, 0)
    assert P.shape == (30, 9)
    assert result.n_iter == len(result.loss_curve) == 200
    found = variations(P, codes)
    assert max(found) < 0.05
    # The twin: independent columns with the right shares.
    independent = variations(np.tile(P.mean(axis=0), (30, 1)), codes)
    assert min(independent) > 0.1
    # Answers of other records: these are what is learned.
    assert max(variations(P, codes[:, [0, 0, 0]] % CHAIN)) > 0.1


@pytest.mark.slow
def test_a_large_prior_makes_columns_independent(many):
    codes, mechanism, encoded = many
    options = {"n_rows": 30, "max_iter": 200}
    P, _ = fit_of(mechanism, prior=1e5, **options)(encoded, 0)
    assert np.ptp(P, axis=0).max() < 0.02
    assert min(variations(P, codes)) > 0.1
    # With nearly the right shares: independent columns explain joint answers by others.
    for part, column in zip(np.split(P.mean(axis=0), [3, 7]), codes.T, strict=True):
        assert np.abs(part - np.bincount(column) / len(codes)).max() < 0.05
    free, _ = fit_of(mechanism, prior=0.0, **options)(encoded, 0)
    assert np.ptp(free, axis=0).max() > 0.5


# Its course.


@pytest.mark.slow
def test_a_fit_near_given_rows(many):
    """They are kept by a large prior, and left for the answers without one."""
    codes, mechanism, encoded = many
    rng = np.random.default_rng(0)
    start = np.hstack([rng.dirichlet(np.full(size, 3.0), size=40) for size in CHAIN])
    options = {"start": start, "max_iter": 200}
    kept, _ = fit_of(mechanism)(encoded, 0, prior=1e7, **options)
    assert np.abs(kept - start).max() < 0.02
    left, _ = fit_of(mechanism)(encoded, 0, prior=1.0, **options)
    assert left.shape == start.shape
    assert max(variations(left, codes)) < 0.05 < min(variations(start, codes))


def test_the_first_loss_is_that_of_the_start():
    mechanism, encoded = ask(CHAIN, 3.0, 80)
    P, result = fit_of(mechanism, learning_rate=1e-9, batch_size=80, max_iter=3)(encoded, 0)
    expected = -scored(mechanism, encoded, P).mean()
    assert result.loss_curve == pytest.approx([expected] * 3, abs=1e-5)


def test_all_follows_from_the_seed():
    mechanism, encoded = ask(CHAIN, 3.0, 200)
    fit = fit_of(mechanism, batch_size=50)
    first, again, other = (fit(encoded, seed) for seed in (3, 3, 4))
    assert_array_equal(first[0], again[0])
    assert first[1] == again[1]
    assert first[1].loss_curve[0] != other[1].loss_curve[0]
    runs = [fit(encoded, None)[1].loss_curve[0] for _ in range(2)]
    assert runs[0] != runs[1]


def test_steps_can_be_fewer():
    mechanism, encoded = ask(CHAIN, 3.0, 80)
    fit = fit_of(mechanism)
    assert fit(encoded, 0)[1].n_iter == 20
    assert fit(encoded, 0, max_iter=7)[1].n_iter == 7
    stopped = fit(encoded, 0, stop=lambda population, step: step == 4)
    assert stopped[1].n_iter == 5
    seen = []
    fit(encoded, 0, max_iter=2, stop=lambda *given: seen.append(given))
    assert [step for _, step in seen] == [0, 1]
    assert all(isinstance(population, Population) for population, _ in seen)


@pytest.mark.parametrize(
    ("n", "size"),
    [(100, 1000), (25_000, 1000), (50_000, 2000), (400_000, 16_000), (10**6, 16_000)],
)
def test_the_size_of_batches(n, size):
    assert fit_of(None)._size(n) == size
    assert fit_of(None, batch_size=7)._size(n) == 7


# Held-out answers.


@pytest.mark.parametrize("n", [2, 3, 10, 400, 510_000])
def test_answers_are_parted(n):
    trained, held_out = split_answers(np.arange(n)[:, None], 0.1, 0)
    assert_array_equal(np.sort(np.concatenate([trained, held_out])[:, 0]), np.arange(n))
    assert len(held_out) == min(max(1, round(0.1 * n)), 50_000)
    if n > 10:
        assert held_out[:, 0].tolist() != list(range(n))[: len(held_out)]
        assert_array_equal(split_answers(np.arange(n)[:, None], 0.1, 0)[1], held_out)
        assert (split_answers(np.arange(n)[:, None], 0.1, 1)[1] != held_out).any()


def test_a_single_answer_is_both():
    answers = np.ones((1, 6))
    for part in split_answers(answers, 0.9, 0):
        assert_array_equal(part, answers)


def steps_until_stopped(monkeypatch, scores, patience, tol, max_iter):
    """Return the steps that are made, and those to the last gain, given the score of each check."""
    mechanism, encoded = ask(CHAIN, 3.0, 20)
    fit, given, losses = fit_of(mechanism, max_iter=max_iter, n_rows=2), iter(scores), []
    monkeypatch.setattr(fit, "_score", lambda P, held_out: next(given))
    descend = Population.fit

    def spy(*args, **options):
        result = descend(*args, **options)
        losses.extend(result.loss_curve)
        return result

    monkeypatch.setattr(Population, "fit", spy)
    run = fit.watched(encoded, encoded, 0, patience, tol)
    return len(losses), run.n_best, run.score


@pytest.mark.parametrize(
    ("scores", "patience", "tol", "expected"),
    [
        ([1, 2, 3, 4, 5, 6], 50, 0.0, (150, 150, 6)),
        ([1, 2, 1, 1, 1, 1], 50, 0.0, (100, 50, 2)),
        ([1, 2, 1, 1, 1, 1], 75, 0.0, (125, 50, 2)),
        ([1, 2, 1, 3, 1, 1], 50, 0.0, (150, 100, 3)),
        ([1, 2, 2, 2, 2, 2], 50, 0.0, (100, 50, 2)),
        ([1, 1.4, 1.8, 1.9, 2.3, 2.2], 50, 0.5, (125, 75, 1.8)),
        ([-9, -8, -8, -8, -8, -8], 25, 1e9, (50, 25, -9)),
        # Less than the steps between two checks: there is nothing to tell before the first.
        ([3, 2, 1, 0, 0, 0], 1, 0.0, (50, 25, 3)),
        ([1, 2, 3, 3, 3, 3], 10, 0.0, (100, 75, 3)),
        # Without patience the last step alone is looked at.
        ([7], None, 0.0, (150, 150, 7)),
        ([-7], None, 1e9, (150, 150, -7)),
    ],
)
def test_stops_after_so_many_steps_without_a_gain(monkeypatch, scores, patience, tol, expected):
    assert steps_until_stopped(monkeypatch, scores, patience, tol, 150) == expected


@pytest.mark.parametrize("patience", [None, 1, 100])
def test_a_fit_shorter_than_the_first_check_is_scored(monkeypatch, patience):
    assert steps_until_stopped(monkeypatch, [5], patience, 0.0, 4) == (4, 4, 5)
    assert steps_until_stopped(monkeypatch, [5, 4], patience, 0.0, 26)[1:] == (
        (25, 5) if patience else (26, 5)
    )


def test_the_score_is_the_likelihood_of_held_out_answers():
    mechanism, encoded = ask(CHAIN, 3.0, 200)
    fit = fit_of(mechanism)
    run = fit.watched(encoded[:150], encoded[150:], 0, None, 0.0)
    P, _ = fit(encoded[:150], 0)
    assert run.score == pytest.approx(scored(mechanism, encoded[150:], P).mean(), abs=1e-5)


# By a sampler.

COINS = [6] * 6


@pytest.fixture(scope="module")
def coins():
    """Return a mechanism and few answers on independent columns, of which noise is soon learned."""
    mechanism, _ = ask(COINS, 5.0, 1)
    rng = np.random.default_rng(1)
    names = list(mechanism.schema)
    frame = pd.DataFrame(rng.integers(6, size=(4400, 6)), columns=names)
    answers = mechanism.transform(frame)
    return mechanism, answers[:400], answers[400:].reset_index(drop=True)


@pytest.mark.slow
def test_early_stopping_explains_new_answers_better(coins, monkeypatch):
    mechanism, known, new = coins
    options = {"population_size": 40, "prior": 0.0, "max_iter": 200, "learning_rate": 0.2}
    monkeypatch.setattr(_local_table_sampler, "_HELD_OUT_SHARE", 0.3)
    monkeypatch.setattr(_local_table_sampler, "_PATIENCE", 50)
    stopped = make(mechanism, early_stopping=True, **options).fit(known)
    whole = make(mechanism, **options).fit(known)
    assert stopped.n_iter_ < 200 == whole.n_iter_
    assert stopped.n_iter_ % 25 == 0
    assert len(stopped.loss_curve_) == stopped.n_iter_
    gain = stopped.score_samples(new) - whole.score_samples(new)
    assert gain.mean() > 5 * stats.sem(gain)
    assert stopped.score(known) < whole.score(known)


def last_tenth(encoded, fraction, seed):
    n = round(fraction * len(encoded))
    return encoded[:-n], encoded[-n:]


def first_tenth_twice(encoded, fraction, seed):
    """A broken variant: what is scored was trained on."""
    n = round(fraction * len(encoded))
    return encoded[:-n], encoded[:n]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_a_start_that_knows_the_training_answers_by_heart_is_not_kept(
    coins, monkeypatch, order, early_stopping
):
    mechanism, known, _ = coins
    encoded = mechanism.encode_release(known)
    by_heart, _ = fit_of(mechanism, n_rows=12, max_iter=200)(encoded[:360], 0)
    laws = by_heart, np.full_like(by_heart, 1 / 6)

    class Given(Population):
        """Starts from given rows, the same ones wherever the seed is the same."""

        def __init__(self, sizes, n_rows, generator, device):
            super().__init__(sizes, n_rows, generator, device)
            law = starts.setdefault(generator.initial_seed(), laws[order[len(starts) % 2]])
            self.logits.data = torch.tensor(np.log(law.T), dtype=torch.float32)

    def kept(split):
        starts.clear()
        monkeypatch.setattr(_answer_fit, "split_answers", split)
        options = {"n_init": 2, "early_stopping": early_stopping, "learning_rate": 1e-20}
        rows = make(mechanism, **options).fit(known).law_.probabilities
        return [np.allclose(rows, law, atol=1e-5) for law in laws].index(True)

    starts = {}
    monkeypatch.setattr(_answer_fit, "Population", Given)
    assert kept(last_tenth) == 1
    assert kept(first_tenth_twice) == 0


def test_without_need_nothing_is_held_out(coins, monkeypatch):
    mechanism, known, _ = coins

    def refuse(*args):
        raise AssertionError("answers were held out")

    monkeypatch.setattr(_answer_fit, "split_answers", refuse)
    make(mechanism).fit(known)
    for options in ({"early_stopping": True}, {"n_init": 2}):
        with pytest.raises(AssertionError, match="held out"):
            make(mechanism, **options).fit(known)


def test_the_kept_population_has_all_answers(coins, monkeypatch):
    mechanism, known, _ = coins
    sizes, call = [], AnswerFit.__call__

    def spy(self, encoded, seed, **options):
        sizes.append((len(encoded), seed))
        return call(self, encoded, seed, **options)

    monkeypatch.setattr(AnswerFit, "__call__", spy)
    sampler = make(mechanism, n_init=3).fit(known)
    assert [n for n, _ in sizes] == [360] * 3 + [400]
    seeds = [seed for _, seed in sizes]
    assert len(set(seeds[:3])) == 3
    assert seeds[3] in seeds[:3]
    assert sampler.n_iter_ == len(sampler.loss_curve_) == 6


def test_more_rows_and_starts_for_one_answer(coins):
    mechanism, known, _ = coins
    for options in ({}, {"n_init": 2}, {"early_stopping": True}):
        sampler = make(mechanism, **options).fit(known[:1])
        assert math.isfinite(sampler.score(known[:1]))


# What goes wrong.


def test_a_fit_that_diverges_leaves_nothing(coins):
    mechanism, known, _ = coins
    sampler = make(mechanism).fit(known)
    with pytest.raises(TrainingDivergedError):
        sampler.set_params(learning_rate=1e38, prior=1e30).fit(known)
    assert not hasattr(sampler, "law_")
    assert not hasattr(sampler, "loss_curve_")


@pytest.mark.parametrize("device", ["abacus", "cuda:99", "meta"])
def test_a_device_that_is_not_there(coins, device):
    mechanism, known, _ = coins
    with pytest.raises(ValueError, match=f"device='{device}' is not a device"):
        make(mechanism, device=device).fit(known)


def test_progress_is_shown_where_asked(coins, capsys):
    mechanism, known, _ = coins
    make(mechanism).fit(known)
    assert capsys.readouterr().err == ""
    make(mechanism, verbose=1).fit(known)
    assert "LocalTableSampler: 100%" in capsys.readouterr().err


@pytest.mark.parametrize("epsilon", [0.01, 40.0, 1000.0])
def test_extreme_budgets(epsilon):
    schema = schema_of(CHAIN)
    mechanism = JointRandomizedResponse(epsilon, schema=schema, random_state=0).fit()
    answers = mechanism.transform(pd.DataFrame(chained(300), columns=list(schema)))
    sampler = make(mechanism, max_iter=60, learning_rate=0.5).fit(answers)
    assert np.isfinite(sampler.law_.probabilities).all()
    assert np.isfinite(sampler.loss_curve_).all()
    assert math.isfinite(sampler.score(answers))
