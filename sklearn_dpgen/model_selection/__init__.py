"""Private hyperparameter search, and scores that compare budgets."""

from sklearn_dpgen.model_selection._group_scorer import group_scorer
from sklearn_dpgen.model_selection._private_search import PrivateSearchCV
from sklearn_dpgen.model_selection._utility_scorer import utility_scorer
from sklearn_dpgen.reporting._privacy_displays import privacy_utility_curve

__all__ = ["PrivateSearchCV", "group_scorer", "privacy_utility_curve", "utility_scorer"]
