"""RelationalSampler with a target: which marginals are released, with which noise."""

import numpy as np
import pandas as pd
import pytest

import sklearn_dpgen
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.schema import Categorical, Numeric, Ordinal, RelationalSchema, Schema, Table
from sklearn_dpgen.tables import RelationalSampler, _person_plan

pytestmark = pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.NoisyCountsWarning")

PERSON = {"sex": Categorical(["f", "m"]), "born": Ordinal([1, 2, 3])}
VISIT = {
    "year": Numeric(2000, 2004, integer=True),
    "state": Ordinal([1, 2, 3]),
    "ill": Categorical(["no", "yes"]),
}
TREE = RelationalSchema(
    {
        "persons": Table(Schema(PERSON), primary_key="id"),
        "visits": Table(
            Schema(VISIT), foreign_key={"id": "persons"}, sequence_index="year", max_rows=3
        ),
    }
)
PANEL = Table(
    Schema(PERSON | VISIT),
    primary_key="id",
    sequence_index="year",
    max_rows=3,
    static=["sex", "born"],
)
N = 80


def tables():
    rng = np.random.default_rng(0)
    owners = np.repeat(np.arange(N), 1 + np.arange(N) % 3)
    persons = pd.DataFrame(
        {"id": np.arange(N), "sex": rng.choice(["f", "m"], N), "born": rng.integers(1, 4, N)}
    )
    visits = pd.DataFrame(
        {
            "id": owners,
            "year": 2000 + np.arange(len(owners)) % 5,
            "state": rng.integers(1, 4, len(owners)),
            "ill": rng.choice(["no", "yes"], len(owners)),
        }
    )
    return {"persons": persons, "visits": visits}


def panel():
    given = tables()
    return given["visits"].merge(given["persons"], on="id")


def sampler(schema=TREE, **options):
    return RelationalSampler(
        20.0, schema=schema, population_size=50, max_iter=2, device="cpu", **options
    )


def noise(fitted):
    """Return the noise of each released marginal, in the order of their release."""
    return [(marginal.columns, float(marginal.noise_scale)) for marginal in fitted.marginals_]


def holds(columns, name):
    return any(column.removeprefix("previous ") == name for column in columns)


def planned_scales(fitted):
    return fitted._plan(layout=fitted._layout(), public={}, n_samples=N).details._table_scales()


@pytest.mark.slow
@pytest.mark.parametrize("most_pairs", [200, 3])
@pytest.mark.parametrize(
    ("schema", "given", "target"),
    [
        (TREE, tables, "visits.ill"),
        (TREE, tables, ["persons.sex", "visits.year"]),
        (PANEL, panel, "state"),
        (PANEL, panel, "sex"),
    ],
)
def test_the_plan_has_the_noise_of_the_releases(monkeypatch, schema, given, target, most_pairs):
    monkeypatch.setattr(_person_plan, "_MOST_PAIRS", most_pairs)
    fitted = sampler(schema, target=target).fit(given())
    assert "target" in fitted.privacy_.public
    assert "target" not in sampler(schema).plan(N).public
    assert fitted.privacy_ == sampler(schema, target=target).plan(N)
    scales = [scale for _, scale in noise(fitted)]
    np.testing.assert_allclose(planned_scales(fitted), scales)
    # The scales of another plan are others.
    other = planned_scales(sampler(schema).fit(given()))
    assert len(other) != len(scales) or not np.allclose(other, scales)


def test_marginals_of_the_target_have_less_noise():
    fitted = sampler(target="visits.ill").fit(tables())
    layout = fitted._layout()
    first = dict(noise(fitted)[: len(layout.sequences() + layout.pairs())])
    targets = {columns for columns in first if holds(columns, "visits.ill")}
    # With columns of its row, of the row above and of the row before.
    assert targets >= {
        ("visits.state", "visits.ill"),
        ("persons.sex", "visits.ill"),
        ("visits.ill", "previous visits.ill"),
    }
    plain = first["persons.sex", "visits.state"]
    assert [first[columns] for columns in targets] == pytest.approx([plain / 2] * len(targets))
    # Sequences have the weight 2 themselves.
    assert first[("change of visits.state",)] == pytest.approx(plain / 2)
    assert first[("change of visits.ill",)] == pytest.approx(plain / 4)


def test_of_many_pairs_those_of_the_target_are_not_selected(monkeypatch):
    monkeypatch.setattr(_person_plan, "_MOST_PAIRS", 3)
    fitted = sampler(target="visits.ill").fit(tables())
    layout, names = fitted._layout(), [v.name for v in fitted._layout().variables]
    pairs = [tuple(names[j] for j in columns) for columns in layout.pairs()]
    released = {columns for columns, _ in noise(fitted)}
    targets = {columns for columns in pairs if holds(columns, "visits.ill")}
    assert len(targets) > 3
    assert targets <= released
    assert len({*pairs} & released - targets) == 3


@pytest.mark.parametrize(
    ("schema", "target", "message"),
    [
        (TREE, "ill", "target must name columns of the schema as \"table.column\", got ['ill']"),
        (TREE, "visits.id", '"table.column"'),
        (TREE, ["visits.ill", "visits.ill"], "target must name distinct columns"),
        (PANEL, "rows.ill", "target must name columns of the schema, got ['rows.ill']"),
    ],
)
def test_targets_are_columns_of_the_schema(schema, target, message):
    with pytest.raises(PublicValueError) as raised:
        sampler(schema, target=target).plan(N)
    assert message in str(raised.value)


def test_a_saved_sampler_has_the_target(tmp_path):
    fitted = sampler(PANEL, target="ill").fit(panel())
    fitted.save(tmp_path / "model.safetensors")
    same = sklearn_dpgen.load(tmp_path / "model.safetensors")
    assert same.target == "ill"
    draws = [one.sample(20, random_state=0) for one in (fitted, same)]
    pd.testing.assert_frame_equal(*draws)


def test_certified_noise():
    pytest.importorskip("opendp")
    fitted = sampler(target="visits.ill", noise="certified").fit(tables())
    assert fitted.privacy_ == sampler(target="visits.ill", noise="certified").plan(N)
    scales = [scale for _, scale in noise(fitted)]
    np.testing.assert_allclose(planned_scales(fitted), scales)
