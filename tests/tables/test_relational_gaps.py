"""Gaps of the index that exceed their room are redrawn, not cut."""

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.schema import Categorical, Numeric, RelationalSchema, Schema, Table
from sklearn_dpgen.tables import RelationalSampler
from sklearn_dpgen.tables._person_distribution import PersonSimulator

N = 500


@pytest.fixture(scope="module", params=[True, False], ids=["ties", "no ties"])
def fitted(request):
    """Three rows of each person, with gaps of up to 200 days."""
    rng = np.random.default_rng(0)
    persons = pd.DataFrame({"person": np.arange(N), "sex": rng.choice(["f", "m"], N)})
    days = np.cumsum(rng.integers(1, 201, (N, 3)), axis=1).ravel()
    stays = pd.DataFrame({"person": np.repeat(np.arange(N), 3), "day": days})
    schema = RelationalSchema(
        {
            "persons": Table(Schema({"sex": Categorical(["f", "m"])}), primary_key="person"),
            "stays": Table(
                Schema({"day": Numeric(0, 999, integer=True)}),
                foreign_key={"person": "persons"},
                sequence_index="day",
                max_rows=4,
                ties=request.param,
            ),
        }
    )
    sampler = RelationalSampler(np.inf, schema=schema, population_size=1000, max_iter=3)
    return sampler.fit({"persons": persons, "stays": stays})


@pytest.mark.parametrize("room", [1, 9])
def test_gaps_are_spread_over_the_room(fitted, room):
    layout = fitted._layout()
    simulator = PersonSimulator(layout, fitted.distribution_)
    rng = np.random.default_rng(0)
    persons = simulator.persons(4000, rng)
    sizes = simulator.numbers(1, persons.codes, rng)
    rows = simulator.positions(1, persons.codes, sizes, rng)
    own = layout.stages[1]
    # The codes say that there is more room.
    part = np.asfortranarray(rows.codes[rows.turns == 1])
    rooms = np.full(len(part), room)
    gaps = simulator._gaps(own, part, rooms, rng)
    assert own.least_gap <= gaps.min() <= gaps.max() <= room
    shares = np.bincount(gaps, minlength=room + 1)[own.least_gap :] / len(gaps)
    assert shares.max() < 0.8 or room == own.least_gap
    # Negative twin: cut at the room, nearly all gaps would end there.
    drawn, _ = simulator.conditionals[own.gap].draw(part, rng)
    cut = np.minimum(simulator.leaves(own.gap, drawn, rng), rooms)
    assert np.mean(cut == room) > 0.8


def test_indices_are_within_their_bounds(fitted):
    stays = fitted.sample(2000)["stays"]
    assert stays["day"].between(0, 999).all()
    gaps = stays.groupby("person")["day"].diff().dropna()
    assert gaps.min() >= fitted._layout().stages[1].least_gap
