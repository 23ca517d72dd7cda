"""SmoothedSlicedWassersteinAdapter: a classifier for a private domain without labels."""

from collections.abc import Callable
from functools import partial
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike

from sklearn_dpgen.accounting import Bound, Event, PrivacyReport, ProjectionLaw
from sklearn_dpgen.domains import Domain
from sklearn_dpgen.domains._ball import enclosing_ball
from sklearn_dpgen.ledger._base import Plan, TrainedEstimator
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.ledger._unit import Persons
from sklearn_dpgen.mechanisms._class_moments import price_moments
from sklearn_dpgen.nn import Training
from sklearn_dpgen.persistence._declarations import Maybe
from sklearn_dpgen.preprocessing._records import resolve_domain
from sklearn_dpgen.smoothed._features import (
    RADIUS,
    AdaptedNetwork,
    AffineMove,
    feature_records,
    normal_map,
)
from sklearn_dpgen.smoothed._plan import ReleasePlan, plan_projections, plan_releases
from sklearn_dpgen.smoothed._releases import NoisyRelease, projected_laws, release_laws
from sklearn_dpgen.smoothed._training import (
    adapt_to_moved,
    adapt_to_projections,
    adapt_to_releases,
    train_on_source,
)
from sklearn_dpgen.utils._random import split_random_state, torch_generator
from sklearn_dpgen.utils._source_and_target import (
    check_labels_of_both,
    encode_source_labels,
    source_mask,
)
from sklearn_dpgen.utils._target_classifier import TargetClassifierMixin
from sklearn_dpgen.utils._torch import as_array, as_tensor, resolve_device, seeded_initialization
from sklearn_dpgen.utils._validation import (
    Integral,
    Interval,
    Real,
    check_count,
    check_widths,
    fit_context,
    validate_data,
)

__all__ = ["ProjectedFeatures", "SmoothedSlicedWassersteinAdapter"]

# Rounding errors are then far below the noise.
_DTYPE = torch.float64
# Automatic batch size for projections: smaller batches show little but their noise.
_BATCH_SIZE = 512
_EVENTS = {"records": "target_features", "projections": "target_projections"}


class ProjectedFeatures:
    """Noisy projections of the features of secret batches, on fresh directions for each.

    Parameters
    ----------
    mechanism : StratifiedGaussianMechanism
        Mechanism with the distribution of the directions.
    noise : NoiseSource
        Source of the directions, of the batches, and of their noise.
    X : Tensor of shape (n, n_inputs)
        Private records.
    shape_weight : float or "auto"
        As in :func:`release_laws`.
    persons : Persons or None, default=None
        The persons of the records, if batches consist of persons. Each contributes one row, drawn
        anew for each batch.
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
            The network at this step.

        Returns
        -------
        ReleasedLaws
            Distributions on the directions of this release.
        """
        directions, X = self._law.draw(self._noise), self._X
        (rows,) = self._run.draw()
        if self._persons is not None:
            rows = self._persons.draw(self._noise, rows)
        features = feature_records(module, X[torch.from_numpy(rows).to(X.device)]).records
        projected = features @ directions.T
        released = self._run.release(projected.ravel()).reshape(projected.shape)
        return self._to_laws(*(as_tensor(a, device=X.device) for a in (released, directions)))


