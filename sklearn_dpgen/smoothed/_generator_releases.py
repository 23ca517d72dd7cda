"""What a generator releases of private records: planned, priced, and made into laws on lines."""

from numpy.typing import ArrayLike

from sklearn_dpgen.accounting import Bound, Event, PrivacyReport, ProjectionLaw
from sklearn_dpgen.accounting._checks import check_count
from sklearn_dpgen.domains._ball import enclosing_ball
from sklearn_dpgen.mechanisms._class_moments import price_moments
from sklearn_dpgen.preprocessing._records import declared_domain
from sklearn_dpgen.smoothed._laws import normal_laws, release_laws
from sklearn_dpgen.smoothed._plan import plan_projections, plan_releases
from sklearn_dpgen.smoothed._projected_batches import ProjectedBatches
from sklearn_dpgen.smoothed._releases import ClassRecords, released_proportions
from sklearn_dpgen.utils._validation import EstimatorMixin, fit_context

__all__ = ["GeneratorReleasesMixin"]

# Of projections, where they are chosen here: records of a batch, and directions.
_BATCH_SIZE, _MOST_DIRECTIONS = 100, 100
_EVENTS = {"records": "records", "projections": "batch_projections"}


class GeneratorReleasesMixin(EstimatorMixin):
    """The releases of a generator: noisy records, moments by class, or projections at each step.

    Each way is first priced from public sizes. Then it stores the proportions of the labels, and
    returns the ReleasedLaws, or ProjectedBatches, that the network learns from. It is given its
    plan, records in the domain, their classes, of which 0 are none, who they are of, a ball around
    the domain, the seed of noise and batches, and what :func:`normal_laws` and
    :func:`release_laws` both take.
    """

    @fit_context(prefer_skip_nested_validation=False)
    def plan(
        self,
        n_samples: int,
        n_features: int | None = None,
        *,
        class_sizes: ArrayLike | None = None,
    ) -> PrivacyReport:
        """Return the privacy report of a fit on a number of records, before any is read.

        Parameters
        ----------
        n_samples : int
            Number of records, or with ``unit`` of persons, as all sizes here.
        n_features : int or None, default=None
            Number of columns; it is needed where ``domain`` is a function of it.
        class_sizes : array-like of int of shape (n_classes,) or None, default=None
            Of public labels, in the order of the classes. None is a fit without labels, or with
            private ones where ``classes`` are declared.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit, with what noise leaves of the means, and about how long
            it takes.

        Raises
        ------
        ValueError
            What ``fit`` would refuse of the parameters, or sizes that do not fit together.

        Warns
        -----
        UserWarning
            Where noise leaves little of the mean of the records, as ``fit`` does.
        """
        self._check_declared()
        n_samples = check_count(n_samples, "n_samples")
        classes = self._planned_classes(n_samples, class_sizes)
        return self._planned(declared_domain(self, n_features), n_samples, *classes)[1]

    def _check_declared(self):
        self._check_unit()
        if self.output_transform is not None and self.output_domain is None:
            raise ValueError("output_transform needs an output_domain: where the network ends.")
        if self.output_transform is not None and self.schema is not None:
            raise ValueError("output_transform needs a domain: a schema's columns come after it.")

    def _check_release(self, has_labels):
        """Refuse what projections at each step cannot be."""
        if self.release != "projections":
            return
        if has_labels and self.labels == "private":
            raise ValueError(
                'release="projections" takes labels="public": of another label a record would move '
                "the projections of two classes, which is not priced."
            )
        if self.n_generators > 1:
            raise ValueError(
                'release="projections" trains one network, as each step has a release of its own: '
                f"n_generators must be 1, got {self.n_generators}."
            )

    def _planned(self, domain, n_samples, n_classes, class_sizes):
        """Return the plan of a fit, and its report.

        Parameters
        ----------
        domain : Domain
        n_samples : int
            Number of records, or of persons.
        n_classes : int
            0 without labels.
        class_sizes : ndarray of int or None
            Of public labels; None without any.
        """
        self._check_release(n_classes > 0)
        price = getattr(self, f"_price_{self.release}")
        plan = price(domain, n_samples, n_classes, class_sizes)
        relation, public = self._label_terms(n_classes > 0)
        fields = relation | {"public": ("n_samples", "domain", "column_names", *public)}
        name, noise = type(self).__name__, self._noise_description()
        if self.release == "moments":
            report = plan.report(name, noise, **fields)
        else:
            report = plan.report(
                name=name,
                events=(Event(_EVENTS[self.release]),),
                norm="l2",
                bounds=(Bound("l2_diameter", domain.diameter(2)),),
                noise_source=noise,
                **fields,
            )
        return plan, self._protected(report)

    def _price_moments(self, domain, n_samples, n_classes, class_sizes):
        return price_moments(
            enclosing_ball(domain),
            n_samples,
            max(1, n_classes),
            class_sizes=class_sizes if n_classes else [n_samples],
            label_proportions=self.label_proportions,
            epsilon=self.epsilon,
            delta=self._delta(n_samples),
        )

    def _price_projections(self, domain, n_samples, n_classes, class_sizes):
        d, automatic = domain.n_features, self.n_projections == "auto"
        n_projections = min(d, _MOST_DIRECTIONS) if automatic else self.n_projections
        return plan_projections(
            [n_samples] if class_sizes is None else list(map(int, class_sizes)),
            domain.diameter(2),
            ProjectionLaw(d, 1 if d == 1 else n_projections, self.directions),
            epsilon=self.epsilon,
            delta=self._delta(n_samples),
            batch_size=(
                min(n_samples, _BATCH_SIZE) if self.batch_size == "auto" else self.batch_size
            ),
            n_releases=self.max_iter,
        )

    def _price_records(self, domain, n_samples, n_classes, class_sizes):
        sizes = [n_samples] if class_sizes is None else list(map(int, class_sizes))
        is_private = n_classes > 0 and self.labels == "private"
        batch_size = self.batch_size
        if batch_size == "auto":
            # At one rate for all: a higher one of a small class would be paid by every class.
            batch_size = n_samples // max(1, min(sizes))
        return plan_releases(
            sizes,
            domain.diameter(2),
            domain.n_features,
            epsilon=self.epsilon,
            delta=self._delta(n_samples),
            batch_size=batch_size,
            n_epochs=self.n_epochs,
            slot_radius=enclosing_ball(domain).radius if is_private else None,
            n_slots=n_classes if is_private else 1,
            with_counts=is_private and self.label_proportions is None,
        )

    def _release_moments(self, plan, X, codes, n_classes, persons, ball, seed, lines):
        noise = self._noise_source(seed, X, codes, self.domain_)
        means, covariances, sizes = plan.release(X, codes, noise)
        if n_classes:
            self._set_proportions(sizes)
        return normal_laws(means - ball.center, covariances, ball.radius, **lines)

    def _release_records(self, plan, X, codes, n_classes, persons, ball, seed, lines):
        is_public = n_classes == 0 or self.labels == "public"
        records = ClassRecords(X - ball.center, codes, max(1, n_classes), is_public)
        noise = self._noise_source(seed, X, codes, n_classes, self.domain_)
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

    def _release_projections(self, plan, X, codes, n_classes, persons, ball, seed, lines):
        records = ClassRecords(
            X - ball.center, codes, max(1, n_classes), is_public=True, persons=persons
        )
        noise = self._noise_source(seed, X, codes, n_classes, self.domain_)
        if persons is not None:
            noise.bind(persons.codes)
        if n_classes:
            self.label_proportions_ = released_proportions(
                self.label_proportions, records.member_codes, n_classes, None, noise
            )
        return ProjectedBatches(
            plan.records,
            noise,
            records,
            ball.radius,
            q=self.q,
            device=lines["device"],
        )
