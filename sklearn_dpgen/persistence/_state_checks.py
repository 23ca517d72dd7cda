"""What must be true of the attributes of a fitted estimator together."""

import math
from dataclasses import replace

import numpy as np
import torch
from torch.func import functional_call

from sklearn_dpgen.persistence._checks import demand, is_law
from sklearn_dpgen.preprocessing._tabular import check_categories
from sklearn_dpgen.utils._labels import check_classes

__all__ = [
    "check_em",
    "check_evolution_sampler",
    "check_gan",
    "check_image_sampler",
    "check_local_sampler",
    "check_moment_sampler",
    "check_predictor",
    "check_sliced_generator",
    "check_sliced_sampler",
    "check_smoothed_generator",
    "check_voting_sampler",
]


def _check_encoder(estimator, laws):
    """Check that records of laws can be decoded."""
    encoder = estimator.encoder_
    check_categories(encoder)
    for law in laws:
        demand(law.domain == encoder.domain_, "A law is of other columns than the encoder.")
    _check_encoder_names(estimator, encoder)


def _check_encoder_names(estimator, encoder):
    demand(
        estimator.n_features_in_ == encoder.n_features_in_
        and list(estimator.feature_names_in_) == list(encoder.feature_names_in_),
        "The columns are not those of the encoder.",
    )


def _check_names(estimator):
    names = getattr(estimator, "feature_names_in_", None)
    width = estimator.n_features_in_
    demand(width > 0, "There are no columns.")
    fits = names is None or (len(names) == width and all(isinstance(n, str) for n in names))
    demand(fits, "There are other columns than names of columns.")


def check_labels(estimator) -> int:
    """Return the number of classes, 1 without labels, if each has a share."""
    has_labels = hasattr(estimator, "classes_")
    demand(
        has_labels == hasattr(estimator, "label_proportions_"),
        "There are classes without proportions, or proportions without classes.",
    )
    if not has_labels:
        return 1
    classes, shares = estimator.classes_, estimator.label_proportions_
    found = check_classes(classes)
    demand(np.array_equal(found, classes), "The classes are not sorted.")
    demand(len(shares) == len(classes) and is_law(shares), "The classes have no proportions.")
    return len(classes)


def check_sliced_sampler(estimator):
    """Check a TableSampler."""
    _check_names(estimator)
    rules = vars(estimator).get("_rules_")
    _check_encoder(estimator, [estimator.law_])
    names = set(estimator.encoder_.columns_)
    for table in (*estimator.one_way_marginals_, *estimator.marginals_):
        demand(set(table.columns) <= names, "A table is of other columns.")
    if rules is not None:
        demand(rules.schema == estimator.encoder_.schema, "The rules are of another schema.")


def check_local_sampler(estimator):
    """Check a LocalTableSampler, and give it the encoder of its mechanism."""
    estimator.encoder_ = estimator.mechanism_.encoder_
    demand(estimator.law_.domain == estimator.encoder_.domain_, "The law is of other columns.")
    _check_names(estimator)


def _check_domain(estimator):
    """Check that names, encoder and domain are of one width, and return it."""
    _check_names(estimator)
    domain, encoder = getattr(estimator, "domain_", None), getattr(estimator, "encoder_", None)
    if encoder is not None:
        demand(domain == encoder.domain_, "The domain is not that of the encoder.")
        _check_encoder_names(estimator, encoder)
    elif domain is not None:
        demand(domain.n_features == estimator.n_features_in_, "The domain has another width.")
    return estimator.n_features_in_ if domain is None else domain.n_features


def check_voting_sampler(estimator):
    """Check a sampler of weighted candidates."""
    n_classes = check_labels(estimator)
    _check_domain(estimator)
    candidates, weights = estimator.candidates_, estimator.weights_
    demand(len(candidates) == len(weights) == n_classes, "There are other classes than candidates.")
    for points, shares in zip(candidates, weights, strict=True):
        demand(len(points) == len(shares) and is_law(shares), "Candidates have other weights.")
        demand(points.shape[1] == candidates[0].shape[1], "Candidates have other widths.")
    demand(all(len(step) == n_classes for step in estimator.history_), "A step has other classes.")


