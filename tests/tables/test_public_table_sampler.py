"""TableSampler with a public table: what it costs, what is let out, and tables of any kind."""

import math
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sampler_breaches import (
    counted_twice,
    in_two_cells,
    levels_forgotten,
    note_records,
    read_twice,
    tell_counts,
    tell_gaps,
    tell_seed,
)
from sampler_tables import (
    AUTO,
    HIGH,
    JOBS,
    LOW,
    SCHEMA,
    WIDE,
    WIDE_HIGH,
    Unlike,
    afford,
    exact_delta,
    hasten,
    law_parts,
    listen,
    make,
    most,
    most_of_scores,
    replaced,
    table,
    wide,
)
from sklearn.base import clone

import sklearn_dpgen
from sklearn_dpgen.exceptions import InvalidFileError, PublicError
from sklearn_dpgen.mechanisms import GaussianSequenceMechanism
from sklearn_dpgen.preprocessing import PublicTable
from sklearn_dpgen.schema import Categorical, Identifier, Implication, Inequality, Numeric, Schema
from sklearn_dpgen.tables import (
    TableSampler,
    _privacy_plan,
    _public_columns,
    _public_prior,
    _table_sampler,
)
from sklearn_dpgen.tables._public_prior import PublicPrior

hasten = pytest.fixture(autouse=True)(hasten)
X, WIDE_X = table(), wide()
PUBLIC, WIDE_PUBLIC = table(300, seed=8), wide(300, seed=8)
relations = pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove"])
# A column of 1001 leaves on three levels.
PAY = {"pay": Numeric(0, 10, step=0.01, nullable=True)}
FINE, WIDE_FINE = Schema(dict(SCHEMA) | PAY), Schema(dict(WIDE) | PAY)
LISTED = {"marginals": [("age", "job"), ("day", "pay", "level")]}
KINDS = {
    "pairs": {"marginals": "pairs"},
    "pairs of fine columns": {"marginals": "pairs", "schema": FINE, "n_bins": "auto"},
    "listed": LISTED,
    "auto": {"marginals": "auto", "schema": WIDE_FINE, "n_bins": "auto"},
    "target": AUTO | {"store": "none", "target": "job"},
}
kinds = pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)


def is_wide(options):
    return len(options.get("schema", ())) > len(SCHEMA)


def records(options):
    return WIDE_X if is_wide(options) else X


def public_of(options):
    return WIDE_PUBLIC if is_wide(options) else PUBLIC


# The guarantee.


@relations
@kinds
def test_the_report_is_that_of_the_plan(monkeypatch, neighbours, options):
    afford(monkeypatch)
    sampler = make(neighbours=neighbours, public=public_of(options), **options)
    sampler.fit(records(options))
    n_samples = None if neighbours == "add_or_remove" else 600
    assert sampler.plan(n_samples).to_json() == sampler.privacy_.to_json()
    # Whatever is in the columns of the public table, but for its hash.
    other = clone(sampler).set_params(public=public_of(options)[:5])
    for name in ("epsilon", "delta", "noise_scale", "sensitivity", "n_releases", "split"):
        assert getattr(other.plan(n_samples), name) == getattr(sampler.privacy_, name)


