"""EntropicDeconvGAN: a generator of raw data learned from privatized records."""

from collections.abc import Callable
from dataclasses import replace
from typing import Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags

from sklearn_dpgen.deconvolution._model import GeneratorModel
from sklearn_dpgen.deconvolution._training import (
    LOSSES,
    HeldOutScore,
    hold_out,
    make_loss,
    train_generator,
)
from sklearn_dpgen.domains import Domain, Product
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.mechanisms import Mechanism
from sklearn_dpgen.mechanisms._release import (
    LearnerPlanMixin,
    fit_mechanism,
    learner_report,
    moment_score,
)
from sklearn_dpgen.nn import Training, dcgan_generator, mlp_generator
from sklearn_dpgen.persistence._networks import check_network
from sklearn_dpgen.utils._random import noise_source, split_random_state, torch_generator
from sklearn_dpgen.utils._torch import (
    as_array,
    as_tensor,
    resolve_device,
    seeded_initialization,
)
from sklearn_dpgen.utils._validation import (
    HasMethods,
    Integral,
    Interval,
    Real,
    StrOptions,
    Transformer,
    check_is_fitted,
    check_n_samples,
    check_widths,
    fit_context,
)

__all__ = ["EntropicDeconvGAN"]

_AVERAGED_SHARE = 0.2
# What decides when a training stops: the share of the records that are held out, the number of
# steps without a gain, and the smallest gain that counts, in nats.
_HELD_OUT_SHARE = 0.1
_PATIENCE = 300
_SMALLEST_GAIN = 1e-4
_MANY_EPOCHS = 300


