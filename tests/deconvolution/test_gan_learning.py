"""What EntropicDeconvGAN learns: the raw law, and a score that tells who learned it."""

from functools import cache

import numpy as np
import pytest
import torch
from scipy import stats

from sklearn_dpgen.datasets import make_half_circle
from sklearn_dpgen.deconvolution import EntropicDeconvGAN, likelihood_score
from sklearn_dpgen.domains import Ball, Box, OneHot
from sklearn_dpgen.mechanisms import GaussianMechanism, LaplaceMechanism, RandomizedResponse
from sklearn_dpgen.metrics import wasserstein_distance

DISC = Ball(1.0, n_features=2)
MECHANISMS = {
    "laplace": LaplaceMechanism(5.0, domain=DISC, random_state=0),
    "gaussian": GaussianMechanism(8.0, 1e-4, domain=DISC, random_state=0),
}


@cache
def released(noise, seed):
    return MECHANISMS[noise].fit_transform(make_half_circle(10_000, random_state=seed))


@cache
def learned(noise, **options):
    settings = {
        "training__hidden_layer_sizes": (48, 48),
        "training__activation": "relu",
        "latent_dim": 2,
        "batch_size": 300,
        "n_generated": 200,
        "training__max_iter": 300,
        "n_sinkhorn": 30,
        "training__learning_rate": 1e-2,
        "random_state": 0,
        "training__device": "cpu",
    }
    gan = EntropicDeconvGAN(MECHANISMS[noise]).set_params(**settings | options)
    return gan.fit(released(noise, 1))


def error(gan):
    """Return W2 between generated and raw points."""
    raw = make_half_circle(400, random_state=7)
    return wasserstein_distance(gan.sample(400, random_state=0), raw)


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("loss", ["entropic", "likelihood"])
def test_the_entropic_loss_removes_the_noise_and_the_baseline_does_not(noise, loss):
    entropic = error(learned(noise, loss=loss))
    small = {"training__max_iter": 150, "batch_size": 150, "n_generated": 150}
    assert entropic < 0.3
    assert entropic < 0.6 * error(learned(noise, loss="wasserstein", **small))


LONG = {"training__max_iter": 1500, "batch_size": 1000, "n_generated": 500}
MISSED = pytest.mark.xfail(reason="of five seeds the errors are 0.17 to 0.22", strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["laplace", pytest.param("gaussian", marks=MISSED)])
def test_the_matched_entropic_loss_comes_close(noise):
    assert error(learned(noise, **LONG)) < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_only_the_matched_entropic_loss_comes_close(noise):
    entropic = error(learned(noise, **LONG))
    for other in ({"loss": "wasserstein"}, {"reg_scale": 0.1}, {"reg_scale": 10.0}):
        assert error(learned(noise, **{**LONG, "training__max_iter": 300, **other})) > 2 * entropic


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("reg_scale", [0.1, 10.0])
def test_held_out_likelihood_prefers_the_matched_regularization(noise, reg_scale):
    Y = released(noise, 2)
    gain = learned(noise).score_samples(Y) - learned(noise, reg_scale=reg_scale).score_samples(Y)
    assert gain.mean() > 5 * stats.sem(gain)


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_score_improves_with_training(noise):
    Y = released(noise, 2)
    gain = learned(noise).score_samples(Y) - learned(noise, training__max_iter=5).score_samples(Y)
    assert gain.mean() > 5 * stats.sem(gain)


@pytest.mark.slow
def test_score_is_bounded_by_that_of_the_raw_law():
    # No generator explains the records better than their law does, up to the sampling error.
    gan, Y = learned("laplace"), released("laplace", 2)
    raw = torch.tensor(make_half_circle(4000, random_state=3))
    log_p = torch.logsumexp(gan.mechanism_.log_likelihood(raw, torch.tensor(Y)), 0) - np.log(4000)
    gap = log_p.numpy() - gan.score_samples(Y)
    assert gap.mean() > -5 * stats.sem(gap)
    assert gap.mean() < 0.02


@pytest.mark.slow
def test_balanced_and_likelihood_agree():
    Y = released("laplace", 2)
    entropic, likelihood = (learned("laplace", loss=o) for o in ("entropic", "likelihood"))
    scores = [likelihood_score(gan, Y) for gan in (entropic, likelihood)]
    assert scores[0] == pytest.approx(scores[1], abs=0.01)


# The score against the mixture that it stands for.


