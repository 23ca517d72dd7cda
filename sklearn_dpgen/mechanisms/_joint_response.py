"""JointRandomizedResponse: a local mechanism with one joint answer on few columns.

The answers of many persons are a table of public values. Here are its format, its likelihood and
the moments learned from it; `_joint_questions` has the questions.
"""

import itertools
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from sklearn_dpgen.accounting import ApproximateProfile, Bound, Event, PrivacyReport
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.mechanisms._joint_questions import (
    Questions,
    check_n_asked,
    column_weights,
    draw_columns,
    expected_variances,
    most_asked,
    most_cells,
    respond,
    same_group,
)
from sklearn_dpgen.mechanisms._release import (
    Moments,
    check_release,
    column_features,
    release_digest,
    release_of,
)
from sklearn_dpgen.mechanisms._tabular import TableMechanism
from sklearn_dpgen.preprocessing._reader import NO_RECORDS, has_no_names, map_frames
from sklearn_dpgen.preprocessing._tabular import with_index
from sklearn_dpgen.schema import Datetime, Numeric, Ordinal, Schema
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.utils._random import noise_source
from sklearn_dpgen.utils._validation import (
    Integral,
    Interval,
    StrOptions,
    check_is_fitted,
    check_positive,
    fit_context,
    validate_data,
)

__all__ = ["JointRandomizedResponse", "RELEASE_COLUMNS", "answer_odds"]

RELEASE_COLUMNS = ["asked", "grouping", "answer", "epsilon", "design"]
# Keys have 48 bits, or 15 digits, which any spreadsheet keeps; they are encoded in parts that
# float32 holds.
KEY_BITS, _PART_BITS = 48, 16
# Number of equal bins of a numeric or datetime column without declared bins.
_BINS = 16
# Number of people whose answers are drawn at once, and of groups of categories held for them.
_BLOCK, _GROUPS = 1 << 16, 1 << 20
# Number of answers whose covered categories are held at once.
_COUNTED = 1 << 14


def answer_odds(covered, epsilon):
    """Return e^-ε, and the log probability of an answer that covers the true cell.

    The likelihood of an answer that covers it with probability π is the product of the latter
    and e^-ε + (1 - e^-ε) π.
    """
    # Positive, so that its logarithm exists and sums of its inverse do not overflow in float32.
    floor = max(math.exp(-epsilon), 1e-30)
    others = covered.n_cells - covered.coverage
    return floor, -np.log(covered.coverage + others * floor)


def joint_log_likelihood(X, covered, slices, epsilon):
    """Return the log-likelihoods of answers under points of the domain, differentiable in these.

    Parameters
    ----------
    X : tensor of shape (n_x, n_features)
    covered : Covered
        Sets of records that the answers cover.
    slices : list of slice
        Features of each column.
    epsilon : float

    Returns
    -------
    tensor of shape (n_x, n_answers)
    """
    import torch

    shares = X.new_ones(len(covered.answer) * covered.n_slots, X.shape[0])
    values = [
        torch.as_tensor(mask, dtype=X.dtype, device=X.device) @ X[:, slices[column]].T
        for column, _, mask in covered.blocks
    ]
    places = np.concatenate([places for _, places, _ in covered.blocks])
    places = torch.as_tensor(places, device=X.device)
    shares = shares.index_copy(0, places, torch.cat(values))
    boxes = shares.unflatten(0, (-1, covered.n_slots)).prod(dim=1)
    answer = torch.as_tensor(covered.answer, device=X.device)
    inside = X.new_zeros(covered.n_answers, X.shape[0]).index_add(0, answer, boxes)
    floor, log_scale = answer_odds(covered, epsilon)
    odds = floor - math.expm1(-epsilon) * inside
    log_scale = torch.as_tensor(log_scale, dtype=X.dtype, device=X.device)
    return (torch.log(odds) + log_scale[:, None]).T


