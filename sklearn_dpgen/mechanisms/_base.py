"""The base of every local mechanism: project, randomize, and know the likelihood."""

import math
from abc import abstractmethod
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from sklearn.base import OneToOneFeatureMixin

from sklearn_dpgen.domains import Domain
from sklearn_dpgen.mechanisms._release import ReleaseMixin, check_release
from sklearn_dpgen.utils._base import PrivateEstimator
from sklearn_dpgen.utils._random import noise_source, split_random_state
from sklearn_dpgen.utils._validation import (
    Interval,
    Real,
    check_is_fitted,
    fit_context,
    validate_data,
)

__all__ = ["Mechanism", "as_scale", "as_table", "on_grid"]

# Likelihoods are computed in single precision, where the noise of larger budgets is lost.
_MAX_EPSILON = 1e6

_LOCAL_FIELDS = {
    "neighbouring": "local model: any two values of one person's record",
    "public": (
        "domain",
        "n_samples",
        "names and types of the columns",
        "order and index of the records",
    ),
    "sampler": "each record is released once",
}
_LOCAL_CAVEATS = (
    "Each call of transform is one more release of the records it is given.",
    "The noise is drawn in floating point, from 52 random bits a draw; the guarantee is for exact "
    "draws, and means little above about 36 nats a draw.",
)