def recorded_points(gan, Y):
    """Return what the generator made during a score, with the score of each record."""
    points = []
    hook = gan.generator_.register_forward_hook(lambda m, i, output: points.append(output))
    log_likelihood = gan.score_samples(Y)
    hook.remove()
    return torch.cat(points).numpy().astype(np.float64), log_likelihood


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_score_is_the_mixture_log_likelihood(noise, tiny):
    Y = released(noise, 2)[:50]
    gan = tiny(MECHANISMS[noise]).fit(Y)
    points, log_likelihood = recorded_points(gan, Y)
    law = {"laplace": stats.laplace, "gaussian": stats.norm}[noise](scale=gan.mechanism_.scale_)
    density = law.pdf(Y[None] - points[:, None]).prod(axis=2)
    np.testing.assert_allclose(log_likelihood, np.log(density.mean(axis=0)), rtol=1e-4)
    assert likelihood_score(gan, Y) == pytest.approx(log_likelihood.mean())


def test_score_of_categories_is_the_mixture_log_likelihood(tiny):
    Y = np.eye(3)[[0, 1, 2, 2]]
    gan = tiny(RandomizedResponse(1.0, domain=OneHot(3))).fit(Y)
    points, log_likelihood = recorded_points(gan, Y)
    expected = np.log(points.mean(axis=0) @ gan.mechanism_.table_)
    np.testing.assert_allclose(log_likelihood, expected[[0, 1, 2, 2]], rtol=1e-5)


class TwoPoints(torch.nn.Module):
    """Half of the latents to each of two points."""

    def __init__(self, latent_dim, domain):
        super().__init__()
        self.points = torch.nn.Parameter(torch.tensor([[-0.5, 0.25], [0.75, 0.0]]))

    def forward(self, Z):
        return self.points[(Z[:, 0] > 0).long()]


def test_latents_of_the_score_cover_the_cube_evenly(tiny):
    Y = np.asarray(released("laplace", 2)[:20])
    gan = tiny(generator=TwoPoints, training__learning_rate=1e-20, training__max_iter=1).fit(Y)
    law = stats.laplace(scale=gan.mechanism_.scale_)
    at_a, at_b = (law.pdf(Y - point).prod(axis=1) for point in ([-0.5, 0.25], [0.75, 0.0]))
    np.testing.assert_allclose(gan.score_samples(Y), np.log((at_a + at_b) / 2), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_score_is_deterministic_and_of_each_record_alone(noise):
    gan, Y = learned(noise, training__max_iter=5), released(noise, 2)[:2500]
    whole = gan.score_samples(Y)
    np.testing.assert_array_equal(whole, gan.score_samples(Y))
    for part in ([0], range(1, 40), range(1000, 1100), range(2499, -1, -1)):
        np.testing.assert_allclose(gan.score_samples(Y[part]), whole[part], rtol=1e-4, atol=1e-5)


# Losses and objectives.


@pytest.mark.parametrize("loss", ["wasserstein", "noisy_wasserstein", "sinkhorn_divergence"])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_baselines_run_and_descend(noise, loss, tiny):
    Y = released(noise, 1)[:500]
    options = {
        "training__max_iter": 40,
        "training__learning_rate": 2e-2,
        "n_generated": 100,
        "batch_size": 100,
    }
    gan = tiny(MECHANISMS[noise], loss=loss, **options).fit(Y)
    assert np.mean(gan.loss_curve_[-10:]) < np.mean(gan.loss_curve_[:10])
    assert len(gan.loss_curve_) == gan.n_iter_ == 40


def test_a_small_regularization_is_the_baseline(tiny):
    # As reg_scale goes to zero, the entropic loss in units of the noise goes to transport.
    Y = released("laplace", 1)[:32]
    options = {"training__max_iter": 1, "n_generated": 32, "n_sinkhorn": 5000, "sinkhorn_tol": 1e-4}
    curves = [
        tiny(MECHANISMS["laplace"], loss=loss, reg_scale=5e-3, **options).fit(Y).loss_curve_[0]
        for loss in ("entropic", "wasserstein")
    ]
    b = MECHANISMS["laplace"].fit(Y).scale_
    assert b * (curves[0] - 2 * np.log(2 * b)) == pytest.approx(curves[1], rel=0.05)


def test_samples_lie_in_the_domain(tiny):
    domain = Box([-1, 5], [1, 9])
    mechanism = LaplaceMechanism(5.0, domain=domain, random_state=0)
    Y = mechanism.fit_transform(domain.sample(60, np.random.default_rng(0)))
    gan = tiny(mechanism, training__learning_rate=1.0, training__max_iter=20).fit(Y)
    assert domain.contains(gan.sample(500, random_state=0)).all()
    assert not domain.contains(Y).all()
