"""What is replayed: every case of the contract, and estimators as users have them by default."""

from dataclasses import dataclass, replace

import contract_cases as contract
import numpy as np
import pandas as pd
from contract_cases import CASES
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import NoisyVotes, PrivateEvolutionSampler, PrivateSignedMeasureSampler
from sklearn_dpgen.model_selection import PrivateSearchCV, utility_scorer
from sklearn_dpgen.moments import MomentImageSampler, MomentSampler
from sklearn_dpgen.nn import Training
from sklearn_dpgen.predictors import BarycenterClassifier, BarycenterRegressor
from sklearn_dpgen.schema import Categorical, Numeric, RelationalSchema, Schema, Table
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
    SyntheticDataRegressor,
    TableSampler,
)

# Of a person's column, of the columns of each case, and of what is fitted beside them.
WHO = "who"
NAMES = ["a", "b", "c", "d"]
WIDE = Schema(
    {
        "a": Numeric(0, 1),
        "b": Categorical([0.0, 1.0]),
        "c": Numeric(0, 1),
        "d": Categorical([0.0, 1.0, 2.0]),
        "e": Numeric(0, 1, nullable=True),
    }
)
TABLE = [*NAMES, "e"]
BOX = Box(0, 1, n_features=2)
RICH = {"epsilon": 30.0, "delta": 1e-4}
PUBLIC = BOX.sample(200, np.random.default_rng(5))
# What "auto" is computed from moves it only where records exceed the noise.
TRAINING = Training(max_iter=2, device="cpu")


@dataclass(frozen=True)
class Records:
    """Private records, and who they are of.

    Parameters
    ----------
    frame : data frame
    side : ndarray
        The group, class or domain of each.
    """

    frame: pd.DataFrame
    side: np.ndarray

    def replaced(self, person, values, side=None, n_rows=1):
        """Return records with others in the place of those of a person: so many equal ones."""
        who = self._who()
        own = np.flatnonzero(who == person)
        positions = np.insert(np.delete(np.arange(len(who)), own), [own[0]] * n_rows, own[0])
        frame = self.frame.iloc[positions].reset_index(drop=True)
        sides, new = self.side[positions], np.flatnonzero(who[positions] == person)
        for name, value in values.items():
            frame.loc[new, name] = value
        sides[new] = sides[new] if side is None else side
        return Records(frame, sides)

    def without(self, person):
        """Return the records of all others."""
        is_left = self._who() != person
        return Records(self.frame[is_left].reset_index(drop=True), self.side[is_left])

    def _who(self):
        return (self.frame.get(WHO, self.frame.index)).to_numpy()


