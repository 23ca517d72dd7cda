"""Training of the adapter: on the source, then on what was released of the target."""

import torch
from torch.nn import functional

from sklearn_dpgen.nn._training import fit_module

__all__ = ["adapt_to_moved", "adapt_to_projections", "adapt_to_releases", "train_on_source"]


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
