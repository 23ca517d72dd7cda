"""Whether records break a rule tells nothing: they are counted as they are, and named by nobody."""

import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from rule_tables import breaks
from sampler_breaches import keep_records
from sampler_tables import (
    HIGH,
    LOW,
    SCHEMA,
    hasten,
    law_parts,
    listen,
    make,
    most,
    replaced,
    same,
    table,
)

from sklearn_dpgen.evolution import PrivateEvolutionSampler
from sklearn_dpgen.mechanisms import JointRandomizedResponse, TabularMechanism
from sklearn_dpgen.schema import (
    Categorical,
    FunctionalDependency,
    Identifier,
    Implication,
    Inequality,
    Numeric,
    Schema,
    Sum,
)
from sklearn_dpgen.tables import (
    LocalTableSampler,
    _releases,
    _table_sampler,
)
from sklearn_dpgen.tables._conditional_sampling import RecordSampler
from sklearn_dpgen.tables._records import encode_codes
from sklearn_dpgen.tables._table_rules import _Lookup

hasten = pytest.fixture(autouse=True)(hasten)
relations = pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove"])
# The record that is put in breaks both, and so do many others.
RULES = [Implication({"level": 3}, {"job": "baker"}), Inequality("age", "pay")]
X = table()
assert all(breaks(dict(zip(SCHEMA, HIGH, strict=True)), rule) for rule in RULES)
assert not any(breaks(dict(zip(SCHEMA, LOW, strict=True)), rule) for rule in RULES)


def is_broken(frame):
    return np.array([any(breaks(r, rule) for rule in RULES) for r in frame.to_dict("records")])


def changes(neighbours, row=0, **options):
    """Return two fits to neighbours, and by how much each release differs.

    The record in the row fulfils all rules; the other table lacks it, or has one that breaks them.
    """
    other = X.drop(index=row) if neighbours == "add_or_remove" else replaced(X, row, HIGH)
    options = {"constraints": RULES, "neighbours": neighbours} | options
    first = listen(make(**options), X)
    second = listen(make(**options), other, first.steps)
    steps = zip(first.steps, second.steps, strict=True)
    return first, second, [np.linalg.norm(one.value - two.value) for one, two in steps]


def dropped(frame):
    """Drop records that break a rule."""
    return frame[~is_broken(frame)]


def repaired(frame):
    """Take the last record that breaks none in the place of one that does."""
    places = np.where(is_broken(frame), 0, np.arange(len(frame)))
    return frame.iloc[np.maximum.accumulate(places)]


def on_records(monkeypatch, change):
    """Let a fit change its records by whether they break a rule."""
    read = _table_sampler.open_records
    monkeypatch.setattr(
        _table_sampler,
        "open_records",
        lambda X, *args, **options: read(change(X), *args, **options),
    )


@pytest.mark.slow
@relations
@pytest.mark.parametrize("n_bins", [4, "auto"])
def test_a_record_that_breaks_rules_counts_as_any_other(neighbours, n_bins):
    first, second, vectors = changes(neighbours, n_bins=n_bins)
    assert vectors == pytest.approx([most(neighbours)] * len(vectors))
    assert first.sampler.privacy_.to_json() == second.sampler.privacy_.to_json()
    # The same was released, so all the rest is the same too.
    assert told(first) == told(second)


def told(fit):
    """Return all that a fit lets out, and all that it keeps."""
    sampler = fit.sampler
    return pickle.dumps(sampler), fit.warnings, sampler.acceptance_rate()


def note_records(monkeypatch):
    """Return a list that collects the records of each fit."""
    found = []
    on_records(monkeypatch, lambda frame: found.append(frame) or frame)
    return found


def tell_the_share_of_records(monkeypatch):
    found = note_records(monkeypatch)
    monkeypatch.setattr(
        RecordSampler, "acceptance_rate", lambda rows: 1 - float(is_broken(found[-1]).mean())
    )


def bar_no_cell_of_a_record(monkeypatch):
    found, bar = note_records(monkeypatch), _table_sampler.barred_pairs

    def leak(rules, encoder, blocks):
        codes, barred = encode_codes(found[-1], encoder).columns, bar(rules, encoder, blocks)
        for columns, cells in barred.items():
            cells[tuple(blocks[j][codes[j]] for j in columns)] = False
        return barred

    monkeypatch.setattr(_table_sampler, "barred_pairs", leak)


