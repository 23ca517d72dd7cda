"""Private records for votes: in memory, or as a dask array that is never gathered."""

import numpy as np

from sklearn_dpgen.engines import engine_columns, is_engine_table
from sklearn_dpgen.preprocessing._reader import NO_RECORDS
from sklearn_dpgen.preprocessing._records import encode_records, resolve_domain
from sklearn_dpgen.utils._validation import validate_data

__all__ = ["encode_votes"]


def encode_votes(estimator, X):
    """Return records ready to vote.

    Parameters
    ----------
    estimator : estimator
        With parameters ``schema`` and ``domain``. Attributes are set as by :func:`encode_records`;
        where both are None records stay as they are, and there is no ``domain_``.
    X : array-like, data frame or dask array of shape (n_samples, n_features)
        A dask array not with a schema.

    Returns
    -------
    ndarray of float64, or dask array, of shape (n_samples, width)
    """
    for name in ("domain_", "encoder_"):
        vars(estimator).pop(name, None)
    if is_engine_table(X):
        return _encode_dask(estimator, X)
    if estimator.schema is None and estimator.domain is None:
        return validate_data(estimator, X, dtype=np.float64)
    return encode_records(estimator, X)


def _encode_dask(estimator, X):
    if estimator.schema is not None:
        raise TypeError("A schema takes a data frame; a dask array needs a domain.")
    if engine_columns(X) is not None or not hasattr(X, "map_blocks"):
        raise TypeError(
            f"X must be an array if it is of dask, got {type(X).__name__}: see to_dask_array. Of "
            "other engines nearest_neighbor_votes alone takes tables."
        )
    if X.ndim != 2 or np.isnan(X.shape).any():
        raise ValueError("A dask array must have two dimensions of known sizes.")
    if len(X) == 0:
        raise ValueError(NO_RECORDS)
    X = X.rechunk({1: -1}).astype(np.float64)
    estimator.n_features_in_ = X.shape[1]
    vars(estimator).pop("feature_names_in_", None)
    if estimator.domain is None:
        return X
    estimator.domain_ = resolve_domain(estimator.domain, X.shape[1])
    return X.map_blocks(estimator.domain_.project, dtype=np.float64)
