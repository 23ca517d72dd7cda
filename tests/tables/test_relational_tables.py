"""What RelationalSampler returns: tables with all keys, also after it was saved and loaded."""

import numpy as np
import pandas as pd
import pytest

import sklearn_dpgen
from sklearn_dpgen.schema import Categorical, Numeric, RelationalSchema, Schema, Table
from sklearn_dpgen.tables import RelationalSampler, _person_fit
from sklearn_dpgen.tables._person_fit import PersonMeasurements

pytestmark = pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.NoisyCountsWarning")

HOSPITALS = pd.DataFrame({"hospital": ["A", "B"], "beds": [100, 900]})
TREE = RelationalSchema(
    {
        "hospitals": Table(
            Schema({"beds": Numeric(0, 1000, integer=True)}),
            primary_key="hospital",
            frame=HOSPITALS,
        ),
        "patients": Table(Schema({"sex": Categorical(["f", "m"])}), primary_key="patient"),
        "stays": Table(
            Schema({"day": Numeric(0, 9, integer=True), "ward": Categorical(["x", "y"])}),
            primary_key="stay",
            foreign_key={"patient": "patients", "hospital": "hospitals"},
            sequence_index="day",
            max_rows=3,
        ),
        "drugs": Table(
            Schema({"drug": Categorical(["a", "b"])}), foreign_key={"stay": "stays"}, max_rows=2
        ),
    }
)
PANEL = Table(
    Schema({"sex": Categorical(["f", "m"]), "ill": Categorical(["no", "yes"])}),
    primary_key="person",
    max_rows=3,
    static=["sex"],
)


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(0)
    persons, stays = np.arange(400), np.arange(800)
    return {
        "patients": pd.DataFrame({"patient": persons, "sex": rng.choice(["f", "m"], 400)}),
        "stays": pd.DataFrame(
            {
                "stay": stays,
                "patient": np.repeat(persons, 2),
                "hospital": rng.choice(["A", "B"], 800, p=[0.2, 0.8]),
                "day": rng.integers(0, 10, 800),
                "ward": rng.choice(["x", "y"], 800),
            }
        ),
        "drugs": pd.DataFrame({"stay": stays, "drug": rng.choice(["a", "b"], 800)}),
    }


def sampler(schema):
    return RelationalSampler(20.0, schema=schema, population_size=400, max_iter=5, device="cpu")


def test_rows_have_the_keys_of_all_parents(tables):
    drawn = sampler(TREE).fit(tables).sample(300)
    assert {name: list(frame) for name, frame in drawn.items()} == {
        "patients": ["patient", "sex"],
        "stays": ["stay", "patient", "hospital", "day", "ward"],
        "drugs": ["stay", "drug"],
    }
    assert drawn["stays"]["patient"].isin(drawn["patients"]["patient"]).all()
    assert drawn["drugs"]["stay"].isin(drawn["stays"]["stay"]).all()
    assert abs((drawn["stays"]["hospital"] == "B").mean() - 0.8) < 0.1


@pytest.mark.parametrize("is_panel", [False, True])
def test_a_saved_sampler_draws_the_same(tables, tmp_path, is_panel):
    schema, given = TREE, tables
    if is_panel:
        schema, n = PANEL, np.arange(400)
        sexes, ill = np.array(["f", "m"])[n % 2], np.array(["no", "yes"])[n % 3 // 2]
        given = pd.concat([pd.DataFrame({"person": n, "sex": sexes, "ill": ill})] * 2)
    fitted = sampler(schema).fit(given)
    fitted.save(tmp_path / "model.safetensors")
    same = sklearn_dpgen.load(tmp_path / "model.safetensors")
    first, second = (one.sample(50, random_state=0) for one in (fitted, same))
    assert isinstance(first, dict) != is_panel
    if is_panel:
        first, second = {"": first}, {"": second}
    assert list(first) == list(second)
    for name in first:
        pd.testing.assert_frame_equal(first[name], second[name])


def cost_of_wards(least):
    """Return the spread of the mean cost of five wards, which is 1600 in the records."""
    wards = [*"abcde"]
    panel = Table(
        Schema({"ward": Categorical(wards), "cost": Numeric(0, 2000)}),
        primary_key="patient",
        max_rows=1,
    )
    # Two groups of neighbouring wards have the same mean.
    rows = pd.DataFrame({"patient": range(1200), "ward": wards * 240})
    rows["cost"] = rows["ward"].map({"a": 100, "b": 1700, "c": 900, "d": 100, "e": 1700})
    settings = {"schema": panel, "random_state": 0, "population_size": 2000, "device": "cpu"}
    with pytest.MonkeyPatch.context() as patch:
        if not least:
            patch.setattr(PersonMeasurements, "_least_cells", lambda self, columns: 1)
            # Noise that supports two groups.
            patch.setattr(_person_fit, "affordable_cells", lambda n, spread: 4)
        drawn = RelationalSampler(4.0, **settings).fit(rows).sample(3000, random_state=0)
    return np.ptp(drawn.groupby("ward")["cost"].mean())


def test_labels_are_told_apart_in_pairs():
    assert cost_of_wards(least=True) > 1000
    # The twin: groups of labels hide the dependence.
    assert cost_of_wards(least=False) < 600