class EntropicDeconvGAN(LearnerPlanMixin, PrivateEstimator):
    """A generator of raw records, learned from locally privatized ones.

    Each person releases one randomized record y = M(x). The generator G is trained such that
    M(G(z)) has the distribution of y, by entropic optimal transport with the cost -log p(y|x).
    Then G(z) has the distribution of the raw x, not of the noisy y (Theorem 1 of [1]_).

    Parameters
    ----------
    mechanism : Mechanism or None, default=None
        The mechanism that privatized the records, with its domain and budget. None takes the one
        that they carry, as in ``make_pipeline(LaplaceMechanism(...), EntropicDeconvGAN())``. It is
        required for records that were privatized elsewhere or read from a file. Records that carry
        another mechanism are refused.
    privatize : bool, default=False
        False: ``fit`` and ``score`` take privatized records. True: they take raw records, and
        each call privatizes them with a clone of ``mechanism``, which is one more release.
    generator : {"mlp", "dcgan"} or callable, default="mlp"
        A network, or ``generator(latent_dim, domain)`` that returns a module.
    latent_dim : int, default=2
        Dimension of the latent, uniform on [-1, 1].
    output_domain : Domain or None, default=None
        Domain of the generator's output, before it is transformed and projected on the domain of
        the mechanism; None for the mechanism's own. Projected points get no gradient across the
        border, so it should not be much wider.
    output_transform : transformer or None, default=None
        A public map from the generator's output to records, such as a fitted DCTTransformer. Its
        ``transform`` takes a tensor and is differentiable. It needs an ``output_domain``.
        ``sample`` returns the output before the transform.
    loss : {"entropic", "likelihood", "wasserstein", "noisy_wasserstein", \
            "sinkhorn_divergence"}, default="entropic"
        Entropic transport, which uses every generated point, or the maximum likelihood that bounds
        it from below, with the same optimum and less work per step. The others are the baselines
        of [1]_. "wasserstein" and "sinkhorn_divergence" compare generated points with the noisy
        records, and so learn the noise too. "noisy_wasserstein" adds fresh noise to generated
        points first: it has the right minimum, but converges slower.
    reg_scale : float, default=1.0
        Multiple of the regularization that matches the noise of the mechanism; 1 deconvolves.
    batch_size : int or "full", default=2000
        Privatized records per step; "full" takes all of them in each step, with memory linear in
        their number; a step on many records then takes seconds.
    n_generated : int, default=500
        Generated points per step. Fewer than records suffice, as only records are noisy.
    n_init : int, default=1
        Number of trainings from different initial weights. The run with the largest likelihood of
        held-out privatized records is kept. Useful when the noise is large.
    n_sinkhorn : int, default=100
        Largest number of Sinkhorn iterations per step.
    sinkhorn_tol : float, default=1e-2
        Marginal error at which the Sinkhorn iterations of a step stop.
    early_stopping : "auto" or bool, default="auto"
        True holds out a tenth of the privatized records, trains until their mean log-likelihood
        has not increased by 1e-4 nats in 300 steps, and trains anew on all records for the number
        of steps that was best. It reads nothing raw and costs no
        privacy. "auto" does so for tables (records of a Product of two domains or more) with the
        entropic or likelihood loss, if ``max_iter`` steps would use each record more than 300
        times.
    training : Training or None, default=None
        Network and optimizer: :ref:`training_settings`. Defaults: ``hidden_layer_sizes=(256, 256)``
        and ``activation="relu"`` of the multilayer perceptron, where "relu" suits distributions on
        a thin support, and "silu" tables; ``max_iter=1500``, which is the largest number of steps;
        ``learning_rate=0.002``.
    ledger : PrivacyLedger, str or None, default=None
        Ledger, or its path, that each release of raw records is charged to, if the mechanism has
        none; two are refused. Fits on privatized records are post-processing and charge nothing.
    random_state : int, RandomState or None, default=None
        None privatizes with the operating system's entropy. An int makes the fit reproducible.
        With ``privatize=True`` a seeded estimator holds the seed of its noise: publish its
        ``generator_``, not the estimator.

    Attributes
    ----------
    generator_ : torch.nn.Module
        The trained generator. Where the domain is more than a thousand half sides from 0, its
        output is relative to the middle of the domain.
    mechanism_ : Mechanism
        The fitted mechanism.
    loss_curve_ : list of float
        The loss at each step of the training that was kept.
    n_iter_ : int
        Number of steps of that training.
    privacy_ : PrivacyReport
        What the privatized records cost; training on them is post-processing and free.

    See Also
    --------
    sklearn_dpgen.mechanisms.TabularMechanism : Privatizes tables of mixed columns.
    sklearn_dpgen.tables.LocalTableSampler : Learns tables of many columns from joint answers.

    Notes
    -----
    **Formal guarantee**

    :Promise: Local (ε, δ)-differential privacy of each record, as ``mechanism`` promises it. With
        ``privatize=True`` each ``fit`` and each ``score`` is one more release.
    :Neighbours: Any two values of one person's record.
    :Public: What ``mechanism`` takes to be public: ``domain``; ``n_samples``; names of the columns;
        order of the records, or order and index of the records.
    :Bounded by: ``mechanism``, before a record is read here; with ``privatize=True`` in ``fit``.
    :Noise: That of ``mechanism``, drawn where the records were privatized.
    :Priced by: ``mechanism``. What is learned from its output is post-processing, and costs
        nothing.
    :Not covered: Records that ``mechanism`` did not release, although ``fit`` takes them to be its
        output; further releases of the same records; errors, and a ``random_state`` that others
        know or guess, with ``privatize=True``.
    :Proof: :doc:`/privacy_model`.

    Scores read nothing raw, so cross-validation on privatized records costs no privacy. A search
    over the mechanism privatizes raw records again for each candidate and fold, in ``fit`` and in
    ``score``: each is a release, and is charged.

    Parameters that are set after ``fit`` take effect in the next ``fit`` only.

    References
    ----------
    .. [1] D. Reshetova, W.-N. Chen, A. Özgür, "Training generative models from privatized data
       via entropic optimal transport", 2024, Algorithm 1 and Theorem 1.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_dpgen.datasets import make_half_circle
    >>> from sklearn_dpgen.deconvolution import EntropicDeconvGAN
    >>> from sklearn_dpgen.domains import Ball
    >>> from sklearn_dpgen.mechanisms import LaplaceMechanism
    >>> from sklearn_dpgen.nn import Training
    >>> X = make_half_circle(1000, random_state=0)
    >>> mechanism = LaplaceMechanism(epsilon=5.0, domain=Ball(1.0, n_features=2))
    >>> gan = EntropicDeconvGAN(training=Training(max_iter=20))
    >>> pipe = make_pipeline(mechanism, gan).fit(X)
    >>> pipe[-1].sample(3).shape
    (3, 2)
    """

    _saved_state: dict = {
        "loss_curve_": list[float],
        "mechanism_": Mechanism,
        "generator_": torch.nn.Module,
        "n_iter_": int,
        "_privatizes": bool,
        "_model": GeneratorModel,
    }
    _parameter_constraints: dict = {
        "mechanism": "no_validation",
        "privatize": ["boolean"],
        "generator": [StrOptions({"mlp", "dcgan"}), callable],
        "latent_dim": [Interval(Integral, 1, None, closed="left")],
        "output_domain": [Domain, None],
        "output_transform": [HasMethods("transform"), None],
        "loss": [StrOptions(set(LOSSES))],
        "reg_scale": [Interval(Real, 0, None, closed="neither")],
        "batch_size": [StrOptions({"full"}), Interval(Integral, 1, None, closed="left")],
        "n_generated": [Interval(Integral, 1, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "n_sinkhorn": [Interval(Integral, 1, None, closed="left")],
        "sinkhorn_tol": [Interval(Real, 0, None, closed="left")],
        "early_stopping": [StrOptions({"auto"}), "boolean"],
        "training": [Training, None],
        "random_state": ["random_state"],
    }
    _settings = {"training": Training}
    _setting_defaults: dict = {
        "training": {
            "hidden_layer_sizes": (256, 256),
            "activation": "relu",
            "max_iter": 1500,
            "learning_rate": 0.002,
            "device": "auto",
            "verbose": 0,
        }
    }

    def __init__(
        self,
        mechanism: Mechanism | None = None,
        *,
        privatize: bool = False,
        generator: str | Callable[[int, Domain], torch.nn.Module] = "mlp",
        latent_dim: int = 2,
        output_domain: Domain | None = None,
        output_transform: Transformer | None = None,
        loss: str = "entropic",
        reg_scale: float = 1.0,
        batch_size: int | str = 2000,
        n_generated: int = 500,
        n_init: int = 1,
        n_sinkhorn: int = 100,
        sinkhorn_tol: float = 1e-2,
        early_stopping: bool | str = "auto",
        training: Training | None = None,
        ledger: LedgerLike = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.mechanism = mechanism
        self.privatize = privatize
        self.generator = generator
        self.latent_dim = latent_dim
        self.output_domain = output_domain
        self.output_transform = output_transform
        self.loss = loss
        self.reg_scale = reg_scale
        self.batch_size = batch_size
        self.n_generated = n_generated
        self.n_init = n_init
        self.n_sinkhorn = n_sinkhorn
        self.sinkhorn_tol = sinkhorn_tol
        self.early_stopping = early_stopping
        self.training = training
        self.ledger = ledger
        self.random_state = random_state

    @property
    def _training(self):
        return self._completed("training")

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: ArrayLike | pd.DataFrame, y: object = None) -> Self:
        """Train the generator on privatized records.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            Privatized records, as the mechanism's ``transform`` returns them; raw records with
            ``privatize=True``.
        y : Ignored

        Returns
        -------
        self : object

        Raises
        ------
        PublicValueError
            The records carry another mechanism, records that are already privatized are given
            with ``privatize=True``, or the device is not available.
        TrainingDivergedError
            A loss is not finite; the estimator is then not fitted.
        """
        self._forget()
        self.__dict__.pop("_model", None)
        device = resolve_device(self._training.device)
        noise_seed, train_seed, split_seed = split_random_state(self.random_state, 3)
        self.mechanism_ = self._fit_mechanism(X, noise_seed)
        self.privacy_ = learner_report(
            self.mechanism_.privacy_, privatize=self.privatize, carried=self.mechanism is None
        )
        if self.privatize:
            X = self.mechanism_.transform(X)
        Y = self.mechanism_.encode_release(X, reset=True, estimator=self)
        # Only the shift of the model is used, which is known before it has a network.
        Y = as_tensor(Y - self._build_model(None).shift, device=device)
        seeds = split_random_state(train_seed, self.n_init)
        if self._stops_early(len(Y)) or self.n_init > 1:
            stream = torch_generator(split_seed, device)
            model, result = self._train_by_held_out(Y, seeds, stream)
        else:
            model, result = self._train(Y, seeds[0])
        self.loss_curve_ = result.loss_curve
        self.n_iter_ = result.n_iter
        self._privatizes = self.privatize
        self._model = model
        self.generator_ = model.module
        return self

    def _stops_early(self, n_samples):
        if self.early_stopping != "auto":
            return self.early_stopping
        batch_size = n_samples if self.batch_size == "full" else min(self.batch_size, n_samples)
        n_seen = self._training.max_iter * batch_size
        domain = self.mechanism_.domain_
        is_table = isinstance(domain, Product) and len(domain.domains) > 1
        is_entropic = self.loss in ("entropic", "likelihood")
        return is_table and is_entropic and n_seen > _MANY_EPOCHS * n_samples

    def _train_by_held_out(self, Y, seeds, stream):
        """Train from every seed, and keep the run with the largest held-out likelihood."""
        trained, held_out = hold_out(Y, _HELD_OUT_SHARE, stream)
        patience = _PATIENCE if self._stops_early(len(Y)) else None
        runs = []
        for seed in seeds:
            score = HeldOutScore(held_out, n_iter_no_change=patience, tol=_SMALLEST_GAIN)
            runs.append((score, seed, self._train(trained, seed, score=score)))
        score, seed, run = max(runs, key=lambda run: run[0].of(run[2][0]))
        # The learning rate decays over the planned steps and the last weights are averaged, so a
        # short planned training beats a long one that is cut. The second run uses all records.
        return self._train(Y, seed, max_iter=score.n_best) if score.stopped else run

    def _train(self, Y, seed, *, max_iter=None, score=None):
        """Train one generator on encoded privatized records; return the model and its losses."""
        training = self._training
        init_seed, batch_seed, perturb_seed = split_random_state(seed, 3)
        with seeded_initialization(init_seed):
            module = self._build_generator().to(Y.device)
        model = self._build_model(module)
        loss = make_loss(
            self.loss,
            model.local_mechanism,
            reg_scale=self.reg_scale,
            n_sinkhorn=self.n_sinkhorn,
            tol=self.sinkhorn_tol,
            noise=noise_source(perturb_seed),
        )
        result = train_generator(
            model,
            loss,
            Y,
            seed=batch_seed,
            batch_size=self.batch_size,
            n_generated=self.n_generated,
            max_iter=training.max_iter if max_iter is None else max_iter,
            learning_rate=training.learning_rate,
            averaging=_AVERAGED_SHARE,
            verbose=training.verbose,
            name=type(self).__name__,
            stop=score and score.watch(model),
        )
        return model, result

    def sample(
        self, n_samples: int = 1, *, random_state: int | np.random.RandomState | None = None
    ) -> np.ndarray | pd.DataFrame:
        """Draw synthetic raw records.

        Parameters
        ----------
        n_samples : int, default=1
            How many; as many as wanted, at no cost in privacy.
        random_state : int, RandomState or None, default=None
            Seed of the draw.

        Returns
        -------
        X : ndarray or data frame of shape (n_samples, n_features)
            A data frame when fitted on one.
        """
        check_is_fitted(self)
        n_samples = check_n_samples(n_samples)
        return self._model.sample(n_samples, random_state)

    def score_samples(self, X: ArrayLike | pd.DataFrame) -> np.ndarray:
        """Log-likelihood of each privatized record under the generator, in nats.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            Privatized records; raw ones with ``privatize=True``, which are privatized first.

        Returns
        -------
        log_likelihood : ndarray of shape (n_samples,)
            ``log mean_i p(y | G(z_i))`` over a fixed set of latents.
        """
        Y = self._encoded(X)
        return as_array(self._model.log_likelihood(as_tensor(Y - self._model.shift)))

    def score(self, X: ArrayLike | pd.DataFrame, y: object = None) -> float:
        """Return minus the distance of the first two moments of samples and raw records.

        See :meth:`DeconvolutionEM.score`: moments of raw records are estimated without bias from
        privatized ones, so scores compare mechanisms with one domain or schema. With one
        mechanism, :func:`~sklearn_dpgen.deconvolution.likelihood_score` is sharper.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            Privatized records; raw ones with ``privatize=True``, which are privatized first.
        y : Ignored

        Returns
        -------
        float
        """
        Y = self._encoded(X)
        model = self._model
        points = as_array(model.points()).astype(np.float64)
        weights = np.full(len(points), 1 / len(points))
        return moment_score(model.local_mechanism, Y - model.shift, points, weights)

    def _encoded(self, X):
        check_is_fitted(self)
        if self._privatizes:
            X = self.mechanism_.transform(X)
        return self.mechanism_.encode_release(X, estimator=self)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "generator_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        if isinstance(self.mechanism, BaseEstimator):
            tags.input_tags = get_tags(self.mechanism).input_tags
        return tags

    def _fit_mechanism(self, X, noise_seed):
        if self.output_transform is not None and self.output_domain is None:
            raise PublicValueError("output_transform needs an output_domain, where its input lies.")
        return fit_mechanism(
            self.mechanism,
            X,
            privatize=self.privatize,
            noise_seed=noise_seed,
            ledger=self.ledger,
        )

    def _build_model(self, module):
        return GeneratorModel(
            module, self.latent_dim, self.mechanism_, self.output_domain, self.output_transform
        )

    def _build_generator(self):
        domain = self.output_domain
        if domain is None:
            domain = self._build_model(None).local_mechanism.domain_
        if callable(self.generator):
            return self.generator(self.latent_dim, domain)
        if self.generator == "dcgan":
            return dcgan_generator(self.latent_dim, domain)
        training = self._training
        widths = check_widths(training.hidden_layer_sizes)
        return mlp_generator(self.latent_dim, domain, widths, training.activation)

    def _check_saved_state(self):
        super()._check_saved_state()
        model = replace(self._model, module=self.generator_, mechanism=self.mechanism_)
        domain = model.mechanism.domain_ if model.output_domain is None else model.output_domain
        check_network(model.module, model.latent_dim, domain.n_features)
        self._model = model
