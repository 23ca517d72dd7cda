"""What is read of joint answers: the questions that they answer, and their likelihood."""

from collections.abc import Iterable

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from sklearn_dpgen.mechanisms._joint_design import most_asked
from sklearn_dpgen.mechanisms._joint_likelihood import joint_log_likelihood
from sklearn_dpgen.mechanisms._joint_questions import Questions
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
from sklearn_dpgen.mechanisms._release import check_release, release_of
from sklearn_dpgen.preprocessing._reader import NO_RECORDS, map_frames
from sklearn_dpgen.utils._typing import EstimatorMixin
from sklearn_dpgen.utils._validation import check_is_fitted, validate_data

__all__ = ["JointAnswersMixin"]


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
            raise ValueError(NO_RECORDS)
        width = max(part.shape[1] for part in parts)
        encoded = np.concatenate(
            [
                np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=-1)
                for part in parts
            ]
        )
        n_twice = count_repeated(encoded)
        if n_twice:
            raise ValueError(
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
            raise ValueError(
                f"Y must be encoded answers, as encode_release returns, got {Y.shape}."
            )

    def _log_likelihood(self, X, Y):
        Y = Y.cpu().numpy()
        covered = self.questions(Y).covered(Y[:, 0].astype(np.int64))
        return joint_log_likelihood(X, covered, [*self.encoder_.blocks_.values()], self.epsilon_)
