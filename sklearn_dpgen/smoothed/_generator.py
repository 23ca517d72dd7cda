"""SmoothedSlicedWassersteinGenerator: a network trained on noisy releases of private records."""

import os
from collections.abc import Callable
from typing import Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike

from sklearn_dpgen.accounting import Bound, Event, PrivacyReport, ProjectionLaw
from sklearn_dpgen.domains import Domain, OneHot, Product
from sklearn_dpgen.domains._ball import enclosing_ball
from sklearn_dpgen.ledger._base import Plan, TrainedEstimator
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.mechanisms._class_moments import price_moments
from sklearn_dpgen.nn import Training, dcgan_generator, mlp_generator, upsampling_generator
from sklearn_dpgen.nn._generators import DrawnGenerator
from sklearn_dpgen.ot._sliced import held_out_distance
from sklearn_dpgen.persistence._networks import check_network
from sklearn_dpgen.preprocessing import DCTTransformer
from sklearn_dpgen.preprocessing._records import (
    ENCODED_STATE,
    check_saved_encoding,
    declared_domain,
    decode_records,
    draw_categories,
    encode_records,
    read_records,
)
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.smoothed._plan import plan_projections, plan_releases
from sklearn_dpgen.smoothed._releases import (
    ClassRecords,
    NoisyRelease,
    ProjectedBatches,
    normal_laws,
    release_laws,
    released_proportions,
)
from sklearn_dpgen.smoothed._training import n_normals, one_hot, train_generators
from sklearn_dpgen.utils._frames import FramesMixin
from sklearn_dpgen.utils._labels import LabelSamplerMixin
from sklearn_dpgen.utils._random import split_random_state, torch_generator
from sklearn_dpgen.utils._torch import as_array, as_tensor, resolve_device
from sklearn_dpgen.utils._validation import (
    HasMethods,
    Integral,
    Interval,
    StrOptions,
    Transformer,
    check_count,
    check_is_fitted,
    check_n_samples,
    check_widths,
    fit_context,
)

__all__ = ["SmoothedSlicedWassersteinGenerator"]

# Records that the network generates at a time.
_CHUNK = 2048
# A score generates records with a fixed public seed, the same for all fits that are compared.
_SEED = 0
# Fewer generated records of a class would increase the distance, and favour narrow distributions.
_FEWEST_GENERATED = 1000
# Automatic batch size and largest automatic number of directions, for released projections.
_BATCH_SIZE, _MOST_DIRECTIONS = 100, 100
_EVENTS = {"records": "records", "projections": "batch_projections"}
_PERCEPTRONS: dict[str, Callable] = {"auto": DrawnGenerator, "mlp": mlp_generator}
_IMAGES: dict[str, Callable] = {"dcgan": dcgan_generator, "upsampling": upsampling_generator}
NETWORKS = {*_PERCEPTRONS, *_IMAGES}


