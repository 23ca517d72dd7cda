"""MomentSampler: synthetic normal records by class, from released means and covariances."""

import os
from collections.abc import Callable
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from sklearn_dpgen.domains import Domain
from sklearn_dpgen.domains._ball import enclosing_ball
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.moments._base import BaseMomentSampler, encode_public_array
from sklearn_dpgen.persistence._declarations import demand
from sklearn_dpgen.preprocessing import PublicTable, TabularEncoder
from sklearn_dpgen.preprocessing._public_table import as_public_table
from sklearn_dpgen.preprocessing._records import (
    ENCODED_STATE,
    check_saved_encoding,
    declared_domain,
    decode_records,
    encode_records,
    read_records,
    resolve_domain,
)
from sklearn_dpgen.schema import Categorical, Schema
from sklearn_dpgen.utils._normal_laws import draw_normals, mixture_log_densities
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._validation import (
    check_array,
    check_is_fitted,
    check_n_samples,
    fit_context,
)

__all__ = ["MomentSampler"]


class MomentSampler(BaseMomentSampler):
    """Synthetic normal records by class, from released means and covariances.

    Sums over each class of the records and of their outer products are released with Gaussian
    noise. The rest is post-processing: the known effect of the noise on the covariances is removed,
    and records are drawn from a normal distribution for each class.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of the whole fit, in nats; ``np.inf`` releases without noise.
    delta : float or "auto", default="auto"
        Failure probability, in (0, 1). "auto" is 0.1 / n_samples.
    schema : Schema, str, path-like or None, default=None
        The public declaration of the columns of a table. Either this or ``domain`` is given.
    domain : Domain, callable or None, default=None
        Public set of the records, or a function of ``n_features`` that returns it. Records outside
        are projected on it: see :meth:`check`. The noise is proportional to the radius of its
        smallest ball, so a ball of about the typical norm around a public centre is better than a
        wide one.
    labels : {"public", "private"} or None, default=None
        Privacy of the labels, required by ``fit(X, y)``. "public": neighbours differ in a record of
        the same class, and class sizes are public. "private": neighbours differ in a record and its
        label; class sizes are released with the means, at little or no cost.
    classes : array-like of shape (n_classes,) or None, default=None
        The public labels, at least two; required for private labels. None takes those that occur
        in ``y``, which are then public, as stated in ``privacy_``.
    label_proportions : array-like of shape (n_classes,) or None, default=None
        Public shares of the classes, in the order of ``classes_``. Class sizes are then not
        released for private labels.
    second_order_weight : float or "auto", default="auto"
        Weight of the second moments relative to the first, in units of the radius. A larger one
        puts less noise on covariances and more on means. "auto" is √½, up to which second moments
        are free, if the noise on the covariance of a class exceeds a quarter of its trace; else 2.
    public : PublicTable, table, path, array-like or pair with labels, default=None
        Public records, towards whose moments the released ones are shrunk. With a schema a table
        with some of its columns, as a :class:`~sklearn_dpgen.preprocessing.PublicTable` or its
        source, or ``(table, name)`` with the name of its column of labels; with a domain an array
        ``X``, or ``(X, y)``. Labels must include each class. The records cost nothing, and must not
        be made from the private ones: see :ref:`public_tables`. None uses no public records.
    ledger : PrivacyLedger, path or None, default=None
        Ledger that a fit charges before anything is released. BudgetExceededError is raised if too
        little is left. None charges no ledger.
    unit : str or None, default=None
        Name of the column of X, a data frame, that identifies the person of a row. A person is then
        protected with all their rows: one row of each person is drawn, once and secretly, and the
        others are not read, so the distribution is that of a random row of a random person. The
        column is outside the schema or an Identifier in it, and is not learned. None protects
        single rows.
    random_state : int, RandomState or None, default=None
        None draws noise from the operating system's entropy. An int repeats the fit, and voids the
        guarantee against anybody who knows or guesses it.

    Attributes
    ----------
    means_ : ndarray of shape (n_classes, d)
        Means of the records in the domain; a single row without labels.
    covariances_ : ndarray of shape (n_classes, d, d)
        Covariances after removal of noise, positive definite.
    classes_, label_proportions_ : ndarray of shape (n_classes,)
        Present if fitted with labels.
    domain_ : Domain
        The set of the records.
    encoder_ : TabularEncoder
        Encodes the table in the domain and decodes it; with a schema only.
    privacy_ : PrivacyReport
        The guarantee of the fit.
    noise_multiplier_ : float
        Standard deviation of the noise relative to the sensitivity.
    n_features_in_ : int
        Number of columns.

    Notes
    -----
    **Formal guarantee**

    :Promise: Central (ε, δ)-differential privacy of all that ``fit`` stores, and of all that is
        computed from it.
    :Neighbours: Replace one record; the number of records is public. With ``labels="public"``:
        replace one record by another of the same class; the sizes of the classes are public. With
        ``labels="private"``: replace one record and its label; the number of records is public.
        With ``unit``: a person with all their rows in place of a record.
    :Public: ``n_samples``; names of the columns; ``schema`` or ``domain``; the rows of ``public``.
        With labels their set of labels or ``classes``, the class sizes where labels are public, and
        ``label_proportions``. With ``unit``: numbers of persons, and not those of their rows.
    :Bounded by: A public ball around the declared domain: records outside are moved to it, and the
        residuals about the released means to one of about their size.
    :Noise: Gaussian, by :class:`~sklearn_dpgen.mechanisms.ClassSumMechanism`, in floating point,
        from the operating system's entropy.
    :Priced by: The privacy profile of the Gaussian mechanism, in closed form; no sampling.
    :Not covered: What was fitted on the same records before, such as a scaler or an embedding;
        other fits of the same records, which a ``ledger`` adds up; errors of a fit; a
        ``random_state`` that others know or guess.
    :Proof: :ref:`moments_sensitivity`, Theorems 3 and 4.

    A tenth of the budget is for means, mean squares and, with private labels, counts of the classes
    (:class:`~sklearn_dpgen.mechanisms.BallMeans`). The rest is for first and second moments of the
    residuals about those means, in a ball of about their size: φ(u) = (u, w vech(u uᵀ)), see
    :class:`~sklearn_dpgen.mechanisms.BallMoments`. A wide domain therefore costs little. Both
    releases together are exactly one Gaussian mechanism.

    The noise on a matrix of second moments has independent entries of a known scale. The part of
    the spectrum that noise alone explains is removed from the covariance pooled over the classes,
    which has √n_classes times less noise than that of a class, and from the difference of a class
    to it.

    With ``public`` the same moments are released. With public labels, the differences of the means
    of classes are shrunk towards those of the public records; without classes, the mean is. The
    weights depend on the residuals of the released means from the public ones: where the public
    records are wrong, the residuals exceed the noise and are kept. Means of features that a public
    table lacks are kept too. Public records without labels also improve the covariance: released
    variances along the eigenvectors of the public one are made to rise in its order, which is
    averaged with the estimate without it.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import make_half_circle
    >>> from sklearn_dpgen.domains import Ball
    >>> from sklearn_dpgen.moments import MomentSampler
    >>> sampler = MomentSampler(domain=Ball(1.0, n_features=2))
    >>> sampler.fit(make_half_circle(2000, random_state=0)).sample(3).shape
    (3, 2)
    """

    _saved_state: dict = ENCODED_STATE
    _parameter_constraints: dict = BaseMomentSampler._parameter_constraints | {
        "schema": [Schema, None],
        "domain": [Domain, callable, None],
    }
    _uses_torch = False

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
        second_order_weight: float | str = "auto",
        public: PublicTable | ArrayLike | pd.DataFrame | str | os.PathLike | tuple | None = None,
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
        self.second_order_weight = second_order_weight
        self.public = public
        self.ledger = ledger
        self.unit = unit
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike | pd.DataFrame, y: ArrayLike | None = None) -> Self:
        """Release the moments of each class, and fit normal distributions to them.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            Private records.
        y : array-like of shape (n_samples,) or None, default=None
            Labels; with them, ``sample`` makes records of a given class.

        Returns
        -------
        self : object

        Raises
        ------
        PublicValueError
            Records or labels that do not fit the declarations, private labels without ``classes``,
            a public class without a record, or moments that do not fit in memory.
        """
        return self._fit(X, y)

    def _read(self, X, y, *, seed):
        self._check_label_parameters(y)
        self._check_labels_are_given(y)
        self._check_unit()
        X, y = self._one_labelled_row_each(X, y, seed)
        X = encode_records(self, X)
        codes = self._encode_labels(y, len(X))
        facts = self._facts(len(X), codes, y is not None, enclosing_ball(self.domain_))
        return (X, codes), facts

    def _encode_public(self, X, labels, ball, classes):
        if self.schema is None:
            X, *others = encode_public_array(X, labels, ball.n_features, classes)
            return resolve_domain(self.domain, ball.n_features).project(X), *others
        table, has_name = as_public_table(X), isinstance(labels, str) and labels not in self.schema
        if table is None or not (labels is None or has_name):
            raise PublicValueError(
                "public must be a table, or a pair of a table and the name of its column of "
                "labels, which is not in the schema."
            )
        own = {} if labels is None or classes is None else {labels: Categorical(classes.tolist())}
        rows = table.read(Schema({**self.schema, **own}))
        points = rows.encode(TabularEncoder(self.schema).fit())
        if not own:
            return points, None, rows.weights, rows.sha256
        if labels not in rows.names or len(rows.names) == 1:
            raise PublicValueError(
                f"public must have its column of labels, {labels!r}, and a column of the schema, "
                f"got {rows.names}."
            )
        codes = rows.codes(TabularEncoder(Schema(own)).fit())[:, 0]
        kept = codes >= 0
        return points[kept], codes[kept], rows.weights[kept], rows.sha256

    def _declared_ball(self, n_features):
        domain = declared_domain(self, n_features)
        width = domain.n_features if self.schema is None else len(self.schema)
        return enclosing_ball(domain), width

    def _declared(self):
        return ["schema" if self.domain is None else "domain"]

    def check(self, X: ArrayLike) -> float:
        """Return the share of records outside the declared domain, which ``fit`` projects on it.

        Not private: it is computed from private records without noise, for the curator only. A
        domain chosen by it is not public. With a schema, see :meth:`Schema.check`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        float
        """
        self._validate_params()
        if self.domain is None:
            raise PublicValueError("check needs a domain; with a schema, see Schema.check.")
        X = check_array(X, dtype=np.float64)
        return float(np.mean(~resolve_domain(self.domain, X.shape[1]).contains(X)))

    def sample(
        self,
        n_samples: int = 1,
        *,
        y: ArrayLike | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> np.ndarray | pd.DataFrame:
        """Draw synthetic records, at no cost in privacy.

        Parameters
        ----------
        n_samples : int, default=1
            Number of records.
        y : label, array-like of shape (n_samples,) or None, default=None
            The class of all records, or of each. None draws classes as ``sample_labels`` does.
        random_state : int, RandomState or None, default=None
            Seed of the draw.

        Returns
        -------
        X : ndarray or data frame of shape (n_samples, n_features)
            Projected on the domain. A data frame with a schema, or if the records of the fit had
            names of columns.

        Raises
        ------
        PublicValueError
            A label is not in ``classes_``, or is given after a fit without labels.
        """
        check_is_fitted(self)
        n_samples = check_n_samples(n_samples, width=2 * self.means_.shape[1])
        label_seed, draw_seed = split_random_state(random_state, 2)
        codes = self._sample_codes(n_samples, y, label_seed)
        rng = np.random.default_rng(draw_seed)
        points = draw_normals(self.means_, self.covariances_, codes, rng)
        return decode_records(self, self.domain_.project(points), rng)

    def score(self, X: ArrayLike | pd.DataFrame, y: object = None) -> float:
        """Return the mean log-likelihood of records under the mixture of the classes, in nats.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            Records; the score of private records is not private.
        y : ignored

        Returns
        -------
        float
            Under the normal distributions, which ``sample`` projects on the domain, for records
            that are projected too: see :meth:`check` for their share.

        Warns
        -----
        UnpaidScoreWarning
            After a private fit, as the score charges no ledger.
        """
        check_is_fitted(self)
        self._warn_of_score()
        shares = getattr(self, "label_proportions_", None)
        points = self.domain_.project(read_records(self, self._without_unit(X)))
        return float(mixture_log_densities(points, self.means_, self.covariances_, shares).mean())

    def __sklearn_is_fitted__(self):
        return hasattr(self, "covariances_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        is_table = self.schema is not None
        # The schema states which columns have labels, and which have nulls.
        tags.input_tags.categorical = tags.input_tags.string = is_table
        tags.input_tags.allow_nan = is_table
        return tags

    def _check_saved_state(self):
        super()._check_saved_state()
        fits = self.means_.shape[1] == check_saved_encoding(self)
        demand(fits, "The means have another width than the domain.")
