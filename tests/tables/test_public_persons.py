"""RelationalSampler with public tables: what they cost, what is let out, and tables of any kind."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sampler_tables import MECHANISM

import sklearn_dpgen
from sklearn_dpgen.exceptions import (
    InvalidFileError,
    PublicError,
    PublicTypeError,
    UnusedPublicTableWarning,
)
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.preprocessing import PublicTable
from sklearn_dpgen.schema import (
    Categorical,
    Implication,
    Numeric,
    Ordinal,
    RelationalSchema,
    Schema,
    Table,
)
from sklearn_dpgen.tables import (
    RelationalSampler,
    _person_fit,
    _person_plan,
    _person_prior,
    _privacy_plan,
    _relational_sampler,
)
from sklearn_dpgen.tables._marginals import Marginal
from sklearn_dpgen.tables._person_counts import PersonRecords
from sklearn_dpgen.tables._person_distribution import PublicStageRows
from sklearn_dpgen.tables._person_layout import PersonLayout
from sklearn_dpgen.tables._person_rows import stages_of
from sklearn_dpgen.tables._public_persons import public_leaves_of, public_stages, read_public_tables
from sklearn_dpgen.utils._random import NoiseObserver, observed_noise

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
relations = pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove"])

WARDS = pd.DataFrame({"ward": list("abcd"), "beds": [5, 30, 30, 12]})
TREE = RelationalSchema(
    {
        "persons": Table(
            Schema({"sex": Categorical(["f", "m"], nullable=True), "born": Ordinal([1, 2, 3, 4])}),
            primary_key="id",
        ),
        "stays": Table(
            Schema(
                {
                    "year": Numeric(2000, 2009, integer=True),
                    "cost": Numeric(0, 100, integer=True, nullable=True),
                    "state": Ordinal([1, 2, 3]),
                }
            ),
            primary_key="stay",
            foreign_key={"id": "persons"},
            sequence_index="year",
            max_rows=4,
            aggregates=["cost"],
        ),
        "drugs": Table(
            Schema({"drug": Categorical(["a", "b"], nullable=True)}),
            foreign_key={"stay": "stays", "ward": "wards"},
            max_rows=3,
        ),
        "wards": Table(
            Schema({"beds": Numeric(0, 50, integer=True)}), primary_key="ward", frame=WARDS
        ),
    }
)
PANEL = Table(
    Schema(dict(TREE["persons"].schema) | dict(TREE["stays"].schema)),
    primary_key="id",
    sequence_index="year",
    max_rows=4,
    static=["sex", "born"],
    aggregates=["cost"],
)


def tree(n=150, seed=0):
    """Return persons with up to three stays, which depend on the person and the stay before."""
    rng = np.random.default_rng(seed)
    sex, born = rng.choice(["f", "m"], n), rng.integers(1, 5, n)
    sizes = rng.choice(4, n, p=[0.1, 0.3, 0.3, 0.3])
    owner = np.repeat(np.arange(n), sizes)
    turn = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    state = 1 + (born[owner] > 2) + (rng.uniform(size=n) < 0.5)[owner]
    stays = {"stay": np.arange(len(owner)), "id": owner, "year": 2000 + born[owner] + turn}
    stays |= {"cost": 20.0 * state + rng.integers(20, size=len(owner)), "state": state}
    of_drug = np.repeat(stays["stay"], rng.integers(3, size=len(owner)))
    drugs = {"stay": of_drug, "drug": np.where(state[of_drug] > 2, "a", "b")}
    drugs |= {"ward": rng.choice(list("abcd"), len(of_drug))}
    return {
        "persons": pd.DataFrame({"id": np.arange(n), "sex": sex, "born": born}),
        "stays": pd.DataFrame(stays),
        "drugs": pd.DataFrame(drugs),
    }


def panel(n=150, seed=0):
    tables = tree(n, seed)
    rows = tables["stays"].merge(tables["persons"], on="id")
    return rows[["id", *PANEL.schema]]


KINDS = {"tree": (TREE, tree), "panel": (PANEL, panel)}
kinds = pytest.mark.parametrize("kind", KINDS)
PUBLIC = {"tree": tree(200, seed=8), "panel": panel(200, seed=8)}


@pytest.fixture(autouse=True)
def hasten(monkeypatch):
    """Calibrate each plan once."""
    monkeypatch.setattr(_privacy_plan, "GaussianSequenceMechanism", MECHANISM)


def make(kind="tree", epsilon=8.0, **options):
    options = {"schema": KINDS[kind][0], "random_state": 0, "device": "cpu"} | options
    return RelationalSampler(epsilon, **{"population_size": 200, "max_iter": 3} | options)


class Unlike(Exception):
    """A later fit asks for other releases than an earlier one."""


class Steps(NoiseObserver):
    """Keeps what noise is added to, and lets out what an earlier fit did."""

    def __init__(self, earlier=None):
        self.values, self.scales, self.outcomes, self._earlier = [], [], [], earlier

    def added(self, values, scale, kind, noisy):
        return self._note(values, scale, noisy)

    def selected(self, scores, scale, indices):
        return self._note(scores, scale, indices)

    def _note(self, values, scale, outcome):
        if self._earlier is not None:
            place = len(self.values)
            if self._earlier.values[place].shape != values.shape:
                raise Unlike
            outcome = self._earlier.outcomes[place]
        self.values.append(values.copy())
        self.scales.append(scale)
        self.outcomes.append(outcome.copy())
        return outcome.copy()


def fitted(kind, tables, earlier=None, **options):
    """Return a fitted sampler, and the steps of its releases."""
    with observed_noise(Steps(earlier)) as steps:
        sampler = make(kind, **options).fit(tables)
    return sampler, steps


def shuffled(public):
    """Return public tables of the same columns without dependence."""
    rng, keys = np.random.default_rng(1), ("id", "stay", "year", "ward")
    if not isinstance(public, dict):
        return shuffled({"rows": public})["rows"]
    return {
        name: f.assign(**{c: rng.permutation(f[c]) for c in f if c not in keys})
        for name, f in public.items()
    }


def without_keys(public):
    if not isinstance(public, dict):
        return public.drop(columns="id")
    return {name: f.drop(columns=["id", "stay"], errors="ignore") for name, f in public.items()}


def public_of(kind):
    """Return public tables that have little in common."""
    public = PUBLIC[kind]
    found = [public, shuffled(public), without_keys(public)]
    if kind == "panel":
        return [*found, public[["state"]][:3], panel()]
    return [
        *found,
        {"persons": public["persons"]},
        {"drugs": public["drugs"][["drug"]][:2], "stays": public["stays"][["state"]]},
        tree(),
    ]


# ---- the guarantee ----


@pytest.mark.slow
@kinds
@relations
def test_the_report_is_that_of_the_plan_whatever_the_public_tables(kind, neighbours):
    alone = make(kind, neighbours=neighbours).plan(150)
    assert alone.public_tables == {}
    n = len(KINDS[kind][1]()["persons"]) if kind == "tree" else panel()["id"].nunique()
    for public in public_of(kind):
        sampler = make(kind, neighbours=neighbours, public=public).fit(KINDS[kind][1]())
        plan = sampler.plan(n)
        assert plan.to_json() == sampler.privacy_.to_json()
        for name in ("epsilon", "delta", "noise_scale", "sensitivity", "n_releases", "split"):
            assert getattr(plan, name) == getattr(alone, name)
        names = [f"public {name}" for name in public] if kind == "tree" else ["public"]
        assert [*plan.public_tables] == names
        assert "public" in plan.public


@pytest.mark.slow
@kinds
@pytest.mark.parametrize("most_pairs", [200, 3])
def test_the_same_is_released_at_the_same_noise_whatever_the_public_tables(
    monkeypatch, kind, most_pairs
):
    monkeypatch.setattr(_person_plan, "_MOST_PAIRS", most_pairs)
    tables = KINDS[kind][1]()
    alone = fitted(kind, tables)
    for public in public_of(kind):
        sampler, steps = fitted(kind, tables, public=public)
        assert steps.scales == alone[1].scales
        for part in ("values", "outcomes"):
            assert_array_equal(getattr(steps, part)[0], getattr(alone[1], part)[0])
        # Which marginals are released is only chosen where there is a choice.
        names = [[marginal.columns for marginal in one.marginals_] for one in (sampler, alone[0])]
        assert len(names[0]) == len(names[1])
        if most_pairs == 200:
            n = len(sampler._layout().sequences()) + len(sampler._layout().pairs())
            assert names[0][:n] == names[1][:n]


@pytest.mark.slow
@kinds
def test_public_rows_that_are_counted_would_be_seen(monkeypatch, kind):
    """The negative twin: counts of the public tables are added before the noise."""
    leaves = PersonRecords.leaves
    found = {}
    plan = _person_plan.public_stages

    def watch(layout, tables):
        stages = plan(layout, tables)
        found.update(public_leaves_of(stages, layout))
        return stages

    monkeypatch.setattr(_person_plan, "public_stages", watch)
    monkeypatch.setattr(PersonRecords, "leaves", lambda self, j: leaves(self, j) + found.get(j, 0))
    tables = KINDS[kind][1]()
    first, second = (fitted(kind, tables, public=p)[1].values[0] for p in public_of(kind)[::2][:2])
    assert not np.array_equal(first, second)


def told(sampler):
    """Return all that a fit lets out, as bytes."""
    drawn = sampler.sample(9, random_state=0)
    return pickle.dumps([sampler.privacy_.to_json(), sampler, drawn])


def told_by_the_outputs_alone(kind, neighbours="replace_one"):
    """Whether other persons, of which the same is released, give the same fit."""
    options = {"neighbours": neighbours, "public": PUBLIC[kind]}
    tables, others = KINDS[kind][1](), KINDS[kind][1](seed=5)
    if kind == "panel":
        # As many persons have rows.
        n = min(frame["id"].nunique() for frame in (tables, others))
        tables, others = (f[f["id"].isin(f["id"].unique()[:n])] for f in (tables, others))
    first, steps = fitted(kind, tables, **options)
    try:
        second, again = fitted(kind, others, steps, **options)
    except Unlike:
        return False
    assert not np.array_equal(steps.values[0], again.values[0])
    return told(first) == told(second)


def weights_by_records(monkeypatch):
    """A breach: public rows are weighted by the records, which are read before the public ones."""
    found, start, weights = [], PersonRecords.__init__, _person_prior.tilted_weights

    def watch(self, layout, rows):
        found.append(int(rows[-1].codes[-1].sum()))
        start(self, layout, rows)

    def leak(codes, own, *args):
        turned = np.roll(weights(codes, own, *args), found[-2] % len(own))
        return turned / turned.sum()

    monkeypatch.setattr(PersonRecords, "__init__", watch)
    monkeypatch.setattr(_person_prior, "tilted_weights", leak)


def columns_of_exact_counts(monkeypatch):
    """A breach: the public prior meets exact counts."""
    found, cells, leaves = {}, _person_fit.public_cells, PersonRecords.leaves

    def watch(self, j):
        exact = leaves(self, j)
        found[len(exact)] = exact
        return exact

    def leak(tree, noisy, *args):
        return cells(tree, tree.counts(found[tree.n_values + tree.nullable]), *args)

    monkeypatch.setattr(PersonRecords, "leaves", watch)
    monkeypatch.setattr(_person_fit, "public_cells", leak)


@pytest.mark.slow
@kinds
@relations
def test_persons_with_equal_outputs_give_equal_fits(kind, neighbours):
    assert told_by_the_outputs_alone(kind, neighbours)


@pytest.mark.slow
@kinds
@pytest.mark.parametrize("leak", [weights_by_records, columns_of_exact_counts])
def test_what_tells_more_would_be_seen(monkeypatch, kind, leak):
    leak(monkeypatch)
    assert not told_by_the_outputs_alone(kind)


def test_public_tables_are_read_before_a_record_and_a_charge(monkeypatch, tmp_path):
    order, read = [], _relational_sampler.read_person_rows

    def watch(*args):
        order.append("private")
        return read(*args)

    monkeypatch.setattr(_relational_sampler, "read_person_rows", watch)
    ledger = PrivacyLedger.create(tmp_path / "l.db", dataset="d", epsilon=9.0, delta=1e-4)
    born = PUBLIC["tree"]["persons"]
    for public in (
        {"patients": born},
        {"wards": WARDS},
        {"rows": born},
        {},
        {"persons": None},
        {"persons": born[["id"]]},
        {"persons": tmp_path / "none.csv"},
        {"stays": born[["id"]]},
    ):
        with pytest.raises(PublicError, match="public"):
            make(public=public, ledger=ledger).fit(tree())
    with pytest.raises(PublicTypeError, match="public must be a mapping of some of the names"):
        make(public=born, ledger=ledger).fit(tree())
    assert not order
    assert ledger.spent() == 0
    make(public={"persons": born}, ledger=ledger).fit(tree())
    assert order == ["private"]
    assert ledger.spent() > 0


# ---- what is read ----


def layout_of(kind):
    schema = KINDS[kind][0] if kind == "tree" else RelationalSchema({"rows": PANEL})
    return PersonLayout(stages_of(schema))


def stages(kind, public):
    layout = layout_of(kind)
    return layout, public_stages(layout, read_public_tables(public, layout.declared))


@kinds
def test_public_rows_are_linked_and_counted_as_private_ones(kind):
    """Weights add up to one in the root, so that counts are those of so many persons."""
    layout, found = stages(kind, PUBLIC[kind])
    leaves = public_leaves_of(found, layout)
    sampler = make(kind)
    records, _ = sampler._read(PUBLIC[kind], seed=None)
    released = [j for j, variable in enumerate(layout.variables) if variable.is_released]
    assert set(released) <= set(leaves)
    for j in released:
        assert_allclose(leaves[j], records.leaves(j), atol=1e-4)


def test_tables_without_keys_tell_of_their_columns_alone():
    tables = {"persons": PUBLIC["tree"]["persons"], "stays": PUBLIC["tree"]["stays"]}
    names = [variable.name for variable in layout_of("tree").variables]
    _, linked = stages("tree", tables)
    _, apart = stages("tree", tables | {"stays": tables["stays"].drop(columns="id")})
    assert linked[1].parent is not None
    assert apart[1].parent is None
    counted = {names[j] for j in linked[0].codes} - {names[j] for j in apart[0].codes}
    assert counted == {"number of stays", "first of stays", "aggregate of stays.cost"}
    # Without the index the order of rows is not known.
    _, unordered = stages("tree", tables | {"stays": tables["stays"].drop(columns="year")})
    assert unordered[1].parent is None


def test_an_index_tells_nothing_without_the_gaps_of_its_rows():
    _, linked = stages("tree", PUBLIC["tree"])
    layout, apart = stages("tree", {"stays": STAYS.drop(columns="id")})
    own = layout.stages[1]
    assert {own.index, own.gap, own.first} <= {*linked[0].codes, *linked[1].codes}
    assert {*apart[1].codes} == {*own.columns} - {own.index}
    # Of such a table nothing is left.
    _, none = stages("tree", {"stays": STAYS[["year"]]})
    assert none == {}


def test_linked_rows_without_an_index_are_left_out():
    years = STAYS["year"].where(STAYS["state"] > 1)
    _, found = stages("tree", some(stays=STAYS.assign(year=years)))
    _, without = stages("tree", some(stays=STAYS[years.notna()]))
    for place, own in found.items():
        for j, codes in own.codes.items():
            assert_array_equal(codes, without[place].codes[j])


def test_weights_of_persons_hold_for_their_rows():
    layout, equal = stages("tree", PUBLIC["tree"])
    persons = PUBLIC["tree"]["persons"]
    heavy = PublicTable(persons.assign(w=1 + 3 * (persons["born"] == 4)), weights="w")
    _, found = stages("tree", PUBLIC["tree"] | {"persons": heavy})
    born = layout.stages[0].columns[1]
    for own in (equal, found):
        assert own[0].weights.sum() == pytest.approx(1)
        sums = np.bincount(own[1].parent, own[1].weights, minlength=200)
        has_rows = sums > 0
        assert_allclose(sums[has_rows], own[0].weights[has_rows])
    is_heavy = found[0].codes[born] == 3
    ratios = found[0].weights / equal[0].weights
    assert_allclose(ratios[is_heavy] / ratios[~is_heavy].mean(), 4)
    assert found[0].size < equal[0].size


def released_of(monkeypatch, kind, epsilon):
    """Return the measurements of a fit to the public tables themselves."""
    kept, learn = [], RelationalSampler._learn

    def keep(self, plan, released, seed):
        kept.append(released)
        learn(self, plan, released, seed)

    monkeypatch.setattr(RelationalSampler, "_learn", keep)
    make(kind, epsilon, public=PUBLIC[kind]).fit(PUBLIC[kind])
    return kept[0]


@kinds
def test_public_dependence_is_that_of_private_persons_with_the_same_rows(monkeypatch, kind):
    """Also of a row with the row before, and with the person."""
    residuals, ridges = [], _person_prior.change_ridges

    def watch(residual, noise, n_records):
        residuals.append(residual)
        return ridges(residual, noise, n_records)

    monkeypatch.setattr(_person_prior, "tilted_weights", lambda codes, own, *args: own)
    monkeypatch.setattr(_person_prior, "change_ridges", watch)
    released = released_of(monkeypatch, kind, np.inf)
    records, _ = make(kind)._read(PUBLIC[kind], seed=None)
    records.use_blocks(released.count_maps(), released.ratios)
    prior, tables = released.prior, released.measured.tables
    prior._reliable[:] = 1
    marginals = [Marginal(one.columns, one.groups) for one in tables if one.pattern is None]
    for marginal, counts in zip(marginals, records.marginal_counts(marginals), strict=True):
        shares = counts / counts.sum()
        exact = shares - np.outer(shares.sum(axis=1), shares.sum(axis=0))
        assert_allclose(prior.dependence(marginal), exact, atol=1e-4)
    memories = {*released.layout.stages[1].memories.values()}
    assert any(memories & {*marginal.columns} for marginal in marginals)
    # What is copied explains changes from row to row.
    parts = zip(tables, released.measured.expected, strict=True)
    changes = [one.shares - mean for one, mean in parts if one.pattern is not None]
    found = residuals[-len(changes) :]
    assert sum(np.abs(r).sum() for r in found) < 0.9 * sum(np.abs(r).sum() for r in changes)


@kinds
def test_rows_have_the_weights_of_their_persons_after_these_are_tilted(monkeypatch, kind):
    def tilt(codes, own, *args):
        tilted = own * np.arange(1, len(own) + 1)
        return tilted / tilted.sum()

    monkeypatch.setattr(_person_prior, "tilted_weights", tilt)
    released = released_of(monkeypatch, kind, 8.0)
    prior, own = released.prior, released.layout.stages[1]
    persons, parent = prior._weights[0], prior._parents[1]
    sums = np.bincount(parent, prior._weights[1], minlength=len(persons))
    assert_allclose(sums[sums > 0], persons[sums > 0])
    assert persons[-1] > 10 * persons[0]
    # In place of the value in the row before, that value is copied.
    source, memory = next(iter(own.memories.items()))
    assert prior.copied((memory, own.count)) == (source, own.count)


@kinds
def test_pairs_are_expected_and_chosen_by_what_is_copied(monkeypatch, kind):
    released = released_of(monkeypatch, kind, np.inf)
    prior, pairs = released.prior, [*released._pairs]
    first, *_ = order = released.strongest(pairs, np.ones(len(pairs)), len(pairs))
    assert sorted(order) == sorted(pairs)
    marginals = [released._pairs[pair][2] for pair in pairs]
    copied = [prior.expected(marginal) for marginal in marginals]
    assert max(np.abs(part).max() for part in copied) > 0.01
    for pair, marginal, part in zip(pairs, marginals, copied, strict=True):
        n = released._total(pair)
        (expected,) = released.expected([marginal])
        (apart,) = released.measured.independent([marginal], n)
        assert_allclose(expected - apart, n * part, atol=1e-9)
    # A pair of which copies explain all dependence is not the first choice.
    shares, _, explained = released._pairs[first]
    dependence = shares - np.outer(shares.sum(axis=1), shares.sum(axis=0)) / shares.sum()

    def expected(marginal):
        return dependence if marginal is explained else np.zeros(marginal.shape)

    monkeypatch.setattr(prior, "expected", expected)
    assert released.strongest(pairs, np.ones(len(pairs)), 1) != [first]


def test_a_row_beyond_those_of_the_public_person_copies_nothing():
    # Persons of two rows, of none and of one.
    rows = PublicStageRows((0,), np.array([[5], [6], [7]]), np.zeros(0), np.array([0, 2, 2, 3]))
    above, turns = np.array([0, 0, 0, 1, 2, 2, -1]), np.array([0, 1, 2, 0, 0, 1, 0])
    found = rows.draw(turns, above, np.random.default_rng())
    assert found.tolist() == [0, 1, -1, -1, 2, -1, -1]
    assert rows.block(0, found, 9).tolist() == [5, 6, 9, 9, 7, 9, 9]


# ---- what is learned ----


def correlations(kind, made):
    """Return correlations of a row with the person, within the row, and with the row before."""
    rows = made["stays"].merge(made["persons"], on="id") if kind == "tree" else made
    rows = rows.sort_values(["id", "year"], kind="stable")
    before = rows.groupby("id")["state"].shift()
    later = before.notna()
    return [
        np.corrcoef(rows["born"], rows["state"])[0, 1],
        rows["cost"].corr(rows["state"]),
        np.corrcoef(rows["state"][later], before[later])[0, 1],
    ]


@pytest.mark.slow
@kinds
def test_public_dependence_shows_where_noise_hides_the_private_one(kind):
    private, public = KINDS[kind][1](60), KINDS[kind][1](2000, seed=3)
    options = {"population_size": 2000, "max_iter": 15}
    exact = correlations(kind, public)
    found = {}
    for name, prior in (
        ("public", public),
        ("alone", None),
        ("shuffled", shuffled(public)),
        ("without keys", without_keys(public)),
    ):
        # The evidence of so few records is itself noisy: with many seeds there is too little.
        sampler = make(kind, 0.3, public=prior, random_state=3, **options).fit(private)
        made = correlations(kind, sampler.sample(2000, random_state=0))
        # Shares of the dependence of a row with the person, within it, and with the row before.
        found[name] = np.nan_to_num(made) / exact
    assert (found["public"] > 0.5).all()
    # Negative twins: none of it is learned from so few private records.
    assert (found["alone"][:2] < 0.4).all()
    assert (np.abs(found["shuffled"][:2]) < 0.4).all()
    assert abs(found["without keys"][0]) < 0.4
    assert found["without keys"][1] > 0.5


@pytest.mark.slow
@kinds
def test_many_private_records_overrule_wrong_public_tables(kind):
    private = KINDS[kind][1](2000, seed=3)
    options = {"population_size": 2000, "max_iter": 15}
    sampler = make(kind, np.inf, public=shuffled(PUBLIC[kind]), **options).fit(private)
    found = correlations(kind, sampler.sample(2000, random_state=0))
    assert_allclose(found[:2], correlations(kind, private)[:2], atol=0.2)


@pytest.mark.slow
def test_without_public_tables_nothing_is_told():
    sampler = make(public=PUBLIC["tree"]).fit(tree())
    assert sampler.public_agreement_
    assert sampler.distribution_.public
    sampler.set_params(public=None).fit(tree())
    assert not hasattr(sampler, "public_agreement_")
    assert sampler.distribution_.public == {}
    # Nothing of the stays is known of persons alone.
    sampler = make(public={"persons": PUBLIC["tree"]["persons"]}).fit(tree())
    told = {name for one in sampler.public_agreement_ for name in one.columns}
    assert told == {"persons.sex", "persons.born"}


# ---- public tables of any kind ----


def some(**changes):
    return PUBLIC["tree"] | changes


STAYS, PERSONS = PUBLIC["tree"]["stays"], PUBLIC["tree"]["persons"]
ODD = {
    "one person": some(persons=PERSONS[:1]),
    "no stays of them": some(stays=STAYS.assign(id=STAYS["id"] + 1000)),
    "one stay": some(stays=STAYS[:1]),
    "twice the same keys": some(persons=pd.concat([PERSONS, PERSONS[::-1]])),
    "keys as texts": some(persons=PERSONS.astype({"id": str}), stays=STAYS.astype({"id": str})),
    "texts": some(stays=STAYS.astype({"cost": str, "state": str, "year": str})),
    "unknown cells": some(stays=STAYS.assign(state=np.where(STAYS["state"] == 1, 7, 2))),
    "unknown years": some(stays=STAYS.assign(year=STAYS["year"].where(STAYS["state"] > 1))),
    "no costs": some(stays=STAYS.drop(columns="cost")),
    "many rows": some(stays=pd.concat([STAYS[:5]] * 40).assign(stay=range(200))),
    "constant": some(persons=PERSONS.assign(sex="f", born=2)),
    "unknown wards": some(drugs=PUBLIC["tree"]["drugs"].assign(ward="z")),
    "drugs alone": {"drugs": PUBLIC["tree"]["drugs"]},
    "stays alone": {"stays": STAYS},
}
FEW = {"population_size": 100, "max_iter": 2}


# Each kind at a budget, and half of them at one extreme in the default run: how much noise there is
# and what the public tables hold do not meet.
EACH_KIND = [
    pytest.param(name, epsilon, marks=[pytest.mark.slow] * (epsilon != 8.0 and i % 2 != j))
    for i, name in enumerate(ODD)
    for j, epsilon in enumerate([0.01, np.inf, 8.0])
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "epsilon"), EACH_KIND)
def test_public_tables_of_any_kind(name, epsilon, tmp_path):
    sampler = make(epsilon=epsilon, public=ODD[name], **FEW).fit(tree())
    drawn = sampler.sample(40, random_state=0)
    assert set(drawn) == {"persons", "stays", "drugs"}
    kept = sampler.sample(20, conditions={"persons": {"born": 3}}, random_state=0)
    assert (kept["persons"]["born"] == 3).all()
    sampler.save(tmp_path / "saved.safetensors")
    loaded = sklearn_dpgen.load(tmp_path / "saved.safetensors")
    for table, frame in loaded.sample(40, random_state=0).items():
        pd.testing.assert_frame_equal(frame, drawn[table])
    assert loaded.public_agreement_ == sampler.public_agreement_
    assert loaded.public is None


def test_keys_of_public_tables_that_do_not_agree_are_named():
    with pytest.warns(
        UnusedPublicTableWarning, match="'stays': 378 of 378 public rows belong to no public"
    ):
        stages("tree", ODD["no stays of them"])
    half = STAYS.assign(id=STAYS["id"].where(np.arange(len(STAYS)) % 2 == 0, -1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for own in (STAYS, half):
            stages("tree", {"persons": PERSONS, "stays": own})
    texts = STAYS.assign(id="p" + STAYS["id"].astype(str))
    with pytest.raises(PublicError, match="The public tables cannot be linked by keys: Table 'st"):
        stages("tree", some(stays=texts))


@pytest.mark.slow
@pytest.mark.parametrize("public", public_of("panel"), ids=range(5))
def test_panels_beside_public_ones_of_any_kind(public):
    rules = [Implication({"state": 3}, {"sex": "f"})]
    sampler = make("panel", public=public, constraints=rules, target="state", **FEW).fit(panel())
    drawn = sampler.sample(40, random_state=0)
    assert not ((drawn["state"] == 3) & (drawn["sex"] != "f")).any()
    by_name = make("panel", schema=RelationalSchema({"rows": PANEL}), public={"rows": public})
    assert by_name.set_params(**FEW).fit(panel()).public_agreement_


@pytest.mark.slow
def test_the_most_rows_are_those_of_evenly_spaced_persons(monkeypatch):
    monkeypatch.setattr("sklearn_dpgen.tables._public_persons._MOST_ROWS", 100)
    _, found = stages("tree", PUBLIC["tree"])
    assert max(len(own.weights) for own in found.values()) <= 150
    assert len(found[0].weights) in (40, 50, 67)
    assert found[0].weights.sum() == pytest.approx(1)
    sampler = make(public=PUBLIC["tree"], **FEW).fit(tree())
    assert len(sampler.distribution_.public[0].codes) == len(found[0].weights)
    # Some of all persons of a table that is sorted.
    layout, found = stages("tree", some(persons=PERSONS.sort_values("born")))
    assert {0, 1, 2, 3} <= {*found[0].codes[layout.stages[0].columns[1]]}


@pytest.mark.slow
def test_certified_noise(monkeypatch):
    pytest.importorskip("opendp")
    monkeypatch.undo()
    options = {"noise": "certified", "random_state": None} | FEW
    sampler = make(public=PUBLIC["tree"], **options).fit(tree())
    assert sampler.plan(150).to_json() == sampler.privacy_.to_json()


@pytest.mark.slow
def test_hostile_public_rows_are_refused():
    sampler = make(public=PUBLIC["tree"], **FEW).fit(tree())
    layout, law = sampler._layout(), sampler.distribution_
    law.check_layout(layout)
    persons, stays = law.public[0], law.public[1]
    breaches = [
        {0: replace(persons, weights=2 * persons.weights)},
        {0: replace(persons, variables=persons.variables[1:])},
        {0: replace(persons, codes=persons.codes + 100)},
        {0: persons, 1: replace(stays, starts=stays.starts[1:])},
        {0: persons, 1: replace(stays, starts=stays.starts[::-1])},
        {1: stays},
        {9: persons},
        {0: replace(persons, variables=stays.variables[: len(persons.variables)])},
    ]
    for public in breaches:
        with pytest.raises(InvalidFileError):
            check(replace(law, public=public), layout)


def check(law, layout):
    for rows in law.public.values():
        rows._check_saved_state()
    law.check_layout(layout)
