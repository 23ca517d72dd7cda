"""Features of records in a ball, a classifier on them, and a map from source to target."""

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

# Of the ball of the features: one row in the place of another moves by a diameter, 1, at most.
RADIUS = 0.5

# Location shows through noise before shape does: of a map of features, the linear part learns
# slower.
_LINEAR_GAIN = 0.2
# Of the mean variance of the source, added to both covariances: directions without any have no map.
_RIDGE = 0.02


def clip_rows(Z, radius=RADIUS):
    """Move every row into the ball around 0: a function of that row alone.

    Parameters
    ----------
    Z : Tensor of shape (n, d)
        What is not finite counts as 0, or as the largest number.
    radius : float

    Returns
    -------
    Tensor of shape (n, d)
        Rows of norm ``radius`` at most, up to rounding.
    """
    Z = torch.nan_to_num(Z)
    # Of rows so long that their squares overflow too.
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
        Public. The linear part acts about it.
    scale : float
        One over the usual size of a coordinate about it, for a usual learning rate.
    gain : float, default=1.0
        Of the linear part beside the constant.
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
        """Return points of the source where those of the target should be."""
        return Z + self.linear(self.gain * self.scale * (Z - self.center)) / self.scale

    @torch.no_grad()
    def set_to(self, matrix, mean):
        """Become the map that takes the center to a mean, with a linear part."""
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
        Of records; None for one of features.

    Notes
    -----
    ``forward`` is for rows of the target: clipped features, then logits. In adaptation rows of the
    source are moved first, as records or as features.
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
        # Features of the usual size, 1 a coordinate, for a usual learning rate.
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
        """Return the same, with the gradient in X alone."""
        fixed = {name: value.detach() for name, value in self.body.named_parameters()}
        return clip_rows(torch.func.functional_call(self.body, fixed, (X,)))

    def move(self, Z):
        """Return source points, records or features, where those of the target should be."""
        return self.transport(Z)

    def logits(self, Z):
        """Return the logits of features."""
        return self.classifier(self.scale * Z)

    def forward(self, X):
        """Return the logits of rows of the target."""
        return self.logits(self.features(X))


@torch.no_grad()
def feature_records(module, X):
    """Return features of private rows as they are released, clipped to what the price is for.

    Parameters
    ----------
    module : AdaptedNetwork
        Trained without these rows, but for what was released of them before.
    X : Tensor of shape (n, n_inputs)

    Returns
    -------
    ClassRecords
        One class. Each row is a function of that row alone.
    """
    features = as_array(clip_rows(module.features(X)))
    return ClassRecords(features, np.zeros(len(features), dtype=np.int64), 1, True)


def normal_map(source, target):
    """Return the linear part of the optimal map between normal laws.

    Parameters
    ----------
    source, target : ndarray of shape (d, d)
        Covariances, positive semidefinite.

    Returns
    -------
    ndarray of shape (d, d)
        Symmetric, T with T source T = target, both with a little of the identity added.

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