def write_release(names, asked, keys, answers, epsilon, design):
    """Return answers as a data frame with the columns ``RELEASE_COLUMNS``.

    Parameters
    ----------
    names : list of str
        Names of the columns of the schema.
    asked : ndarray of int of shape (n, s)
    keys, answers : ndarray of int of shape (n,)
    epsilon : float
    design : str
    """
    kinds, kind = np.unique(asked, axis=0, return_inverse=True)
    texts = [json.dumps([names[j] for j in row], ensure_ascii=False) for row in kinds]
    return pd.DataFrame(
        {
            "asked": np.array(texts, dtype=object)[kind.ravel()],
            "grouping": keys,
            "answer": answers,
            "epsilon": epsilon,
            "design": design,
        }
    )


def is_release(X):
    """Return whether a frame of pandas or dask has the columns of answers, and possibly others."""
    columns = _columns(X)
    return columns is not None and set(RELEASE_COLUMNS) <= columns


def _columns(X):
    """Return the columns of a frame of pandas or dask; None for others, which may compute them."""
    columns = X.columns if hasattr(type(X), "iloc") else None
    return set(columns) if isinstance(columns, pd.Index) else None


def check_is_release(Y):
    """Refuse tables without the columns of answers, which may hold raw records."""
    columns = _columns(Y)
    if has_no_names(Y) or (columns is not None and not set(RELEASE_COLUMNS) & columns):
        raise PublicValueError(
            f"X must have the columns of answers {RELEASE_COLUMNS}, and has none of them. Raw "
            "records are for transform, or for an estimator with privatize=True."
        )
    if columns is not None and columns != set(RELEASE_COLUMNS):
        missing = [name for name in RELEASE_COLUMNS if name not in columns]
        lacks = f" X lacks {missing}." if missing else ""
        raise PublicValueError(
            f"X must have the columns of answers {RELEASE_COLUMNS} and no others, such as an index "
            f"that was written to a file.{lacks}"
        )


def check_origin(frame, epsilon, design):
    """Refuse missing entries, and answers with another budget or design; errors name both."""
    for name in RELEASE_COLUMNS:
        if frame[name].isna().any():
            raise PublicValueError(f"Column {name!r} of the answers must have no missing values.")
    given = _numbers(frame["epsilon"])
    if np.isnan(given).any():
        raise PublicValueError("Column 'epsilon' of the answers must hold numbers.")
    # A text file may change the last digit of a float.
    other = ~np.isclose(given, epsilon, rtol=1e-9, atol=0)
    if other.any():
        raise PublicValueError(
            f"Answers were given with epsilon={given[other][0]:g}, but mechanism has epsilon="
            f"{epsilon:g}: take the mechanism that asked. To learn from both, fit each separately."
        )
    other = (frame["design"].astype(str) != design).to_numpy()
    if other.any():
        raise PublicValueError(
            f"Answers are of the design {frame['design'][other].iloc[0]!r}, but mechanism is of "
            f"{design!r}: its schema or bins are not those of the mechanism that asked."
        )


def read_asked(texts, names, most):
    """Return the indices of the columns that were asked, padded with -1.

    Parameters
    ----------
    texts : Series of str of shape (n,)
    names : list of str
        Names of the columns of the schema.
    most : int
        Largest number of columns of a question.

    Returns
    -------
    ndarray of int64 of shape (n, s)
    """
    places = {name: j for j, name in enumerate(names)}
    codes, kinds = pd.factorize(texts.astype(str))
    asked = []
    for text in kinds:
        found = _names_of(text)
        if not found or len(set(found)) < len(found):
            raise PublicValueError(
                "Column 'asked' of the answers must hold JSON lists of distinct columns."
            )
        unknown = [name for name in found if name not in places]
        if unknown:
            raise PublicValueError(
                f"Column 'asked' of the answers must name columns of the schema, got {unknown}."
            )
        if len(found) > most:
            raise PublicValueError(
                f"Column 'asked' of the answers must name at most {most} columns at once for this "
                f"budget, got {len(found)}."
            )
        asked.append([places[name] for name in found])
    width = max(map(len, asked))
    padded = np.array([row + [-1] * (width - len(row)) for row in asked], dtype=np.int64)
    return padded[codes]


