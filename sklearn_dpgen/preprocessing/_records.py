"""Encoding of the records of an estimator with a schema or a domain, and decoding."""

import numpy as np
import pandas as pd

from sklearn_dpgen.domains import Domain, OneHot, Product
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.persistence._declarations import Maybe, demand
from sklearn_dpgen.preprocessing._tabular import TabularEncoder
from sklearn_dpgen.utils._validation import check_count, validate_data

__all__ = [
    "ENCODED_STATE",
    "check_saved_encoder",
    "check_saved_encoding",
    "declared_domain",
    "decode_records",
    "draw_categories",
    "encode_records",
    "read_records",
    "resolve_domain",
]


def draw_categories(domain, X, rng):
    """Draw a vertex of each one-hot block, with the block's weights as probabilities.

    Parameters
    ----------
    domain : Domain
        The domain of the rows.
    X : ndarray of shape (n_samples, n_features)
        Points of the domain, with soft blocks.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of shape (n_samples, n_features)
        The same points with one-hot blocks; other features are unchanged.
    """
    if isinstance(domain, OneHot):
        edges = np.cumsum(X, axis=1)
        draws = rng.uniform(size=(len(X), 1)) * edges[:, -1:]
        drawn = np.zeros(X.shape)
        drawn[np.arange(len(X)), (draws > edges[:, :-1]).sum(axis=1)] = 1
        return drawn
    if isinstance(domain, Product):
        stops = np.cumsum([factor.n_features for factor in domain.domains])[:-1]
        blocks = np.split(X, stops, axis=1)
        return np.hstack(
            [
                draw_categories(f, block, rng)
                for f, block in zip(domain.domains, blocks, strict=True)
            ]
        )
    return X


# Saved attributes of an estimator with a schema or a domain.
ENCODED_STATE: dict = {"domain_": Maybe(Domain), "encoder_": Maybe(TabularEncoder)}


def check_saved_encoding(estimator):
    """Return the number of encoded features, if names, encoder and domain of a loaded fit agree.

    Raises
    ------
    InvalidFileError
        They do not agree.
    """
    domain = getattr(estimator, "domain_", None)
    if hasattr(estimator, "encoder_"):
        demand(domain == estimator.encoder_.domain_, "The domain is not that of the encoder.")
        check_saved_encoder(estimator)
    elif domain is not None:
        demand(domain.n_features == estimator.n_features_in_, "The domain has another width.")
    return estimator.n_features_in_ if domain is None else domain.n_features


def check_saved_encoder(estimator):
    """Check that the columns of a loaded fit are those of its encoder."""
    encoder = estimator.encoder_
    demand(
        estimator.n_features_in_ == encoder.n_features_in_
        and list(estimator.feature_names_in_) == list(encoder.feature_names_in_),
        "The columns are not those of the encoder.",
    )


def encode_records(estimator, X):
    """Return the records as points of the public domain that an estimator declares.

    Parameters
    ----------
    estimator : estimator
        With parameters ``schema`` and ``domain``, one of them None. Sets ``domain_``, ``encoder_``
        with a schema, and the number and names of the features.
    X : array-like or data frame of shape (n_samples, n_features)

    Returns
    -------
    ndarray of float64 of shape (n_samples, domain_.n_features)
        Records outside of the domain are projected on it.

    Raises
    ------
    PublicValueError
        Both or none of schema and domain are given, or numbers of features disagree.
    """
    vars(estimator).pop("encoder_", None)
    estimator._learn_kind(X)
    _check_declaration(estimator)
    if estimator.schema is not None:
        encoder = TabularEncoder(estimator.schema).fit(X)
        estimator.encoder_ = encoder
        estimator.n_features_in_ = encoder.n_features_in_
        estimator.feature_names_in_ = encoder.feature_names_in_
        estimator.domain_ = encoder.domain_
        return encoder.domain_.project(encoder.transform(X))
    X = validate_data(estimator, X, dtype=np.float64)
    estimator.domain_ = resolve_domain(estimator.domain, X.shape[1])
    return estimator.domain_.project(X)


def declared_domain(estimator, n_features=None):
    """Return the domain of :func:`encode_records`, without records.

    Parameters
    ----------
    estimator : estimator
        With parameters ``schema`` and ``domain``, one of them None.
    n_features : int or None, default=None
        Number of columns; required if ``domain`` is a function of it.

    Returns
    -------
    Domain

    Raises
    ------
    PublicValueError
        Both or none of schema and domain are given, or numbers of features disagree.
    """
    _check_declaration(estimator)
    if estimator.schema is not None:
        return TabularEncoder(estimator.schema).fit().domain_
    domain = estimator.domain
    if n_features is None:
        if not isinstance(domain, Domain):
            raise PublicValueError("n_features is needed: domain is a function of it.")
        n_features = domain.n_features
    return resolve_domain(domain, check_count(n_features, "n_features"))


def _check_declaration(estimator):
    if (estimator.schema is None) == (estimator.domain is None):
        raise PublicValueError("Declare either schema or domain: the public set of the records.")


def read_records(estimator, X):
    """Return further records of a fitted estimator, in the space of its domain.

    Parameters
    ----------
    estimator : estimator
        Fitted, after :func:`encode_records`.
    X : array-like or data frame of shape (n_samples, n_features)

    Returns
    -------
    ndarray of float64 of shape (n_samples, domain_.n_features)
        Not projected on the domain; values are clipped to the bounds of a schema.

    Raises
    ------
    PublicValueError
        The columns are not those of the fit.
    """
    if hasattr(estimator, "encoder_"):
        return estimator.encoder_.transform(X)
    return validate_data(estimator, X, dtype=np.float64, reset=False)


def resolve_domain(domain, n_features):
    """Return the domain of records, given directly or as a function of the number of features.

    Raises
    ------
    PublicValueError
        The domain has another number of features.
    PublicTypeError
        The function does not return a domain.
    """
    if not isinstance(domain, Domain):
        domain = domain(n_features=n_features)
        if not isinstance(domain, Domain):
            raise PublicTypeError(f"domain must return a Domain, got {type(domain).__name__}.")
    if domain.n_features != n_features:
        raise PublicValueError(
            f"domain has {domain.n_features} features, X has {n_features} features."
        )
    return domain


def decode_records(estimator, X, rng, *, domain=None):
    """Return generated points as records.

    Parameters
    ----------
    estimator : estimator
        Fitted, after :func:`encode_records`.
    X : ndarray of shape (n_samples, n_features)
        Points of the domain.
    rng : numpy.random.Generator or None
        Draws categories from soft blocks; None takes the most probable ones.
    domain : Domain or None, default=None
        Domain of the points, if the estimator has no ``domain_``.

    Returns
    -------
    ndarray or data frame
        A data frame with a schema. A float64 data frame, of the library of the fit's records, if
        these had names of columns.
    """
    domain = getattr(estimator, "domain_", None) if domain is None else domain
    if rng is not None and domain is not None:
        X = draw_categories(domain, X, rng)
    if hasattr(estimator, "encoder_"):
        X = estimator.encoder_.inverse_transform(X, rng=rng)
    elif (names := getattr(estimator, "feature_names_in_", None)) is not None:
        X = pd.DataFrame(X, columns=names)
    return estimator._given_back(X)
