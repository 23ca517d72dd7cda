"""What a fitted sampler tells of its law, without another look at the private records."""

from collections.abc import Iterable, Mapping
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.tables._pair_distances import pair_distances
from sklearn_dpgen.tables._record_codes import encode_codes
from sklearn_dpgen.utils._frames import as_pandas
from sklearn_dpgen.utils._validation import EstimatorMixin, check_is_fitted

__all__ = ["TableLawMixin"]

# Records that are drawn at a time for a score.
_BLOCK = 1 << 16


class TableLawMixin(EstimatorMixin):
    """Scores, and laws of targets, of a sampler with a ``law_``."""

    def score(
        self, X: ArrayLike | pd.DataFrame | Iterable[pd.DataFrame], y: object = None
    ) -> float:
        """Return minus the mean total variation between the pairs of columns of records and law.

        Parameters
        ----------
        X : data frame, array-like, iterable of data frames or dask DataFrame
            Records, of which the score tells: if they are private, it is not.
        y : ignored

        Returns
        -------
        float
            From -1 to 0, and larger is better. The cells are the declared labels, and 20 equal bins
            of numbers and dates, so that fits with other marginals and bins can be compared.

        Warns
        -----
        UnpaidScoreWarning
            After a private fit: nothing is paid for the score.
        """
        check_is_fitted(self)
        self._warn_of_score()
        X = self._without_unit(X)
        if self._rules_ is None:
            return -float(pair_distances(X, self.law_, self.encoder_).mean())
        draw = partial(self._rows(None).sample, most=_BLOCK)
        return -float(pair_distances(X, self.law_, self._rules_.encoder, draw).mean())

    def target_law(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return the law of the target of each record, given its other columns.

        It is that of the records that :meth:`sample` draws, in closed form, at no cost of privacy.

        Parameters
        ----------
        X : data frame of shape (n, n_columns)
            Records. A column of the target need not be there, and is not looked at.

        Returns
        -------
        DataFrame of shape (n, n_values)
            Probabilities, with the index of ``X``. Its columns are the labels of the target, or the
            middles of its bins; a null is the last.

        Raises
        ------
        ValueError
            The fit had no target or several, or constraints, under which there is no closed form;
            or records that do not fit the schema.
        """
        check_is_fitted(self)
        targets = [self.target] if isinstance(self.target, str) else list(self.target or ())
        last = list(self.encoder_.columns_)[self.law_.conditionals[-1].column]
        if targets != [last] or self._rules_ is not None:
            raise PublicValueError(
                "A law of the target needs a fit with one target and without constraints, got "
                f"target={self.target!r}."
            )
        column = self.encoder_.columns_[last]
        values = column.decode_codes(np.arange(column.n_categories), name=last)
        X = as_pandas(self._without_unit(X))
        records = encode_codes(X.assign(**{last: [values[0]] * len(X)}), self.encoder_)
        law = self.law_.last_given_others(records.columns)
        return pd.DataFrame(law, index=X.index, columns=pd.Index(values, name=last))

    def acceptance_rate(self, conditions: Mapping | None = None) -> float:
        """Return the share of drawn records that fulfil the constraints, and are kept.

        What breaks one is first drawn again up to eight times, in the blocks of its values; what
        then still does is replaced by another record.

        Parameters
        ----------
        conditions : mapping or None, default=None
            As for :meth:`sample`: the share is of records that fulfil those on columns that are
            drawn, and conditions on columns that rules compute count as constraints.

        Returns
        -------
        float
            Of 20000 records, always the same ones. 1 without constraints. It is post-processing,
            and tells no more of the private records than the law does.

        Raises
        ------
        ValueError
            As :meth:`sample`, but for constraints that are hardly ever fulfilled.
        """
        check_is_fitted(self)
        return self._rows(conditions).acceptance_rate()

    @property
    def bins_(self) -> dict[str, np.ndarray]:
        """Edges of the bins of numbers and dates, in the units of each column."""
        check_is_fitted(self)
        return {
            name: column.column.from_unit(np.array(column.edges))
            for name, column in self.encoder_.columns_.items()
            if isinstance(column, Binned)
        }
