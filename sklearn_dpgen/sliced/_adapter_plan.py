"""The plan of an adapter: what is private, what a step releases of it, and what it costs."""

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.accounting._checks import check_count
from sklearn_dpgen.domains import Ball
from sklearn_dpgen.ledger._base import Plan
from sklearn_dpgen.sliced._adaptation import SIDES, adaptation_guarantee, source_report
from sklearn_dpgen.sliced._base import Descent, count_parameters
from sklearn_dpgen.sliced._noise_effect import step_precision
from sklearn_dpgen.sliced._objective import FairObjective
from sklearn_dpgen.sliced._strata import Strata
from sklearn_dpgen.utils._validation import EstimatorMixin, fit_context

__all__ = ["AdapterPlanMixin"]


class AdapterPlanMixin(EstimatorMixin):
    """The plan of an adapter, by its parameter ``private``."""

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
            Number of private records, or with ``unit`` of persons: of the target, of the source,
            or of both. Without any, of a private target, the source alone is learned from.
        n_features : int
            Number of features.
        n_source : int or None, default=None
            How many of them are of the source, where both domains are private. It is not read
            otherwise: the size of a public domain costs nothing.
        n_classes : int, default=2
            Number of labels of the source.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit with both domains, with what its noise leaves of the
            gradients, and about how long it takes.

        Raises
        ------
        ValueError
            What ``fit`` would refuse of the parameters, or sizes that do not fit together.
        """
        n_classes = check_count(n_classes, "n_classes")
        if self.private == "both":
            n_source = check_count(n_source, "n_source")
            sizes = (n_source, check_count(n_samples, "n_samples") - n_source)
            if sizes[1] < 1:
                raise ValueError("n_source must be less than n_samples: some are of the target.")
        elif self.private == "source":
            sizes = (check_count(n_samples, "n_samples"), 1)
        else:
            sizes = (1, 0 if n_samples == 0 else check_count(n_samples, "n_samples"))
        return self._plan(sizes, n_features, n_classes).report

    def _is_private(self, position):
        return self.private in (SIDES[position], "both")

    def _stacks(self, n_features, n_classes):
        """Return the widths of the network of the features, and of the classifier."""
        n_features = check_count(n_features, "n_features")
        return [n_features, *self._widths(), self.feature_dim], [self.feature_dim, n_classes]

    def _plan(self, sizes, n_features, n_classes):
        stacks = tuple(self._stacks(n_features, n_classes))
        compares = self.alpha > 0 and sizes[1] > 0
        strata = Strata(tuple(sizes), ((0, 1),)) if compares else Strata((sizes[0],))
        private = tuple(filter(self._is_private, range(len(strata.sizes))))
        objective = FairObjective(
            alpha=self.alpha if compares else 0.0,
            strata=strata,
            task_clip=self.task_clip,
            jacobian_clip=self.jacobian_clip,
            ball=Ball(self.output_bound, n_features=self.feature_dim),
            n_directions=self._n_directions(self.feature_dim),
            group_weights="equal",
            n_labelled=1,
        )
        if not private:
            report = self._protected(source_report(type(self).__name__))
            return Plan(report, Descent(objective, None, stacks, private, ()))
        batch_sizes = self._batch_sizes(strata, private)
        sensitivities = objective.sensitivities(batch_sizes)
        protected = Strata(tuple(strata.sizes[position] for position in private))
        mechanism = self._price(
            protected, [sensitivities[position] for position in private], sum(protected.sizes)
        )
        # The loss on a public source is not released.
        released = stacks if 0 in private else stacks[:1]
        task, distance = objective.largest_gradients()
        norms = {"the task": task if 0 in private else 0.0, "the distance": distance}
        n_values = sum(map(count_parameters, released))
        report = self._report(
            mechanism,
            n_values,
            precision=step_precision(norms, mechanism, n_values),
            **adaptation_guarantee(objective, private),
        )
        return Plan(report, Descent(objective, mechanism, stacks, private, batch_sizes))

    def _batch_sizes(self, strata, private):
        """Return the records a step of each domain; of a public one as many as of the other."""
        sizes = strata.batch_sizes(self.batch_fraction)
        largest = max(sizes[position] for position in private)
        return tuple(
            size if position in private else min(largest, there)
            for position, (size, there) in enumerate(zip(sizes, strata.sizes, strict=True))
        )
