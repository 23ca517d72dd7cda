"""Training on releases and public records; no private record comes here."""

import numpy as np
import torch
from torch.nn import functional
from torch.optim.swa_utils import update_bn

from sklearn_dpgen.nn._generators import GeneratorMixture
from sklearn_dpgen.nn._training import fit_module
from sklearn_dpgen.utils._random import split_random_state, torch_generator
from sklearn_dpgen.utils._torch import seeded_initialization

__all__ = [
    "adapt_to_moved",
    "adapt_to_projections",
    "adapt_to_releases",
    "n_normals",
    "one_hot",
    "train_generator",
    "train_generators",
    "train_on_source",
]

# Batches from which statistics of batch normalization are computed.
_N_NORMALIZED = 50


def one_hot(codes, n_classes, device):
    """Return classes as one-hot inputs of shape (n, n_classes), which may have no column."""
    if n_classes == 0:
        return torch.zeros(len(codes), 0, device=device)
    return torch.nn.functional.one_hot(codes.to(device), n_classes).float()


def n_normals(module, latent_dim):
    """Return the number of standard normals that a network takes for a record."""
    return getattr(module, "n_noise", 0) + latent_dim


def train_generators(build, laws, to_ball, *, n_generators, latent_dim, seed, **options):
    """Train one or more networks, each by itself on the same releases.

    Parameters
    ----------
    build : callable
        Returns a new network, with weights from the global random stream.
    laws : ReleasedLaws or ProjectedBatches
    to_ball : callable
        Maps outputs of the network to centered records, with their gradient.
    n_generators : int
    latent_dim : int
    seed : int or None
    **options
        Options of :func:`train_generator`.

    Returns
    -------
    module : torch.nn.Module
        The network, or their mixture.
    loss_curve : list of float
        Losses of the steps, averaged over the networks.
    """
    networks, curves = [], []
    for one_seed in split_random_state(seed, n_generators):
        init_seed, latent_seed = split_random_state(one_seed, 2)
        with seeded_initialization(init_seed):
            network = build().to(laws.device)
        width = n_normals(network, latent_dim)
        result = train_generator(
            network, laws, to_ball, latent_dim=width, seed=latent_seed, **options
        )
        networks.append(network)
        curves.append(result.loss_curve)
    module = networks[0] if n_generators == 1 else GeneratorMixture(networks)
    return module, np.mean(curves, axis=0).tolist()


