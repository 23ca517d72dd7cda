"""LocalTableSampler: synthetic tables from joint randomized response."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.mechanisms import JointRandomizedResponse
from sklearn_dpgen.mechanisms._joint_response import RELEASE_COLUMNS
from sklearn_dpgen.mechanisms._release import (
    LearnerPlanMixin,
    fit_mechanism,
    learner_report,
    moment_score,
)
from sklearn_dpgen.persistence._declarations import demand
from sklearn_dpgen.preprocessing._public_table import PUBLIC_TABLE, as_public_table
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.tables._conditional_sampling import ConditionalSamplerMixin
from sklearn_dpgen.tables._distributions import ProductMixture
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._validation import (
    DEVICE,
    Integral,
    Interval,
    Real,
    StrOptions,
    check_fits,
    check_is_fitted,
    fit_context,
)

if TYPE_CHECKING:
    import torch

__all__ = ["LocalTableSampler"]

# Copies of the population in memory: logits, probabilities, gradients and the state of Adam.
_COPIES = 8
# What decides when a fit stops: the share of the answers that are held out, the number of steps
# without a gain, and the smallest gain that counts, in nats.
_HELD_OUT_SHARE = 0.1
_PATIENCE = 100
_SMALLEST_GAIN = 1e-4
# Weight of the prior towards public rows, relative to the automatic prior.
_PUBLIC_STRENGTH = 20.0


class LocalTableSampler(LearnerPlanMixin, ConditionalSamplerMixin, PrivateEstimator):
    """Synthetic tables from locally privatized records.

    Each person gives one randomized answer on a few columns, by
    :class:`~sklearn_dpgen.mechanisms.JointRandomizedResponse`. A population, which is a mixture of
    product distributions, is fitted to the answers by maximum likelihood. This is post-processing
    and costs no privacy. Synthetic records are drawn from the population.

    Parameters
    ----------
    mechanism : JointRandomizedResponse or None, default=None
        The mechanism that released the answers, with its schema and budget. None takes the
        mechanism that is attached to a data frame of answers, as in
        ``make_pipeline(JointRandomizedResponse(...), LocalTableSampler())``; it must be given for
        answers that were joined or read from a file. Answers of another mechanism are refused.
    privatize : bool, default=False
        If False, ``fit`` and ``score`` take answers. If True, they take raw records and privatize
        them with a clone of ``mechanism``; each call is a further release.
    population_size : int, default=200
        Number of rows of the population.
    prior : "auto" or float, default="auto"
        Penalty on dependence between columns, which keeps the fit from learning noise: the weight
        of the mean Kullback-Leibler divergence of a row from the mean row, relative to the
        log-likelihood of all answers. "auto" is 0.14 √n I^⅓ for n answers with the information
        I = (e^ε - 1)² / (4 e^ε) each.
    max_iter : int, default=400
        Most steps of Adam.
    batch_size : "auto" or int, default="auto"
        Answers per step. "auto" is 1/25 of the answers, from 1000 to 16000.
    learning_rate : "auto" or float, default="auto"
        Peak rate of Adam, in logits per step, with cosine decay. "auto" is (n I)^¼ / 100, from 0.1
        to 0.3, for n answers with the information I.
    n_init : int, default=1
        Number of fits from different starts; the population with the largest likelihood of
        held-out answers is kept.
    early_stopping : bool, default=False
        Whether to choose the number of steps by the likelihood of a held-out tenth of the answers,
        and then to refit to all answers. Training stops where the mean log-likelihood has not
        increased by 1e-4 nats in 100 steps.
    public : PublicTable, data frame, path or other source of records, default=None
        A public table with some of the columns, as a prior: see Notes. It is not protected, so it
        must not be made from the private records, except by releases that are paid for.
    ledger : PrivacyLedger, str or None, default=None
        Ledger that is charged for each release of raw records, if the mechanism has none; two are
        refused. Fits on answers are post-processing and charge nothing.
    random_state : int, RandomState or None, default=None
        None draws noise from the operating system's entropy. An int makes the fit reproducible;
        with ``privatize=True`` it determines the noise, and must be kept secret.
    device : str or torch.device, default="auto"
        "auto" uses a GPU if there is one.
    verbose : int, default=0
        1 shows progress.

    Attributes
    ----------
    law_ : ProductMixture
        The population: a mixture of rows with independent columns and equal weights. With
        ``public`` there are 2000.
    mechanism_ : JointRandomizedResponse
        The fitted mechanism.
    encoder_ : TabularEncoder
        Encoder of records.
    loss_curve_ : list of float
        Negative mean log-likelihood of the answers of each step, in nats.
    n_iter_ : int
        Number of steps.
    privacy_ : PrivacyReport
        The guarantee of the answers; the fit is post-processing.
    n_features_in_, feature_names_in_
        Columns of the input of ``fit``: of answers, or of records with ``privatize=True``.

    See Also
    --------
    TableSampler : Central privacy, with far less noise, for a trusted curator.
    sklearn_dpgen.deconvolution.EntropicDeconvGAN : Learns a network from the same answers.

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
    :Proof: :doc:`/privacy_model`; of answers :ref:`local-tables`.

    A population P has n_s rows P_r, each a product distribution. It minimizes
    -Σ_i log mean_r p(y_i | P_r) + τ mean_r KL(P_r ‖ mean row) for answers y_i. This is the
    likelihood objective of entropic deconvolution [1]_ with a mixture of products in place of a
    generator; it uses dependence of all orders between columns asked together.

    Scores read answers only, so that cross-validation on answers costs no privacy. A search over
    parameters of the mechanism releases the records again for each candidate and fold, in ``fit``
    and in ``score``.

    **Public table.** Public rows are weighted by maximum entropy to the single columns of that
    population, as long as seven tenths of their effective number are kept. A record copies column j
    of its row with probability κ_j, and else has it from a row of the population, drawn given its
    other cells. κ maximizes the likelihood of answers, of at most 20 000, with a prior of full
    copying, so that wrong columns are not copied; columns whose dependence could be the sampling
    error of the public rows, such as those of a hundred rows, are copied less. Single columns are
    then shifted to a compromise of answers and public shares. A second fit starts from 2000 such
    rows Q_r, and minimizes -Σ_i log mean_r p(y_i | P_r) + 20 τ₀ mean_r KL(P_r ‖ Q_r), where τ₀ is
    the automatic ``prior``: so many answers overrule the table. It has a twentieth of the steps,
    and about doubles the time. The distribution holds rows of the public table.

    A step takes 6 n_s operations per category of an asked column and covered cell, independent of
    the number of other columns. The answers of a million people take about 50 MB.

    References
    ----------
    .. [1] D. Reshetova, W.-N. Chen, A. Özgür, "Training generative models from privatized data
       via entropic optimal transport", 2024.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import load_rand_health
    >>> from sklearn_dpgen.mechanisms import JointRandomizedResponse
    >>> from sklearn_dpgen.tables import LocalTableSampler
    >>> data = load_rand_health()
    >>> mechanism = JointRandomizedResponse(epsilon=4.0, schema=data.schema).fit()
    >>> answers = mechanism.transform(data.frame)  # where the records are
    >>> sampler = LocalTableSampler(population_size=50, max_iter=50).fit(answers)
    >>> sampler.sample(3, conditions={"idp": 1})["idp"].tolist()
    [1, 1, 1]
    """

    _saved_state: dict = {
        "mechanism_": JointRandomizedResponse,
        "law_": ProductMixture,
        "loss_curve_": list[float],
        "n_iter_": int,
        "_privatizes": bool,
        "_device": str,
    }
    _not_saved: dict = {
        "encoder_": "It is that of mechanism_.",
        "public": "What the fit took of it is in law_.",
    }
    _parameter_constraints: dict = {
        "mechanism": "no_validation",
        "privatize": ["boolean"],
        "population_size": [Interval(Integral, 2, None, closed="left")],
        "prior": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "learning_rate": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "early_stopping": ["boolean"],
        "public": PUBLIC_TABLE,
        "random_state": ["random_state"],
        "device": DEVICE,
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        mechanism: JointRandomizedResponse | None = None,
        *,
        privatize: bool = False,
        population_size: int = 200,
        prior: str | float = "auto",
        max_iter: int = 400,
        batch_size: str | int = "auto",
        learning_rate: str | float = "auto",
        n_init: int = 1,
        early_stopping: bool = False,
        public: object = None,
        ledger: LedgerLike = None,
        random_state: int | np.random.RandomState | None = None,
        device: "str | torch.device" = "auto",
        verbose: int = 0,
    ) -> None:
        self.mechanism = mechanism
        self.privatize = privatize
        self.population_size = population_size
        self.prior = prior
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.n_init = n_init
        self.early_stopping = early_stopping
        self.public = public
        self.ledger = ledger
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: pd.DataFrame | Iterable[pd.DataFrame], y: object = None) -> Self:
        """Fit the population to answers.

        Parameters
        ----------
        X : data frame, files, query, stream, iterable of frames, or dask DataFrame
            Answers, from ``transform`` of the mechanism, possibly joined or read from a file; raw
            records with ``privatize=True``. See :ref:`large_tables`.
        y : ignored
            Labels are columns of the schema.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            Answers of another mechanism, or missing, impossible or duplicate answers; a ``device``
            that does not exist.
        TypeError
            The mechanism is not a JointRandomizedResponse.
        """
        from sklearn_dpgen.tables._answer_fit import AnswerFit, split_answers
        from sklearn_dpgen.tables._public_population import N_ROWS, PublicPopulation
        from sklearn_dpgen.utils._torch import resolve_device

        self._forget()
        device = resolve_device(self.device)
        noise_seed, fit_seed, split_seed = split_random_state(self.random_state, 3)
        if self.mechanism is not None:
            _check_mechanism(self.mechanism)
        mechanism = fit_mechanism(
            self.mechanism,
            X if self.privatize or self.mechanism is None else None,
            privatize=self.privatize,
            noise_seed=noise_seed,
            ledger=self.ledger,
        )
        _check_mechanism(mechanism)
        public = as_public_table(self.public)
        if public is not None:
            # Read and aligned before records are, so that no error depends on them or costs budget.
            public = public.read(mechanism.schema)
            public_codes = public.codes(mechanism.encoder_)
        self.mechanism_, self.encoder_ = mechanism, mechanism.encoder_
        self._learn_kind(X)
        names = self.encoder_.feature_names_in_ if self.privatize else RELEASE_COLUMNS
        self.n_features_in_, self.feature_names_in_ = len(names), np.array(names, dtype=object)
        width = self.encoder_.domain_.n_features
        n_rows = max(self.population_size, 0 if public is None else N_ROWS)
        check_fits(4 * _COPIES * width * n_rows, "population_size")
        report = learner_report(
            self.mechanism_.privacy_, privatize=self.privatize, carried=self.mechanism is None
        )
        self.privacy_ = self._of_public(report, public)
        self._privatizes, self._device = self.privatize, self.device
        answers = self._encoded(X)
        fit = AnswerFit(
            mechanism,
            n_rows=self.population_size,
            prior=self._prior_weight(len(answers)),
            batch_size=self.batch_size,
            max_iter=self.max_iter,
            learning_rate=self._rate(len(answers)),
            device=device,
            verbose=self.verbose,
            name=type(self).__name__,
        )
        seeds = split_random_state(fit_seed, self.n_init)
        if self.n_init == 1 and not self.early_stopping:
            P, result = fit(answers, seeds[0])
        else:
            trained, held_out = split_answers(answers, _HELD_OUT_SHARE, split_seed)
            patience = _PATIENCE if self.early_stopping else None
            runs = [
                fit.watched(trained, held_out, seed, patience, _SMALLEST_GAIN) for seed in seeds
            ]
            best = max(range(self.n_init), key=lambda i: runs[i].score)
            P, result = fit(answers, seeds[best], max_iter=runs[best].n_best)
        self.loss_curve_, self.n_iter_ = result.loss_curve, result.n_iter
        if public is not None:
            beside_public = PublicPopulation(
                fit,
                mechanism,
                public_codes,
                public.weights,
                _PUBLIC_STRENGTH * self._automatic_prior(len(answers)),
                split_seed,
            )
            P = beside_public(answers, P, result.n_iter)
        shares = np.full(len(P), 1 / len(P))
        self.law_ = ProductMixture(self.encoder_.domain_, shares, P)
        return self

    def score_samples(self, X: pd.DataFrame | Iterable[pd.DataFrame]) -> np.ndarray:
        """Return the log-likelihood of each answer under the population, in nats.

        Parameters
        ----------
        X : data frame or other source of records, as for ``fit``

        Returns
        -------
        log_likelihood : ndarray of shape (n_samples,)
        """
        from sklearn_dpgen.tables._answer_fit import log_likelihoods
        from sklearn_dpgen.utils._torch import as_array, as_tensor, resolve_device

        check_is_fitted(self)
        device = resolve_device(self._device)
        P = as_tensor(self.law_.probabilities.T, device=device)
        shares = as_tensor(self.law_.shares, device=device)
        return as_array(log_likelihoods(self.mechanism_, self._encoded(X), P, shares))

    def score(self, X: pd.DataFrame | Iterable[pd.DataFrame], y: object = None) -> float:
        """Return minus the distance of the first two moments to those of raw records.

        The distance is the mean squared difference of the means plus that of the mean products of
        pairs, in units of half of the declared ranges. Moments of raw records are estimated from
        answers without bias, so that scores are comparable between mechanisms with the same
        schema: 0 is best, and noise lowers the score. For a single mechanism,
        :func:`~sklearn_dpgen.deconvolution.likelihood_score` is more precise.

        Parameters
        ----------
        X : data frame or other source of records, as for ``fit``
            Answers; raw records with ``privatize=True``, which are privatized first.
        y : ignored

        Returns
        -------
        float
        """
        check_is_fitted(self)
        points = self.law_.probabilities.astype(np.float64)
        return moment_score(self.mechanism_, self._encoded(X), points, self.law_.shares)

    def find_bins(self, n_bins: int = 16) -> dict[str, np.ndarray]:
        """Return bins of numbers and dates with nearly equal shares of the records.

        A first group of people answers on fine bins, with ``JointRandomizedResponse(n_bins=64,
        n_asked=1)``; the result can then be declared as ``n_bins`` for a second group.

        Parameters
        ----------
        n_bins : int, default=16
            Most bins of a column, at least 2. Fine bins are merged, never split.

        Returns
        -------
        dict of str to ndarray
            Edges in the units of each column, a subset of the edges of the fitted bins.
        """
        check_is_fitted(self)
        if not isinstance(n_bins, Integral) or n_bins < 2:
            raise PublicValueError(f"n_bins must be an integer of at least 2, got {n_bins!r}.")
        shares = self.law_.shares @ self.law_.probabilities
        edges = {}
        for name, column in self.encoder_.columns_.items():
            if isinstance(column, Binned):
                below = np.cumsum(shares[self.encoder_.blocks_[name]][: column.n_bins])
                starts = _even_starts(np.append(0.0, below / below[-1]), n_bins)
                edges[name] = column.column.from_unit(np.array(column.merged(starts).edges))
        return edges

    def _encoded(self, X):
        """Return encoded answers, of raw records with ``privatize=True``."""
        return self.mechanism_.encode_release(
            self.mechanism_.transform(X) if self._privatizes else X
        )

    def plan(self, n_samples: int | None = None, n_features: int | None = None) -> PrivacyReport:
        report, public = super().plan(n_samples, n_features), as_public_table(self.public)
        schema = getattr(self.mechanism, "schema", None)
        rows = None if public is None or schema is None else public.read(schema)
        return self._of_public(report, rows)

    plan.__doc__ = LearnerPlanMixin.plan.__doc__

    def _of_public(self, report, rows):
        """Return the report with the public table among the public facts, and its hash."""
        if self.public is None:
            return report
        tables = {} if rows is None else {"public": rows.sha256}
        return replace(report, public=(*report.public, "public"), public_tables=tables)

    def _prior_weight(self, n_answers):
        """Return the weight of the prior, in nats of the likelihood of all answers."""
        if self.prior != "auto":
            return float(self.prior)
        return self._automatic_prior(n_answers)

    def _automatic_prior(self, n_answers):
        return 0.14 * math.sqrt(n_answers) * self._information() ** (1 / 3)

    def _rate(self, n_answers):
        """Return the peak learning rate."""
        if self.learning_rate != "auto":
            return self.learning_rate
        return float(np.clip((n_answers * self._information()) ** 0.25 / 100, 0.1, 0.3))

    def _information(self):
        """Return the information of an answer, (e^ε - 1)² / (4 e^ε)."""
        return math.sinh(min(self.mechanism_.epsilon_, 20.0) / 2) ** 2

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        if isinstance(self.mechanism, BaseEstimator):
            tags.input_tags = get_tags(self.mechanism).input_tags
        return tags

    def _check_saved_state(self):
        super()._check_saved_state()
        self.encoder_ = self.mechanism_.encoder_
        demand(self.law_.domain == self.encoder_.domain_, "The distribution has other columns.")


def _check_mechanism(mechanism):
    """Raise TypeError unless the mechanism is a JointRandomizedResponse."""
    if not isinstance(mechanism, JointRandomizedResponse):
        raise PublicTypeError(
            "mechanism must be a JointRandomizedResponse, got "
            f"{type(mechanism).__name__}; EntropicDeconvGAN takes any mechanism."
        )


def _even_starts(below, n_bins):
    """Return the first fine bin of each merged bin, from the cumulative shares of fine bins."""
    starts = [0]
    for i in range(1, len(below) - 1):
        # A merged bin gets an equal share of the records that earlier bins leave.
        share = (1 - below[starts[-1]]) / (n_bins - len(starts) + 1)
        if below[i + 1] - below[starts[-1]] > share + 1e-9:
            starts.append(i)
    return starts if len(starts) > 1 else [0, len(below) // 2]
