"""All privatized records in each step, without the matrix of all costs."""

import numpy as np
import pytest
import torch

from sklearn_dpgen.deconvolution import _training
from sklearn_dpgen.deconvolution._model import GeneratorModel
from sklearn_dpgen.deconvolution._training import make_loss, train_generator
from sklearn_dpgen.domains import Box
from sklearn_dpgen.mechanisms import GaussianMechanism, LaplaceMechanism
from sklearn_dpgen.nn import mlp_generator
from sklearn_dpgen.utils._random import noise_source

BOX = Box(-1, 1, n_features=2)
MECHANISMS = [LaplaceMechanism(5.0, domain=BOX), GaussianMechanism(5.0, 1e-3, domain=BOX)]
NAMES = ["Laplace", "Gaussian"]


def loss_and_gradient(mechanism, name, X, Y):
    X = X.clone().requires_grad_()
    options = {"reg_scale": 1.5, "n_sinkhorn": 500, "tol": 1e-6}
    loss = make_loss(name, mechanism, noise=noise_source(0), **options)(X, Y)
    loss.backward()
    return loss.item(), X.grad


def records(mechanism, n):
    rng = np.random.default_rng(0)
    Y = mechanism.set_params(random_state=0).fit().transform(BOX.sample(n, rng))
    return torch.tensor(BOX.sample(23, rng)), torch.tensor(np.asarray(Y))


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["entropic", "likelihood"])
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=NAMES)
def test_blocks_give_the_loss_and_the_gradient_of_the_matrix(mechanism, loss, monkeypatch):
    X, Y = records(mechanism, 101)
    value, gradient = loss_and_gradient(mechanism, loss, X, Y)
    monkeypatch.setattr(_training, "_DENSE_PAIRS", 500)
    in_blocks, gradient_in_blocks = loss_and_gradient(mechanism, loss, X, Y)
    assert in_blocks == pytest.approx(value, rel=1e-6)
    torch.testing.assert_close(gradient_in_blocks, gradient, rtol=1e-4, atol=1e-8)
    # Twin: blocks without the last records have another gradient.
    _, of_fewer = loss_and_gradient(mechanism, loss, X, Y[:-20])
    assert (of_fewer - gradient).abs().max() > 1e-3 * gradient.abs().max()


@pytest.mark.parametrize("loss", ["entropic", "likelihood"])
def test_no_matrix_of_all_pairs_is_made(loss, monkeypatch):
    mechanism = MECHANISMS[0]
    X, Y = records(mechanism, 400)
    X = X.repeat(200, 1)
    sizes = []
    computed = type(mechanism)._log_likelihood

    def watched(self, X, Y):
        sizes.append(len(X) * len(Y))
        return computed(self, X, Y)

    monkeypatch.setattr(LaplaceMechanism, "_log_likelihood", watched)
    computes = make_loss(loss, mechanism, n_sinkhorn=2, tol=0, noise=noise_source(0))
    computes(X, Y)
    assert max(sizes) == len(X) * len(Y)
    sizes.clear()
    monkeypatch.setattr(_training, "_DENSE_PAIRS", 2**20)
    computes(X, Y)
    assert max(sizes) <= 2**20


def test_a_full_batch_has_every_record_once():
    _, Y = records(MECHANISMS[0], 50)
    seen = []

    def loss(X, rows):
        seen.append(rows)
        return X.square().sum()

    for batch_size in ("full", 50):
        model = GeneratorModel(mlp_generator(2, BOX, (4,)), 2, MECHANISMS[0])
        options = {"n_generated": 5, "max_iter": 3, "learning_rate": 1e-3, "seed": 0}
        train_generator(model, loss, Y, batch_size=batch_size, **options)
    assert all(torch.equal(rows, Y) for rows in seen[:3])
    # Twin: as many, drawn with replacement, are not all of them.
    assert not any(len(rows.unique(dim=0)) == len(Y) for rows in seen[3:])


def test_estimator(tiny):
    _, Y = records(MECHANISMS[0], 60)
    full = tiny(batch_size="full").fit(Y.numpy())
    assert np.isfinite(full.loss_curve_).all()
    assert full.loss_curve_ != tiny(batch_size=60).fit(Y.numpy()).loss_curve_
    with pytest.raises(ValueError, match="batch_size"):
        tiny(batch_size="all").fit(Y.numpy())
