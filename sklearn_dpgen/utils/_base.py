"""The spine of every private estimator: what a fit costs is known before a record is read."""

import pickle
from abc import ABC, abstractmethod

import numpy as np
from sklearn.base import BaseEstimator

from sklearn_dpgen.utils._random import noise_source
from sklearn_dpgen.utils._torch import resolve_device

__all__ = ["PrivateEstimator"]


class PrivateEstimator(BaseEstimator, ABC):
    """Base of the estimators and mechanisms that state a privacy guarantee.

    ``fit`` validates, then plans with ``_plan_privacy``, then reads records exactly as planned,
    then stores the plan as ``privacy_``.
    """

    @abstractmethod
    def _plan_privacy(self, n_samples):
        """Return the complete PrivacyReport of a fit, from public quantities alone."""

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
