"""Private records for votes: in memory, or as a dask array that is never gathered."""

import numpy as np

from sklearn_dpgen.domains import Domain
from sklearn_dpgen.preprocessing._records import encode_records
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
    if _is_dask(X):
        return _encode_dask(estimator, X)
    if estimator.schema is None and estimator.domain is None:
        return validate_data(estimator, X, dtype=np.float64)
    return encode_records(estimator, X)


def _is_dask(X):
    return type(X).__module__.startswith("dask.array")


def _encode_dask(estimator, X):
    if estimator.schema is not None:
        raise TypeError("A schema takes a data frame; a dask array needs a domain.")
    if X.ndim != 2 or np.isnan(X.shape).any():
        raise ValueError("A dask array must have two dimensions of known sizes.")
    if len(X) == 0:
        raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required.")
    X = X.rechunk({1: -1}).astype(np.float64)
    estimator.n_features_in_ = X.shape[1]
    vars(estimator).pop("feature_names_in_", None)
    if estimator.domain is None:
        return X
    domain = estimator.domain
    if not isinstance(domain, Domain):
        domain = domain(n_features=X.shape[1])
    if domain.n_features != X.shape[1]:
        raise ValueError(f"domain has {domain.n_features} features, X has {X.shape[1]} features.")
    estimator.domain_ = domain
    return X.map_blocks(domain.project, dtype=np.float64)
