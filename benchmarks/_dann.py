"""Peers of the adapter: adversarial networks, plain and private, and Algorithm 2 to the letter.

All of them train the network of the adapter, from the same source-only start, in float32. The
private ones make one release a step through the package's mechanism: neighbours differ in one
replaced record of the target.
"""

import copy

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from sklearn_dpgen.accounting import ProjectionLaw
from sklearn_dpgen.domains._ball import enclosing_ball
from sklearn_dpgen.mechanisms import StratifiedGaussianMechanism, Stratum
from sklearn_dpgen.ot import random_directions
from sklearn_dpgen.ot._sliced import wasserstein_lines
from sklearn_dpgen.smoothed._features import RADIUS, clip_rows
from sklearn_dpgen.utils._random import noise_source

__all__ = ["algorithm_2", "clipped_sum", "dann", "private_dann", "recentered"]

N_HIDDEN = 64


class _Trainer:
    """Source batches, target batches, Adam with cosine decay, from a fitted adapter's network."""

    def __init__(self, module, task, *, n_iter, batch_size, learning_rate, seed, others=()):
        self.module = copy.deepcopy(module).float()
        self.X, self.target = (
            torch.as_tensor(a, dtype=torch.float32) for a in (task.source[0], task.target)
        )
        self.y = torch.as_tensor(task.source[1])
        self.n_iter, self.batch_size = n_iter, batch_size
        self.generator = torch.Generator().manual_seed(seed)
        parts = [self.module.body, self.module.classifier, *others]
        self.parameters = [p for part in parts for p in part.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=learning_rate)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, n_iter)

    def rows(self, n):
        return torch.randint(n, (self.batch_size,), generator=self.generator)

    def source_step(self):
        """Return features of a batch and the loss of its labels."""
        rows = self.rows(len(self.X))
        features = self.module.features(self.X[rows])
        return features, functional.cross_entropy(self.module.logits(features), self.y[rows])

    def descend(self, loss, more=None):
        """Take a step along the gradient of a loss, and given gradients beside it."""
        self.optimizer.zero_grad()
        loss.backward()
        for parameter, gradient in (more or {}).items():
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        self.optimizer.step()
        self.schedule.step()

    def accuracy(self, task):
        X = torch.as_tensor(task.test[0], dtype=torch.float32)
        with torch.no_grad():
            return float((self.module(X).argmax(1).numpy() == task.test[1]).mean())


def algorithm_2(module, task, *, epsilon, delta, weight, sides=1, seed=0, **options):
    """Return the accuracy of the paper's Algorithm 2, with features clipped to a constant.

    The distance trains the features of the source. With ``sides=2`` those of the target too, as in
    the paper, which is not covered: for an infinite epsilon alone.
    """
    if sides == 2 and np.isfinite(epsilon):
        raise ValueError("The gradient of the target's features is not covered by a guarantee.")
    run = _Trainer(module, task, seed=seed, **options)
    d, n = module.classifier.in_features, len(run.target)
    mechanism = StratifiedGaussianMechanism(
        [Stratum(n, min(run.batch_size, n), 2 * RADIUS)],
        epsilon=epsilon,
        delta=delta,
        n_releases=run.n_iter,
        projections=ProjectionLaw(d, d),
    )
    releases = mechanism.run(noise_source(seed, "algorithm 2", task.target))
    for _ in range(run.n_iter):
        features, loss = run.source_step()
        directions = random_directions(d, d, generator=run.generator)
        own = features @ directions.T
        own = own + mechanism.noise_scale * torch.randn(own.shape, generator=run.generator)
        (rows,) = releases.draw()
        theirs = clip_rows(run.module.features(run.target[rows])) @ directions.T
        noisy = releases.release(theirs.detach().double().numpy().ravel()).reshape(theirs.shape)
        if sides == 1:
            theirs = torch.as_tensor(noisy, dtype=torch.float32)
        run.descend(loss + weight * d / RADIUS**2 * wasserstein_lines(own, theirs))
    return run.accuracy(task)


def recentered(module, task, *, epsilon, delta, seed=0, **options):
    """Return the accuracy after source records were moved by a noisy difference of the means.

    Target records are moved into the ball around the task's domain, and their mean is released
    once.
    """
    n, d = task.target.shape
    ball = enclosing_ball(task.domain(n_features=d))
    rest = clip_rows(torch.as_tensor(task.target - ball.center), ball.radius).numpy()
    mechanism = StratifiedGaussianMechanism(
        [Stratum(n, n, 2 * ball.radius / n)], epsilon=epsilon, delta=delta, n_releases=1
    )
    release = mechanism.run(noise_source(seed, "mean", task.target))
    release.draw()
    mean = ball.center + release.release(rest.mean(axis=0))
    run = _Trainer(module, task, seed=seed, **options)
    moved = run.X + torch.as_tensor(mean - task.source[0].mean(axis=0), dtype=torch.float32)
    for _ in range(run.n_iter):
        rows = run.rows(len(run.X))
        both = torch.cat([run.X[rows], moved[rows]])
        run.descend(functional.cross_entropy(run.module(both), run.y[rows].repeat(2)))
    return run.accuracy(task)


