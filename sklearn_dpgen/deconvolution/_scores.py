"""Scores of generators on privatized records: the likelihood, and the energy score."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist, pdist
from sklearn.pipeline import Pipeline
from sklearn.utils import check_scalar

from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.mechanisms import Mechanism
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._validation import Integral, check_is_fitted

__all__ = ["energy_score", "likelihood_score"]

_CHUNK = 1024


def likelihood_score(estimator: Any, X: ArrayLike | pd.DataFrame, y: object = None) -> float:
    """Score a generator by the mean log-likelihood of privatized records, in nats.

    Larger is better. It is sharper than ``score`` if all candidates learn from one release.

    Parameters
    ----------
    estimator : EntropicDeconvGAN, DeconvolutionEM, LocalTableSampler or Pipeline
        Fitted.
    X : array-like or data frame
        Privatized records that it was not fitted on.
    y : Ignored
        Present so that the function can be the ``scoring`` of a search.

    Returns
    -------
    float

    Warns
    -----
    UserWarning
        Each fit privatizes raw records anew, in a pipeline or with ``privatize=True``. The
        likelihoods of candidates then refer to different data and are not comparable.

    See Also
    --------
    energy_score : Suits many columns with little noise.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn_dpgen.datasets import make_half_circle
    >>> from sklearn_dpgen.deconvolution import DeconvolutionEM, likelihood_score
    >>> from sklearn_dpgen.domains import Ball
    >>> from sklearn_dpgen.mechanisms import LaplaceMechanism
    >>> mechanism = LaplaceMechanism(epsilon=5.0, domain=Ball(1.0, n_features=2))
    >>> Y = mechanism.fit_transform(make_half_circle(1000, random_state=0))
    >>> search = GridSearchCV(
    ...     DeconvolutionEM(random_state=0), {"n_points": [3, 300]}, scoring=likelihood_score
    ... ).fit(Y)
    >>> search.best_params_
    {'n_points': 300}
    """
    steps = (
        [step for _, step in estimator.steps] if isinstance(estimator, Pipeline) else [estimator]
    )
    if getattr(steps[-1], "_privatizes", False) or any(isinstance(s, Mechanism) for s in steps):
        warnings.warn(
            "likelihood_score must compare candidates on one release, but each candidate "
            "privatizes its records anew: a search over epsilon or the mechanism would rank "
            "likelihoods of different data. Use the default score, or privatize once and search "
            "on the release, at no further cost.",
            stacklevel=2,
        )
    return float(np.mean(estimator.score_samples(X)))


def energy_score(
    estimator: Any,
    X: ArrayLike | pd.DataFrame,
    y: object = None,
    *,
    n_samples: int = 2000,
    random_state: int | np.random.RandomState | None = 0,
) -> float:
    r"""Score a generator by the energy distance of its privatized samples to privatized records.

    .. math:: \tfrac12 \, \mathbb{E} \|R - R'\|_2 - \mathbb{E} \|Y - R\|_2

    with R and R' the outputs of the mechanism on fresh samples of the estimator, and Y the given
    records. Larger is better: the expectation is largest if R has the distribution of Y [1]_, in
    any dimension and for any number of samples.

    Parameters
    ----------
    estimator : EntropicDeconvGAN, DeconvolutionEM, or a Pipeline of one of them alone
        Fitted. A pipeline of one step lets a search choose among kinds of estimators.
    X : array-like or data frame of shape (n, n_features)
        Privatized records that it was not fitted on; raw ones if it has ``privatize=True``.
    y : Ignored
        Present so that the function can be the ``scoring`` of a search.
    n_samples : int, default=2000
        Number of samples to compare with, at least 2.
    random_state : int, RandomState or None, default=0
        Seed of the samples and of their noise; a common seed makes rankings less random.

    Returns
    -------
    float
        In units of the privatized records.

    Raises
    ------
    PublicTypeError
        The estimator has no mechanism.
    PublicValueError
        The mechanism releases joint answers, whose form differs from the records'.

    See Also
    --------
    likelihood_score : Sharper if the noise is large.
    EntropicDeconvGAN.score : Comparable across mechanisms.

    Notes
    -----
    It reads privatized records only, so it costs no privacy and charges no ledger. With
    ``privatize=True`` each call is one more release of the given raw records, which is charged
    before they are compared. :func:`likelihood_score` is sharper if the noise is large. With many
    columns and little noise, few of the points of its mixture are near any record, and it prefers
    distributions that are too narrow; this score has no such mixture. Neither compares mechanisms.

    References
    ----------
    .. [1] T. Gneiting, A. E. Raftery, "Strictly proper scoring rules, prediction, and
       estimation", 2007, section 4.3.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import make_half_circle
    >>> from sklearn_dpgen.deconvolution import DeconvolutionEM, energy_score
    >>> from sklearn_dpgen.domains import Ball
    >>> from sklearn_dpgen.mechanisms import LaplaceMechanism
    >>> mechanism = LaplaceMechanism(epsilon=5.0, domain=Ball(1.0, n_features=2))
    >>> Y = mechanism.fit_transform(make_half_circle(1000, random_state=0))
    >>> em = DeconvolutionEM(mechanism, random_state=0).fit(Y[:500])
    >>> energy_score(em, Y[500:]) < 0
    True
    """
    if isinstance(estimator, Pipeline) and len(estimator.steps) == 1:
        estimator = estimator[0]
    if not hasattr(estimator, "mechanism"):
        raise PublicTypeError(
            "estimator must be an EntropicDeconvGAN or a DeconvolutionEM, got "
            f"{type(estimator).__name__}."
        )
    check_is_fitted(estimator)
    check_scalar(n_samples, "n_samples", Integral, min_val=2)
    sample_seed, noise_seed = split_random_state(random_state, 2)
    if getattr(estimator, "_privatizes", False):
        X = estimator.mechanism_.transform(X)
    mechanism = estimator.mechanism_
    Y = mechanism.encode_release(X, estimator=estimator)
    if Y.shape[1] != mechanism.domain_.n_features:
        raise PublicValueError(
            f"energy_score needs releases with the columns of the records, got answers to "
            f"questions of {type(mechanism).__name__}, which have no distance. Use "
            "likelihood_score."
        )
    R = _released(estimator, estimator.sample(n_samples, random_state=sample_seed), noise_seed)
    sums = [cdist(chunk, R).sum() for chunk in np.array_split(Y, -(-len(Y) // _CHUNK))]
    return float(pdist(R).mean() / 2 - sum(sums) / (len(Y) * len(R)))


def _released(estimator, samples, seed):
    """Return samples as privatized records, encoded."""
    transform = getattr(estimator, "output_transform", None)
    if transform is not None:
        samples = transform.transform(samples)
    mechanism = estimator.mechanism_
    return mechanism.encode_release(mechanism._for_public_records(seed).transform(samples))
