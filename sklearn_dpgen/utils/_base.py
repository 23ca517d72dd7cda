"""The spine of every private estimator: what a fit costs is known before a record is read."""

import pickle
from abc import ABC, abstractmethod

import numpy as np
import torch
from sklearn.base import BaseEstimator

from sklearn_dpgen.utils._random import noise_source
from sklearn_dpgen.utils._torch import resolve_device
from sklearn_dpgen.utils._validation import (
    BUDGET,
    Integral,
    Interval,
    ParametersMixin,
    Real,
    StrOptions,
    check_delta,
)

__all__ = ["PrivateEstimator", "TrainedEstimator"]


class PrivateEstimator(ParametersMixin, BaseEstimator, ABC):
    """Base of the estimators and mechanisms that state a privacy guarantee.

    ``fit`` validates, then plans with ``_plan_privacy``, then reads records exactly as planned,
    then stores the plan as ``privacy_``.
    """

    @abstractmethod
    def _plan_privacy(self, n_samples):
        """Return the complete PrivacyReport of a fit, from public quantities alone."""

    def _forget(self):
        """Drop what an earlier fit left, so that one that fails keeps no report of another."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _delta(self, n_samples):
        """Return the failure probability to spend on a number of private records."""
        return 0.1 / n_samples if self.delta == "auto" else check_delta(self.delta)

    def _noise(self, seed, *parts):
        """Return the source of noise and of batches; a seeded one is keyed by all that is given.

        Parameters
        ----------
        seed : int or None
        *parts : ndarray or Domain
            Records, strata, and the domain that they were projected on.
        """
        if seed is None:
            return noise_source()
        parameters = self.get_params(deep=False) | {"device": str(resolve_device(self.device))}
        for name in ("callback", "random_state", "verbose"):
            parameters.pop(name, None)
        # Without any, the noise is that of an estimator that takes none.
        if not parameters.get("constraints"):
            parameters.pop("constraints", None)
        context = [type(self).__qualname__]
        for name, value in sorted(parameters.items()):
            # What a callable returns is among the parts.
            context += [name, b"" if callable(value) else pickle.dumps(value)]
        for part in parts:
            if isinstance(part, np.ndarray):
                context += [str(part.shape), np.ascontiguousarray(part)]
            else:
                context.append(pickle.dumps(part))
        return noise_source(seed, context=context)


class TrainedEstimator(PrivateEstimator):
    """Base of the private estimators that train a network: their parameters, tags and state."""

    _parameter_constraints: dict = {
        "epsilon": BUDGET,
        "delta": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="neither")],
        "hidden_layer_sizes": ["array-like"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "averaging": [Interval(Real, 0, 1, closed="left")],
        "random_state": ["random_state"],
        "device": [str, torch.device],
        "verbose": ["verbose"],
    }
    # The attribute that a complete fit ends with.
    _trained = "module_"

    def __sklearn_is_fitted__(self):
        return hasattr(self, self._trained)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        return tags