class SmoothedSlicedWassersteinAdapter(TargetClassifierMixin, TrainedEstimator):
    """Classifier of a private domain without labels, learned from a public one with labels.

    A network is trained on the public source. Then features or moments of the private target are
    released with noise. A map moves the source to the target, and the network is trained on the
    moved records with the labels of the source. Only the releases depend on the target.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of the whole fit for the target records, in nats; ``np.inf`` trains without
        noise.
    delta : float or "auto", default="auto"
        Failure probability, in (0, 1). "auto" is 0.1 / (number of target records).
    release : NoisyRelease or None, default=None
        What is released of the target, and what is moved, by its ``kind``. None is that of
        ``NoisyRelease()``.

        - "records": features of the records in the trained network, which stays fixed. A map of
          features moves their distribution, with noise added, to that of the releases in the
          squared sliced Wasserstein distance. An "auto" batch is one record.
        - "projections": Algorithm 2 of [1]_. Each step releases noisy projections of the current
          features of a secret batch, on directions of its own. A map of records is trained by the
          same distance between features, and the whole network is trained throughout. An "auto"
          batch is 512 records, or all, on ``feature_dim`` directions.
        - "moments": mean and covariance of the records, in the two releases of
          :class:`~sklearn_dpgen.moments.MomentSampler`. The map of records is the optimal one
          between normal distributions with these moments, in closed form. The network is trained
          on records of the source, both unchanged and moved. Try this one first: it gives the
          most information for a budget, and is the fastest.
    domain : Domain, callable or None, default=None
        The set that holds the target records, or a function of ``n_features`` that returns it.
        Required with a ``release`` of moments, and used by it alone. Records outside are moved to
        its nearest point.
    feature_dim : int, default=32
        Number of features that are compared between the domains.
    adaptation_weight : float, default=3.0
        Weight of the squared distance relative to the cross-entropy, in the training of the map.
        The distance is the mean over directions, times ``feature_dim``, in units of the radius of
        the features. With moments it is the weight of the cross-entropy of moved records relative
        to that of unchanged ones. 0 trains on the source alone, and releases nothing.
    source_batch_size : int, default=512
        Source records in a step.
    source_iter : int, default=3000
        Steps on the source alone. They cost no privacy.
    source_learning_rate : float, default=0.002
        Peak learning rate of the steps on the source alone.
    training : Training or None, default=None
        Network before the features, and optimizer: :ref:`training_settings`. Defaults:
        ``hidden_layer_sizes=(128,)``, ``activation="relu"``; ``max_iter=1500`` and
        ``learning_rate=0.001`` of the adaptation, whose steps cost no privacy, except with a
        ``release`` of projections, where each step makes a release; ``solver="adam"``,
        ``averaging=0.3``.
    ledger : PrivacyLedger, path or None, default=None
        Ledger that a fit charges before it releases anything. BudgetExceededError is raised if
        too little is left. None charges no ledger.
    unit : str or None, default=None
        Name of the column of X, a data frame, that identifies the person of a row. The guarantee
        then protects a person with all their target rows, who counts as one record: one row of
        each person is drawn, for projections a new one at each step. What is learned is the
        distribution of a random row of a random person. Source rows are public. The column is not
        learned from. None protects single rows.
    random_state : int, RandomState or None, default=None
        None draws noise and batches from the operating system's entropy. An int repeats the fit,
        and voids the guarantee against anybody who knows or guesses it.

    Attributes
    ----------
    module_ : torch.nn.Module
        Network from (n, n_features) to logits (n, n_classes), in double precision.
    classes_ : ndarray of shape (n_classes,)
        The labels of the source.
    domain_ : Domain
        The set that holds the target records; with a ``release`` of moments only.
    privacy_ : PrivacyReport
        The guarantee of the fit, for target records.
    noise_multiplier_ : float
        Standard deviation of the noise over the sensitivity; 0 if nothing is released.
    loss_curve_ : list of float
        Losses of the steps of adaptation, computed from releases and public data. The distance is
        reduced by that between batches of one distribution.
    n_iter_ : int
        Number of steps, including those on the source.
    n_features_in_ : int
        Number of features.

    Notes
    -----
    **Formal guarantee**

    :Promise: Central (ε, δ)-differential privacy of all that is released of the target records, and
        so of the network.
    :Neighbours: Replace one target record; the numbers of source and target records are public.
        With ``unit``: a person with all their rows in place of a record.
    :Public: Numbers of source and target records; ``sample_domain``; names of the columns; source
        records and their labels; ``domain``, with a ``release`` of moments. With ``unit``: numbers
        of persons, and not those of their rows.
    :Bounded by: Features of the network are moved into a ball of radius 1/2, each row by its own
        norm: a record moves a release by 1 at most. For moments a ball around ``domain``.
    :Noise: Gaussian on secret batches of features, or on projections of them, by
        :class:`~sklearn_dpgen.mechanisms.StratifiedGaussianMechanism`, which also draws the
        batches; on moments by :class:`~sklearn_dpgen.mechanisms.ClassSumMechanism`. All in floating
        point, from the operating system's entropy.
    :Priced by: The privacy profile of the Gaussian mechanism under sampling without replacement,
        composed numerically over all releases. Projections by the law of their directions; moments,
        without sampling, in closed form.
    :Not covered: Predictions for private records, which tell of these; ``score``, which reads
        labels of the target; what was fitted on the target records before, such as a scaler or an
        embedding; other fits of the same records, which a ``ledger`` adds up; errors of a fit; a
        ``random_state`` that others know or guess.
    :Proof: :doc:`/smoothed`; of moments :ref:`moments_sensitivity`, Theorems 3 and 4.

    The paper divides features by the largest norm in the batch, which is another release that is
    not paid for. Here each row is clipped by its own norm.

    In the paper the gradient of the distance also passes through the features of the target, which
    the guarantee of the releases does not cover. Without that part, the distance would drive
    features that both domains share apart. Here the distance trains a map of the source instead,
    and not the features. If the features stay fixed, all releases are of one distribution. They
    are then released without projection, which is equivalent to projecting on a whole orthonormal
    basis, and are compared with the source as often as needed.

    ``predict`` takes records of the target, whose features are not moved.

    A grid search with k candidates on the same target records spends k budgets for each fold and
    each refit. ``score`` needs labels of the target, which ``fit`` does not read: route
    ``sample_domain`` to both, with ``set_fit_request`` and ``set_score_request``.

    References
    ----------
    .. [1] A. Rakotomamonjy, L. Ralaivola, "Differentially private sliced Wasserstein distance",
       ICML 2021, Section 4 and Algorithm 2; here with features that are clipped to a constant
       norm, and a map of the source.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpgen.nn import Training
    >>> from sklearn_dpgen.smoothed import SmoothedSlicedWassersteinAdapter
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(400, 2)), rng.integers(2, size=400)
    >>> X[:, 0] += 4 * y
    >>> domain = np.repeat([1, -2], 200)
    >>> X[domain < 0] += 1.5
    >>> y[domain < 0] = -1
    >>> adapter = SmoothedSlicedWassersteinAdapter(source_iter=50, training=Training(max_iter=20))
    >>> adapter.fit(X, y, sample_domain=domain).predict(X[domain < 0]).shape
    (200,)
    """

    _saved_state: dict = {
        "noise_multiplier_": float | None,
        "loss_curve_": list[float],
        "module_": AdaptedNetwork,
        "n_iter_": int,
        "domain_": Maybe(Domain),
    }
    _parameter_constraints: dict = {
        **TrainedEstimator._parameter_constraints,
        "feature_dim": [Interval(Integral, 1, None, closed="left")],
        "release": [NoisyRelease, None],
        "domain": [Domain, callable, None],
        "adaptation_weight": [Interval(Real, 0, None, closed="left")],
        "source_batch_size": [Interval(Integral, 1, None, closed="left")],
        "source_iter": [Interval(Integral, 1, None, closed="left")],
        "source_learning_rate": [Interval(Real, 0, None, closed="neither")],
        "training": [Training, None],
    }
    _settings = {"release": NoisyRelease, "training": Training}
    _setting_defaults: dict = {
        "release": NoisyRelease().get_params(deep=False),
        "training": {
            "hidden_layer_sizes": (128,),
            "activation": "relu",
            "max_iter": 1500,
            "solver": "adam",
            "learning_rate": 0.001,
            "averaging": 0.3,
            "callback": None,
            "device": "auto",
            "verbose": 0,
        },
    }

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | str = "auto",
        release: NoisyRelease | None = None,
        domain: Domain | Callable[..., Domain] | None = None,
        feature_dim: int = 32,
        adaptation_weight: float = 3.0,
        source_batch_size: int = 512,
        source_iter: int = 3000,
        source_learning_rate: float = 0.002,
        training: Training | None = None,
        ledger: LedgerLike = None,
        unit: str | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.release = release
        self.domain = domain
        self.feature_dim = feature_dim
        self.adaptation_weight = adaptation_weight
        self.source_batch_size = source_batch_size
        self.source_iter = source_iter
        self.source_learning_rate = source_learning_rate
        self.training = training
        self.ledger = ledger
        self.unit = unit
        self.random_state = random_state

    @property
    def _released(self):
        """The settings of the release."""
        return self._completed("release")

    @fit_context(prefer_skip_nested_validation=True)
    def plan(
        self,
        n_samples: int,
        n_features: int,
        *,
        n_source: int | None = None,
        n_classes: int = 2,
    ) -> PrivacyReport:
        """Return the privacy report of a fit, without reading a record.

        Parameters
        ----------
        n_samples : int
            Number of target records, or of persons with ``unit``. 0 plans a fit on the source
            alone.
        n_features : int
            Number of features.
        n_source : int or None, default=None
            Number of source records. They are public, and the report does not depend on it.
        n_classes : int, default=2
            Number of labels of the source.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit of this size, with the noise that remains on the
            releases.

        Raises
        ------
        ValueError
            If ``fit`` would refuse the parameters.

        Warns
        -----
        UserWarning
            If the noise on the mean of the records is large, as in ``fit``.
        """
        n_samples = 0 if n_samples == 0 else check_count(n_samples, "n_samples")
        check_count(n_classes, "n_classes")
        return self._plan(n_samples, check_count(n_features, "n_features")).report

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike, sample_domain: ArrayLike | None = None) -> Self:
        """Train on the source, then adapt to noisy releases of the target.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Records of both domains.
        y : array-like of shape (n_samples,)
            Labels. Mask those of target rows: they are not used, but all labels share the dtype of
            the array.
        sample_domain : array-like of int of shape (n_samples,) or None
            Negative for rows of the target. None takes the rows whose label is masked, -1 or NaN;
            if there are none, it warns and fits on the source alone.

        Returns
        -------
        self : object

        Raises
        ------
        TrainingDivergedError
            If a loss, a gradient or a parameter is not finite.
        ValueError
            If the data or the parameters are invalid, there are fewer target rows than
            ``batch_size``, or a ``release`` of moments has no ``domain``.
        """
        return self._fit(X, y, sample_domain)

    def _read(self, X, y, sample_domain, *, seed):
        # An unavailable device is refused before anything is charged.
        resolve_device(self._training.device)
        name = type(self).__name__
        X, persons = self._split_unit(X)
        X = validate_data(self, X, dtype=np.float64)
        y = check_labels_of_both(X, y, name)
        is_source = source_mask(y, sample_domain)
        self.classes_, labels = encode_source_labels(y[is_source], name)
        target = X[~is_source]
        n_target = len(target)
        if persons is not None and n_target:
            persons = Persons(persons.codes[~is_source])
            n_target = persons.n_persons
        records = X[is_source], labels, target, persons
        return records, {"n_samples": n_target, "n_features": X.shape[1]}

    def _plan(self, n_samples, n_features):
        """Return the plan of a fit; its details are the priced releases and the domain of moments.

        Details are None if nothing is released.

        Parameters
        ----------
        n_samples : int
            Number of target records, or of persons.
        n_features : int
        """
        name, noise = type(self).__name__, self._noise_description()
        public = ("source", "sample_domain", "column_names", "domain_sizes")
        fields = {"protected": "target_record"}
        if n_samples == 0 or self.adaptation_weight == 0:
            report = ReleasePlan(None).report(
                name=name, events=(Event("nothing"),), public=public, **fields
            )
            return Plan(self._protected(report))
        domain = None
        if self._released.kind == "moments":
            if self.domain is None:
                raise ValueError(
                    "A release of moments needs a domain, the set that holds the target records."
                )
            domain = resolve_domain(self.domain, n_features)
        priced = self._price(n_samples, domain)
        if self._released.kind == "moments":
            report = priced.report(name, noise, public=(*public, "domain"), **fields)
        else:
            bounds = [Bound("feature_radius", RADIUS)]
            if self._released.kind == "projections":
                bounds.append(Bound("directions_averaged"))
            report = priced.report(
                name=name,
                events=(Event(_EVENTS[self._released.kind]),),
                public=public,
                norm="l2",
                bounds=tuple(bounds),
                noise_source=noise,
                **fields,
            )
        return Plan(self._protected(report), (priced, domain))

    def _price(self, n_target, domain):
        """Price every release from public quantities."""
        released = self._released
        budget = {"epsilon": self.epsilon, "delta": self._delta(n_target)}
        if self._released.kind == "moments":
            return price_moments(
                enclosing_ball(domain),
                n_target,
                1,
                class_sizes=[n_target],
                label_proportions=None,
                **budget,
            )
        if self._released.kind == "projections":
            n_projections = released.n_projections
            if isinstance(n_projections, str):
                n_projections = self.feature_dim
            law = ProjectionLaw(self.feature_dim, n_projections, released.directions)
            batch_size = min(_BATCH_SIZE, n_target)
            budget["batch_size"] = (
                batch_size if released.batch_size == "auto" else released.batch_size
            )
            n_releases = self._training.max_iter
            return plan_projections([n_target], 2 * RADIUS, law, n_releases=n_releases, **budget)
        batch_size = 1 if released.batch_size == "auto" else released.batch_size
        return plan_releases(
            [n_target],
            2 * RADIUS,
            self.feature_dim,
            batch_size=batch_size,
            n_epochs=released.n_epochs,
            **budget,
        )

    def _release(self, plan, records, seed):
        """Train on the public source, then release features or moments of the target.

        Returns
        -------
        module : AdaptedNetwork
        source : tuple of Tensor
            Copies of the public records and their labels.
        released : ReleasedLaws, tuple of ndarray, TrainingResult or None
            Distributions of features, or mean and covariance of records. With
            releases of projections, the result of the adaptation, which makes the releases. None
            if nothing is released.
        """
        source, labels, target, persons = records
        noise_seed, init_seed, source_seed, line_seed, step_seed = split_random_state(seed, 5)
        device = resolve_device(self._training.device)
        with seeded_initialization(init_seed):
            module = AdaptedNetwork(
                source.shape[1],
                check_widths(self._training.hidden_layer_sizes),
                self.feature_dim,
                len(self.classes_),
                self._training.activation,
                None if self._released.kind == "records" else AffineMove.of_records(source),
            )
        module = module.to(device, _DTYPE)
        public = (
            as_tensor(source, device=device, dtype=_DTYPE),
            as_tensor(labels, device=device, dtype=torch.int64),
        )
        train_on_source(
            module,
            *public,
            generator=torch_generator(source_seed, device),
            max_iter=self.source_iter,
            learning_rate=self.source_learning_rate,
            **self._training_options(),
        )
        if plan.details is None:
            return module, public, None
        priced, domain = plan.details
        if self._released.kind == "projections":
            # Seeded releases of other records share neither directions nor batches.
            noise = self._noise_source(noise_seed, target, source, labels)
            if persons is not None:
                noise.bind(persons.codes)
            releases = ProjectedFeatures(
                priced.records,
                noise,
                as_tensor(target, device=device, dtype=_DTYPE),
                shape_weight=self._released.shape_weight,
                persons=persons,
            )
            return module, public, self._adapt(module, public, releases, step_seed)
        if persons is not None:
            noise = self._noise_source(noise_seed, "rows of persons", persons.codes)
            target = target[persons.draw(noise)]
        if self._released.kind == "moments":
            X, codes = domain.project(target), np.zeros(len(target), dtype=np.int64)
            noise = self._noise_source(noise_seed, X, codes, domain)
            (mean,), (covariance,), _ = priced.release(X, codes, noise)
            return module, public, (mean, covariance)
        features = feature_records(module, as_tensor(target, device=device, dtype=_DTYPE))
        laws = release_laws(
            priced.records,
            self._noise_source(noise_seed, features.records),
            features,
            RADIUS,
            n_projections=self._released.n_projections,
            kind=self._released.directions,
            shape_weight=self._released.shape_weight,
            seed=line_seed,
            device=device,
            verbose=self._training.verbose,
        )
        return module, public, laws

    def _learn(self, plan, released, seed):
        module, source, releases = released
        self.noise_multiplier_ = plan.report.noise_multiplier or 0.0
        self.loss_curve_, self.n_iter_ = [], self.source_iter
        if releases is not None:
            domain = plan.details[1]
            if domain is not None:
                self.domain_ = domain
            if self._released.kind != "projections":
                releases = self._adapt(module, source, releases, seed)
            self.loss_curve_ = releases.loss_curve
            self.n_iter_ += releases.n_iter
        self.module_ = module

    def _adapt(self, module, source, releases, seed):
        """Adapt the network to releases, and return the TrainingResult.

        Parameters
        ----------
        module : AdaptedNetwork
            Trained in place.
        source : tuple of Tensor
            Public records and their labels.
        releases : ReleasedLaws, ProjectedFeatures or tuple of ndarray
            ``ProjectedFeatures`` makes a release at each step; a tuple is a mean and a covariance.
        seed : int or None
        """
        X, labels = source
        options = self._training_options() | {
            "generator": torch_generator(seed, X.device),
            "callback": self._training.callback,
            "max_iter": self._training.max_iter,
            "learning_rate": self._training.learning_rate,
            "weight": self.adaptation_weight,
        }
        if self._released.kind == "moments":
            mean, covariance = releases
            own = np.cov(as_array(X), rowvar=False, ddof=0).reshape(covariance.shape)
            module.transport.set_to(normal_map(own, covariance), mean)
            return adapt_to_moved(module, X, labels, **options)
        options["weight"] *= self.feature_dim
        if self._released.kind == "projections":
            return adapt_to_projections(module, X, labels, releases, **options)
        with torch.no_grad():
            features = module.features(X)
        return adapt_to_releases(module, features, labels, releases, **options)

    def _training_options(self):
        return {
            "batch_size": self.source_batch_size,
            "averaging": self._training.averaging,
            "optimizer": self._training.solver,
            "verbose": self._training.verbose,
            "name": type(self).__name__,
        }