def look_up_what_a_record_has(monkeypatch):
    found, look_up = note_records(monkeypatch), _Lookup.__call__

    def leak(self, frame):
        values, kept = look_up(self, frame)
        return values, kept & frame["job"].isin(found[-1]["job"]).to_numpy()

    monkeypatch.setattr(_Lookup, "__call__", leak)


@pytest.mark.slow
@pytest.mark.parametrize(
    "leak",
    [
        keep_records,
        tell_the_share_of_records,
        bar_no_cell_of_a_record,
        look_up_what_a_record_has,
    ],
)
def test_rules_that_follow_the_records_would_be_seen(monkeypatch, leak):
    """No other record is a pilot, or has what is put in."""
    rules = [*RULES, FunctionalDependency("level", "job", {"baker": 3, "nurse": 2, "pilot": 1})]
    for neighbours in ("replace_one", "add_or_remove"):
        # A table with the record, and one with another or without.
        frames = replaced(X, 0, HIGH), X if neighbours == "replace_one" else X.drop(index=0)
        # With this seed the noisy share of pilots is positive.
        options = {"constraints": rules, "neighbours": neighbours, "random_state": 3}

        def are_alike(frames=frames, options=options):
            first = listen(make(**options), frames[0])
            before = told(first)
            return before == told(listen(make(**options), frames[1], first.steps))

        assert are_alike()
        with monkeypatch.context() as patch:
            leak(patch)
            assert not are_alike()


@pytest.mark.slow
def test_records_that_are_repaired_would_be_seen(monkeypatch):
    """Where one breaks no rule, those after it that do take its values."""
    crowd = pd.concat([X[~is_broken(X)], replaced(X, slice(0, 99), HIGH)[:100]])
    monkeypatch.setattr("test_rule_privacy.X", crowd.reset_index(drop=True))
    last = len(crowd) - 101
    for neighbours in ("replace_one", "add_or_remove"):
        _, _, honest = changes(neighbours, row=last)
        assert max(honest) <= most(neighbours) * (1 + 1e-9)
        with monkeypatch.context() as patch:
            on_records(patch, repaired)
            _, _, vectors = changes(neighbours, row=last)
        assert max(vectors) > 5 * most(neighbours)


def test_records_that_are_dropped_would_be_seen(monkeypatch):
    """The number of records is public, and would tell how many break a rule."""
    on_records(monkeypatch, dropped)
    first, second, vectors = changes("replace_one")
    assert first.sampler.n_records_ == second.sampler.n_records_ + 1
    assert vectors != pytest.approx([most("replace_one")] * len(vectors))


def test_reports_of_records_would_be_seen(monkeypatch):
    def report(frame):
        if is_broken(frame).sum() > is_broken(X).sum():
            warnings.warn("Records break constraints.", UserWarning, stacklevel=2)
        return frame

    on_records(monkeypatch, report)
    first, second, _ = changes("replace_one")
    assert first.warnings != second.warnings


COMPUTED = Schema(
    dict(SCHEMA)
    | {
        "id": Identifier("x"),
        "sum": Numeric(0, 200, nullable=True),
        "group": Categorical(["a", "b"]),
    }
)
COMPUTE = [
    Sum("sum", ["age", "pay"]),
    FunctionalDependency("group", "job", {"baker": "a", "nurse": "b", "pilot": "b"}),
]


class Secret:
    """What cannot be looked at."""

    def __eq__(self, other):
        raise AssertionError("It was read.")

    __hash__ = __str__ = __repr__ = __float__ = __bool__ = __eq__