@relations
def test_releases_cost_the_budget(neighbours):
    fit = listen(make(2.0, delta=1e-4, neighbours=neighbours, public=PUBLIC), X)
    scales = [step.scale for step in fit.steps]
    mu = most(neighbours) * math.sqrt(sum(1 / scale**2 for scale in scales))
    assert exact_delta(2.0, mu) == pytest.approx(1e-4, rel=1e-3)
    # Single columns have a larger share of it.
    alone = listen(make(2.0, delta=1e-4, neighbours=neighbours), X)
    assert scales[0] == pytest.approx(alone.steps[0].scale * math.sqrt(0.15 / 0.3))
    # With half of the columns, the public table gets half of the difference.
    half = PUBLIC[list(PUBLIC)[: len(list(PUBLIC)) // 2]]
    half = listen(make(2.0, delta=1e-4, neighbours=neighbours, public=half), X)
    share = 0.15 + 0.15 * (len(list(PUBLIC)) // 2) / X.shape[1]
    assert half.steps[0].scale == pytest.approx(scales[0] * math.sqrt(0.3 / share))


def changes(neighbours, options, row=0, record=None, public=None):
    """Return a fit, and how much of it one record changes where the outputs before are equal."""
    public = public_of(options) if public is None else public
    first = records(options)
    frame = first.drop(index=row)
    if neighbours == "replace_one":
        extreme = WIDE_HIGH if is_wide(options) else HIGH
        frame = replaced(first, row, extreme if record is None else record)
    samplers = [make(neighbours=neighbours, public=public, **options) for _ in range(2)]
    fit = listen(samplers[0], first)
    other = listen(samplers[1], frame, fit.steps)
    # Marginals and their groups follow from the outputs and the public table alone.
    assert fit.asked == other.asked
    vectors, scores = [], []
    for one, two in zip(fit.steps, other.steps, strict=True):
        change = two.value - one.value
        if one.kind == "release":
            vectors.append(np.linalg.norm(change))
        else:
            scores += [np.abs(change).max(), np.ptp(change) / 2]
    return fit, vectors, scores


@pytest.mark.slow
@relations
@kinds
def test_the_sensitivity_is_that_of_a_record(monkeypatch, neighbours, options):
    afford(monkeypatch)
    fit, vectors, scores = changes(neighbours, options)
    assert fit.sampler.privacy_.sensitivity == pytest.approx(most(neighbours))
    assert vectors == pytest.approx([most(neighbours)] * len(vectors))
    assert max(scores, default=0) <= most_of_scores(neighbours) * (1 + 1e-9)
    record = records(options).loc[9].tolist()
    _, vectors, scores = changes(neighbours, options, row=4, record=record)
    assert max(vectors) <= most(neighbours) * (1 + 1e-9)
    assert max(scores, default=0) <= most_of_scores(neighbours) * (1 + 1e-9)


@relations
@pytest.mark.parametrize(
    ("breach", "place"),
    [(counted_twice, -1), (in_two_cells, -1), (levels_forgotten, 0), (read_twice, -1)],
)
def test_more_than_is_stated_would_be_seen(monkeypatch, neighbours, breach, place):
    breach(monkeypatch)
    _, vectors, _ = changes(neighbours, KINDS["pairs of fine columns"])
    assert vectors[place] > 1.1 * most(neighbours)


@relations
def test_public_rows_that_are_counted_as_records_would_be_seen(monkeypatch, neighbours):
    """A breach: exact counts are weighted by the public table, so that a record counts for more."""
    count = _table_sampler.open_records

    def weighted(*args, **options):
        found = count(*args, **options)
        exact = found.marginal_counts
        found.marginal_counts = lambda parts: [1.5 * counts for counts in exact(parts)]
        return found

    monkeypatch.setattr(_table_sampler, "open_records", weighted)
    _, vectors, _ = changes(neighbours, {"marginals": "pairs"})
    assert vectors[-1] > 1.4 * most(neighbours)


# Public tables that differ.


def others():
    """Return public tables of the same columns that have little in common."""
    shuffled = PUBLIC.copy()
    shuffled["job"] = shuffled["job"].to_numpy()[::-1]
    constant = pd.DataFrame([HIGH], columns=list(SCHEMA)).astype(PUBLIC.dtypes)
    return [PUBLIC, shuffled, constant, PUBLIC[:3], X]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pairs", "pairs of fine columns"])
def test_single_columns_take_the_same_noise_whatever_the_public_table(kind):
    fits = [listen(make(public=public, **KINDS[kind]), X) for public in others()]
    first = [fit.steps[0] for fit in fits]
    for step in first[1:]:
        assert_array_equal(step.value, first[0].value)
        assert_array_equal(step.draws, first[0].draws)
        assert_array_equal(step.out, first[0].out)
        assert step.scale == first[0].scale
    # The same marginals are released, whose groups may differ, at the same noise.
    columns = [[[part for part, _ in asked] for asked in fit.asked] for fit in fits]
    scales = [[step.scale for step in fit.steps] for fit in fits]
    assert all(found == columns[0] for found in columns)
    assert all(found == scales[0] for found in scales)
    # The public table is used, so that the fits differ.
    laws = [law_parts(fit.sampler) for fit in fits]
    assert not any(equal_parts(laws[0], law) for law in laws[1:])


def equal_parts(first, second):
    return len(first) == len(second) and all(map(np.array_equal, first, second))


def test_noise_that_depends_on_the_public_table_would_be_seen(monkeypatch):
    """The negative twin: public counts are added before the noise, which is bound to the value."""
    measure = _table_sampler.measure_columns

    def breach(leaves, *args, public=None, **options):
        leaves = {j: counts + public[j] for j, counts in leaves.items()}
        return measure(leaves, *args, public=public, **options)

    monkeypatch.setattr(_table_sampler, "measure_columns", breach)
    one, two = (listen(make(public=public), X).steps[0] for public in others()[:3:2])
    assert not np.array_equal(one.value, two.value)
    assert not np.array_equal(one.draws, two.draws)


# Nothing else is let out.


def told(fit):
    """Return all that a fit lets out."""
    sampler = fit.sampler
    parts = [*law_parts(sampler), sampler.n_records_, fit.warnings, fit.asked]
    if sampler.law_.public is not None:
        parts += [sampler.law_.public.codes, sampler.law_.public.weights]
    for part in (*sampler.one_way_marginals_, *sampler.marginals_):
        parts += [part.columns, *part.groups, part.counts, np.array(part.noise_scale)]
    parts += sampler.public_agreement_ or []
    edges = {name: getattr(c, "edges", None) for name, c in sampler.encoder_.columns_.items()}
    report = sampler.privacy_.to_json()
    return [*parts, edges, report, sampler.sample(9, random_state=0), pickle.dumps(sampler)]


def equal(first, second):
    if isinstance(first, pd.DataFrame):
        return first.equals(second)
    return np.array_equal(first, second) if isinstance(first, np.ndarray) else first == second


def told_by_the_outputs_alone(neighbours, options, epsilon=8.0):
    """Whether another table, of which the same is released and selected, gives the same fit."""
    n = 600 if neighbours == "replace_one" else 450
    other = wide(n, seed=5) if is_wide(options) else table(n, seed=5)
    other = other.assign(job=other["job"].where(other["level"] == 1, "pilot"))
    options = {"neighbours": neighbours, "public": public_of(options)} | options
    first = listen(make(epsilon, **options), records(options))
    try:
        second = listen(make(epsilon, **options), other, first.steps)
    except Unlike:
        return False
    pairs = zip(first.steps, second.steps, strict=False)
    assert not any(np.array_equal(one.value, two.value) for one, two in pairs)
    one, two = told(first), told(second)
    return len(one) == len(two) and all(map(equal, one, two))


@relations
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
@pytest.mark.parametrize("options", [KINDS[name] for name in ("listed", "auto", "target")])
def test_tables_with_equal_outputs_give_equal_fits(neighbours, epsilon, options):
    assert told_by_the_outputs_alone(neighbours, options, epsilon)


# Breaches: private records reach what is made of the public table.


def weights_by_records(monkeypatch):
    found, prior = note_records(monkeypatch), PublicPrior.__init__

    def leak(self, codes, weights, measured):
        turn = int(found[-1]._codes[0].sum()) % len(weights)
        prior(self, codes, np.arange(1, len(weights) + 1.0) + turn, measured)

    monkeypatch.setattr(PublicPrior, "__init__", leak)


def agreement_by_records(monkeypatch):
    found, agree = note_records(monkeypatch), _public_prior.agreements
    monkeypatch.setattr(
        _public_prior,
        "agreements",
        lambda *args: agree(*args) * (1 - 1e-3 * (found[-1]._codes[0].sum() % 7)),
    )


def posterior_of_exact_counts(monkeypatch):
    found, cells, leaves = [], _public_columns.public_cells, _table_sampler.measure_columns

    def watch(exact, *args, **options):
        found[:] = list(exact.values())
        return leaves(exact, *args, **options)

    def leak(tree, noisy, *args):
        exact = next(e for e in found if len(e) == tree.n_values + tree.nullable)
        return cells(tree, tree.counts(exact), *args)

    monkeypatch.setattr(_table_sampler, "measure_columns", watch)
    monkeypatch.setattr("sklearn_dpgen.tables._releases.public_cells", leak)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("leak", "options"),
    [
        (weights_by_records, {}),
        (agreement_by_records, {}),
        (posterior_of_exact_counts, {}),
        (tell_counts, {}),
        (tell_seed, AUTO),
        (tell_gaps, {"marginals": [("age", "job", "pay")]}),
    ],
)
def test_what_tells_more_would_be_seen(monkeypatch, leak, options):
    assert told_by_the_outputs_alone("add_or_remove", options)
    leak(monkeypatch)
    assert not told_by_the_outputs_alone("add_or_remove", options)


def test_the_public_table_is_read_before_a_record(monkeypatch):
    """So that no error or warning of it depends on the records."""
    order = []
    read, opened = PublicTable.read, _table_sampler.open_records

    def watch_public(self, *args):
        order.append("public")
        return read(self, *args)

    def watch_private(*args, **options):
        order.append("private")
        return opened(*args, **options)

    monkeypatch.setattr(PublicTable, "read", watch_public)
    monkeypatch.setattr(_table_sampler, "open_records", watch_private)
    make(public=PUBLIC).fit(X)
    assert order == ["public", "private"]
    order.clear()
    # A table that cannot be read costs nothing, and no record is read.
    with pytest.raises(PublicError, match="public"):
        make(public=PUBLIC[["age"]].rename(columns={"age": "years"})).fit(X)
    assert order == ["public"]


def test_the_public_table_is_not_changed_and_not_kept():
    frame = PUBLIC.copy()
    public = PublicTable(frame)
    sampler = make(public=public).fit(X)
    pd.testing.assert_frame_equal(frame, PUBLIC)
    assert sampler.get_params()["public"] is public
    assert clone(sampler).public is public


# Public tables of any kind.

UNKNOWN = PUBLIC.assign(job="judge")


def weighted(weights):
    return PublicTable(PUBLIC.assign(w=weights), weights="w")


KINDS_OF_PUBLIC = {
    "a row": PUBLIC[:1],
    "two rows": PUBLIC[:2],
    "one column": PUBLIC[["job"]],
    "two columns": PUBLIC[["level", "pay"]],
    "an unknown column": UNKNOWN,
    "a column with one known cell": UNKNOWN.assign(job=["judge"] * 299 + ["nurse"]),
    "one row of weight": weighted(np.eye(300)[7]),
    "weights far apart": weighted(np.geomspace(1e-300, 1e300, 300)),
    "constant": PUBLIC.assign(**dict(zip(SCHEMA, LOW, strict=True))),
    "constant columns": PUBLIC.assign(job="pilot", pay=np.nan, age=3),
    "never private": PUBLIC.assign(job="pilot", level=3, age=99, pay=9.9),
    "texts": PUBLIC.astype({"age": str, "level": str}),
}
FEW = {"population_size": 200, "max_iter": 3}


SETTINGS = {
    "little": {"epsilon": 0.01, "marginals": "auto", "schema": FINE, "n_bins": "auto"},
    "some": {"epsilon": 8.0, "marginals": "pairs"},
    "no noise": {"epsilon": np.inf, "target": "job", "schema": FINE, "n_bins": "auto"},
}


# Each kind has some noise, and little or none in the default run.
EACH_KIND = [
    pytest.param(kind, setting, marks=[pytest.mark.slow] * (j < 2 and i % 2 != j))
    for i, kind in enumerate(KINDS_OF_PUBLIC)
    for j, setting in enumerate(["little", "no noise", "some"])
]


@pytest.mark.filterwarnings("ignore:Column 'job' of the public table")
@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.NoisyCountsWarning")
@pytest.mark.parametrize(("kind", "setting"), EACH_KIND)
def test_public_tables_of_any_kind(kind, setting, tmp_path):
    public, options = KINDS_OF_PUBLIC[kind], SETTINGS[setting]
    sampler = make(public=public, **FEW | options).fit(X)
    drawn = sampler.sample(50, random_state=0)
    assert list(drawn) == list(SCHEMA)
    if "target" in options:
        assert_allclose(sampler.target_law(X[:9]).sum(axis=1), 1, rtol=1e-5)
    kept = sampler.sample(20, conditions={"level": 1}, random_state=0)
    assert (kept["level"] == 1).all()
    sampler.save(tmp_path / "saved.safetensors")
    loaded = sklearn_dpgen.load(tmp_path / "saved.safetensors")
    pd.testing.assert_frame_equal(loaded.sample(50, random_state=0), drawn)
    assert loaded.public_agreement_ == sampler.public_agreement_
    assert loaded.public is None


def test_columns_that_the_public_table_lacks_are_fitted_as_without():
    sampler = make(public=PUBLIC[["job"]]).fit(X)
    place = len(SCHEMA) + list(SCHEMA).index("job")
    for conditional in sampler.law_.conditionals:
        parents = {j for term in conditional.terms for j in term.parents}
        assert parents <= set(range(len(SCHEMA)))
        assert place not in parents
    assert [one.columns for one in sampler.public_agreement_] == [("job",)]


def test_a_public_table_without_noise_and_the_private_counts():
    """Without noise, the marginals are the private ones, whatever the public table."""
    options = {"marginals": [("job", "level")], "population_size": 20_000, "max_iter": 60}
    far = PUBLIC.assign(job="pilot", level=3)
    drawn = make(np.inf, public=far, **options).fit(X).sample(20_000, random_state=0)
    exact = pd.crosstab(X["job"], X["level"], normalize=True)
    found = pd.crosstab(drawn["job"], drawn["level"], normalize=True)
    found = found.reindex_like(exact).fillna(0)
    assert np.abs(found - exact).to_numpy().sum() / 2 < 0.03


def test_dependence_that_is_not_released_is_that_of_the_public_table():
    rng = np.random.default_rng(0)
    names = ["a", "b", "c"]
    schema = Schema({name: Categorical(range(3)) for name in names})

    def frame(n):
        a = rng.integers(3, size=n)
        b, c = (np.where(rng.uniform(size=n) < 0.8, a, rng.integers(3, size=n)) for _ in "bc")
        return pd.DataFrame({"a": a, "b": b, "c": c})

    private, options = frame(3000), {"schema": schema, "marginals": [("a", "b")]}
    options |= {"population_size": 20_000, "max_iter": 30}
    exact = pd.crosstab(private["b"], private["c"], normalize=True).to_numpy()
    errors = {}
    for name, public in {"public": frame(3000), "alone": None}.items():
        drawn = make(4.0, public=public, **options).fit(private).sample(20_000, random_state=0)
        found = pd.crosstab(drawn["b"], drawn["c"], normalize=True).to_numpy()
        errors[name] = np.abs(found - exact).sum() / 2
    assert errors["public"] < 0.06
    assert errors["alone"] > 0.2


RULES = [Implication({"level": 2}, {"job": "nurse"}), Inequality("pay", "age")]


@pytest.mark.parametrize("marginals", ["pairs", [("age", "day")]], ids=str)
def test_rules_hold_whatever_the_public_table_says(marginals):
    # Most public rows break a rule.
    public = PUBLIC.assign(level=2, age=np.arange(300) % 3)
    options = {"constraints": RULES, "marginals": marginals, "population_size": 2000}
    drawn = make(public=public, **options).fit(X).sample(2000, random_state=0)
    assert not ((drawn["level"] == 2) & (drawn["job"] != "nurse")).any()
    assert not (drawn["pay"] > drawn["age"]).any()
    assert (drawn["level"] == 2).any()


def test_identifiers_and_constants_of_the_schema():
    extra = {"who": Identifier(), "site": Categorical(["north"]), "n": Numeric(0, 1 << 16)}
    schema = Schema(dict(SCHEMA) | extra)
    frames = [f.assign(who=range(len(f)), site="north", n=3.5) for f in (X, PUBLIC)]
    sampler = make(schema=schema, public=frames[1], n_bins="auto").fit(frames[0])
    drawn = sampler.sample(30, random_state=0)
    assert drawn["who"].is_unique
    assert set(drawn["site"]) == {"north"}
    assert not any("who" in one.columns for one in sampler.public_agreement_)


@pytest.mark.parametrize(
    "options",
    [
        {"unit": "who"},
        {"unit": "who", "unit_weights": "rows", "max_rows": 2},
        {"target": ["job", "age"], "marginals": "auto", "workload": {"job": 2}},
        {"n_bins": {"age": 7, "pay": 3}},
        {"marginals": [("age",)]},
    ],
    ids=str,
)
def test_settings_beside_a_public_table(options):
    frame = X.assign(who=np.arange(600) // 2) if "unit" in options else X
    sampler = make(public=PUBLIC, **options).fit(frame)
    n_samples = 300 if "unit" in options else 600
    assert sampler.plan(n_samples).to_json() == sampler.privacy_.to_json()
    assert list(sampler.sample(5, random_state=0)) == list(SCHEMA)
    assert set(sampler.sample(50, random_state=0)["job"]) <= set(JOBS)


def test_certified_noise(monkeypatch):
    pytest.importorskip("opendp")
    monkeypatch.setattr(_privacy_plan, "GaussianSequenceMechanism", GaussianSequenceMechanism)
    sampler = make(public=PUBLIC, noise="certified", random_state=None).fit(X)
    assert sampler.plan(600).to_json() == sampler.privacy_.to_json()
    assert sampler.sample(5, random_state=0)["job"].isin(JOBS).all()


# Saved files.


def test_hostile_public_rows_are_refused():
    law = make(public=PUBLIC).fit(X).law_
    law._check_saved_state()
    codes = law.public.codes.copy()
    codes[0, 0] = law.blocks[0].max() + 1
    with pytest.raises(InvalidFileError, match="other columns"):
        replace(law, public=replace(law.public, codes=codes))._check_saved_state()
    with pytest.raises(InvalidFileError, match="sum to one"):
        replace(law.public, weights=2 * law.public.weights)._check_saved_state()


def unpicklable():
    """Return a source of the rows that no hash of objects takes."""

    class Chunks:
        def __init__(self):
            self.held = lambda: None

        def __iter__(self):
            yield PUBLIC[:100]
            yield PUBLIC[100:]

    return Chunks()


def test_equal_tables_give_equal_fits():
    """Noise does not depend on the form of the public table, which may be one without a pickle."""
    forms = [PUBLIC.copy(), weighted(np.full(300, 7.0)), PUBLIC[[*SCHEMA][::-1]], unpicklable()]
    first = make(public=PUBLIC).fit(X).law_
    for public in forms:
        other = make(public=public).fit(X).law_
        for one, two in zip(first.conditionals, other.conditionals, strict=True):
            assert_allclose(one.base, two.base, rtol=1e-6)


def test_without_a_public_table_nothing_is_told():
    sampler = make().fit(X)
    assert not hasattr(sampler, "public_agreement_")
    assert sampler.law_.public is None
    # A fit once more forgets the public table of the one before.
    sampler = make(public=PUBLIC).fit(X).set_params(public=None).fit(X)
    assert not hasattr(sampler, "public_agreement_")
    assert TableSampler(1.0, schema=SCHEMA).public is None
