"""RelationalSampler: what one person with all rows changes, where all earlier releases are equal.

The bounds are those of persons: the vector that gets noise changes by at most 1 in l2 norm if a
person is added, √2 if a person is replaced; a score by at most 1, or 2. They are written here, and
not read from the sampler.
"""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sampler_tables import MECHANISM, exact_delta, most, most_of_scores

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.schema import (
    Categorical,
    Datetime,
    Numeric,
    Ordinal,
    RelationalSchema,
    Schema,
    Table,
)
from sklearn_dpgen.tables import (
    RelationalSampler,
    _person_plan,
    _person_rows,
    _privacy_plan,
    _releases,
)
from sklearn_dpgen.tables._person_counts import _LAST, PersonRecords
from sklearn_dpgen.tables._table_counter import WHOLE
from sklearn_dpgen.utils._random import NoiseObserver, observed_noise

pytestmark = pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.NoisyCountsWarning")
relations = pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove"])

EPSILON, DELTA = 20.0, 1e-5
WARDS = pd.DataFrame({"ward": list("abcdef"), "beds": [5, 30, 30, 12, 30, 30]})
TREE = RelationalSchema(
    {
        "persons": Table(
            Schema({"sex": Categorical(["f", "m"], nullable=True), "born": Ordinal([1, 2, 3, 4])}),
            primary_key="person",
        ),
        "stays": Table(
            Schema(
                {
                    "day": Datetime("2020-01-01", "2020-01-31", resolution="D"),
                    "cost": Numeric(0, 100, integer=True, nullable=True),
                }
            ),
            primary_key="stay",
            foreign_key={"person": "persons"},
            sequence_index="day",
            max_rows=4,
            aggregates=["cost"],
        ),
        "drugs": Table(
            Schema({"drug": Categorical(["a", "b", "c"], nullable=True)}),
            primary_key="dose",
            foreign_key={"stay": "stays"},
            max_rows=3,
            aggregates=["drug"],
        ),
        "calls": Table(
            Schema({"hour": Numeric(0, 23, integer=True), "ok": Categorical([0, 1])}),
            foreign_key={"person": "persons", "ward": "wards"},
            sequence_index="hour",
            max_rows=4,
            aggregates=["ok"],
        ),
        "wards": Table(
            Schema({"beds": Numeric(0, 50, integer=True)}), primary_key="ward", frame=WARDS
        ),
    }
)
PANEL = Table(
    Schema(
        {
            "sex": Categorical(["f", "m"], nullable=True),
            "year": Numeric(2000, 2009, integer=True),
            "pay": Numeric(0, 100, integer=True, nullable=True),
            "state": Ordinal([1, 2, 3], nullable=True),
        }
    ),
    primary_key="person",
    sequence_index="year",
    max_rows=5,
    static=["sex"],
    aggregates=["pay", "state"],
)
DAY = pd.Timestamp("2020-01-01")


@pytest.fixture(autouse=True)
def hasten(monkeypatch):
    """Calibrate each plan once, and leave out what only a fit to the releases needs."""
    monkeypatch.setattr(_privacy_plan, "GaussianSequenceMechanism", MECHANISM)
    monkeypatch.setattr(_releases, "_ridges", lambda residuals, *args: np.ones(residuals.shape))


@pytest.fixture(params=["all pairs", "selected pairs"])
def plan(request, monkeypatch):
    """Release all pairs, or select some."""
    if request.param == "selected pairs":
        monkeypatch.setattr(_person_plan, "_MOST_PAIRS", 3)
    return request.param


# ---- persons ----

# A person is a dict of rows by table, without keys: rows of drugs follow those of their stay.
NULL = None


def person(sex="f", born=1, stays=(), calls=()):
    """Return a person of the tree: stays are (day, cost, drugs), calls are (hour, ok)."""
    return {"root": [(sex, born)], "stays": list(stays), "calls": list(calls)}


