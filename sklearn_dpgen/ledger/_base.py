"""The base class of private estimators: a fit is planned and charged before it releases."""

import functools
import inspect
import math
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.exceptions import LedgerUnitWarning, PublicValueError, UnpaidScoreWarning
from sklearn_dpgen.ledger._ledger import PrivacyLedger, open_ledger
from sklearn_dpgen.ledger._unit import drop_unit, split_unit
from sklearn_dpgen.persistence._declarations import Array, Maybe, demand
from sklearn_dpgen.persistence._files import SavedEstimator
from sklearn_dpgen.schema import Identifier, Schema
from sklearn_dpgen.schema._csv import in_format
from sklearn_dpgen.schema._file import DeclaredParameter, SchemaParameter, declared_unit
from sklearn_dpgen.utils._devices import device_name
from sklearn_dpgen.utils._exact_draws import require_opendp
from sklearn_dpgen.utils._html import notebook
from sklearn_dpgen.utils._random import NoiseSource, noise_source, split_random_state
from sklearn_dpgen.utils._threads import one_thread
from sklearn_dpgen.utils._validation import (
    BUDGET,
    EstimatorMixin,
    Interval,
    ParametersMixin,
    Real,
    Settings,
    StrOptions,
    check_delta,
    check_is_fitted,
    check_settings,
    completed,
    take_rows,
    warn_user,
)

__all__ = [
    "Plan",
    "PrivateEstimator",
    "TrainedEstimator",
    "UnpaidScoreMixin",
    "effective_parameters",
]

# Parameters that seeded noise does not depend on: they change no release, or they are objects with
# state, whose outputs are bound instead.
_NOT_BOUND = frozenset(
    {
        "callback",
        "embedding",
        "estimator",
        "group_estimator",
        "interface",
        "ledger",
        "n_jobs",
        "noise",
        "public",
        "random_state",
        "store",
        "verbose",
    }
)

# Long computations, wherever a class or one of its mixins defines them.
_COMPUTING = (
    "acceptance_rate",
    "check",
    "decision_function",
    "effective_size",
    "find_bins",
    "fit",
    "inverse_transform",
    "predict",
    "predict_proba",
    "sample",
    "sample_labels",
    "score",
    "score_samples",
    "target_law",
    "transform",
    "transform_latents",
)


def _single_threaded(method):
    """Return a method of an estimator that computes in one thread."""

    @functools.wraps(method)
    def limited(self, *args, **kwargs):
        if self._uses_torch:
            # Loaded first, so that its threads are limited too.
            import torch  # noqa: F401
        with one_thread():
            return method(self, *args, **kwargs)

    limited.is_single_threaded = True  # type: ignore[attr-defined]
    return limited


def _is_absent(value):
    """Return whether a parameter is None or an empty list, which are equivalent."""
    return value is None or (isinstance(value, list | tuple) and not value)


@dataclass(frozen=True)
class Plan:
    """Plan of a fit: its report, and details that ``_release`` and ``_learn`` need.

    Parameters
    ----------
    report : PrivacyReport
        The report of the fit.
    details : object
        Mechanisms, noise scales, layouts: computed from public facts only.
    """

    report: PrivacyReport
    details: Any = None


def effective_parameters(estimator: BaseEstimator) -> dict[str, Any]:
    """Return all parameters, also nested ones, with what schemas declare in the place of None.

    Parameters
    ----------
    estimator : estimator
        Private, or one with private parts, such as a pipeline.
    """
    found = estimator.get_params()
    parts = {"": estimator} | found
    for key in found:
        owner, _, name = key.rpartition("__")
        if isinstance(parts.get(owner), PrivateEstimator) and _is_declared(parts[owner], name):
            found[key] = getattr(parts[owner], name)
    return found


def _is_declared(estimator, name):
    """Return whether None of a parameter stands for a declaration of the schema."""
    return name in type(estimator)._declared_names


