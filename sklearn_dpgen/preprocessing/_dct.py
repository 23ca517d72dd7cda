"""Discrete cosine transform of images, and public selection of coefficients."""

import math
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from sklearn_dpgen.domains._base import array_namespace
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.persistence._declarations import demand, saved
from sklearn_dpgen.utils._validation import (
    check_array,
    check_is_fitted,
    fit_context,
    validate_data,
)

if TYPE_CHECKING:
    import torch

__all__ = ["DCTTransformer", "dct_mask"]

# Limit for a saved transform, whose matrices are quadratic in the sides.
_MOST_PIXELS = 1 << 20


def _dct_matrix(n):
    """Return the orthogonal matrix of the DCT-II: coefficients are ``matrix @ signal``."""
    k, j = np.arange(n)[:, None], np.arange(n)[None, :]
    matrix = np.sqrt(2 / n) * np.cos(np.pi * (2 * j + 1) * k / (2 * n))
    matrix[0] /= np.sqrt(2)
    return matrix


def _along_axes(X, matrices, xp):
    """Multiply each axis of ``X`` except the first by its matrix."""
    for axis, matrix in enumerate(matrices, start=1):
        if xp is np:
            matrix = matrix.astype(X.dtype)
        else:
            matrix = xp.tensor(matrix, dtype=X.dtype, device=X.device)
        X = xp.moveaxis(xp.moveaxis(X, axis, -1) @ matrix.T, -1, axis)
    return X


def dct_mask(image: ArrayLike, quantile: float = 0.8) -> np.ndarray:
    """Select the large coefficients of a public image.

    Parameters
    ----------
    image : array-like
        A public image, of any number of dimensions. It must not be one of the private images, which
        the mask would reveal.
    quantile : float, default=0.8
        Select the coefficients whose magnitude is above this quantile.

    Returns
    -------
    boolean ndarray with the shape of ``image``
    """
    image = np.asarray(image, dtype=np.float64)
    if not 0 <= quantile < 1:
        raise PublicValueError(f"quantile must be in [0, 1), got {quantile!r}.")
    matrices = [_dct_matrix(n) for n in image.shape]
    size = abs(_along_axes(image[None], matrices, np)[0])
    return size > np.quantile(size, quantile)


def _checked_rows(X, width, xp):
    if X.ndim != 2 or X.shape[1] != width:
        raise PublicValueError(f"X must be of shape (n, {width}), got {tuple(X.shape)}.")
    return X if xp is np or X.is_floating_point() else X.double()


@saved
class DCTTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Orthonormal discrete cosine transform (DCT-II) of images, one flattened image per row.

    An orthogonal change of basis, followed by a selection of coordinates. Distances in l2 are
    preserved without a mask and do not grow with one, so the l2 diameter of a domain bounds that of
    its image. Images concentrate on few coefficients, which then fit in a smaller l1 ball.

    Parameters
    ----------
    shape : tuple of int, optional
        The shape of an image; by default a row is one signal.
    mask : boolean array-like of shape ``shape``, optional
        The coefficients to keep, chosen from public information (see `dct_mask`); by default all.

    Attributes
    ----------
    n_features_in_ : int
        The number of pixels.
    mask_ : boolean ndarray of shape (n_pixels,)

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpgen.preprocessing import DCTTransformer
    >>> image = np.ones((1, 4))
    >>> DCTTransformer(shape=(2, 2)).fit_transform(image).round(12)
    array([[2., 0., 0., 0.]])
    """

    _parameter_constraints = {
        "shape": [tuple, None],
        "mask": ["array-like", None],
    }

    def __init__(
        self, shape: tuple[int, ...] | None = None, *, mask: ArrayLike | None = None
    ) -> None:
        self.shape = shape
        self.mask = mask

    _saved_state = {"shape": tuple[int, ...] | None, "mask": object, "n_features_in_": int}

    @classmethod
    def _from_saved(cls, fields):
        width = fields.pop("n_features_in_")
        sides = fields["shape"] or (width,)
        demand(0 < width <= _MOST_PIXELS, "An image has too many pixels.")
        demand(sum(side**2 for side in sides) <= 2 * _MOST_PIXELS, "An image has too long a side.")
        return cls(**fields).fit(np.zeros((1, width)))

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Check the number of pixels; values are not read.

        Parameters
        ----------
        X : array-like of shape (n, n_pixels)
        y : ignored

        Returns
        -------
        self
        """
        X = validate_data(self, X, dtype=[np.float64, np.float32])
        shape = (X.shape[1],) if self.shape is None else tuple(self.shape)
        if math.prod(shape) != X.shape[1]:
            raise PublicValueError(
                f"shape {shape} has {math.prod(shape)} pixels, X has {X.shape[1]}."
            )
        mask = np.ones(shape, dtype=bool) if self.mask is None else np.asarray(self.mask)
        if mask.dtype != bool or mask.shape != shape or not mask.any():
            raise PublicValueError("mask must be boolean, of the given shape, with a True.")
        self.mask_ = mask.ravel()
        self._matrices = [_dct_matrix(n) for n in shape]
        return self

    def transform(self, X: "ArrayLike | torch.Tensor") -> "np.ndarray | torch.Tensor":
        """Return the kept coefficients.

        Parameters
        ----------
        X : array-like or tensor of shape (n, n_pixels)
            A tensor is transformed differentiably.

        Returns
        -------
        ndarray or tensor of shape (n, n_kept)
            Same kind and floating dtype as ``X``.
        """
        check_is_fitted(self)
        xp = array_namespace(X)
        if xp is np:
            X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        X = _checked_rows(X, self.n_features_in_, xp)
        return self._apply(X, self._matrices, xp)[:, self.mask_]

    def inverse_transform(self, X: "ArrayLike | torch.Tensor") -> "np.ndarray | torch.Tensor":
        """Return the images of given coefficients, with zeros for those that are not kept.

        Parameters
        ----------
        X : array-like or tensor of shape (n, n_kept)
            A tensor is transformed differentiably.

        Returns
        -------
        ndarray or tensor of shape (n, n_pixels)
        """
        check_is_fitted(self)
        xp = array_namespace(X)
        if xp is np:
            X = check_array(X, dtype=[np.float64, np.float32])
        X = _checked_rows(X, self._n_features_out, xp)
        # Every coefficient that is not kept reads the appended column of zeros.
        position = np.where(self.mask_, np.cumsum(self.mask_) - 1, self._n_features_out)
        full = xp.concatenate([X, xp.zeros_like(X[:, :1])], axis=1)[:, position]
        transposed = [matrix.T for matrix in self._matrices]
        return self._apply(full, transposed, xp)

    def _apply(self, X, matrices, xp):
        images = X.reshape(-1, *map(len, matrices))
        return _along_axes(images, matrices, xp).reshape(X.shape)

    @property
    def _n_features_out(self):
        return int(self.mask_.sum())
