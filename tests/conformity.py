"""scikit-learn's checks of estimators: all of them for one estimator of each class."""

import pytest
import sklearn.utils.estimator_checks

# What a parameter can change: how records are read, and what is computed of them. The other
# checks concern the class: its signature, tags, names, clones and sparse input.
_CHECKS_OF_VARIANTS = {
    "check_classifiers_classes",
    "check_classifiers_train",
    "check_dict_unchanged",
    "check_dtype_object",
    "check_estimators_dtypes",
    "check_estimators_nan_inf",
    "check_estimators_pickle",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit_idempotent",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_readonly_memmap_input",
    "check_regressors_train",
    "check_transformer_general",
}


def _name_of(case):
    _, check = getattr(case, "values", case)
    return getattr(check, "func", check).__name__


def parametrize_with_checks(estimators, variants=(), expected_failed_checks=None):
    """Parametrize a test by the checks of estimators, and by some of those of their variants.

    Parameters
    ----------
    estimators : list of estimators
        One of each class.
    variants : list of estimators, default=()
        With other parameters: only the checks that these can change are run.
    expected_failed_checks : callable or None, default=None
        From an estimator to its failures, as in scikit-learn.
    """
    parametrize = sklearn.utils.estimator_checks.parametrize_with_checks
    mark = parametrize([*estimators, *variants], expected_failed_checks=expected_failed_checks)
    names, cases = mark.args
    kept = {id(estimator) for estimator in estimators}
    cases = [
        case
        for case in cases
        if id(getattr(case, "values", case)[0]) in kept or _name_of(case) in _CHECKS_OF_VARIANTS
    ]
    return pytest.mark.parametrize(names, cases, **mark.kwargs)
