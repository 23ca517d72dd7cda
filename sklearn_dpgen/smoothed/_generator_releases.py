"""What a generator releases of private records: planned, priced, and made into laws on lines."""

import numpy as np

from sklearn_dpgen.accounting import ProjectionLaw
from sklearn_dpgen.moments import plan_moments
from sklearn_dpgen.smoothed._laws import normal_laws, release_laws
from sklearn_dpgen.smoothed._plan import plan_projections, plan_releases
from sklearn_dpgen.smoothed._projected_batches import ProjectedBatches
from sklearn_dpgen.smoothed._releases import ClassRecords, released_proportions

__all__ = ["GeneratorReleasesMixin"]

# Of projections, where they are chosen here: records of a batch, and directions.
_BATCH_SIZE, _MOST_DIRECTIONS = 100, 100
_MECHANISMS = {
    "records": "noisy records, all that the network learns from",
    "projections": (
        "noisy projections of a secret batch at each step of the training, with their directions"
    ),
}


class GeneratorReleasesMixin:
    """The releases of a generator: noisy records, moments by class, or projections at each step.

    Each way stores the report, the noise multiplier and the proportions of the labels, and
    returns the ReleasedLaws, or ProjectedBatches, that the network learns from. It is given records
    in the domain, their classes, of which 0 are none, a ball around the domain, the seed of noise
    and batches, and what :func:`normal_laws` and :func:`release_laws` both take.
    """

    def _check_release(self, y):
        """Refuse what projections at each step cannot be."""
        if self.release != "projections":
            return
        if y is not None and self.labels == "private":
            raise ValueError(
                'release="projections" takes labels="public": of another label a record would move '
                "the projections of two classes, which is not priced."
            )
        if self.n_generators > 1:
            raise ValueError(
                'release="projections" trains one network, as each step has a release of its own: '
                f"n_generators must be 1, got {self.n_generators}."
            )

    def _release_moments(self, X, codes, n_classes, ball, seed, lines):
        plan = plan_moments(
            ball,
            codes,
            max(1, n_classes),
            labels=self.labels if n_classes else "public",
            label_proportions=self.label_proportions,
            epsilon=self.epsilon,
            delta=self._delta(len(X)),
        )
        noises = plan.noises(seed, type(self).__qualname__, X, codes)
        self.privacy_ = self._plan_privacy(len(X), plan=plan, noise=noises[0])
        self.noise_multiplier_ = plan.mechanism.noise_multiplier
        means, covariances, sizes = plan.release(X, codes, noises)
        if n_classes:
            self._set_proportions(sizes)
        return normal_laws(means - ball.center, covariances, ball.radius, **lines)

    def _release_records(self, X, codes, n_classes, ball, seed, lines):
        is_public = n_classes == 0 or self.labels == "public"
        records = ClassRecords(X - ball.center, codes, max(1, n_classes), is_public)
        plan = self._plan_records(records, ball)
        # The layout of a release is part of what its noise is for.
        noise = self._noise(seed, X, codes, np.array([n_classes]), self.domain_)
        self.privacy_ = self._plan_privacy(len(X), plan=plan, noise=noise)
        self.noise_multiplier_ = plan.noise_multiplier
        if n_classes:
            self.label_proportions_ = released_proportions(
                self.label_proportions, codes, n_classes, plan.counts, noise
            )
        shares = None if is_public else self.label_proportions_
        return release_laws(
            plan.records,
            noise,
            records,
            ball.radius,
            shares=shares,
            verbose=self.verbose,
            **lines,
        )

    def _release_projections(self, X, codes, n_classes, ball, seed, lines):
        records = ClassRecords(X - ball.center, codes, max(1, n_classes), is_public=True)
        plan = self._plan_projections(records)
        parts = (X, codes, np.array([n_classes]), self.domain_)
        noise = self._noise(seed, *parts)
        self.privacy_ = self._plan_privacy(len(X), plan=plan, noise=noise)
        self.noise_multiplier_ = plan.noise_multiplier
        if n_classes:
            self.label_proportions_ = released_proportions(
                self.label_proportions, codes, n_classes, None, noise
            )
        return ProjectedBatches(
            plan.records,
            noise,
            records,
            ball.radius,
            q=self.q,
            # Other records get other directions.
            seed=self._noise(lines["seed"], *parts).integers(2**32, 1).item(),
            device=lines["device"],
        )

    def _plan_projections(self, records):
        n_samples, d = records.records.shape
        automatic = self.n_projections == "auto"
        n_projections = min(d, _MOST_DIRECTIONS) if automatic else self.n_projections
        return plan_projections(
            [len(rows) for rows in records.members],
            self.domain_.diameter(2),
            ProjectionLaw(d, 1 if d == 1 else n_projections, self.directions),
            epsilon=self.epsilon,
            delta=self._delta(n_samples),
            batch_size=(
                min(n_samples, _BATCH_SIZE) if self.batch_size == "auto" else self.batch_size
            ),
            n_releases=self.max_iter,
        )

    def _plan_records(self, records, ball):
        n_samples = len(records.records)
        sizes = [len(rows) for rows in records.members]
        batch_size = self.batch_size
        if batch_size == "auto":
            # At one rate for all: a higher one of a small class would be paid by every class.
            batch_size = n_samples // max(1, min(sizes))
        return plan_releases(
            sizes,
            self.domain_.diameter(2),
            records.records.shape[1],
            epsilon=self.epsilon,
            delta=self._delta(n_samples),
            batch_size=batch_size,
            n_epochs=self.n_epochs,
            slot_radius=None if records.is_public else ball.radius,
            with_counts=not records.is_public and self.label_proportions is None,
        )

    def _plan_privacy(self, n_samples, *, plan, noise):
        relation, public = self._label_terms()
        words = {
            "neighbouring": relation,
            "public": ("n_samples", "domain", "names of the columns", *public),
        }
        if self.release == "moments":
            return plan.report(type(self).__name__, noise, **words)
        return plan.report(
            mechanism=f"{type(self).__name__}: {_MECHANISMS[self.release]}",
            sensitivity_source=f"l2; records in a domain of diameter {self.domain_.diameter(2):g}",
            noise_source=noise.description,
            **words,
        )
