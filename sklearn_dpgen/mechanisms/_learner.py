"""What an estimator that learns from privatized records does with its mechanism."""

from dataclasses import replace

from sklearn.base import clone

__all__ = ["fit_mechanism", "learner_report"]

_REQUIRED = ("fit", "transform", "log_likelihood", "encode_release", "get_params")


def fit_mechanism(mechanism, X, *, privatize, noise_seed):
    """Return a fitted clone of a mechanism, whose likelihood is known.

    Parameters
    ----------
    mechanism : Mechanism
        A parameter of the estimator: left as it is.
    X : array-like, data frame or None
        Raw records to privatize, or privatized ones; of either only the form is used, if at all.
    privatize : bool
        Which of them they are.
    noise_seed : int or None
        Seeds a mechanism that has no seed of its own and is to privatize.

    Returns
    -------
    Mechanism
    """
    missing = [name for name in _REQUIRED if not hasattr(mechanism, name)]
    if missing:
        raise TypeError(
            "mechanism must be a Mechanism with a likelihood, such as LaplaceMechanism; "
            f"{type(mechanism).__name__} lacks {', '.join(missing)}."
        )
    mechanism = clone(mechanism)
    if privatize and mechanism.random_state is None:
        mechanism.set_params(random_state=noise_seed)
    mechanism.fit(X)
    mechanism.require_noise()
    if privatize and hasattr(mechanism, "feature_names_in_"):
        # The names of the columns stay with the release.
        mechanism.set_output(transform="pandas")
    return mechanism


def learner_report(report, *, privatize):
    """Return what a fit costs: what its records cost, for the rest is post-processing.

    Parameters
    ----------
    report : PrivacyReport
        Of the mechanism.
    privatize : bool
        Whether the fit privatized its records.

    Returns
    -------
    PrivacyReport
    """
    if privatize:
        caveat = "Every fit and score with privatize=True is one more release of its records."
        return replace(report, caveats=(*report.caveats, caveat))
    caveat = "fit takes its records to be the output of the mechanism and privatizes nothing."
    return replace(
        report,
        noise_source="drawn where the records were privatized",
        caveats=(*report.caveats, caveat),
    )
