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

_N_NORMALIZED = 50


def one_hot(codes, n_classes, device):
    """Return classes as a network takes them: of shape (n, n_classes), no column for none."""
    if n_classes == 0:
        return torch.zeros(len(codes), 0, device=device)
    return torch.nn.functional.one_hot(codes.to(device), n_classes).float()


def n_normals(module, latent_dim):
    """Return how many standard normals a network takes for a record."""
    return getattr(module, "n_noise", 0) + latent_dim


def train_generators(build, laws, to_ball, *, n_generators, latent_dim, seed, **options):
    """Train networks, each by itself on the same releases.

    Parameters
    ----------
    build : callable
        Returns a new network, with weights from the global random stream.
    laws : ReleasedLaws or ProjectedBatches
    to_ball : callable
    n_generators : int
    latent_dim : int
    seed : int or None
    **options
        Of :func:`train_generator`.

    Returns
    -------
    module : torch.nn.Module
        The network, or their mixture.
    loss_curve : list of float
        Mean over the networks.
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
    """Descend the distance between the releases and what a network makes.

    Parameters
    ----------
    module : torch.nn.Module
        From (n, latent_dim + n_classes). Trained in place.
    laws : ReleasedLaws or ProjectedBatches
        Of each class, or of all records where there are none.
    to_ball : callable
        From what the network makes to centered records, with their gradient.
    n_classes : int
        0 without labels.
    n_generated : int
        Points of each class in a step.
    latent_dim : int
    seed : int or None
        Of latents, and of the lines or the public noise of each step.
    **options
        Of ``fit_module``.

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
        # In pairs of opposite signs: a linear map of them has no error in its mean.
        Z = torch.randn(half, generator=generator, device=device)
        Z = torch.cat([Z, -Z], 1)[:, :n_generated].flatten(0, 1)
        return torch.cat([Z, labels], 1)

    def step_loss(step):
        points = to_ball(module(draw()))
        return laws.distance(points.view(n_groups, n_generated, -1), generator)

    result = fit_module(module, step_loss, **options)
    # Statistics of a batch normalization belong to the weights before they were averaged.
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
        Rows of a step.
    generator : torch.Generator
        Draws them.
    **options
        Of ``fit_module``.

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
    """Move source features to the law of the releases, and train the classifier on them.

    Parameters
    ----------
    module : AdaptedNetwork
        Its map and its classifier are trained in place.
    features : Tensor of shape (n, feature_dim)
        Of the source.
    labels : Tensor of int of shape (n,)
    laws : ReleasedLaws
        Of the features of the target: all that is known of it.
    weight : float
        Of the distance against the cross-entropy.
    batch_size : int
        Rows of a step.
    generator : torch.Generator
        Draws them, and the lines of a step.
    callback : callable or None
        Called as ``callback(step, module)``.
    **options
        Of ``fit_module``.

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
    """Move source records until their features have the law of the releases, and train on them.

    Parameters
    ----------
    module : AdaptedNetwork
        With a map of records. All of it is trained in place.
    source : Tensor of shape (n, n_inputs)
    labels : Tensor of int of shape (n,)
    releases : ProjectedFeatures
        One for each step.
    weight : float
        Of the distance against the cross-entropy.
    batch_size : int
        Rows of a step.
    generator : torch.Generator
        Draws them.
    callback : callable or None
        Called as ``callback(step, module)``.
    **options
        Of ``fit_module``.

    Returns
    -------
    TrainingResult

    Notes
    -----
    The distance has its gradient in the map alone: features that followed it on the side of the
    source would move those of the target too, which have none to answer with.
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
    """Train features and classifier on source records as they are, and as they were moved.

    Parameters
    ----------
    module : AdaptedNetwork
        Its body and its classifier are trained in place; its map of records stays.
    source : Tensor of shape (n, n_inputs)
    labels : Tensor of int of shape (n,)
    weight : float
        Of the cross-entropy of moved records against that of the others.
    batch_size : int
        Rows of a step, which count twice.
    generator : torch.Generator
        Draws them.
    callback : callable or None
        Called as ``callback(step, module)``.
    **options
        Of ``fit_module``.

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
