"""Fairness of predictions between the groups of a sensitive attribute.

Signatures are those of fairlearn, ``(y_true, y_pred, *, sensitive_features)``, even if the truth is
not used, so that scorers and ``fairlearn.metrics.MetricFrame`` accept the functions. They read true
records without noise, so their results are not private.
"""

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state, check_scalar

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.metrics._transport import sliced_wasserstein_distance
from sklearn_dpgen.utils._groups import check_sensitive_features, encode_rows
from sklearn_dpgen.utils._validation import Integral, Real

__all__ = [
    "disparate_impact",
    "equalized_odds_ratios",
    "group_wasserstein_distance",
    "over_diagonal_rates",
]


def disparate_impact(
    y_true: ArrayLike | None,
    y_pred: ArrayLike,
    *,
    sensitive_features: ArrayLike | pd.DataFrame,
    pos_label: bool | int | float | str = 1,
    zero_division: float = np.nan,
) -> float:
    """Ratio of the groups' rates of positive predictions.

    Statistical parity is a ratio of 1.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or None
        True labels, used only to find the set of labels.
    y_pred : array-like of shape (n_samples,)
        Predicted labels.
    sensitive_features : array-like or DataFrame of shape (n_samples,) or (n_samples, n_features)
        Samples with the same values in all columns form a group, missing ones too; at least two
        groups.
    pos_label : bool, int, float or str, default=1
        The positive label.
    zero_division : float, default=nan
        The value if no group has positive predictions, as in a small fold of a search, where NaN
        loses all candidates: 1.0 says that equal rates are parity, 0.0 that a model without
        positive predictions is of no use.

    Returns
    -------
    float
        With two groups, the rate of the first in sorted order over the rate of the second: below
        1 if the second is favoured, above 1 if the first is, and ``inf`` if only the first has
        positive predictions. With more groups, the lowest rate over the highest, in [0, 1].
        ``zero_division`` if no group has positive predictions.

    Raises
    ------
    PublicValueError
        Lengths differ, a label is missing, there is a single group, or ``pos_label`` is not a
        label: there are several others, or one of another type.

    See Also
    --------
    equalized_odds_ratios : The ratios given the true label.

    Notes
    -----
    For any number of groups, min(DI, 1/DI) is fairlearn's ``demographic_parity_ratio``, which suits
    a search, as larger is better. It is NaN too if no group has positive predictions, and has no
    option for that; ``zero_division`` is named as in scikit-learn's metrics. The difference of the
    rates is fairlearn's ``demographic_parity_difference``, which is always defined.

    References
    ----------
    Rodríguez-Vítores, Lalanne, Loubes (2025). Learning with differentially private (sliced)
    Wasserstein gradients, equation 17.

    Examples
    --------
    >>> from sklearn_dpgen.metrics import disparate_impact
    >>> y_true = [1, 0, 1, 0, 1, 1, 0, 0]
    >>> y_pred = [1, 0, 0, 0, 1, 1, 0, 0]
    >>> disparate_impact(y_true, y_pred, sensitive_features=[0, 0, 0, 0, 1, 1, 1, 1])
    0.5
    """
    codes, labels = _check_labels(y_pred, "y_pred")
    true_labels = [] if y_true is None else _check_truth(y_true, len(codes))[1]
    group_codes, groups = check_sensitive_features(sensitive_features, len(codes))
    positive = _is_positive(codes, labels, true_labels, pos_label)
    if not positive.any():
        return float(zero_division)
    return float(_ratios(_rates(positive, group_codes, (len(groups),))))


