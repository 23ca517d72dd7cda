"""JointRandomizedResponse: a local mechanism with one joint answer on few columns."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from sklearn_dpgen.accounting import ApproximateProfile, Bound, Event, PrivacyReport
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.mechanisms._base import Mechanism
from sklearn_dpgen.mechanisms._joint_questions import (
    check_n_asked,
    draw_columns,
    expected_variances,
    most_cells,
    read_wishes,
    respond,
)
from sklearn_dpgen.mechanisms._joint_release import (
    KEY_BITS,
    RELEASE_COLUMNS,
    JointAnswersMixin,
    is_release,
    write_release,
)
from sklearn_dpgen.mechanisms._release import release_digest
from sklearn_dpgen.preprocessing._reader import NO_RECORDS, map_frames
from sklearn_dpgen.preprocessing._tabular import TabularEncoder, with_index
from sklearn_dpgen.schema import Datetime, Numeric, Ordinal, Schema
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.utils._random import NoiseSource, noise_source
from sklearn_dpgen.utils._validation import (
    Integral,
    Interval,
    StrOptions,
    check_is_fitted,
    check_positive,
    fit_context,
)

__all__ = ["JointRandomizedResponse"]

# Number of equal bins of a numeric or datetime column without declared bins.
_BINS = 16
# Number of people whose answers are drawn at once, and of groups of categories held for them.
_BLOCK, _GROUPS = 1 << 16, 1 << 20


# It takes tables only, also in parts.
class JointRandomizedResponse(JointAnswersMixin, Mechanism):  # type: ignore[misc]
    """Ask each person about a few columns at once, and randomize the one joint answer.

    The columns asked of a person are drawn independently of the record, and the whole budget goes
    into one answer. It has information on the dependence between columns, unlike a budget split
    over all columns. A release is a row of five public values per person.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of one whole record, in nats. ``np.inf`` answers truthfully.
    schema : Schema
        The public declaration of the columns.
    n_bins : "auto", int or mapping, default="auto"
        Public bins of numbers and dates: a number of equal ones for each, or ``{column: number or
        edges}``, as ``n_bins`` of :class:`~sklearn_dpgen.preprocessing.TabularEncoder`. "auto", and
        columns that a mapping does not name, have 16 bins.
    n_asked : "auto" or int, default="auto"
        About how many columns each person is asked. "auto" minimizes the expected error of pairs of
        columns, by :meth:`expected_variation`: two for budgets up to about six nats, and more for
        larger ones or columns of two or three categories.
    always : sequence of str, default=()
        Columns that everybody is asked about, such as a target: pairs with them are learned more
        precisely, and all others less.
    weights : mapping or None, default=None
        ``{column: weight}``, positive, 1 if not named: relative frequency with which a column is
        asked.
    ledger : PrivacyLedger, str or None, default=None
        Ledger, or its path, that each call of ``transform`` charges.
    random_state : int, RandomState or None, default=None
        As in LaplaceMechanism.
    index : {"reset", "keep"}, default="reset"
        As in LaplaceMechanism.
    noise : {"float", "certified"}, default="float"
        As in LaplaceMechanism.

    Attributes
    ----------
    epsilon_ : float
        The budget of the fit.
    n_asked_ : int
        About how many columns each person is asked.
    encoder_ : TabularEncoder
        Encodes the columns in the domain and decodes them; all are categories or bins.
    design_ : str
        Digest of the columns with their categories and bins, which together with the budget
        determine the meaning of an answer.
    domain_, privacy_, n_features_in_
        See Mechanism.

    See Also
    --------
    TabularMechanism : Splits the budget over all columns and keeps the shape of the table.
    sklearn_dpgen.tables.LocalTableSampler : Learns tables from the answers.

    Notes
    -----
    **Formal guarantee**

    :Promise: Local ε-differential privacy, with δ = 0, of each row of one call of ``transform``,
        all five columns of it.
    :Neighbours: Any two values of one person's record.
    :Public: ``domain``; ``n_samples``; names of the columns; order of the records, and with
        ``index="keep"`` order and index of the records.
    :Bounded by: The declared schema: a record is in one cell of each question, and the question is
        drawn without it.
    :Noise: One randomized answer, drawn in ``transform``, from the operating system's entropy; in
        floating point, or with ``noise="certified"`` exact.
    :Priced by: Probabilities of an answer have a ratio of e^ε at most, whatever was asked, in
        closed form. Calls add up.
    :Not covered: Each further call of ``transform``, which is one more release of its records:
        everybody should answer once; who takes part; budgets above about 36 nats per draw in
        floating point; errors of ``transform``; a ``random_state`` that others know or guess.
    :Proof: Notes; :ref:`local-tables`; of certified noise :ref:`certified_noise`.

    The columns S of a question, and a key, are drawn by public randomness, independently of the
    record. The key puts the categories of each column in S in g_j groups of nearly equal size. Each
    category is a group of its own, unless there would be more cells K = Π g_j than twice e^ε + 1,
    and more than 16. Groups are random; for every other key those of numbers, dates and ordinals
    are intervals in a random position. The record has one cell z. The key also draws m offsets R of
    K, with m / K about 1 / (e^ε + 1): answer a stands for the m cells (a + r) mod K, r in R, and
    has probability e^ε / (m e^ε + K - m) if z is one of them, and 1 / (m e^ε + K - m) if not. Each
    z is in exactly m of K such sets, so the probabilities sum to 1; their ratio is e^ε for any
    question. With m = 1 this is randomized response on the cells. In general it is subset selection
    [1]_, the choice with the most information, with public randomness for the sets, as in local
    hashing [2]_.

    An answer covers the true cell with probability m e^ε / (m e^ε + K - m), and its information is
    divided equally over the K - 1 contrasts of the cells. The likelihood of a record with soft
    blocks P_j is (1 + (e^ε - 1) Σ_c Π_j <P_j, c_j>) / (m e^ε + K - m), a sum over the covered cells
    c.

    A release has the columns ``asked``, the names of S as JSON; ``grouping``, the key, an integer
    below 2^48; ``answer``, the integer a; and, for the collector, ``epsilon`` and ``design``. It
    may be made one person at a time, written to CSV or Parquet and joined.

    References
    ----------
    .. [1] M. Ye, A. Barg, "Optimal schemes for discrete distribution estimation under locally
       differential privacy", IEEE Transactions on Information Theory, 2018.
    .. [2] T. Wang, J. Blocki, N. Li, S. Jha, "Locally differentially private protocols for
       frequency estimation", USENIX Security 2017.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import load_rand_health
    >>> from sklearn_dpgen.mechanisms import JointRandomizedResponse
    >>> data = load_rand_health()
    >>> mechanism = JointRandomizedResponse(epsilon=4.0, schema=data.schema).fit()
    >>> mechanism.n_asked_
    2
    >>> mechanism.transform(data.frame.iloc[:1]).columns.tolist()
    ['asked', 'grouping', 'answer', 'epsilon', 'design']
    """

    _saved_state: dict = {}
    _parameter_constraints: dict = {
        "epsilon": Mechanism._parameter_constraints["epsilon"],
        "schema": [Schema],
        "n_bins": [StrOptions({"auto"}), Integral, Mapping],
        "n_asked": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "always": [list, tuple],
        "weights": [None, Mapping],
        "random_state": ["random_state"],
        "index": Mechanism._parameter_constraints["index"],
    }

    # A constructor must accept None, which fit refuses.
    schema: Schema

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        schema: Schema | None = None,
        n_bins: str | int | Mapping = "auto",
        n_asked: str | int = "auto",
        always: Sequence[str] = (),
        weights: Mapping[str, float] | None = None,
        ledger: LedgerLike = None,
        random_state: int | np.random.RandomState | None = None,
        index: str = "reset",
        noise: str = "float",
    ) -> None:
        self.epsilon = epsilon
        self.schema = schema  # type: ignore[assignment]
        self.n_bins = n_bins
        self.n_asked = n_asked
        self.always = always
        self.weights = weights
        self.ledger = ledger
        self.random_state = random_state
        self.index = index
        self.noise = noise

    @fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: ArrayLike | pd.DataFrame | Iterable[pd.DataFrame] | None = None, y: object = None
    ) -> Self:
        """Plan the questions, without reading a record.

        Parameters
        ----------
        X : data frame or other source of records, optional
            Raw records or a release; only the names of the columns are used.
        y : Ignored

        Returns
        -------
        self : object

        Raises
        ------
        PublicValueError
            A column in ``always`` or ``weights`` is not in the schema, or ``n_asked`` exceeds the
            number of columns that are not constant, or is too large for the budget.
        """
        self._forget()
        if set(RELEASE_COLUMNS) <= set(self.schema):
            raise PublicValueError(
                f"schema must not have all the columns of answers {RELEASE_COLUMNS}."
            )
        X = None if is_release(X) else X
        self.encoder_ = TabularEncoder(self.schema, n_bins=self._bins()).fit(X)
        self.domain_ = self.encoder_.domain_
        self.n_features_in_ = len(self.schema)
        self.feature_names_in_ = self.encoder_.feature_names_in_
        columns = self.encoder_.columns_.values()
        self._sizes = np.array([column.domain.n_features for column in columns])
        self._ordered = np.array([isinstance(column, Ordinal | Binned) for column in columns])
        self.epsilon_ = float(self.epsilon)
        self._limit = most_cells(self.epsilon_)
        names = list(self.schema)
        always, weights = read_wishes(names, self.always, self.weights)
        # Constants are not asked.
        self._always = tuple(column for column in always if self._sizes[column] > 1)
        self._weights = np.where(self._sizes > 1, weights, 0.0)
        self.n_asked_ = check_n_asked(self.n_asked, *self._design(), *self._asked())
        self._set_privacy()
        self.design_ = release_digest(self)
        return self

    def transform(self, X: ArrayLike | pd.DataFrame | Iterable[pd.DataFrame]) -> pd.DataFrame:
        """Ask each person a question, and randomize the answer.

        Parameters
        ----------
        X : data frame, array-like of shape (n_samples, n_columns), or other source of records
            Raw records, with the columns of the schema. Files, queries, Arrow streams, chunks and
            the partitions of a dask frame are read in parts: see :ref:`large_tables`.

        Returns
        -------
        Y : data frame of shape (n_samples, 5)
            See the notes. Rows are renumbered unless ``index="keep"``.

        Raises
        ------
        PublicValueError
            Records do not fit the schema, or are a release already.
        """
        check_is_fitted(self)
        if is_release(X):
            raise PublicValueError("X must be raw records for transform, got answers.")
        parts = list(map_frames(self._codes, X, self.encoder_.columns_))
        if not parts:
            raise PublicValueError(NO_RECORDS)
        self._reserve(self.privacy_)
        return with_index(self._ask(np.concatenate(parts)), X, self._index)

    def expected_variation(self, n_samples: float) -> pd.DataFrame:
        """Return the expected error of each column and pair of columns.

        Parameters
        ----------
        n_samples : float
            Number of people.

        Returns
        -------
        data frame of shape (n_columns, n_columns)
            Expected total variation of an unbiased estimate from the answers, for each pair of
            columns and, on the diagonal, each column, if the categories had equal shares. Infinite
            for two columns that are never asked together. Above about 0.5 the answers to a pair
            alone have no information.
        """
        check_is_fitted(self)
        n_samples = check_positive(n_samples, "n_samples")
        sizes, epsilon, limit = self._design()
        always, weights = self._asked()
        singles, pairs = expected_variances(sizes, epsilon, limit, self.n_asked_, always, weights)
        variances = singles[:, None] + singles + pairs
        np.fill_diagonal(variances, singles)
        # The mean of |x| is √(2/π) standard deviations, and total variation is half of the sum.
        names = list(self.encoder_.columns_)
        return pd.DataFrame(np.sqrt(variances / n_samples / (2 * np.pi)), names, names)

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> np.ndarray:
        """Return the names of the columns of a release."""
        check_is_fitted(self)
        return np.array(RELEASE_COLUMNS, dtype=object)

    def decode(
        self, X: np.ndarray, rng: np.random.Generator | NoiseSource | None = None
    ) -> pd.DataFrame:
        """Return points of the domain as a table of raw records."""
        return self.encoder_.inverse_transform(X, rng=rng)

    def _bins(self):
        """Return bins for all numeric and datetime columns."""
        names = [n for n, column in self.schema.items() if isinstance(column, Numeric | Datetime)]
        if not isinstance(self.n_bins, Mapping):
            return dict.fromkeys(names, _BINS if isinstance(self.n_bins, str) else self.n_bins)
        return dict.fromkeys(names, _BINS) | dict(self.n_bins)

    def _design(self):
        return self._sizes, self.epsilon_, self._limit

    def _asked(self):
        return self._always, self._weights

    def _codes(self, frame):
        """Return the categories of a block of people, of shape (n, n_columns)."""
        columns = self.encoder_.columns_.items()
        codes = [column.codes(frame[name]) for name, column in columns]
        return np.stack(codes, axis=1).astype(np.min_scalar_type(self._sizes.max()))

    def _ask(self, codes):
        """Return the answers of people with given categories."""
        # One noise source for all parts, as parts with equal records must not share draws.
        noise, public = self._noise(codes), self._public(len(codes))
        always, weights = self._asked()
        asked = draw_columns(len(codes), self.n_asked_, always, weights, public)
        keys = public.integers(2**KEY_BITS, len(codes))
        answers = np.empty(len(codes), dtype=np.int64)
        size = max(1, min(_BLOCK, _GROUPS // int(self._sizes.max())))
        for start in range(0, len(codes), size):
            rows = slice(start, start + size)
            questions = self._questions(asked[rows], keys[rows])
            cells = questions.cells_of(codes[rows])
            answers[rows] = respond(cells, questions, self.epsilon_, noise)
        names = list(self.encoder_.columns_)
        return write_release(names, asked, keys, answers, self.epsilon_, self.design_)

    def _public(self, n):
        """Return the source of questions, which does not depend on records."""
        if self._seed is None:
            return noise_source()
        return noise_source(self._seed, *self._identity(), "questions", n)

    def _calibrate(self):
        return PrivacyReport(
            name=type(self).__name__,
            events=(Event("joint_answer", self.n_asked_, len(self.schema)),),
            epsilon=self.epsilon,
            delta=0.0,
            bounds=(Bound("declared_records"),),
            releases=((ApproximateProfile(self.epsilon), 1),) if self.epsilon < math.inf else (),
        )

    def _release_settings(self):
        return self.encoder_.columns_, "questions, version 1"

    def _identity(self):
        # If two designs shared draws, both answers together could reveal that they are true.
        return *super()._identity(), repr(self._always), self._weights

    def _randomize(self, X, noise):
        raise NotImplementedError("A joint answer does not have the form of its record.")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = []
        return tags
