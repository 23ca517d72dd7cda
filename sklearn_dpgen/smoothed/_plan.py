"""Prices of the releases of noisy records and projections, from public quantities alone."""

import math
from dataclasses import dataclass, replace

from sklearn_dpgen.accounting import Bound, Event, PrivacyReport
from sklearn_dpgen.accounting._calibration import check_delta_size
from sklearn_dpgen.accounting._wording import count_words, number_words
from sklearn_dpgen.mechanisms import StratifiedGaussianMechanism, Stratum
from sklearn_dpgen.utils._random import ROUNDING
from sklearn_dpgen.utils._validation import warn_user

__all__ = ["ReleasePlan", "plan_projections", "plan_releases"]

# Share of the budget for the counts of private labels.
_COUNT_SHARE = 0.05


@dataclass(frozen=True)
class ReleasePlan:
    """Mechanisms of the releases of records, and their whole price.

    Parameters
    ----------
    records : StratifiedGaussianMechanism or None
        Mechanism of the records or of their projections. None if nothing is released.
    counts : StratifiedGaussianMechanism or None
        Mechanism of the counts of private labels.
    epsilon, delta : float
        The whole budget.
    n_features : int
        Number of columns of a record.
    n_slots : int
        Number of private classes: a record is released in the slot of its class, and the slots of
        the other classes hold noise alone.
    """

    records: StratifiedGaussianMechanism | None
    counts: StratifiedGaussianMechanism | None = None
    epsilon: float = 0.0
    delta: float = 0.0
    n_features: int = 0
    n_slots: int = 1

    @property
    def noise_multiplier(self):
        """Noise scale of the records over their sensitivity; 0 if nothing is released."""
        return 0.0 if self.records is None else self.records.noise_multiplier

    def split(self):
        """Return the shares of ε, which add up to 1."""
        if self.records is None or self.records.noise_scale == 0:
            return {}
        name = "records" if self.records.projections is None else "projections"
        if self.counts is None:
            return {name: 1.0}
        return {"label counts": _COUNT_SHARE, name: 1 - _COUNT_SHARE}

    def rounding(self):
        """Return the total variation distance of all noisy values to exact draws."""
        if self.records is None or self.records.noise_scale == 0:
            return 0.0
        law = self.records.projections
        width = self.n_slots * self.n_features if law is None else law.n_projections
        batch = sum(stratum.batch_size for stratum in self.records.strata)
        n_values = self.records.n_releases * batch * width
        return ROUNDING * (n_values + (0 if self.counts is None else self.n_slots))

    def precision(self):
        """Return the noise on the releases, in words."""
        if self.records is None:
            return {}
        smallest = min(self.records.strata, key=lambda stratum: stratum.batch_size)
        d, law = self.n_features, self.records.projections
        one = 2 * self.records.noise_scale / smallest.sensitivity
        if one == 0:
            return {"mean of the records": "exact: there is no noise"}
        of = "class" if len(self.records.strata) > 1 else "records"
        mean = _noise_of_mean(self.records, d)
        words = {
            "a release": f"noise of {number_words(one)} times the radius of the domain, on each "
            f"{'column' if law is None else 'direction'}",
            f"mean of the {'smallest ' if of == 'class' else ''}{of}": "noise of "
            f"{number_words(mean / math.sqrt(d))} times the radius of the domain on each column "
            f"after all releases, of length {number_words(mean)} over {d} columns",
        }
        if self.counts is not None:
            n_samples = self.counts.strata[0].size
            words["records of a class"] = count_words([self.counts.noise_scale], n_samples)
        return words

    def report(self, **fields):
        """Return the PrivacyReport.

        Parameters
        ----------
        **fields
            Fields of the report that the plan does not determine.
        """
        fields["caveats"] = ("earlier_fits", "floating_point")
        if self.records is None:
            return PrivacyReport(
                epsilon=0.0,
                delta=0.0,
                n_releases=0,
                rounding=0.0,
                **fields,
            )

        def priced(epsilon, delta, part, **others):
            return PrivacyReport(
                epsilon=epsilon,
                delta=delta if math.isfinite(self.epsilon) else 0.0,
                **part.report_fields(),
                **(fields | others),
            )

        found = {"split": self.split(), "precision": self.precision(), "rounding": self.rounding()}
        whole = priced(self.epsilon, self.delta, self.records, **found)
        if self.counts is None:
            return whole
        parts = (
            priced(self.records.epsilon, self.records.delta, self.records),
            priced(
                self.counts.epsilon,
                self.counts.delta,
                self.counts,
                events=(Event("label_counts"),),
                bounds=(Bound("one_label"),),
            ),
        )
        releases = (*parts[0].releases, *parts[1].releases)
        events = (*parts[0].events, *parts[1].events)
        return replace(whole, events=events, parts=parts, releases=releases)


