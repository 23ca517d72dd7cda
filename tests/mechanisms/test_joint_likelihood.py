"""The likelihood of joint answers: its closed form, for soft records too, and its gradient."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from joint_cases import CATEGORIES, RECORDS, SCHEMA, mechanism
from local_privacy import log_likelihood, vertices

from sklearn_dpgen.mechanisms import JointRandomizedResponse
from sklearn_dpgen.schema import Categorical, Ordinal, Schema
from sklearn_dpgen.tables._answer_fit import log_likelihoods


def soft_records(n, seed=0):
    """Return points of the domain with distributions as blocks, and these."""
    rng = np.random.default_rng(seed)
    blocks = [rng.dirichlet(np.full(len(v), 0.5), size=n) for v in CATEGORIES.values()]
    return np.hstack(blocks), blocks


def answers(epsilon, n_asked, seed=0):
    fitted = mechanism(epsilon, n_asked=n_asked, random_state=seed)
    return fitted, fitted.encode_release(fitted.transform(RECORDS))


@pytest.mark.parametrize("epsilon", [0.3, 2.5, 8.0])
@pytest.mark.parametrize("n_asked", [1, 2, 3])
def test_a_soft_record_is_the_mixture_of_its_vertices(epsilon, n_asked):
    fitted, Y = answers(epsilon, n_asked)
    X, (a, b, c) = soft_records(7)
    shares = np.einsum("na,nb,nc->nabc", a, b, c).reshape(7, -1)
    expected = shares @ np.exp(log_likelihood(fitted, vertices(fitted.domain_), Y))
    np.testing.assert_allclose(np.exp(log_likelihood(fitted, X, Y)), expected, rtol=1e-12)
    # The mean of the blocks is no mixture of the records.
    mean = X.mean(axis=0, keepdims=True)
    assert n_asked == 1 or not np.allclose(
        np.exp(log_likelihood(fitted, mean, Y)), expected.mean(axis=0), rtol=1e-3
    )


@pytest.mark.parametrize("epsilon", [0.3, 2.5])
def test_the_closed_form_of_one_column(epsilon):
    fitted = mechanism(epsilon, n_asked=1, always=["c"])
    Y = fitted.encode_release(fitted.transform(RECORDS))
    X, (_, _, c) = soft_records(4)
    corners = np.exp(log_likelihood(fitted, vertices(fitted.domain_)[:5], Y))
    covered = corners > math.sqrt(corners.min() * corners.max())
    # No records but those of an answer count: K = 5, and m = 2 of ε = 0.3 and 1 of 2.5.
    m = 2 if epsilon == 0.3 else 1
    assert (covered.sum(axis=0) == m).all()
    gain = math.expm1(epsilon)
    expected = (1 + gain * c @ covered) / (m * math.exp(epsilon) + 5 - m)
    np.testing.assert_allclose(np.exp(log_likelihood(fitted, X, Y)), expected, rtol=1e-12)


def test_the_order_of_the_asked_columns_is_that_of_the_cells():
    fitted = mechanism(8.0)
    release = {"grouping": 5, "epsilon": 8.0, "design": fitted.design_}
    rows = [
        {"asked": '["a", "c"]', "answer": 7, **release},
        {"asked": '["c", "a"]', "answer": 7, **release},
    ]
    points, found = vertices(fitted.domain_), []
    for row in rows:
        log_p = log_likelihood(fitted, points, fitted.encode_release(pd.DataFrame([row])))[:, 0]
        found.append({tuple(r) for r in RECORDS[log_p == log_p.max()][["a", "c"]].to_numpy()})
    # 7 is 1 of a and 2 of c, among 5; and 2 of c and 1 of a, among 3.
    assert found == [{("y", "r")}, {("y", "r")}]
    other = pd.DataFrame([rows[1] | {"answer": 6}])
    log_p = log_likelihood(fitted, points, fitted.encode_release(other))[:, 0]
    assert {*RECORDS[log_p == log_p.max()]["a"]} == {"x"}


@pytest.mark.parametrize("n_asked", [1, 2, 3])
def test_gradients(n_asked):
    fitted, Y = answers(1.0, n_asked)
    X = torch.tensor(soft_records(3)[0], requires_grad=True)
    Y = torch.tensor(Y[:8])
    assert torch.autograd.gradcheck(lambda X: fitted.log_likelihood(X, Y), X)
    second = torch.tensor(soft_records(2)[0], requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda X: fitted.log_likelihood(X, Y[:3]), second)


def test_blocks_that_are_not_asked_have_no_gradient():
    fitted = mechanism(1.0, n_asked=1, always=["b"], random_state=0)
    Y = torch.tensor(fitted.encode_release(fitted.transform(RECORDS)))
    X = torch.tensor(soft_records(3)[0], requires_grad=True)
    fitted.log_likelihood(X, Y)[:, :5].sum().backward()
    blocks = fitted.encoder_.blocks_
    assert (X.grad[:, blocks["a"]] == 0).all()
    assert (X.grad[:, blocks["c"]] == 0).all()
    assert (X.grad[:, blocks["b"]] != 0).any()


def test_encoded_answers_fit_in_floats_of_32_bits():
    # As many cells as there may be, and keys of 48 bits.
    schema = Schema({name: Categorical(range(32)) for name in "abcd"})
    fitted = JointRandomizedResponse(20.0, schema=schema, n_asked=4, random_state=0).fit()
    X = pd.DataFrame(np.full((400, 4), 31), columns=list("abcd"))
    Y = fitted.transform(X)
    assert Y["answer"].max() == 2**20 - 1
    assert Y["grouping"].max() > 2**47
    encoded = fitted.encode_release(Y)
    assert encoded.dtype == np.float64
    np.testing.assert_array_equal(encoded.astype(np.float32), encoded)
    points = torch.zeros(1, 128)
    points[0, [31, 63, 95, 127]] = 1
    single = fitted.log_likelihood(points, torch.tensor(encoded, dtype=torch.float32))
    assert single.dtype == torch.float32
    double = fitted.log_likelihood(points.double(), torch.tensor(encoded))
    torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=1e-5)
    assert double.max() > -0.1


def test_the_population_has_the_same_likelihood():
    kinds = {"a": Categorical(range(9)), "b": Ordinal(range(6)), "c": Categorical(range(3))}
    fitted = JointRandomizedResponse(0.5, schema=Schema(kinds), n_asked=3, random_state=0).fit()
    rng = np.random.default_rng(0)
    X = pd.DataFrame({n: rng.integers(k, size=50) for n, k in zip("abc", (9, 6, 3), strict=True)})
    Y = fitted.encode_release(fitted.transform(X))
    P = np.hstack([rng.dirichlet(np.ones(k), size=8) for k in (9, 6, 3)])
    expected = np.log(np.exp(log_likelihood(fitted, P, Y)).mean(axis=0))
    found = log_likelihoods(fitted, Y, torch.tensor(P.T, dtype=torch.float32))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_likelihood_is_of_answers_to_the_same_schema():
    # The encoder has one block of the domain for each column, in the order of the schema.
    fitted = mechanism()
    assert list(fitted.encoder_.blocks_) == list(SCHEMA)
    assert fitted.domain_.n_features == 10
