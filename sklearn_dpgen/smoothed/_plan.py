"""What the releases of a generator cost, from public quantities alone."""

import math
from dataclasses import dataclass, replace

from sklearn_dpgen.accounting import PrivacyReport, check_delta_size
from sklearn_dpgen.mechanisms import StratifiedGaussianMechanism, Stratum

__all__ = ["GeneratorPlan", "plan_releases"]

# Share of the budget for the counts of private labels.
_COUNT_SHARE = 0.05
_CAVEATS = (
    "Whatever was fitted on the same records before, such as a scaler, is not paid for here.",
    "The noise is drawn in floating point, from 52 random bits a draw; the guarantee is for exact "
    "draws.",
)


@dataclass(frozen=True)
class GeneratorPlan:
    """The mechanism of the records, that of private label counts or None, and the whole price."""

    records: StratifiedGaussianMechanism
    counts: StratifiedGaussianMechanism | None
    epsilon: float
    delta: float

    @property
    def batch_size(self):
        """Records of one release."""
        return sum(stratum.batch_size for stratum in self.records.strata)

    def report(self, **words):
        """Return the PrivacyReport.

        Parameters
        ----------
        **words
            Its fields that no mechanism answers for.
        """
        is_private = math.isfinite(self.epsilon)

        def priced(epsilon, delta, part, **others):
            return PrivacyReport(
                epsilon=epsilon,
                delta=delta if is_private else 0.0,
                caveats=_CAVEATS,
                **part.report_fields(),
                **(words | others),
            )

        whole = priced(self.epsilon, self.delta, self.records)
        if self.counts is None:
            return whole
        parts = (
            priced(self.records.epsilon, self.records.delta, self.records),
            priced(
                self.counts.epsilon,
                self.counts.delta,
                self.counts,
                mechanism="label counts",
                sensitivity_source="l2; one label for another changes two counts by one",
            ),
        )
        accountant = f"{whole.accountant}; its cost and that of the label counts add up"
        return replace(whole, accountant=accountant, parts=parts)


def plan_releases(
    sizes, ball, diameter, *, epsilon, delta, batch_size, n_epochs, slots=1, with_counts=False
):
    """Price noisy records, and label counts.

    Parameters
    ----------
    sizes : list of int
        Records of each stratum.
    ball : Ball
        Around the centered records.
    diameter : float
        Largest l2 distance of two of them.
    epsilon, delta : float
        The whole budget.
    batch_size : int
        Records of one release, over all strata.
    n_epochs : float
        Passes over the records.
    slots : int, default=1
        More than one where a record is released in the slot of its private class: another label
        empties one slot and fills another.
    with_counts : bool, default=False
        Whether the counts of the labels are released too.

    Returns
    -------
    GeneratorPlan
    """
    n_samples = sum(sizes)
    if min(sizes) == 0:
        raise ValueError("With public labels every class of classes needs a record; one has none.")
    if batch_size > n_samples:
        raise ValueError(f"batch_size must be at most n_samples = {n_samples}, got {batch_size}.")
    batches = [max(1, round(batch_size * size / n_samples)) for size in sizes]
    if slots > 1:
        diameter = max(diameter, math.sqrt(2) * ball.radius)
    counts, rest = None, 1.0
    if with_counts:
        if math.isfinite(epsilon):
            # Of the whole: the mechanisms see parts of it.
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
    return GeneratorPlan(records, counts, epsilon, delta)