def low(n_stays=1, n_drugs=1, n_calls=1):
    return person("f", 1, [(0, 0.0, ["a"] * n_drugs)] * n_stays, [(0, 0)] * n_calls)


def high(n_stays=1, n_drugs=1, n_calls=1):
    return person("m", 4, [(30, 100.0, ["c"] * n_drugs)] * n_stays, [(23, 1)] * n_calls)


NULLS = person(NULL, 4, [(3, NULL, [NULL] * 3)] * 3, [(0, 0)])
NASTY = {
    "no rows": person(),
    "one row of each": low(),
    "other rows": high(),
    "many equal rows": high(100, 100, 10_000),
    "many rows of one stay": low(1, 10_000, 2),
    "many rows of one stay alone": low(1, 10_000, 1),
    "many stays of one row": high(10_000, 1, 0),
    "stays without drugs": low(7, 0, 0),
    "nulls": NULLS,
    "ties": person(
        "m", 2, [(5, 50.0, ["b"]), (5, 50.0, []), (5, 1.0, ["a"])], [(7, 1), (7, 0)] * 3
    ),
    "out of order": person(
        "f", 3, [(9, 1.0, []), (2, 99.0, ["c"]), (20, 3.0, [])], [(9, 1), (1, 0)]
    ),
    "two root rows": person("f", 1, [(1, 2.0, ["a"])]) | {"root": [("f", 1), ("m", 4)]},
    "two stays of one key": high(2, 2, 0) | {"stay_keys": ["same", "same"]},
    "a stay without a key": high(2, 2, 0) | {"stay_keys": ["x", NULL]},
    "calls under a wrong key": low(1, 1, 5) | {"call_keys": ["nobody", "p", NULL, "p", "p"]},
    "all calls under wrong keys": low(1, 1, 5) | {"call_keys": ["nobody"] * 5},
}
# Persons that are not there as far as the root tells.
MISSING = {
    "a missing root row": high(3, 2, 4) | {"root": []},
    "a root row of another key": low(1, 1, 2) | {"root_key": NULL},
}


def others(n=150, seed=0):
    """Return persons of 0 to 3 rows in each table, most of one."""
    rng = np.random.default_rng(seed)
    return [
        person(
            rng.choice(["f", "m"]),
            int(rng.integers(1, 5)),
            [
                (
                    int(rng.integers(31)),
                    float(rng.integers(100)),
                    list(rng.choice(["a", "b", "c"], rng.integers(3))),
                )
                for _ in range(rng.choice(4, p=[0.1, 0.6, 0.2, 0.1]))
            ],
            [(int(rng.integers(24)), int(rng.integers(2))) for _ in range(rng.choice(3))],
        )
        for _ in range(n)
    ]


OTHERS = others()


def tables_of(people, seed=None):
    """Return the tables of some persons; a seed shuffles the rows of each table."""
    rows = {"persons": [], "stays": [], "drugs": [], "calls": []}
    for i, one in enumerate(people):
        own = f"p{i}"
        rows["persons"] += [(one.get("root_key", own), *root) for root in one["root"]]
        keys = one.get("stay_keys", range(len(one["stays"])))
        for key, (day, cost, drugs) in zip(keys, one["stays"], strict=True):
            stay = None if key is None else f"{own} {key}"
            rows["stays"].append((stay, own, DAY + pd.Timedelta(days=day), cost))
            rows["drugs"] += [(f"{stay} {j}", stay, drug) for j, drug in enumerate(drugs)]
        keys = one.get("call_keys", ["p"] * len(one["calls"]))
        keys = [own if key == "p" else key for key in keys]
        rows["calls"] += [
            (key, hour, ok, "abcdef"[(2 * hour + ok) % 6])
            for key, (hour, ok) in zip(keys, one["calls"], strict=True)
        ]
    names = {
        "persons": ["person", "sex", "born"],
        "stays": ["stay", "person", "day", "cost"],
        "drugs": ["dose", "stay", "drug"],
        "calls": ["person", "hour", "ok", "ward"],
    }
    frames = {name: pd.DataFrame(rows[name], columns=names[name]) for name in names}
    if seed is None:
        return frames
    return {name: f.sample(frac=1, random_state=seed) for name, f in frames.items()}


