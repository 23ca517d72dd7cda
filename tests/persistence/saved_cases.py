"""Fitted estimators of every kind, with records that would show in a file that held them."""

from functools import cache, partial

import numpy as np
import pandas as pd
import polars as pl
from contract_cases import BOX, BUDGET, CASES, SCHEMA, TRAINED
from sklearn.base import clone

from sklearn_dpgen.deconvolution import DeconvolutionEM, EntropicDeconvGAN
from sklearn_dpgen.domains import Ball, Box, OneHot
from sklearn_dpgen.evolution import PrivateEvolutionSampler
from sklearn_dpgen.mechanisms import (
    GaussianMechanism,
    JointRandomizedResponse,
    LaplaceMechanism,
    RandomizedResponse,
    TabularMechanism,
)
from sklearn_dpgen.moments import MomentImageSampler, MomentSampler
from sklearn_dpgen.nn import Training
from sklearn_dpgen.preprocessing import DCTTransformer
from sklearn_dpgen.schema import (
    Categorical,
    Datetime,
    FunctionalDependency,
    Identifier,
    Implication,
    Inequality,
    Numeric,
    Ordinal,
    RelationalSchema,
    Schema,
    Sum,
    Table,
)
from sklearn_dpgen.smoothed import SmoothedSlicedWassersteinGenerator
from sklearn_dpgen.tables import LocalTableSampler, RelationalSampler, TableSampler

# Persons have one to three rows, as in the contract of budgets.
PERSON = np.repeat(np.arange(60), np.arange(60) % 3 + 1)
N = len(PERSON)
SECRET_NAME, SECRET_SEED = "secret-person", 3141592653
IDS = np.array([f"{SECRET_NAME}-{person}" for person in PERSON])
SIDE = PERSON % 2
_RNG = np.random.default_rng(271828)
# Numbers with so many digits that no other comes out the same.
FRAME = pd.DataFrame({"a": _RNG.uniform(size=N), "b": _RNG.integers(0, 2, N).astype(float)})
LABELS = np.where(SIDE == 1, "yes", "no")

WIDE_SCHEMA = Schema(
    {
        "key": Identifier("row "),
        "wage": Numeric(0, 100, step=5),
        "rent": Numeric(0, 100, step=5, nullable=True),
        "income": Numeric(0, 200, step=5, nullable=True),
        "begun": Datetime("2020-01-01", "2021-01-01", resolution="D", zone="Europe/Berlin"),
        "ended": Datetime(
            "2020-01-01", "2021-01-01", resolution="D", nullable=True, zone="Europe/Berlin"
        ),
        "city": Categorical(["Köln", "Bonn", "Trier"]),
        "state": Categorical(["NW", "RP"]),
        "rank": Ordinal([1, 2, 3]),
    }
)
RULES = [
    Sum("income", ["wage", "rent"]),
    Inequality("begun", "ended"),
    FunctionalDependency("state", "city", {"Köln": "NW", "Bonn": "NW", "Trier": "RP"}),
    Implication({"rank": 1}, then={"wage": pd.Interval(0, 50, closed="both")}),
]


@cache
def wide_frame():
    days = _RNG.integers(0, 300, (2, N))
    city = _RNG.choice(["Köln", "Bonn", "Trier"], N)
    rank = _RNG.integers(1, 4, N)
    wage = 5.0 * _RNG.integers(0, 11, N)
    rent = 5.0 * _RNG.integers(0, 20, N)
    first = pd.Timestamp("2020-01-01", tz="UTC")
    return pd.DataFrame(
        {
            "key": IDS,
            "wage": wage,
            "rent": rent,
            "income": wage + rent,
            "begun": first + pd.to_timedelta(days.min(0), unit="D"),
            "ended": first + pd.to_timedelta(days.max(0), unit="D"),
            "city": city,
            "state": np.where(city == "Trier", "RP", "NW"),
            "rank": rank,
        }
    )


def _fit_case(name):
    case = CASES[name]
    return case.fit(FRAME[list(case.columns)], SIDE, clone(case.estimator))


def _fit_rules():
    sampler = TableSampler(
        schema=WIDE_SCHEMA,
        target="rank",
        marginals=[("wage", "rank"), ("city", "rent")],
        n_bins={"wage": [0, 50, 100], "begun": ["2020-01-01", "2020-06-01", "2021-01-01"]},
        workload={"rank": 2.0, ("wage", "rank"): 3.0},
        constraints=RULES,
        epsilon=5.0,
        max_iter=5,
        population_size=500,
        device="cpu",
    )
    return sampler.fit(wide_frame())


def _fit_moments_of_tables():
    sampler = MomentSampler(schema=SCHEMA, labels="public", classes=["no", "yes"], **BUDGET)
    return sampler.fit(pl.DataFrame(FRAME), LABELS)


def _fit_tables_of_persons():
    sampler = clone(CASES["sliced measures"].estimator).set_params(unit="who")
    return sampler.fit(FRAME.assign(who=IDS))


RELATIONAL_SCHEMA = RelationalSchema(
    {
        "persons": Table(Schema({"city": Categorical(["Bonn", "Trier"])}), primary_key="who"),
        "stays": Table(
            Schema(
                {
                    "day": Datetime("2020-01-01", "2020-03-31", resolution="D"),
                    "a": Numeric(0, 1),
                    "rank": Ordinal([1, 2, 3]),
                }
            ),
            primary_key="stay",
            foreign_key={"who": "persons", "ward": "wards"},
            sequence_index="day",
            max_rows=3,
            ties=False,
        ),
        "tests": Table(
            Schema({"result": Numeric(0, 9, nullable=True)}),
            foreign_key={"stay": "stays"},
            max_rows=2,
        ),
        "wards": Table(
            Schema({"beds": Numeric(0, 99, integer=True)}),
            primary_key="ward",
            frame=pd.DataFrame({"ward": ["x", "y"], "beds": [10, 20]}),
        ),
    }
)


