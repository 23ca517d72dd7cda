"""What an adapter releases of its target: features, projections of them, or moments of records."""

from functools import partial

import numpy as np
import torch

from sklearn_dpgen.accounting import Bound, Event, PrivacyReport, ProjectionLaw
from sklearn_dpgen.accounting._checks import check_count
from sklearn_dpgen.domains._ball import enclosing_ball
from sklearn_dpgen.mechanisms._class_moments import price_moments
from sklearn_dpgen.preprocessing._records import resolve_domain
from sklearn_dpgen.smoothed._adaptation import (
    adapt_to_moved,
    adapt_to_projections,
    adapt_to_releases,
)
from sklearn_dpgen.smoothed._features import RADIUS, feature_records
from sklearn_dpgen.smoothed._laws import projected_laws, release_laws
from sklearn_dpgen.smoothed._normal_map import normal_map
from sklearn_dpgen.smoothed._plan import ReleasePlan, plan_projections, plan_releases
from sklearn_dpgen.utils._torch import as_array, as_tensor
from sklearn_dpgen.utils._validation import EstimatorMixin, fit_context

__all__ = ["AdapterReleasesMixin", "ProjectedFeatures"]

# For projections: fewer records show hardly more of a law than the noise on them.
_BATCH_SIZE = 512
_EVENTS = {"features": "target_features", "projections": "target_projections"}


class ProjectedFeatures:
    """Noisy projections of the features of secret batches, on fresh directions for each.

    Parameters
    ----------
    mechanism : StratifiedGaussianMechanism
        With the law of the directions.
    noise : NoiseSource
        Of the directions, of the batches, and of their noise.
    X : Tensor of shape (n, n_inputs)
        Private records.
    shape_weight : float or "auto"
        As of :func:`release_laws`.
    persons : Persons or None, default=None
        Of whom the records are, where a batch is one of persons: of each one row, drawn anew.
    """

    def __init__(self, mechanism, noise, X, *, shape_weight, persons=None):
        self._run, self._noise, self._persons = mechanism.run(noise), noise, persons
        self._law = mechanism.projections
        self._X = X
        self._to_laws = partial(
            projected_laws, scale=mechanism.noise_scale, radius=RADIUS, shape_weight=shape_weight
        )

    def __call__(self, module):
        """Make the next release.

        Parameters
        ----------
        module : AdaptedNetwork
            As it is now.

        Returns
        -------
        ReleasedLaws
            On the directions of this release.
        """
        directions, X = self._law.draw(self._noise), self._X
        (rows,) = self._run.draw()
        if self._persons is not None:
            rows = self._persons.draw(self._noise, rows)
        features = feature_records(module, X[torch.from_numpy(rows).to(X.device)]).records
        projected = features @ directions.T
        released = self._run.release(projected.ravel()).reshape(projected.shape)
        return self._to_laws(*(as_tensor(a, device=X.device) for a in (released, directions)))