def panel_of(people, seed=None):
    """Return the panel of some persons: their stays as rows; those without are in none."""
    rows = [
        (f"p{i}", one["root"][0][0], 2000 + day * 9 // 30, cost, (day % 3 + 1) if cost else None)
        for i, one in enumerate(people)
        for day, cost, _ in one["stays"]
    ]
    frame = pd.DataFrame(rows, columns=["person", "sex", "year", "pay", "state"])
    return frame if seed is None else frame.sample(frac=1, random_state=seed)


KINDS = {"tree": (TREE, tables_of), "panel": (PANEL, panel_of)}
kinds = pytest.mark.parametrize("kind", KINDS)
TARGETS = {"tree": ["stays.cost", "persons.born"], "panel": "pay"}


# ---- releases ----


class Steps(NoiseObserver):
    """Keeps what noise is added to, and lets out what an earlier fit did."""

    def __init__(self, earlier=None):
        self.values, self.outcomes, self.scales, self.kinds = [], [], [], []
        self._earlier = earlier

    def added(self, values, scale, kind, noisy):
        return self._note("release", values, scale, noisy)

    def selected(self, scores, scale, indices):
        return self._note("select", scores, scale, indices)

    def _note(self, kind, values, scale, outcome):
        place = len(self.values)
        if self._earlier is not None:
            assert self._earlier.kinds[place] == kind
            assert self._earlier.values[place].shape == values.shape
            assert self._earlier.scales[place] == scale
            outcome = self._earlier.outcomes[place]
        self.values.append(values.copy())
        self.scales.append(scale)
        self.kinds.append(kind)
        self.outcomes.append(outcome.copy())
        return outcome.copy()


def released(kind, neighbours, people, earlier=None, seed=None):
    """Return the steps of a release of some persons."""
    schema, made, *target = KINDS[kind]
    sampler = RelationalSampler(EPSILON, DELTA, schema=schema, neighbours=neighbours, device="cpu")
    sampler.set_params(target=target[0] if target else None)
    records, facts = sampler._read(made(people, seed), seed=None)
    plan = sampler._plan(**facts)
    with observed_noise(Steps(earlier)) as steps:
        sampler._release(plan, records, None)
    assert earlier is None or steps.kinds == earlier.kinds
    return steps


def change(first, second):
    """Return the l2 change of each release, and the largest change of scores."""
    vectors, scores = [], [0.0]
    for kind, a, b in zip(first.kinds, first.values, second.values, strict=True):
        if kind == "release":
            vectors.append(np.linalg.norm(a - b))
        else:
            scores += [np.abs(a - b).max(), np.ptp(a - b) / 2]
    return np.array(vectors), max(scores)


def placed(one, position):
    """Return the other persons and one more, at a position among them."""
    return [*OTHERS[:position], one, *OTHERS[position:]]


def steps_of(kind, neighbours, people):
    """Return the steps of each of some persons beside the others, with equal outcomes."""
    first = released(kind, neighbours, placed(high(), 40))
    return {n: released(kind, neighbours, placed(one, 40), first) for n, one in people.items()}


def worst(kind, neighbours, people=NASTY):
    """Return the largest change of each release, and of a score, by some persons."""
    found = steps_of(kind, neighbours, people)
    if neighbours == "add_or_remove":
        first = next(iter(found.values()))
        others = [released(kind, neighbours, OTHERS, first)]
    else:
        others = list(found.values())
    changes = [change(a, b) for a in found.values() for b in others]
    return np.max([v for v, _ in changes], axis=0), max(s for _, s in changes)


def in_panel(people):
    """Return the persons that have rows in a panel."""
    return {name: one for name, one in people.items() if one["stays"]}


def nasty(kind, neighbours):
    people = NASTY | (MISSING if neighbours == "add_or_remove" else {})
    people = {n: one for n, one in people.items() if kind == "tree" or one["root"]}
    return people if kind == "tree" else in_panel(people)


@pytest.mark.slow
@relations
@kinds
@pytest.mark.parametrize("has_target", [False, True])
def test_a_person_changes_each_release_by_what_is_priced(
    monkeypatch, kind, neighbours, has_target, plan
):
    if has_target:
        monkeypatch.setitem(KINDS, kind, (*KINDS[kind], TARGETS[kind]))
    n_releases = 3 + (has_target and plan == "selected pairs")
    attained, highest = np.zeros(n_releases, dtype=bool), 0.0
    # Noise chooses the cells, so that persons who differ can rarely share some.
    for _ in range(4):
        vectors, scores = worst(kind, neighbours, nasty(kind, neighbours))
        assert len(vectors) == n_releases
        # Never exceeded, and attained by persons of one row, or of many equal rows.
        assert (vectors <= most(neighbours) * (1 + 1e-9)).all()
        assert scores <= most_of_scores(neighbours) * (1 + 1e-9)
        attained |= vectors >= 0.95 * most(neighbours)
        highest = max(highest, scores)
        selects = highest > 0.5 * most_of_scores(neighbours)
        if attained.all() and selects == (plan == "selected pairs"):
            break
    assert attained.all()
    assert selects == (plan == "selected pairs")


@relations
@pytest.mark.parametrize("target", [None, "stays.cost"])
def test_what_is_released_costs_the_budget(monkeypatch, neighbours, target, plan):
    monkeypatch.setitem(KINDS, "tree", (TREE, tables_of, target))
    steps = released("tree", neighbours, OTHERS)
    scales = [s for kind, s in zip(steps.kinds, steps.scales, strict=True) if kind == "release"]
    choices = [
        (s, o)
        for kind, s, o in zip(steps.kinds, steps.scales, steps.outcomes, strict=True)
        if kind == "select"
    ]
    assert len(choices) == (plan == "selected pairs")
    mu = most(neighbours) * math.sqrt(sum(scale**-2.0 for scale in scales))
    epsilon0 = max([2 * most_of_scores(neighbours) / scale for scale, _ in choices], default=1.0)
    n = sum(len(outcome) for _, outcome in choices)
    assert 0.98 * DELTA < exact_delta(EPSILON, mu, epsilon0, n) <= DELTA * (1 + 1e-3)


def added(kind, one, people, base):
    """Return what a person adds to the vectors that are released of other persons."""
    steps = [released(kind, "add_or_remove", p, base) for p in (people, [*people, one])]
    return [b - a for a, b in zip(*(s.values for s in steps), strict=True)]


def depends_on_others(kind, names, apart=1e-9):
    """Return whether what some persons add depends on who else is there, or is negative."""
    base = released(kind, "add_or_remove", OTHERS)
    crowds = [*OTHERS, low(2, 2, 2)], [*others(90, seed=1), high(3, 3, 3)]
    for name in names:
        parts = [added(kind, NASTY[name], people, base) for people in crowds]
        for one, other in zip(*parts, strict=True):
            if (one < -apart).any() or (np.abs(one - other) > apart).any():
                return True
    return False


@pytest.mark.slow
@kinds
def test_what_a_person_adds_depends_on_nobody_else(kind):
    assert not depends_on_others(kind, NASTY if kind == "tree" else in_panel(NASTY))


@kinds
def test_who_is_not_there_changes_nothing(kind):
    """Rows without a person, and persons whose row in the root is missing."""
    base = released(kind, "add_or_remove", OTHERS)
    people = MISSING if kind == "tree" else {"no rows": person()}
    for one in people.values():
        vectors, _ = change(base, released(kind, "add_or_remove", placed(one, 40), base))
        assert (vectors == 0).all()


days = st.integers(0, 30)
costs = st.one_of(st.none(), st.sampled_from([0.0, 50.0, 100.0]))
drugs = st.lists(st.sampled_from(["a", "b", None]), max_size=4)
stays = st.lists(st.tuples(days, costs, drugs), min_size=1, max_size=5)
calls = st.lists(st.tuples(st.integers(0, 23), st.integers(0, 1)), max_size=5)
repeats = st.sampled_from([1, 1, 1, 2, 50])
persons = st.builds(
    lambda sex, born, stays, calls, n, shared: (
        person(sex, born, stays * n, calls * n)
        | ({"stay_keys": [i // 2 for i in range(n * len(stays))]} if shared else {})
    ),
    st.sampled_from(["f", "m", None]),
    st.integers(1, 4),
    stays,
    calls,
    repeats,
    st.booleans(),
)


@pytest.mark.slow
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(first=persons, second=persons, kind=st.sampled_from(list(KINDS)), at=st.integers(0, 150))
def test_no_person_changes_more(first, second, kind, at):
    base = released(kind, "replace_one", placed(first, at))
    vectors, scores = change(base, released(kind, "replace_one", placed(second, at), base))
    assert (vectors <= math.sqrt(2) * (1 + 1e-9)).all()
    base = released(kind, "add_or_remove", placed(first, at))
    vectors, scores = change(base, released(kind, "add_or_remove", OTHERS, base))
    assert (vectors <= 1 + 1e-9).all()


@pytest.mark.slow
@kinds
@pytest.mark.parametrize("seed", [0, 1])
def test_the_order_of_rows_in_a_file_changes_nothing(kind, seed, plan):
    people = [*OTHERS, *in_panel(NASTY).values()]
    base = released(kind, "add_or_remove", people)
    again = released(kind, "add_or_remove", people, base, seed)
    assert all(map(np.array_equal, base.values, again.values))


@pytest.mark.slow
@kinds
def test_a_person_changes_a_score_of_a_search_by_one_over_the_number(monkeypatch, kind):
    """The score is the mean of one minus distances, of which each changes by so much."""
    schema, made = KINDS[kind][:2]
    sampler = RelationalSampler(schema=schema)
    monkeypatch.setattr(sampler, "sample", lambda n, random_state: made([low()] * 20))
    # Few have rows in other tables than the root, of which a panel has none.
    crowd = [low(), *([person()] * 3 if kind == "tree" else [high()])]
    people = [made([*crowd, one]) for one in nasty(kind, "replace_one").values()]
    n = len(crowd) + 1
    distances = np.array([sampler._distances(tables, with_absent=True) for tables in people])
    # Persons without rows, or with other rows, attain the bound.
    assert n * np.ptp(distances, axis=0).max() == pytest.approx(1)
    scores = [sampler._bounded_score(tables) for tables in people]
    np.testing.assert_allclose(scores, 1 - distances.mean(axis=1))
    if kind == "tree":
        # The twin: of few persons with rows each weighs more in the score itself.
        distances = np.array([sampler._distances(tables) for tables in people])
        assert n * np.ptp(distances, axis=0).max() > 1.5


# ---- broken variants ----


def rows_weigh_one(monkeypatch):
    monkeypatch.setattr(
        _person_rows, "_path", lambda parent, path: np.ones(len(parent), dtype=np.int64)
    )


def weights_of_the_parent_alone(monkeypatch):
    path = _person_rows._path
    monkeypatch.setattr(
        _person_rows, "_path", lambda parent, above: path(parent, np.ones_like(above))
    )


def weights_rounded_up(monkeypatch):
    """With three rows a person weighs more than one by rounding alone."""
    ordered = _person_rows._in_order

    def rounded(*args):
        return [(r, p, w + (w < WHOLE)) for r, p, w in ordered(*args)]

    monkeypatch.setattr(_person_rows, "_in_order", rounded)


def memory_of_others(monkeypatch):
    use_blocks = PersonRecords.use_blocks

    def joined(self, maps, ratios):
        kept = self._parents
        self._parents = [p if p is None else np.zeros_like(p) for p in kept]
        use_blocks(self, maps, ratios)
        self._parents = kept

    monkeypatch.setattr(PersonRecords, "use_blocks", joined)


def gaps_to_others(monkeypatch):
    """The first row of a person has a gap to the row before, of another person."""
    derive = PersonRecords._derive

    def joined(self, own, parent, n_parents):
        derive(self, own, parent, n_parents)
        if own.index is not None:
            index = self._codes[own.index].astype(np.int64)
            self._codes[own.gap] = np.abs(np.diff(index, prepend=0))

    monkeypatch.setattr(PersonRecords, "_derive", joined)


def last_of_all(monkeypatch):
    """The last row of a person is that of all persons."""
    derive = PersonRecords._derive

    def joined(self, own, parent, n_parents):
        derive(self, own, parent, n_parents)
        slots = self._codes[own.slot]
        slots[slots == _LAST] = _LAST - 1
        slots[-1:] = _LAST

    monkeypatch.setattr(PersonRecords, "_derive", joined)


def aggregates_of_all(monkeypatch):
    """The aggregate of a person is that of the rows of all persons."""
    aggregated = PersonRecords._aggregated

    def joined(self, source, aggregate, parent, n_parents):
        return aggregated(self, source, aggregate, parent * 0, n_parents)[:1].repeat(n_parents)

    monkeypatch.setattr(PersonRecords, "_aggregated", joined)


def numbers_of_all(monkeypatch):
    """Each person has as many rows as all together."""
    path = _person_rows._path
    monkeypatch.setattr(
        _person_rows, "_path", lambda parent, above: path(np.zeros_like(parent), above)
    )


def joined_of_others(monkeypatch):
    """The columns of the public table are those of the row before, of any person."""
    start = PersonRecords.__init__

    def shifted(self, layout, rows):
        start(self, layout, rows)
        self._codes.update({j: np.roll(self._codes[j], 1) for j in layout.joined})

    monkeypatch.setattr(PersonRecords, "__init__", shifted)


def a_join_that_repeats_rows(monkeypatch):
    """A row is joined with each public row that has the same columns."""
    leaves = PersonRecords.leaves

    def repeated(self, j):
        groups = self._layout.joined.get(j)
        return leaves(self, j) * (1 if groups is None else np.bincount(groups))

    monkeypatch.setattr(PersonRecords, "leaves", repeated)


def divided_by_rows(monkeypatch):
    count, leaves = PersonRecords.marginal_counts, PersonRecords.leaves

    def shares(self):
        n_rows = sum(map(len, self._weights))
        return 300 / n_rows

    monkeypatch.setattr(
        PersonRecords, "marginal_counts", lambda self, m: [shares(self) * t for t in count(self, m)]
    )
    monkeypatch.setattr(PersonRecords, "leaves", lambda self, j: shares(self) * leaves(self, j))


def persons_counted_by_rows(monkeypatch):
    """The persons of a table of rows weigh what their rows do."""
    start = PersonRecords.__init__

    def wrong(self, layout, rows):
        start(self, layout, rows)
        self._weights[0] = self._weights[0] * np.bincount(rows[1].parent, minlength=self.n_records)

    monkeypatch.setattr(PersonRecords, "__init__", wrong)


def repeated_roots(monkeypatch):
    """Each of several rows of the root with one key is a person."""
    monkeypatch.setattr(_person_rows, "_distinct", lambda read, rows, parent, key: rows)
    monkeypatch.setattr(_person_rows, "_row_of", lambda keys, n: _last_of(keys, n))


def _last_of(keys, n_keys):
    positions = np.full(n_keys, -1)
    positions[keys] = np.arange(len(keys))
    return positions


BREACHES = [
    (rows_weigh_one, "tree", ["many rows of one stay"], 100),
    (rows_weigh_one, "panel", ["many stays of one row"], 100),
    (weights_of_the_parent_alone, "tree", ["many stays of one row"], 100),
    (weights_rounded_up, "tree", ["many rows of one stay alone"], 1 + 1e-7),
    (a_join_that_repeats_rows, "tree", ["many equal rows"], 1.1),
    (divided_by_rows, "tree", ["many equal rows"], 3),
    (persons_counted_by_rows, "tree", ["stays without drugs"], 2),
    (repeated_roots, "tree", ["two root rows"], 1.1),
]


@pytest.mark.slow
@pytest.mark.parametrize(("breach", "kind", "names", "excess"), BREACHES)
def test_a_person_that_changes_more_is_caught(monkeypatch, breach, kind, names, excess):
    people = {name: NASTY[name] for name in names}
    vectors, _ = worst(kind, "add_or_remove", people)
    assert vectors.max() <= 1 + 1e-9
    breach(monkeypatch)
    vectors, _ = worst(kind, "add_or_remove", people)
    assert vectors.max() > excess


@kinds
def test_targets_that_are_not_paid_for_are_caught(monkeypatch, kind):
    """The weights of targets have to count in the norm of the vector that is released."""
    monkeypatch.setitem(KINDS, kind, (*KINDS[kind], TARGETS[kind]))
    paid = _releases.noise_factors

    def unpaid(weights, n_levels=1):
        return paid(np.minimum(weights, 1), n_levels) / np.maximum(weights, 1)

    monkeypatch.setattr(_releases, "noise_factors", unpaid)
    vectors, _ = worst(kind, "add_or_remove", {"one row of each": low(), "other rows": high()})
    assert vectors.max() > 1.2


@pytest.mark.parametrize(
    "breach",
    [memory_of_others, gaps_to_others, last_of_all, aggregates_of_all, numbers_of_all],
)
@kinds
def test_what_depends_on_others_is_caught(monkeypatch, breach, kind):
    breach(monkeypatch)
    assert depends_on_others(kind, ["other rows", "ties"])


@pytest.mark.slow
def test_joined_columns_of_others_are_caught(monkeypatch):
    joined_of_others(monkeypatch)
    assert depends_on_others("tree", ["other rows", "ties"])


def test_an_order_by_position_is_caught(monkeypatch):
    def as_read(parent, index, tree, number):
        order = np.lexsort((parent if index is None else index, parent))
        return order, tree[order]

    monkeypatch.setattr(_person_rows, "_ordered", as_read)
    with pytest.raises(AssertionError):
        test_the_order_of_rows_in_a_file_changes_nothing("panel", 0, "all pairs")


def test_half_the_sensitivity_is_caught(monkeypatch):
    # As if a person were one row of several.
    monkeypatch.setattr(
        _privacy_plan.MarginalsPlan, "sensitivity", property(lambda self: self.most)
    )
    with pytest.raises(AssertionError):
        test_what_is_released_costs_the_budget(monkeypatch, "replace_one", None, "all pairs")


@pytest.mark.slow
def test_certified_selections_have_a_most_number_of_persons(monkeypatch):
    pytest.importorskip("opendp")
    # Plans of certified noise have lists, which no cache holds.
    monkeypatch.undo()
    monkeypatch.setattr(_person_plan, "_MOST_PAIRS", 3)
    sampler = RelationalSampler(EPSILON, 1e-9, schema=TREE, noise="certified")
    most_persons = sampler.plan(1000).max_records
    assert sampler.plan(most_persons).max_records == most_persons
    with pytest.raises(PublicValueError, match=f"n_samples must be at most {most_persons}"):
        sampler.plan(most_persons + 1)
    # Without noise that is certified there is no bound, and without selections neither.
    assert RelationalSampler(EPSILON, 1e-9, schema=TREE).plan(most_persons + 1)
    monkeypatch.undo()
    assert sampler.plan(most_persons + 1).max_records is None