def plan_releases(
    sizes,
    diameter,
    n_features,
    *,
    epsilon,
    delta,
    batch_size,
    n_epochs,
    slot_radius=None,
    n_slots=1,
    with_counts=False,
):
    """Return the plan of noisy records and, if needed, of noisy label counts.

    Parameters
    ----------
    sizes : list of int
        Number of records of each stratum.
    diameter : float
        Largest l2 distance of two records.
    n_features : int
        Number of columns of a record.
    epsilon, delta : float
        The whole budget.
    batch_size : int
        Number of records of one release, over all strata.
    n_epochs : float
        Passes over the records.
    slot_radius : float or None, default=None
        Largest l2 norm of a record with a private class. Another label empties one slot and fills
        another. None if classes are public.
    n_slots : int, default=1
        Number of slots; each has noise.
    with_counts : bool, default=False
        Whether the counts of the labels are released too.

    Returns
    -------
    ReleasePlan
    """
    n_samples, batches = sum(sizes), _batches(sizes, batch_size)
    if slot_radius is not None:
        diameter = max(diameter, math.sqrt(2) * slot_radius)
    counts, rest = None, 1.0
    if with_counts:
        if math.isfinite(epsilon):
            # The check is for the whole delta; the mechanisms see parts of it.
            check_delta_size(delta, n_samples)
        rest = 1 - _COUNT_SHARE
        counts = StratifiedGaussianMechanism(
            [Stratum(n_samples, n_samples, math.sqrt(2))],
            epsilon=_COUNT_SHARE * epsilon,
            delta=_COUNT_SHARE * delta,
            n_releases=1,
        )
    records = StratifiedGaussianMechanism(
        [Stratum(size, batch, diameter) for size, batch in zip(sizes, batches, strict=True)],
        epsilon=rest * epsilon,
        delta=rest * delta,
        n_releases=max(1, round(n_epochs * n_samples / sum(batches))),
    )
    _warn_of_noise(records, n_features, epsilon)
    return ReleasePlan(records, counts, epsilon, delta, n_features, n_slots)


def plan_projections(sizes, diameter, law, *, epsilon, delta, batch_size, n_releases):
    """Return the plan of noisy projections of batches, each on directions of its own.

    Parameters
    ----------
    sizes, diameter, epsilon, delta, batch_size
        As in :func:`plan_releases`.
    law : ProjectionLaw
        Distribution of the directions of a release.
    n_releases : int

    Returns
    -------
    ReleasePlan
    """
    batches = _batches(sizes, batch_size)
    mechanism = StratifiedGaussianMechanism(
        [Stratum(size, batch, diameter) for size, batch in zip(sizes, batches, strict=True)],
        epsilon=epsilon,
        delta=delta,
        n_releases=n_releases,
        projections=law,
    )
    _warn_of_noise(mechanism, law.n_features, epsilon)
    return ReleasePlan(mechanism, None, epsilon, delta, law.n_features)


def _noise_of_mean(mechanism, n_features):
    """Return the noise on the mean of the smallest stratum after all releases, over the radius."""
    smallest = min(mechanism.strata, key=lambda stratum: stratum.batch_size)
    law = mechanism.projections
    # A projection measures one of n_features dimensions.
    n_values = mechanism.n_releases * smallest.batch_size
    n_values *= 1 if law is None else law.n_projections / n_features
    return 2 * mechanism.noise_scale / smallest.sensitivity * math.sqrt(n_features / n_values)


def _warn_of_noise(mechanism, n_features, epsilon):
    """Warn if the noise on the mean of a stratum after all releases exceeds the radius."""
    smallest = min(mechanism.strata, key=lambda stratum: stratum.batch_size)
    noise = _noise_of_mean(mechanism, n_features)
    if noise > 1:
        warn_user(
            f"All releases together leave noise of {noise:.2g} times the radius of the domain on "
            f"the mean of the records, too much to learn from them, with epsilon={epsilon:g}, "
            f"{n_features} columns and {smallest.size} records (in the smallest class if there are "
            "classes). Use a larger epsilon, fewer columns or more records.",
            UserWarning,
        )


def _batches(sizes, batch_size):
    """Return the number of records of a batch from each stratum."""
    n_samples = sum(sizes)
    if min(sizes) == 0:
        raise ValueError("With public labels every class of classes needs a record; one has none.")
    if batch_size > n_samples:
        raise ValueError(
            f"batch_size must be at most the number of private records, {n_samples}, got "
            f"{batch_size}."
        )
    return [max(1, round(batch_size * size / n_samples)) for size in sizes]
