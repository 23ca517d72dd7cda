"""Every central private estimator, with records to fit and the public sizes of these."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from sklearn.base import clone

from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import NoisyVotes, PrivateEvolutionSampler, PrivateSignedMeasureSampler
from sklearn_dpgen.moments import MomentImageSampler, MomentSampler
from sklearn_dpgen.nn import Training
from sklearn_dpgen.predictors import BarycenterClassifier
from sklearn_dpgen.schema import Categorical, Numeric, Schema, Table
from sklearn_dpgen.sliced import (
    DPSlicedWassersteinAdapter,
    DPSlicedWassersteinFairClassifier,
    DPSlicedWassersteinFairEncoder,
    DPSlicedWassersteinFairRegressor,
    DPSlicedWassersteinGenerator,
)
from sklearn_dpgen.smoothed import (
    NoisyRelease,
    SmoothedSlicedWassersteinAdapter,
    SmoothedSlicedWassersteinGenerator,
)
from sklearn_dpgen.tables import (
    RelationalSampler,
    SyntheticDataClassifier,
    TableSampler,
)

# Persons have one to three rows; their ids would show in any text.
N_PERSONS, SECRET = 60, "secret-person"
PERSON = np.repeat(np.arange(N_PERSONS), np.arange(N_PERSONS) % 3 + 1)
IDS = np.array([f"{SECRET}-{person}" for person in PERSON])
N = len(PERSON)
_RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"a": _RNG.uniform(size=N), "b": _RNG.integers(0, 2, N).astype(float)})
# The same for all rows of a person: groups, labels, domains.
SIDE = PERSON % 2
SCHEMA = Schema({"a": Numeric(0, 1), "b": Categorical([0.0, 1.0])})
BOX = Box(0, 1, n_features=2)
BUDGET = {"epsilon": 2.0, "delta": 1e-4}
TRAINED = BUDGET | {"training": Training(hidden_layer_sizes=(4,), max_iter=2, device="cpu")}
FAIR = TRAINED | {"groups": [0, 1]}


@dataclass(frozen=True)
class Case:
    """One estimator.

    Parameters
    ----------
    estimator : estimator
        Without a ledger or a unit.
    fit : callable
        From a frame of records, their sides and an estimator: fits it.
    sizes : callable
        From the number of records of each side to the arguments of ``plan``.
    columns : tuple of str
        Of the frame that it is fitted on.
    has_unit : bool
    """

    estimator: object
    fit: object
    sizes: object
    columns: tuple = ("a", "b")
    has_unit: bool = True
    words: dict = field(default_factory=dict)


def _alone(X, side, estimator):
    return estimator.fit(X)


def _with_labels(X, side, estimator):
    return estimator.fit(X, side)


def _number(sizes):
    return {"n_samples": sum(sizes)}


def _width(sizes):
    return {"n_samples": sum(sizes), "n_features": 2}


def _classes(sizes):
    return _width(sizes) | {"class_sizes": list(sizes)}


def _groups(sizes):
    return _width(sizes) | {"group_sizes": list(sizes)}


def _fair(X, side, estimator):
    return estimator.fit(X, side, sensitive_features=side)


def _fair_codes(X, side, estimator):
    return estimator.fit(X, sensitive_features=side)


def _fair_numbers(X, side, estimator):
    return estimator.fit(X, side.astype(float), sensitive_features=side)


def _adapted(X, side, estimator):
    return estimator.fit(X, np.where(side, -1, np.arange(len(X)) % 2))


def _adapter_sizes(sizes):
    return {"n_samples": sizes[1], "n_features": 2, "n_source": sizes[0]}


def _table_labels(X, side, estimator):
    return estimator.fit(X, X["b"].to_numpy() if "b" in X else side)


def _synthetic(X, side, estimator):
    return estimator.fit(X[[name for name in X if name != "b"]], X["b"])


def _barycenter(X, side, estimator):
    return estimator.fit(X[[name for name in X if name != "b"]], X["b"], sensitive_features=side)


def _panel(X, side, estimator):
    # The next record is of the same person.
    return estimator.fit(_of_persons(X, np.arange(len(X)) // 2))


def _panel_of_one_row(X, side, estimator):
    return estimator.fit(_of_persons(X, np.arange(len(X))))


def _of_persons(X, persons):
    return X.assign(who=[f"{SECRET}-{person}" for person in persons])


def _pairs(sizes):
    return {"n_samples": -(-sum(sizes) // 2)}


PANEL = RelationalSampler(
    schema=Table(SCHEMA, primary_key="who", max_rows=2),
    population_size=50,
    max_iter=5,
    device="cpu",
    **BUDGET,
)
SLICED = TableSampler(schema=SCHEMA, max_iter=5, device="cpu", **BUDGET)
TARGET = TableSampler(schema=SCHEMA, target="b", max_iter=5, device="cpu", epsilon=1.5, delta=1e-4)
LEARNER = SyntheticDataClassifier(TARGET, n_samples=200, n_draws=1)
# With the default budget, which an estimator around it determines.
WITHIN = clone(LEARNER).set_params(sampler__epsilon=1.0, sampler__delta=1e-5)

CASES = {
    "sliced measures": Case(SLICED, _alone, _number),
    "sliced measures, one more": Case(
        TableSampler(**SLICED.get_params() | {"neighbours": "add_or_remove"}),
        _alone,
        lambda sizes: {},
    ),
    "panels": Case(PANEL, _panel, _pairs, has_unit=False),
    "panels, one more": Case(
        RelationalSampler(**PANEL.get_params() | {"neighbours": "add_or_remove"}),
        _panel_of_one_row,
        lambda sizes: {},
        has_unit=False,
    ),
    "evolution": Case(
        PrivateEvolutionSampler(domain=BOX, n_samples=20, n_iter=2, device="cpu", **BUDGET),
        _alone,
        _width,
    ),
    "evolution of public classes": Case(
        PrivateEvolutionSampler(
            domain=BOX, n_samples=20, n_iter=2, labels="public", device="cpu", **BUDGET
        ),
        _with_labels,
        _classes,
    ),
    "evolution by thresholds": Case(
        PrivateEvolutionSampler(
            domain=BOX,
            n_samples=20,
            n_iter=2,
            votes=NoisyVotes(histogram="laplace_threshold"),
            device="cpu",
            **BUDGET,
        ),
        _alone,
        _width,
    ),
    "signed measures": Case(
        PrivateSignedMeasureSampler(domain=BOX, n_points=16, device="cpu", **BUDGET),
        _alone,
        _width,
    ),
    "moments": Case(MomentSampler(domain=BOX, **BUDGET), _alone, _width),
    "moments of public classes": Case(
        MomentSampler(domain=BOX, labels="public", **BUDGET), _with_labels, _classes
    ),
    "images": Case(
        MomentImageSampler(shape=(1, 2), pixel_range=(0, 1), max_iter=2, device="cpu", **BUDGET),
        _alone,
        _width,
    ),
    "sliced generator": Case(
        DPSlicedWassersteinGenerator(domain=BOX, latent_dim=2, **TRAINED), _alone, _width
    ),
    "fair classifier": Case(DPSlicedWassersteinFairClassifier(**FAIR), _fair, _groups),
    "fair regressor": Case(
        DPSlicedWassersteinFairRegressor(y_domain=(0, 1), **FAIR), _fair_numbers, _groups
    ),
    "fair encoder": Case(DPSlicedWassersteinFairEncoder(**FAIR), _fair_codes, _groups),
    "protected groups": Case(
        DPSlicedWassersteinFairClassifier(classes=[0, 1], protect_groups=True, **FAIR),
        _fair,
        _width,
    ),
    "sliced adapter": Case(
        DPSlicedWassersteinAdapter(source_iter=2, feature_dim=2, **TRAINED),
        _adapted,
        _adapter_sizes,
    ),
    "smoothed generator": Case(
        SmoothedSlicedWassersteinGenerator(domain=BOX, latent_dim=2, **TRAINED), _alone, _width
    ),
    "smoothed projections": Case(
        SmoothedSlicedWassersteinGenerator(
            domain=BOX, latent_dim=2, release=NoisyRelease("projections"), **TRAINED
        ),
        _alone,
        _width,
    ),
    "smoothed projections on one direction": Case(
        SmoothedSlicedWassersteinGenerator(
            domain=BOX,
            latent_dim=2,
            release=NoisyRelease("projections", n_projections=1),
            **TRAINED,
        ),
        _alone,
        _width,
    ),
    "smoothed moments": Case(
        SmoothedSlicedWassersteinGenerator(
            domain=BOX, latent_dim=2, release=NoisyRelease("moments"), **TRAINED
        ),
        _alone,
        _width,
    ),
    "smoothed adapter": Case(
        SmoothedSlicedWassersteinAdapter(
            source_iter=2,
            feature_dim=2,
            release=NoisyRelease("records", batch_size=4),
            **TRAINED,
        ),
        _adapted,
        _adapter_sizes,
    ),
    "smoothed adapter on projections": Case(
        SmoothedSlicedWassersteinAdapter(
            source_iter=2,
            release=NoisyRelease("projections", n_projections=2),
            feature_dim=3,
            **TRAINED,
        ),
        _adapted,
        _adapter_sizes,
    ),
    "smoothed adapter on moments": Case(
        SmoothedSlicedWassersteinAdapter(
            source_iter=2, release=NoisyRelease("moments"), domain=BOX, feature_dim=2, **TRAINED
        ),
        _adapted,
        _adapter_sizes,
    ),
    "synthetic classifier": Case(LEARNER, _synthetic, _number),
    "barycenter classifier": Case(
        BarycenterClassifier(WITHIN, groups=[0, 1], **BUDGET), _barycenter, _number
    ),
}
