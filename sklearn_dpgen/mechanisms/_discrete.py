"""Randomized response on a public set of categories."""

import math
from collections.abc import Callable

import numpy as np

from sklearn_dpgen.accounting import Bound, Event, PrivacyReport
from sklearn_dpgen.accounting._profiles import RandomizedResponseProfile
from sklearn_dpgen.domains import OneHot
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.mechanisms._base import Mechanism, as_table, discrete_log_likelihood

__all__ = ["RandomizedResponse", "draw_response", "response_table"]


# Largest size of a table of probabilities.
_MOST_BYTES = 2**30


def response_table(epsilon, n_categories, what="domain"):
    """Return p(y|c) of k-ary randomized response, an array of shape (k, k).

    Raises
    ------
    PublicValueError
        The table would have more than one GiB; the message names ``what``.
    """
    if 8 * n_categories**2 > _MOST_BYTES:
        raise PublicValueError(
            f"{what} must have fewer categories: randomized response on {n_categories} takes a "
            f"table of {8 * n_categories**2 / 2**30:.1f} GiB, more than {_MOST_BYTES // 2**30} "
            "GiB. Declare fewer categories or bins."
        )
    # Written with exp(-ε), so that a large budget does not overflow.
    other = math.exp(-epsilon) / (1 + (n_categories - 1) * math.exp(-epsilon))
    table = np.full((n_categories, n_categories), other)
    np.fill_diagonal(table, 1 - (n_categories - 1) * other)
    return table


def draw_response(X, table, epsilon, noise):
    """Draw a released category for each one-hot row, with the table of ``epsilon``."""
    released = noise.respond(X.argmax(axis=1), table, epsilon)
    drawn = np.zeros(X.shape)
    drawn[np.arange(len(X)), released] = 1
    return drawn


class RandomizedResponse(Mechanism):
    """Randomized response: release a category or a random other one, with pure ε-local privacy.

    The true category is kept with probability e^ε / (e^ε + k - 1), and each other one is
    released with probability 1 / (e^ε + k - 1).

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of one record, in nats. ``np.inf`` releases the category as it is.
    domain : OneHot or callable
        The declared categories.
    ledger : PrivacyLedger, str or None, default=None
        Ledger, or its path, that each call of ``transform`` charges.
    random_state : int, RandomState or None, default=None
        As in LaplaceMechanism.
    index : {"reset", "keep"}, default="reset"
        As in LaplaceMechanism.
    noise : {"float", "certified"}, default="float"
        As in LaplaceMechanism.

    Attributes
    ----------
    scale_ : float
        Probability that the released category is not the true one.
    table_ : ndarray of shape (k, k)
        ``table_[c, y]`` is p(y|c).
    domain_, privacy_, n_features_in_
        See Mechanism.

    Notes
    -----
    **Formal guarantee**

    :Promise: Local ε-differential privacy, with δ = 0, of each row of one call of ``transform``.
    :Neighbours: Any two values of one person's record, which are categories here.
    :Public: ``domain``; ``n_samples``; names of the columns; order of the records, and with
        ``index="keep"`` order and index of the records.
    :Bounded by: The declared categories: ``transform`` moves each record to its nearest point of
        the domain.
    :Noise: Randomized response, drawn in ``transform``, from the operating system's entropy; in
        floating point, or with ``noise="certified"`` exact.
    :Priced by: Probabilities of an answer have a ratio of e^ε at most, in closed form. Calls add
        up.
    :Not covered: Each further call of ``transform``, which is one more release of its records; who
        takes part; budgets above about 36 nats per draw in floating point; errors of ``transform``;
        a ``random_state`` that others know or guess.
    :Proof: The probabilities above; :doc:`/privacy_model`; of certified noise
        :ref:`certified_noise`.

    For a soft block s the likelihood is the mixture p(y|s) = Σ_c s_c p(y|c), which is exact at the
    vertices.
    """

    _saved_state: dict = {}
    _has_matrices = True

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        domain: OneHot | Callable[..., OneHot] | None = None,
        ledger: LedgerLike = None,
        random_state: int | np.random.RandomState | None = None,
        index: str = "reset",
        noise: str = "float",
    ) -> None:
        self.epsilon = epsilon
        self.domain = domain
        self.ledger = ledger
        self.random_state = random_state
        self.index = index
        self.noise = noise

    def _calibrate(self):
        if not isinstance(self.domain_, OneHot):
            raise PublicTypeError(
                f"domain must be a OneHot domain for randomized response, got {self.domain_!r}. "
                "Use TabularMechanism for several columns."
            )
        self.table_ = response_table(self.epsilon, self.domain_.n_features)
        self.scale_ = self.table_[0, 1:].sum()
        releases = ()
        if math.isfinite(self.epsilon):
            releases = ((RandomizedResponseProfile(self.epsilon, len(self.table_)), 1),)
        return PrivacyReport(
            name=type(self).__name__,
            events=(Event("randomized_response", self.domain_.n_features),),
            epsilon=self.epsilon,
            delta=0.0,
            bounds=(Bound("categories"),),
            noise_scale=self.scale_,
            releases=releases,
            precision={"one answer": f"the true category with {self.table_[0, 0]:.0%} probability"},
        )

    def _randomize(self, X, noise):
        return draw_response(X, self.table_, self.privacy_.epsilon, noise)

    def _unbiased(self, Y):
        U = Y @ np.linalg.inv(self.table_)
        return U, U

    def _log_likelihood(self, X, Y):
        return discrete_log_likelihood(X, Y, as_table(self.table_, X))