def equalized_odds_ratios(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: ArrayLike | pd.DataFrame,
    pos_label: bool | int | float | str = 1,
    agg: Callable[[pd.Series], float] | None = None,
) -> pd.Series | float:
    """Ratios of the groups' rates of positive predictions, given the true label.

    For 0/1 labels, these are the ratios of the false positive rates (label 0) and of the true
    positive rates (label 1). Equalized odds are ratios of 1 for every label.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)
        True and predicted labels.
    sensitive_features : array-like or DataFrame of shape (n_samples,) or (n_samples, n_features)
        Samples with the same values in all columns form a group, missing ones too; at least two
        groups.
    pos_label : bool, int, float or str, default=1
        The positive label. The event is "predicted ``pos_label``" for every true label, also with
        more than two labels; equalized odds are then ratios of 1 with each label as ``pos_label``.
    agg : callable or None, default=None
        Function from the series to one number, required by scorers and by the differences of a
        ``MetricFrame``. None returns the series.

    Returns
    -------
    Series of float, or what ``agg`` makes of it
        Indexed by true label. With two groups, the rate of the first in sorted order over the
        rate of the second; with more, the lowest over the highest. NaN if no group has positive
        predictions for the label, or if a group lacks the label, so that its rate is undefined.

    Raises
    ------
    PublicValueError
        As in :func:`disparate_impact`.

    See Also
    --------
    disparate_impact : The ratio without the true label.

    Notes
    -----
    With 0/1 labels the smallest of min(r, 1/r) over the ratios r is fairlearn's
    ``equalized_odds_ratio``, except that fairlearn sets an undefined rate to 0.

    References
    ----------
    Rodríguez-Vítores, Lalanne, Loubes (2025). Learning with differentially private (sliced)
    Wasserstein gradients, equations 19 and 20.

    Examples
    --------
    >>> from sklearn_dpgen.metrics import equalized_odds_ratios
    >>> equalized_odds_ratios(
    ...     [0, 0, 1, 1, 0, 0, 1, 1],
    ...     [0, 1, 0, 1, 0, 1, 1, 1],
    ...     sensitive_features=["a", "a", "a", "a", "b", "b", "b", "b"],
    ... )
    label
    0    1.0
    1    0.5
    Name: equalized_odds_ratio, dtype: float64

    A scorer for a search with metadata routing, of the worst ratio:

    >>> import numpy as np
    >>> from sklearn.metrics import make_scorer
    >>> scorer = make_scorer(equalized_odds_ratios, agg=lambda r: np.minimum(r, 1 / r).min())
    """
    codes, labels = _check_labels(y_pred, "y_pred")
    true_codes, true_labels = _check_truth(y_true, len(codes))
    group_codes, groups = check_sensitive_features(sensitive_features, len(codes))
    positive = _is_positive(codes, labels, true_labels, pos_label)
    cells = true_codes * len(groups) + group_codes
    ratios = _ratios(_rates(positive, cells, (len(true_labels), len(groups))))
    index = pd.Index(true_labels, name="label")
    series = pd.Series(ratios, index=index, name="equalized_odds_ratio")
    return series if agg is None else agg(series)


def over_diagonal_rates(
    y_true: object,
    y_pred: ArrayLike,
    *,
    sensitive_features: ArrayLike | pd.DataFrame,
    offset: float = 0.0,
    agg: Callable[[pd.Series], float] | None = None,
) -> pd.Series | float:
    """Share of each group above the antidiagonal y2 = offset - y1.

    Parameters
    ----------
    y_true : Ignored
        Present for the convention of fairlearn; may be None.
    y_pred : array-like of shape (n_samples, 2)
        Predictions of a regression with two outputs.
    sensitive_features : array-like or DataFrame of shape (n_samples,) or (n_samples, n_features)
        Samples with the same values in all columns form a group, missing ones too; at least two
        groups.
    offset : float, default=0.0
        In the units of the outputs: 0 for targets centred on [-1/2, 1/2]^2, 1 on [0, 1]^2.
    agg : callable or None, default=None
        Function from the series to one number, such as ``np.ptp``, required by scorers and by the
        differences of a ``MetricFrame``. None returns the series.

    Returns
    -------
    Series of float, or what ``agg`` makes of it
        Indexed by group, in sorted order.

    Raises
    ------
    PublicValueError
        Lengths differ, a target is missing or not finite, ``y_pred`` does not have two columns, or
        there is a single group.

    References
    ----------
    Rodríguez-Vítores, Lalanne, Loubes (2025). Learning with differentially private (sliced)
    Wasserstein gradients, appendix B.2, OD_0 and OD_1.

    Examples
    --------
    >>> from sklearn_dpgen.metrics import over_diagonal_rates
    >>> y_pred = [[0.1, 0.2], [0.3, -0.4], [0.5, 0.0]]
    >>> over_diagonal_rates(None, y_pred, sensitive_features=[0, 0, 1])
    0    0.5
    1    1.0
    Name: over_diagonal_rate, dtype: float64
    """
    check_scalar(offset, "offset", Real)
    y_pred = _check_outputs(y_pred, "y_pred")
    if y_pred.shape[1] != 2:
        raise PublicValueError(f"y_pred must have two columns, got {y_pred.shape[1]}.")
    codes, groups = check_sensitive_features(sensitive_features, len(y_pred))
    above = y_pred[:, 1] > offset - y_pred[:, 0]
    rates = _rates(above, codes, (len(groups),))
    series = pd.Series(rates, index=pd.Index(groups), name="over_diagonal_rate")
    return series if agg is None else agg(series)


