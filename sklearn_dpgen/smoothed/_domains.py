"""Two domains: their rows in one table, features in a ball, and what moves one to the other."""

import math
import warnings

import numpy as np
import torch
from torch import nn

from sklearn_dpgen.nn import ACTIVATIONS
from sklearn_dpgen.smoothed._releases import ClassRecords
from sklearn_dpgen.utils._torch import as_array
from sklearn_dpgen.utils._validation import check_array

__all__ = [
    "RADIUS",
    "AdaptedNetwork",
    "clip_rows",
    "feature_records",
    "random_rows",
    "source_mask",
]

# Of the ball of the features: one row in the place of another moves by a diameter, 1, at most.
RADIUS = 0.5

# Location shows through noise before shape does: of the map, the linear part learns slower.
_LINEAR_GAIN = 0.2


def source_mask(y, sample_domain):
    """Tell source rows from target rows, by the convention of skada.

    Parameters
    ----------
    y : ndarray of shape (n_samples,)
        Labels. Read only where ``sample_domain`` is None.
    sample_domain : array-like of shape (n_samples,) or None
        Integers: negative for rows of the target. None takes masked labels for the target: -1,
        or NaN.

    Returns
    -------
    ndarray of bool of shape (n_samples,)
        True for rows of the source. With None it may be so everywhere, after a warning.

    Raises
    ------
    ValueError
        Another length, not integers, or one of the domains is absent.
    """
    if sample_domain is None:
        numeric = y.dtype.kind in "iuf"
        masked = (y == -1) | np.isnan(y) if numeric else np.zeros(len(y), dtype=bool)
        if not masked.any():
            warnings.warn(
                "sample_domain is absent and no label is masked: fitting on the source alone. In "
                "a pipeline or a search, enable metadata routing and call "
                "set_fit_request(sample_domain=True).",
                UserWarning,
                stacklevel=4,
            )
            return ~masked
        is_source = ~masked
    else:
        domains = check_array(
            sample_domain, ensure_2d=False, dtype=None, input_name="sample_domain"
        )
        if domains.shape != y.shape or domains.dtype.kind not in "iu":
            raise ValueError(
                f"sample_domain must hold {len(y)} integers, one a sample: negative for the "
                "target, others for the source."
            )
        is_source = domains >= 0
    for present, name in ((is_source.any(), "source"), (not is_source.all(), "target")):
        if not present:
            raise ValueError(f"sample_domain must mark samples of both domains: no {name} sample.")
    return is_source


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


def random_rows(X, count, generator):
    """Draw rows with replacement, uniformly."""
    return torch.randint(len(X), (count,), generator=generator, device=X.device)