def relational_tables():
    """Return the private tables of ``RELATIONAL_SCHEMA``."""
    who, cities = np.unique(IDS), np.array(["Bonn", "Trier"])
    stays = [f"stay {i}" for i in range(N)]
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(N) % 90, unit="D")
    return {
        "persons": pd.DataFrame({"who": who, "city": cities[np.arange(len(who)) % 2]}),
        "stays": pd.DataFrame(
            {
                "stay": stays,
                "who": IDS,
                "ward": np.where(SIDE == 1, "x", "y"),
                "day": days,
                "a": FRAME["a"],
                "rank": np.arange(N) % 3 + 1,
            }
        ),
        "tests": pd.DataFrame({"stay": stays[::2], "result": np.arange(N // 2) % 10.0}),
    }


def _fit_persons_with_rows():
    sampler = RelationalSampler(
        schema=RELATIONAL_SCHEMA, max_iter=5, population_size=100, device="cpu", **BUDGET
    )
    return sampler.fit({name: pl.DataFrame(t) for name, t in relational_tables().items()})


def _fit_evolution_of_tables():
    sampler = PrivateEvolutionSampler(
        schema=SCHEMA,
        labels="public",
        classes=["no", "yes"],
        n_samples=20,
        n_iter=2,
        smoothing=0.5,
        device="cpu",
        **BUDGET,
    )
    return sampler.fit(pl.DataFrame(FRAME), LABELS)


def _fit_network(generator, side, **words):
    X = _RNG.uniform(size=(N, side * side))
    estimator = SmoothedSlicedWassersteinGenerator(
        domain=Box(0, 1, n_features=side * side),
        latent_dim=3,
        generator=generator,
        labels="public",
        classes=["no", "yes"],
        **TRAINED,
        **words,
    )
    return estimator.fit(X, LABELS)


def _fit_images():
    sampler = MomentImageSampler(
        shape=(3, 4),
        pixel_range=(0, 1),
        labels="public",
        classes=[0, 1],
        max_iter=2,
        device="cpu",
        **BUDGET,
    )
    return sampler.fit(_RNG.uniform(size=(N, 12)), SIDE)


LAPLACE = LaplaceMechanism(5.0, domain=BOX)
JOINT = JointRandomizedResponse(4.0, schema=WIDE_SCHEMA, n_bins={"wage": [0, 30, 100]})


def _fit_local(privatize):
    sampler = LocalTableSampler(JOINT, privatize=privatize, population_size=20, max_iter=5)
    frame = wide_frame()
    return sampler.fit(frame if privatize else clone(JOINT).fit(frame).transform(frame))


def _fit_gan(mechanism, **words):
    training = Training(max_iter=3, device="cpu", **words)
    gan = EntropicDeconvGAN(mechanism, latent_dim=2, training=training)
    return gan.fit(clone(mechanism).fit_transform(FRAME))


def _fit_dct():
    X = _RNG.uniform(size=(N, 16))
    change = DCTTransformer(shape=(4, 4)).fit(X)
    mechanism = LaplaceMechanism(5.0, domain=Ball(4.0, n_features=16))
    gan = EntropicDeconvGAN(
        mechanism,
        generator="dcgan",
        output_domain=Box(0, 1, n_features=16),
        output_transform=change,
        latent_dim=2,
        training=Training(max_iter=2, device="cpu"),
    )
    return gan.fit(clone(mechanism).fit_transform(change.transform(X)))


FITS = {
    name: partial(_fit_case, name)
    for name in CASES
    if name not in ("synthetic classifier", "barycenter classifier", "mixtures")
} | {
    "rules": _fit_rules,
    "moments of tables": _fit_moments_of_tables,
    "tables of persons": _fit_tables_of_persons,
    "persons with rows": _fit_persons_with_rows,
    "evolution of tables": _fit_evolution_of_tables,
    "smoothed, by a convolution": partial(_fit_network, "dcgan", 4),
    "smoothed, by upsampling": partial(_fit_network, "upsampling", 4),
    "smoothed, by a perceptron": partial(_fit_network, "mlp", 2),
    "images of classes": _fit_images,
    "Laplace": lambda: clone(LAPLACE).fit(FRAME),
    "Laplace, without names": lambda: clone(LAPLACE).fit(),
    "Gauss": GaussianMechanism(2.0, domain=Ball(1, n_features=2)).fit,
    "randomized response": RandomizedResponse(2.0, domain=OneHot(3)).fit,
    "tables": lambda: TabularMechanism(2.0, schema=SCHEMA).fit(FRAME[["b", "a"]]),
    "tables in bins": TabularMechanism(2.0, schema=SCHEMA, n_bins={"a": [0, 0.3, 1]}).fit,
    "joint answers": lambda: clone(JOINT).fit(wide_frame()),
    "laws of answers": partial(_fit_local, False),
    "laws of records": partial(_fit_local, True),
    "deconvolution": partial(_fit_gan, LAPLACE, hidden_layer_sizes=(4,)),
    "deconvolution of tables": partial(
        _fit_gan, TabularMechanism(5.0, schema=SCHEMA), hidden_layer_sizes=(4,)
    ),
    "deconvolution of images": _fit_dct,
    "weighted points": lambda: DeconvolutionEM(LAPLACE, n_points=30, max_iter=3).fit(
        clone(LAPLACE).fit_transform(FRAME)
    ),
}


@cache
def fitted(name):
    """Return a fitted estimator, the same at each call: it is not to be changed."""
    return FITS[name]()