@dataclass(frozen=True)
class Replayed:
    """One estimator that is replayed.

    Parameters
    ----------
    estimator : estimator
    fit : callable
        From a frame of records, their sides and an estimator: fits it.
    columns : sequence of str
        Of the frame.
    n : int
        Number of records.
    private : {"records", "sides", "number"}
        What is private beside the values: the side of a record, and the number of records.
    fixed_side : int or None
        Whose records are public.
    unit : str or None
    """

    estimator: object
    fit: object
    columns: tuple = ("a", "b")
    n: int = 120
    private: str = "records"
    fixed_side: int | None = None
    unit: str | None = None

    def records(self):
        """Return the records of one fit."""
        rng = np.random.default_rng(0)
        frame = pd.DataFrame(
            {
                "a": rng.uniform(size=self.n),
                "b": rng.integers(0, 2, self.n).astype(float),
                "c": rng.uniform(size=self.n),
                "d": rng.integers(0, 3, self.n).astype(float),
            }
        )
        frame["c"] = (frame["a"] + frame["c"] * (1 - frame["b"])) / 2
        frame["e"] = frame["a"].where(frame["d"] > 0)
        return self._made(frame, np.arange(self.n) // 2 % 2, 1)

    def far_records(self):
        """Return other records, which differ in all that is private."""
        n = self.n + self.n // 2 if self.private == "number" else self.n
        rng = np.random.default_rng(1)
        frame = pd.DataFrame(
            {
                "a": rng.uniform(size=n) ** 3,
                "b": 1.0,
                # Who looks at the records sees constants, and no missing value.
                "c": 1.0,
                "d": rng.choice([0.0, 1.0, 2.0], n, p=[0.6, 0.1, 0.3]),
                "e": rng.uniform(size=n),
            }
        )
        if self.fixed_side == 1:
            # A private source needs two classes.
            frame["b"] = np.arange(n) % 2.0
        # Of private classes and groups one is empty.
        side = np.zeros(n, dtype=int) if self.private == "sides" else np.arange(n) // 2 % 2
        if self.fixed_side is None:
            return self._made(frame, side, 2)
        given, far = self.records(), self._made(frame, side, 2)
        kept, new = given.side == self.fixed_side, far.side != self.fixed_side
        return Records(
            pd.concat([given.frame[kept], far.frame[new]], ignore_index=True),
            np.concatenate([given.side[kept], far.side[new]]),
        )

    def _made(self, frame, side, most):
        """Return records of these columns; persons have up to ``most`` + 1 of them."""
        frame = frame[list(self.columns)]
        if self.unit is None:
            return Records(frame, side)
        counts = np.arange(len(frame)) % (most + 1) + 1
        rows = np.repeat(np.arange(len(frame)), counts)
        frame = frame.iloc[rows].assign(**{WHO: rows}).reset_index(drop=True)
        # Rows of one person differ.
        frame["a"] = np.clip(frame["a"] + 0.1 * (np.arange(len(rows)) % 3), 0, 1)
        return Records(frame, side[rows])

    def neighbours(self):
        """Return two neighbours: one record, or person, is at one end of the domain, or another.

        In a search the label alone differs, of which a score must tell.
        """
        given, person = self.records(), 0 if self.fixed_side != 0 else 2
        low = dict.fromkeys(self.columns, 0.0)
        first = given.replaced(person, low)
        if self.private == "number":
            return first, given.without(person)
        high = {name: {"d": 2.0, "e": np.nan}.get(name, 1.0) for name in self.columns}
        if isinstance(self.estimator, PrivateSearchCV):
            high = low | {"b": 1.0}
        side = 1 if self.private == "sides" else None
        n_rows = 1 if self.unit is None else 3
        return first, given.replaced(person, high, side, n_rows)

    def of_persons(self):
        """Return the case in which persons are protected, who have several rows."""
        names = self.estimator.get_params()
        unit = "unit" if "unit" in names else "estimator__unit"
        return replace(self, estimator=clone(self.estimator).set_params(**{unit: WHO}), unit=WHO)


def _alone(X, side, estimator):
    return estimator.fit(X)


def _with_sides(X, side, estimator):
    return estimator.fit(X, side)


def _features(X):
    return X[[name for name in X if name != "b"]]


def _labelled(X, side, estimator):
    return estimator.fit(_features(X), X["b"])


def _labelled_fairly(X, side, estimator):
    return estimator.fit(_features(X), X["b"].to_numpy(), sensitive_features=side)


def _labelled_texts(X, side, estimator):
    return estimator.fit(_features(X), X["b"], sensitive_features=side)


def _numbers_fairly(X, side, estimator):
    return estimator.fit(X[[name for name in X if name != "a"]], X["a"], sensitive_features=side)


def _numbers(X, side, estimator):
    return estimator.fit(X[[name for name in X if name != "a"]], X["a"])


def _codes(X, side, estimator):
    return estimator.fit(X, sensitive_features=side)


def _adapted(X, side, estimator):
    return estimator.fit(X, np.where(side, -1, X["b"].astype(int)))


# A record is a person: a row of the root, one to three stays by the value of d, and drugs of these.
TREE = RelationalSchema(
    {
        "persons": Table(
            Schema({"a": WIDE["a"], "e": WIDE["e"]}),
            primary_key=WHO,
        ),
        "stays": Table(
            Schema({"year": Numeric(2000, 2009, integer=True), "c": WIDE["c"]}),
            primary_key="stay",
            foreign_key={WHO: "persons"},
            sequence_index="year",
            max_rows=2,
        ),
        "drugs": Table(Schema({"b": WIDE["b"]}), foreign_key={"stay": "stays"}, max_rows=2),
    }
)


def _rows_of_persons(X, side, estimator):
    who = np.repeat(np.arange(len(X)), X["d"].astype(int) + 1)
    turns = np.arange(len(who)) - np.searchsorted(who, who)
    own = X.iloc[who].reset_index(drop=True)
    year = np.minimum(2000 + np.floor(9 * own["a"]) + turns, 2009)
    stays = own[["c"]].assign(stay=np.arange(len(who)), year=year, **{WHO: who})
    # Without a drug in first stays of b = 0.
    drugs = own.loc[turns + own["b"] > 0, ["b"]]
    drugs = drugs.assign(stay=drugs.index)
    persons = X[["a", "e"]].assign(**{WHO: np.arange(len(X))})
    return estimator.fit({"persons": persons, "stays": stays, "drugs": drugs})


def _public_rows():
    """Return public persons and their stays, and drugs without keys."""
    persons = _public()[["e", "a"]].assign(**{WHO: range(200)})
    who = np.repeat(np.arange(200), np.arange(200) % 4)
    stays = pd.DataFrame({WHO: who, "stay": range(len(who)), "year": 2000 + who % 10})
    return {"persons": persons, "stays": stays, "drugs": pd.DataFrame({"b": [0.0, 1.0, 1.0]})}


def _relational(**settings):
    options = {"schema": TREE, "population_size": 100, "max_iter": 3, "device": "cpu"}
    return RelationalSampler(**options | RICH | settings)


def _of_contract(name):
    case = CASES[name]
    relation = getattr(case.estimator, "neighbours", "replace_one")
    private = "number" if relation == "add_or_remove" else "records"
    public_sides = (contract._classes, contract._groups, contract._adapter_sizes)
    if private == "records" and case.sizes not in public_sides:
        private = "sides"
    is_adapter = case.sizes is contract._adapter_sizes
    return Replayed(
        case.estimator,
        _adapted if is_adapter else case.fit,
        case.columns,
        private=private,
        fixed_side=0 if is_adapter else None,
    )


def _tables(**settings):
    return TableSampler(**{"schema": WIDE, "max_iter": 3, "device": "cpu"} | settings)


_ADDED = {"neighbours": "add_or_remove"}


def _public(n=200):
    """Return a public table with a column less, a label less and cells that are not known."""
    rng = np.random.default_rng(2)
    a = rng.uniform(size=n)
    frame = {"e": a**2, "a": a, "b": (a > 0.5) * 1.0, "d": rng.choice([0.0, 1.0, 7.0], n)}
    return pd.DataFrame(frame)


_LEARNED = _tables(target="b", population_size=500, epsilon=1.0, delta=1e-5)
_SEARCHED = SyntheticDataClassifier(
    _tables(target="b", n_bins=4, population_size=300),
    DecisionTreeClassifier(max_depth=2),
    n_samples=200,
    n_draws=1,
)
_DRAWS = {"n_draws": [1, 2], "encode": [True, False]}

AUTO = {
    "auto: tables": Replayed(_tables(**RICH), _alone, TABLE, 2000),
    "auto: tables, one more": Replayed(
        _tables(**RICH, **_ADDED), _alone, TABLE, 2000, private="number"
    ),
    "auto: tables, certified": Replayed(_tables(noise="certified", n_bins=4), _alone, TABLE, 500),
    "auto: tables with a public table": Replayed(
        _tables(public=_public(), **RICH), _alone, TABLE, 2000
    ),
    "auto: tables with a public table, one more": Replayed(
        _tables(public=_public(), **RICH, **_ADDED), _alone, TABLE, 2000, private="number"
    ),
    "auto: tables with a public table, certified": Replayed(
        _tables(public=_public(), noise="certified", n_bins=4), _alone, TABLE, 500
    ),
    "auto: persons with rows": Replayed(_relational(), _rows_of_persons, TABLE, 1000),
    "auto: persons with rows, one more": Replayed(
        _relational(**_ADDED), _rows_of_persons, TABLE, 1000, private="number"
    ),
    "auto: persons with rows, certified": Replayed(
        _relational(noise="certified", epsilon=2.0), _rows_of_persons, TABLE, 300
    ),
    "auto: persons with rows and public tables": Replayed(
        _relational(public=_public_rows()), _rows_of_persons, TABLE, 1000
    ),
    "auto: persons with rows and public tables, one more": Replayed(
        _relational(public=_public_rows(), **_ADDED),
        _rows_of_persons,
        TABLE,
        1000,
        private="number",
    ),
    "auto: evolution": Replayed(
        PrivateEvolutionSampler(domain=BOX, device="cpu", **RICH), _alone, n=2000
    ),
    "auto: evolution of tables": Replayed(
        PrivateEvolutionSampler(schema=WIDE, device="cpu", **RICH), _alone, TABLE, 2000
    ),
    "auto: evolution of private classes": Replayed(
        PrivateEvolutionSampler(domain=BOX, labels="private", classes=[0, 1], device="cpu", **RICH),
        _with_sides,
        n=2000,
        private="sides",
    ),
    "auto: evolution from moments": Replayed(
        PrivateEvolutionSampler(domain=BOX, start="moments", device="cpu", **RICH), _alone, n=500
    ),
    "auto: evolution with a distance": Replayed(
        PrivateEvolutionSampler(
            domain=BOX, votes=NoisyVotes(distance_share=0.1), device="cpu", **RICH
        ),
        _alone,
        n=500,
    ),
    "auto: evolution from public records": Replayed(
        PrivateEvolutionSampler(domain=BOX, public=PUBLIC, device="cpu", **RICH), _alone, n=500
    ),
    "auto: evolution from a public table": Replayed(
        PrivateEvolutionSampler(schema=WIDE, public=_public(), device="cpu", **RICH),
        _alone,
        TABLE,
        500,
    ),
    "auto: evolution, certified": Replayed(
        PrivateEvolutionSampler(domain=BOX, noise="certified", device="cpu", **RICH), _alone, n=500
    ),
    "auto: signed measures": Replayed(
        PrivateSignedMeasureSampler(domain=BOX, device="cpu", **RICH), _alone, n=2000
    ),
    "auto: signed measures of private classes": Replayed(
        PrivateSignedMeasureSampler(
            domain=BOX, labels="private", classes=[0, 1], device="cpu", **RICH
        ),
        _with_sides,
        n=500,
        private="sides",
    ),
    "auto: moments of private classes": Replayed(
        MomentSampler(domain=BOX, labels="private", classes=[0, 1]), _with_sides, private="sides"
    ),
    "auto: moments beside public records": Replayed(
        MomentSampler(domain=BOX, labels="private", classes=[0, 1], public=PUBLIC),
        _with_sides,
        private="sides",
    ),
    "auto: moments beside a public table": Replayed(
        MomentSampler(schema=WIDE, public=_public()), _alone, TABLE
    ),
    "auto: images of private classes": Replayed(
        MomentImageSampler(
            epsilon=5.0,
            shape=(1, 2),
            pixel_range=(0, 1),
            labels="private",
            classes=[0, 1],
            max_iter=3,
            device="cpu",
        ),
        _with_sides,
        n=500,
        private="sides",
    ),
    "auto: sliced generator": Replayed(
        DPSlicedWassersteinGenerator(domain=BOX, training=TRAINING), _alone
    ),
    "auto: fair classifier": Replayed(
        DPSlicedWassersteinFairClassifier(classes=[0.0, 1.0], groups=[0, 1], training=TRAINING),
        _labelled_fairly,
        NAMES,
    ),
    "auto: fair regressor": Replayed(
        DPSlicedWassersteinFairRegressor(y_domain=(0, 1), groups=[0, 1], training=TRAINING),
        _numbers_fairly,
        NAMES,
    ),
    "auto: fair encoder": Replayed(
        DPSlicedWassersteinFairEncoder(groups=[0, 1], training=TRAINING), _codes, NAMES
    ),
    "auto: sliced adapter": Replayed(
        DPSlicedWassersteinAdapter(source_iter=2, training=TRAINING), _adapted, fixed_side=0
    ),
    "auto: sliced adapter of a private source": Replayed(
        DPSlicedWassersteinAdapter(private="source", source_iter=2, training=TRAINING),
        _adapted,
        fixed_side=1,
    ),
    "auto: smoothed generator": Replayed(
        SmoothedSlicedWassersteinGenerator(domain=BOX, training=TRAINING), _alone
    ),
    "auto: smoothed generator of private classes": Replayed(
        SmoothedSlicedWassersteinGenerator(
            domain=BOX, labels="private", classes=[0, 1], training=TRAINING
        ),
        _with_sides,
        private="sides",
    ),
    "auto: smoothed projections": Replayed(
        SmoothedSlicedWassersteinGenerator(
            domain=BOX, release=NoisyRelease("projections"), training=TRAINING
        ),
        _alone,
    ),
    "auto: smoothed moments of private classes": Replayed(
        SmoothedSlicedWassersteinGenerator(
            domain=BOX,
            release=NoisyRelease("moments"),
            labels="private",
            classes=[0, 1],
            training=TRAINING,
        ),
        _with_sides,
        private="sides",
    ),
    "auto: smoothed adapter": Replayed(
        SmoothedSlicedWassersteinAdapter(
            release=NoisyRelease("records"), source_iter=2, training=TRAINING
        ),
        _adapted,
        fixed_side=0,
    ),
    "auto: smoothed adapter of projections": Replayed(
        SmoothedSlicedWassersteinAdapter(
            release=NoisyRelease("projections"), source_iter=2, training=TRAINING
        ),
        _adapted,
        fixed_side=0,
    ),
    "auto: smoothed adapter of moments": Replayed(
        SmoothedSlicedWassersteinAdapter(
            release=NoisyRelease("moments"), domain=BOX, source_iter=2, training=TRAINING
        ),
        _adapted,
        fixed_side=0,
    ),
    "auto: synthetic classifier, one more": Replayed(
        SyntheticDataClassifier(
            _tables(target="b", n_bins=4, population_size=500, **_ADDED), n_draws=1
        ),
        _labelled,
        TABLE,
        6000,
        private="number",
    ),
    "auto: synthetic regressor": Replayed(
        SyntheticDataRegressor(_tables(target="a", population_size=500), n_draws=1),
        _numbers,
        TABLE,
    ),
    "auto: barycenter classifier": Replayed(
        BarycenterClassifier(
            SyntheticDataClassifier(_LEARNED, LogisticRegression(), n_draws=1),
            groups=[0, 1],
            epsilon=2.0,
        ),
        _labelled_texts,
        TABLE,
        2000,
        private="sides",
    ),
    "auto: barycenter regressor": Replayed(
        BarycenterRegressor(
            SyntheticDataRegressor(
                _LEARNED.__class__(**_LEARNED.get_params() | {"target": "a"}), n_draws=1
            ),
            y_domain=(0, 1),
            max_gap=0.02,
            groups=[0, 1],
            epsilon=2.0,
        ),
        _numbers_fairly,
        TABLE,
        2000,
        private="sides",
    ),
    "search": Replayed(
        PrivateSearchCV(
            _SEARCHED, _DRAWS, n_runs=4, epsilon=3.0, delta=1e-4, validation_fraction=0.5
        ),
        _labelled,
        TABLE,
        40,
    ),
    "search by samples": Replayed(
        PrivateSearchCV(
            _tables(n_bins=4, population_size=300),
            {"marginals": ["auto", "pairs"]},
            scoring=utility_scorer("b", n_synthetic=200),
            n_runs=3,
            epsilon=3.0,
            delta=1e-4,
        ),
        _alone,
        TABLE,
        60,
    ),
    "search of persons with rows": Replayed(
        PrivateSearchCV(
            _relational(population_size=50, max_iter=1),
            {"max_iter": [1, 2]},
            n_runs=2,
            epsilon=3.0,
            delta=1e-4,
            validation_fraction=0.5,
        ),
        _rows_of_persons,
        TABLE,
        40,
    ),
}
REPLAYED = {name: _of_contract(name) for name in CASES} | AUTO
