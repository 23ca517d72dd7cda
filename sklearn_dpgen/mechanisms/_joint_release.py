"""Joint answers: their table, the questions they answer, and their likelihood."""

import itertools
import json
import math
from collections.abc import Iterable

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.mechanisms._joint_questions import Questions, most_asked, same_group
from sklearn_dpgen.mechanisms._release import Moments, check_release, column_features, release_of
from sklearn_dpgen.preprocessing._reader import NO_RECORDS, has_no_names, map_frames
from sklearn_dpgen.utils._validation import EstimatorMixin, check_is_fitted, validate_data

__all__ = [
    "JointAnswersMixin",
    "KEY_BITS",
    "RELEASE_COLUMNS",
    "answer_odds",
    "check_is_release",
    "check_origin",
    "count_repeated",
    "is_release",
    "join_keys",
    "joint_log_likelihood",
    "read_asked",
    "read_integers",
    "split_keys",
    "write_release",
]


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


RELEASE_COLUMNS = ["asked", "grouping", "answer", "epsilon", "design"]
# Keys have 48 bits, or 15 digits, which any spreadsheet keeps; they are encoded in parts that
# float32 holds.
KEY_BITS, _PART_BITS = 48, 16


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


# Number of answers whose covered categories are held at once.
_BLOCK = 1 << 14


class JointAnswersMixin(EstimatorMixin):
    """Methods of JointRandomizedResponse for the collector of the answers."""

    def encode_release(
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
            for start in range(0, len(rows), _BLOCK):
                part = Y[rows[start : start + _BLOCK]]
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