def check_evolution_sampler(estimator):
    """Check a PrivateEvolutionSampler."""
    check_voting_sampler(estimator)
    for points in estimator.candidates_:
        demand(
            estimator.interface_.domain.contains(points).all(), "Candidates are not in a domain."
        )


def check_moments(estimator):
    """Check a sampler of moments of classes."""
    n_classes = check_labels(estimator)
    _check_names(estimator)
    d = estimator.means_.shape[1]
    demand(estimator.means_.shape == (n_classes, d), "There are other classes than means.")
    demand(estimator.covariances_.shape == (n_classes, d, d), "Covariances are of other means.")


def check_moment_sampler(estimator):
    """Check a MomentSampler."""
    check_moments(estimator)
    width = _check_domain(estimator)
    demand(estimator.means_.shape[1] == width, "The means are of another domain.")


def check_image_sampler(estimator):
    """Check a MomentImageSampler."""
    check_moments(estimator)
    model, n_classes = estimator._model, len(estimator.means_)
    demand(model.basis.ndim == 2 and model.basis.dtype == torch.float32, "There are no cosines.")
    d, n_pixels = model.basis.shape
    shape = model.shape
    demand(len(shape) in (2, 3) and min(shape) > 0, "Images have no shape.")
    demand(math.prod(shape) == n_pixels == estimator.n_features_in_, "Images have other pixels.")
    demand(estimator.latent_means_.shape == (n_classes, d), "Images have other cosines.")
    demand(estimator.latent_factors_.shape == (n_classes, d, d), "Images have other cosines.")


def _output_shape(network, n_inputs, dtype):
    """Return the shape that a network makes of two rows, without memory for what is between."""
    kinds = {weight.dtype for weight in network.parameters()}
    demand(kinds == {dtype}, "A network has weights of another dtype.")
    weights = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    statistics = {weights[name].dtype for name in weights if "running_" in name}
    demand(statistics <= {dtype}, "A network has statistics of another dtype.")
    weights = {name: weight.to("meta") for name, weight in weights.items()}
    rows = torch.empty(2, n_inputs, dtype=dtype, device="meta")
    with torch.no_grad():
        return tuple(functional_call(network, weights, (rows,)).shape)


def _check_network(network, n_inputs, n_outputs, dtype=torch.float32):
    """Check that a network takes and returns rows of some widths."""
    is_such = _output_shape(network, n_inputs, dtype) == (2, n_outputs)
    demand(is_such, "A network returns rows of another width.")


def check_sliced_generator(estimator):
    """Check a DPSlicedWassersteinGenerator."""
    width = _check_domain(estimator)
    _check_network(estimator.module_, estimator.latent_dim, width, torch.float64)


def check_smoothed_generator(estimator):
    """Check a SmoothedSlicedWassersteinGenerator."""
    _check_domain(estimator)
    n_classes = check_labels(estimator)
    n_classes = n_classes if hasattr(estimator, "classes_") else 0
    n_inputs = estimator._n_normals + n_classes
    _check_network(estimator.generator_, n_inputs, estimator._output_domain.n_features)


def check_predictor(estimator):
    """Check an estimator with a ``module_`` of records."""
    _check_names(estimator)
    if hasattr(estimator, "y_domain_"):
        n_outputs = estimator.y_domain_.n_features
    elif hasattr(estimator, "classes_"):
        n_outputs = len(estimator.classes_)
    else:
        n_outputs = estimator.n_features_in_
    # Two classes may have one logit.
    shapes = [(2, n_outputs), (2, 1)][: 2 if n_outputs == 2 else 1]
    found = _output_shape(estimator.module_, estimator.n_features_in_, torch.float64)
    demand(found in shapes, "A network returns rows of another width.")


def check_gan(estimator):
    """Check an EntropicDeconvGAN, and join its model."""
    model = replace(estimator._model, module=estimator.generator_, mechanism=estimator.mechanism_)
    domain = estimator.mechanism_.domain_ if model.output_domain is None else model.output_domain
    _check_network(model.module, model.latent_dim, domain.n_features)
    estimator._model = model


def check_em(estimator):
    """Check a DeconvolutionEM."""
    width = estimator.mechanism_.domain_.n_features
    demand(estimator.points_.shape[1] == width, "Points are of another domain.")
    fits = len(estimator.points_) == len(estimator.weights_) and is_law(estimator.weights_)
    demand(fits, "Points have other weights.")
