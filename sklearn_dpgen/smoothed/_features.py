"""Features of records in a ball, a classifier on them, and a map that moves them."""

import math

import numpy as np
import torch
from torch import nn

from sklearn_dpgen.nn import ACTIVATIONS
from sklearn_dpgen.smoothed._releases import ClassRecords
from sklearn_dpgen.utils._torch import as_array

__all__ = ["RADIUS", "AdaptedNetwork", "clip_rows", "feature_records"]

# Of the ball of the features: one row in the place of another moves by a diameter, 1, at most.
RADIUS = 0.5

# Location shows through noise before shape does: of the map, the linear part learns slower.
_LINEAR_GAIN = 0.2


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


class AdaptedNetwork(nn.Module):
    """Features in a ball, a classifier on them, and a map of source features to target features.

    Parameters
    ----------
    n_inputs : int
    hidden_layer_sizes : tuple of int
    feature_dim : int
    n_classes : int
    activation : str

    Notes
    -----
    ``forward`` is for rows of the target: clipped features, then logits. In adaptation the
    classifier sees source features after ``move``, an affine map that starts as the identity.
    """

    def __init__(self, n_inputs, hidden_layer_sizes, feature_dim, n_classes, activation):
        super().__init__()
        widths = [n_inputs, *hidden_layer_sizes]
        layers = []
        for n_in, n_out in zip(widths[:-1], widths[1:], strict=True):
            layers += [nn.Linear(n_in, n_out), ACTIVATIONS[activation]()]
        self.body = nn.Sequential(*layers, nn.Linear(widths[-1], feature_dim))
        self.transport = nn.Linear(feature_dim, feature_dim)
        nn.init.zeros_(self.transport.weight)
        nn.init.zeros_(self.transport.bias)
        self.classifier = nn.Linear(feature_dim, n_classes)
        # Features of the usual size, 1 a coordinate, for a usual learning rate.
        self.scale = math.sqrt(feature_dim) / RADIUS

    def features(self, X):
        """Return clipped features of shape (n, feature_dim)."""
        return clip_rows(self.body(X))

    def move(self, Z):
        """Return features of the source where those of the target should be."""
        return Z + self.transport(_LINEAR_GAIN * self.scale * Z) / self.scale

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
        Trained without these rows.
    X : Tensor of shape (n, n_inputs)

    Returns
    -------
    ClassRecords
        One class. Each row is a function of that row alone.
    """
    features = as_array(clip_rows(module.features(X)))
    return ClassRecords(features, np.zeros(len(features), dtype=np.int64), 1, True)
