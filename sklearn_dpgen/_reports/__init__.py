"""Pages about synthetic tables and fitted estimators; public by :mod:`sklearn_dpgen.inspection`."""

from sklearn_dpgen._reports._model_card import ModelCard, model_card, verify_model_card
from sklearn_dpgen._reports._quality_report import QualityReport

__all__ = ["ModelCard", "QualityReport", "model_card", "verify_model_card"]
