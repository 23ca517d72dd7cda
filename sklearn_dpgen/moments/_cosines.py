"""Low-frequency cosine coefficients of single images."""

import math

import numpy as np

from sklearn_dpgen.preprocessing import DCTTransformer

__all__ = ["coefficients", "low_cosines"]

# Images per block of the transform.
_CHUNK = 8192


def low_cosines(shape, n_frequencies):
    """Return orthonormal rows: the lowest cosines along height and width, for each channel."""
    mask = np.zeros(shape, dtype=bool)
    mask[:n_frequencies, :n_frequencies] = True
    dct = DCTTransformer(shape, mask=mask).fit(np.zeros((1, math.prod(shape))))
    return dct.inverse_transform(np.eye(int(mask.sum())))


def coefficients(X, basis, low, high):
    """Return coefficients of images, with pixels clipped to [low, high] and scaled to [0, 1]."""
    parts = (X[start : start + _CHUNK] for start in range(0, len(X), _CHUNK))
    return np.vstack([((part.clip(low, high) - low) / (high - low)) @ basis.T for part in parts])
