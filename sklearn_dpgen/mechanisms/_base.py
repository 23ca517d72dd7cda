"""The base class of local mechanisms, which project and randomize records."""

import copy
import math
from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, clone

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.domains import Domain, OneHot
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.mechanisms._release import (
    ReleaseMixin,
    check_release,
    drawn_by,
    moments_of,
    settings_text,
)
from sklearn_dpgen.persistence._declarations import Maybe, demand
from sklearn_dpgen.preprocessing._records import resolve_domain
from sklearn_dpgen.utils._random import NoiseSource, noise_source, split_random_state
from sklearn_dpgen.utils._validation import (
    BUDGET,
    StrOptions,
    check_is_fitted,
    fit_context,
    output_kind,
    validate_data,
)

if TYPE_CHECKING:
    import torch

__all__ = [
    "DENSITIES",
    "Mechanism",
    "as_scale",
    "as_table",
    "discrete_log_likelihood",
    "gaussian_log_likelihood",
    "laplace_log_likelihood",
    "log_weight",
    "noise_variance",
]


def noise_variance(scale, kind):
    """Return the variance of "laplace" or "gaussian" noise of a scale."""
    return (2 if kind == "laplace" else 1) * scale**2


def laplace_log_likelihood(X, Y, scale):
    """Return the sum over features of log Laplace(y - x; scale).

    Parameters
    ----------
    X : tensor of shape (n_x, n_features)
    Y : tensor of shape (n_y, n_features)
    scale : tensor, scalar or of shape (n_features,)

    Returns
    -------
    tensor of shape (n_x, n_y)
    """
    import torch

    log_constant = torch.log(2 * scale).expand(X.shape[1]).sum()
    X, Y = _standardized(X, Y, scale)
    return -torch.cdist(X, Y, p=1) - log_constant


def gaussian_log_likelihood(X, Y, scale):
    """Return the sum over features of log N(y - x; 0, scale²), with shapes as for Laplace noise."""
    import torch

    log_constant = (torch.log(scale) + 0.5 * math.log(2 * math.pi)).expand(X.shape[1]).sum()
    X, Y = _standardized(X, Y, scale)
    # -|x-y|²/2 as one product of augmented vectors takes a single pass over the matrix.
    left = torch.cat([X, -0.5 * X.square().sum(1, keepdim=True), torch.ones_like(X[:, :1])], dim=1)
    right = torch.cat(
        [Y, torch.ones_like(Y[:, :1]), -0.5 * Y.square().sum(1, keepdim=True) - log_constant], dim=1
    )
    return left @ right.T


def _standardized(X, Y, scale):
    """Return X and Y in units of the noise, shifted alike for accuracy in single precision."""
    shift = Y.mean(dim=0, keepdim=True)
    return (X - shift) / scale, (Y - shift) / scale


# By the kind of the noise.
DENSITIES = {"laplace": laplace_log_likelihood, "gaussian": gaussian_log_likelihood}


def discrete_log_likelihood(S, Y, table):
    """Return log probabilities of released categories under mixtures of raw ones.

    Parameters
    ----------
    S : tensor of shape (n_x, k)
        Weights of the raw categories: log p(y|s) = log sum_c s_c p(y|c).
    Y : tensor of shape (n_y, k)
        Released categories, one-hot.
    table : tensor of shape (k, k)
        ``table[c, y] = p(y|c)``, positive.

    Returns
    -------
    tensor of shape (n_x, n_y)
    """
    return (S @ table).log() @ Y.T


def log_weight(weight):
    """Return a logarithm that is -inf with zero gradient, not NaN, for a zero weight."""
    positive = weight > 0
    return weight.masked_fill(~positive, 1.0).log().masked_fill(~positive, -math.inf)


# Limits for a mechanism that is loaded: categories of all columns, and entries of all matrices.
_MOST_CATEGORIES = 1 << 17
_MOST_ENTRIES = 1 << 21


