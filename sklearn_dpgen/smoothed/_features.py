"""Network of an adapter: clipped features, a classifier, and a map from source to target."""

import math

import numpy as np
import torch
from torch import nn

from sklearn_dpgen.nn._generators import ACTIVATIONS
from sklearn_dpgen.persistence._declarations import demand
from sklearn_dpgen.persistence._networks import dense_arguments, saved_network
from sklearn_dpgen.smoothed._releases import ClassRecords
from sklearn_dpgen.utils._torch import as_array, as_tensor

__all__ = ["RADIUS", "AdaptedNetwork", "AffineMove", "clip_rows", "feature_records", "normal_map"]

# Radius of the ball of the features: replacing a row changes it by the diameter, 1, at most.
RADIUS = 0.5

# Noise hides the shape more than the location, so the linear part of a map of features learns
# more slowly than its constant.
_LINEAR_GAIN = 0.2
# Share of the mean variance of the source that is added to both covariances: there is no map in
# directions without variance.
_RIDGE = 0.02


def clip_rows(Z, radius=RADIUS):
    """Move every row into the ball around 0, each as a function of that row alone.

    Parameters
    ----------
    Z : Tensor of shape (n, d)
        NaN counts as 0, and infinite values as the largest finite numbers.
    radius : float

    Returns
    -------
    Tensor of shape (n, d)
        Rows with a norm of at most ``radius``, up to rounding.
    """
    Z = torch.nan_to_num(Z)
    # Scaling first keeps the squares of very long rows from overflowing.
    largest = Z.detach().abs().amax(dim=1, keepdim=True).clamp_min(1.0)
    Z = Z / largest
    norms = torch.linalg.vector_norm(Z, dim=1, keepdim=True).clamp_min(1e-30)
    return Z * torch.minimum(largest, radius / norms)


@saved_network
class AffineMove(nn.Module):
    """An affine map that starts as the identity.

    Parameters
    ----------
    center : Tensor of shape (d,)
        Public center of the linear part.
    scale : float
        Inverse of the typical size of a coordinate about the center, so that usual learning rates
        work.
    gain : float, default=1.0
        Learning speed of the linear part relative to the constant.
    """

    _saved_state = {"scale": float, "gain": float}

    def __init__(self, center, scale, gain=1.0):
        super().__init__()
        self.linear = nn.Linear(len(center), len(center))
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.register_buffer("center", center)
        self.scale, self.gain = scale, gain

    @classmethod
    def _from_saved(cls, fields, weights):
        demand("center" in weights and weights["center"].ndim == 1, "A map has no center.")
        return cls(weights["center"], **fields)

    @classmethod
    def of_records(cls, X):
        """Return the map for records like those of a public array (n, n_inputs)."""
        size = X.std(axis=0).max()
        return cls(torch.from_numpy(X.mean(axis=0)), float(1 / size) if size > 0 else 1.0)

    def forward(self, Z):
        """Return points of the source, moved to the target."""
        return Z + self.linear(self.gain * self.scale * (Z - self.center)) / self.scale

    @torch.no_grad()
    def set_to(self, matrix, mean):
        """Become the map with a given linear part that takes the center to a mean."""
        weight = self.linear.weight
        matrix, mean = (
            as_tensor(a, device=weight.device, dtype=weight.dtype) for a in (matrix, mean)
        )
        weight.copy_(
            (matrix - torch.eye(len(mean), dtype=mean.dtype, device=mean.device)) / self.gain
        )
        self.linear.bias.copy_(self.scale * (mean - self.center))


@saved_network
class AdaptedNetwork(nn.Module):
    """Features in a ball, a classifier on them, and a map from the source to the target.

    Parameters
    ----------
    n_inputs : int
    hidden_layer_sizes : tuple of int
    feature_dim : int
    n_classes : int
    activation : str
    transport : AffineMove or None, default=None
        Map of records; None for a map of features.

    Notes
    -----
    ``forward`` takes rows of the target, and computes clipped features, then logits. In adaptation,
    rows of the source are moved first, as records or as features.
    """

    _saved_state = {
        "n_inputs": int,
        "hidden_layer_sizes": tuple[int, ...],
        "feature_dim": int,
        "n_classes": int,
        "activation": str,
        "transport": AffineMove,
    }

    def __init__(
        self, n_inputs, hidden_layer_sizes, feature_dim, n_classes, activation, transport=None
    ):
        super().__init__()
        widths = [n_inputs, *hidden_layer_sizes]
        layers = []
        for n_in, n_out in zip(widths[:-1], widths[1:], strict=True):
            layers += [nn.Linear(n_in, n_out), ACTIVATIONS[activation]()]
        self.body = nn.Sequential(*layers, nn.Linear(widths[-1], feature_dim))
        # Scaled features have coordinates of about 1, so that usual learning rates work.
        self.scale = math.sqrt(feature_dim) / RADIUS
        if transport is None:
            transport = AffineMove(torch.zeros(feature_dim), self.scale, _LINEAR_GAIN)
        self.transport = transport
        self.classifier = nn.Linear(feature_dim, n_classes)

    def _to_saved(self):
        return {
            "n_inputs": self.body[0].in_features,
            "feature_dim": self.classifier.in_features,
            "n_classes": self.classifier.out_features,
            "transport": self.transport,
            **dense_arguments(self.body),
        }

    def features(self, X):
        """Return clipped features of shape (n, feature_dim)."""
        return clip_rows(self.body(X))

    def fixed_features(self, X):
        """Return clipped features whose gradient reaches X, but not the network."""
        fixed = {name: value.detach() for name, value in self.body.named_parameters()}
        return clip_rows(torch.func.functional_call(self.body, fixed, (X,)))

    def move(self, Z):
        """Return records or features of the source, moved to the target."""
        return self.transport(Z)

    def logits(self, Z):
        """Return the logits of features."""
        return self.classifier(self.scale * Z)

    def forward(self, X):
        """Return the logits of rows of the target."""
        return self.logits(self.features(X))


@torch.no_grad()
def feature_records(module, X):
    """Return clipped features of private rows, as the mechanism releases them.

    Parameters
    ----------
    module : AdaptedNetwork
        Trained without these rows, except through earlier releases of them.
    X : Tensor of shape (n, n_inputs)

    Returns
    -------
    ClassRecords
        Records of one class. Each is a function of its own row alone.
    """
    features = as_array(clip_rows(module.features(X)))
    return ClassRecords(features, np.zeros(len(features), dtype=np.int64), 1, True)


def normal_map(source, target):
    """Return the linear part of the optimal transport map between normal distributions.

    Parameters
    ----------
    source, target : ndarray of shape (d, d)
        Covariances, positive semidefinite.

    Returns
    -------
    ndarray of shape (d, d)
        The symmetric T with T source T = target, after a multiple of the identity is added to
        both.

    References
    ----------
    G. Peyré, M. Cuturi, "Computational optimal transport", 2019, Remark 2.31.
    """
    ridge = _RIDGE * max(np.trace(source) / len(source), np.finfo(np.float64).tiny)
    source, target = (C + ridge * np.eye(len(C)) for C in (source, target))
    values, vectors = np.linalg.eigh(source)
    root, inverse = ((vectors * values**power) @ vectors.T for power in (0.5, -0.5))
    values, vectors = np.linalg.eigh(root @ target @ root)
    return inverse @ (vectors * np.sqrt(values.clip(0))) @ vectors.T @ inverse