class SmoothedSlicedWassersteinGenerator(FramesMixin, LabelSamplerMixin, TrainedEstimator):
    """Generator of synthetic records, trained in the smoothed sliced Wasserstein distance.

    The estimator releases secret batches of records with Gaussian noise, or noisy moments of each
    class. A network then learns to generate points whose projections, with noise of the same
    distribution, match the projected releases. Because both sides are noisy, this is a distance
    between smoothed distributions, and it vanishes where the distributions themselves agree.
    Training is post-processing, so its length costs no privacy, except with a
    ``release`` of projections, where each training step makes a release.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of the whole fit, in nats; ``np.inf`` releases without noise.
    delta : float or "auto", default="auto"
        Failure probability, in (0, 1). "auto" is 0.1 / n_samples.
    schema : Schema, str, path-like or None, default=None
        The public declaration of the columns of a table. Give either this or ``domain``.
    domain : Domain, callable or None, default=None
        The public set that holds the records, or a function of ``n_features`` that returns it.
        Records outside are moved to its nearest point. The noise is proportional to its diameter:
        prefer a ball about a public center, with about the typical norm of a record, to a wide one.
    labels : {"public", "private"} or None, default=None
        Privacy of the labels, required by ``fit(X, y)``. "public": neighbours differ in a record of
        the same class, and class sizes are public. "private": neighbours differ in a record and its
        label. The same quality then needs about ``n_classes`` times as many records.
    classes : array-like of shape (n_classes,) or None, default=None
        The public labels, at least two; private labels need them. None takes those that occur
        in ``y``, which are then public: ``privacy_`` says so.
    label_proportions : array-like of shape (n_classes,) or None, default=None
        Public shares of the classes, in the order of ``classes_``. None takes the public class
        sizes, or, with private labels, noisy counts for 5 percent of the budget.
    output_domain : Domain or None, default=None
        The set that holds the output of the network, before it is transformed and projected on the
        domain as the records were. None takes that domain itself.
    output_transform : transformer or None, default=None
        A public map from the output of the network to the records, such as a fitted
        DCTTransformer. Its ``transform`` takes a tensor and is differentiable. It needs an
        ``output_domain`` and a ``domain``. ``sample`` returns the output before the map. A search
        clones it, unless it is in a :class:`~sklearn.frozen.FrozenEstimator`.
    release : NoisyRelease or None, default=None
        What is released, and what the network learns from, by its ``kind``. None is that of
        ``NoisyRelease()``.

        - "records": noisy records of secret batches. An "auto" batch is one record, or one of the
          smallest class.
        - "moments": noisy means and covariances by class; the network learns normal distributions
          with these moments.
        - "projections": Algorithm 1 of [1]_. Each step projects a new batch on new directions and
          releases it with noise, so the budget pays for ``max_iter`` releases. It needs public
          labels and a single network, and ignores ``shape_weight`` and ``n_epochs``. An "auto"
          batch is 100 records as in the paper, or all, on one direction for each column, at most
          100.
    generator : {"auto", "mlp", "upsampling", "dcgan"} or callable, default="auto"
        A network, or a function ``generator(n_inputs, domain)`` that returns a module. Its inputs
        are the latent vector and, with labels, the class as a one-hot vector. A module with an
        attribute ``n_noise`` receives that many standard normals before them. "auto" is a
        multilayer perceptron that draws the categories of one-hot blocks
        (``DrawnGenerator``), "mlp" one with soft blocks; "upsampling" is
        the network of the paper.
    latent_dim : int, default=10
        Dimension of the latent vector, which is standard normal.
    n_generators : int, default=1
        Number of networks. Each is trained by itself on the same releases, and generates an equal
        share of the records, so that random errors of one network weigh less.
    n_generated : int, default=64
        Generated points of each class in a step, at least 2: latents come in pairs.
    training : Training or None, default=None
        Network and optimizer: :ref:`training_settings`. Defaults:
        ``hidden_layer_sizes=(200, 200)`` and ``activation="relu"`` of the multilayer perceptron,
        ``max_iter=3000``, ``learning_rate=0.002``, ``averaging=0.2``.
    ledger : PrivacyLedger, path or None, default=None
        Ledger that a fit charges before it releases anything. BudgetExceededError is raised if
        too little is left. None charges no ledger.
    unit : str or None, default=None
        Name of the column of X, a data frame, that identifies the person of a row. The guarantee
        then protects a person with all their rows, who counts as one record: one row of each
        person is drawn, for projections a new one at each step. The samples follow the
        distribution of a random row of a random person. With public labels all rows of a person
        must be of one class. The column is not learned from. None protects single rows.
    random_state : int, RandomState or None, default=None
        None draws noise and batches from the operating system's entropy. An int repeats the fit,
        and voids the guarantee against anybody who knows or guesses it.

    Attributes
    ----------
    generator_ : torch.nn.Module
        The network, from (n, latent_dim + n_classes) to its domain, in single precision.
    domain_ : Domain
        The set that holds the records.
    encoder_ : TabularEncoder
        Encoder of the table in the domain; with a schema only.
    classes_ : ndarray of shape (n_classes,)
        The labels, if fitted with any.
    label_proportions_ : ndarray of shape (n_classes,)
        Probabilities of the classes in ``sample_labels``, if fitted with labels.
    loss_curve_ : list of float
        Distance at each step, averaged over the networks, with the weight of the shapes, in units
        of the squared radius of the domain. It is computed from releases.
    privacy_ : PrivacyReport
        The guarantee of the fit.
    noise_multiplier_ : float
        Standard deviation of the noise over the sensitivity.
    n_iter_ : int
        Number of steps.
    n_features_in_ : int
        Number of columns.

    Notes
    -----
    **Formal guarantee**

    :Promise: Central (ε, δ)-differential privacy of all that is released of the records, and so of
        the generator and its samples.
    :Neighbours: Replace one record; the number of records is public. With ``labels="public"``:
        replace one record by another of the same class; the sizes of the classes are public. With
        ``labels="private"``: replace one record and its label; the number of records is public.
        With ``unit``: a person with all their rows in place of a record.
    :Public: ``n_samples``; ``domain``, or that of ``schema``; names of the columns. With labels
        their set of labels or ``classes``, the class sizes where labels are public, and
        ``label_proportions``. With ``unit``: numbers of persons, and not those of their rows.
    :Bounded by: The declared domain, on which records are projected: the sensitivity is its
        diameter. For moments a ball around it.
    :Noise: Gaussian on secret batches, or on projections of them, by
        :class:`~sklearn_dpgen.mechanisms.StratifiedGaussianMechanism`, which also draws the
        batches; on moments by :class:`~sklearn_dpgen.mechanisms.ClassSumMechanism`. All in floating
        point, from the operating system's entropy.
    :Priced by: The privacy profile of the Gaussian mechanism under sampling without replacement,
        composed numerically over all releases. Projections by the law of their directions; moments,
        without sampling, in closed form.
    :Not covered: What was fitted on the same records before, such as a scaler or an embedding;
        other fits of the same records, which a ``ledger`` adds up; errors of a fit; a
        ``random_state`` that others know or guess.
    :Proof: :doc:`/smoothed`; of moments :ref:`moments_sensitivity`, Theorems 3 and 4.

    In [1]_ each step projects a batch on its own directions, k of d, and releases the projections,
    as a ``release`` of projections does here. With k = d orthonormal directions the sensitivity is
    the diameter of the domain, and the release is as informative as the noisy batch itself: it can
    be projected again, on any directions, and compared with the generator as often as needed. For a
    given budget small batches are most informative: the information is T B / σ² for T releases of
    B records.

    The noise is large: the releases determine the mean of each class first, then its covariance,
    and hardly any details. Comparing two noisy samples would favour narrow distributions. All
    releases together are therefore compared with a smoothing in closed form, and the shape has a
    weight of its own.

    If means and covariances are all that can be learned, a ``release`` of moments has far less
    noise, as :class:`~sklearn_dpgen.moments.MomentSampler` does. On each line u the
    network then learns the normal distribution N(⟨u, m⟩, uᵀ C u) of a class with released mean m
    and covariance C.

    References
    ----------
    .. [1] A. Rakotomamonjy, L. Ralaivola, "Differentially private sliced Wasserstein distance",
       ICML 2021, Equation 8 and Algorithm 1. The accounting, and the releases before training, are
       ours.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import make_half_circle
    >>> from sklearn_dpgen.domains import Ball
    >>> from sklearn_dpgen.nn import Training
    >>> from sklearn_dpgen.smoothed import SmoothedSlicedWassersteinGenerator
    >>> X = make_half_circle(2000, random_state=0)
    >>> generator = SmoothedSlicedWassersteinGenerator(
    ...     epsilon=10.0, domain=Ball(1.0, n_features=2), training=Training(max_iter=20)
    ... )
    >>> generator.fit(X).sample(3).shape
    (3, 2)
    """

    _saved_state: dict = ENCODED_STATE | {
        "noise_multiplier_": float | None,
        "loss_curve_": list[float],
        "generator_": torch.nn.Module,
        "n_iter_": int,
        "_n_normals": int,
        "_output_domain": Domain,
        "_output_transform": DCTTransformer | None,
    }
    _parameter_constraints: dict = {
        **TrainedEstimator._parameter_constraints,
        "schema": [Schema, None],
        "domain": [Domain, callable, None],
        "labels": [StrOptions({"public", "private"}), None],
        "classes": ["array-like", None],
        "label_proportions": ["array-like", None],
        "output_domain": [Domain, None],
        "output_transform": [HasMethods("transform"), None],
        "release": [NoisyRelease, None],
        "generator": [StrOptions(NETWORKS), callable],
        "latent_dim": [Interval(Integral, 1, None, closed="left")],
        "n_generators": [Interval(Integral, 1, None, closed="left")],
        "n_generated": [Interval(Integral, 2, None, closed="left")],
        "training": [Training, None],
    }
    _settings = {"release": NoisyRelease, "training": Training}
    _setting_defaults: dict = {
        "release": NoisyRelease("records").get_params(deep=False),
        "training": {
            "hidden_layer_sizes": (200, 200),
            "activation": "relu",
            "max_iter": 3000,
            "learning_rate": 0.002,
            "averaging": 0.2,
            "device": "auto",
            "verbose": 0,
        },
    }
    _trained = "generator_"

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | str = "auto",
        *,
        schema: Schema | str | os.PathLike | None = None,
        domain: Domain | Callable[..., Domain] | None = None,
        labels: str | None = None,
        classes: ArrayLike | None = None,
        label_proportions: ArrayLike | None = None,
        output_domain: Domain | None = None,
        output_transform: Transformer | None = None,
        release: NoisyRelease | None = None,
        generator: str | Callable[[int, Domain], torch.nn.Module] = "auto",
        latent_dim: int = 10,
        n_generators: int = 1,
        n_generated: int = 64,
        training: Training | None = None,
        ledger: LedgerLike = None,
        unit: str | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.schema = schema
        self.domain = domain
        self.labels = labels
        self.classes = classes
        self.label_proportions = label_proportions
        self.output_domain = output_domain
        self.output_transform = output_transform
        self.release = release
        self.generator = generator
        self.latent_dim = latent_dim
        self.n_generators = n_generators
        self.n_generated = n_generated
        self.training = training
        self.ledger = ledger
        self.unit = unit
        self.random_state = random_state

    @property
    def _released(self):
        """The settings of the release."""
        return self._completed("release")

    @fit_context(prefer_skip_nested_validation=False)
    def plan(
        self,
        n_samples: int,
        n_features: int | None = None,
        *,
        class_sizes: ArrayLike | None = None,
    ) -> PrivacyReport:
        """Return the privacy report of a fit, without reading a record.

        Parameters
        ----------
        n_samples : int
            Number of records, or of persons with ``unit``, like all sizes here.
        n_features : int or None, default=None
            Number of columns. Required if ``domain`` is a function of it.
        class_sizes : array-like of int of shape (n_classes,) or None, default=None
            Sizes of public classes, in the order of the classes. None plans a fit without labels,
            or with private labels if ``classes`` are declared.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit of this size, with the noise that remains on the means.

        Raises
        ------
        ValueError
            If ``fit`` would refuse the parameters, or sizes do not fit together.

        Warns
        -----
        UserWarning
            If the noise on the mean of the records is large, as in ``fit``.
        """
        self._check_declared()
        n_samples = check_count(n_samples, "n_samples")
        n_classes, sizes = self._planned_classes(n_samples, class_sizes)
        return self._plan(declared_domain(self, n_features), n_samples, n_classes, sizes).report

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: ArrayLike | pd.DataFrame, y: ArrayLike | None = None) -> Self:
        """Release noisy records, moments or projections, and train the network on them.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            Private records.
        y : array-like of shape (n_samples,) or None, default=None
            Labels. With them, ``sample`` generates records of given classes.

        Returns
        -------
        self : object

        Raises
        ------
        TrainingDivergedError
            If a loss or a parameter is not finite.
        ValueError
            If the data or the parameters are invalid, or private labels have no ``classes``.
        """
        return self._fit(X, y)

    def _read(self, X, y, *, seed):
        # An unavailable device is refused before anything is charged.
        resolve_device(self._training.device)
        self._check_declared()
        self._check_label_parameters(y)
        self._check_release(y is not None)
        persons = None
        if self._released.kind == "projections":
            # Each step draws a row of each person anew.
            X, persons = self._split_unit(X)
        else:
            X, y = self._one_labelled_row_each(X, y, seed)
        X = encode_records(self, X)
        codes = self._encode_labels(y, len(X))
        members = codes if persons is None else persons.shared(codes, "class")
        n_classes = self._n_classes
        is_public = n_classes > 0 and self.labels == "public"
        return (X, codes, persons), {
            "domain": self.domain_,
            "n_samples": len(members),
            "n_classes": n_classes,
            "class_sizes": np.bincount(members, minlength=n_classes) if is_public else None,
        }

    def _check_declared(self):
        self._check_unit()
        if self.output_transform is not None and self.output_domain is None:
            raise ValueError(
                "output_transform needs an output_domain, the set that holds the output of the "
                "network."
            )
        if self.output_transform is not None and self.schema is not None:
            raise ValueError("output_transform needs a domain, and does not work with a schema.")

    def _check_release(self, has_labels):
        """Refuse private labels and several networks with projections at each step."""
        if self._released.kind != "projections":
            return
        if has_labels and self.labels == "private":
            raise ValueError(
                'A release of projections takes labels="public" only: a record with another label '
                "would change the projections of two classes, which is not priced."
            )
        if self.n_generators > 1:
            raise ValueError(
                "n_generators must be 1 with a release of projections, whose releases serve one "
                f"network, got {self.n_generators}."
            )

    def _plan(self, domain, n_samples, n_classes, class_sizes):
        """Return the plan of a fit; its details are the priced releases.

        Parameters
        ----------
        domain : Domain
        n_samples : int
            Number of records, or of persons.
        n_classes : int
            0 without labels.
        class_sizes : ndarray of int or None
            Sizes of public classes; None without labels, or if these are private.
        """
        self._check_release(n_classes > 0)
        priced = self._price(domain, n_samples, n_classes, class_sizes)
        relation, public = self._label_terms(n_classes > 0)
        fields = relation | {"public": ("n_samples", "domain", "column_names", *public)}
        name, noise = type(self).__name__, self._noise_description()
        if self._released.kind == "moments":
            report = priced.report(name, noise, **fields)
        else:
            report = priced.report(
                name=name,
                events=(Event(_EVENTS[self._released.kind]),),
                norm="l2",
                bounds=(Bound("l2_diameter", domain.diameter(2)),),
                noise_source=noise,
                **fields,
            )
        return Plan(self._protected(report), priced)

    def _price(self, domain, n_samples, n_classes, class_sizes):
        """Price every release from public quantities: return a ReleasePlan or a MomentPlan."""
        budget = {"epsilon": self.epsilon, "delta": self._delta(n_samples)}
        if self._released.kind == "moments":
            return price_moments(
                enclosing_ball(domain),
                n_samples,
                max(1, n_classes),
                class_sizes=class_sizes if n_classes else [n_samples],
                label_proportions=self.label_proportions,
                **budget,
            )
        sizes = [n_samples] if class_sizes is None else list(map(int, class_sizes))
        d, released = domain.n_features, self._released
        batch_size = released.batch_size
        if self._released.kind == "projections":
            n_projections = released.n_projections
            if isinstance(n_projections, str):
                n_projections = min(d, _MOST_DIRECTIONS)
            return plan_projections(
                sizes,
                domain.diameter(2),
                ProjectionLaw(d, 1 if d == 1 else n_projections, released.directions),
                batch_size=min(n_samples, _BATCH_SIZE) if batch_size == "auto" else batch_size,
                n_releases=self._training.max_iter,
                **budget,
            )
        if batch_size == "auto":
            # One sampling rate for all: every class would pay for a higher rate of a small one.
            batch_size = n_samples // max(1, min(sizes))
        is_private = n_classes > 0 and self.labels == "private"
        return plan_releases(
            sizes,
            domain.diameter(2),
            d,
            batch_size=batch_size,
            n_epochs=released.n_epochs,
            slot_radius=enclosing_ball(domain).radius if is_private else None,
            n_slots=n_classes if is_private else 1,
            with_counts=is_private and self.label_proportions is None,
            **budget,
        )

    def _release(self, plan, records, seed):
        """Return released distributions on lines, and class sizes up to a factor, or None.

        With projections the training makes the releases: the trained network and its
        losses are returned in place of distributions.
        """
        noise_seed, line_seed, train_seed = split_random_state(seed, 3)
        (X, codes, persons), n_classes = records, self._n_classes
        priced, ball = plan.details, enclosing_ball(self.domain_)
        device = resolve_device(self._training.device)
        noise = self._noise_source(noise_seed, X, codes, n_classes, self.domain_)
        lines = {
            "n_projections": self._released.n_projections,
            "kind": self._released.directions,
            "shape_weight": self._shape_weight(),
            "seed": line_seed,
            "device": device,
        }
        if self._released.kind == "moments":
            means, covariances, sizes = priced.release(X, codes, noise)
            return normal_laws(means - ball.center, covariances, ball.radius, **lines), sizes
        is_public = n_classes == 0 or self.labels == "public"
        records = ClassRecords(X - ball.center, codes, max(1, n_classes), is_public, persons)
        if persons is not None:
            noise.bind(persons.codes)
        shares = None
        if n_classes:
            shares = released_proportions(
                self.label_proportions, records.member_codes, n_classes, priced.counts, noise
            )
        if self._released.kind == "projections":
            batches = ProjectedBatches(priced.records, noise, records, ball.radius, device=device)
            return self._train(batches, train_seed), shares
        laws = release_laws(
            priced.records,
            noise,
            records,
            ball.radius,
            shares=None if is_public else shares,
            verbose=self._training.verbose,
            **lines,
        )
        return laws, shares

    def _learn(self, plan, released, seed):
        learned, sizes = released
        if self._released.kind != "projections":
            learned = self._train(learned, seed)
        module, self.loss_curve_ = learned
        if self._n_classes:
            self._set_proportions(sizes)
        self.noise_multiplier_ = plan.report.noise_multiplier
        self.n_iter_ = self._training.max_iter
        # The parameters may change before sample is called.
        self._n_normals = n_normals(module, self.latent_dim)
        self._output_domain = self._network_domain
        self._output_transform = self.output_transform
        self.generator_ = module

    def _train(self, laws, seed):
        """Return a trained network and its losses.

        Parameters
        ----------
        laws : ReleasedLaws or ProjectedBatches
            Released distributions, or a source of releases for each step.
        seed : int or None
        """
        n_classes, training = self._n_classes, self._training
        center = as_tensor(enclosing_ball(self.domain_).center, device=laws.device)

        def build():
            return build_network(
                self.generator,
                self.latent_dim + n_classes,
                self._network_domain,
                hidden_layer_sizes=training.hidden_layer_sizes,
                activation=training.activation,
            )

        return train_generators(
            build,
            laws,
            lambda G: self._to_domain(G) - center,
            n_generators=self.n_generators,
            latent_dim=self.latent_dim,
            seed=seed,
            n_classes=n_classes,
            n_generated=self.n_generated,
            max_iter=training.max_iter,
            learning_rate=training.learning_rate,
            averaging=training.averaging,
            verbose=training.verbose,
            name=type(self).__name__,
        )

    @property
    def _n_classes(self):
        """The number of classes of the fit; 0 without labels."""
        return len(self.classes_) if hasattr(self, "classes_") else 0

    @property
    def _network_domain(self):
        """The set that holds the output of the network."""
        return self.domain_ if self.output_domain is None else self.output_domain

    def _to_domain(self, G):
        """Map outputs of the network into the domain, as the records were."""
        if self.output_transform is not None:
            G = self.output_transform.transform(G)
        return G if self.output_domain is None else self.domain_.project(G)

    def _shape_weight(self):
        # One-hot blocks need no extra weight: their variances follow from their means.
        weight = self._released.shape_weight
        return 1.0 if weight == "auto" and _has_categories(self.domain_) else weight

    @torch.no_grad()
    def sample(
        self,
        n_samples: int = 1,
        *,
        y: ArrayLike | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> np.ndarray | pd.DataFrame:
        """Draw synthetic records.

        Parameters
        ----------
        n_samples : int, default=1
            Number of records. Sampling costs no privacy.
        y : label, array-like of shape (n_samples,) or None, default=None
            The class of all records, or of each. None draws classes as ``sample_labels`` does.
        random_state : int, RandomState or None, default=None
            Seed of the draw.

        Returns
        -------
        X : ndarray or data frame of shape (n_samples, n_features)
            A data frame with a schema, or if ``fit`` was given one with names of columns. With an
            ``output_transform`` it is an array of the outputs before the transform.

        Raises
        ------
        ValueError
            If a label is not in ``classes_``, or the fit had no labels.
        """
        check_is_fitted(self)
        n_classes = self._n_classes
        width = self._n_normals + n_classes + self._output_domain.n_features
        n_samples = check_n_samples(n_samples, width)
        label_seed, latent_seed, category_seed = split_random_state(random_state, 3)
        codes = self._sample_codes(n_samples, y, label_seed)
        device = next(self.generator_.parameters()).device
        Z = torch.randn(n_samples, self._n_normals, generator=torch_generator(latent_seed))
        inputs = torch.cat([Z.to(device), one_hot(torch.from_numpy(codes), n_classes, device)], 1)
        X = as_array(torch.cat([self.generator_(chunk) for chunk in inputs.split(_CHUNK)]))
        rng = np.random.default_rng(category_seed)
        if self._output_transform is not None:
            return draw_categories(self._output_domain, X, rng)
        return decode_records(self, X, rng, domain=self._output_domain)

    def score(self, X: ArrayLike | pd.DataFrame, y: ArrayLike | None = None) -> float:
        """Return minus the sliced Wasserstein distance between records and samples.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            Records. The score is computed without noise: for private records it is not private.
        y : array-like of shape (n_samples,) or None, default=None
            Their labels, which are not protected either. With them, each class is compared with
            its own samples and weighted by its share of X. None compares all records with samples
            of all classes.

        Returns
        -------
        float
            At most 0; larger is better. It is minus the root mean square of W_2 over fixed
            directions, in the units of the records, or of their encoding with a schema. Records
            are not moved into the domain, so that fits with different domains can be compared.
            Directions and samples are the same at each call.

        Raises
        ------
        ValueError
            If the columns differ from those of ``fit``, a label is not in ``classes_``, or the fit
            had no labels.

        Warns
        -----
        UnpaidScoreWarning
            After a private fit, because no budget is charged for the score.
        """
        check_is_fitted(self)
        self._warn_of_score()
        X = read_records(self, self._without_unit(X))
        classes = [(None, slice(None))]
        if y is not None:
            codes = self._sample_codes(len(X), y, None)
            classes = [(self.classes_[code], codes == code) for code in np.unique(codes)]
        groups = [(X[rows], self._generated(len(X[rows]), label)) for label, rows in classes]
        return -held_out_distance(groups, device=next(self.generator_.parameters()).device)

    @torch.no_grad()
    def _generated(self, n_samples, label):
        """Return samples in the space of the records, to compare with them."""
        made = self.sample(max(n_samples, _FEWEST_GENERATED), y=label, random_state=_SEED)
        if self._output_transform is None:
            return read_records(self, made)
        device = next(self.generator_.parameters()).device
        return as_array(self._output_transform.transform(as_tensor(made, device=device)))

    def _check_saved_state(self):
        super()._check_saved_state()
        check_saved_encoding(self)
        self._check_saved_labels()
        n_inputs = self._n_normals + self._n_classes
        check_network(self.generator_, n_inputs, self._output_domain.n_features)


def build_network(generator, n_inputs, domain, *, hidden_layer_sizes, activation):
    """Return an untrained network.

    Parameters
    ----------
    generator : str or callable
        One of ``NETWORKS``, or a function of ``n_inputs`` and ``domain``.
    n_inputs : int
    domain : Domain
        Set that holds its output.
    hidden_layer_sizes, activation
        Widths and activation of a multilayer perceptron.

    Returns
    -------
    torch.nn.Module
    """
    if callable(generator):
        return generator(n_inputs, domain)
    if generator in _IMAGES:
        return _IMAGES[generator](n_inputs, domain)
    return _PERCEPTRONS[generator](n_inputs, domain, check_widths(hidden_layer_sizes), activation)


def _has_categories(domain):
    if isinstance(domain, Product):
        return any(map(_has_categories, domain.domains))
    return isinstance(domain, OneHot)
