"""The plan of a generator: what a step moves by for one record, and what all steps cost."""

from sklearn_dpgen.accounting import Bound, PrivacyReport
from sklearn_dpgen.accounting._checks import check_count
from sklearn_dpgen.domains._ball import enclosing_ball
from sklearn_dpgen.ledger._base import Plan
from sklearn_dpgen.preprocessing._records import declared_domain
from sklearn_dpgen.sliced._base import CAVEATS, Descent, count_parameters
from sklearn_dpgen.sliced._noise_effect import step_precision
from sklearn_dpgen.sliced._sensitivity import projection_spread, transport_gradient_sensitivity
from sklearn_dpgen.sliced._strata import Strata
from sklearn_dpgen.utils._validation import EstimatorMixin, fit_context

__all__ = ["GeneratorPlanMixin"]


class GeneratorPlanMixin(EstimatorMixin):
    """The plan of a generator of sliced Wasserstein gradients."""

    @fit_context(prefer_skip_nested_validation=True)
    def plan(
        self, n_samples: int, n_features: int | None = None, *, n_latents: int | None = None
    ) -> PrivacyReport:
        """Return the privacy report of a fit on a number of records, before any is read.

        Parameters
        ----------
        n_samples : int
            Number of records, or with ``unit`` of persons.
        n_features : int or None, default=None
            Number of columns; it is needed where ``domain`` is a function of it.
        n_latents : int or None, default=None
            Number of private latents; None is a fit with public ones.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit, with what its noise leaves of the gradients, and about
            how long it takes.

        Raises
        ------
        ValueError
            What ``fit`` would refuse of the parameters.
        """
        self._check_unit()
        sizes = [check_count(n_samples, "n_samples")]
        if n_latents is not None:
            sizes.append(check_count(n_latents, "n_latents"))
            self._check_unit_of_latents()
        return self._plan(tuple(sizes), declared_domain(self, n_features)).report

    def _plan(self, sizes, domain):
        strata = Strata(sizes)
        batch_sizes = strata.batch_sizes(self.batch_fraction)
        mechanism = self._price(strata, self._sensitivities(batch_sizes, domain), strata.sizes[0])
        widths = [self.latent_dim, *self._widths(), domain.n_features]
        # As far as all points can be from the records that they are matched with.
        longest = batch_sizes[0] * self._sensitivities(batch_sizes[:1], domain)[0]
        n_values = count_parameters(widths)
        report = self._report(
            mechanism,
            n_values,
            precision=step_precision({"the distance": longest}, mechanism, n_values),
            **self._guarantee_fields(domain, len(strata.sizes) > 1),
        )
        private = tuple(range(len(sizes)))
        return Plan(report, Descent(domain, mechanism, (widths,), private, tuple(batch_sizes)))

    def _check_unit_of_latents(self):
        if self.unit is not None:
            raise ValueError("latents have no column of persons: leave out unit, or latents.")

    def _sensitivities(self, batch_sizes, domain):
        """Return the l2 sensitivity of a step to replacing a record, or a private latent."""
        width = domain.n_features
        spread = projection_spread(self._n_directions(width), width)
        n_records, *n_latents = batch_sizes
        records = transport_gradient_sensitivity(
            n_records,
            radius=domain.diameter(2) / 2,
            clip=0.0,
            other_clip=self.jacobian_clip,
            spread=spread,
        )
        return [records] + [
            transport_gradient_sensitivity(
                n,
                radius=enclosing_ball(domain).radius,
                clip=self.jacobian_clip,
                other_clip=0.0,
                spread=spread,
            )
            for n in n_latents
        ]

    def _guarantee_fields(self, domain, private_latents):
        sizes = ("n_samples", "n_latents") if private_latents else ("n_samples",)
        return {
            "protected": "record_or_latent" if private_latents else "record",
            "public": (*sizes, "domain", "column_names"),
            "norm": "l2",
            "bounds": (
                Bound("l2_diameter", domain.diameter(2)),
                Bound("point_jacobian_clip", self.jacobian_clip),
                Bound("orthonormal_directions"),
            ),
            "caveats": CAVEATS,
        }