def group_wasserstein_distance(
    y_true: object,
    y_pred: ArrayLike,
    *,
    sensitive_features: ArrayLike | pd.DataFrame,
    p: float = 2,
    n_projections: int = 200,
    random_state: int | np.random.RandomState | None = None,
) -> float:
    """Wasserstein distance between the groups' distributions of predictions.

    A single output is compared exactly, several by the sliced distance with the same directions for
    every pair of groups. With more than two groups it is the p-th root of the mean over the pairs
    of the p-th powers. Its square for p=2 is the fairness penalty of the package. Two samples of
    one distribution have a positive distance.

    Parameters
    ----------
    y_true : Ignored
        Present for scorers and fairlearn's ``MetricFrame``; may be None.
    y_pred : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Predicted probabilities, regression outputs or codes.
    sensitive_features : array-like or DataFrame of shape (n_samples,) or (n_samples, n_features)
        Samples with the same values in all columns form a group, missing ones too; at least two
        groups.
    p : float, default=2
        Order, at least 1.
    n_projections : int, default=200
        Number of directions. Not used with one output.
    random_state : None, int or RandomState, default=None
        Draws the directions. With two groups, an int gives the value of
        :func:`sliced_wasserstein_distance` for the same int.

    Returns
    -------
    float
        In the units of the predictions.

    Raises
    ------
    PublicValueError
        Lengths differ, a score is missing or not finite, or there is a single group.

    References
    ----------
    Rodríguez-Vítores, Lalanne, Loubes (2025). Learning with differentially private (sliced)
    Wasserstein gradients, equations 18 and 22.

    Examples
    --------
    >>> from sklearn_dpgen.metrics import group_wasserstein_distance
    >>> group_wasserstein_distance(None, [0.25, 0.5, 0.5, 0.75], sensitive_features=[0, 0, 1, 1])
    0.25

    A scorer for a search with metadata routing, of the distance of the probabilities:

    >>> from sklearn.metrics import make_scorer
    >>> scorer = make_scorer(
    ...     group_wasserstein_distance, response_method="predict_proba", greater_is_better=False
    ... )
    """
    check_scalar(n_projections, "n_projections", Integral, min_val=1)
    outputs = _check_outputs(y_pred, "y_pred")
    codes, groups = check_sensitive_features(sensitive_features, len(outputs))
    one_seed = isinstance(random_state, Integral)
    seed = random_state if one_seed else check_random_state(random_state).randint(2**31 - 1)
    distances = [
        sliced_wasserstein_distance(
            outputs[codes == first],
            outputs[codes == second],
            p=p,
            # A line has two directions, which give the same distance.
            n_projections=n_projections if outputs.shape[1] > 1 else 1,
            random_state=seed,
        )
        for first, second in combinations(range(len(groups)), 2)
    ]
    # Scaled, because p-th powers may overflow.
    largest = max(distances)
    if largest == 0:
        return 0.0
    return float(largest * np.mean((np.array(distances) / largest) ** p) ** (1 / p))


def _check_labels(y, name):
    codes, labels = encode_rows(y, name)
    if labels and isinstance(labels[0], tuple):
        raise PublicValueError(f"{name} must have one column, got {len(labels[0])}.")
    return codes, labels


def _check_truth(y_true, n_samples):
    codes, labels = _check_labels(y_true, "y_true")
    if len(codes) != n_samples:
        raise PublicValueError(
            "y_true and y_pred must have as many samples as each other, "
            f"got {len(codes)} and {n_samples}."
        )
    return codes, labels


def _check_outputs(values, name):
    """Return finite float64 numbers of shape (n, d)."""
    try:
        values = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.ndim not in (1, 2) or values.size == 0 or not np.all(np.isfinite(values)):
        raise PublicValueError(f"{name} must hold finite real numbers in one or two dimensions.")
    return values.reshape(len(values), -1)


def _is_positive(codes, labels, true_labels, pos_label):
    """Return whether each code is that of ``pos_label``, even if it is never predicted."""
    known = {*labels, *true_labels}
    # A single label may be the negative one, but has the same type.
    alone = len(known) == 1 and isinstance(next(iter(known)), str) == isinstance(pos_label, str)
    if pos_label not in known and not alone:
        raise PublicValueError(f"pos_label must be among the labels, and {pos_label!r} is not.")
    position = labels.index(pos_label) if pos_label in labels else -1
    return codes == position


def _rates(event, cells, shape):
    """Return the share of the samples of each cell with the event, NaN for an empty cell."""
    size = np.prod(shape)
    with np.errstate(invalid="ignore"):
        rates = np.bincount(cells, event, minlength=size) / np.bincount(cells, minlength=size)
    return rates.reshape(shape)


def _ratios(rates):
    """Compare the groups on the last axis: first over second for two, min over max for more."""
    first, second = rates[..., 0], rates[..., 1]
    if rates.shape[-1] > 2:
        first, second = rates.min(axis=-1), rates.max(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return first / second