class Mechanism(ReleaseMixin, OneToOneFeatureMixin, PrivateEstimator):
    """Base class of local randomizers, as scikit-learn transformers.

    ``fit`` reads no record: it takes the width and the column names only, and calibrates from
    the public domain. ``transform`` projects every record on the domain and then randomizes it,
    so the guarantee holds for whatever it is given. The output is labelled with the mechanism, see
    ``release_of``; who learns from records that name another one is refused.

    A new mechanism implements three methods:

    ``_plan_privacy(n_samples)``
        Calibrate from ``self.domain_`` and return a PrivacyReport; what every local release
        shares, such as the neighbouring relation and the noise source, is filled in.
    ``_randomize(X, noise)``
        One draw of the output for each row of an array inside the domain; ``noise`` is the only
        source of randomness (``uniform``, ``normal``, ``laplace`` and ``integers``). A sum of a
        record and noise goes through ``on_grid``.
    ``_log_likelihood(X, Y)``
        The (n_x, n_y) matrix of log p(y|x), differentiable in ``X``.

    Attributes
    ----------
    domain_ : Domain
        The public set that records are projected on.
    privacy_ : PrivacyReport
        The guarantee of one call of ``transform`` for each record.
    n_features_in_ : int
        Width of the domain.
    """

    _parameter_constraints: dict = {
        "epsilon": [Interval(Real, 0, np.inf, closed="right")],
        "domain": [Domain, callable],
        "random_state": ["random_state"],
    }

    # l_p norm of the equivalent ground cost; None where the noise is not additive.
    cost_norm = None

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X=None, y=None):
        """Calibrate the noise to the domain.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), optional
            Only its width and column names are used.
        y : Ignored

        Returns
        -------
        self : object
        """
        if X is not None:
            X = validate_data(self, X, dtype=np.float64)
        self.domain_ = self._resolve_domain(None if X is None else X.shape[1])
        self.n_features_in_ = self.domain_.n_features
        self._set_privacy(None if X is None else X.shape[0])
        return self

    def transform(self, X):
        """Project every record on the domain and randomize it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Raw records. What lies outside the domain is moved to its nearest point.

        Returns
        -------
        Y : ndarray of shape (n_samples, n_features)
            Privatized records, a ReleasedArray.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        X = self.domain_.project(X)
        return self._randomize(X, self._noise(X)) if self._has_noise else X

    def log_likelihood(self, X, Y):
        """Log-density of privatized records given points of the domain.

        Parameters
        ----------
        X : tensor of shape (n_x, n_features)
            Points of the domain; soft one-hot blocks stand for mixtures of their vertices.
        Y : tensor of shape (n_y, n_features)
            Privatized records.

        Returns
        -------
        log_likelihood : tensor of shape (n_x, n_y)
            ``log p(y_j | x_i)``, differentiable in ``X``.
        """
        check_is_fitted(self)
        self.require_noise()
        for name, Z in (("X", X), ("Y", Y)):
            width = self.domain_.n_features
            if Z.ndim != 2 or Z.shape[1] != width:
                raise ValueError(
                    f"{name} must have shape (n, {width}), the width of the domain, got "
                    f"{tuple(Z.shape)}."
                )
        return self._log_likelihood(X, Y)

    def encode_release(self, Y, *, reset=False, estimator=None):
        """Return privatized records as a float array that ``log_likelihood`` takes.

        Those that name another mechanism are refused with a ValueError.
        """
        check_release(Y, self)
        return validate_data(estimator or self, Y, reset=reset, dtype=np.float64)

    def decode(self, X, rng=None):
        """Return points of the domain in the form of the records that this was fitted on."""
        names = getattr(self, "feature_names_in_", None)
        if names is None or X.shape[1] != len(names):
            return X
        return pd.DataFrame(X, columns=names)

    def perturb(self, X, noise):
        """Add fresh noise to points of the domain, differentiably; for additive noise only."""
        zeros = np.zeros(tuple(X.shape))
        return X + torch.as_tensor(self._randomize(zeros, noise), dtype=X.dtype, device=X.device)

    def require_noise(self):
        """Raise a ValueError when the budget leaves no noise of which to know the likelihood."""
        epsilon = self.privacy_.epsilon
        if epsilon > _MAX_EPSILON:
            raise ValueError(
                f"epsilon={epsilon:g} releases the records as they are, up to rounding: there is "
                f"no noise to deconvolve. Choose an epsilon of at most {_MAX_EPSILON:g}."
            )

    @abstractmethod
    def _randomize(self, X, noise):
        """Return one randomized output for each row of ``X``."""

    @abstractmethod
    def _log_likelihood(self, X, Y):
        """Return the matrix of log p(y|x)."""

    def _resolve_domain(self, n_features):
        domain = self.domain
        if not isinstance(domain, Domain):
            if n_features is None:
                raise ValueError("A domain given as a function needs X, to know its width.")
            domain = domain(n_features=n_features)
            if not isinstance(domain, Domain):
                raise TypeError(f"domain must return a Domain, got {type(domain).__name__}.")
        if n_features not in (None, domain.n_features):
            raise ValueError(
                f"domain has {domain.n_features} features, X has {n_features} features."
            )
        return domain

    def _set_privacy(self, n_samples):
        """Plan, and fix all that ``privacy_`` states: parameters set later change nothing."""
        (self._seed,) = split_random_state(self.random_state, 1)
        source = noise_source(self._seed).description

        def complete(report):
            return replace(
                report,
                **_LOCAL_FIELDS,
                noise_source=source,
                caveats=(*_LOCAL_CAVEATS, *report.caveats),
                parts=tuple(complete(part) for part in report.parts),
            )

        self.privacy_ = complete(self._plan_privacy(n_samples))

    @property
    def _has_noise(self):
        return not math.isinf(self.privacy_.epsilon)

    def _noise(self, X):
        """Return the noise source of one release; see ``noise_source`` for its key."""
        if self._seed is None:
            return noise_source()
        content = str(X.shape), np.ascontiguousarray(X)
        return noise_source(self._seed, context=(*self._identity(), *content))

    def _identity(self):
        """Return what tells this release from one of another mechanism on the same records."""
        kind, report = type(self), self.privacy_
        stated = ((p.mechanism, p.epsilon, p.delta, p.noise_scale) for p in (report, *report.parts))
        return f"{kind.__module__}.{kind.__qualname__}", repr(self.domain_), *map(repr, stated)

    def _release_settings(self):
        """Return what the likelihood depends on beside the budget and the noise scales."""
        return (self.domain_,)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        tags.requires_fit = True
        return tags


def on_grid(values, scale):
    """Round released values to a multiple of a power of two, at most a 1024th of the noise scale.

    The low bits of a sum of floats tell which record the noise was added to [1]_. Rounding is
    post-processing of the real-valued release, and on so coarse a grid the floating-point one is
    within about 1e-11 of it in total variation, a value.

    Parameters
    ----------
    values : ndarray
        Sums of records and noise.
    scale : float
        Scale of the noise.

    Returns
    -------
    ndarray

    References
    ----------
    .. [1] I. Mironov, "On significance of the least significant bits for differential privacy",
       CCS 2012.
    """
    step = math.ldexp(1.0, math.frexp(scale)[1] - 11)
    # A grid finer than the floats themselves changes nothing, and the division may overflow.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        multiples = np.rint(values / step)
    return np.where(np.isfinite(multiples), multiples * step, values)


def as_scale(scale, X):
    """Return a noise scale, a number or one per feature, as a tensor like ``X``."""
    return torch.as_tensor(scale, dtype=X.dtype, device=X.device)


def as_table(table, X):
    """Return probabilities as a tensor like ``X``, positive: -log 0 times 0 would be NaN."""
    return as_scale(table, X).clamp_min(torch.finfo(X.dtype).tiny)
