"""LocalTableSampler: tables learned from one joint answer of each person."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags

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
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.tables._conditional_sampling import ConditionalSamplerMixin
from sklearn_dpgen.tables._distributions import ProductMixture
from sklearn_dpgen.tables._table_sampler import BaseTableSampler
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._validation import (
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

# Copies of the population that a fit holds: logits, shares, gradient and the state of Adam.
_COPIES = 8


class LocalTableSampler(LearnerPlanMixin, ConditionalSamplerMixin, PrivateEstimator):
    """Synthetic tables from locally privatized records.

    Each person gives one randomized answer on a few columns, by
    :class:`~sklearn_dpgen.mechanisms.JointRandomizedResponse`. A population of soft records is
    fitted to the answers by maximum likelihood, which is free: it reads nothing but answers.
    Records are drawn from the population.

    Parameters
    ----------
    mechanism : JointRandomizedResponse or None, default=None
        The mechanism that people answered by, with its schema and budget. None takes the one that
        a data frame of answers carries, as in ``make_pipeline(JointRandomizedResponse(...),
        LocalTableSampler())``; it is needed for answers that were joined or came from a file.
        Answers of another one are refused.
    privatize : bool, default=False
        False: ``fit`` and ``score`` take answers. True: they take raw records and privatize them
        first, once a call, with a clone of ``mechanism``: one more release of them.
    population_size : int, default=200
        Rows of the population.
    prior : "auto" or float, default="auto"
        What a nat of dependence between columns costs, in nats of the likelihood of all answers:
        the mean divergence of a row from the mean row has this weight. It keeps noise from being
        learned as dependence. "auto" is 0.14 √n I^⅓ for n answers with the information
        I = (e^ε - 1)² / (4 e^ε) each.
    max_iter : int, default=400
        Most steps of Adam.
    batch_size : "auto" or int, default="auto"
        Answers a step. "auto" is a 25th of them, from 1000 to 16000.
    learning_rate : "auto" or float, default="auto"
        Peak rate of Adam, in logits a step, with cosine decay. "auto" is (n I)^¼ / 100, from 0.1 to
        0.3, of n answers with the information I: where they tell little, rows stay near the mean.
    n_init : int, default=1
        How many times to fit, from other starts; the population under which held-out answers are
        likeliest is kept.
    early_stopping : bool, default=False
        Whether to hold out answers, fit until they gain nothing, and then fit anew to all answers
        for the steps that paid.
    validation_fraction : float, default=0.1
        Share of the answers that are held out, with ``early_stopping`` or several starts.
    n_iter_no_change : int, default=100
        Steps without a gain after which to stop; there is a check every 25 steps.
    tol : float, default=1e-4
        The least gain in the mean log-likelihood of held-out answers, in nats.
    ledger : PrivacyLedger, str or None, default=None
        Ledger, or the path of one, that each release of raw records is booked in, where the
        mechanism has none; two are refused. Fits on privatized records are post-processing and
        charge nothing.
    random_state : int, RandomState or None, default=None
        None privatizes with the operating system's entropy. An int makes the fit reproducible;
        with ``privatize=True`` a seeded estimator holds the seed of its noise.
    device : str or torch.device, default="auto"
        "auto" takes a GPU where there is one.
    verbose : int, default=0
        1 shows the progress of the population.

    Attributes
    ----------
    law_ : ProductMixture
        The population: rows of equal shares, with independent columns in each.
    mechanism_ : JointRandomizedResponse
        The fitted mechanism.
    encoder_ : TabularEncoder
        From the table to blocks of categories and back.
    loss_curve_ : list of float
        Minus the mean log-likelihood of each step's answers, in nats.
    n_iter_ : int
        Number of steps.
    privacy_ : PrivacyReport
        What the answers cost; learning from them is post-processing and free.
    n_features_in_, feature_names_in_
        Of what ``fit`` takes: the columns of answers, or of records with ``privatize=True``.

    See Also
    --------
    TableSampler : Where somebody may see the records: central privacy, at a far smaller
        budget.
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

    The population P of n_s rows, P_r a distribution of each column by itself, minimizes
    -Σ_i log mean_r p(y_i | P_r) + τ mean_r KL(P_r ‖ mean row) for answers y_i. It is the likelihood
    objective of entropic deconvolution [1]_ with a mixture of products in the place of a generator,
    and uses dependence of all orders that answers tell of.

    Scores read nothing but answers, so that choosing parameters of this estimator by
    cross-validation on answers costs no privacy. A search over the mechanism asks everybody again
    for each candidate and fold, in ``fit`` and in ``score``.

    A step takes 6 n_s operations a category of an asked column and covered cell, whatever the
    number of columns that are not asked. The answers of a million people take some 50 MB.

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
    _not_saved: dict = {"encoder_": "It is that of mechanism_."}
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
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
        "device": BaseTableSampler._parameter_constraints["device"],
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
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 100,
        tol: float = 1e-4,
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
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
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
            Answers, as the mechanism's ``transform`` returns them, possibly written to a file and
            joined; raw records with ``privatize=True``. See :ref:`large_tables`.
        y : ignored
            A label is a column of the schema.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            For answers to another mechanism, or that are missing, impossible or there twice, and
            for a ``device`` that is not there.
        TypeError
            For a mechanism of another kind.
        """
        from sklearn_dpgen.tables._answer_fit import AnswerFit, split_answers
        from sklearn_dpgen.utils._torch import resolve_device

        self._forget()
        device = resolve_device(self.device)
        noise_seed, fit_seed, split_seed = split_random_state(self.random_state, 3)
        if self.mechanism is not None:
            _check_kind(self.mechanism)
        mechanism = fit_mechanism(
            self.mechanism,
            X if self.privatize or self.mechanism is None else None,
            privatize=self.privatize,
            noise_seed=noise_seed,
            ledger=self.ledger,
        )
        _check_kind(mechanism)
        self.mechanism_, self.encoder_ = mechanism, mechanism.encoder_
        self._learn_kind(X)
        names = self.encoder_.feature_names_in_ if self.privatize else RELEASE_COLUMNS
        self.n_features_in_, self.feature_names_in_ = len(names), np.array(names, dtype=object)
        width = self.encoder_.domain_.n_features
        check_fits(4 * _COPIES * width * self.population_size, "population_size")
        self.privacy_ = learner_report(
            self.mechanism_.privacy_, privatize=self.privatize, carried=self.mechanism is None
        )
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
            trained, held_out = split_answers(answers, self.validation_fraction, split_seed)
            patience = self.n_iter_no_change if self.early_stopping else None
            runs = [fit.watched(trained, held_out, seed, patience, self.tol) for seed in seeds]
            best = max(range(self.n_init), key=lambda i: runs[i].score)
            P, result = fit(answers, seeds[best], max_iter=runs[best].n_best)
        self.loss_curve_, self.n_iter_ = result.loss_curve, result.n_iter
        shares = np.full(self.population_size, 1 / self.population_size)
        self.law_ = ProductMixture(self.encoder_.domain_, shares, P)
        return self

    def score_samples(self, X: pd.DataFrame | Iterable[pd.DataFrame]) -> np.ndarray:
        """Log-likelihood of each answer under the population, in nats.

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
        P = as_tensor(self.law_.probabilities.T, device=resolve_device(self._device))
        return as_array(log_likelihoods(self.mechanism_, self._encoded(X), P))

    def score(self, X: pd.DataFrame | Iterable[pd.DataFrame], y: object = None) -> float:
        """Minus the distance of the first two moments of what was learned to those of raw records.

        It is the mean squared difference of the means plus that of the mean products of pairs, in
        units of half of the declared ranges. Of raw records both are estimated from privatized
        ones without bias, so that a score means the same for all mechanisms with one domain or
        schema: 0 is best, and where noise is large the error of the estimates lowers it. With one
        mechanism, :func:`~sklearn_dpgen.deconvolution.likelihood_score` is sharper.

        Parameters
        ----------
        X : data frame or other source of records, as for ``fit``
            Answers; raw records with ``privatize=True``, which are asked first.
        y : Ignored

        Returns
        -------
        float
        """
        check_is_fitted(self)
        law = self.law_
        points = law.probabilities.astype(np.float64)
        return moment_score(self.mechanism_, self._encoded(X), points, law.shares)

    def find_bins(self, n_bins: int = 16) -> dict[str, np.ndarray]:
        """Return bins of numbers and dates that hold about equal shares of the records.

        Answers of a first group of people on fine bins, ``JointRandomizedResponse(n_bins=64,
        n_asked=1)``, tell which ``n_bins`` to declare to the next one.

        Parameters
        ----------
        n_bins : int, default=16
            Most bins of a column, at least 2. One that holds more than its share stays as narrow
            as it is.

        Returns
        -------
        dict of str to ndarray
            Edges, in the units of each column, among those of the fitted bins.
        """
        check_is_fitted(self)
        if not isinstance(n_bins, Integral) or n_bins < 2:
            raise PublicValueError(f"n_bins must be an integer of at least 2, got {n_bins!r}.")
        shares = self.law_.shares @ self.law_.probabilities
        found = {}
        for name, column in self.encoder_.columns_.items():
            if isinstance(column, Binned):
                below = np.cumsum(shares[self.encoder_.blocks_[name]][: column.n_bins])
                starts = _even_starts(np.append(0.0, below / below[-1]), n_bins)
                found[name] = column.column.from_unit(np.array(column.merged(starts).edges))
        return found

    def _encoded(self, X):
        return self.mechanism_.encode_release(
            self.mechanism_.transform(X) if self._privatizes else X
        )

    def _prior_weight(self, n_answers):
        if self.prior != "auto":
            return float(self.prior)
        return 0.14 * math.sqrt(n_answers) * self._information() ** (1 / 3)

    def _rate(self, n_answers):
        if self.learning_rate != "auto":
            return self.learning_rate
        return float(np.clip((n_answers * self._information()) ** 0.25 / 100, 0.1, 0.3))

    def _information(self):
        """Return (e^ε - 1)² / (4 e^ε)."""
        return math.sinh(min(self.mechanism_.epsilon_, 20.0) / 2) ** 2

    def __sklearn_is_fitted__(self):
        return hasattr(self, "law_")

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


def _check_kind(mechanism):
    if not isinstance(mechanism, JointRandomizedResponse):
        raise PublicTypeError(
            "mechanism must be a JointRandomizedResponse, got "
            f"{type(mechanism).__name__}; EntropicDeconvGAN takes any mechanism."
        )


def _even_starts(below, n_bins):
    """Return the first of each run of fine bins that are merged, from the shares below them."""
    starts = [0]
    for i in range(1, len(below) - 1):
        # A run is full with an even part of what the runs from it on have to share.
        share = (1 - below[starts[-1]]) / (n_bins - len(starts) + 1)
        if below[i + 1] - below[starts[-1]] > share + 1e-9:
            starts.append(i)
    return starts if len(starts) > 1 else [0, len(below) // 2]
