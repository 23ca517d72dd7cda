"""Samplers of tables and of votes with certified noise: what they release, and how much of it."""

import math

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import NoisyVotes, PrivateEvolutionSampler, PrivateSignedMeasureSampler
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import TableSampler
from sklearn_dpgen.tables._privacy_plan import MarginalsPlan
from sklearn_dpgen.tables._sampler_plan import SamplerPlan, declared_table
from sklearn_dpgen.utils._random import CERTIFIED, NoiseObserver, observed_noise

CERTIFIED_NOISE, FLOATING_POINT = "certified_noise", "floating_point"


pytest.importorskip("opendp")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

SCHEMA = Schema(
    {
        "a": Categorical(list("xyz")),
        "b": Numeric(0, 10),
        "c": Numeric(-3, 3, nullable=True),
        "d": Categorical(list("uvw")),
    }
)
QUICK = {"schema": SCHEMA, "population_size": 200, "max_iter": 2, "device": "cpu"}
BOX = {"domain": Box([0, 0], [1, 1]), "device": "cpu"}


def table(n=600, seed=0):
    rng = np.random.default_rng(seed)
    b = rng.uniform(0, 10, n)
    c = np.where(rng.uniform(size=n) < 0.2, np.nan, rng.normal(size=n).clip(-3, 3))
    return pd.DataFrame(
        {"a": rng.choice(list("xyz"), n), "b": b, "c": c, "d": rng.choice(list("uvw"), n)}
    )


POINTS = np.random.default_rng(0).uniform(size=(500, 2))
SAMPLERS = [
    (TableSampler(**QUICK), table()),
    (TableSampler(**QUICK, neighbours="add_or_remove", epsilon=0.1), table()),
    (TableSampler(**QUICK, target="a", marginals="pairs"), table()),
    (PrivateSignedMeasureSampler(**BOX, n_points=50), POINTS),
    (
        PrivateSignedMeasureSampler(
            **BOX, votes=NoisyVotes(histogram="laplace_threshold"), n_points=50
        ),
        POINTS,
    ),
    (PrivateEvolutionSampler(**BOX), POINTS),
    (PrivateEvolutionSampler(**BOX, votes=NoisyVotes(histogram="laplace_threshold")), POINTS),
]


class Seen(NoiseObserver):
    def __init__(self):
        self.releases, self.selections = [], []

    def added(self, values, scale, kind, noisy):
        self.releases.append((values.copy(), scale, noisy.copy()))
        return noisy

    def selected(self, scores, scale, indices):
        self.selections.append((scores.copy(), scale))
        return indices


def fitted(sampler, records, **options):
    sampler = type(sampler)(**sampler.get_params(deep=False) | {"noise": "certified"} | options)
    with observed_noise(Seen()) as seen:
        sampler.fit(records)
    return sampler, seen


def is_certified(seen):
    """Whether all that was released is on the grid of its noise."""
    return all(
        np.array_equal(noisy, np.rint(noisy / scale * 2**26) * math.ldexp(scale, -26))
        for _, scale, noisy in seen.releases
    )


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "records"), SAMPLERS)
def test_releases_and_reports(sampler, records):
    sampler, seen = fitted(sampler, records)
    report = sampler.privacy_
    assert is_certified(seen)
    assert report.noise_source == CERTIFIED
    assert CERTIFIED_NOISE in report.caveats
    assert FLOATING_POINT not in report.caveats
    planned = sampler.plan(len(records), records.shape[1])
    assert (planned.releases, planned.noise_scale) == (report.releases, report.noise_scale)
    assert report.profile().delta(report.epsilon) <= report.delta * (1 + 1e-6)
    assert len(sampler.sample(5)) == 5
    # With noise in floating point it is told apart, and hardly less.
    plain, floats = fitted(sampler, records, noise="float")
    assert not is_certified(floats)
    assert FLOATING_POINT in plain.privacy_.caveats
    multipliers = sampler.noise_multiplier_, plain.noise_multiplier_
    assert multipliers[1] < multipliers[0] < 1.001 * multipliers[1]
    with pytest.raises(ValueError, match="random_state must be None with noise='certified'"):
        fitted(sampler, records, random_state=0)
    sampler.set_params(random_state=0)
    with pytest.raises(ValueError, match="random_state must be None with noise='certified'"):
        sampler.plan(len(records), records.shape[1])


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.02, 1.0, 50.0])
@pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove"])
def test_no_release_of_a_table_is_larger_than_was_paid_for(epsilon, neighbours):
    sampler = TableSampler(**QUICK, epsilon=epsilon, neighbours=neighbours)
    sampler, seen = fitted(sampler, table())
    n_values = SamplerPlan(sampler, declared_table(sampler), 600).marginals.mechanism.n_values
    sizes = [values.size for values, *_ in seen.releases]
    assert len(sizes) <= len(n_values)
    assert all(size <= most for size, most in zip(sizes, n_values, strict=False))


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove"])
def test_no_more_values_change_than_were_paid_for(neighbours):
    """Of the first release of two neighbours, which depends on nothing before."""
    one, other = table(), table()
    other.iloc[0] = ["z", 9.9, 2.9, "u"]
    one.iloc[0] = ["x", 0.1, None, "v"]
    if neighbours == "add_or_remove":
        other = other.iloc[1:]
    sampler = TableSampler(**QUICK, neighbours=neighbours)
    first, second = (fitted(sampler, X)[1].releases[0][0] for X in (one, other))
    sampler = fitted(sampler, one)[0]
    mechanism = SamplerPlan(sampler, declared_table(sampler), 600).marginals.mechanism
    n_changed = np.count_nonzero(first != second)
    assert n_changed <= mechanism.n_changed[0] < mechanism.n_values[0]
    # A bound of half as many would not hold.
    assert n_changed > mechanism.n_changed[0] // 2


@pytest.mark.slow
def test_rows_of_persons_may_change_any_cell():
    records = table().assign(person=np.repeat(np.arange(200), 3))
    sampler, seen = fitted(TableSampler(**QUICK, unit="person"), records)
    mechanism = SamplerPlan(sampler, declared_table(sampler), 200).marginals.mechanism
    assert mechanism.n_changed == mechanism.n_values
    assert is_certified(seen)


def test_scores_are_precise_for_so_many_records_only():
    sampler = TableSampler(**QUICK, epsilon=1.0, noise="certified")
    plan = SamplerPlan(sampler, declared_table(sampler), 600).marginals
    assert math.isinf(plan.most_records) == (plan.n_selections == 0)
    sampler.set_params(neighbours="add_or_remove")
    plan = SamplerPlan(sampler, declared_table(sampler), None).marginals
    most = plan.most_records
    # 45 ulp of two numbers a record, against 3/8 of a step.
    assert 45 * 2 * most * 2.0**-53 <= 0.375 * plan.mechanism.selection.noise_scale / 2**26
    assert sampler.plan().max_records == most
    assert str(most) in str(sampler.plan())
    assert math.isinf(MarginalsPlan(1.0, 1e-5, "replace_one", plan.rounds).most_records)


def test_moments_are_not_certified():
    sampler = PrivateEvolutionSampler(**BOX, start="moments", noise="certified")
    with pytest.raises(ValueError, match="start='public'"):
        sampler.fit(POINTS)
    with pytest.raises(ValueError, match="'noise' parameter"):
        PrivateEvolutionSampler(**BOX, noise="exact").fit(POINTS)
