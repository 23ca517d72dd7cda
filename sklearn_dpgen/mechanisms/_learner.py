"""What an estimator that learns from privatized records does with its mechanism."""

from dataclasses import replace

import numpy as np
from sklearn.base import clone

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.mechanisms._release import Card, release_of
from sklearn_dpgen.utils._typing import EstimatorMixin

__all__ = ["LearnerPlanMixin", "fit_mechanism", "learner_report"]

_REQUIRED = ("fit", "transform", "log_likelihood", "encode_release", "get_params")


def fit_mechanism(mechanism, X, *, privatize, noise_seed, ledger=None):
    """Return a fitted mechanism whose likelihood is known.

    Parameters
    ----------
    mechanism : Mechanism or None
        A parameter of the estimator, left as it is: a clone is fitted. None takes the mechanism
        that privatized records carry.
    X : array-like, data frame or None
        Raw records to privatize, or privatized ones; of either only the form is used, if at all.
    privatize : bool
        Which of them they are.
    noise_seed : int or None
        Seeds a mechanism that has no seed of its own and is to privatize.
    ledger : PrivacyLedger, path or None
        Of a mechanism that has none of its own and is to privatize: it books each release.

    Returns
    -------
    Mechanism
    """
    if mechanism is None:
        return _carried(X, privatize)
    missing = [name for name in _REQUIRED if not hasattr(mechanism, name)]
    if missing:
        raise PublicTypeError(
            "mechanism must be a Mechanism with a likelihood, such as LaplaceMechanism; "
            f"{type(mechanism).__name__} lacks {', '.join(missing)}."
        )
    mechanism = clone(mechanism)
    if privatize and mechanism.random_state is None:
        mechanism.set_params(random_state=noise_seed)
    if privatize and ledger is not None:
        if mechanism.ledger is not None:
            raise PublicValueError("The mechanism has a ledger too: give it to one of them.")
        mechanism.set_params(ledger=ledger)
    mechanism.fit(X)
    mechanism.require_noise()
    if privatize and hasattr(mechanism, "feature_names_in_"):
        # The names of the columns stay with the release.
        mechanism.set_output(transform="pandas")
    return mechanism


def _carried(X, privatize):
    """Return the mechanism that privatized records carry."""
    if privatize:
        raise PublicValueError("mechanism must be given with privatize=True, got None.")
    release = release_of(X)
    if release is None:
        raise PublicValueError(
            "mechanism must be given for records that carry none, got None: pass mechanism= for "
            "what was privatized elsewhere, read from a file, joined or computed. In a pipeline "
            "the step before must be the mechanism."
        )
    mechanism = release.mechanism() if isinstance(release, Card) else None
    if mechanism is None:
        raise PublicValueError(
            "mechanism must be given for records that carry the name of theirs alone, as from a "
            f"file, got None: pass mechanism=, a {release['mechanism']} with epsilon="
            f"{release['epsilon']:g}, delta={release['delta']:g}."
        )
    mechanism.require_noise()
    return mechanism


def learner_report(report, *, privatize, carried=False):
    """Return what a fit costs: what its records cost, for the rest is post-processing.

    Parameters
    ----------
    report : PrivacyReport
        Of the mechanism.
    privatize : bool
        Whether the fit privatized its records.
    carried : bool, default=False
        Whether the records carried the mechanism, and with it where its noise is from.

    Returns
    -------
    PrivacyReport
    """
    if privatize:
        caveat = "Every fit and score with privatize=True is one more release of its records."
        return replace(report, caveats=(*report.caveats, caveat))
    caveat = (
        "fit takes its records to be the output of the mechanism and privatizes nothing: it is "
        "post-processing, and charges no ledger."
    )
    source = report.noise_source if carried else "drawn where the records were privatized"
    return replace(report, noise_source=source, caveats=(*report.caveats, caveat))


class LearnerPlanMixin(EstimatorMixin):
    """The plan of an estimator that learns from privatized records, by its mechanism."""

    # Of learners that never see raw records.
    privatize = False

    def plan(self, n_samples: int | None = None, n_features: int | None = None) -> PrivacyReport:
        """Return what a fit will state, without records.

        Parameters
        ----------
        n_samples : int or None, default=None
            Not used: each person is protected for themselves.
        n_features : int or None, default=None
            Width of the records, where the mechanism's domain is a callable.

        Returns
        -------
        PrivacyReport
            What the records have cost where they were privatized, and a fit then charges nothing;
            with ``privatize=True``, where there is this parameter, what a fit on raw ones costs.
        """
        if self.mechanism is None:
            raise PublicValueError(
                "plan needs a mechanism, got None: ask the mechanism for its plan."
            )
        width = None if n_features is None else np.zeros((1, n_features))
        mechanism = fit_mechanism(
            self.mechanism,
            width,
            privatize=self.privatize,
            noise_seed=None if self.random_state is None else 0,
        )
        return learner_report(mechanism.privacy_, privatize=self.privatize)