class AdapterReleasesMixin(EstimatorMixin):
    """The releases of an adapter, by its parameter ``release``: planned, told, and learned from."""

    @fit_context(prefer_skip_nested_validation=True)
    def plan(
        self,
        n_samples: int,
        n_features: int,
        *,
        n_source: int | None = None,
        n_classes: int = 2,
    ) -> PrivacyReport:
        """Return the privacy report of a fit on a number of records, before any is read.

        Parameters
        ----------
        n_samples : int
            Number of target records, or with ``unit`` of persons. Without any the source alone is
            learned from.
        n_features : int
            Number of features.
        n_source : int or None, default=None
            Number of source records, which are public: nothing depends on it.
        n_classes : int, default=2
            Number of labels of the source.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit, with what noise leaves of the releases, and about how
            long it takes.

        Raises
        ------
        ValueError
            What ``fit`` would refuse of the parameters.

        Warns
        -----
        UserWarning
            Where noise leaves little of the mean of the records, as ``fit`` does.
        """
        n_samples = 0 if n_samples == 0 else check_count(n_samples, "n_samples")
        n_features = check_count(n_features, "n_features")
        return self._planned(n_samples, n_features, check_count(n_classes, "n_classes"))[1]

    def _planned(self, n_target, n_features, n_classes):
        """Return the plan of a fit, its report, and the domain of moments or None."""
        domain = None
        if self._releases(n_target) and self.release == "moments":
            if self.domain is None:
                raise ValueError('release="moments" needs a domain: where target records lie.')
            domain = resolve_domain(self.domain, n_features)
        plan = self._price(n_target, domain)
        return plan, self._protected(self._report(plan, n_target)), domain

    def _price(self, n_target, domain):
        """Price every release from public quantities."""
        if not self._releases(n_target):
            return ReleasePlan(None)
        budget = {"epsilon": self.epsilon, "delta": self._delta(n_target)}
        if self.release == "moments":
            return price_moments(
                enclosing_ball(domain),
                n_target,
                1,
                class_sizes=[n_target],
                label_proportions=None,
                **budget,
            )
        if self.release == "projections":
            k = self.feature_dim if self.n_projections == "auto" else self.n_projections
            law = ProjectionLaw(self.feature_dim, k, self.directions)
            batch_size = min(_BATCH_SIZE, n_target)
            budget["batch_size"] = batch_size if self.batch_size == "auto" else self.batch_size
            return plan_projections([n_target], 2 * RADIUS, law, n_releases=self.max_iter, **budget)
        batch_size = 1 if self.batch_size == "auto" else self.batch_size
        return plan_releases(
            [n_target],
            2 * RADIUS,
            self.feature_dim,
            batch_size=batch_size,
            n_epochs=self.n_epochs,
            **budget,
        )

    def _releases(self, n_target):
        return n_target > 0 and self.adaptation_weight > 0

    def _report(self, plan, n_target):
        """Return the report, for a number of target records."""
        name, noise = type(self).__name__, self._noise_description()
        public = ["source", "sample_domain", "column_names", "domain_sizes"]
        fields = {"protected": "target_record"}
        if not self._releases(n_target):
            return plan.report(
                name=name, events=(Event("nothing"),), public=tuple(public), **fields
            )
        if self.release == "moments":
            return plan.report(name, noise, public=(*public, "domain"), **fields)
        bounds = [Bound("feature_radius", RADIUS)]
        if self.release == "projections":
            bounds.append(Bound("directions_averaged"))
        return plan.report(
            name=name,
            events=(Event(_EVENTS[self.release]),),
            public=tuple(public),
            norm="l2",
            bounds=tuple(bounds),
            noise_source=noise,
            **fields,
        )

    def _adapt(
        self, module, source, labels, target, persons, plan, noise_seed, line_seed, **options
    ):
        """Make the releases and train on them; return the TrainingResult."""
        adapt = getattr(self, f"_adapt_to_{self.release}")
        if self.release == "projections":
            options["persons"] = persons
        elif persons is not None:
            noise = self._noise_source(noise_seed, "rows of persons", persons.codes)
            target = target[torch.from_numpy(persons.draw(noise)).to(target.device)]
        seeds = noise_seed, line_seed
        return adapt(module, source, labels, target, plan, seeds, **options)

    def _adapt_to_features(self, module, source, labels, target, plan, seeds, **options):
        records = feature_records(module, target)
        laws = release_laws(
            plan.records,
            self._noise_source(seeds[0], records.records),
            records,
            RADIUS,
            n_projections=self.n_projections,
            kind=self.directions,
            shape_weight=self.shape_weight,
            seed=seeds[1],
            device=target.device,
            verbose=self.verbose,
        )
        with torch.no_grad():
            features = module.features(source)
        weight = self.adaptation_weight * self.feature_dim
        return adapt_to_releases(module, features, labels, laws, weight=weight, **options)

    def _adapt_to_projections(
        self, module, source, labels, target, plan, seeds, *, persons, **options
    ):
        # Of a seed, releases of other records share neither directions nor batches.
        noise = self._noise_source(seeds[0], *map(as_array, (target, source, labels)))
        if persons is not None:
            noise.bind(persons.codes)
        releases = ProjectedFeatures(
            plan.records,
            noise,
            target,
            shape_weight=self.shape_weight,
            persons=persons,
        )
        weight = self.adaptation_weight * self.feature_dim
        return adapt_to_projections(module, source, labels, releases, weight=weight, **options)

    def _adapt_to_moments(self, module, source, labels, target, plan, seeds, **options):
        X = self.domain_.project(as_array(target))
        codes = np.zeros(len(X), dtype=np.int64)
        noise = self._noise_source(seeds[0], X, codes, self.domain)
        (mean,), (covariance,), _ = plan.release(X, codes, noise)
        own = np.cov(as_array(source), rowvar=False, ddof=0).reshape(covariance.shape)
        module.transport.set_to(normal_map(own, covariance), mean)
        weight = self.adaptation_weight
        return adapt_to_moved(module, source, labels, weight=weight, **options)
