"""SmoothedSlicedWassersteinGenerator: a generator that matches noisy records on many lines."""

from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike

from sklearn_dpgen.accounting import Bound, Event, PrivacyReport, ProjectionLaw
from sklearn_dpgen.accounting._checks import check_count
from sklearn_dpgen.domains import Domain, OneHot, Product
from sklearn_dpgen.domains._ball import enclosing_ball
from sklearn_dpgen.ledger._base import Plan, TrainedEstimator
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.mechanisms._class_moments import price_moments
from sklearn_dpgen.nn import dcgan_generator, mlp_generator, upsampling_generator
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
    RELEASE_CONSTRAINTS,
    ClassRecords,
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
    check_is_fitted,
    check_n_samples,
    check_widths,
    fit_context,
)

__all__ = ["SmoothedSlicedWassersteinGenerator"]

_CHUNK = 2048
# Of the records that a score draws: it is public, and the same for all that is compared.
_SEED = 0
# Of a class: fewer would add to the distance, and favour a law that is too narrow.
_FEWEST_GENERATED = 1000
# Of projections, where they are chosen here: records of a batch, and directions.
_BATCH_SIZE, _MOST_DIRECTIONS = 100, 100
_EVENTS = {"records": "records", "projections": "batch_projections"}
_PERCEPTRONS: dict[str, Callable] = {"auto": DrawnGenerator, "mlp": mlp_generator}
_IMAGES: dict[str, Callable] = {"dcgan": dcgan_generator, "upsampling": upsampling_generator}
NETWORKS = {*_PERCEPTRONS, *_IMAGES}


