"""Predictors that are trained on synthetic rows."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.svm import LinearSVC

from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import (
    SyntheticDataClassifier,
    SyntheticDataRegressor,
    TableSampler,
)


class Forgetful(TableSampler):
    """A sampler that blanks the table it has counted: who reads it again reads nothing."""

    def fit(self, X, y=None):
        super().fit(X, y)
        X.iloc[:, :] = X.iloc[0].to_numpy()
        return self


def forgetful(loans, **params):
    return Forgetful(
        0.9, schema=loans.schema, target="paid", marginals="pairs", random_state=0, **params
    )


@pytest.mark.slow
def test_the_estimator_learns_from_the_sampler_alone(loans, sampler):
    kept = SyntheticDataClassifier(
        sampler(marginals="pairs", random_state=0), n_samples=1000, n_draws=1, random_state=0
    )
    blanked = SyntheticDataClassifier(forgetful(loans), n_samples=1000, n_draws=1, random_state=0)
    kept.fit(loans.X, loans.y)
    blanked.fit(loans.X, loans.y)
    # Seeded noise is keyed by the class, too: so laws are near, not equal.
    first, second = (model.predict_proba(loans.X)[:, 1] for model in (kept, blanked))
    assert roc_auc_score(loans.y == "yes", second) > 0.8
    assert np.abs(first - second).mean() < 0.1


@pytest.mark.parametrize("estimator", [None, LogisticRegression(), LinearSVC()])
@pytest.mark.parametrize("encode", [True, False])
def test_any_classifier_learns(loans, sampler, estimator, encode):
    model = SyntheticDataClassifier(
        sampler(marginals="pairs"), estimator, encode=encode, n_samples=3000, n_draws=1
    )
    X = loans.X if encode or estimator is None else loans.X[["income"]]
    model.fit(X, loans.y)
    assert np.mean(model.predict(X) == loans.y) > 0.75
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.feature_names_in_.tolist() == list(X.columns)
    assert model.n_features_in_ == X.shape[1]
    assert model.privacy_ is model.sampler_.privacy_
    assert hasattr(model, "predict_proba") == (not isinstance(estimator, LinearSVC))
    assert hasattr(clone(model), "decision_function") == (estimator is not None)


@pytest.mark.parametrize("estimator", [None, Ridge()])
def test_any_regressor_learns(loans, sampler, estimator):
    model = SyntheticDataRegressor(sampler("rate"), estimator, n_samples=3000, n_draws=1)
    model.fit(loans.X, loans.rate)
    assert model.score(loans.X, loans.rate) > 0.4
    assert model.predict(loans.X[:4]).shape == (4,)


def test_columns_that_are_not_there_are_left_out(loans, sampler):
    model = SyntheticDataClassifier(sampler(marginals="auto"), n_samples=200, n_draws=1)
    model.fit(loans.X[["job", "income"]], loans.y)
    assert list(model.sampler_.schema) == ["income", "job", "paid"]
    assert list(model.sampler.schema) == list(loans.schema)
    shuffled = loans.X[["job", "income"]].assign(other=1)
    np.testing.assert_array_equal(model.predict(shuffled), model.predict(loans.X))


@pytest.mark.slow
def test_repeated_where_seeded(loans, sampler):
    made = [
        SyntheticDataClassifier(
            sampler(random_state=1), n_samples=300, n_draws=1, random_state=seed
        )
        .fit(loans.X, loans.y)
        .predict_proba(loans.X[:50])
        for seed in (2, 2, 3)
    ]
    np.testing.assert_array_equal(made[0], made[1])
    assert np.abs(made[0] - made[2]).max() > 0


class Bare(BaseEstimator):
    """A sampler without a schema."""

    def fit(self, X):
        return self

    def sample(self, n_samples):
        return None


def test_errors_name_what_is_wrong(loans, sampler):
    def fit(X, **params):
        SyntheticDataClassifier(sampler(**params), n_samples=100, n_draws=1).fit(X, loans.y)

    with pytest.raises(ValueError, match=r"2 features, but the schema has 3: \['income'"):
        fit(loans.X.to_numpy())
    with pytest.raises(TypeError, match="X must be a data frame"):
        fit("loans.parquet")
    with pytest.raises(ValueError, match="if y is given, got 'paid'"):
        fit(loans.X.assign(paid=loans.y))
    with pytest.raises(ValueError, match=r"columns of the schema only, got \['more'\]"):
        fit(loans.X.assign(more=1))
    with pytest.raises(ValueError, match="target, got None"):
        SyntheticDataClassifier(TableSampler(schema=loans.schema)).fit(loans.X, loans.y)
    with pytest.raises(ValueError, match="must have a schema"):
        SyntheticDataClassifier(Bare()).fit(loans.X, loans.y)
    model = SyntheticDataClassifier(sampler(), n_samples=100, n_draws=1).fit(loans.X, loans.y)
    with pytest.raises(ValueError, match=r"must have all columns of the fit, lacks \['job'\]"):
        model.predict(loans.X[["income"]])
    with pytest.raises(ValueError, match="1 features, but the schema has 2"):
        model.predict(loans.X[["income"]].to_numpy())
    with pytest.raises(ValueError, match="not in its schema|paid"):
        model.fit(loans.X, np.full(len(loans.X), "maybe"))
    assert not hasattr(model, "privacy_")


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (Categorical([False, True]), [False, True]),
        (Numeric(0, 500, integer=True), [3, 400]),
        (Categorical(["no", "yes"], nullable=True), ["no", "yes"]),
    ],
)
def test_targets_of_any_kind(loans, column, values):
    schema = Schema({"income": loans.schema["income"], "y": column})
    sampler = TableSampler(epsilon=5.0, schema=schema, target="y")
    y = np.array(values, dtype=object)[(loans.y == "yes").astype(int)]
    y = pd.Series(y).astype(type(values[0]))
    model = SyntheticDataClassifier(sampler, n_samples=500, n_draws=1).fit(loans.X[["income"]], y)
    predicted = model.predict_proba(loans.X[["income"]])
    assert predicted.shape == (len(loans.X), len(model.classes_))
    np.testing.assert_allclose(predicted.sum(axis=1), 1)


def test_one_label_in_all_rows_is_said_and_paid_for(loans):
    schema = Schema({"income": loans.schema["income"], "y": Categorical(["no", "yes"])})
    sampler = TableSampler(epsilon=50.0, schema=schema, target="y")
    model = SyntheticDataClassifier(sampler, n_samples=20, n_draws=1)
    with pytest.raises(
        ValueError, match="'y' must have two labels, got one in .* rows: raise n_samples"
    ):
        model.fit(loans.X[["income"]], np.full(len(loans.X), "no"))
    assert model.privacy_.epsilon == 50.0
    with pytest.raises(NotFittedError):
        model.predict(loans.X)


def test_the_declarations_of_the_table_are_those_of_the_schema(tmp_path):
    columns = {
        "age": Numeric(0, 9, integer=True),
        "ward": Categorical(["Nord", "Süd"]),
        "ill": Categorical(["no", "yes"]),
    }
    rows = pd.DataFrame({"age": np.arange(300) % 10, "ward": ["Nord", "Süd", "Nord"] * 100})
    rows["ill"] = np.where(rows["age"] > 4, "yes", "no")
    form = {"delimiter": ";", "encoding": "cp1252"}
    rows.assign(who=np.arange(300) // 2).to_csv(
        tmp_path / "rows.csv", index=False, sep=";", encoding="cp1252"
    )
    rows.to_csv(tmp_path / "public.csv", index=False, sep=";", encoding="cp1252")
    public = str(tmp_path / "public.csv")
    rules = ["age < 2 => ill == 'no'"]
    schema = Schema(columns, unit="who", rules=rules, public=public, **form)
    sampler = TableSampler(9.0, schema=schema, target="ill", population_size=200, max_iter=2)
    learner = SyntheticDataClassifier(sampler, n_samples=100, n_draws=1)
    fitted = learner.fit(tmp_path / "rows.csv")
    assert fitted.privacy_.unit == "who"
    assert fitted.privacy_.public_tables.keys() == {"public"}
    assert fitted.sampler_.schema == schema
    drawn = fitted.sampler_.sample(300)
    assert not ((drawn["age"] < 2) & (drawn["ill"] == "yes")).any()
    # Rules of columns that X lacks are no rules of its rows; constraints replace them.
    fewer = rows.assign(who=np.arange(300) // 2).drop(columns="age")
    with pytest.raises(ValueError, match="age"):
        learner.fit(fewer)
    sampler.set_params(constraints=[])
    assert [*learner.fit(fewer).sampler_.schema] == ["ward", "ill"]
