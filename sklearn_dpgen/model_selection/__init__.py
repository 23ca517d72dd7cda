"""Private hyperparameter search, and scores that compare budgets."""

from typing import TYPE_CHECKING

from sklearn_dpgen.utils._lazy import lazy_names

__all__ = ["PrivateSearchCV", "group_scorer", "privacy_utility_curve", "utility_scorer"]

if TYPE_CHECKING:
    from sklearn_dpgen.model_selection._group_scorer import group_scorer
    from sklearn_dpgen.model_selection._private_search import PrivateSearchCV
    from sklearn_dpgen.model_selection._utility_scorer import utility_scorer
    from sklearn_dpgen.reporting._privacy_displays import privacy_utility_curve
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "sklearn_dpgen.model_selection._group_scorer": ["group_scorer"],
            "sklearn_dpgen.model_selection._private_search": ["PrivateSearchCV"],
            "sklearn_dpgen.model_selection._utility_scorer": ["utility_scorer"],
            "sklearn_dpgen.reporting._privacy_displays": ["privacy_utility_curve"],
        },
    )
