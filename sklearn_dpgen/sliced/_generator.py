"""DPSlicedWassersteinGenerator: private generative networks for tables and points."""

import os
from collections.abc import Callable
from functools import partial
from typing import Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike

from sklearn_dpgen.accounting import Bound, PrivacyReport
from sklearn_dpgen.domains import Domain
from sklearn_dpgen.domains._ball import enclosing_ball
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._base import Plan
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.nn import Training, linearize, mlp_generator
from sklearn_dpgen.nn._jacobian import clip_weights
from sklearn_dpgen.ot import sliced_wasserstein2_gradient
from sklearn_dpgen.persistence._networks import check_network
from sklearn_dpgen.preprocessing._records import (
    ENCODED_STATE,
    check_saved_encoding,
    declared_domain,
    decode_records,
    encode_records,
)
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.sliced._base import (
    CAVEATS,
    CHUNK,
    DTYPE,
    ClippedGradient,
    Descent,
    Records,
    SlicedEstimator,
    setting_defaults,
)
from sklearn_dpgen.sliced._objective import projection_spread, transport_gradient_sensitivity
from sklearn_dpgen.sliced._strata import Strata, StratifiedRecords
from sklearn_dpgen.utils._frames import FramesMixin
from sklearn_dpgen.utils._random import split_random_state, torch_generator
from sklearn_dpgen.utils._torch import resolve_device
from sklearn_dpgen.utils._validation import (
    Integral,
    Interval,
    check_array,
    check_count,
    check_is_fitted,
    check_n_samples,
    fit_context,
)

__all__ = ["DPSlicedWassersteinGenerator"]


def clip_released(gradients, bound):
    """Scale the released gradients of a step to a joint norm of at most ``bound``."""
    norm = torch.linalg.vector_norm(torch.cat([gradient.flatten() for gradient in gradients]))
    factor = torch.clamp(bound / norm, max=1.0)
    return [factor * gradient for gradient in gradients]


def generator_gradient(module, Z, records, directions, clip, ball=None, *, clipping="spectral"):
    """Return the clipped gradient of SW_2^2 between generated points and records.

    The sensitivity to a private latent holds for points in ``ball``, so they are projected on it.
    """
    with torch.no_grad():
        points = torch.nan_to_num(torch.cat([module(chunk) for chunk in Z.split(CHUNK)]))
    if ball is not None:
        points = ball.project(points)
    _, point_gradients, _ = sliced_wasserstein2_gradient(points, records, directions)
    totals = None
    for latents, cotangents in zip(Z.split(CHUNK), point_gradients.split(CHUNK), strict=True):
        jacobian = linearize(module, latents)
        weights = clip_weights(jacobian.gram(), cotangents, clip, clipping=clipping)
        sums = jacobian.weighted_sum(weights)
        totals = sums if totals is None else [a + b for a, b in zip(totals, sums, strict=True)]
    return totals