def _discriminator(d):
    return nn.Sequential(nn.Linear(d, N_HIDDEN), nn.ReLU(), nn.Linear(N_HIDDEN, 1))


class _Reversed(torch.autograd.Function):
    """The identity, with a gradient of the opposite sign and a weight."""

    @staticmethod
    def forward(ctx, Z, weight):
        ctx.weight = weight
        return Z.view_as(Z)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.weight * gradient, None


def _domain_loss(module, discriminator, features, weight, is_target):
    scores = discriminator(_Reversed.apply(module.scale * features, weight)).squeeze(1)
    return functional.binary_cross_entropy_with_logits(
        scores, torch.full_like(scores, float(is_target)), reduction="none"
    )


def dann(module, task, *, weight, seed=0, **options):
    """Return the accuracy of a domain adversarial network (Ganin et al. 2016), not private."""
    torch.manual_seed(seed)
    discriminator = _discriminator(module.classifier.in_features)
    run = _Trainer(module, task, seed=seed, others=[discriminator], **options)
    for _ in range(run.n_iter):
        features, loss = run.source_step()
        target = run.module.features(run.target[run.rows(len(run.target))])
        for own, is_target in ((features, False), (target, True)):
            loss = loss + _domain_loss(run.module, discriminator, own, weight, is_target).mean()
        run.descend(loss)
    return run.accuracy(task)


def private_dann(module, task, *, epsilon, delta, weight, clip, seed=0, **options):
    """Return the accuracy of the same with clipped, noisy gradients of target records.

    The gradient of each target record, in the features and the discriminator together, is clipped
    to norm ``clip``: one record in the place of another moves their sum by twice that.
    """
    torch.manual_seed(seed)
    discriminator = _discriminator(module.classifier.in_features)
    run = _Trainer(module, task, seed=seed, others=[discriminator], **options)
    n = len(run.target)
    batch_size = min(run.batch_size, n)
    mechanism = StratifiedGaussianMechanism(
        [Stratum(n, batch_size, 2 * clip)], epsilon=epsilon, delta=delta, n_releases=run.n_iter
    )
    releases = mechanism.run(noise_source(seed, "private dann", task.target))
    trained = [*run.module.body.parameters(), *discriminator.parameters()]
    for _ in range(run.n_iter):
        features, loss = run.source_step()
        loss = loss + _domain_loss(run.module, discriminator, features, weight, False).mean()
        (rows,) = releases.draw()
        total = clipped_sum(run.module, discriminator, run.target[rows], weight, clip)
        noisy = torch.as_tensor(releases.release(total.double().numpy()), dtype=torch.float32)
        parts = (noisy / batch_size).split([p.numel() for p in trained])
        more = {p: part.view_as(p) for p, part in zip(trained, parts, strict=True)}
        run.descend(loss, more)
    return run.accuracy(task)


def clipped_sum(module, discriminator, X, weight, clip):
    """Return the sum over target records of their clipped gradients, as one vector.

    All layers are linear: the gradient of a record in a weight is the outer product of what came
    in and what came back, so that norms need no gradient by record.
    """
    inputs, outputs = [], []
    layers = [
        layer for part in (module.body, discriminator) for layer in part.modules()
        if isinstance(layer, nn.Linear)
    ]  # fmt: skip

    def watch(layer, given, output):
        inputs.append(given[0].detach())
        outputs.append(output)

    handles = [layer.register_forward_hook(watch) for layer in layers]
    losses = _domain_loss(module, discriminator, module.features(X), weight, True)
    for handle in handles:
        handle.remove()
    back = torch.autograd.grad(losses.sum(), outputs)
    squares = [
        (1 + Z.square().sum(1)) * G.square().sum(1) for Z, G in zip(inputs, back, strict=True)
    ]
    factors = (clip / torch.stack(squares).sum(0).sqrt().clamp_min(1e-12)).clamp_max(1.0)
    factors = torch.where(factors.isfinite(), factors, 0.0)
    parts = []
    for Z, G in zip(inputs, back, strict=True):
        G = torch.nan_to_num(G) * factors[:, None]
        parts += [(G.T @ torch.nan_to_num(Z)).ravel(), G.sum(0)]
    return torch.cat(parts)
