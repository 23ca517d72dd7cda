"""The score of RelationalSampler: worse for worse fits, and told to be unpaid."""

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV, GroupKFold

from sklearn_dpgen.exceptions import UnpaidScoreWarning
from sklearn_dpgen.schema import Categorical, Numeric, Schema, Table
from sklearn_dpgen.tables import RelationalSampler
from sklearn_dpgen.tables._person_counts import PersonRecords
from sklearn_dpgen.tables._person_layout import PersonLayout
from sklearn_dpgen.tables._person_rows import read_person_rows, stages_of
from sklearn_dpgen.tables._relational_sampler import pair_distances

pytestmark = pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.NoisyCountsWarning")

PANEL = Table(
    Schema(
        {
            "year": Numeric(1, 4, integer=True),
            "ill": Categorical(["no", "yes"]),
            "pay": Numeric(0, 100, nullable=True),
        }
    ),
    primary_key="id",
    sequence_index="year",
    max_rows=4,
    ties=False,
)


def panel(n=600, seed=0):
    """Return persons who are ill in all years or in none."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(n), 1 + np.arange(n) % 4)
    year = pd.Series(who).groupby(who).cumcount() + 1
    ill = rng.choice(["no", "yes"], n)[who]
    pay = np.where(rng.uniform(size=len(who)) < 0.1, np.nan, rng.uniform(0, 50, len(who)))
    return pd.DataFrame({"id": who, "year": year, "ill": ill, "pay": pay})


def fitted(epsilon, **options):
    options = {"random_state": 0, "population_size": 2000} | options
    return RelationalSampler(epsilon, schema=PANEL, **options).fit(panel())


def distances(first, second):
    sampler = RelationalSampler(schema=PANEL)
    layout = PersonLayout(stages_of(sampler._relational))
    records = [
        PersonRecords(layout, read_person_rows(part, layout.declared, layout.encoders))
        for part in (first, second)
    ]
    return pair_distances(*records, layout)


def test_distances_are_those_of_persons_of_weight_one():
    frame = panel()
    assert (distances(frame, frame) == 0).all()
    # The order of the rows and the keys do not matter.
    other = frame.sample(frac=1, random_state=0).assign(id=lambda rows: 7 * rows["id"])
    assert (distances(frame, other) == 0).all()
    # Half of the persons with one row are ill, and of the others nobody.
    sizes = frame.groupby("id")["id"].transform("size")
    alone = frame[sizes == 1].assign(year=2)
    assert distances(alone.assign(ill="no"), alone.assign(ill="yes")).max() == pytest.approx(1)
    # Where the person with four rows is another one, each table changes by at most half of it.
    changed = frame.assign(ill=frame["ill"].where(frame["id"] != 3, "yes"), pay=frame["pay"])
    changed.loc[changed["id"] == 3, "pay"] = 99.0
    found = distances(frame, changed)
    assert 0 < found.max() <= 4 / 600


@pytest.mark.slow
def test_a_worse_fit_has_a_lower_score():
    exact, private = fitted(np.inf), fitted(0.05)
    held_out = panel(seed=1)
    best = exact.score(held_out)
    with pytest.warns(UnpaidScoreWarning):
        worst = private.score(held_out)
    assert -0.2 < best < 0
    assert -1 <= worst < best - 0.05
    # Years that do not last are another distribution of rows before one another.
    mixed = held_out.assign(ill=held_out["ill"].sample(frac=1, random_state=0).to_numpy())
    assert exact.score(mixed) < best - 0.005


@pytest.mark.slow
def test_a_fit_without_noise_warns_of_nothing(recwarn):
    fitted(np.inf).score(panel())
    assert not [w for w in recwarn if w.category is UnpaidScoreWarning]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.UnpaidScoreWarning")
def test_a_grid_search_holds_out_persons():
    sampler = RelationalSampler(schema=PANEL, population_size=500, random_state=0)
    search = GridSearchCV(sampler, {"epsilon": [0.05, 50.0]}, cv=GroupKFold(2))
    frame = panel()
    search.fit(frame, groups=frame["id"])
    assert search.best_params_ == {"epsilon": 50.0}
    assert search.best_estimator_.sample(2).columns.tolist() == ["id", "year", "ill", "pay"]