class PrivateEstimator(SavedEstimator, ParametersMixin, BaseEstimator, ABC):
    """Base of the estimators and mechanisms that state a privacy guarantee.

    ``_fit`` holds the order of a fit, which a subclass does not repeat:

    1. ``_read(*data, seed=seed)`` validates and encodes the private data, and returns the records
       and a dict of the public facts on which the plan depends, such as their number.
    2. ``_plan(**facts)`` returns the :class:`Plan`, from public facts and parameters only. The
       public method ``plan`` calls it too, with the facts that it is given.
    3. The ledger, if there is one, is charged; the report becomes ``privacy_``.
    4. ``_release(plan, records, seed)`` is the only step that reads records after the plan. It
       returns the releases, with noise from ``_noise_source``.
    5. ``_learn(plan, released, seed)`` sets the fitted attributes, from the releases only.

    Long computations run in one thread, also in methods that a subclass defines.
    """

    # A path is read when it is set.
    schema = SchemaParameter()

    _parameter_constraints: dict = {
        "ledger": [PrivacyLedger, str, os.PathLike, None],
        "unit": [str, None],
        "noise": [StrOptions({"float", "certified"})],
    }
    _saved_state: dict = {
        "privacy_": PrivacyReport,
        "n_features_in_": int,
        "feature_names_in_": Maybe(Array("O", 1)),
    }
    _not_saved: dict = {
        "random_state": "A seed voids the guarantee against anybody who knows it.",
        "ledger": "It is a file, or the path of a file, of the curator.",
    }
    # The classes of nested settings by parameter, and the estimator's own value of each setting
    # that it has.
    _settings: dict[str, type[Settings]] = {}
    _setting_defaults: dict[str, dict[str, Any]] = {}
    # Defaults of estimators without these parameters.
    ledger: PrivacyLedger | str | os.PathLike | None = None
    # None is the unit of the schema, of which an estimator without the parameter is refused.
    unit: Any = DeclaredParameter(declared_unit)
    noise = "float"
    # A fit loads PyTorch only if the estimator computes with it.
    _uses_torch = True
    # Those that a DeclaredParameter reads, found once: every clone asks for all parameters.
    _declared_names: frozenset[str] = frozenset()

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        names = {name for base in cls.__mro__ for name in vars(base)}
        cls._declared_names = frozenset(
            name
            for name in names
            if isinstance(inspect.getattr_static(cls, name), DeclaredParameter)
        )
        own = cls.__dict__.get("_parameter_constraints")
        if own is not None:
            cls._parameter_constraints = PrivateEstimator._parameter_constraints | own
        for name in _COMPUTING:
            method = inspect.getattr_static(cls, name, None)
            if inspect.isfunction(method) and not hasattr(method, "is_single_threaded"):
                setattr(cls, name, _single_threaded(method))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters as they were given.

        Parameters
        ----------
        deep : bool, default=True
            Whether those of nested objects are returned too.

        Returns
        -------
        dict of str to object
            None stays None where an attribute is what the schema declares, such as ``unit``. So a
            clone with another schema has the declarations of that one.
        """
        found = super().get_params(deep=deep)
        return found | {name: vars(self).get(name) for name in found if _is_declared(self, name)}

    def set_params(self, **params: Any) -> Self:
        """Set parameters, also nested ones such as ``training__max_iter``.

        Parameters
        ----------
        **params : dict
            Settings that are None become an object when one of them is set.

        Returns
        -------
        self : object
        """
        for name, kind in self._settings.items():
            is_nested = any(key.startswith(f"{name}__") for key in params)
            if is_nested and params.get(name, getattr(self, name)) is None:
                params[name] = kind()
        return super().set_params(**params)

    def _validate_params(self):
        super()._validate_params()
        if "unit" not in self._get_param_names() and self.unit is not None:
            raise PublicValueError(
                f"schema must declare no unit for {type(self).__name__}, which protects each row, "
                f"got unit {self.unit!r}: leave it out of the schema, or use an estimator with a "
                "parameter unit."
            )
        for name, defaults in self._setting_defaults.items():
            if getattr(self, name) is not None:
                check_settings(getattr(self, name), defaults, type(self).__name__)

    def _completed(self, name):
        """Return nested settings, with the estimator's own values where they are None."""
        settings = getattr(self, name)
        given = self._settings[name]() if settings is None else settings
        return completed(given, self._setting_defaults[name])

    @abstractmethod
    def plan(self, n_samples: int, n_features: int | None = None) -> PrivacyReport:
        """Return the complete PrivacyReport of a fit, from public quantities only."""

    def _check_saved_state(self):
        super()._check_saved_state()
        names, width = getattr(self, "feature_names_in_", None), self.n_features_in_
        demand(width > 0, "There are no columns.")
        fits = names is None or (len(names) == width and all(isinstance(n, str) for n in names))
        demand(fits, "There are other columns than names of columns.")

    def _repr_html_inner(self):
        return super()._repr_html_inner() + self._guarantee_html()

    def _repr_mimebundle_(self, **kwargs):
        bundle = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] += self._guarantee_html()
        return bundle

    def _guarantee_html(self):
        """Return a line about the guarantee for scikit-learn's HTML; empty before a fit."""
        report = getattr(self, "privacy_", None)
        if not isinstance(report, PrivacyReport):
            return ""
        line = f"(ε, δ) = ({report.epsilon:.4g}, {report.delta:.3g}), {report.neighbouring}"
        return notebook(line, warning="SEEDED" if report.is_seeded else None)

    def _fit(self, *data, **side):
        """Fit in the order of the class docstring, and return the estimator.

        Parameters
        ----------
        *data, **side
            The arguments of ``fit``.
        """
        self._forget()
        data = self._in_format(*data)
        noise_seed, public_seed = split_random_state(self.random_state, 2)
        records, facts = self._read(*data, **side, seed=noise_seed)
        plan = self._plan(**facts)
        # Charged before the first release, so that a fit that is interrupted later is paid for.
        self._charge(plan.report)
        released = self._release(plan, records, noise_seed)
        # The fitted attributes must not depend on the records otherwise.
        del records, data, side
        self._learn(plan, released, public_seed)
        return self

    def _in_format(self, X, *others):
        """Return data whose files are in the format that the schema declares."""
        schema = getattr(self, "schema", None)
        return [in_format(X, schema.form) if isinstance(schema, Schema) else X, *others]

    def _read(self, *args: Any, **kwargs: Any) -> Any:
        """Return the records, validated and encoded, and the public facts of the plan."""
        raise NotImplementedError(f"{type(self).__name__} has no method _read.")

    def _plan(self, *args: Any, **kwargs: Any) -> Plan:
        """Return the plan of a fit, from public facts and parameters only."""
        raise NotImplementedError(f"{type(self).__name__} has no method _plan.")

    def _release(self, *args: Any, **kwargs: Any) -> Any:
        """Return the releases; the only step that reads records after the plan."""
        raise NotImplementedError(f"{type(self).__name__} has no method _release.")

    def _learn(self, *args: Any, **kwargs: Any) -> None:
        """Set the fitted attributes, from the releases only."""
        raise NotImplementedError(f"{type(self).__name__} has no method _learn.")

    def _charge(self, report):
        """Charge the ledger with a plan, then set ``privacy_``; before any release."""
        try:
            charged = self._reserve(report)
        except Exception:
            # A fit that is refused must leave no columns or labels of the records.
            self._forget()
            raise
        self.privacy_ = replace(report, ledger=charged)

    def _reserve(self, report):
        """Charge the ledger, if there is one, and return its entry in a report."""
        # A cost of zero, as for public records, is not charged; ε is also 0 if δ covers the whole
        # cost.
        if self.ledger is None or max(report.epsilon, report.delta) == 0:
            return {}
        ledger = open_ledger(self.ledger)
        # A public table may be a release of an earlier charge.
        released = ledger.recorded_releases() if report.public_tables else {}
        tables = {
            name: released[sha256]
            for name, sha256 in report.public_tables.items()
            if sha256 in released
        }
        if report.unit is not None and ledger.unit is None:
            _warn_of_rows(ledger, report.unit)
        number = ledger.reserve(report, what=type(self).__name__)
        others = [
            {"unit": unit, "charges": [n for n in numbers if n < number]}
            for unit, numbers in ledger.charges_by_unit().items()
            if unit != report.unit and numbers[0] < number
        ]
        return {
            "dataset": ledger.dataset,
            "charge": number,
            "epsilon": ledger.spent(),
            "delta": ledger.delta,
            **({"public_tables": tables} if tables else {}),
            **({"other_units": others} if others else {}),
        }

    def _warn_of_score(self):
        """Warn, when ``score`` calls this, that it is not private after a private fit."""
        if math.isfinite(self.privacy_.epsilon):
            warn_user(
                "A score of private rows is not private, nor is a choice by it: it is computed "
                "without noise, and no ledger is charged. Use PrivateSearchCV; ignore "
                "UnpaidScoreWarning if the rows are public.",
                UnpaidScoreWarning,
            )

    def _protected(self, report):
        """Return the report with persons as the unit of protection, if there is a unit."""
        return report if self.unit is None else report.for_persons(self.unit)

    def _check_unit(self):
        """Refuse a unit that the schema declares as a column to learn."""
        column = (getattr(self, "schema", None) or {}).get(self.unit)
        if column is not None and not isinstance(column, Identifier):
            raise PublicValueError(
                f"unit={self.unit!r} is a column of the schema: declare it as an identifier, or "
                "remove it from the schema, as the person identifier is not learned."
            )

    def _split_unit(self, X):
        """Return records and persons, without the column of the unit unless the schema has it.

        Persons are None without a unit.
        """
        if self.unit is None:
            return X, None
        return split_unit(X, self.unit, getattr(self, "schema", None))

    def _one_row_each(self, X, *aligned, seed):
        """Return one random row of each person.

        Parameters
        ----------
        X : data frame
            With the column of the unit. Without a unit, all rows are returned.
        *aligned : array-like or None
            Arrays with one entry per row.
        seed : int or None

        Returns
        -------
        list
            X without the column, unless the schema declares it, and the aligned arrays.
        """
        if self.unit is None:
            return [X, *aligned]
        X, persons = self._split_unit(X)
        rows = persons.draw(self._noise_source(seed, "rows of persons", persons.codes))
        return [part if part is None else take_rows(part, rows) for part in (X, *aligned)]

    def _one_labelled_row_each(self, X, y, seed):
        """Return one row of each person with its label; public labels must agree in a person."""
        is_public = y is not None and getattr(self, "labels", "private") == "public"
        if self.unit is not None and is_public:
            self._split_unit(X)[1].shared(np.asarray(y), "class")
        return self._one_row_each(X, y, seed=seed)

    def _without_unit(self, X):
        """Return records to predict without the column of the unit, unless it was fitted."""
        if self.unit is None or self.unit in list(getattr(self, "feature_names_in_", ())):
            return X
        return drop_unit(X, self.unit)

    @property
    def _is_certified(self):
        """Return whether noise is certified, which excludes a seed and requires OpenDP."""
        if self.noise != "certified":
            return False
        if self.random_state is not None:
            raise PublicValueError(
                "random_state must be None with noise='certified', which draws from the operating "
                "system's entropy."
            )
        require_opendp()
        return True

    def _noise_source(self, seed, *bound) -> NoiseSource:
        """Return the source of noise and secret batches, bound to parameters and records.

        Parameters
        ----------
        seed : int or None
        *bound : ndarray or object
            Records, codes, and the public objects that encoded them.
        """
        certified = self._is_certified
        if seed is None or certified:
            return noise_source(certified=certified)
        settings = {
            name: value
            for name, value in self._all_parameters().items()
            if name not in _NOT_BOUND and not callable(value) and not _is_absent(value)
        }
        if "device" in settings:
            settings["device"] = device_name(settings["device"])
        named = (part for item in sorted(settings.items()) for part in item)
        return noise_source(seed, type(self).__qualname__, *named, *bound)

    def _all_parameters(self):
        """Return the parameters by name, with those of nested settings in their place."""
        found = {name: getattr(self, name) for name in self.get_params(deep=False)}
        for name, defaults in self._setting_defaults.items():
            found.pop(name, None)
            given = self._completed(name).get_params(deep=False)
            found |= {key: given[key] for key in defaults}
        return found

    def _noise_description(self):
        """Return the source of the noise for a report; no RandomState is advanced."""
        seed = None if self.random_state is None else 0
        return noise_source(seed, certified=self._is_certified).description

    def _forget(self):
        """Drop the results of an earlier fit, so that a fit that fails keeps no report."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _delta(self, n_samples):
        """Return the failure probability for a number of private records."""
        return 0.1 / n_samples if self.delta == "auto" else check_delta(self.delta)


def _warn_of_rows(ledger, unit):
    """Warn that the total of a ledger without a unit may protect no person as a whole."""
    if None in ledger.charges_by_unit():
        text = (
            f"Earlier charges of the ledger of {ledger.dataset!r} protect single rows, so that its "
            "total protects no person as a whole"
        )
    else:
        text = (
            f"The ledger of {ledger.dataset!r} has no unit, so that it also takes fits of single "
            "rows, after which its total protects no person as a whole"
        )
    warn_user(
        f"{text}: charge all fits to a ledger that was created with unit={unit!r}.",
        LedgerUnitWarning,
    )


class UnpaidScoreMixin(EstimatorMixin):
    """Warns when a private predictor is scored; precedes the mixin of scikit-learn."""

    def score(
        self, X: ArrayLike | pd.DataFrame, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """Return the accuracy of a classifier, or R² of a regressor.

        Parameters
        ----------
        X : data frame or array-like of shape (n_samples, n_features)
            Rows; the score of private rows is not private.
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,) or None, default=None

        Returns
        -------
        float

        Warns
        -----
        UnpaidScoreWarning
            After a private fit, as the score charges no ledger.
        """
        check_is_fitted(self)
        self._warn_of_score()
        return super().score(X, y, sample_weight)


class TrainedEstimator(PrivateEstimator):
    """Base of the private estimators that train a network: their parameters, tags and state."""

    _parameter_constraints: dict = {
        "epsilon": BUDGET,
        "delta": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="neither")],
        "random_state": ["random_state"],
    }
    # The last attribute that a fit sets.
    _trained = "module_"

    @property
    def _training(self):
        return self._completed("training")

    def __sklearn_is_fitted__(self):
        return hasattr(self, self._trained)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        return tags