class DPSlicedWassersteinGenerator(FramesMixin, SlicedEstimator):
    """Private generator of synthetic records, trained with noisy sliced Wasserstein gradients.

    A network maps latents to points, and minimizes the squared sliced Wasserstein distance between
    these points and the private records. Only the transport plan depends on the records, so with
    public latents the sensitivity of a step is 2 D L s / n', where D is the diameter of the public
    domain, L the clip of the Jacobians of generated points, s = 1/sqrt(d) for directions in
    orthonormal blocks, and n' the batch size.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of the whole fit, in nats; ``np.inf`` trains without noise.
    delta : float or "auto", default="auto"
        Failure probability, in (0, 1). "auto" is 0.1 / n_samples.
    schema : Schema, str, path-like or None, default=None
        The public declaration of the columns of a table. Give either this or ``domain``.
    domain : Domain, callable or None, default=None
        The public set that holds the records, or a function of ``n_features`` that returns it.
        Records outside are projected on it.
    latent_dim : int, default=2
        Dimension of the latents, which are standard normal.
    training : Training or None, default=None
        Network and optimizer (:ref:`training_settings`). ``epsilon`` covers all steps.
        Defaults: ``hidden_layer_sizes=(128, 64, 64)``, ``activation="relu"``, ``max_iter=500``,
        ``solver="adam"``, ``learning_rate=0.005``, ``schedule="cosine"``, ``averaging=0.2``.
    gradient : ClippedGradient or None, default=None
        Clips and batches (:ref:`training_settings`), without ``task_clip`` and ``output_bound``.
        Defaults: ``jacobian_clip=1.0`` for each generated point, ``jacobian_clipping="spectral"``,
        ``n_projections=50``, ``batch_fraction=0.1``, with as many generated points, and
        ``released_clip=None``, which does not clip.
    ledger : PrivacyLedger, path or None, default=None
        Ledger that a fit charges before it releases anything. BudgetExceededError is raised if too
        little is left. None charges no ledger.
    unit : str or None, default=None
        Name of the column of X, a data frame, that identifies the person of a row
        (:ref:`budget_persons`). A person then counts as one record, and each step draws one row of
        each person in its batch. The column is not learned from. None protects single rows.
    random_state : int, RandomState or None, default=None
        None draws noise and batches from the operating system's entropy. An int repeats the fit,
        and voids the guarantee against anybody who knows or guesses it.

    Attributes
    ----------
    module_ : torch.nn.Module
        The network, in double precision. It maps (n, latent_dim) to the domain.
    domain_ : Domain
        The set that holds the records and the generated points.
    encoder_ : TabularEncoder
        The map from the table to the domain; only with a schema.
    privacy_ : PrivacyReport
        The guarantee of the fit.
    noise_multiplier_ : float
        Standard deviation of the noise divided by the sensitivity.
    mechanism_ : StratifiedGaussianMechanism
        The mechanism of a step; ``mechanism_.epsilons(t)`` is the cost of t steps for each stratum.
    n_iter_ : int
        Number of steps.
    n_features_in_ : int
        Number of columns.

    Notes
    -----
    **Formal guarantee**

    :Promise: Central (ε, δ)-differential privacy of all iterates of the training, and so of the
        generator and its samples.
    :Neighbours: Replace one record; the number of records is public. With private ``latents``:
        replace one record or one latent by another; the numbers of them are public. With ``unit``:
        a person with all their rows in place of a record.
    :Public: ``n_samples``, and with private latents the number of latents; ``domain``, or that of
        ``schema``; names of the columns. With ``unit``: numbers of persons, and not those of their
        rows.
    :Bounded by: The declared domain, on which records are projected, and Jacobians of generated
        points, clipped to ``jacobian_clip``; directions are in orthonormal blocks.
    :Noise: Gaussian on the summed gradients of secret batches, by
        :class:`~sklearn_dpgen.mechanisms.StratifiedGaussianMechanism`, which also draws the
        batches, in floating point, from the operating system's entropy.
    :Priced by: The privacy profile of the Gaussian mechanism under sampling without replacement,
        composed numerically over all steps.
    :Not covered: What was fitted on the same records before, such as a scaler; other fits of the
        same records, which a ``ledger`` adds up; errors of a fit; a ``random_state`` that others
        know or guess.
    :Proof: :ref:`sensitivity`; of the training :ref:`central-training`.

    After a fit with private ``latents``, use ``sample`` if they are standard normal, and
    ``transform_latents`` otherwise.

    References
    ----------
    .. [1] D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private
       (sliced) Wasserstein gradients", 2025, Theorem A.1 and appendix C. The factor s is ours.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import make_half_circle
    >>> from sklearn_dpgen.domains import Ball
    >>> from sklearn_dpgen.nn import Training
    >>> from sklearn_dpgen.sliced import DPSlicedWassersteinGenerator
    >>> X = make_half_circle(2000, random_state=0)
    >>> domain = Ball(1.0, n_features=2)
    >>> generator = DPSlicedWassersteinGenerator(domain=domain, training=Training(max_iter=20))
    >>> generator.fit(X).sample(3).shape
    (3, 2)
    """

    _saved_state: dict = ENCODED_STATE
    _parameter_constraints: dict = {
        **SlicedEstimator._parameter_constraints,
        "schema": [Schema, None],
        "domain": [Domain, callable, None],
        "latent_dim": [Interval(Integral, 1, None, closed="left")],
    }
    _setting_defaults: dict = setting_defaults(
        {"hidden_layer_sizes": (128, 64, 64), "max_iter": 500, "learning_rate": 0.005},
        {
            "jacobian_clip": 1.0,
            "jacobian_clipping": "spectral",
            "batch_fraction": 0.1,
            "released_clip": None,
        },
    )

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | str = "auto",
        *,
        schema: Schema | str | os.PathLike | None = None,
        domain: Domain | Callable[..., Domain] | None = None,
        latent_dim: int = 2,
        training: Training | None = None,
        gradient: ClippedGradient | None = None,
        ledger: LedgerLike = None,
        unit: str | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.schema = schema
        self.domain = domain
        self.latent_dim = latent_dim
        self.training = training
        self.gradient = gradient
        self.ledger = ledger
        self.unit = unit
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=True)
    def plan(
        self, n_samples: int, n_features: int | None = None, *, n_latents: int | None = None
    ) -> PrivacyReport:
        """Return the privacy report of a fit, from public sizes alone.

        Parameters
        ----------
        n_samples : int
            Number of records, or with ``unit`` of persons.
        n_features : int or None, default=None
            Number of columns, required if ``domain`` is a function of it.
        n_latents : int or None, default=None
            Number of private latents. None is a fit with public latents.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit on records of these sizes.

        Raises
        ------
        PublicValueError
            ``fit`` would refuse the parameters.
        """
        self._check_unit()
        sizes = [check_count(n_samples, "n_samples")]
        if n_latents is not None:
            sizes.append(check_count(n_latents, "n_latents"))
            self._check_no_unit()
        return self._plan(tuple(sizes), declared_domain(self, n_features)).report

    def _plan(self, sizes, domain):
        strata = Strata(sizes)
        batch_sizes = strata.batch_sizes(self._gradient.batch_fraction)
        mechanism = self._price(strata, self._sensitivities(batch_sizes, domain), strata.sizes[0])
        widths = self._layer_widths(self.latent_dim, domain.n_features)
        # Each point is at most a diameter from the record that it is matched with.
        largest = batch_sizes[0] * self._sensitivities(batch_sizes[:1], domain)[0]
        report = self._report(
            mechanism,
            [widths],
            {"the distance": largest},
            **self._guarantee_fields(domain, len(strata.sizes) > 1),
        )
        private = tuple(range(len(sizes)))
        return Plan(report, Descent(domain, mechanism, (widths,), private, tuple(batch_sizes)))

    def _check_no_unit(self):
        if self.unit is not None:
            raise PublicValueError("latents must be None with unit: latents identify no person.")

    def _sensitivities(self, batch_sizes, domain):
        """Return the l2 sensitivities of a step to replacing a record, and a private latent."""
        d = domain.n_features
        spread = projection_spread(self._n_directions(d), d)
        n_records, *n_latents = batch_sizes
        records = transport_gradient_sensitivity(
            n_records,
            radius=domain.diameter(2) / 2,
            clip=0.0,
            other_clip=self._gradient.jacobian_clip,
            spread=spread,
        )
        return [records] + [
            transport_gradient_sensitivity(
                n,
                radius=enclosing_ball(domain).radius,
                clip=self._gradient.jacobian_clip,
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
                Bound("point_jacobian_clip", self._gradient.jacobian_clip),
                Bound("orthonormal_directions"),
            ),
            "caveats": CAVEATS,
        }

    @fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: ArrayLike | pd.DataFrame, y: object = None, *, latents: ArrayLike | None = None
    ) -> Self:
        """Train the network on private records.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            Private records.
        y : Ignored
        latents : array-like of shape (n_latents, latent_dim), or None
            Private latents that the network maps to the distribution of X, instead of public normal
            ones (appendix C of the paper). The guarantee covers them too.

        Returns
        -------
        self : object

        Raises
        ------
        TrainingDivergedError
            A noisy gradient or a parameter is not finite.
        """
        return self._fit(X, latents=latents)

    def _read(self, X, *, seed, latents):
        resolve_device(self._training.device)
        self._check_unit()
        X, persons = self._split_unit(X)
        samples = [encode_records(self, X)]
        if latents is not None:
            self._check_no_unit()
            samples.append(_check_latents(latents, self.latent_dim))
        stratified = StratifiedRecords.from_samples(
            map(len, samples), [persons, None][: len(samples)]
        )
        records = Records(stratified, tuple(samples), (self.domain_,))
        return records, {"sizes": stratified.sizes, "domain": self.domain_}

    def _network(self, descent):
        ((latent_dim, *hidden, _),) = descent.layer_widths
        return mlp_generator(latent_dim, self.domain_, hidden, self._training.activation)

    def _gradients(self, descent, module, tensors, seed):
        latent_seed, direction_seed = split_random_state(seed, 2)
        device, domain = tensors[0].device, descent.objective
        draw_directions = self._directions(direction_seed, domain.n_features, device)
        normal = torch_generator(latent_seed, device)
        settings = self._gradient
        # The sensitivity to a private latent holds for points in a ball.
        ball = enclosing_ball(domain) if len(tensors) > 1 else None

        def gradient(rows):
            records, *latents = (
                sample[torch.from_numpy(indices).to(device)]
                for sample, indices in zip(tensors, rows, strict=True)
            )
            if not latents:
                shape = (len(records), self.latent_dim)
                latents = [torch.randn(shape, generator=normal, dtype=DTYPE, device=device)]
            return generator_gradient(
                module,
                latents[0],
                records,
                draw_directions(),
                settings.jacobian_clip,
                ball,
                clipping=settings.jacobian_clipping,
            )

        if settings.released_clip is None:
            return gradient, None
        return gradient, partial(clip_released, bound=settings.released_clip)

    def sample(
        self, n_samples: int = 1, *, random_state: int | np.random.RandomState | None = None
    ) -> np.ndarray | pd.DataFrame:
        """Draw synthetic records from normal latents.

        Parameters
        ----------
        n_samples : int, default=1
            Number of synthetic records. It costs no privacy.
        random_state : int, RandomState or None, default=None
            Seed of the draw.

        Returns
        -------
        X : ndarray or data frame of shape (n_samples, n_features)
            A data frame with a schema, or if X of ``fit`` was one with column names.
        """
        check_is_fitted(self)
        n_samples = check_n_samples(n_samples)
        latent_seed, category_seed = split_random_state(random_state, 2)
        generator = torch_generator(latent_seed)
        shape: tuple = (n_samples, self.module_[0].in_features)
        Z = torch.randn(shape, generator=generator, dtype=DTYPE)
        return self._decode(Z, np.random.default_rng(category_seed))

    def transform_latents(self, latents: ArrayLike) -> np.ndarray | pd.DataFrame:
        """Map latents, such as those of ``fit``, to synthetic records.

        Parameters
        ----------
        latents : array-like of shape (n_samples, latent_dim)

        Returns
        -------
        X : ndarray or data frame of shape (n_samples, n_features)
            As in :meth:`sample`, but with the most probable category of each categorical column.
        """
        check_is_fitted(self)
        latents = _check_latents(latents, self.module_[0].in_features)
        return self._decode(latents, None)

    def _decode(self, Z, rng):
        return decode_records(self, self._forward(self.module_, Z), rng)

    def _check_saved_state(self):
        super()._check_saved_state()
        width = check_saved_encoding(self)
        check_network(self.module_, self.latent_dim, width, dtype=DTYPE)


def _check_latents(latents, latent_dim):
    latents = check_array(latents, dtype=np.float64, input_name="latents")
    if latents.shape[1] != latent_dim:
        raise PublicValueError(
            f"latents must have latent_dim = {latent_dim} columns, got {latents.shape[1]}."
        )
    return latents
