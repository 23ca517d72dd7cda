"""Scores of one estimator at several budgets."""

import warnings
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.metrics import check_scoring
from sklearn.model_selection import train_test_split

from sklearn_dpgen.exceptions import PublicValueError, UnpaidScoreWarning
from sklearn_dpgen.reporting._privacy_utility_display import PrivacyUtilityDisplay
from sklearn_dpgen.utils._budget_parameters import named_parameters, outermost_parameters
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._validation import Integral, check_epsilon

__all__ = ["privacy_utility_curve"]


def privacy_utility_curve(
    estimator: BaseEstimator,
    X: ArrayLike | pd.DataFrame,
    epsilons: Sequence[float],
    *,
    y: ArrayLike | None = None,
    scoring: str | Callable | None = None,
    n_repeats: int = 3,
    test_fraction: float = 0.25,
    public_rows: bool = False,
    random_state: int | np.random.RandomState | None = None,
) -> PrivacyUtilityDisplay:
    """Fit at several budgets, several times each, and score on rows that are held out.

    Parameters
    ----------
    estimator : private estimator
        Its ``epsilon``, that of a sampler in it, or of a step of a pipeline, is set.
    X : data frame or array-like of shape (n_samples, n_features)
    epsilons : sequence of float
        Budgets, in nats; ``np.inf`` fits without noise.
    y : array-like of shape (n_samples,) or None, default=None
    scoring : str, callable or None, default=None
        As in :func:`sklearn.metrics.check_scoring`, for generators
        :func:`~sklearn_dpgen.model_selection.utility_scorer`. None is the estimator's own score.
    n_repeats : int, default=3
        How many fits there are at each budget, each with rows, noise and a start of its own.
    test_fraction : float, default=0.25
        Share of the rows that is held out, in (0, 1).
    public_rows : bool, default=False
        Whether the rows are public, or synthetic. Else a warning says what the curve costs.
    random_state : int, RandomState or None, default=None
        An int repeats the curve, and voids the guarantees of its fits.

    Returns
    -------
    PrivacyUtilityDisplay
        Not yet drawn.

    Warns
    -----
    UnpaidScoreWarning
        The rows are not public. Fits charge what they cost, to their ledger if they have one; the
        scores are without noise and charge nothing, and so the curve is not private, nor is a
        budget that is chosen by it.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import load_rand_health
    >>> from sklearn_dpgen.model_selection import privacy_utility_curve
    >>> from sklearn_dpgen.tables import TableSampler
    >>> data = load_rand_health()
    >>> sampler = TableSampler(
    ...     schema=data.schema, marginals="pairs", population_size=2000, max_iter=2
    ... )
    >>> display = privacy_utility_curve(
    ...     sampler, data.frame, [0.5, 5.0], n_repeats=2, public_rows=True
    ... )
    >>> display.scores.shape
    (2, 2)
    """
    epsilons = np.array([check_epsilon(epsilon, "epsilons") for epsilon in epsilons])
    if len(epsilons) == 0:
        raise PublicValueError("epsilons must hold at least one budget.")
    if not isinstance(n_repeats, Integral) or n_repeats < 1:
        raise PublicValueError(f"n_repeats must be an integer of at least 1, got {n_repeats!r}.")
    budgets = outermost_parameters(estimator, "epsilon")
    if not budgets:
        raise PublicValueError(f"estimator has no parameter epsilon: {type(estimator).__name__}.")
    if not public_rows:
        warnings.warn(
            f"{len(epsilons) * n_repeats} fits spend the sum of their budgets, and their scores on "
            "private rows are not private. Draw the curve of rows that are public or synthetic, "
            "and say public_rows=True.",
            UnpaidScoreWarning,
            stacklevel=2,
        )
    scorer = check_scoring(estimator, scoring=scoring)
    scores = np.empty((len(epsilons), n_repeats))
    for repeat, seed in enumerate(split_random_state(random_state, n_repeats)):
        parts = [part for part in (X, y) if part is not None]
        split = train_test_split(*parts, test_size=test_fraction, random_state=seed)
        for row, epsilon in enumerate(epsilons):
            model = clone(estimator).set_params(
                **dict.fromkeys(named_parameters(estimator, "random_state"), seed),
                **dict.fromkeys(budgets, float(epsilon)),
            )
            model.fit(*split[::2])
            with warnings.catch_warnings():
                # Said once, above.
                warnings.simplefilter("ignore", UnpaidScoreWarning)
                scores[row, repeat] = scorer(model, *split[1::2])
    name = scoring if isinstance(scoring, str) else "score"
    return PrivacyUtilityDisplay(epsilons, scores, score_name=name.replace("_", " "))