def test_what_is_made_up_is_never_read():
    plain = X.assign(id="me", sum=3.0, group="a")
    hidden, empty = plain.copy(), plain.copy()
    for name in ("id", "sum", "group"):
        hidden[name] = pd.Series([Secret() for _ in range(len(X))], dtype=object)
        # Not even whether there are nulls, which "group" is not declared to have.
        empty[name] = None
    options = {"schema": COMPUTED, "constraints": COMPUTE}
    fits = [make(**options).fit(frame) for frame in (plain, hidden, empty)]
    frames = [sampler.sample(50, random_state=0) for sampler in fits]
    for i in (1, 2):
        assert same(fits[0], fits[i])
        pd.testing.assert_frame_equal(frames[0], frames[i])
    assert (frames[0]["sum"].dropna() == (frames[0]["age"] + frames[0]["pay"]).dropna()).all()
    # Without the rules the columns are read; an identifier is not.
    with pytest.raises((AssertionError, ValueError)):
        make(schema=COMPUTED).fit(hidden)
    with pytest.raises(ValueError, match="'group' has missing values"):
        make(schema=COMPUTED).fit(empty.assign(sum=3.0))
    make(schema=COMPUTED).fit(plain.assign(id=hidden["id"]))


@pytest.mark.slow
@relations
def test_nothing_is_spent_on_what_is_made_up(neighbours):
    def spent(schema, constraints):
        """Return the noise of all releases, and of the counts of each column."""
        release, factors = _releases.release_singles, []

        def watch(*args):
            counts, found = release(*args)
            factors.extend(found)
            return counts, found

        frame = X.assign(id=0, sum=3.0, group="a")[list(schema)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_releases, "release_singles", watch)
            options = {"schema": schema, "constraints": constraints, "neighbours": neighbours}
            fit = listen(make(marginals="auto", **options), frame)
        return [step.scale for step in fit.steps], sorted(factors)

    assert spent(COMPUTED, COMPUTE) == spent(SCHEMA, None)
    assert spent(COMPUTED, COMPUTE[:1])[1] > spent(SCHEMA, None)[1]


def test_rules_alone_cost_nothing():
    scales = [
        [step.scale for step in listen(make(constraints=rules), X).steps]
        for rules in (None, RULES, RULES[:1])
    ]
    assert scales[0] == scales[1] == scales[2]


def test_identifiers_are_not_released_by_people_either():
    schema = Schema({"id": Identifier("x"), "job": Categorical(["baker", "nurse"])})
    frame = pd.DataFrame({"id": ["Ann", "Bob"] * 50, "job": ["baker", "nurse"] * 50})
    for epsilon in (1.0, math.inf):
        released = TabularMechanism(epsilon, schema=schema, random_state=0).fit_transform(frame)
        assert released["id"].tolist() == [f"x{i}" for i in range(100)]
    answers = JointRandomizedResponse(2.0, schema=schema, random_state=0).fit_transform(frame)
    assert not answers.astype(str).apply(lambda c: c.str.contains("Ann|Bob|id")).any(axis=None)
    # A column of names is.
    named = Schema(dict(schema) | {"id": Categorical(["Ann", "Bob"])})
    released = TabularMechanism(math.inf, schema=named, random_state=0).fit_transform(frame)
    assert released["id"].tolist() == frame["id"].tolist()


def test_all_that_make_tables_make_up_identifiers():
    names = ["id", "job", "age"]
    schema = Schema({"id": Identifier("x")} | {name: SCHEMA[name] for name in names[1:]})
    frame = X.assign(id=[Secret() for _ in range(len(X))])[names]
    small = {"schema": schema, "random_state": 0, "device": "cpu"}
    mechanism = JointRandomizedResponse(20.0, schema=schema, n_bins=4, random_state=0)
    answers = mechanism.fit_transform(frame)
    for sampler, records in (
        (PrivateEvolutionSampler(100.0, n_samples=20, n_iter=1, **small), frame),
        (LocalTableSampler(mechanism, max_iter=2, random_state=0, device="cpu"), answers),
    ):
        made = sampler.fit(records).sample(5)
        assert made["id"].tolist() == [f"x{i}" for i in range(5)]


def test_the_law_without_rules_is_as_it_was():
    """An empty list is none, bit for bit."""
    fits = [make(constraints=rules).fit(X) for rules in (None, [])]
    assert all(map(np.array_equal, *map(law_parts, fits)))
    assert "_rules_" not in vars(fits[1])
    # A fit forgets the rules of an earlier one.
    again = make(constraints=RULES).fit(X).set_params(constraints=None).fit(X)
    assert same(fits[0], again)
    assert again.acceptance_rate() == 1.0