def train_generator(module, laws, to_ball, *, n_classes, n_generated, latent_dim, seed, **options):
    """Minimize the distance between the releases and generated points.

    Parameters
    ----------
    module : torch.nn.Module
        Takes inputs of shape (n, latent_dim + n_classes). Trained in place.
    laws : ReleasedLaws or ProjectedBatches
        Releases of each class, or of all records without classes.
    to_ball : callable
        Maps outputs of the network to centered records, with their gradient.
    n_classes : int
        0 without labels.
    n_generated : int
        Generated points of each class in a step.
    latent_dim : int
    seed : int or None
        Seed of the latents, and of the lines or the public noise of each step.
    **options
        Options of ``fit_module``.

    Returns
    -------
    TrainingResult
    """
    device = laws.device
    generator = torch_generator(seed, device)
    n_groups = max(1, n_classes)
    codes = torch.arange(n_groups).repeat_interleave(n_generated)
    labels = one_hot(codes, n_classes, device)
    half = (n_groups, (n_generated + 1) // 2, latent_dim)

    def draw():
        # Pairs of opposite signs give a linear map outputs with an exact mean.
        Z = torch.randn(half, generator=generator, device=device)
        Z = torch.cat([Z, -Z], 1)[:, :n_generated].flatten(0, 1)
        return torch.cat([Z, labels], 1)

    def step_loss(step):
        points = to_ball(module(draw()))
        return laws.distance(points.view(n_groups, n_generated, -1), generator)

    result = fit_module(module, step_loss, **options)
    # Averaging changed the weights, so statistics of batch normalization are computed again.
    update_bn([draw() for _ in range(_N_NORMALIZED)], module)
    return result


def train_on_source(module, source, labels, *, batch_size, generator, **options):
    """Train features and classifier on the public domain.

    Parameters
    ----------
    module : AdaptedNetwork
        Trained in place.
    source : Tensor of shape (n, n_inputs)
    labels : Tensor of int of shape (n,)
    batch_size : int
        Number of rows in a step.
    generator : torch.Generator
        Draws the rows.
    **options
        Options of ``fit_module``.

    Returns
    -------
    TrainingResult
    """

    def loss(step):
        rows = _random_rows(source, batch_size, generator)
        return functional.cross_entropy(module(source[rows]), labels[rows])

    return fit_module(torch.nn.ModuleList([module.body, module.classifier]), loss, **options)


def adapt_to_releases(
    module, features, labels, laws, *, weight, batch_size, generator, callback=None, **options
):
    """Move source features to the released distribution, and train the classifier on them.

    Parameters
    ----------
    module : AdaptedNetwork
        Its map and its classifier are trained in place.
    features : Tensor of shape (n, feature_dim)
        Features of the source.
    labels : Tensor of int of shape (n,)
    laws : ReleasedLaws
        Released distributions of the features of the target.
    weight : float
        Weight of the distance relative to the cross-entropy.
    batch_size : int
        Number of rows in a step.
    generator : torch.Generator
        Draws the rows, and the lines of a step.
    callback : callable or None
        Called as ``callback(step, module)``.
    **options
        Options of ``fit_module``.

    Returns
    -------
    TrainingResult
    """

    def loss(step):
        rows = _random_rows(features, batch_size, generator)
        moved = module.move(features[rows])
        task = functional.cross_entropy(module.logits(moved), labels[rows])
        return task + weight * laws.distance(moved[None].float(), generator)

    parts = torch.nn.ModuleList([module.transport, module.classifier])
    return fit_module(parts, loss, callback=_watch(callback, module), **options)


def adapt_to_projections(
    module, source, labels, releases, *, weight, batch_size, generator, callback=None, **options
):
    """Move source records until their features match the releases, and train on them.

    Parameters
    ----------
    module : AdaptedNetwork
        Has a map of records. All parts are trained in place.
    source : Tensor of shape (n, n_inputs)
    labels : Tensor of int of shape (n,)
    releases : ProjectedFeatures
        Makes one release for each step.
    weight : float
        Weight of the distance relative to the cross-entropy.
    batch_size : int
        Number of rows in a step.
    generator : torch.Generator
        Draws the rows.
    callback : callable or None
        Called as ``callback(step, module)``.
    **options
        Options of ``fit_module``.

    Returns
    -------
    TrainingResult

    Notes
    -----
    The gradient of the distance reaches the map alone. If it also trained the features, it would
    change those of the target as well, whose share of the gradient is not released.
    """

    def loss(step):
        rows = _random_rows(source, batch_size, generator)
        moved = module.move(source[rows])
        task = functional.cross_entropy(module(moved), labels[rows])
        own = module.fixed_features(moved)[None].float()
        return task + weight * releases(module).distance(own, generator)

    return fit_module(module, loss, callback=_watch(callback, module), **options)


def adapt_to_moved(
    module, source, labels, *, weight, batch_size, generator, callback=None, **options
):
    """Train features and classifier on source records, both unchanged and moved.

    Parameters
    ----------
    module : AdaptedNetwork
        Its body and its classifier are trained in place; its map of records stays fixed.
    source : Tensor of shape (n, n_inputs)
    labels : Tensor of int of shape (n,)
    weight : float
        Weight of the cross-entropy of moved records relative to that of unchanged ones.
    batch_size : int
        Number of rows in a step; each is used unchanged and moved.
    generator : torch.Generator
        Draws the rows.
    callback : callable or None
        Called as ``callback(step, module)``.
    **options
        Options of ``fit_module``.

    Returns
    -------
    TrainingResult
    """
    with torch.no_grad():
        moved = module.move(source)

    def loss(step):
        rows = _random_rows(source, batch_size, generator)
        losses = [functional.cross_entropy(module(X[rows]), labels[rows]) for X in (source, moved)]
        return losses[0] + weight * losses[1]

    parts = torch.nn.ModuleList([module.body, module.classifier])
    return fit_module(parts, loss, callback=_watch(callback, module), **options)


def _watch(callback, module):
    return None if callback is None else (lambda step: callback(step, module))


def _random_rows(X, count, generator):
    """Draw rows with replacement, uniformly."""
    return torch.randint(len(X), (count,), generator=generator, device=X.device)