class SmoothedSlicedWassersteinGenerator(FramesMixin, LabelSamplerMixin, TrainedEstimator):
    """A generator trained to match noisy records in the smoothed sliced Wasserstein distance.

    Secret batches of records are released with Gaussian noise, or the moments of each class, and
    nothing else sees a record. A network then learns to make points whose projections, with noise
    of the same law, have the law of the projected releases: the noise on both sides makes this a
    distance between smoothed laws, which vanishes where the laws themselves agree. Training is
    post-processing, so its length costs nothing; but for projections that are released at each
    step.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of the whole fit, in nats; ``np.inf`` releases without noise.
    delta : float or "auto", default="auto"
        Failure probability, in (0, 1). "auto" is 0.1 / n_samples.
    schema : Schema or None, default=None
        The public declaration of the columns of a table. Either this or ``domain``.
    domain : Domain, callable or None, default=None
        The public set in which records lie, or a function of ``n_features`` that returns it.
        Records outside are moved to its nearest point. Noise is in proportion to its diameter:
        a ball of about the typical norm, about a public center, is better than a wide one.
    labels : {"public", "private"} or None, default=None
        Privacy of the labels, required by ``fit(X, y)``. "public": neighbours differ in a record of
        the same class, and class sizes are public. "private": neighbours differ in a record and its
        label. This needs some ``n_classes`` times the records for the same quality.
    classes : array-like of shape (n_classes,) or None, default=None
        The public labels, at least two. Private labels need them. None takes those that occur
        in ``y``, which are then public: ``privacy_`` says so.
    label_proportions : array-like of shape (n_classes,) or None, default=None
        Public shares of the classes, in the order of ``classes_``. None takes the public class
        sizes, or, with private labels, noisy counts for 5 percent of the budget.
    output_domain : Domain or None, default=None
        Where the output of the network lies, before it is transformed and projected on the domain
        as the records were; None for that domain itself.
    output_transform : transformer or None, default=None
        A public map from the output of the network to the records, such as a fitted
        DCTTransformer: its ``transform`` takes a tensor and is differentiable. It needs an
        ``output_domain``, and a ``domain``. ``sample`` returns the output before it. A search
        clones it, unless it is in a :class:`~sklearn.frozen.FrozenEstimator`.
    release : {"records", "moments", "projections"}, default="records"
        What the network learns from. "records": noisy records of secret batches. "moments": noisy
        means and covariances by class, of which it learns normal laws; ``batch_size`` is not read.
        "projections" is the paper: at each step a new batch is projected on new directions and
        released with noise, so that ``max_iter`` is the number of releases, which the budget has
        to pay for. It takes public labels alone and one network, and does not read
        ``shape_weight``. ``n_epochs`` is of the records.
    n_projections : int or "auto", default="auto"
        Lines that the releases are compared on. "auto" takes as many as a covariance matrix has
        entries, from 64 to some 2000. They cost time, not privacy. Of released projections it is
        the directions of a step, of which more need more noise; "auto" is all, 100 at most.
    directions : {"orthogonal", "independent"}, default="orthogonal"
        How the lines are drawn: in orthonormal blocks, or each by itself.
    q : {1, 2}, default=2
        Order of the distance.
    shape_weight : float or "auto", default="auto"
        Weight, for q = 2, of the distance of the centered laws beside that of the means. "auto"
        is 1 + (σ/s)² with σ the noise, or R/11 where that is wider, and s = R/(2 sqrt(d)), half
        the radius of the domain a dimension: as much as the smoothing takes from it. It is less
        where the releases are too few to show a covariance, and 1 where the domain has one-hot
        blocks, whose variances follow from their means.
    batch_size : int or "auto", default="auto"
        Records of one release, drawn without replacement: the smaller, the more a given budget
        tells. Of each public class in proportion, but one at least. "auto" is one, or one of the
        smallest class; of projections the paper's 100, or all. At most n_samples.
    n_epochs : float, default=20.0
        Passes over the records, of all releases together. More of them tell more, slowly, and
        take time in proportion.
    generator : {"auto", "mlp", "upsampling", "dcgan"} or callable, default="auto"
        A network, or ``generator(n_inputs, domain)`` that returns a module: inputs are the latent
        and, with labels, the class as a one-hot vector. A module with an attribute ``n_noise``
        gets that many standard normals before them. "auto" is a multilayer perceptron that draws
        the categories of one-hot blocks (``DrawnGenerator``), "mlp" one with
        soft blocks; "upsampling" is the paper's.
    hidden_layer_sizes : tuple of int, default=(200, 200)
        Of the multilayer perceptron.
    activation : {"relu", "silu", "tanh"}, default="relu"
        Of the multilayer perceptron.
    latent_dim : int, default=10
        Width of the latent, standard normal.
    n_generators : int, default=1
        Networks, each trained by itself on the same releases; records come from all of them in
        equal shares. What one gets wrong by chance, another does not.
    n_generated : int, default=64
        Generated points of each class in a step, at least 2: latents come in pairs.
    max_iter : int, default=3000
        Number of steps.
    learning_rate : float, default=0.002
        Peak learning rate of Adam, with cosine decay.
    averaging : float, default=0.2
        Share of the steps, from the end, over which the parameters are averaged.
    ledger : PrivacyLedger, path or None, default=None
        Where a fit books what it will cost, before anything of a record is released: it raises
        BudgetExceededError where less is left. None books nowhere.
    unit : str or None, default=None
        Column of X, a data frame, that says whose row each is. A person is then protected with all
        of their rows, and counts as one record: one row is drawn of each, for projections anew at
        each step, so that what is learned is the law of a random row of a random person. With
        public labels all rows of a person must be of one class. The column is not learned from.
        None protects each row by itself.
    random_state : int, RandomState or None, default=None
        None draws noise and batches from the operating system's entropy. An int repeats the fit,
        and voids the guarantee for whoever knows or guesses it.
    device : str or torch.device, default="auto"
        "auto" trains on a GPU where there is one.
    verbose : int, default=0
        1 shows progress bars.

    Attributes
    ----------
    generator_ : torch.nn.Module
        The network, from (n, latent_dim + n_classes) to its domain, in single precision.
    domain_ : Domain
        The set in which records lie.
    encoder_ : TabularEncoder
        From the table to the domain and back; with a schema only.
    classes_ : ndarray of shape (n_classes,)
        The labels, if fitted with any.
    label_proportions_ : ndarray of shape (n_classes,)
        By which ``sample_labels`` draws, if fitted with labels.
    loss_curve_ : list of float
        The distance at each step, the mean over networks, with the weight of the shapes, in units
        of the radius of the domain to the power q. It is computed from releases.
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

    In [1]_ a step projects a batch on its own directions, k of d, and releases that, as
    ``release="projections"`` does here. With k = d orthonormal ones the sensitivity is the diameter
    of the domain whatever they are, and the release is as good as the noisy batch itself: it can be
    projected again, on any directions, and compared with the generator as often as wanted. For one
    budget, small batches tell most: the information is T B / σ² for T releases of B records.

    The noise is wide: what comes through is the mean of a class first, then its covariance, and
    details hardly. Means are the better part of the distance, and of two samples the noisier one
    pulls towards a law that is too narrow; hence all releases together on the one side, the
    smoothing in closed form on the other, and a weight for the shape.

    Where means and covariances are all that comes through, ``release="moments"`` releases these,
    with far less noise, as :class:`~sklearn_dpgen.moments.MomentSampler` does. On each line u the
    network then learns the normal law N(⟨u, m⟩, uᵀ C u) of a class with released mean m and
    covariance C.

    References
    ----------
    .. [1] A. Rakotomamonjy, L. Ralaivola, "Differentially private sliced Wasserstein distance",
       ICML 2021, Equation 8 and Algorithm 1. The accounting, and what is released once and before
       the training, are ours.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import make_half_circle
    >>> from sklearn_dpgen.domains import Ball
    >>> from sklearn_dpgen.smoothed import SmoothedSlicedWassersteinGenerator
    >>> X = make_half_circle(2000, random_state=0)
    >>> generator = SmoothedSlicedWassersteinGenerator(
    ...     epsilon=10.0, domain=Ball(1.0, n_features=2), max_iter=20
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
        **RELEASE_CONSTRAINTS,
        "schema": [Schema, None],
        "domain": [Domain, callable, None],
        "labels": [StrOptions({"public", "private"}), None],
        "classes": ["array-like", None],
        "label_proportions": ["array-like", None],
        "output_domain": [Domain, None],
        "output_transform": [HasMethods("transform"), None],
        "release": [StrOptions({"records", "moments", "projections"})],
        "q": [Interval(Integral, 1, 2, closed="both")],
        "batch_size": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "generator": [StrOptions(NETWORKS), callable],
        "latent_dim": [Interval(Integral, 1, None, closed="left")],
        "n_generators": [Interval(Integral, 1, None, closed="left")],
        "n_generated": [Interval(Integral, 2, None, closed="left")],
    }
    _trained = "generator_"

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | str = "auto",
        *,
        schema: Schema | None = None,
        domain: Domain | Callable[..., Domain] | None = None,
        labels: str | None = None,
        classes: ArrayLike | None = None,
        label_proportions: ArrayLike | None = None,
        output_domain: Domain | None = None,
        output_transform: Transformer | None = None,
        release: str = "records",
        n_projections: int | str = "auto",
        directions: str = "orthogonal",
        q: int = 2,
        shape_weight: float | str = "auto",
        batch_size: int | str = "auto",
        n_epochs: float = 20.0,
        generator: str | Callable[[int, Domain], torch.nn.Module] = "auto",
        hidden_layer_sizes: Sequence[int] = (200, 200),
        activation: str = "relu",
        latent_dim: int = 10,
        n_generators: int = 1,
        n_generated: int = 64,
        max_iter: int = 3000,
        learning_rate: float = 0.002,
        averaging: float = 0.2,
        ledger: LedgerLike = None,
        unit: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str | torch.device = "auto",
        verbose: int = 0,
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
        self.n_projections = n_projections
        self.directions = directions
        self.q = q
        self.shape_weight = shape_weight
        self.batch_size = batch_size
        self.n_epochs = n_epochs
        self.generator = generator
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.latent_dim = latent_dim
        self.n_generators = n_generators
        self.n_generated = n_generated
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.averaging = averaging
        self.ledger = ledger
        self.unit = unit
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

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
        n_classes, sizes = self._planned_classes(n_samples, class_sizes)
        return self._plan(declared_domain(self, n_features), n_samples, n_classes, sizes).report

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: ArrayLike | pd.DataFrame, y: ArrayLike | None = None) -> Self:
        """Release noisy records or moments and train the network on them, or release as it trains.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            Private records.
        y : array-like of shape (n_samples,) or None, default=None
            Labels; with them, ``sample`` makes records of a wanted class.

        Returns
        -------
        self : object

        Raises
        ------
        TrainingDivergedError
            When a loss or a parameter is not finite.
        ValueError
            Also for private labels without ``classes``.
        """
        return self._fit(X, y)

    def _read(self, X, y, *, seed):
        # A device that is not there is refused before anything is paid for.
        resolve_device(self.device)
        self._check_declared()
        self._check_label_parameters(y)
        self._check_release(y is not None)
        persons = None
        if self.release == "projections":
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

    @property
    def _n_classes(self):
        """The number of classes of the fit; 0 without labels."""
        return len(self.classes_) if hasattr(self, "classes_") else 0

    def _shape_weight(self):
        # The variances of a one-hot block follow from its means.
        is_plain = self.shape_weight != "auto" or not _has_categories(self.domain_)
        return self.shape_weight if is_plain else 1.0

    def _to_domain(self, G):
        """Map what the network makes into the domain, as records were."""
        if self.output_transform is not None:
            G = self.output_transform.transform(G)
        return G if self.output_domain is None else self.domain_.project(G)

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
            Of public labels; None without any.
        """
        self._check_release(n_classes > 0)
        priced = self._price(domain, n_samples, n_classes, class_sizes)
        relation, public = self._label_terms(n_classes > 0)
        fields = relation | {"public": ("n_samples", "domain", "column_names", *public)}
        name, noise = type(self).__name__, self._noise_description()
        if self.release == "moments":
            report = priced.report(name, noise, **fields)
        else:
            report = priced.report(
                name=name,
                events=(Event(_EVENTS[self.release]),),
                norm="l2",
                bounds=(Bound("l2_diameter", domain.diameter(2)),),
                noise_source=noise,
                **fields,
            )
        return Plan(self._protected(report), priced)

    def _price(self, domain, n_samples, n_classes, class_sizes):
        """Price every release from public quantities: return a ReleasePlan or a MomentPlan."""
        budget = {"epsilon": self.epsilon, "delta": self._delta(n_samples)}
        if self.release == "moments":
            return price_moments(
                enclosing_ball(domain),
                n_samples,
                max(1, n_classes),
                class_sizes=class_sizes if n_classes else [n_samples],
                label_proportions=self.label_proportions,
                **budget,
            )
        sizes = [n_samples] if class_sizes is None else list(map(int, class_sizes))
        d, batch_size = domain.n_features, self.batch_size
        if self.release == "projections":
            n_projections = self.n_projections
            if isinstance(n_projections, str):
                n_projections = min(d, _MOST_DIRECTIONS)
            return plan_projections(
                sizes,
                domain.diameter(2),
                ProjectionLaw(d, 1 if d == 1 else n_projections, self.directions),
                batch_size=min(n_samples, _BATCH_SIZE) if batch_size == "auto" else batch_size,
                n_releases=self.max_iter,
                **budget,
            )
        if batch_size == "auto":
            # At one rate for all: a higher one of a small class would be paid by every class.
            batch_size = n_samples // max(1, min(sizes))
        is_private = n_classes > 0 and self.labels == "private"
        return plan_releases(
            sizes,
            domain.diameter(2),
            d,
            batch_size=batch_size,
            n_epochs=self.n_epochs,
            slot_radius=enclosing_ball(domain).radius if is_private else None,
            n_slots=n_classes if is_private else 1,
            with_counts=is_private and self.label_proportions is None,
            **budget,
        )

    def _release(self, plan, records, seed):
        """Return what the network learns from, and class sizes, up to a factor, or None.

        The network learns from distributions on lines. With ``release="projections"`` the training
        makes the releases: then it is the trained network and its losses that are returned.
        """
        noise_seed, line_seed, train_seed = split_random_state(seed, 3)
        (X, codes, persons), n_classes = records, self._n_classes
        priced, ball, device = (
            plan.details,
            enclosing_ball(self.domain_),
            resolve_device(self.device),
        )
        noise = self._noise_source(noise_seed, X, codes, n_classes, self.domain_)
        lines = {
            "n_projections": self.n_projections,
            "kind": self.directions,
            "q": self.q,
            "shape_weight": self._shape_weight(),
            "seed": line_seed,
            "device": device,
        }
        if self.release == "moments":
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
        if self.release == "projections":
            batches = ProjectedBatches(
                priced.records, noise, records, ball.radius, q=self.q, device=device
            )
            return self._train(batches, train_seed), shares
        laws = release_laws(
            priced.records,
            noise,
            records,
            ball.radius,
            shares=None if is_public else shares,
            verbose=self.verbose,
            **lines,
        )
        return laws, shares

    def _learn(self, plan, released, seed):
        learned, sizes = released
        if self.release != "projections":
            learned = self._train(learned, seed)
        module, self.loss_curve_ = learned
        if self._n_classes:
            self._set_proportions(sizes)
        self.noise_multiplier_ = plan.report.noise_multiplier
        self.n_iter_ = self.max_iter
        # What sample needs of the parameters, which may change.
        self._n_normals = n_normals(module, self.latent_dim)
        self._output_domain = self._network_domain
        self._output_transform = self.output_transform
        self.generator_ = module

    def _train(self, laws, seed):
        """Return a network trained on released distributions, or on releases, and its losses."""
        n_classes = self._n_classes
        center = as_tensor(enclosing_ball(self.domain_).center, device=laws.device)

        def build():
            return build_network(
                self.generator,
                self.latent_dim + n_classes,
                self._network_domain,
                hidden_layer_sizes=self.hidden_layer_sizes,
                activation=self.activation,
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
            max_iter=self.max_iter,
            learning_rate=self.learning_rate,
            averaging=self.averaging,
            verbose=self.verbose,
            name=type(self).__name__,
        )

    @property
    def _network_domain(self):
        """The domain in which the output of the network lies."""
        return self.domain_ if self.output_domain is None else self.output_domain

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
            How many; as many as wanted, at no cost in privacy.
        y : label, array-like of shape (n_samples,) or None, default=None
            The class of all records, or of each. None draws them as ``sample_labels`` does.
        random_state : int, RandomState or None, default=None
            Seed of the draw.

        Returns
        -------
        X : ndarray or data frame of shape (n_samples, n_features)
            A data frame with a schema, or where ``fit`` was given one with names of columns. With
            an ``output_transform`` it is an array of what comes before it, in columns of its own.

        Raises
        ------
        ValueError
            A label that was not in ``classes_``, or any after a fit without labels.
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
            Records, of which the score tells: if they are private, it is not.
        y : array-like of shape (n_samples,) or None, default=None
            Their labels, of which it tells as well. With them each class is compared with samples
            of its own, and counts by its share of X. None compares all records with all classes.

        Returns
        -------
        float
            At most 0, and larger is better: minus the root of the mean of W_2 squared, over fixed
            directions. It is in the units of the records, which are not moved into the domain, so
            that fits with other domains can be compared; with a schema, in those of its encoding.
            Directions and samples are the same at each call.

        Raises
        ------
        ValueError
            Other columns than those of ``fit``, a label that was not in ``classes_``, or any after
            a fit without labels.

        Warns
        -----
        UnpaidScoreWarning
            After a private fit: nothing is paid for the score.
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
        """Return samples to compare with records, in the space of these."""
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
        Where its output lies.
    hidden_layer_sizes, activation
        Of a multilayer perceptron.

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