class Mechanism(ReleaseMixin, OneToOneFeatureMixin, PrivateEstimator):
    """Base class of local randomizers, as scikit-learn transformers.

    ``fit`` reads no record: it uses only the number of features and the column names, and
    calibrates from the public domain. ``transform`` projects every record on the domain and then
    randomizes it, so the guarantee holds for any input. The output carries the mechanism, without
    its seed and ledger, for estimators that learn from it; see ``release_of``.

    A new mechanism implements three methods:

    ``_calibrate()``
        Calibrate from ``self.domain_`` and return a PrivacyReport; fields common to all local
        releases, such as the neighbouring relation and the noise source, are added.
    ``_randomize(X, noise)``
        Draw one output for each row of an array inside the domain; ``noise`` is the only source of
        randomness: ``noise.add(X, scale, kind)`` for Gaussian and Laplace noise, ``uniform`` and
        ``integers`` for choices.
    ``_log_likelihood(X, Y)``
        Return the (n_x, n_y) matrix of log p(y|x), differentiable in ``X``.

    A fourth method is for the ``score`` of estimators that learn from the releases:

    ``_unbiased(Y)``
        Return, for encoded releases, two arrays in the form of encoded records, which are unbiased
        for the record and for the squares of its numbers; columns are independent given the record.

    Attributes
    ----------
    domain_ : Domain
        The public set on which records are projected.
    privacy_ : PrivacyReport
        The guarantee of one call of ``transform`` for each record.
    n_features_in_ : int
        Number of features of the domain.
    """

    _saved_state: dict = {"_sklearn_output_config": Maybe(dict[str, str])}
    _not_saved: dict = {
        "_seed": "A seed voids the guarantee against anybody who knows it.",
        **dict.fromkeys(
            [
                *("domain_", "scale_", "epsilon_", "encoder_", "table_"),
                *("n_asked_", "design_", "_index", "_parts", "_sizes", "_ordered"),
                *("_limit", "_always", "_weights", "_certified", "_center", "_width"),
            ],
            "It follows from the parameters: a loaded mechanism is calibrated again.",
        ),
    }
    _parameter_constraints: dict = {
        "epsilon": BUDGET,
        "domain": [Domain, callable],
        "random_state": ["random_state"],
        "index": [StrOptions({"reset", "keep"})],
    }
    _uses_torch = False
    # The default of mechanisms without this parameter.
    index = "reset"

    # l_p norm of the equivalent ground cost; None if the noise is not additive.
    cost_norm: int | None = None

    # Whether the categories of each column have a matrix of probabilities.
    _has_matrices = False

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike | pd.DataFrame | None = None, y: object = None) -> Self:
        """Calibrate the noise to the domain.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), optional
            Only its number of features and column names are used.
        y : Ignored

        Returns
        -------
        self : object
        """
        self._forget()
        if X is not None:
            X = self._rows(X, reset=True)
        self.domain_ = self._resolve_domain(None if X is None else X.shape[1])
        self.n_features_in_ = self.domain_.n_features
        self._set_privacy()
        return self

    def plan(self, n_samples: int | None = None, n_features: int | None = None) -> PrivacyReport:
        """Return the cost of one call of ``transform``, from the declarations alone.

        Parameters
        ----------
        n_samples : int or None, default=None
            Not used: the guarantee is for each person.
        n_features : int or None, default=None
            Number of features, if ``domain`` is a callable.

        Returns
        -------
        PrivacyReport
        """
        width = None if n_features is None else np.zeros((1, n_features))
        return clone(self).fit(width).privacy_

    def transform(self, X: ArrayLike | pd.DataFrame) -> np.ndarray | pd.DataFrame:
        """Project every record on the domain and randomize it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Raw records. Records outside the domain, also infinite ones, are projected on it.

        Returns
        -------
        Y : ndarray of shape (n_samples, n_features)
            Privatized records that carry their mechanism. As a data frame, by ``set_output``, its
            rows are renumbered unless ``index="keep"``.

        Raises
        ------
        BudgetExceededError
            The ledger has less left than one release costs.
        PublicValueError
            Values are missing or not numeric.
        """
        check_is_fitted(self)
        rows = self.domain_.project(self._rows(X, reset=False))
        self._reserve(self.privacy_)
        Y = self._randomize(rows, self._noise(rows)) if self._has_noise else rows
        # From an array scikit-learn makes a frame with the index of X.
        return pd.DataFrame(Y) if self._index == "reset" and output_kind(self) == "pandas" else Y

    def log_likelihood(self, X: "torch.Tensor", Y: "torch.Tensor") -> "torch.Tensor":
        """Return the log-density of privatized records given points of the domain.

        Parameters
        ----------
        X : tensor of shape (n_x, n_features)
            Points of the domain; soft one-hot blocks are mixtures of their vertices.
        Y : tensor of shape (n_y, n_features)
            Privatized records.

        Returns
        -------
        log_likelihood : tensor of shape (n_x, n_y)
            ``log p(y_j | x_i)``, differentiable in ``X``.
        """
        check_is_fitted(self)
        self.require_noise()
        self._check_width(X, "X")
        self._check_encoded(Y)
        return self._log_likelihood(X, Y)

    def encode_release(
        self,
        Y: ArrayLike | pd.DataFrame,
        *,
        reset: bool = False,
        estimator: BaseEstimator | None = None,
    ) -> np.ndarray:
        """Return privatized records as a float array for ``log_likelihood``.

        Records that carry another mechanism raise a PublicValueError.
        """
        check_release(Y, self)
        names = getattr(self, "feature_names_in_", None)
        if names is not None and isinstance(Y, pd.DataFrame) and list(Y.columns) != list(names):
            raise PublicValueError(f"X must have the columns {list(names)} in the same order.")
        Y = validate_data(estimator or self, Y, reset=reset, dtype=np.float64)
        width = self.domain_.n_features
        if Y.shape[1] != width:
            raise PublicValueError(
                f"X must have the {width} columns of the domain, got {Y.shape[1]}."
            )
        return Y

    def decode(
        self, X: np.ndarray, rng: np.random.Generator | NoiseSource | None = None
    ) -> np.ndarray | pd.DataFrame:
        """Return points of the domain in the form of the records of the fit."""
        names = getattr(self, "feature_names_in_", None)
        if names is None or X.shape[1] != len(names):
            return X
        return pd.DataFrame(X, columns=names)

    def perturb(self, X: "torch.Tensor", noise: NoiseSource) -> "torch.Tensor":
        """Add fresh noise to points of the domain, differentiably; for additive noise only."""
        return X + as_scale(self._randomize(np.zeros(tuple(X.shape)), noise), X)

    def _for_public_records(self, seed: int | None) -> Self:
        """Return the fitted mechanism for public records, such as synthetic ones.

        Its releases cost nothing: no ledger is charged, and noise may come from a seed, even if
        that of private records is certified.
        """
        public = copy.copy(self)
        public.__dict__.update(ledger=None, _seed=seed, _certified=False)
        return public

    def require_noise(self) -> None:
        """Raise a PublicValueError if there is no noise, and so no likelihood."""
        if not self._has_noise:
            raise PublicValueError(
                "epsilon must be finite, got inf: without noise there is nothing to deconvolve."
            )

    @abstractmethod
    def _randomize(self, X, noise):
        """Return one randomized output for each row of ``X``."""

    @abstractmethod
    def _log_likelihood(self, X, Y):
        """Return the matrix of log p(y|x)."""

    def _unbiased(self, Y):
        """Return unbiased estimates of encoded records, and of the squares of their numbers."""
        raise PublicValueError(
            f"score needs unbiased estimates of records, and {type(self).__name__} has no method "
            "_unbiased: use likelihood_score."
        )

    def _raw_moments(self, Y):
        """Return unbiased estimates of the moments of raw records."""
        U, S = self._unbiased(Y)
        return moments_of(self, U, S, np.full(len(Y), 1 / len(Y)))

    def _check_encoded(self, Y):
        """Check that an array can be encoded releases."""
        self._check_width(Y, "Y")

    def _check_width(self, Z, name):
        width = self.domain_.n_features
        if Z.ndim != 2 or Z.shape[1] != width:
            raise PublicValueError(
                f"{name} must have shape (n, {width}), with the features of the domain, got "
                f"{tuple(Z.shape)}."
            )

    def _rows(self, X, *, reset):
        """Return records as an array without missing values."""
        names = getattr(X, "columns", None)
        X = validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite=False)
        missing = np.flatnonzero(np.isnan(X).any(axis=0)).tolist()
        if missing:
            missing = missing if names is None else list(names[missing])
            raise PublicValueError(
                f"X contains NaN: columns {missing} must have no missing values."
            )
        return X

    def _forget(self):
        """Drop the results of an earlier fit, so that a fit that fails leaves nothing."""
        for name in ("domain_", "n_features_in_", "feature_names_in_", "privacy_"):
            self.__dict__.pop(name, None)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "privacy_")

    def _resolve_domain(self, n_features):
        if n_features is not None:
            return resolve_domain(self.domain, n_features)
        if not isinstance(self.domain, Domain):
            raise PublicValueError("X must be given if domain is a function of n_features.")
        return self.domain

    def _set_privacy(self):
        """Plan, and store the report; parameters that are set later do not change it."""
        (self._seed,) = split_random_state(self.random_state, 1)
        self._index = self.index
        self._certified = self._is_certified
        source = noise_source(self._seed, certified=self._certified).description
        order = "order" if self.index == "reset" else "order_and_index"
        public = ("domain", "n_samples", "column_names", order)
        caveat = "certified_noise" if self._certified else "local_floating_point"

        def complete(report):
            return replace(
                report,
                protected="own_record",
                public=public,
                noise_source=source,
                caveats=("each_call", caveat, *report.caveats),
                parts=tuple(complete(part) for part in report.parts),
            )

        self.privacy_ = complete(self._calibrate())

    @property
    def _has_noise(self):
        return not math.isinf(self.privacy_.epsilon)

    def _noise(self, X):
        """Return the noise source of one release, bound to the mechanism and the records."""
        bound = () if self._seed is None else (*self._identity(), X)
        return noise_source(self._seed, *bound, certified=self._certified)

    def _identity(self):
        """Return values that distinguish this mechanism from others on the same records."""
        # Two schemas may have one domain, and two domains one representation.
        return type(self).__qualname__, self.privacy_.epsilon, settings_text(self)

    def _release_settings(self):
        """Return the settings of the likelihood besides the budget and the noise scales."""
        return (self.domain_,)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        tags.requires_fit = True
        return tags

    def _check_saved_state(self):
        """Calibrate again, and check that the guarantee is the one stated in the file.

        A noise scale read from a file could be forged; one computed from the budget satisfies it.
        """
        super()._check_saved_state()
        stated, width = self.privacy_, self.n_features_in_
        names = getattr(self, "feature_names_in_", None)
        sizes = self._saved_categories(width)
        demand(sum(sizes) <= _MOST_CATEGORIES, "A mechanism has too many categories.")
        if self._has_matrices:
            n_entries = sum(size**2 for size in sizes)
            demand(n_entries <= _MOST_ENTRIES, "A mechanism has too many categories.")
        self.fit(None if names is None else pd.DataFrame(np.zeros((1, width)), columns=names))
        report = self.privacy_
        demand(self.n_features_in_ == width, "A mechanism has another number of columns.")
        demand(
            (report.epsilon, report.delta) == (stated.epsilon, stated.delta)
            and _is_near(report.noise_scale, stated.noise_scale),
            "A mechanism states another guarantee than its parameters give.",
        )
        if stated.is_seeded:
            # The guarantee stays void if noise was drawn from a seed before.
            self.privacy_ = drawn_by(report, stated.noise_source)

    def _saved_categories(self, width):
        """Return the number of categories of each column, before memory is allocated for them."""
        demand(self.domain.n_features == width, "A mechanism has another number of columns.")
        return [self.domain.n_categories] if isinstance(self.domain, OneHot) else []


def as_scale(scale, X):
    """Return a noise scale, a number or one per feature, as a tensor like ``X``."""
    import torch

    return torch.as_tensor(scale, dtype=X.dtype, device=X.device)


def as_table(table, X):
    """Return probabilities as a positive tensor like ``X``, as -log 0 times 0 would be NaN."""
    import torch

    return as_scale(table, X).clamp_min(torch.finfo(X.dtype).tiny)


def _is_near(scale, stated):
    """Return whether scales are equal up to rounding on different machines."""
    if isinstance(scale, dict) and isinstance(stated, dict):
        same = scale.keys() == stated.keys()
        return same and all(_is_near(value, stated[name]) for name, value in scale.items())
    if isinstance(scale, float) and isinstance(stated, float):
        return scale == stated or abs(scale - stated) <= 1e-6 * abs(scale)
    return scale is None and stated is None
