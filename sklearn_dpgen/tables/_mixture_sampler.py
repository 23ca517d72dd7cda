"""PrivateMixtureSampler: tables from votes for candidate records, and counts within cells."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from sklearn_dpgen.accounting import PrivacyReport, check_delta_size
from sklearn_dpgen.accounting._checks import check_count
from sklearn_dpgen.accounting._report import CERTIFIED_NOISE, FLOATING_POINT
from sklearn_dpgen.domains import OneHot
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.mechanisms import GaussianSequenceMechanism
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.tables._base import BaseTableSampler
from sklearn_dpgen.tables._cell_counts import marginal_noise
from sklearn_dpgen.tables._forecast import mixture_forecast
from sklearn_dpgen.tables._mixture_evolution import (
    MOST_CELLS,
    automatic_cells,
    evolve_mixtures,
    needed_bytes,
    release_sizes,
)
from sklearn_dpgen.utils._frames import FramesMixin
from sklearn_dpgen.utils._labels import LabelSamplerMixin
from sklearn_dpgen.utils._random import ROUNDING, split_random_state
from sklearn_dpgen.utils._validation import (
    Integral,
    Interval,
    Real,
    StrOptions,
    check_fits,
    check_is_fitted,
    check_n_samples,
    fit_context,
)
from sklearn_dpgen.utils._words import count_words

if TYPE_CHECKING:
    import torch

__all__ = ["PrivateMixtureSampler"]

# Of the budget: one-way counts, all histograms of votes, one-way counts within cells.
_FIRST, _VOTES, _LAST = 0.1, 0.2, 0.7
_MOST_BINS, _MOST_STEPS = 1 << 17, 10_000


class PrivateMixtureSampler(FramesMixin, LabelSamplerMixin, BaseTableSampler):
    """Synthetic tables from private votes that divide the records, and counts in each part.

    One-way counts come first, with noise. Then candidates are drawn from independent columns, each
    private record votes for the nearest one, and a mixture of laws with independent columns is
    fitted to public draws that were reweighted to the noisy votes. At last the components of the
    mixture part the private records into cells, and the one-way counts of each cell are released.
    Records are drawn from these.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of the whole fit, in nats; ``np.inf`` counts without noise.
    delta : float or "auto", default=1e-5
        Failure probability, in (0, 1). "auto" is 0.1 / n_samples.
    schema : Schema
        The public declaration of the columns.
    bins : int or mapping, default=20
        Public bins of numbers and dates, as in
        :class:`~sklearn_dpgen.preprocessing.TabularEncoder`: a number of equal bins for each, up to
        131072, or ``{column: number or edges}``, which names all of them.
    classes : array-like of shape (n_classes,) or None, default=None
        The public labels, at least two: ``fit(X, y)`` needs them, for labels are private.
    label_proportions : array-like of shape (n_classes,) or None, default=None
        Public shares of the classes, in the order of ``classes_``. None takes those of the
        noisy counts.
    n_candidates : int, default=1000
        Candidates of a histogram of votes, of all classes together.
    n_iter : int, default=2
        Histograms of votes, at most 10000.
    n_cells : int or "auto", default="auto"
        Cells of each class. "auto" takes more of them the more the records exceed the noise.
    ledger : PrivacyLedger, path or None, default=None
        Where a fit books what it will cost, before anything of a record is released; it is refused
        with BudgetExceededError where less is left. None books nowhere.
    unit : str or None, default=None
        Name of the column of X, a data frame, that says whose row each is. Then a person is
        protected with all of their rows, and not each row by itself: one row of each person is
        drawn, once and secretly, and no other is looked at. What is learned is the law of a random
        row of a random person. The column is beside a schema or an Identifier of it, and is not
        learned from. None protects rows.
    random_state : int, RandomState or None, default=None
        None draws noise from the operating system's entropy. An int repeats the fit, and voids the
        guarantee for whoever knows or guesses it.
    device : str or torch.device, default="auto"
        "auto" counts votes on a GPU where there is one.
    noise : {"float", "certified"}, default="float"
        "certified" rounds counts to a fine grid before noise, and draws discrete noise without an
        error: see :ref:`certified_noise`. It needs OpenDP, and ``random_state=None``.

    Attributes
    ----------
    laws_ : list of ProductMixture
        Of each class, or one for all: what records are drawn from.
    classes_, label_proportions_ : ndarray of shape (n_classes,)
        If fitted with labels.
    encoder_ : TabularEncoder
        From the table to blocks of categories and back.
    privacy_ : PrivacyReport
        The guarantee of the fit.
    noise_multiplier_ : float
        Standard deviation of the noise of all releases together, over the sensitivity.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of str
        Their names.

    Notes
    -----
    **Formal guarantee**

    :Promise: Central (ε, δ)-differential privacy of all that ``fit`` stores, and of all that is
        computed from it.
    :Neighbours: Replace one record; the number of records is public. With labels: replace one
        record and its label; the number of records is public. With ``unit``: a person with all
        their rows in place of a record.
    :Public: ``n_samples``; names of the columns; ``schema`` and ``bins``; with labels ``classes``
        and ``label_proportions``. With ``unit``: numbers of persons, and not those of their rows.
    :Bounded by: The declared schema, and one vote: a record has one vote in a histogram, or one
        count in each of p columns of one cell, over √p. Replacing it, and its label, changes each
        released vector by √2 at most in l2.
    :Noise: Gaussian, by :class:`~sklearn_dpgen.mechanisms.GaussianSequenceMechanism`, from the
        operating system's entropy; in floating point, or with ``noise="certified"`` exact.
    :Priced by: The privacy profile of the Gaussian mechanism, in closed form; no sampling.
    :Not covered: Other fits of the same records, which a ``ledger`` adds up; errors of a fit; a
        ``random_state`` that others know or guess.
    :Proof: :ref:`evolution-guarantee`; of certified noise :ref:`certified_noise`.

    One tenth of the budget is for the first counts, two for the votes, and seven for the counts
    within cells.

    Votes of whole records say little of a column and much of how columns go together; counts
    within cells then describe every column with the noise of a single count. The parts are ours,
    after the private evolution of [1]_.

    References
    ----------
    .. [1] Z. Lin et al., "Differentially private synthetic data via foundation model APIs 1:
       images", ICLR 2024.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import load_rand_health
    >>> from sklearn_dpgen.tables import PrivateMixtureSampler
    >>> data = load_rand_health()
    >>> sampler = PrivateMixtureSampler(schema=data.schema)
    >>> list(sampler.fit(data.frame).sample(2).columns[:3])
    ['mdvis', 'lncoins', 'idp']
    """

    _parameter_constraints: dict = BaseTableSampler._parameter_constraints | {
        "delta": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="neither")],
        "bins": [Interval(Integral, 2, _MOST_BINS, closed="both"), Mapping],
        "classes": ["array-like", None],
        "label_proportions": ["array-like", None],
        "n_candidates": [Interval(Integral, 1, None, closed="left")],
        "n_iter": [Interval(Integral, 1, _MOST_STEPS, closed="both")],
        "n_cells": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | str = 1e-5,
        *,
        schema: Schema,
        bins: int | Mapping = 20,
        classes: ArrayLike | None = None,
        label_proportions: ArrayLike | None = None,
        n_candidates: int = 1000,
        n_iter: int = 2,
        n_cells: int | str = "auto",
        ledger: LedgerLike = None,
        unit: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: "str | torch.device" = "auto",
        noise: str = "float",
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.schema = schema
        self.bins = bins
        self.classes = classes
        self.label_proportions = label_proportions
        self.n_candidates = n_candidates
        self.n_iter = n_iter
        self.n_cells = n_cells
        self.ledger = ledger
        self.unit = unit
        self.random_state = random_state
        self.device = device
        self.noise = noise

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: ArrayLike | pd.DataFrame, y: ArrayLike | None = None) -> Self:
        """Count, let the records vote, and count again.

        Parameters
        ----------
        X : data frame or array-like of shape (n_samples, n_features)
            Private records.
        y : array-like of shape (n_samples,) or None, default=None
            Private labels; with them ``sample`` makes records of a wanted class.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            Records or labels that do not fit the declarations, labels without ``classes``, a number
            without bins, or parameters that need more memory than there is.
        """
        self._forget()
        self._check_label_parameters(y)
        self._check_unit()
        noise_seed, candidate_seed = split_random_state(self.random_state, 2)
        X, y = self._one_row_each(X, y, seed=noise_seed)
        encoder = self._encoder(X)
        # Of chunks the number of records is known after they are read.
        X = encoder.domain_.project(encoder.transform(X))
        codes = self._encode_labels(y, len(X))
        n_classes = 0 if y is None else len(self.classes_)
        mechanism, report = self._planned(encoder, len(X), n_classes)
        self.encoder_ = encoder
        self.n_features_in_ = encoder.n_features_in_
        self.feature_names_in_ = encoder.feature_names_in_
        n_classes = max(n_classes, 1)
        members = [X[codes == code] for code in range(n_classes)]

        self._charge(report)
        self.noise_multiplier_ = report.noise_multiplier
        n_cells = self.n_cells
        if n_cells == "auto":
            scale = marginal_noise(mechanism.noise_scales[-1], encoder.domain_)
            n_cells = automatic_cells(len(X), scale, n_classes)
        run = mechanism.run()
        noise = self._noise_source(noise_seed, n_classes, encoder.columns_)

        sizes, self.laws_ = evolve_mixtures(
            members,
            list(encoder.columns_.values()),
            encoder.domain_,
            lambda value: run.release(value, noise),
            mechanism.noise_scales,
            n_samples=self.n_candidates,
            n_cells=n_cells,
            rng=np.random.default_rng(candidate_seed),
            device=self.device,
        )
        if y is not None:
            self._set_proportions(np.clip(sizes, None, len(X)))
        return self

    @fit_context(prefer_skip_nested_validation=False)
    def plan(self, n_samples: int, n_features: int | None = None) -> PrivacyReport:
        """Return what ``fit`` will release and what it costs, without a record.

        Parameters
        ----------
        n_samples : int
            Number of private records, or of persons where there is a ``unit``.
        n_features : int or None, default=None
            The number of columns of the schema, if given.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit of so many records, with labels where ``classes`` are
            declared.

        Raises
        ------
        ValueError
            As ``fit`` for parameters.
        """
        self._check_unit()
        if n_features not in (None, len(self.schema)):
            raise PublicValueError(
                f"n_features must be the {len(self.schema)} columns of the schema, got "
                f"{n_features}."
            )
        n_samples = check_count(n_samples, "n_samples")
        n_classes, _ = self._planned_classes(n_samples, None)
        return self._planned(self._encoder(None), n_samples, n_classes)[1]

    def _encoder(self, X):
        """Return an encoder fitted to records, or to the columns of the schema."""
        encoder = TabularEncoder(self.schema, bins=self.bins).fit(X)
        if X is not None:
            self._learn_kind(X)
        for name, column in encoder.columns_.items():
            if not isinstance(column.domain, OneHot):
                raise PublicValueError(
                    f"Column {name!r} needs bins: its values are not categories."
                )
        return encoder

    def _planned(self, encoder, n_samples, n_classes):
        """Return the mechanism and the report."""
        domain, n_cells = encoder.domain_, 1 if self.n_cells == "auto" else self.n_cells
        width = domain.n_features
        needed = needed_bytes(n_samples, width, self.n_candidates, n_cells)
        check_fits(
            needed,
            f"n_candidates={self.n_candidates} candidates and n_cells={self.n_cells} cells of "
            f"{width} categories and bins",
        )
        votes = (_VOTES / self.n_iter,) * self.n_iter
        delta = self._delta(n_samples)
        if math.isfinite(self.epsilon):
            check_delta_size(delta, n_samples)
        most_cells = MOST_CELLS if self.n_cells == "auto" else self.n_cells
        most = (self.n_candidates, self.n_iter, most_cells)
        sizes = release_sizes(domain, max(n_classes, 1), *most)
        mechanism = GaussianSequenceMechanism(
            math.sqrt(2),
            (_FIRST, *votes, _LAST),
            self.epsilon,
            delta,
            **(sizes if self._is_certified else {}),
        )
        is_floating = math.isfinite(self.epsilon) and not self._is_certified
        first, vote, *_, last = mechanism.noise_scales
        unit = "records" if self.unit is None else "persons"
        relation, public = self._label_terms(n_classes > 0)
        report = PrivacyReport(
            mechanism=f"{type(self).__name__}: noisy counts, votes, and counts within cells",
            epsilon=self.epsilon,
            delta=mechanism.delta if math.isfinite(self.epsilon) else 0.0,
            neighbouring=relation,
            public=("n_samples", "names of the columns", "schema", "bins", *public),
            sensitivity_source=(
                "l2; a record has one vote, or one count in each of p columns of one cell, over √p"
            ),
            caveats=(CERTIFIED_NOISE if self._is_certified else FLOATING_POINT,),
            noise_source=self._noise_description(),
            rounding=sum(sizes["n_values"]) * ROUNDING if is_floating else 0.0,
            split={"single columns": _FIRST, "votes": _VOTES, "single columns in cells": _LAST},
            precision={
                "category of a column": count_words(
                    [marginal_noise(first, domain)], n_samples, unit
                ),
                "votes for a candidate": count_words([vote], n_samples, "votes"),
                "category of a column in a cell": count_words(
                    [marginal_noise(last, domain)], n_samples, unit
                ),
            },
            forecast=mixture_forecast(self, n_samples, max(n_classes, 1), domain, last, needed),
            **mechanism.report_fields(),
        )
        return mechanism, self._protected(report)

    def sample(
        self,
        n_samples: int = 1,
        *,
        y: ArrayLike | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> pd.DataFrame:
        """Draw synthetic records, at no cost in privacy.

        Parameters
        ----------
        n_samples : int, default=1
            How many.
        y : label, array-like of shape (n_samples,) or None, default=None
            The class of all records, or of each. None draws them as ``sample_labels`` does.
        random_state : int, RandomState or None, default=None
            Seed of the draw.

        Returns
        -------
        X : data frame of shape (n_samples, n_features)

        Raises
        ------
        ValueError
            A label that was not in ``classes_``, or any after a fit without labels.
        """
        check_is_fitted(self)
        n_samples = check_n_samples(n_samples, width=len(self.encoder_.columns_))
        label_seed, draw_seed = split_random_state(random_state, 2)
        codes = self._sample_codes(n_samples, y, label_seed)
        rng = np.random.default_rng(draw_seed)
        rows = np.empty((n_samples, len(self.encoder_.columns_)), dtype=np.int64)
        for code, law in enumerate(self.laws_):
            rows[codes == code] = law.sample(int((codes == code).sum()), rng)
        return self._given_back(self.encoder_.decode_codes(rows, rng=rng))

    def __sklearn_is_fitted__(self):
        return hasattr(self, "laws_")
