"""What is read of joint answers: the questions that they answer, and their likelihood."""

import itertools
import math
from collections.abc import Iterable

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.mechanisms._joint_design import most_asked
from sklearn_dpgen.mechanisms._joint_likelihood import joint_log_likelihood
from sklearn_dpgen.mechanisms._joint_questions import Questions, same_group
from sklearn_dpgen.mechanisms._joint_release import (
    KEY_BITS,
    RELEASE_COLUMNS,
    check_is_release,
    check_origin,
    count_repeated,
    join_keys,
    read_asked,
    read_integers,
    split_keys,
)
from sklearn_dpgen.mechanisms._moments import Moments, column_features
from sklearn_dpgen.mechanisms._release import check_release, release_of
from sklearn_dpgen.preprocessing._reader import NO_RECORDS, map_frames
from sklearn_dpgen.utils._typing import EstimatorMixin
from sklearn_dpgen.utils._validation import check_is_fitted, validate_data

__all__ = ["JointAnswersMixin"]

# Answers whose covered categories are held at a time.
_BLOCK = 1 << 14


class JointAnswersMixin(EstimatorMixin):
    """Mixin of JointRandomizedResponse for those who collect the answers."""

    def encode_release(
        self,
        Y: pd.DataFrame | Iterable[pd.DataFrame],
        *,
        reset: bool = False,
        estimator: BaseEstimator | None = None,
    ) -> np.ndarray:
        """Return answers as an array that ``log_likelihood`` takes.

        Parameters
        ----------
        Y : data frame or other source of answers
            As ``transform`` returns them, possibly written to a file and read, or joined.
        reset : bool, default=False
            Whether the estimator records the names of the columns, or compares them.
        estimator : estimator or None, default=None
            Where.

        Returns
        -------
        ndarray of shape (n_samples, 4 + most asked columns)
            The answer, the key in three parts, and the numbers of the columns, or -1.

        Raises
        ------
        ValueError
            Answers without names of columns, under another budget or design, that name columns
            that are not declared, that are impossible or missing, or of which one is there twice.
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
                "twice, and drop_duplicates() keeps one of each; or people were asked with one "
                "random_state, which must be None where they are."
            )
        return encoded

    def questions(self, Y: np.ndarray) -> Questions:
        """Return the questions of encoded answers."""
        columns = Y[:, 4:].astype(np.int64)
        return self._questions(columns, join_keys(Y))

    def _questions(self, columns, keys):
        return Questions(self._sizes, self._ordered, self.epsilon_, self._limit, columns, keys)

    def _read(self, frame):
        """Return some answers encoded."""
        check_origin(frame, self.epsilon_, self.design_)
        names = list(self.encoder_.columns_)
        asked = read_asked(frame["asked"], names, most_asked(self._limit))
        keys = read_integers(frame, "grouping", 2**KEY_BITS)
        answers = read_integers(frame, "answer", self._questions(asked, keys).n_cells)
        return np.column_stack([answers, *split_keys(keys), asked]).astype(np.float64)

    def _check_encoded(self, Y):
        if Y.ndim != 2 or Y.shape[1] < 5:
            raise PublicValueError(
                f"Y must be encoded answers, as encode_release returns, got {Y.shape}."
            )

    def _log_likelihood(self, X, Y):
        Y = Y.cpu().numpy()
        covered = self.questions(Y).covered(Y[:, 0].astype(np.int64))
        return joint_log_likelihood(X, covered, [*self.encoder_.blocks_.values()], self.epsilon_)

    def _raw_moments(self, Y):
        """Return estimates of the moments of raw records, by the shares of columns and pairs.

        Let an answer cover m of K cells, and the true one with probability p. Over keys any other
        cell is then covered with probability q = (m - p) / (K - 1), so that (1[c covered] - q) /
        (p - q) has the mean 1[c is the true cell]. Summed over the cells of a group it tells
        whether the record is in the group of a category, which for all categories is the matrix of
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
            # The first feature is the number, where there is one.
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
