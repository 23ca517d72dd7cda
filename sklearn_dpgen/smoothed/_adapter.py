"""SmoothedSlicedWassersteinAdapter: a classifier for a private domain without labels."""

import math
from collections.abc import Callable
from functools import partial
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike

from sklearn_dpgen.accounting import Bound, Event, PrivacyReport, ProjectionLaw
from sklearn_dpgen.domains import Ball, Domain
from sklearn_dpgen.domains._ball import enclosing_ball
from sklearn_dpgen.ledger._base import Plan, TrainedEstimator
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.ledger._unit import Persons
from sklearn_dpgen.mechanisms._class_moments import price_moments
from sklearn_dpgen.nn import Training
from sklearn_dpgen.persistence._declarations import Array, Maybe
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
from sklearn_dpgen.smoothed._shifts import explain
from sklearn_dpgen.smoothed._training import (
    adapt_to_moved,
    adapt_to_projections,
    adapt_to_releases,
    train_on_source,
)
from sklearn_dpgen.utils._normal_laws import denoised_covariances
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
    StrOptions,
    check_count,
    check_widths,
    fit_context,
    validate_data,
    warn_user,
)

__all__ = ["ProjectedFeatures", "SmoothedSlicedWassersteinAdapter"]

# Rounding errors are then far below the noise.
_DTYPE = torch.float64
# Automatic batch size for projections: smaller batches show little but their noise.
_BATCH_SIZE = 512
# Automatic weights of the distance, and of the cross-entropy of moved records.
_WEIGHT, _WEIGHT_OF_MOVED = 3.0, 1.0
# Radius of the ball of records without a domain, in units of the source's root mean square.
_REACH = 2.0
# Change of a share of a class that is worth a warning.
_CHANGED = 0.05
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

    A network is trained on the public source. Then moments of the private target are released with
    noise. If other shares of the classes explain them, the network's probabilities are corrected
    for these. If the target lies elsewhere than the source, a map moves the source to it, and the
    network is trained on the moved records with the labels of the source. Only the releases depend
    on the target.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of the whole fit for the target records, in nats; ``np.inf`` trains without
        noise.
    delta : float or "auto", default="auto"
        Failure probability, in (0, 1). "auto" is 0.1 / (number of target records).
    release : NoisyRelease or None, default=None
        What is released of the target, and what is moved, by its ``kind``. None is
        ``NoisyRelease("moments")``.

        - "moments", the default: mean and covariance of the records, in the two releases of
          :class:`~sklearn_dpgen.moments.MomentSampler`. The map of records is the optimal one
          between normal distributions with these moments, in closed form. The network is trained
          on records of the source, both unchanged and moved.
        - "records": features of the records in the trained network, which stays fixed. A map of
          features moves their distribution, with noise added, to that of the releases in the
          squared sliced Wasserstein distance. An "auto" batch is one record.
        - "projections": the half of Algorithm 2 of [1]_ that its guarantee covers. Each step
          releases noisy projections of the current features of a secret batch, on directions of
          its own. A map of records is trained by the same distance between features, and the
          whole network is trained throughout. An "auto" batch is 512 records, or all, on
          ``feature_dim`` directions.
    domain : Domain, callable or None, default=None
        The set that holds the target records, or a function of ``n_features`` that returns it.
        Records outside are moved to its nearest point. None is a ball about the mean of the
        source, of radius 2 sqrt(n_features), with columns in units of their spread in the source,
        or of the root mean square of all spreads if that is larger: for columns in comparable
        units. Used with a ``release`` of moments alone.
    feature_dim : int, default=32
        Number of features that are compared between the domains.
    adaptation_weight : float or "auto", default="auto"
        Weight of the squared distance relative to the cross-entropy, in the training of the map.
        The distance is the mean over directions, times ``feature_dim``, in units of the radius of
        the features. With moments it is the weight of the cross-entropy of moved records relative
        to that of unchanged ones. "auto" is 3 with records and projections. With moments it
        depends on them (``shift_``): no map where other shares of the classes explain the released
        mean, or where it is closer to that than a standard deviation within classes, otherwise 1.
        0 trains on the source alone, and releases nothing.
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
        The set that holds the target records; with a ``release`` of moments only. Without a
        ``domain``, a ball in units of the source.
    shift_ : {"labels", "map", "none"}
        What the network was adapted by: other shares of the classes, a map, or nothing.
    class_shares_ : ndarray of shape (n_classes,)
        The shares of the classes that the network assumes: for ``shift_ = "labels"`` of the target,
        estimated from the release, otherwise of the source.
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
    :Bounded by: For moments a ball around ``domain``, or around the source. Features of the network
        are moved into a ball of radius 1/2, each row by its own norm: a record moves a release by 1
        at most.
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

    **Shift of labels.** If only the shares of the classes change, the mean of the target is that of
    the source with other shares, and a map to it does harm. So the released mean is compared with
    what other shares explain. Where they do, within sampling and noise, no record is moved, and
    their logarithms correct the logits. Where they do not, but the mean is less than a standard
    deviation away, the network stays that of the source, with a warning: what distinguishes a
    changed choice of records from changed records is not released.

    **Algorithm 2** of the paper releases projections of features with noise. Its guarantee covers
    these releases. It does not cover two steps: the paper divides features by the largest norm in
    the batch, which is another release that is not paid for, and the gradient of the distance also
    passes through the features of the target. Here each row is clipped by its own norm, and that
    gradient is replaced. Without that part, the distance would drive
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
    >>> X[domain < 0] += 6
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
        # Former files have neither.
        "shift_": Maybe(str),
        "class_shares_": Maybe(Array("f", 1)),
    }
    _parameter_constraints: dict = {
        **TrainedEstimator._parameter_constraints,
        "feature_dim": [Interval(Integral, 1, None, closed="left")],
        "release": [NoisyRelease, None],
        "domain": [Domain, callable, None],
        "adaptation_weight": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "source_batch_size": [Interval(Integral, 1, None, closed="left")],
        "source_iter": [Interval(Integral, 1, None, closed="left")],
        "source_learning_rate": [Interval(Real, 0, None, closed="neither")],
        "training": [Training, None],
    }
    _settings = {"release": NoisyRelease, "training": Training}
    _setting_defaults: dict = {
        "release": NoisyRelease("moments").get_params(deep=False),
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
        adaptation_weight: float | str = "auto",
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
            If the data or the parameters are invalid, or there are fewer target rows than
            ``batch_size``.

        Warns
        -----
        UserWarning
            With moments, if nothing was adapted as the released mean does not tell how, or if other
            shares of the classes explain it and a given weight moves the records all the same.
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
                domain = Ball(_REACH * math.sqrt(n_features), n_features=n_features)
            else:
                domain = resolve_domain(self.domain, n_features)
        priced = self._price(n_samples, domain)
        if self._released.kind == "moments":
            public = public if self.domain is None else (*public, "domain")
            report = priced.report(name, noise, public=public, **fields)
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
        released : ReleasedLaws, tuple, TrainingResult or None
            Distributions of features; or mean and covariance of records, as they were released,
            and the standard deviation of the noise on the mean. With releases of projections, the
            result of the adaptation, which makes the releases. None if nothing is released.
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
            X, codes = (
                self._in_domain(target, source, domain),
                np.zeros(len(target), dtype=np.int64),
            )
            noise = self._noise_source(noise_seed, X, codes, domain)
            moments = priced.measure(X, codes, noise)
            (covariance,) = denoised_covariances(moments.covariances, moments.spreads)
            return module, public, (moments.means[0], covariance, float(moments.mean_spreads[0]))
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
        counts = np.bincount(as_array(source[1], dtype=np.int64), minlength=len(self.classes_))
        self.shift_, self.class_shares_ = "none", counts / counts.sum()
        if releases is not None:
            domain = plan.details[1]
            self.shift_ = "map"
            if domain is not None:
                self.domain_ = domain
                n_target = int(plan.details[0].sizes[0])
                self._explain(module, source, releases, domain, n_target)
            if self.shift_ == "map":
                if self._released.kind != "projections":
                    releases = self._adapt(module, source, releases, seed)
                self.loss_curve_ = releases.loss_curve
                self.n_iter_ += releases.n_iter
        self.module_ = module

    def _units(self, source):
        """Return the origin and the units of released records, from the public source.

        Parameters
        ----------
        source : ndarray of shape (n, d)

        Returns
        -------
        origin, units : ndarray of shape (d,)
            0 and 1 with a ``domain``.
        """
        d = source.shape[1]
        if self.domain is not None:
            return np.zeros(d), np.ones(d)
        spreads = source.std(axis=0)
        units = np.maximum(spreads, math.sqrt(np.mean(spreads**2)))
        return source.mean(axis=0), np.where(units > 0, units, 1.0)

    def _in_domain(self, X, source, domain):
        """Return rows as they are released, each a function of itself and of the source."""
        origin, units = self._units(source)
        with np.errstate(over="ignore"):
            return domain.project((X - origin) / units)

    def _explain(self, module, source, moments, domain, n_target):
        """Explain released moments, and set the map or the shares of the classes of the network.

        Parameters
        ----------
        module : AdaptedNetwork
            Its map is set, or the constants of its classifier are changed.
        source : tuple of Tensor
            Public records and their labels.
        moments : tuple
            Mean, covariance, and standard deviation of the noise on the mean.
        domain : Domain
        n_target : int
            Number of target records, or of persons.
        """
        X, labels = as_array(source[0]), as_array(source[1], dtype=np.int64)
        mean, covariance, spread = moments
        own = self._in_domain(X, X, domain)
        shift = explain(own, labels, len(self.classes_), mean, spread, n_target)
        automatic = self.adaptation_weight == "auto"
        changed = np.abs(shift.shares - self.class_shares_).max() > _CHANGED
        if automatic:
            self.shift_ = shift.kind
            if shift.kind == "labels":
                change = np.log(shift.shares / self.class_shares_)
                with torch.no_grad():
                    module.classifier.bias += as_tensor(change, device=source[0].device)
                self.class_shares_ = shift.shares
            elif shift.kind == "none":
                warn_user(
                    "The released mean of the target is not that of the source with other shares "
                    "of the classes, and not far from it: the network of the source is kept. If "
                    "the records of each class have changed, adaptation_weight=1 adapts to that.",
                    UserWarning,
                )
        elif shift.kind == "labels" and changed:
            warn_user(
                "Other shares of the classes explain the released mean of the target, and moving "
                'records of the source would then do harm. adaptation_weight="auto" corrects the '
                "shares instead.",
                UserWarning,
            )
        if self.shift_ == "map":
            origin, units = self._units(X)
            matrix = normal_map(
                np.cov(own, rowvar=False, ddof=0).reshape(covariance.shape), covariance
            )
            start = (X.mean(axis=0) - origin) / units - own.mean(axis=0)
            module.transport.set_to(
                units[:, None] * matrix / units, origin + units * (mean + matrix @ start)
            )

    def _adapt(self, module, source, releases, seed):
        """Adapt the network to releases, and return the TrainingResult.

        Parameters
        ----------
        module : AdaptedNetwork
            Trained in place. With moments its map is set.
        source : tuple of Tensor
            Public records and their labels.
        releases : ReleasedLaws, ProjectedFeatures or tuple
            ``ProjectedFeatures`` makes a release at each step. Moments are not used again.
        seed : int or None
        """
        X, labels = source
        of_moments = self._released.kind == "moments"
        weight = self.adaptation_weight
        if isinstance(weight, str):
            weight = _WEIGHT_OF_MOVED if of_moments else _WEIGHT
        options = self._training_options() | {
            "generator": torch_generator(seed, X.device),
            "callback": self._training.callback,
            "max_iter": self._training.max_iter,
            "learning_rate": self._training.learning_rate,
            "weight": weight if of_moments else weight * self.feature_dim,
        }
        if of_moments:
            return adapt_to_moved(module, X, labels, **options)
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