def _names_of(text):
    """Return the names in a JSON list, or an empty list if the text is not one."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    is_list = isinstance(found, list) and all(isinstance(name, str) for name in found)
    return found if is_list else []


def read_integers(frame, name, stop):
    """Return a column of integers from 0 to below ``stop``, possibly read from a file."""
    values = _numbers(frame[name])
    if not ((values == np.floor(values)) & (values >= 0) & (values < stop)).all():
        raise PublicValueError(
            f"Column {name!r} of the answers must hold integers from 0 to below the number asked."
        )
    return values.astype(np.int64)


def _numbers(values):
    """Return a column as floats; NaN for entries that are not numbers in text."""
    if values.dtype == object:
        # With objects numpy would accept truth values and complex numbers, but not all integers.
        values = values.astype(str)
    return pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64)


def split_keys(keys):
    """Return keys as three numbers of 16 bits."""
    return [(keys >> (_PART_BITS * i)) % 2**_PART_BITS for i in range(3)]


def join_keys(encoded):
    """Return the keys of encoded answers."""
    parts = encoded[:, 1:4].astype(np.int64)
    return parts[:, 0] | parts[:, 1] << _PART_BITS | parts[:, 2] << 2 * _PART_BITS


def count_repeated(encoded):
    """Return how many encoded answers repeat another one, key included."""
    _, place, counts = np.unique(join_keys(encoded), return_inverse=True, return_counts=True)
    # Keys may collide among many millions of people, so whole rows are compared.
    alike = encoded[counts[place] > 1]
    return len(alike) - len(np.unique(alike, axis=0))


class JointRandomizedResponse(TableMechanism):
    """Ask each person about a few columns at once, and randomize the one joint answer.

    The columns asked of a person are drawn independently of the record, and the whole budget goes
    into one answer. It has information on the dependence between columns, unlike a budget split
    over all columns. A release is a row of five public values per person.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of one whole record, in nats. ``np.inf`` answers truthfully.
    schema : Schema, str or path-like
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
        **TableMechanism._parameter_constraints,
        "n_bins": [StrOptions({"auto"}), Integral, Mapping],
        "n_asked": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "always": [list, tuple],
        "weights": [None, Mapping],
    }

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        schema: Schema | str | os.PathLike | None = None,
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
        self._encode_columns(X, self._bins())
        columns = self.encoder_.columns_.values()
        self._sizes = np.array([column.domain.n_features for column in columns])
        self._ordered = np.array([isinstance(column, Ordinal | Binned) for column in columns])
        self.epsilon_ = float(self.epsilon)
        self._limit = most_cells(self.epsilon_)
        names = list(self.schema)
        always, weights = column_weights(names, self.always, self.weights)
        # Constants are not asked.
        self._always = tuple(column for column in always if self._sizes[column] > 1)
        self._weights = np.where(self._sizes > 1, weights, 0.0)
        self.n_asked_ = check_n_asked(self.n_asked, *self._design())
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
        sizes, epsilon, limit, always, weights = self._design()
        singles, pairs = expected_variances(sizes, epsilon, limit, self.n_asked_, always, weights)
        variances = singles[:, None] + singles + pairs
        np.fill_diagonal(variances, singles)
        # The mean of |x| is √(2/π) standard deviations, and total variation is half of the sum.
        names = list(self.encoder_.columns_)
        return pd.DataFrame(np.sqrt(variances / n_samples / (2 * np.pi)), names, names)

    # It takes tables only, also in parts.
    def encode_release(  # type: ignore[override]
        self,
        Y: pd.DataFrame | Iterable[pd.DataFrame],
        *,
        reset: bool = False,
        estimator: BaseEstimator | None = None,
    ) -> np.ndarray:
        """Return answers as an array for ``log_likelihood``.

        Parameters
        ----------
        Y : data frame or other source of answers
            Results of ``transform``, possibly written to a file and read, or joined.
        reset : bool, default=False
            Whether the estimator stores the names of the columns, or compares them.
        estimator : estimator or None, default=None
            Estimator whose column names are stored or compared; None skips this.

        Returns
        -------
        ndarray of shape (n_samples, 4 + most asked columns)
            The answer, the key in three parts, and the indices of the columns, or -1.

        Raises
        ------
        PublicValueError
            The columns are not those of answers; the budget, design or asked columns are not those
            of the mechanism; or an answer is impossible, missing or repeated.
        """
        check_is_fitted(self)
        release = release_of(Y)
        if release is not None and release["mechanism"] != type(self).__qualname__:
            check_release(Y, self)
        check_is_release(Y)
        if estimator is not None and isinstance(Y, pd.DataFrame):
            validate_data(estimator, Y, reset=reset, skip_check_array=True)
        parts = list(map_frames(self._read, Y, RELEASE_COLUMNS))
        if not parts:
            raise PublicValueError(NO_RECORDS)
        width = max(part.shape[1] for part in parts)
        encoded = np.concatenate(
            [
                np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=-1)
                for part in parts
            ]
        )
        n_twice = count_repeated(encoded)
        if n_twice:
            raise PublicValueError(
                f"{n_twice} answers are there twice, with their grouping: they were collected "
                "twice, and drop_duplicates() keeps one of each; or people were asked with the "
                "same random_state, which must be None."
            )
        return encoded

    def questions(self, Y: np.ndarray) -> Questions:
        """Return the questions of encoded answers."""
        columns = Y[:, 4:].astype(np.int64)
        return self._questions(columns, join_keys(Y))

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> np.ndarray:
        """Return the names of the columns of a release."""
        check_is_fitted(self)
        return np.array(RELEASE_COLUMNS, dtype=object)

    def _bins(self):
        """Return bins for all numeric and datetime columns."""
        names = [n for n, column in self.schema.items() if isinstance(column, Numeric | Datetime)]
        if not isinstance(self.n_bins, Mapping):
            return dict.fromkeys(names, _BINS if isinstance(self.n_bins, str) else self.n_bins)
        return dict.fromkeys(names, _BINS) | dict(self.n_bins)

    def _design(self):
        return self._sizes, self.epsilon_, self._limit, self._always, self._weights

    def _codes(self, frame):
        """Return the categories of a block of people, of shape (n, n_columns)."""
        columns = self.encoder_.columns_.items()
        codes = [column.codes(frame[name]) for name, column in columns]
        return np.stack(codes, axis=1).astype(np.min_scalar_type(self._sizes.max()))

    def _ask(self, codes):
        """Return the answers of people with given categories."""
        # One noise source for all parts, as parts with equal records must not share draws.
        noise, public = self._noise(codes), self._public(len(codes))
        asked = draw_columns(len(codes), self.n_asked_, self._always, self._weights, public)
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

    def _questions(self, columns, keys):
        return Questions(self._sizes, self._ordered, self.epsilon_, self._limit, columns, keys)

    def _read(self, frame):
        """Return a block of answers, encoded."""
        check_origin(frame, self.epsilon_, self.design_)
        names = list(self.encoder_.columns_)
        asked = read_asked(frame["asked"], names, most_asked(self._limit))
        keys = read_integers(frame, "grouping", 2**KEY_BITS)
        answers = read_integers(frame, "answer", self._questions(asked, keys).n_cells)
        return np.column_stack([answers, *split_keys(keys), asked]).astype(np.float64)

    def _check_encoded(self, Y):
        if Y.ndim != 2 or Y.shape[1] < 5:
            raise PublicValueError(
                f"Y must be encoded answers from encode_release, got shape {Y.shape}."
            )

    def _log_likelihood(self, X, Y):
        Y = Y.cpu().numpy()
        covered = self.questions(Y).covered(Y[:, 0].astype(np.int64))
        return joint_log_likelihood(X, covered, [*self.encoder_.blocks_.values()], self.epsilon_)

    def _raw_moments(self, Y):
        """Return unbiased estimates of the moments of raw records, from columns and pairs.

        Let an answer cover m of K cells, and the true one with probability p. Any other cell is
        covered, over keys, with probability q = (m - p) / (K - 1), so (1[c covered] - q) / (p - q)
        has the mean 1[c is the true cell]. Summed over the cells of a group this estimates whether
        the record is in the group of a category. For all categories the mean is the matrix of
        `same_group` times their shares.
        """
        columns = list(self.encoder_.columns_.values())
        maps = [
            column_features(column, np.eye(size), np.eye(size))
            for column, size in zip(columns, self._sizes, strict=True)
        ]
        sums = [np.zeros(size) for size in self._sizes]
        counts = np.zeros(len(columns))
        products: dict[tuple[int, ...], tuple] = {}
        asked = Y[:, 4:].astype(np.int64)
        kinds, kind = np.unique(asked, axis=0, return_inverse=True)
        order = np.argsort(kind.ravel(), kind="stable")
        ends = np.cumsum(np.bincount(kind.ravel()))[:-1]
        for question, rows in zip(kinds, np.split(order, ends), strict=True):
            for start in range(0, len(rows), _COUNTED):
                part = Y[rows[start : start + _COUNTED]]
                shares = self._unbiased_shares(part, [int(j) for j in question if j >= 0])
                for key, share in shares.items():
                    if len(key) == 1:
                        counts[key[0]] += len(part)
                        sums[key[0]] += len(part) * share
                    else:
                        total, n = products.get(key, (0.0, 0))
                        products[key] = total + len(part) * share, n + len(part)
        with np.errstate(invalid="ignore"):
            shares = [total / n for total, n in zip(sums, counts, strict=True)]
        widths = [features.shape[1] for features, _ in maps]
        stops = np.cumsum(widths)
        second = np.full((stops[-1], stops[-1]), np.nan)
        for j, (_, squares) in enumerate(maps):
            # The first feature is the number, if there is one.
            if np.isfinite(squares[:, 0]).all():
                first = stops[j] - widths[j]
                second[first, first] = shares[j] @ squares[:, 0]
        for (j, k), (total, n) in products.items():
            cells = maps[j][0].T @ (total / n) @ maps[k][0]
            places = np.s_[stops[j] - widths[j] : stops[j], stops[k] - widths[k] : stops[k]]
            second[places], second[places[::-1]] = cells, cells.T
        mean = np.concatenate(
            [share @ features for share, (features, _) in zip(shares, maps, strict=True)]
        )
        return Moments(mean, second)

    def _unbiased_shares(self, Y, columns):
        """Return the shares of some columns and of their pairs, from answers that asked them."""
        questions = self.questions(Y)
        K, m = int(questions.n_cells[0]), int(questions.coverage[0])
        masks = questions.covered_categories(Y[:, 0].astype(np.int64))
        groups = questions.n_groups[0]
        p = m / (m + (K - m) * math.exp(-self.epsilon_))
        q = (m - p) / (K - 1)
        flat = [mask.reshape(-1, mask.shape[2]).astype(np.float64) for mask in masks]
        together = [
            same_group(self._sizes[j], g, self._ordered[j])
            for j, g in zip(columns, groups, strict=False)
        ]
        found: dict[tuple[int, ...], np.ndarray] = {}
        for i, j in enumerate(columns):
            share = (flat[i].sum(axis=0) / len(Y) - q * K / groups[i]) / (p - q)
            found[j,] = np.linalg.solve(together[i], share)
        for i, k in itertools.combinations(range(len(columns)), 2):
            chance = q * K / (groups[i] * groups[k])
            share = (flat[i].T @ flat[k] / len(Y) - chance) / (p - q)
            share = np.linalg.solve(together[k], np.linalg.solve(together[i], share).T).T
            is_ascending = columns[i] < columns[k]
            key = columns[i], columns[k]
            found[key if is_ascending else key[::-1]] = share if is_ascending else share.T
        return found
