"""The likelihood of joint answers under a population of soft records, and its gradient."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from answer_tables import (
    CPU,
    ask,
    enumerated_log_likelihood,
    mixture_log_likelihood,
    soft_rows,
)
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.tables import _answer_fit
from sklearn_dpgen.tables._answer_fit import AnswerBatch, AnswerLoss, log_likelihoods

SIZES = [2, 20, 3, 7, 5]
CASES = {
    "one column": (SIZES, 1.0, (1,)),
    "small budget": (SIZES, 0.1, (2,)),
    "pairs": (SIZES, 2.0, (2,)),
    "triples": (SIZES, 4.0, (3,)),
    "groups": ([20, 20, 18], 1.0, (3,)),
    "mixed": (SIZES, 4.0, (2, 5, 1, 3)),
    "large budget": (SIZES, 8.0, (4, 2)),
    "whole records": (SIZES, 12.0, (5,)),
}
cases = pytest.mark.parametrize("name", CASES)


def asked(name, n=40):
    sizes, epsilon, n_asked = CASES[name]
    return sizes, *ask(sizes, epsilon, n, n_asked=n_asked)


def boxes_of(mechanism, encoded):
    covered = mechanism.questions(encoded).covered(encoded[:, 0].astype(np.int64))
    return np.bincount(covered.answer, minlength=len(encoded))


def test_the_cases_differ():
    """One box an answer and several, all columns and few, groups and whole categories."""
    boxes, widths, grouped = {}, {}, {}
    for name in CASES:
        sizes, mechanism, encoded = asked(name)
        boxes[name] = boxes_of(mechanism, encoded).max()
        widths[name] = (encoded[:, 4:] >= 0).sum(axis=1)
        columns = encoded[:, 4:].astype(int)
        n_groups = mechanism.questions(encoded).n_groups
        grouped[name] = (n_groups < np.where(columns < 0, 1, np.array(sizes)[columns])).any()
    assert boxes["one column"] == 1
    assert min(boxes[name] for name in ("pairs", "triples", "groups", "mixed")) > 1
    assert set(widths["mixed"]) == {1, 2, 3, 5}
    assert grouped["groups"]
    assert not grouped["whole records"]


@cases
def test_likelihood_and_gradient_are_those_of_the_mechanism(name):
    sizes, mechanism, encoded = asked(name)
    P = soft_rows(sizes).requires_grad_()
    expected = mixture_log_likelihood(mechanism, encoded, P)
    (slope,) = torch.autograd.grad(-expected.mean(), P)
    batch = AnswerBatch(mechanism, encoded, CPU)
    found, gradient = batch(P.detach())
    # The scale of an answer is kept in single precision.
    assert_allclose(found, expected.detach(), rtol=0, atol=2e-6)
    assert_allclose(gradient, slope, rtol=1e-9, atol=1e-12)
    assert_array_equal(batch.log_likelihoods(P.detach()), found)
    single, single_gradient = batch(P.detach().float())
    assert single.dtype == single_gradient.dtype == torch.float32
    assert_allclose(single, found, atol=1e-4)
    assert_allclose(single_gradient, gradient, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 6.0, 12.0])
def test_likelihood_is_the_sum_over_all_records(epsilon):
    sizes = (2, 3, 4)
    mechanism, encoded = ask(sizes, epsilon, 50, n_asked=(1, 3, 2))
    P = soft_rows(sizes)
    expected = enumerated_log_likelihood(mechanism, encoded, P, sizes)
    assert_allclose(AnswerBatch(mechanism, encoded, CPU).log_likelihoods(P), expected, atol=2e-6)
    # Rows of equal shares: independent columns instead are another law.
    mean = P.mean(dim=1, keepdim=True)
    other = AnswerBatch(mechanism, encoded, CPU).log_likelihoods(mean)
    assert np.abs(other.numpy() - expected).max() > 1e-4


def test_a_category_without_a_share_is_possible():
    """An answer may be wrong, so that its likelihood and gradient are finite whatever the law."""
    mechanism, encoded = ask(SIZES, 4.0, 60, n_asked=(3,))
    P = torch.zeros(sum(SIZES), 4)
    P[np.cumsum([0, *SIZES[:-1]])] = 1
    log_likelihood, gradient = AnswerBatch(mechanism, encoded, CPU)(P)
    assert torch.isfinite(log_likelihood).all()
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_parts_have_the_likelihood_of_the_whole(monkeypatch, chunk):
    sizes, mechanism, encoded = asked("mixed")
    P = soft_rows(sizes)
    whole = AnswerBatch(mechanism, encoded, CPU).log_likelihoods(P)
    monkeypatch.setattr(_answer_fit, "_CHUNK", chunk)
    assert_allclose(log_likelihoods(mechanism, encoded, P), whole, atol=1e-12)


# The prior.


def divergence(P, sizes):
    """Return the mean KL(row ‖ mean row) of a population of shape (D, n_rows)."""
    return (P * (P.log() - P.mean(dim=1, keepdim=True).log())).sum() / P.shape[1]


@pytest.mark.parametrize("prior", [0.0, 3.0, 500.0])
def test_the_gradient_with_a_prior(prior):
    sizes, mechanism, encoded = asked("pairs")
    logits = soft_rows(sizes, 6).log().requires_grad_()
    P = torch.cat([part.softmax(dim=0) for part in logits.split(sizes)])
    expected = -mixture_log_likelihood(mechanism, encoded, P).mean()
    total = expected + prior / len(encoded) * divergence(P, sizes)
    (slope,) = torch.autograd.grad(total, logits, retain_graph=True)
    rng = np.random.default_rng(0)
    loss = AnswerLoss(mechanism, encoded, prior, len(encoded), rng, CPU)
    value, gradient = loss(P.detach())
    (found,) = torch.autograd.grad(P, logits, gradient, retain_graph=True)
    assert value.item() == pytest.approx(expected.item(), abs=2e-6)
    assert_allclose(found, slope, rtol=1e-9, atol=1e-12)
    # One of another weight is another.
    other = AnswerLoss(mechanism, encoded, prior + 3, len(encoded), rng, CPU)(P.detach())[1]
    assert (torch.autograd.grad(P, logits, other)[0] - slope).abs().max() > 1e-3


def test_the_gradient_with_a_prior_towards_given_rows():
    sizes, mechanism, encoded = asked("pairs")
    logits = soft_rows(sizes, 6).log().requires_grad_()
    P, center = (
        torch.cat([part.softmax(dim=0) for part in logits.split(sizes)]),
        soft_rows(sizes, 6, 1).log(),
    )
    own = (P * (P.log() - center)).sum() / P.shape[1]
    total = 30 / len(encoded) * own - mixture_log_likelihood(mechanism, encoded, P).mean()
    (slope,) = torch.autograd.grad(total, logits, retain_graph=True)
    rng = np.random.default_rng(0)
    gradient = AnswerLoss(mechanism, encoded, 30.0, len(encoded), rng, CPU, center)(P.detach())[1]
    assert_allclose(torch.autograd.grad(P, logits, gradient)[0], slope, rtol=1e-9, atol=1e-12)


def test_a_prior_stands_rows_that_exclude_a_category():
    sizes, mechanism, encoded = asked("pairs")
    P = soft_rows(sizes).float()
    P[:2] = torch.tensor([[0.0], [1.0]])
    P[2:4, 0] = 0
    gradient = AnswerLoss(mechanism, encoded, 10.0, 40, np.random.default_rng(0), CPU)(P)[1]
    assert torch.isfinite(gradient).all()


# Batches.


@pytest.fixture
def watched(monkeypatch):
    """Return lists of the batches that are made, and of those that are used."""
    made, used = [], []

    class Watched(AnswerBatch):
        def __init__(self, mechanism, encoded, device):
            super().__init__(mechanism, encoded, device)
            self.encoded = encoded
            made.append(self)

        def __call__(self, P):
            used.append(self.encoded)
            return super().__call__(P)

    monkeypatch.setattr(_answer_fit, "AnswerBatch", Watched)
    return made, used


def by_key(encoded):
    return encoded[np.lexsort(encoded.T)]


@pytest.mark.parametrize(
    ("batch_size", "n_batches"), [(20, 5), (103, 1), (1000, 1), (1, 103), (60, 2)]
)
def test_a_pass_has_every_answer_once(watched, batch_size, n_batches):
    made, used = watched
    mechanism, encoded = ask(SIZES, 4.0, 103)
    P = soft_rows(SIZES)
    loss = AnswerLoss(mechanism, encoded, 0.0, batch_size, np.random.default_rng(0), CPU)
    whole, slope = AnswerBatch(mechanism, encoded, CPU)(P)
    made.clear()
    used.clear()
    for _ in range(3):
        results = [loss(P) for _ in range(n_batches)]
        parts, used[:] = list(used), []
        assert_array_equal(by_key(np.concatenate(parts)), by_key(encoded))
        sizes = np.array([len(part) for part in parts])
        assert np.ptp(sizes) <= 1
        values = [value.item() for value, _ in results]
        assert_allclose(values @ sizes / 103, -whole.mean(), rtol=1e-9)
        mean = sum(gradient * n for (_, gradient), n in zip(results, sizes, strict=True)) / 103
        assert_allclose(mean, slope, atol=1e-12)
    assert len(made) == n_batches


def test_batches_are_random_and_follow_the_seed(watched):
    _, used = watched
    mechanism, encoded = ask(SIZES, 4.0, 103)
    P = soft_rows(SIZES)

    def order(seed):
        used.clear()
        loss = AnswerLoss(mechanism, encoded, 0.0, 20, np.random.default_rng(seed), CPU)
        for _ in range(10):
            loss(P)
        return [part[0, 1] for part in used]

    first = order(0)
    assert order(0) == first
    assert order(1) != first
    # Each pass has an order of its own.
    assert set(first[:5]) == set(first[5:])
    assert first[:5] != first[5:]


def test_answers_in_an_order_are_mixed(watched):
    _, used = watched
    mechanism, encoded = ask(SIZES, 4.0, 103)
    encoded = encoded[encoded[:, 0].argsort(kind="stable")]
    loss = AnswerLoss(mechanism, encoded, 0.0, 20, np.random.default_rng(0), CPU)
    for _ in range(5):
        loss(soft_rows(SIZES))
    middle = np.median(encoded[:, 0])
    assert all(part[:, 0].min() < middle < part[:, 0].max() for part in used)


@pytest.mark.parametrize("n_kept", [0, 1, 3, 5])
def test_masks_beyond_the_bound_are_made_again(watched, monkeypatch, n_kept):
    made, used = watched
    mechanism, encoded = ask([6, 6, 6], 2.0, 100)
    P = soft_rows([6, 6, 6])

    def curve():
        made.clear()
        loss = AnswerLoss(mechanism, encoded, 1.0, 20, np.random.default_rng(0), CPU)
        results = [loss(P) for _ in range(10)]
        kept = [batch for batch in loss._batches if batch is not None]
        return [(value.item(), gradient) for value, gradient in results], kept

    expected, kept = curve()
    assert len(kept) == len(made) == 5
    # Of batches of nearly one size, so many and a half.
    bound = int(sum(batch.n_bytes for batch in kept) / 5 * (n_kept + 0.5))
    monkeypatch.setattr(_answer_fit, "_KEPT_BYTES", bound)
    found, kept = curve()
    assert sum(batch.n_bytes for batch in kept) <= bound
    assert len(kept) == n_kept
    assert len(made) == 5 + (5 - n_kept)
    for (value, gradient), (same_value, same_gradient) in zip(found, expected, strict=True):
        assert value == same_value
        assert torch.equal(gradient, same_gradient)


def test_masks_are_of_the_asked_columns_alone():
    """A table of more columns takes no more, and of more asked columns in proportion."""

    def n_bytes(n_columns, n_asked):
        mechanism, encoded = ask([4] * n_columns, 8.0, 200, n_asked=(n_asked,))
        return AnswerBatch(mechanism, encoded, CPU).n_bytes

    found = [n_bytes(5, 1), n_bytes(5, 2), n_bytes(5, 3)]
    assert all(small < large for small, large in pairwise(found))
    assert n_bytes(60, 1) == found[0] == 200 * (4 + 8)
    assert abs(n_bytes(60, 2) - found[1]) < 0.1 * found[1]
